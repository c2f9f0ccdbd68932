//! A run from its plan to the end line of its record: the table of contents. Every process calls the same functions
//! with the same input; process 0 writes the record.
//!
//! Ranks that MPI starts are a `launched::Rank` each, which ends in [`run`]. One process that simulates all ranks calls [`run`] itself. All
//! measurements go through the work loop (`work_loop`), which checks signals and time, counts and records. Work that a record already holds
//! (`journal`) is skipped.

mod calibrate;
mod case;
mod copies;
mod counters;
mod facts;
mod journal;
mod pace;
mod replay;
mod request;
mod work_loop;

#[cfg(feature = "mpi")]
mod launched;
#[cfg(feature = "mpi")]
pub use launched::{Launch, LaunchedBackend, NcclLaunch, Rank, ResumedRecord, WatchdogOptions, run_collector};

pub use crate::launch_check::LaunchFacts;
pub use facts::Rehearsal;
pub use pace::{Signals, TimeLimit};
pub use request::{AfterPlan, InjectedFaults, Listener, ReplayRequest, ReplaySource, Request, Resume};

use crate::backend::Backend;
use crate::world::World;
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::units::Seconds;
use commgauge_model::record::library_use::LibraryUseLine;
use commgauge_model::record::line::{End, EndStatus, Line};
use counters::HostCounters;
use journal::SharedJournal;
use pace::Tally;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;
use work_loop::{EvidenceMoment, Run};

/// Runs every case of the plan in every replicate, then the interference, the products, the copies and the replays, and writes the
/// record. Returns the end line, the same on every process.
///
/// # Errors
/// An error before the first line of the record, or one that the launch cannot survive (the caller must then abort it).
/// Once the record is begun, its end line gives the reason.
pub fn run(world: &dyn World, backend: &mut dyn Backend, request: &Request, signals: &Signals) -> Result<End> {
    let begun = Instant::now();
    let watched = request.watch.world(world);
    let world: &dyn World = &watched;
    let ranks = facts::ranks(world, backend, request)?;
    let planned = facts::plan(&ranks, request);
    facts::memory(world, backend, request, &planned)?;
    copies::preflight(world, backend, request)?;
    copies::adapters(&ranks, request)?;
    let replays = replay::plan(world, backend, request)?;
    let (journal, completed) = journal::open(world, backend, request, &ranks, &planned)?;

    let tally = completed.tally.clone();
    let unwatched_hosts = BTreeSet::new();
    let is_first = is_first_of_host(&ranks, world.process());
    let reads_counters = !backend.facts().virtual_clock && (is_first || backend.device_reader().is_some());
    let counters = reads_counters.then(|| HostCounters::of(is_first.then(|| Path::new("/")), backend.device_reader()));
    let library_use = LibraryUseLine::default();
    let mut run = Run {
        world,
        request,
        ranks: &ranks,
        signals,
        completed,
        journal,
        tally,
        unwatched_hosts,
        counters,
        library_use,
    };
    let measured = measure(&mut run, backend, &planned, &replays);
    conclude(run.journal, measured.map(|()| run.tally), begun, signals.limit())
}

fn is_first_of_host(ranks: &facts::Ranks, process: u32) -> bool {
    let host = ranks.host_of_rank.get(process as usize);
    ranks.host_of_rank.iter().position(|other| Some(other) == host) == Some(process as usize)
}

/// Everything between the first lines of the record and its last one.
fn measure(
    run: &mut Run,
    backend: &mut dyn Backend,
    planned: &[facts::Planned],
    replays: &[replay::Replay],
) -> Result<()> {
    work_loop::record_devices(run, backend)?;
    calibrate::measure_all_cases(run, backend, planned)?;
    if run.request.settings.soak {
        return finalize(run, backend);
    }
    copies::measure_interference(run, backend)?;
    copies::measure_products(run, backend)?;
    copies::measure_copies(run, backend)?;
    copies::measure_adapters(run)?;
    replay::measure_all(run, backend, replays)?;
    finalize(run, backend)
}

// The end of a run: its last line, and its exit code.

/// Exit code of a run that stopped before its time limit with work left: `EX_TEMPFAIL` of `sysexits.h`, after which a
/// retry makes sense.
pub const OUT_OF_TIME: i32 = 75;

/// Called before a run is recorded as complete: a signal after its last case still counts, and if the watchdog is
/// ending the run, this does not return.
fn finalize(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    work_loop::record_evidence(run, backend, EvidenceMoment::End)?;
    let watch = &run.request.watch;
    watch.begin_setup("after the last case");
    if run.tally.signal == 0 {
        run.ask_for_signal()?;
    }
    if run.world.process() == 0 {
        watch.conclude();
    }
    Ok(())
}

/// Writes the end line and closes the record. If only this process knows of the error, the others are in another
/// operation and would never join a collective.
fn conclude(
    mut journal: SharedJournal,
    measured: Result<Tally>,
    begun: Instant,
    limit: Option<Seconds>,
) -> Result<End> {
    let end = end_line(&measured, begun, limit);
    let line = || Line::End(end.clone());
    if let Err(error) = measured {
        // If the record cannot be written either, the first error matters more, and mostly has the same cause.
        let _ = if error.is_shared() { journal.write(line) } else { journal.write_locally(line) };
        return Err(error);
    }
    journal.write(line)?;
    journal.finish()?;
    Ok(end)
}

fn end_line(measured: &Result<Tally>, begun: Instant, limit: Option<Seconds>) -> End {
    let end = |status, exit_code, error| End::new(status, exit_code, error, begun.elapsed());
    match measured {
        Ok(tally) if tally.signal != 0 => {
            let stopped = Error::from(Kind::Interrupted(tally.signal));
            end(EndStatus::Interrupted, stopped.exit_code(), Some(stopped.to_string()))
        }
        Ok(tally) if tally.out_of_time => {
            let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
            let text = format!("the time limit{limit} leaves no time for the next case; results so far are kept");
            end(EndStatus::OutOfTime, OUT_OF_TIME, Some(text))
        }
        Ok(tally) if tally.corrupt > 0 => {
            end(EndStatus::Complete, 4, Some(format!("{} case lines carry wrong data", tally.corrupt)))
        }
        Ok(tally) if tally.failed > 0 => {
            end(EndStatus::Complete, 6, Some(format!("{} case lines did not complete", tally.failed)))
        }
        Ok(tally) if tally.measured == 0 && tally.skipped > 0 => {
            end(EndStatus::Complete, 7, Some("nothing was measured: every case was skipped".to_owned()))
        }
        Ok(_) => end(EndStatus::Complete, 0, None),
        Err(error) => end(EndStatus::Failed, error.exit_code(), Some(error.to_string())),
    }
}

#[cfg(test)]
mod end_tests {

    use super::*;
    use crate::watchdog::Watch;
    use crate::world::{Located, World};
    use commgauge_model::record::Journal;

    #[test]
    fn only_a_run_without_errors_ends_with_0() {
        let tally = |corrupt, failed, signal, out_of_time| {
            Ok(Tally { corrupt, failed, signal, out_of_time, measured: 1, skipped: 1 })
        };
        for (measured, code) in [
            (tally(0, 0, 0, false), 0),
            (tally(0, 1, 0, false), 6),
            (tally(1, 1, 0, false), 4),
            (tally(1, 1, 2, false), 130),
            (tally(0, 1, 0, true), 75),
            (tally(0, 0, 15, true), 143),
            (Ok(Tally { skipped: 2, ..Tally::default() }), 7),
            (Ok(Tally::default()), 0),
            (Err(Error::usage("wrong")), 2),
        ] {
            assert_eq!(end_line(&measured, Instant::now(), None).exit_code, code);
        }
    }

    /// Processes that never join a collective: waiting for them would take forever.
    struct Busy;

    impl World for Busy {
        fn process(&self) -> u32 {
            0
        }
        fn processes(&self) -> u32 {
            2
        }
        fn barrier(&self) -> Result<()> {
            panic!("waits")
        }
        fn broadcast(&self, _: &mut Vec<u8>) -> Result<()> {
            panic!("waits")
        }
        fn broadcast_u64(&self, _: &mut [u64]) -> Result<()> {
            panic!("waits")
        }
        fn gather(&self, _: &[u8]) -> Result<Vec<Vec<u8>>> {
            panic!("waits")
        }
        fn all_max(&self, _: &mut [Located]) -> Result<()> {
            panic!("waits")
        }
        fn all_min(&self, _: &mut [Located]) -> Result<()> {
            panic!("waits")
        }
        fn send(&self, _: u32, _: u64) -> Result<()> {
            panic!("waits")
        }
        fn receive(&self, _: u32) -> Result<u64> {
            panic!("waits")
        }
        fn abort(&self, _: i32) -> ! {
            panic!("aborted")
        }
    }

    #[test]
    fn an_error_of_one_process_is_recorded_without_waiting_for_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let journal =
            SharedJournal::new(&Busy, Some(Journal::create(&path).unwrap()), &Listener::default(), &Watch::default());
        let failed = Err(Error::environment("MPI_Bcast failed"));
        let error = conclude(journal, failed, Instant::now(), None).unwrap_err();
        assert_eq!((error.exit_code(), error.is_shared()), (6, false));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#""status":"failed","exit_code":6,"error":"MPI_Bcast failed""#), "{text}");
    }
}

#[cfg(test)]
mod whole_run_tests {
    // Tests of a run with every kind of work on simulated ranks: the order of its lines, and where a signal and the time
    // limit end it.
    use super::*;
    use crate::backend::simulated::SimulatedBackend;
    use crate::world::SoloWorld;
    use commgauge_base::units::Seconds;
    use commgauge_model::config::{Machine, Suite};
    use commgauge_model::layout::Axis;
    use commgauge_model::record::line::{EndStatus, SuiteFacts};
    use commgauge_model::record::{Line, Record};
    use commgauge_model::workload::replay::ReplayOptions;
    use commgauge_model::workload::step::Step;
    use commgauge_model::workload::{Interference, StepFacts, WorkPlan};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    const RANKS: u32 = 4;
    const MACHINE: &str = "name = 'quiet'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
    [between_nodes]\nlatency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '1GB/s'\n";
    /// Chooses further sizes in several rounds, and has matrix products.
    const SUITE: &str = "[measure]\nprecision = 0.05\nminimum_samples = 5\nmaximum_samples = 20\ncase_budget = '1min'\n\
    replicates = 2\ncadences = 'streaming'\n[calibrate]\nuntil_error = 0.02\nmost_sizes = 6\nbudget = '10min'\n\
    [[sweep]]\ncollectives = ['all_reduce']\nbytes = ['1KiB', '32KiB', '1MiB']\nplacements = 'out-of-place'\n\
    [[compute]]\nmodel = { preset = 'llama-3-8b' }\ntp = 4\nsequence = 64\nmicro_batch = 1\n";
    const STEP: &str = "[model]\npreset = 'llama-3-8b'\nlayers = 2\n[training]\nsequence = 512\nmicro_batches = 2\n\
    [[layout]]\ntp = 2\npp = 2\n";

    /// Inputs of a run, and the folder of its record.
    struct Trial {
        folder: tempfile::TempDir,
        suite: Suite,
        step: Suite,
        machine: Machine,
    }

    /// Called when the line of this number, counted from 1, is written.
    #[derive(Clone, Copy, Debug)]
    enum Stop {
        Never,
        Signal(usize),
        TimeLimit(usize),
    }

    impl Trial {
        fn new() -> Trial {
            let folder = tempfile::tempdir().unwrap();
            let suite = |text: &str| Suite::parse(Path::new("suites/test.toml"), text).unwrap();
            let machine = Machine::parse(MACHINE, Path::new("m.toml")).unwrap();
            Trial { folder, suite: suite(SUITE), step: suite(STEP), machine }
        }

        fn record(&self) -> Record {
            Record::read(&self.folder.path().join("run.jsonl")).unwrap()
        }

        /// Runs, and returns the lines that were written.
        fn run(&self, stop: Stop, resume: Option<Resume>) -> (Vec<Line>, End) {
            let limit = TimeLimit::of(Seconds(3600.0), Instant::now());
            let signals = Signals::default().with_limit(Some(limit.clone()));
            let lines = Arc::new(Mutex::new(Vec::new()));
            let listener = Listener::new({
                let (lines, signals) = (Arc::clone(&lines), signals.clone());
                move |line| {
                    let mut lines = lines.lock().unwrap();
                    lines.push(line.clone());
                    match stop {
                        Stop::Signal(at) if at == lines.len() => {
                            signals.number().store(15, Ordering::Relaxed);
                            signals.raised.store(true, Ordering::Relaxed);
                        }
                        Stop::TimeLimit(at) if at == lines.len() => limit.expire(),
                        _ => {}
                    }
                }
            });
            let steps = Step::all_of(&self.step.layouts[0], RANKS).unwrap();
            let mut plan = WorkPlan::from_suite(&self.suite, RANKS).unwrap();
            plan.steps = steps.iter().map(StepFacts::of).collect();
            let options = ReplayOptions { repetitions: 3, warm_up: 1, forward_seconds_per_layer: Seconds(1e-3) };
            let request = Request {
                program: "test",
                run_id: "test".to_owned(),
                suite: SuiteFacts { name: "test".into(), path: None, sha256: String::new(), model: None, layout: None },
                plan,
                settings: self.suite.settings.clone(),
                machine: Some(self.machine.clone()),
                world_size: RANKS,
                record: self.folder.path().join("run.jsonl"),
                resume,
                launch: Default::default(),
                launch_command: None,
                injected: Default::default(),
                watch: Default::default(),
                listener,
                labels: BTreeMap::new(),
                after_plan: AfterPlan {
                    interference: Some(Interference::of(&steps[0], 0, [Axis::Tp, Axis::Pp], |_| true).unwrap()),
                    replay: Some(ReplayRequest {
                        source: ReplaySource::Steps(Box::new(self.step.layouts[0].clone())),
                        options,
                    }),
                    perftest: None,
                },
            };
            let mut backend = SimulatedBackend::new(&self.machine, RANKS, 1).unwrap();
            let end = run(&SoloWorld, &mut backend, &request, &signals).unwrap();
            let lines = std::mem::take(&mut *lines.lock().unwrap());
            (lines, end)
        }
    }

    fn kind(line: &Line) -> &'static str {
        match line {
            Line::Header(_) => "header",
            Line::Plan(_) => "plan",
            Line::Clock(_) => "clock",
            Line::Case(_) => "case",
            Line::PlanGrowth(_) => "growth",
            Line::Calibration(_) => "calibration",
            Line::Interference(_) => "interference",
            Line::Product(_) => "product",
            Line::Copy(_) => "copy",
            Line::Replay(_) => "replay",
            Line::Resume(_) => "resume",
            Line::End(_) => "end",
            _ => "other",
        }
    }

    fn kinds(lines: &[Line]) -> Vec<&'static str> {
        lines.iter().map(kind).collect()
    }

    /// All measurements of a run, without what differs from launch to launch.
    fn essence(record: &Record) -> Vec<String> {
        vec![
            format!("{:#?}", record.chosen),
            format!("{:#?}", record.calibration),
            format!("{:#?}", record.cases),
            format!("{:#?}", record.interference),
            format!("{:#?}", record.products),
            format!("{:#?}", record.replays),
        ]
    }

    /// Numbers of the lines, from 1, at which the kind of line changes, and those after them.
    fn turning_points(kinds: &[&str]) -> Vec<usize> {
        let mut points: Vec<usize> = (1..kinds.len()).filter(|at| kinds[at - 1] != kinds[*at]).collect();
        points.extend(points.clone().iter().map(|at| at + 1));
        points.sort_unstable();
        points.dedup();
        points.retain(|at| *at < kinds.len());
        points
    }

    #[test]
    fn cases_come_first_then_interference_products_and_replays() {
        let trial = Trial::new();
        let (lines, end) = trial.run(Stop::Never, None);
        assert_eq!((end.exit_code, end.error), (0, None));
        let mut order = kinds(&lines);
        let count = |kind: &str| order.iter().filter(|one| **one == kind).count();
        assert!(count("growth") >= 2, "several rounds: {order:?}");
        // Two replicates of both directions.
        let products = trial.record().plan.product_lines as usize;
        assert_eq!((count("interference"), count("product"), count("replay")), (4, products, 1));
        order.dedup();
        let rounds = order.iter().filter(|kind| **kind == "growth").count();
        let expected: Vec<&str> = ["header", "plan", "clock", "case"]
            .into_iter()
            .chain(["growth", "case"].into_iter().cycle().take(2 * rounds))
            .chain(["calibration", "clock", "interference", "product", "replay", "end"])
            .collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn a_signal_ends_the_run_after_the_line_that_is_due_and_the_rest_can_be_measured_later() {
        let whole = Trial::new();
        let (lines, _) = whole.run(Stop::Never, None);
        let (all, expected) = (kinds(&lines), essence(&whole.record()));
        for at in turning_points(&all) {
            let trial = Trial::new();
            let (lines, end) = trial.run(Stop::Signal(at), None);
            let rest: &[&str] = match all[at - 1] {
                // The first case is cut short, as its line says.
                "header" | "plan" | "growth" => &["case", "calibration", "end"],
                "clock" if all[at] == "case" => &["case", "calibration", "end"],
                "case" => &["calibration", "end"],
                "calibration" => &["clock", "end"],
                // The record cannot say that other work was cut short.
                _ => &["end"],
            };
            let rest = if at < 3 { [&all[at..3], rest].concat() } else { rest.to_vec() };
            assert_eq!(kinds(&lines), [&all[..at], &rest].concat(), "signal at line {at}");
            assert_eq!((end.status, end.exit_code), (EndStatus::Interrupted, 143), "signal at line {at}");
            let (_, end) = trial.run(Stop::Never, Some(Resume::default()));
            assert_eq!(end.exit_code, 0);
            assert_eq!(essence(&trial.record()), expected, "signal at line {at}");
        }
    }

    #[test]
    fn no_work_is_begun_for_which_the_time_limit_leaves_no_time() {
        let whole = Trial::new();
        let (lines, _) = whole.run(Stop::Never, None);
        let (all, expected) = (kinds(&lines), essence(&whole.record()));
        for at in turning_points(&all) {
            let trial = Trial::new();
            let (lines, end) = trial.run(Stop::TimeLimit(at), None);
            let first_of_replicate = all[..at].iter().filter(|kind| **kind == "interference").count() % 2 == 1;
            let rest: &[&str] = match all[at - 1] {
                // A round is chosen before its first case is due.
                "case" if all[at] == "growth" => &["growth", "calibration", "end"],
                "case" if all[at] == "calibration" => &["calibration", "clock", "end"],
                "header" | "plan" | "growth" | "case" => &["calibration", "end"],
                "clock" if all[at] == "case" => &["calibration", "end"],
                "calibration" => &["clock", "end"],
                // Both directions are one piece of work.
                "interference" if first_of_replicate => &["interference", "end"],
                _ => &["end"],
            };
            let rest = if at < 3 { [&all[at..3], rest].concat() } else { rest.to_vec() };
            assert_eq!(kinds(&lines), [&all[..at], &rest].concat(), "no time after line {at}");
            let (status, exit_code) =
                if all[at - 1] == "replay" { (EndStatus::Complete, 0) } else { (EndStatus::OutOfTime, OUT_OF_TIME) };
            assert_eq!((end.status, end.exit_code), (status, exit_code), "no time after line {at}");
            if exit_code != 0 {
                let (_, end) = trial.run(Stop::Never, Some(Resume::default()));
                assert_eq!(end.exit_code, 0);
            }
            assert_eq!(essence(&trial.record()), expected, "no time after line {at}");
        }
    }
}

#[cfg(test)]
mod within_tests {
    // Tests of a budget for all cases on the simulated backend, whose clock is virtual.
    use super::*;
    use crate::backend::simulated::SimulatedBackend;
    use crate::world::SoloWorld;
    use commgauge_base::units::Seconds;
    use commgauge_model::config::Suite;
    use commgauge_model::config::{Machine, RunSettings};
    use commgauge_model::record::line::{StopReason, SuiteFacts};
    use commgauge_model::record::{Line, Record};
    use commgauge_model::workload::WorkPlan;
    use std::collections::BTreeMap;
    use std::path::Path;

    const SUITE: &str =
        "[[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = ['8B', '1KiB', '64KiB', '4MiB', '64MiB']\n";
    const RANKS: u32 = 4;

    fn request(within: f64, precision: f64, folder: &Path) -> Request {
        let suite = Suite::parse(Path::new("test.toml"), SUITE).unwrap();
        let settings =
            RunSettings { precision, case_budget: Seconds(within), last_in_order: true, ..RunSettings::default() };
        let settings = RunSettings { replicates: 2, ..settings.divided(Seconds(within)).unwrap() };
        Request {
            program: "test",
            run_id: "test".to_owned(),
            suite: SuiteFacts { name: "test".into(), path: None, sha256: String::new(), model: None, layout: None },
            plan: WorkPlan::from_suite(&suite, RANKS).unwrap(),
            settings,
            machine: Some(Machine::load(Path::new("embedded:suites/machines/azure-ndv5-h100.toml")).unwrap()),
            world_size: RANKS,
            record: folder.join("run.jsonl"),
            resume: None,
            launch: Default::default(),
            launch_command: None,
            injected: Default::default(),
            watch: Default::default(),
            listener: Default::default(),
            labels: BTreeMap::new(),
            after_plan: Default::default(),
        }
    }

    fn measured(within: f64, precision: f64) -> (Record, Vec<Line>) {
        let folder = tempfile::tempdir().unwrap();
        let received = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let request = Request {
            listener: Listener::new({
                let received = std::sync::Arc::clone(&received);
                move |line| received.lock().unwrap().push(line.clone())
            }),
            ..request(within, precision, folder.path())
        };
        let mut backend = SimulatedBackend::new(request.machine.as_ref().unwrap(), RANKS, 1).unwrap();
        let end = run(&SoloWorld, &mut backend, &request, &Signals::default()).unwrap();
        assert_eq!(end.exit_code, 0);
        drop(request.listener);
        let lines = std::mem::take(&mut *received.lock().unwrap());
        (Record::read(&request.record).unwrap(), lines)
    }

    #[test]
    fn every_case_is_measured_in_any_time_and_longer_replicates_replace_shorter_ones() {
        for (within, precision) in [(1e-9, 0.02), (0.5, 1e-6), (5.0, 0.02)] {
            let (record, lines) = measured(within, precision);
            let mut replicates = vec![Vec::new(); record.plan.cases.len()];
            for line in &record.cases {
                replicates[line.case as usize].push(line.replicate);
            }
            assert!(replicates.iter().all(|replicates| !replicates.is_empty()), "within {within} s: {replicates:?}");
            for line in lines.iter().filter_map(|line| if let Line::Case(case) = line { Some(case) } else { None }) {
                let is_replaced =
                    !record.cases.iter().any(|other| (other.case, other.replicate) == (line.case, line.replicate));
                assert!(
                    !is_replaced || line.stop == Some(commgauge_model::record::line::StopReason::Budget),
                    "only truncated replicates are replaced"
                );
            }
            assert_eq!(record.plan.case_lines, record.plan.cases.len() as u64);
        }
    }

    #[test]
    fn a_listener_receives_every_line_of_the_record_in_order() {
        let (record, lines) = measured(0.2, 0.02);
        assert!(matches!(lines[..2], [Line::Header(_), Line::Plan(_)]) && matches!(lines.last(), Some(Line::End(_))));
        assert_eq!(Record::from_lines(lines).unwrap().cases, record.cases);
    }

    #[test]
    fn the_last_round_goes_in_the_order_of_the_rows() {
        let (_, lines) = measured(20.0, 0.02);
        let last: Vec<(bool, u32)> = lines
            .iter()
            .filter_map(|line| if let Line::Case(case) = line { Some(case) } else { None })
            .filter(|case| case.replicate == 1)
            .map(|case| (case.name.contains("isolated"), case.case))
            .collect();
        // Both cadences of a call are adjacent in the plan, and in two different tables.
        assert!(last.len() > 1 && last.is_sorted(), "{last:?}");
    }

    #[test]
    fn with_time_enough_every_row_is_precise_at_the_end() {
        for precision in [0.01, 0.002] {
            let (record, lines) = measured(200.0, precision);
            let wide = record.cases.iter().find(|line| line.stop == Some(StopReason::Budget));
            assert!(wide.is_none(), "+-{precision}: {:?} of {} lines", wide.map(|line| &line.name), lines.len());
        }
    }
}
