//! The replays of a run: each step as a whole, after the cases, with the communicators of all axes open at the same
//! time.

use super::completed::CompletedWork;
use super::request::{ReplaySource, Request};
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, ReplayBinding, Replayer};
use crate::measure::{measure_replay, replay_line_without_numbers};
use crate::watchdog::{Activity, Watch, deadline_of_replay};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::Line;
use commgauge_model::record::provenance;
use commgauge_model::record::replay_line::ReplayLine;
use commgauge_model::workload::replay::{Action, ReplayOptions, ReplayPlan, Timetable};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Estimate, Op, estimated_replay_seconds};

/// A replay that is ready to run.
pub(super) struct Replay {
    /// The index of its step in the plan.
    step_index: u32,
    options: ReplayOptions,
    plan: ReplayPlan,
}

/// Plans every replay and rejects those that do not fit into memory, before anything is measured.
pub(super) fn plan(world: &dyn World, backend: &dyn Backend, request: &Request) -> Result<Vec<Replay>> {
    let Some(replay) = &request.after_plan.replay else { return Ok(Vec::new()) };
    let options = &replay.options;
    match &replay.source {
        ReplaySource::Steps(layout) => {
            let steps = agree(world, Step::all_of(layout, request.world_size))?;
            let one = |(index, step)| plan_step(backend, request, options, index, step);
            agree(world, (0u32..).zip(&steps).map(one).collect())
        }
        ReplaySource::Trace(trace) => {
            let local_ranks = backend.local_ranks();
            let plan = agree(world, trace.plan(|rank| local_ranks.contains(&rank)))?;
            let replay = Replay { step_index: 0, options: *options, plan };
            agree(world, ensure_replayable(backend, request, &replay.plan, "the trace"))?;
            Ok(vec![replay])
        }
    }
}

fn plan_step(
    backend: &dyn Backend,
    request: &Request,
    options: &ReplayOptions,
    step_index: u32,
    step: &Step,
) -> Result<Replay> {
    let Step::Training(training) = step else {
        let phase = step.phase_name();
        return Err(Error::usage(format!("a step of {phase} has no schedule; only training can be replayed")));
    };
    let local_ranks = backend.local_ranks();
    let timetable = Timetable::of(training)?;
    let plan = ReplayPlan::new(step, &timetable, options, |rank| local_ranks.contains(&rank))?;
    ensure_replayable(backend, request, &plan, &format!("a step of {}", step.model().shown_name()))?;
    Ok(Replay { step_index, options: *options, plan })
}

/// Refuses what cannot be replayed here, before anything is measured.
fn ensure_replayable(backend: &dyn Backend, request: &Request, plan: &ReplayPlan, what: &str) -> Result<()> {
    backend.ensure_replayable(&binding(plan, request))?;
    let needed = backend.replay_bytes_needed(&binding(plan, request))?;
    let available = backend.bytes_available();
    if needed > available {
        let host = provenance::rank_facts(0).host;
        return Err(Error::usage(format!(
            "replaying {what} needs {needed} of buffers on each rank; host {host} has {available} for each; \
             choose a shorter sequence, fewer layers or smaller buckets"
        )));
    }
    Ok(())
}

fn binding<'a>(plan: &'a ReplayPlan, request: &Request) -> ReplayBinding<'a> {
    ReplayBinding { plan, first_groups_number: 0, seed: request.settings.seed }
}

/// Runs the replays and writes one line each.
pub(super) fn measure_all(run: &mut Run, backend: &mut dyn Backend, replays: &[Replay]) -> Result<()> {
    run.carry_out_all(backend, replays)
}

impl WorkItem for &Replay {
    fn is_completed(&self, completed: &CompletedWork) -> bool {
        completed.has_replay(self.step_index)
    }

    /// Warm-up, repetitions and check of the longest program of this process.
    fn estimate(&self, _: &Run) -> Estimate {
        let ReplayOptions { repetitions, warm_up, .. } = self.options;
        let runs = repetitions.saturating_add(warm_up).saturating_add(1);
        let seconds = self.plan.programs.iter().flatten().map(|program| estimated_replay_seconds(program, runs).0);
        Estimate::Guess(Seconds(seconds.fold(0.0, f64::max)))
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        for (number, groups) in self.plan.groups.iter().enumerate() {
            backend.connect(number, groups)?;
        }
        let line = self.line(run, backend)?;
        backend.disconnect()?;
        run.record_if_whole(Line::Replay(Box::new(line)))
    }
}

impl Replay {
    fn line(&self, run: &Run, backend: &mut dyn Backend) -> Result<ReplayLine> {
        let Replay { step_index, options, plan } = self;
        let (request, context) = (run.request, run.replay_context(backend));
        begin(&request.watch, &format!("replay of step {step_index}"), plan, run.world.process());
        let mut replayer = match run.bound(backend.bind_replay(&binding(plan, request)))? {
            Ok(replayer) => watched(&request.watch, replayer),
            Err(failed) => return Ok(replay_line_without_numbers(plan, options, *step_index, failed)),
        };
        measure_replay(&context, replayer.as_mut(), plan, options, *step_index)
    }
}

/// Reports this rank's program to the watchdog.
pub(super) fn begin(watch: &Watch, name: &str, plan: &ReplayPlan, rank: u32) {
    let program = plan.program_of_rank(rank);
    let computing = program.map_or(0, |program| {
        let nanoseconds =
            |action: &Action| if let Action::Compute { nanoseconds, .. } = action { *nanoseconds } else { 0 };
        program.actions.iter().map(nanoseconds).sum::<u64>()
    });
    let deadline = watch.timeout().unwrap_or_else(|| deadline_of_replay(Seconds::from_nanoseconds(computing)));
    watch.begin(|| {
        let op = |op: &Op| format!("{} {} of {}", op.axis.name(), op.collective, op.bytes_total);
        let ops = program.map_or_else(Vec::new, |program| program.ops.iter().map(op).collect());
        Activity { ops, ..Activity::named(name, deadline) }
    });
}

/// Lets a replayer report its progress.
pub(super) fn watched<'b>(watch: &Watch, mut replayer: Box<dyn Replayer + 'b>) -> Box<dyn Replayer + 'b> {
    if let Some(progress) = watch.progress() {
        replayer.watch(progress);
    }
    replayer
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
