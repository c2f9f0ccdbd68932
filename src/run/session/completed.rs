//! The work that earlier launches have completed, as a resumed run needs it.

use super::request::Request;
use super::tally::Tally;
use commgauge_model::record::calibration_line::{CalibratedCurve, CalibrationEnd, PlanGrowth};
use commgauge_model::record::copy_line::CopyFacts;
use commgauge_model::record::interference_line::InterferingCall;
use commgauge_model::record::line::CaseLine;
use commgauge_model::record::product_line::ProductFacts;
use commgauge_model::record::{Record, Reopened};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Work completed by earlier launches; empty for a new run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CompletedWork {
    /// Case and replicate.
    cases: BTreeSet<(u32, u32)>,
    /// Index of the product in the plan, and replicate.
    products: BTreeSet<(usize, u32)>,
    /// Index of the copy in the plan, and replicate.
    copies: BTreeSet<(usize, u32)>,
    /// Replicate, and which of the two calls was timed.
    interference: BTreeSet<(u32, usize)>,
    /// Index of the step.
    replays: BTreeSet<u32>,
    /// Whether choosing sizes was completed.
    pub calibrated: bool,
    /// How it came out.
    pub tally: Tally,
    /// The case lines, on process 0.
    #[serde(skip)]
    lines: Vec<CaseLine>,
    /// Cases that were added to the plan; on process 0 only.
    #[serde(skip)]
    growths: Vec<PlanGrowth>,
}

impl CompletedWork {
    pub(super) fn has_case(&self, case: usize, replicate: u32) -> bool {
        self.cases.contains(&(case as u32, replicate))
    }

    pub(super) fn has_product(&self, index: usize, replicate: u32) -> bool {
        self.products.contains(&(index, replicate))
    }

    pub(super) fn has_copy(&self, index: usize, replicate: u32) -> bool {
        self.copies.contains(&(index, replicate))
    }

    pub(super) fn has_interference(&self, replicate: u32, timed: usize) -> bool {
        self.interference.contains(&(replicate, timed))
    }

    pub(super) fn has_replay(&self, step: u32) -> bool {
        self.replays.contains(&step)
    }

    /// The lines of some cases of the plan; empty except on process 0.
    pub(super) fn lines_of(&self, cases: std::ops::Range<usize>) -> Vec<CaseLine> {
        self.lines.iter().filter(|line| cases.contains(&(line.case as usize))).cloned().collect()
    }

    /// Seconds spent on sampling the cases from this one on; 0 except on process 0.
    pub(super) fn sampling_seconds_from(&self, first_case: usize) -> f64 {
        let lines = self.lines.iter().filter(|line| line.case as usize >= first_case);
        lines.flat_map(|line| &line.samples.slowest_nanoseconds).map(|time| *time as f64 * 1e-9).sum()
    }

    /// A round that was added to the plan, counted from 1; none except on process 0.
    pub(super) fn growth(&self, round: u32) -> Option<&PlanGrowth> {
        self.growths.iter().find(|growth| growth.round == round)
    }

    /// What the record holds of the requested work.
    pub(super) fn of(reopened: &Reopened, request: &Request) -> CompletedWork {
        let record = &reopened.record;
        let lines: Vec<CaseLine> = record.cases.iter().filter(|line| !line.was_cut_short()).cloned().collect();
        let tally = tally(record, &lines);
        let ended = |curve: &CalibratedCurve| curve.outcome != CalibrationEnd::Interrupted;
        let calibration = record.calibration.as_ref();
        let cases: BTreeSet<(u32, u32)> = lines.iter().map(|line| (line.case, line.replicate)).collect();
        let all_measured = cases.len() as u64 == record.plan.case_lines;
        CompletedWork {
            cases,
            products: products(record, request),
            copies: copies(record, request),
            interference: interference(record, request),
            replays: record.replays.iter().map(|replay| replay.step).collect(),
            calibrated: all_measured && calibration.is_some_and(|line| line.curves.iter().all(ended)),
            tally,
            lines,
            growths: reopened.growths.clone(),
        }
    }
}

fn products(record: &Record, request: &Request) -> BTreeSet<(usize, u32)> {
    let shapes: Vec<ProductFacts> = request.plan.products.iter().map(ProductFacts::of).collect();
    let index = |facts: &ProductFacts| shapes.iter().position(|shape| shape == facts);
    record.products.iter().filter_map(|line| Some((index(&line.product)?, line.replicate))).collect()
}

fn copies(record: &Record, request: &Request) -> BTreeSet<(usize, u32)> {
    let shapes: Vec<CopyFacts> = request.plan.copies.iter().map(CopyFacts::of).collect();
    let index = |facts: &CopyFacts| shapes.iter().position(|shape| shape == facts);
    record.copies.iter().filter_map(|line| Some((index(&line.copy)?, line.replicate))).collect()
}

fn interference(record: &Record, request: &Request) -> BTreeSet<(u32, usize)> {
    let Some(pair) = &request.after_plan.interference else { return BTreeSet::new() };
    let calls: Vec<InterferingCall> = pair.ops.iter().map(InterferingCall::of).collect();
    let timed = |call: &InterferingCall| calls.iter().position(|own| own == call);
    record.interference.iter().filter_map(|line| Some((line.replicate, timed(&line.timed)?))).collect()
}

fn tally(record: &Record, lines: &[CaseLine]) -> Tally {
    let outcomes = (lines.iter().map(|line| &line.outcome))
        .chain(record.products.iter().map(|line| &line.outcome))
        .chain(record.copies.iter().map(|line| &line.outcome))
        .chain(record.interference.iter().map(|line| &line.outcome))
        .chain(record.replays.iter().map(|line| &line.outcome));
    let mut tally = Tally::default();
    outcomes.for_each(|outcome| tally.count(outcome));
    tally
}
