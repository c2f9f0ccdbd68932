//! State of every curve on process 0 while sizes are chosen: the sizes so far, their times, and how well the last ones
//! were predicted.

use super::super::facts::case_facts;
use super::super::preflight;
use super::super::request::Request;
use commgauge_analysis::cost::curve::{Point, combined};
use commgauge_analysis::cost::next_point::{Gap, gaps, interpolated, next_point};
use commgauge_analysis::cost::seconds_of_call;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::config::Calibrate;
use commgauge_model::record::calibration_line::{
    CalibratedCurve, CalibrationEnd, CalibrationLine, ChosenSize, PlanGrowth,
};
use commgauge_model::record::line::{CaseFacts, CaseLine};
use commgauge_model::workload::{Case, Op, WorkPlan};
use std::collections::{BTreeMap, BTreeSet};

/// All curves of a run.
pub(super) struct Curves {
    curves: Vec<CurveState>,
}

/// A curve that grows.
struct CurveState {
    /// Index in the plan of one of its cases, and its facts; the other cases differ in size only.
    template: usize,
    facts: CaseFacts,
    op: Op,
    /// The case with this index.
    case: Case,
    /// Bytes of every case of the curve, by index in the plan, rounded so that they divide among the ranks.
    bytes_of_case: BTreeMap<u32, u64>,
    /// Seconds of a call in each replicate, by bytes.
    seconds: BTreeMap<u64, Vec<f64>>,
    /// Sizes that were tried, with or without success; none is tried twice.
    tried: BTreeSet<u64>,
    /// Errors of the predictions of added sizes, in the order of adding.
    errors: Vec<f64>,
}

/// Why a run that would add further sizes does not.
#[derive(Clone, Copy)]
pub(super) struct Stopped {
    /// Its time for sizes is spent.
    pub is_spent: bool,
    /// The plan has as many cases as it may.
    pub is_full: bool,
    /// The run was stopped.
    pub is_interrupted: bool,
}

/// The next size of a curve.
pub(super) struct NextSize {
    curve: usize,
    /// Index in the plan of a case of the same curve.
    pub template: usize,
    pub bytes: u64,
    pub why: ChosenSize,
}

impl Curves {
    /// The curves of a plan, without times.
    pub(super) fn of(plan: &WorkPlan, host_of_rank: &[u32], request: &Request) -> Curves {
        let growing = |indices: &Vec<usize>| {
            let of_case =
                |index: usize| case_facts(request, &preflight::planned(request, &plan.cases[index], host_of_rank));
            let bytes_of_case: BTreeMap<u32, u64> =
                indices.iter().map(|index| (*index as u32, of_case(*index).bytes_total.0)).collect();
            CurveState {
                template: indices[0],
                facts: of_case(indices[0]),
                op: plan.cases[indices[0]].op.clone(),
                case: plan.cases[indices[0]].clone(),
                tried: indices.iter().map(|index| plan.cases[*index].op.bytes_total.0).collect(),
                bytes_of_case,
                seconds: BTreeMap::new(),
                errors: Vec::new(),
            }
        };
        Curves { curves: plan.curves().iter().map(growing).collect() }
    }

    /// Adds the times of cases that belong to a curve.
    pub(super) fn add_lines(&mut self, lines: &[CaseLine]) {
        for line in lines {
            for curve in &mut self.curves {
                if let Some(bytes) = curve.bytes_of_case.get(&line.case)
                    && let Some(seconds) = seconds_of_call(&curve.facts, line)
                {
                    curve.seconds.entry(*bytes).or_default().push(seconds);
                }
            }
        }
    }

    /// Adds the times of the chosen sizes, the first of which has the given index in the plan.
    pub(super) fn add(&mut self, chosen: &[NextSize], first_case: u32, lines: &[CaseLine]) {
        for (case, next) in (first_case..).zip(chosen) {
            self.curves[next.curve].bytes_of_case.insert(case, next.bytes);
        }
        self.add_lines(lines);
        for next in chosen {
            let curve = &mut self.curves[next.curve];
            // A size that could not be measured does not affect the curve.
            if let Some(seconds) = curve.seconds.get(&next.bytes).and_then(|replicates| combined(replicates)) {
                curve.errors.push((next.why.predicted_seconds.0 / seconds - 1.0).abs());
            }
        }
    }

    /// One size for each curve that is not precise enough, at most `most`, starting with the least precise curve.
    pub(super) fn next(&mut self, calibrate: &Calibrate, most: usize) -> Vec<NextSize> {
        let mut chosen: Vec<NextSize> =
            (self.curves.iter().enumerate()).filter_map(|(index, curve)| curve.next(index, calibrate)).collect();
        chosen.sort_by(|a, b| b.why.expected_error.total_cmp(&a.why.expected_error));
        chosen.truncate(most);
        for next in &chosen {
            self.curves[next.curve].tried.insert(next.bytes);
        }
        chosen
    }

    /// The sizes of a round that an earlier launch chose and recorded.
    pub(super) fn chosen_before(&mut self, growth: &PlanGrowth) -> Result<Vec<NextSize>> {
        let one = |(facts, why): (&CaseFacts, &ChosenSize)| {
            let bytes = facts.bytes_total.0;
            // Apart from the size and values derived from it, the new case equals the others of its curve.
            let same = |curve: &CurveState| curve.named(bytes) == facts.name;
            let Some(curve) = self.curves.iter().position(same) else {
                let name = &facts.name;
                let text =
                    format!("round {} of the record adds {name}, which is of no curve of this plan", growth.round);
                return Err(Error::mismatch(text));
            };
            Ok(NextSize { curve, template: self.curves[curve].template, bytes, why: why.clone() })
        };
        let chosen: Vec<NextSize> = growth.cases.iter().zip(&growth.chosen).map(one).collect::<Result<_>>()?;
        for next in &chosen {
            self.curves[next.curve].tried.insert(next.bytes);
        }
        Ok(chosen)
    }

    /// The line of the record.
    pub(super) fn line(&self, calibrate: &Calibrate, rounds: u32, stopped: Stopped) -> CalibrationLine {
        let curves = self.curves.iter().map(|curve| curve.summary(calibrate, stopped)).collect();
        CalibrationLine { until_error: calibrate.until_error, rounds, curves }
    }
}

impl CurveState {
    /// Name of the case of this size.
    fn named(&self, bytes: u64) -> String {
        self.case.with_bytes(Bytes(bytes)).name()
    }

    fn points(&self) -> Vec<Point> {
        let point = |(bytes, replicates): (&u64, &Vec<f64>)| Some(Point::new(*bytes as f64, combined(replicates)?));
        self.seconds.iter().filter_map(point).collect()
    }

    /// Expected error of the curve at its least precise size.
    fn expected_error(&self) -> Option<f64> {
        gaps(&self.points()).iter().map(|gap| gap.expected_error).reduce(f64::max)
    }

    fn next(&self, curve: usize, calibrate: &Calibrate) -> Option<NextSize> {
        if self.seconds.len() >= calibrate.most_sizes as usize {
            return None;
        }
        let points = self.points();
        let last_error = self.errors.last().copied();
        let (gap, bytes) = next_point(&points, last_error, calibrate.until_error, |gap| self.split(gap))?;
        Some(NextSize {
            curve,
            template: self.template,
            bytes,
            why: ChosenSize {
                above: Bytes(gap.low),
                below: Bytes(gap.high),
                expected_error: gap.expected_error,
                predicted_seconds: Seconds(interpolated(&points, bytes as f64)?),
            },
        })
    }

    /// A size between two measured ones that was not tried yet.
    fn split(&self, gap: &Gap) -> Option<u64> {
        let bytes = gap.middle().and_then(|bytes| self.divisible(bytes))?;
        let is_new = bytes > gap.low && bytes < gap.high && !self.tried.contains(&bytes);
        is_new.then_some(bytes)
    }

    /// The largest valid size of the call up to this one, so that the planned size equals the requested one.
    fn divisible(&self, bytes: u64) -> Option<u64> {
        let op = Op { bytes_total: Bytes(bytes), ..self.op.clone() };
        op.geometry(self.facts.group_size).ok().map(|geometry| geometry.bytes_total.0)
    }

    fn summary(&self, calibrate: &Calibrate, stopped: Stopped) -> CalibratedCurve {
        let (points, expected_error) = (self.points(), self.expected_error());
        let last_error = self.errors.last().copied();
        let within = |error: Option<f64>| error.is_some_and(|error| error <= calibrate.until_error);
        let may_grow = self.seconds.len() < calibrate.most_sizes as usize;
        let outcome = match () {
            () if points.len() < 2 => CalibrationEnd::NotMeasured,
            () if within(expected_error) && within(last_error) => CalibrationEnd::Sure,
            () if !may_grow => CalibrationEnd::MostSizes,
            () if self.next(0, calibrate).is_none() => CalibrationEnd::NoSizeBetween,
            () if stopped.is_interrupted => CalibrationEnd::Interrupted,
            () if stopped.is_full && !stopped.is_spent => CalibrationEnd::MostCases,
            () => CalibrationEnd::Budget,
        };
        CalibratedCurve {
            case: self.template as u32,
            sizes: self.seconds.len() as u32,
            expected_error,
            last_error,
            largest_error: self.errors.iter().copied().reduce(f64::max),
            outcome,
        }
    }
}
