//! A run that chooses its own sizes: after the sizes of the suite, rounds that add one size to every curve that is not
//! precise enough, at the point of largest expected error.
//!
//! Only process 0 has the times, so it decides and broadcasts the choice; every process then measures the same cases.

mod curves;

use super::preflight::{self, Planned};
use super::resume::CompletedWork;
use super::steps::{Steps, Tally};
use super::timekeeping::Timekeeping;
use super::{Request, SharedJournal, Signals, facts};
use crate::backend::Backend;
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::Calibrate;
use commgauge_model::record::calibration_line::PlanGrowth;
use commgauge_model::record::line::{CaseLine, Line};
use commgauge_model::workload::{Case, MOST_CASES};
use curves::Curves;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Inputs of choosing sizes.
pub(super) struct Rounds<'a> {
    pub world: &'a dyn World,
    pub request: &'a Request,
    pub calibrate: &'a Calibrate,
    pub host_of_rank: &'a [u32],
    /// Rounds that earlier launches have completed.
    pub completed: &'a CompletedWork,
    pub signals: &'a Signals,
}

/// A size that process 0 chose.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Choice {
    /// Index in the plan of a case of the curve.
    like: usize,
    bytes: u64,
}

impl Rounds<'_> {
    /// Adds rounds until every curve is precise enough or may not grow further. `measured` are the lines of the cases
    /// of the plan; on process 0 only.
    pub(super) fn measure_all(
        &self,
        backend: &mut dyn Backend,
        time: &mut Timekeeping,
        (journal, tally): (&mut SharedJournal, &mut Tally),
        measured: &[CaseLine],
    ) -> Result<()> {
        let begun = Instant::now();
        let mut curves = Curves::of(&self.request.plan, self.host_of_rank, self.request);
        curves.add_lines(measured);
        let mut cases_so_far = self.request.plan.cases.len();
        let mut round = 0;
        let spent_before = self.completed.sampling_seconds_from(cases_so_far);
        let is_spent = || begun.elapsed().as_secs_f64() + spent_before > self.calibrate.budget.0;
        while !tally.is_stopped() {
            let recorded_growth = self.completed.growth(round + 1);
            let before = recorded_growth.map_or_else(|| Ok(Vec::new()), |growth| curves.chosen_before(growth));
            let mut chosen = agree(self.world, before)?;
            if recorded_growth.is_none() && self.world.process() == 0 && !is_spent() {
                chosen = curves.next(self.calibrate, MOST_CASES.saturating_sub(cases_so_far));
            }
            let choices = self.broadcast_choices(
                chosen.iter().map(|next| Choice { like: next.template, bytes: next.bytes }).collect(),
            )?;
            if choices.is_empty() {
                break;
            }
            round += 1;
            let cases: Vec<Case> = choices
                .iter()
                .map(|choice| self.request.plan.cases[choice.like].with_bytes(Bytes(choice.bytes)))
                .collect();
            let planned: Vec<Planned> =
                cases.iter().map(|case| preflight::planned(self.request, case, self.host_of_rank)).collect();
            let replicates = u64::from(self.request.settings.replicates);
            journal.write_all(self.world, || {
                let growth = PlanGrowth {
                    round,
                    cases: planned.iter().map(|planned| facts::case_facts(self.request, planned)).collect(),
                    case_lines: planned.len() as u64 * replicates,
                    estimated_seconds: self.request.plan.estimated_seconds_of(&cases, &self.request.settings),
                    chosen: chosen.iter().map(|next| next.why.clone()).collect(),
                };
                // A growth that an earlier launch recorded is already in the record.
                recorded_growth.is_none().then(|| Line::PlanGrowth(Box::new(growth))).into_iter().collect()
            })?;
            let Rounds { world, request, completed, signals, .. } = *self;
            let steps =
                Steps { world, request, planned: &planned, completed, first_case: cases_so_far, round, signals };
            let measured = steps.measure_all(backend, time, (&mut *journal, &mut *tally))?;
            curves.add(&chosen, cases_so_far as u32, &measured);
            cases_so_far += planned.len();
        }
        let full = cases_so_far >= MOST_CASES;
        journal.write(self.world, || {
            Line::Calibration(curves.line(self.calibrate, round, (is_spent(), full, tally.is_stopped())))
        })
    }

    /// Broadcasts the choice of process 0.
    fn broadcast_choices(&self, chosen: Vec<Choice>) -> Result<Vec<Choice>> {
        let unreadable = |cause| Error::environment(format!("the next sizes cannot be sent to the ranks: {cause}"));
        let mut bytes = serde_json::to_vec(&chosen).map_err(unreadable)?;
        self.world.broadcast(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(unreadable)
    }
}
