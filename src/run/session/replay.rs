//! The replays of a run: each step as a whole, after the cases, with the communicators of all axes open at the same
//! time.

use super::resume::CompletedWork;
use super::{Request, SharedJournal, Signals};
use crate::backend::{Backend, ReplayBinding, Replayer};
use crate::measure::{ReplayContext, measure_replay, replay_line_without_numbers};
use crate::session::steps::Tally;
use crate::watchdog::{Activity, Watch, deadline_of_replay};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::record::provenance;
use commgauge_model::record::replay_line::ReplayLine;
use commgauge_model::workload::replay::{Action, ReplayOptions, ReplayPlan, Timetable};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Op, estimated_replay_seconds};

/// A step to be replayed.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRequest<'a> {
    /// The step, of as many ranks as the run has.
    pub step: &'a Step<'a>,
    /// Its index among the steps of the plan.
    pub step_index: u32,
    /// How it is replayed.
    pub options: ReplayOptions,
}

/// A replay that is ready to run.
pub(super) struct Planned<'a> {
    request: &'a ReplayRequest<'a>,
    plan: ReplayPlan,
}

impl Planned<'_> {
    /// Estimated time: warm-up, repetitions and check of the longest program of this process.
    fn estimate(&self) -> Seconds {
        let ReplayOptions { repetitions, warm_up, .. } = self.request.options;
        let runs = repetitions.saturating_add(warm_up).saturating_add(1);
        let seconds = self.plan.programs.iter().flatten().map(|program| estimated_replay_seconds(program, runs).0);
        Seconds(seconds.fold(0.0, f64::max))
    }
}

/// Plans every replay and rejects those that do not fit into memory, before anything is measured.
pub(super) fn plan<'a>(
    world: &dyn World,
    backend: &dyn Backend,
    request: &Request,
    replays: &'a [ReplayRequest<'a>],
) -> Result<Vec<Planned<'a>>> {
    let one = |replay: &'a ReplayRequest<'a>| plan_one(backend, request, replay);
    agree(world, replays.iter().map(one).collect())
}

fn plan_one<'a>(backend: &dyn Backend, request: &Request, replay: &'a ReplayRequest<'a>) -> Result<Planned<'a>> {
    let Step::Training(training) = replay.step else {
        let phase = replay.step.phase_name();
        return Err(Error::usage(format!("a step of {phase} has no schedule; only training can be replayed")));
    };
    let ranks = replay.step.layout().degrees.world();
    if ranks != u64::from(request.world_size) {
        let found = request.world_size;
        return Err(Error::usage(format!("the step to be replayed is of {ranks} ranks, the run of {found}")));
    }
    let local_ranks = backend.local_ranks();
    let timetable = Timetable::of(training)?;
    let plan = ReplayPlan::new(replay.step, &timetable, &replay.options, |rank| local_ranks.contains(&rank))?;
    let needed = backend.replay_bytes_needed(&binding(&plan, request))?;
    let available = backend.bytes_available();
    if needed > available {
        let (host, model) = (provenance::rank_facts(0).host, replay.step.model().shown_name());
        return Err(Error::usage(format!(
            "replaying a step of {model} needs {needed} of buffers on each rank; host {host} has {available} for each; \
             choose a shorter sequence, fewer layers or smaller buckets"
        )));
    }
    Ok(Planned { request: replay, plan })
}

fn binding<'a>(plan: &'a ReplayPlan, request: &Request) -> ReplayBinding<'a> {
    ReplayBinding { plan, first_groups_number: 0, seed: request.settings.seed }
}

/// Runs the replays and writes one line each.
pub(super) fn replay_all(
    world: &dyn World,
    backend: &mut dyn Backend,
    request: &Request,
    replays: &[Planned],
    (completed, signals): (&CompletedWork, &Signals),
    (journal, tally): (&mut SharedJournal, &mut Tally),
) -> Result<()> {
    for replay in replays {
        if tally.is_stopped() || completed.has_replay(replay.request.step_index) {
            continue;
        }
        let Some(work) = signals.begin(world, replay.estimate())? else {
            tally.out_of_time = true;
            return Ok(());
        };
        for (number, groups) in replay.plan.groups.iter().enumerate() {
            backend.connect(number, groups)?;
        }
        let line = replay_one(world, backend, request, replay, signals)?;
        backend.disconnect()?;
        tally.signal = signals.agreed(world)?;
        if tally.signal != 0 {
            // It was interrupted, and the record cannot express a partial result; a resumed run measures it again.
            return Ok(());
        }
        tally.corrupt += u64::from(matches!(line.outcome, Outcome::Corrupt { .. }));
        tally.failed += u64::from(matches!(line.outcome, Outcome::Failed { .. }));
        journal.write(world, || Line::Replay(Box::new(line)))?;
        signals.done(&work);
    }
    Ok(())
}

fn replay_one(
    world: &dyn World,
    backend: &mut dyn Backend,
    request: &Request,
    replay: &Planned,
    signals: &Signals,
) -> Result<ReplayLine> {
    let (plan, options, step) = (&replay.plan, &replay.request.options, replay.request.step_index);
    let context = ReplayContext {
        world,
        local_ranks: backend.local_ranks(),
        verify: request.settings.verify,
        interrupted: signals.raised(),
    };
    begin(&request.watch, &format!("replay of step {step}"), plan, world.process());
    // Nothing starts before all ranks have their buffers: the others would wait for a rank that failed to allocate.
    let bound = backend.bind_replay(&binding(plan, request));
    let mut replayer = match agree(world, bound) {
        Ok(replayer) => watched(&request.watch, replayer),
        Err(error) if error.is_shared() => {
            let failed = Outcome::Failed { reason: error.to_string() };
            return Ok(replay_line_without_numbers(plan, options, step, failed));
        }
        Err(error) => return Err(error),
    };
    measure_replay(&context, replayer.as_mut(), plan, options, step)
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
