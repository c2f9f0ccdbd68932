//! Known answers and properties of the schedules, with shared helpers.

mod bubble;
mod drawn;
mod memory_and_sends;
mod properties;
mod refusals;
mod zero_bubble_paper;

use super::ScheduleKind::{self, *};
use super::kinds::Pass;
use super::{Schedule, StageCosts, Timeline, simulate};

/// The virtual stages of the tests: 2 where a kind needs them.
fn virtual_stages(kind: ScheduleKind) -> u32 {
    if kind.goes_round() { 2 } else { 1 }
}

fn schedule(kind: ScheduleKind, stages: u32, micro_batches: u32) -> Schedule {
    Schedule::new(kind, stages, virtual_stages(kind), micro_batches).unwrap()
}

fn run(schedule: &Schedule) -> Timeline {
    simulate(schedule, &StageCosts::EQUAL).unwrap()
}

/// The maximum idle time of a rank between its first start and its last end, with F = B = W = 1.
fn idle_of_longest_span(schedule: &Schedule) -> f64 {
    let timeline = run(schedule);
    let spans = (0..schedule.stages()).map(|rank| timeline.span(rank).0);
    spans.fold(0.0, f64::max) - 3.0 * f64::from(schedule.micro_batches())
}
