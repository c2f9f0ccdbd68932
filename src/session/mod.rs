//! One run from work plan to record: the table of contents of a launch.
//!
//! Every process calls [`run`] with the same request; process 0 writes the record.

mod calibrate;
mod devices;
mod facts;
mod interference;
mod listener;
mod preflight;
mod products;
mod rehearse;
mod replay;
mod resume;
mod signals;
mod steps;
mod time_limit;
mod timekeeping;
mod within;

pub use listener::Listener;
pub use rehearse::Rehearsal;
pub use replay::ReplayRequest;
pub use resume::Resume;
pub use signals::Signals;
pub use time_limit::TimeLimit;

use crate::backend::Backend;
use crate::config::{Machine, RunSettings};
use crate::error::{Error, Kind, Result};
use crate::measure::InjectedDelay;
use crate::record::Journal;
use crate::record::line::{End, EndStatus, Line, SuiteFacts};
use crate::units::Seconds;
use crate::watchdog::{Activity, SETUP_DEADLINE, Watch};
use crate::workload::{Interference, WorkPlan};
use crate::world::{World, agree};
use resume::CompletedWork;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use steps::{Steps, Tally};
use timekeeping::Timekeeping;

/// Exit code of a run that stopped before its time limit with work left: `EX_TEMPFAIL` of `sysexits.h`, after which a
/// retry makes sense.
pub const OUT_OF_TIME: i32 = 75;

/// Inputs of a run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the measuring program.
    pub program: &'static str,
    /// Unique name of the run.
    pub run_id: String,
    /// The suite, or the sweep that replaces it.
    pub suite: SuiteFacts,
    /// The cases to run.
    pub plan: WorkPlan,
    /// How samples are taken.
    pub settings: RunSettings,
    /// Machine from which bounds are derived; when simulated, also the times.
    pub machine: Option<Machine>,
    /// Number of ranks.
    pub world_size: u32,
    /// The record to write or to resume.
    pub record: PathBuf,
    /// Options for resuming the record of an earlier launch.
    pub resume: Option<Resume>,
    /// Result of the launch check; empty for a run without launch.
    pub launch: LaunchFacts,
    /// The launch command, where `commgauge run` built it.
    pub launch_command: Option<Vec<String>>,
    /// A rank to delay in every isolated iteration, to verify that it is reported.
    pub injected_delay: Option<InjectedDelay>,
    /// A rank to panic at its first case, to verify that the launch ends and names it.
    pub injected_panic: Option<u32>,
    /// Labels that distinguish all cases of this run from the same cases of others, such as a forced algorithm.
    pub labels: BTreeMap<String, String>,
    /// Two calls to be measured concurrently, after the cases.
    pub interference: Option<Interference>,
    /// The watchdog of this rank; disabled by default.
    pub watch: Watch,
    /// Receives the lines of the record as they are written; empty by default.
    pub listener: Listener,
}

/// Results of the launch check that the run needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchFacts {
    /// A unique name for the host of every rank; empty for a run without launch.
    pub hosts: Vec<String>,
    /// Warnings for the record that make its numbers unreliable; on process 0 only.
    pub warnings: Vec<String>,
    /// Notes for the record that do not affect its numbers; on process 0 only.
    pub notes: Vec<String>,
}

/// Runs every case of the plan in every replicate and writes the record. Returns the end line, the same on every
/// process.
///
/// # Errors
/// An error before the first line of the record, or one that the launch cannot survive (the caller must then abort it).
/// Once the record is begun, its end line gives the reason.
pub fn run(world: &dyn World, backend: &mut dyn Backend, request: &Request, signals: &Signals) -> Result<End> {
    run_with_replays(world, backend, request, &[], signals)
}

/// As [`run`], and then replays steps of the plan as a whole.
///
/// # Errors
/// As [`run`], and steps that cannot be replayed.
pub fn run_with_replays(
    world: &dyn World,
    backend: &mut dyn Backend,
    request: &Request,
    replays: &[ReplayRequest],
    signals: &Signals,
) -> Result<End> {
    let begun = Instant::now();
    let watched = request.watch.world(world);
    let world: &dyn World = &watched;
    let ranks = preflight::ranks(world, backend, request)?;
    let planned = preflight::plan(&ranks, request);
    preflight::memory(world, backend, request, &planned)?;
    products::preflight(world, backend, request)?;
    let replays = replay::plan(world, backend, request, replays)?;
    let (mut journal, completed) = resume::open(world, backend, request, (&ranks, &planned))?;

    let measured = (|| {
        devices::record_devices(world, backend, &mut journal)?;
        let mut tally = Tally::after(&completed);
        let cases = Cases { world, request, ranks: &ranks, planned: &planned, completed: &completed, signals };
        cases.measure_all(backend, (&mut journal, &mut tally))?;
        if let Some(pair) = &request.interference {
            let pairs = interference::Pairs { world, request, pair, completed: &completed, signals };
            pairs.measure_all(backend, &mut journal, &mut tally)?;
        }
        let products = products::Products { world, request, ranks: &ranks.facts, completed: &completed, signals };
        products.measure_all(backend, &mut journal, &mut tally)?;
        replay::replay_all(world, backend, request, &replays, (&completed, signals), (&mut journal, &mut tally))?;
        Ok(tally)
    })();
    let measured = finalize(world, request, signals, measured);
    conclude(world, journal, measured, (begun, signals.limit()))
}

/// Called before a run is recorded as complete: a signal after its last case still counts, and if the watchdog is
/// ending the run, this does not return.
fn finalize(world: &dyn World, request: &Request, signals: &Signals, measured: Result<Tally>) -> Result<Tally> {
    let mut tally = measured?;
    request.watch.begin(|| Activity::named("after the last case", SETUP_DEADLINE));
    if tally.signal == 0 {
        tally.signal = signals.agreed(world)?;
    }
    if world.process() == 0 {
        request.watch.conclude();
    }
    Ok(tally)
}

/// The cases of a plan, including those that a run adds.
struct Cases<'a> {
    world: &'a dyn World,
    request: &'a Request,
    ranks: &'a preflight::Ranks,
    planned: &'a [preflight::Planned<'a>],
    completed: &'a CompletedWork,
    signals: &'a Signals,
}

impl Cases<'_> {
    fn measure_all(&self, backend: &mut dyn Backend, (journal, tally): (&mut SharedJournal, &mut Tally)) -> Result<()> {
        let Cases { world, request, planned, completed, signals, .. } = *self;
        let now = timekeeping::reading_of(backend);
        let mut time = Timekeeping::begin(world, backend, &now, journal)?;
        let steps = Steps { world, request, planned, completed, first_case: 0, round: 0, signals };
        let lines = steps.measure_all(backend, &mut time, (journal, tally))?;
        if let Some(calibrate) = request.settings.calibrate.as_ref().filter(|_| !completed.calibrated) {
            let host_of_rank = &self.ranks.host_of_rank;
            let rounds = calibrate::Rounds { world, request, calibrate, host_of_rank, completed, signals };
            rounds.measure_all(backend, &mut time, (journal, tally), &lines)?;
        }
        if tally.is_stopped() { Ok(()) } else { time.end(world, journal) }
    }
}

/// Writes the end line. If only this process knows of the error, the others are in another operation and would never
/// join a collective.
fn conclude(
    world: &dyn World,
    mut journal: SharedJournal,
    measured: Result<Tally>,
    (begun, limit): (Instant, Option<Seconds>),
) -> Result<End> {
    let end = end_line(&measured, begun, limit);
    let line = || Line::End(end.clone());
    if let Err(error) = measured {
        // If the record cannot be written either, the first error matters more, and mostly has the same cause.
        let _ = if error.is_shared() { journal.write(world, line) } else { journal.write_locally(line) };
        return Err(error);
    }
    journal.write(world, line)?;
    journal.finish()?;
    Ok(end)
}

/// The record, open on process 0 only; its errors are shared with all processes.
pub(crate) struct SharedJournal {
    journal: Option<Journal>,
    listener: Listener,
}

fn open(world: &dyn World, listener: &Listener, journal: impl FnOnce() -> Result<Journal>) -> Result<SharedJournal> {
    let mine = if world.process() == 0 { journal().map(Some) } else { Ok(None) };
    Ok(SharedJournal { journal: agree(world, mine)?, listener: listener.clone() })
}

impl SharedJournal {
    fn write(&mut self, world: &dyn World, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.write_locally(line);
        agree(world, mine)
    }

    fn write_all(&mut self, world: &dyn World, lines: impl FnOnce() -> Vec<Line>) -> Result<()> {
        let mine = match self.journal.as_mut() {
            Some(journal) => {
                lines().iter().try_for_each(|line| journal.write(line).map(|()| self.listener.notify(line)))
            }
            None => Ok(()),
        };
        agree(world, mine)
    }

    fn write_locally(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let mut line = line();
        if let Line::End(end) = &mut line {
            end.lines_before = Some(journal.lines());
        }
        journal.write(&line).map(|()| self.listener.notify(&line))
    }

    fn finish(self) -> Result<()> {
        self.journal.map_or(Ok(()), Journal::finish)
    }
}

fn end_line(measured: &Result<Tally>, begun: Instant, limit: Option<Seconds>) -> End {
    let elapsed_seconds = Seconds(begun.elapsed().as_secs_f64());
    let end =
        |status, exit_code, error| End { status, exit_code, error, elapsed_seconds, lines_before: None, sha256: None };
    match measured {
        Ok(tally) if tally.signal != 0 => {
            let stopped = Error::from(Kind::Interrupted(tally.signal));
            end(EndStatus::Interrupted, stopped.exit_code(), Some(stopped.to_string()))
        }
        Ok(tally) if tally.out_of_time => {
            let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
            let text = format!("the time limit{limit} leaves no time for the next case; what was measured is kept");
            end(EndStatus::OutOfTime, OUT_OF_TIME, Some(text))
        }
        Ok(tally) if tally.corrupt > 0 => {
            end(EndStatus::Complete, 4, Some(format!("{} case lines carry wrong data", tally.corrupt)))
        }
        Ok(tally) if tally.failed > 0 => {
            end(EndStatus::Complete, 6, Some(format!("{} case lines could not be run to their end", tally.failed)))
        }
        Ok(_) => end(EndStatus::Complete, 0, None),
        Err(error) => end(EndStatus::Failed, error.exit_code(), Some(error.to_string())),
    }
}

#[cfg(test)]
mod whole_run_tests;
#[cfg(test)]
mod within_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Located;

    #[test]
    fn only_a_run_without_errors_ends_with_0() {
        let tally = |corrupt, failed, signal, out_of_time| Ok(Tally { corrupt, failed, signal, out_of_time });
        for (measured, code) in [
            (tally(0, 0, 0, false), 0),
            (tally(0, 1, 0, false), 6),
            (tally(1, 1, 0, false), 4),
            (tally(1, 1, 2, false), 130),
            (tally(0, 1, 0, true), 75),
            (tally(0, 0, 15, true), 143),
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
        let journal = SharedJournal { journal: Some(Journal::create(&path).unwrap()), listener: Listener::default() };
        let failed = Err(Error::environment("MPI_Bcast failed"));
        let error = conclude(&Busy, journal, failed, (Instant::now(), None)).unwrap_err();
        assert_eq!((error.exit_code(), error.is_shared()), (6, false));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#""status":"failed","exit_code":6,"error":"MPI_Bcast failed""#), "{text}");
    }
}
