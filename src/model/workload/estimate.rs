//! Estimated run time of a plan, reported before it runs.

use super::replay::ReplayProgram;
use super::{Case, CopyShape, Op, WorkPlan};
use crate::config::{CopyKind, RunSettings};
use commgauge_base::units::{Bytes, Seconds};

/// Time of a case in each replicate apart from sampling: buffers, checks, warm-up, agreement.
const SECONDS_BESIDE_SAMPLING: f64 = 0.05;
/// What filling and comparing the buffers of a copy takes for each of its bytes, and locking them: 14.5 s instead of the 5.4 s of budgets for
/// suites/copies.toml on a host with an H200.
const SECONDS_PER_COPIED_BYTE: f64 = 1.5e-9;
/// Cautious figures of host memory, for runs whose number of iterations is fixed.
const CAUTIOUS_BYTES_PER_SECOND: f64 = 0.5e9;
const CAUTIOUS_LATENCY_SECONDS: f64 = 50e-6;

/// How long a piece of work is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// Its budget, after which it ends by itself.
    Budget(Seconds),
    /// A guess for a fixed number of calls, from cautious figures of host memory: far too long on GPUs, too short over a slow network.
    Guess(Seconds),
}

impl Estimate {
    /// The time, whatever it rests on.
    pub fn seconds(self) -> Seconds {
        match self {
            Estimate::Budget(seconds) | Estimate::Guess(seconds) => seconds,
        }
    }
}

impl WorkPlan {
    /// The largest size argument of any case.
    pub fn largest_bytes(&self) -> Bytes {
        self.cases.iter().map(|case| case.op.bytes_total).max().unwrap_or_default()
    }

    /// Estimated upper bound of the run time. With the stop rule every case, product and copy uses its whole budget; with a fixed number
    /// of iterations it is a guess from cautious figures of host memory; a budget for all cases is used completely.
    pub fn estimated_seconds(&self, settings: &RunSettings) -> Seconds {
        let cases = settings.within.unwrap_or_else(|| self.estimated_seconds_of(&self.cases, settings));
        let products = self.products.len() as f64 * (settings.case_budget.0 + SECONDS_BESIDE_SAMPLING);
        let copies: f64 = self.copies.iter().map(|shape| estimated_copy(shape, settings).seconds().0).sum();
        Seconds(cases.0 + (products + copies) * f64::from(settings.replicates))
    }

    /// The same for some cases, which need not be in the plan.
    pub fn estimated_seconds_of(&self, cases: &[Case], settings: &RunSettings) -> Seconds {
        let replicate: f64 = cases.iter().map(|case| estimated_case(case, settings).seconds().0).sum();
        Seconds(replicate * f64::from(settings.replicates))
    }
}

/// Estimated upper bound of the time of a case in one replicate.
pub fn estimated_case(case: &Case, settings: &RunSettings) -> Estimate {
    let with_rest = |sampling: f64| Seconds(sampling + SECONDS_BESIDE_SAMPLING);
    match settings.at(case.op.bytes_total).fixed_iterations {
        Some(iterations) => Estimate::Guess(with_rest(f64::from(iterations) * cautious_seconds(case))),
        None => Estimate::Budget(with_rest(settings.case_budget.0)),
    }
}

/// Estimated time of a copy in one replicate.
pub fn estimated_copy(shape: &CopyShape, settings: &RunSettings) -> Estimate {
    let ways = match shape.kind {
        CopyKind::HostBothWays | CopyKind::PeerBothWays => 2.0,
        CopyKind::HostToDevice | CopyKind::DeviceToHost | CopyKind::WithinDevice | CopyKind::ToPeer => 1.0,
    };
    let prepared = ways * shape.bytes.0 as f64 * SECONDS_PER_COPIED_BYTE;
    Estimate::Budget(Seconds(settings.case_budget.0 + SECONDS_BESIDE_SAMPLING + prepared))
}

/// Estimated upper bound of the time of a rank for repeated replays of a program: its computing, and every call alone.
pub fn estimated_replay_seconds(program: &ReplayProgram, repetitions: u32) -> Seconds {
    let starts = program.starts_per_op();
    let calls: f64 = program.ops.iter().zip(starts).map(|(op, starts)| starts as f64 * cautious_seconds_of(op)).sum();
    let once = program.compute_nanoseconds() as f64 * 1e-9 + calls;
    Seconds(once * f64::from(repetitions) + SECONDS_BESIDE_SAMPLING)
}

fn cautious_seconds(case: &Case) -> f64 {
    cautious_seconds_of(&case.op) * f64::from(case.variant.calls_at_once())
}

fn cautious_seconds_of(op: &Op) -> f64 {
    CAUTIOUS_LATENCY_SECONDS + op.bytes_total.0 as f64 / CAUTIOUS_BYTES_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    #[test]
    fn the_estimate_is_the_budget_of_every_case_and_replicate_or_follows_the_fixed_count() {
        let text = "[[sweep]]\ncollectives = 'all_gather'\nbytes = [1000000, 2000000]\nplacements = 'in-place'\ncadences = 'isolated'\n";
        let suite = Suite::parse(Path::new("test.toml"), text).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        assert_eq!(plan.largest_bytes(), Bytes(2_000_000));
        let mut settings = RunSettings { case_budget: Seconds(0.2), replicates: 3, ..RunSettings::default() };
        assert!((plan.estimated_seconds(&settings).0 - 3.0 * 2.0 * 0.25).abs() < 1e-9);
        settings.fixed_iterations = Some(100);
        let calls = 100.0 * (2.0 * 50e-6 + 3e6 / 0.5e9);
        assert!((plan.estimated_seconds(&settings).0 - 3.0 * (calls + 2.0 * 0.05)).abs() < 1e-9);
    }

    #[test]
    fn copies_take_the_longer_to_prepare_the_larger_they_are() {
        let suite = Suite::parse(Path::new("copies.toml"), include_str!("../../../suites/copies.toml")).unwrap();
        let plan = WorkPlan::from_suite(&suite, 1).unwrap();
        let seconds = plan.estimated_seconds(&suite.settings).0;
        assert!((12.0..20.0).contains(&seconds), "{seconds} s; 14.5 s were measured on one GPU");
    }
}
