//! A run that chooses its own sizes: after the sizes of the suite, rounds that add one size to every curve that is not
//! precise enough, at the point of largest expected error.
//!
//! Only process 0 has the times, so it decides and broadcasts the choice; every process then measures the same cases.

mod curves;

use super::case_set::CaseSet;
use super::preflight::{self, Planned};
use super::timekeeping::Timekeeping;
use super::work_loop::Run;
use super::{facts, replicates};
use crate::backend::Backend;
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::Calibrate;
use commgauge_model::record::calibration_line::PlanGrowth;
use commgauge_model::record::line::{CaseLine, Line};
use commgauge_model::workload::{Case, MOST_CASES};
use curves::{Curves, Stopped};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A size that process 0 chose.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Choice {
    /// Index in the plan of a case of the curve.
    like: usize,
    bytes: u64,
}

/// Adds rounds until every curve is precise enough or may not grow further. `measured` are the lines of the cases of
/// the plan; on process 0 only.
pub(super) fn measure_all(
    run: &mut Run,
    backend: &mut dyn Backend,
    time: &mut Timekeeping,
    calibrate: &Calibrate,
    measured: &[CaseLine],
) -> Result<()> {
    let (request, host_of_rank, begun) = (run.request, &run.ranks.host_of_rank, Instant::now());
    let mut curves = Curves::of(&request.plan, host_of_rank, request);
    curves.add_lines(measured);
    let mut cases_so_far = request.plan.cases.len();
    let mut round = 0;
    let spent_before = run.completed.sampling_seconds_from(cases_so_far);
    let is_spent = || begun.elapsed().as_secs_f64() + spent_before > calibrate.budget.0;
    while !run.tally.is_stopped() {
        let recorded_growth = run.completed.growth(round + 1);
        let before = recorded_growth.map_or_else(|| Ok(Vec::new()), |growth| curves.chosen_before(growth));
        let mut chosen = agree(run.world, before)?;
        let is_recorded = recorded_growth.is_some();
        if !is_recorded && run.world.process() == 0 && !is_spent() {
            chosen = curves.next(calibrate, MOST_CASES.saturating_sub(cases_so_far));
        }
        let choices = chosen.iter().map(|next| Choice { like: next.template, bytes: next.bytes }).collect();
        let choices = broadcast_choices(run.world, choices)?;
        if choices.is_empty() {
            break;
        }
        round += 1;
        let with_bytes = |choice: &Choice| request.plan.cases[choice.like].with_bytes(Bytes(choice.bytes));
        let cases: Vec<Case> = choices.iter().map(with_bytes).collect();
        let planned: Vec<Planned> = cases.iter().map(|case| preflight::planned(request, case, host_of_rank)).collect();
        run.journal.write_all(|| {
            let growth = PlanGrowth {
                round,
                cases: planned.iter().map(|planned| facts::case_facts(request, planned)).collect(),
                case_lines: planned.len() as u64 * u64::from(request.settings.replicates),
                estimated_seconds: request.plan.estimated_seconds_of(&cases, &request.settings),
                chosen: chosen.iter().map(|next| next.why.clone()).collect(),
            };
            // A growth that an earlier launch recorded is already in the record.
            (!is_recorded).then(|| Line::PlanGrowth(Box::new(growth))).into_iter().collect()
        })?;
        let cases = CaseSet { planned: &planned, first_case: cases_so_far, round };
        let measured = replicates::measure_all(run, backend, time, cases)?;
        curves.add(&chosen, cases_so_far as u32, &measured);
        cases_so_far += planned.len();
    }
    let stopped =
        Stopped { is_spent: is_spent(), is_full: cases_so_far >= MOST_CASES, is_interrupted: run.tally.is_stopped() };
    run.journal.write(|| Line::Calibration(curves.line(calibrate, round, stopped)))
}

/// Broadcasts the choice of process 0.
fn broadcast_choices(world: &dyn World, chosen: Vec<Choice>) -> Result<Vec<Choice>> {
    let unreadable = |cause| Error::environment(format!("the next sizes cannot be sent to the ranks: {cause}"));
    let mut bytes = serde_json::to_vec(&chosen).map_err(unreadable)?;
    world.broadcast(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(unreadable)
}
