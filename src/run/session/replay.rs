//! The replays of a run: each step as a whole, after the cases, with the communicators of all axes open at the same
//! time.

use super::journal::WorkKey;
use super::request::{ReplaySource, Request};
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, ReplayBinding, Replayer};
use crate::measure::{measure_replay, replay_line_without_numbers};
use crate::watchdog::{Activity, Watch, deadline_of_replay};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_model::record::header;
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::record::work_lines::ReplayLine;
use commgauge_model::workload::replay::{Action, ReplayOptions, ReplayPlan, Timetable};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Estimate, Op, estimated_replay_seconds};

/// A replay that is ready to run.
pub(super) struct Replay {
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

/// Refuses replays that cannot run here, before anything is measured.
fn ensure_replayable(backend: &dyn Backend, request: &Request, plan: &ReplayPlan, what: &str) -> Result<()> {
    backend.ensure_replayable(&binding(plan, request))?;
    let needed = backend.replay_bytes_needed(&binding(plan, request))?;
    let available = backend.bytes_available();
    if needed > available {
        let host = header::rank_facts(0).host;
        return Err(Error::usage(format!(
            "replaying {what} needs {needed} of buffers on each rank; host {host} has {available} per rank; choose a shorter sequence, fewer layers or smaller buckets"
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
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Replay { step: self.step_index }]
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
        let context = run.replay_context(backend);
        match bind(run, backend, &format!("replay of step {step_index}"), plan)? {
            Ok(mut replayer) => measure_replay(&context, replayer.as_mut(), plan, options, *step_index),
            Err(failed) => Ok(replay_line_without_numbers(plan, options, *step_index, failed)),
        }
    }
}

/// Reports a program to the watchdog and binds it, or gives the outcome of one for which a rank has no memory.
pub(super) fn bind<'b>(
    run: &Run,
    backend: &'b mut dyn Backend,
    name: &str,
    plan: &'b ReplayPlan,
) -> Result<std::result::Result<Box<dyn Replayer + 'b>, Outcome>> {
    begin(&run.request.watch, name, plan, run.world.process());
    let mut bound = run.bound(backend.bind_replay(&binding(plan, run.request)))?;
    if let (Ok(replayer), Some(progress)) = (&mut bound, run.request.watch.progress()) {
        replayer.watch(progress);
    }
    Ok(bound)
}

/// Reports this rank's program to the watchdog.
fn begin(watch: &Watch, name: &str, plan: &ReplayPlan, rank: u32) {
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

#[cfg(test)]
mod tests {
    // Tests of replays on simulated ranks, from request to record.
    use super::*;
    use crate::backend::simulated::SimulatedBackend;
    use crate::session::{AfterPlan, ReplayRequest};
    use crate::session::{Signals, run};
    use crate::world::SoloWorld;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::{Bytes, Seconds};
    use commgauge_model::config::{Machine, RunSettings, Suite};
    use commgauge_model::layout::{Axis, Groups};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::{Outcome, SuiteFacts};
    use commgauge_model::record::work_lines::RankActivity;
    use commgauge_model::workload::replay::{RecordedAction, RecordedCall, RecordedKind, RecordedRank, TracedReplay};
    use commgauge_model::workload::{StepFacts, WorkPlan};
    use std::path::Path;
    use std::sync::Arc;

    fn suite(training: &str, layout: &str) -> Suite {
        suite_of("preset = 'llama-3-8b'\nlayers = 8", training, layout)
    }

    fn suite_of(model: &str, training: &str, layout: &str) -> Suite {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = format!("[model]\n{model}\n[training]\nsequence = 512\n{training}\n[[layout]]\n{layout}\n");
        Suite::parse(&path, &text).unwrap()
    }

    /// Four ranks per node, 1 us and 10 GB/s within a node; 5 us and four adapters of 1 GB/s between nodes.
    fn machine(more: &str) -> Machine {
        let text = format!(
            "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
         [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n{more}"
        );
        Machine::parse(&text, Path::new("m.toml")).unwrap()
    }

    /// Replays the first step of a suite and reads the record.
    fn replayed(suite: &Suite, machine: Machine, ranks: u32, forward_seconds: f64) -> Result<Record> {
        let steps = Step::all_of(&suite.layouts[0], ranks)?;
        let facts = steps.iter().map(StepFacts::of).collect();
        replayed_from(ReplaySource::Steps(Box::new(suite.layouts[0].clone())), facts, machine, ranks, forward_seconds)
    }

    fn replayed_from(
        source: ReplaySource,
        steps: Vec<StepFacts>,
        machine: Machine,
        ranks: u32,
        forward_seconds: f64,
    ) -> Result<Record> {
        let folder = tempfile::tempdir().unwrap();
        let suite_facts =
            SuiteFacts { name: "test".to_owned(), path: None, sha256: String::new(), model: None, layout: None };
        let mut backend = SimulatedBackend::new(&machine, ranks, 1)?;
        let options = ReplayOptions { repetitions: 3, warm_up: 1, forward_seconds_per_layer: Seconds(forward_seconds) };
        let request = Request {
            program: "test",
            run_id: "test".to_owned(),
            suite: suite_facts,
            plan: WorkPlan { steps, ..WorkPlan::default() },
            settings: RunSettings::default(),
            machine: Some(machine),
            world_size: ranks,
            record: folder.path().join("run.jsonl"),
            resume: None,
            launch: Default::default(),
            launch_command: None,
            injected: Default::default(),
            watch: Default::default(),
            listener: Default::default(),
            labels: std::collections::BTreeMap::new(),
            after_plan: AfterPlan { replay: Some(ReplayRequest { source, options }), ..AfterPlan::default() },
        };
        run(&SoloWorld, &mut backend, &request, &Signals::default())?;
        Record::read(&request.record)
    }

    #[test]
    fn simulated_ranks_move_the_bytes_of_the_list_whatever_the_schedule() {
        for (training, layout, ranks) in [
            ("micro_batches = 4", "tp = 2\npp = 2", 4),
            ("micro_batches = 8\nschedule = 'zb-v'", "tp = 2\npp = 4", 16),
            ("micro_batches = 8\nvirtual_stages = 2\nsequence_parallel = true", "tp = 4\npp = 4", 32),
            ("micro_batches = 4\ndata_style = 'zero2'", "dp = 4\ncp = 2", 8),
            ("micro_batches = 4\ndata_style = 'fsdp'", "dp = 4\npp = 2", 8),
        ] {
            let record = replayed(&suite(training, layout), machine(""), ranks, 1e-3).unwrap();
            let replay = &record.replays[0];
            assert_eq!(replay.outcome, Outcome::Measured { verified: false }, "{training}");
            assert!(replay.bytes_as_listed, "{training} {layout}: {replay:?}");
            assert_eq!((replay.slowest_nanoseconds.len(), replay.rank_nanoseconds_median.len()), (3, ranks as usize));
            assert!(replay.slowest_nanoseconds[0] > replay.computing_nanoseconds_median);
            assert!(replay.axes.iter().all(|axis| axis.calls_counted > 0), "{replay:?}");
            // Without noise every repetition is like the first.
            assert!(replay.slowest_nanoseconds.iter().all(|time| *time == replay.slowest_nanoseconds[0]));
        }
    }

    #[test]
    fn uneven_exchanges_of_experts_count_the_busiest_rank_as_the_list_does() {
        for routing in ["uniform", "random", "hot:0.5", "zipf:1.0"] {
            let training = format!("micro_batches = 2\nrouting = '{routing}'\ncapacity_factor = 1.5");
            let suite = suite_of("preset = 'mixtral-8x7b'\nlayers = 4", &training, "dp = 8\nep = 4\npp = 2");
            let record = replayed(&suite, machine(""), 16, 1e-3).unwrap();
            let replay = &record.replays[0];
            assert!(replay.bytes_as_listed, "{routing}: {replay:?}");
        }
    }

    #[test]
    fn the_bubble_of_1f1b_appears_where_communication_costs_next_to_nothing() {
        // (p - 1) / (m + p - 1) of the whole (arXiv 2104.04473 section 2.2.1): 3 / 11 with p = 4 and m = 8.
        let record = replayed(&suite("micro_batches = 8", "pp = 4"), machine(""), 4, 1.0).unwrap();
        let replay = &record.replays[0];
        let computing = replay.computing_nanoseconds_median as f64;
        assert_eq!(computing, 8.0 * 2.0 * 3e9, "8 micro-batches, 2 layers of 1 s forward and 2 s backward");
        let bubble = 1.0 - computing / replay.slowest_nanoseconds[0] as f64;
        assert!((bubble - 3.0 / 11.0).abs() < 0.01, "{bubble}");
        // The timeline shows the same on every rank.
        let timeline = replay.timeline.as_ref().unwrap();
        assert_eq!((timeline.resolution_nanoseconds, timeline.ranks.len()), (0, 4));
        for rank in &timeline.ranks {
            let own = rank.spans.iter().find(|spans| spans.activity == RankActivity::Computing).unwrap();
            let length: u64 = own.begin_and_length.iter().map(|(_, length)| length).sum();
            assert_eq!(length, replay.computing_nanoseconds_median, "rank {}", rank.rank);
            assert!(rank.spans.iter().any(|spans| spans.activity == RankActivity::Waiting(Axis::Pp)), "{}", rank.rank);
            assert_eq!(rank.stage, rank.rank);
        }
    }

    #[test]
    fn gradients_hide_under_the_last_backward_pass_as_far_as_that_is_long_enough() {
        let buckets = "micro_batches = 2\nbucket_parameters = 10000000";
        let hidden_share = |forward_seconds: f64| {
            let record = replayed(&suite(buckets, "dp = 4"), machine(""), 4, forward_seconds).unwrap();
            let replay = &record.replays[0];
            replay.axes.iter().find(|axis| axis.axis.name() == "dp").unwrap().overlap_efficiency.unwrap()
        };
        let (none, some, most) = (hidden_share(0.0), hidden_share(0.05), hidden_share(10.0));
        assert!(none < some && some < most, "{none} {some} {most}");
        // The gradients of the last layer, the first of 8, have no computation left to overlap with.
        assert!((most - 7.0 / 8.0).abs() < 0.01, "{most}");
    }

    #[test]
    fn a_late_rank_makes_all_others_wait() {
        let late = "[[faults]]\nkind = 'rank'\nrank = 2\ndelay = '1s'\n";
        let healthy = replayed(&suite("micro_batches = 2", "tp = 4"), machine(""), 4, 1e-3).unwrap();
        let delayed = replayed(&suite("micro_batches = 2", "tp = 4"), machine(late), 4, 1e-3).unwrap();
        let time = |record: &Record| record.replays[0].slowest_nanoseconds[0];
        assert_eq!(time(&delayed), time(&healthy) + 1_000_000_000);
    }

    #[test]
    fn impossible_replays_are_refused_before_the_first_measurement() {
        let two_directions =
            suite("micro_batches = 8\nschedule = 'dualpipe'\nstage_layers = [3, 2, 2, 1]", "tp = 2\npp = 4");
        let error = replayed(&two_directions, machine(""), 8, 1e-3).unwrap_err();
        assert!(error.to_string().contains("pass different layers of a stage cannot be replayed"), "{error}");
        assert_eq!(error.exit_code(), 2);
        let error = replayed(&suite("micro_batches = 2", "tp = 4"), machine(""), 4, f64::INFINITY).unwrap_err();
        assert!(error.to_string().contains("forward seconds per layer: found inf"), "{error}");
        let comes_and_goes = "[[faults]]\nkind = 'rank'\nrank = 2\ndelay = '1s'\nprobability = 0.5\n";
        let error = replayed(&suite("micro_batches = 2", "tp = 4"), machine(comes_and_goes), 4, 1e-3).unwrap_err();
        assert!(error.to_string().contains("intermittent faults") && error.exit_code() == 2, "{error}");
    }

    #[test]
    fn sixteen_thousand_ranks_of_405b_fit_into_one_process() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = "[model]\npreset = 'llama-3-405b'\n[training]\nsequence = 8192\nsequence_parallel = true\nmicro_batches = 2\n\
                data_style = 'zero1'\n[[layout]]\ntp = 8\npp = 16\ndp = 128\n";
        let suite = Suite::parse(&path, text).unwrap();
        let record = replayed(&suite, machine(""), 16_384, 5e-3).unwrap();
        let replay = &record.replays[0];
        assert!(replay.bytes_as_listed, "{replay:?}");
        assert_eq!(replay.rank_nanoseconds_median.len(), 16_384);
    }

    /// Two nodes of four ranks: on each rank an all_reduce within its node, computing, a message to the rank of the other node with the
    /// same place and one from it, and an exchange of all ranks.
    fn trace() -> TracedReplay {
        let group =
            |axis, groups: &[[u32; 4]]| Groups { axis, groups: groups.iter().map(|ranks| ranks.to_vec()).collect() };
        let pairs = Groups { axis: Axis::Dp, groups: (0..4).map(|rank| vec![rank, rank + 4]).collect() };
        let call = |groups, kind, bytes| RecordedCall {
            groups,
            kind,
            element: ElementType::Float32,
            bytes_total: Bytes(bytes),
            elements_to_each: None,
            sequence: None,
        };
        let rank = |rank: u32| {
            let other = u32::from(rank < 4);
            let calls = vec![
                call(0, RecordedKind::Together(Collective::AllReduce), 1 << 20),
                call(1, RecordedKind::Send { to: other }, 1 << 16),
                call(1, RecordedKind::Receive { from: other }, 1 << 16),
                RecordedCall {
                    elements_to_each: Some((0..8).map(|to| u64::from(to * rank)).collect()),
                    ..call(2, RecordedKind::Together(Collective::AllToAll), u64::from(28 * rank * 4))
                },
            ];
            let mut actions = Vec::new();
            for call in 0..4 {
                actions.extend([RecordedAction::Start { call }, RecordedAction::Wait { call }]);
                actions.push(RecordedAction::Compute { nanoseconds: 1_000_000 });
            }
            RecordedRank { calls, actions }
        };
        let all = Groups::world(8);
        TracedReplay {
            groups: vec![group(Axis::Tp, &[[0, 1, 2, 3], [4, 5, 6, 7]]), pairs, all],
            ranks: (0..8).map(rank).collect(),
            job_nanoseconds: Some(7_000_000),
            notes: vec!["something".to_owned()],
        }
    }

    #[test]
    fn a_trace_is_replayed_with_its_computing_and_exactly_its_bytes() {
        let record = replayed_from(ReplaySource::Trace(Arc::new(trace())), Vec::new(), machine(""), 8, 0.0).unwrap();
        let replay = &record.replays[0];
        assert!(replay.bytes_as_listed, "{replay:?}");
        assert_eq!((replay.schedule.as_str(), replay.job_nanoseconds), ("trace", Some(7_000_000)));
        assert_eq!(replay.computing_nanoseconds_median, 4_000_000);
        let calls: Vec<(Axis, u64, u64)> =
            replay.axes.iter().map(|axis| (axis.axis, axis.calls_counted, axis.wire_bytes_counted.0)).collect();
        // 2 x 3/4 of 1 MiB; a message; rank 7 sends 28 x 7 elements less 49 of its own, and receives 28 x 7 less 49 too.
        assert_eq!(calls, [(Axis::Tp, 1, 1_572_864), (Axis::Dp, 1, 65_536), (Axis::World, 1, 4 * 147)]);
        let message = 5e-6 + 65_536.0 / 1e9;
        let rest = replay.slowest_nanoseconds[0] as f64 * 1e-9 - 4e-3;
        assert!(rest > message, "{rest}");
        assert!(record.header.notes.contains(&"trace: something".to_owned()), "{:?}", record.header.notes);
    }
}
