//! How many forwards of a chunk a stage has in flight at once, by the schedule.
//!
//! The common schedules have closed forms, compared with the event lists of `workload::schedule` by a test; for the
//! others the lists are used.

use commgauge_model::config::step::ScheduleKind;
use commgauge_model::workload::schedule::Schedule;
use commgauge_model::workload::step::TrainingStep;
use std::sync::Arc;

/// Micro-batches, as a multiple of the stages, after which the peak of a searched schedule no longer changes.
const ENOUGH_PER_STAGE: u64 = 4;

/// Chunks in flight on one stage, 1 chunk being all layers of the stage where the schedule has no virtual stages.
pub(in crate::planner) fn chunks(step: &TrainingStep, stage: u32) -> u64 {
    closed_form(step, stage).unwrap_or_else(|| listed(step).map_or(1, |schedule| peak(&schedule, stage)))
}

/// The same of all stages.
pub(super) fn of_stages(step: &TrainingStep) -> Vec<u64> {
    let stages = 0..step.stages.count();
    match stages.clone().map(|stage| closed_form(step, stage)).collect() {
        Some(known) => known,
        None => match listed(step) {
            Some(schedule) => stages.map(|stage| peak(&schedule, stage)).collect(),
            None => stages.map(|_| 1).collect(),
        },
    }
}

/// naive 1, GPipe m, 1F1B p - stage (arXiv 2104.04473 section 2.2.1), interleaved 2(p - stage - 1) + (v - 1)p + 1: the warm-up
/// and the forward after it (section 2.2.2).
fn closed_form(step: &TrainingStep, stage: u32) -> Option<u64> {
    let (p, m) = (u64::from(step.stages.count()), step.micro_batches);
    if p == 1 {
        return Some(1);
    }
    let behind = p - 1 - u64::from(stage);
    match step.training.pipeline.schedule {
        ScheduleKind::Naive => Some(1),
        ScheduleKind::GPipe => Some(m),
        ScheduleKind::OneForwardOneBackward => Some(m.min(behind + 1)),
        ScheduleKind::Interleaved => {
            let v = u64::from(step.stages.chunks());
            Some(m.saturating_mul(v).min(2 * behind + (v - 1) * p + 1))
        }
        _ => None,
    }
}

/// None if the schedule does not exist, which a checked step rules out.
fn listed(step: &TrainingStep) -> Option<Arc<Schedule>> {
    let (p, choices) = (step.stages.count(), &step.training.pipeline);
    let enough = u32::try_from(step.micro_batches.min(ENOUGH_PER_STAGE * u64::from(p))).ok()?;
    Schedule::shared(choices.schedule, p, choices.virtual_stages, enough).ok()
}

fn peak(schedule: &Schedule, stage: u32) -> u64 {
    u64::from(schedule.peak_activation_chunks(stage))
}
