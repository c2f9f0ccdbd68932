//! The work loop: every measurement of a run is a [`WorkItem`], and only this loop decides whether to begin it, counts its outcome and
//! records it.

use super::counters::{self, HostCounters};
use super::facts::Ranks;
use super::journal::{CompletedWork, SharedJournal, WorkKey};
use super::pace::{BegunWork, Signals, Tally};
use super::request::Request;
use crate::backend::{Backend, DeviceState};
use crate::measure::{CommonClock, Repetitions, ReplayContext};
use crate::world::{World, agree, gather_all};
use commgauge_base::error::Result;
use commgauge_base::host::noted;
use commgauge_base::writing::ascending;
use commgauge_model::record::header::{DeviceChange, DeviceFacts, DeviceReadingsLine, DeviceSpread, DevicesLine};
use commgauge_model::record::launch_lines::UnwatchedLine;
use commgauge_model::record::library_use::LibraryUseLine;
use commgauge_model::record::line::{ClockMethod, ClockMoment, Line, Outcome};
use commgauge_model::workload::Estimate;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;
use std::collections::BTreeSet;

/// Default number of repetitions of work that has no stop rule.
const REPETITIONS: u32 = 50;

/// A piece of work: a case, concurrent calls, a matrix product, a copy, a replay.
pub(super) trait WorkItem {
    /// What it consists of.
    fn keys(&self) -> Vec<WorkKey>;

    /// How long it is expected to take at most; the time limit must allow it.
    fn estimate(&self, run: &Run) -> Estimate;

    /// Executes and records it. Called on all processes.
    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()>;
}

/// A run that has a record, and its progress.
pub(super) struct Run<'a> {
    pub world: &'a dyn World,
    pub request: &'a Request,
    pub ranks: &'a Ranks,
    /// Reasons to stop early.
    pub signals: &'a Signals,
    pub completed: CompletedWork,
    pub journal: SharedJournal<'a>,
    /// Outcomes so far.
    pub tally: Tally,
    /// The hosts that lost their watchdog according to the record; the same on every process.
    pub unwatched_hosts: BTreeSet<String>,
    /// On the first process of each host and on those with a device, unless one process simulates all ranks.
    pub counters: Option<HostCounters>,
    /// What the libraries of all ranks used when that was last recorded; on process 0.
    pub library_use: LibraryUseLine,
}

impl Run<'_> {
    /// Executes items in their order, as [`Run::carry_out`] does.
    pub(super) fn carry_out_all<Item: WorkItem>(
        &mut self,
        backend: &mut dyn Backend,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<()> {
        items.into_iter().try_for_each(|mut item| self.carry_out(backend, &mut item).map(drop))
    }

    /// Executes an item, and returns whether it did: not if the run is stopped, if an earlier launch has completed the item, or if the time
    /// limit leaves no time for it, which stops the run.
    ///
    /// # Errors
    /// Errors of the item. An error that is not shared is known to this process only: the caller must then abort the launch.
    pub(super) fn carry_out(&mut self, backend: &mut dyn Backend, item: &mut dyn WorkItem) -> Result<bool> {
        if self.tally.is_stopped() || item.keys().into_iter().all(|work| self.completed.has(work)) {
            return Ok(false);
        }
        let Some(begun) = self.begin(item.estimate(self))? else { return Ok(false) };
        item.carry_out(self, backend)?;
        if let Some(counters) = &mut self.counters {
            counters.measured(item.keys().iter().filter_map(WorkKey::case), backend.device_reader());
        }
        self.signals.done(&begun);
        Ok(true)
    }

    /// Begins work if the time limit allows it, and else stops the run; the same on every process.
    pub(super) fn begin(&mut self, estimate: Estimate) -> Result<Option<BegunWork>> {
        let begun = self.signals.begin(self.world, estimate)?;
        self.tally.out_of_time = begun.is_none();
        Ok(begun)
    }

    /// Counts and records the outcome of work.
    pub(super) fn record(&mut self, line: Line) -> Result<()> {
        if let Some(outcome) = outcome(&line) {
            self.tally.count(outcome);
        }
        self.journal.write(|| line)
    }

    /// For work whose line cannot say that a signal cut it short: after a signal, the run is stopped and the line is dropped, so that a
    /// resumed run measures it again.
    pub(super) fn record_if_whole(&mut self, line: Line) -> Result<()> {
        self.ask_for_signal()?;
        if self.tally.signal == 0 { self.record(line) } else { Ok(()) }
    }

    /// Stops the run if any process has received a signal, and records hosts that are no longer watched.
    pub(super) fn ask_for_signal(&mut self) -> Result<()> {
        let is_newly_lost =
            self.request.watch.is_lost() && !self.unwatched_hosts.contains(&self.host_of(self.world.process()));
        let agreed = self.signals.agreed(self.world, is_newly_lost)?;
        self.tally.signal = self.named_signal(agreed.signal)?;
        if let Some(rank) = agreed.unwatched {
            let host = self.host_of(rank);
            self.request.watch.lost_collector_of(rank);
            self.unwatched_hosts.insert(host.clone());
            self.journal.write(|| Line::Unwatched(UnwatchedLine { host, rank }))?;
        }
        Ok(())
    }

    pub(super) fn host_of(&self, rank: u32) -> String {
        self.request.launch.hosts.get(rank as usize).cloned().unwrap_or_default()
    }

    /// The signal that stops the run, as sent by the person or the scheduler, if `commgauge run` noted it; the same everywhere.
    fn named_signal(&self, received: i32) -> Result<i32> {
        if received != SIGTERM {
            return Ok(received);
        }
        let note = if self.world.process() == 0 { noted(&self.request.record) } else { None };
        let mut named = [note.unwrap_or(received) as u64];
        self.world.broadcast_u64(&mut named)?;
        Ok(named[0] as i32)
    }

    /// What every rank has bound, or the outcome of work for which a rank has no memory. Nothing starts before: the
    /// others would wait for that rank.
    pub(super) fn bound<T>(&self, mine: Result<T>) -> Result<std::result::Result<T, Outcome>> {
        match agree(self.world, mine) {
            Ok(bound) => Ok(Ok(bound)),
            Err(error) if error.is_shared() => Ok(Err(Outcome::Failed { reason: error.to_string() })),
            Err(error) => Err(error),
        }
    }

    /// The run's data for measuring a product, a replay or concurrent calls.
    pub(super) fn replay_context(&self, backend: &dyn Backend) -> ReplayContext<'_> {
        ReplayContext {
            world: self.world,
            local_ranks: backend.local_ranks(),
            verify: self.request.settings.verify,
            interrupted: &self.signals.raised,
        }
    }

    /// Number of repetitions of products and concurrent calls.
    pub(super) fn repetitions(&self) -> Repetitions {
        let settings = &self.request.settings;
        Repetitions { most: settings.iterations.unwrap_or(REPETITIONS), budget: settings.case_budget }
    }
}

fn outcome(line: &Line) -> Option<&Outcome> {
    match line {
        Line::Case(line) => Some(&line.outcome),
        Line::Interference(line) => Some(&line.outcome),
        Line::Product(line) => Some(&line.outcome),
        Line::Copy(line) => Some(&line.outcome),
        Line::Replay(line) => Some(&line.outcome),
        _ => None,
    }
}

// The common clock of a run's cases: established before the first case, and recorded then and after the last one.

/// The clock for starting cases.
pub(super) struct Timekeeping<'a> {
    pub clock: CommonClock<'a>,
    /// How isolated iterations are started together.
    pub start: ClockMethod,
    /// Resolution of the backend's marks, in nanoseconds.
    pub resolution: u64,
}

/// This process's clock. A process that simulates all ranks uses the clock of its backend, which is compared with no
/// other.
pub(super) fn reading_of(backend: &dyn Backend) -> fn() -> u64 {
    if backend.facts().virtual_clock { || 0 } else { commgauge_base::host::now_nanoseconds }
}

impl<'a> Timekeeping<'a> {
    /// Compares the clocks, and records their agreement.
    pub(super) fn begin(run: &mut Run, backend: &dyn Backend, now: &'a dyn Fn() -> u64) -> Result<Timekeeping<'a>> {
        let clock = CommonClock::establish(run.world, now)?;
        let start = method(run, &clock)?;
        let time = Timekeeping { clock, start, resolution: backend.clock_resolution_nanoseconds() };
        time.write(run, ClockMoment::Start)?;
        Ok(time)
    }

    /// Compares and records them again.
    pub(super) fn end(mut self, run: &mut Run) -> Result<()> {
        self.clock.resynchronise(run.world)?;
        self.write(run, ClockMoment::End)
    }

    fn write(&self, run: &mut Run, moment: ClockMoment) -> Result<()> {
        let method = method(run, &self.clock)?;
        let line = self.clock.line(run.world, moment, method, self.resolution)?;
        run.journal.write(|| Line::Clock(line))
    }
}

/// How isolated calls start: as requested, but after a barrier if the clocks allow no other start. Collective.
fn method(run: &Run, clock: &CommonClock) -> Result<ClockMethod> {
    match run.request.settings.start {
        ClockMethod::Synchronised => clock.method(run.world),
        ClockMethod::Barrier => Ok(ClockMethod::Barrier),
    }
}

// Records the devices of the ranks, and whether their state changed while a case was measured. Does nothing if the
// backend has no devices to read.

/// Smaller relative changes of a clock are noise.
const SIGNIFICANT_CHANGE: f64 = 0.05;

/// Ranks whose changes are listed.
const MAX_CHANGES: usize = 16;

/// Device of one rank with its state.
#[derive(Serialize, Deserialize)]
struct DeviceReport {
    source: std::result::Result<String, String>,
    identity: Option<DeviceFacts>,
}

/// The states of a rank's device before and after a case.
type DeviceReadings = (DeviceState, DeviceState);

/// Records the devices of all ranks. Collective if the backend has devices, else does nothing.
pub(super) fn record_devices(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let Some(reader) = backend.device_reader() else { return Ok(()) };
    let (source, identity) = (reader.source(), reader.identity());
    let all: Vec<DeviceReport> = gather_all(run.world, &DeviceReport { source, identity })?;
    run.journal.write(|| Line::Devices(Box::new(devices_line(all))))
}

fn devices_line(all: Vec<DeviceReport>) -> DevicesLine {
    let source = all.iter().find_map(|report| report.source.as_ref().ok().cloned());
    let absent = all
        .iter()
        .enumerate()
        .find_map(|(rank, report)| Some(format!("rank {rank}: {}", report.source.as_ref().err()?)));
    let facts = |(rank, report): (u32, DeviceReport)| Some(DeviceFacts { rank, ..report.identity? });
    DevicesLine { source, absent, devices: (0u32..).zip(all).filter_map(facts).collect() }
}

/// Records the state of the devices before and after a case. Collective if the backend has devices, else does nothing.
pub(super) fn record_changes(
    run: &mut Run,
    backend: &mut dyn Backend,
    before: Option<DeviceState>,
    case: u32,
    replicate: u32,
) -> Result<()> {
    let Some(reader) = backend.device_reader() else { return Ok(()) };
    let mine = before.zip(reader.read());
    let all: Vec<Option<DeviceReadings>> = gather_all(run.world, &mine)?;
    if run.world.process() == 0 && all.iter().all(Option::is_none) {
        // The line with the devices gives the reason; the other processes wait here until it is written.
        return agree(run.world, Ok(()));
    }
    run.journal.write(|| Line::DeviceReadings(Box::new(readings(&all, case, replicate))))
}

/// When the evidence of a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvidenceMoment {
    /// Only what is new.
    AfterReplicate,
    /// The counters in any case, so that the record says which were read.
    End,
}

/// Records what rose on any host and what libraries came to use since the last such lines. Collective; does nothing where one process
/// simulates the ranks.
pub(super) fn record_evidence(run: &mut Run, backend: &mut dyn Backend, moment: EvidenceMoment) -> Result<()> {
    if backend.facts().virtual_clock {
        return Ok(());
    }
    let mine = run.counters.as_mut().map(|counters| counters.report(backend.device_reader()));
    let all = gather_all(run.world, &mine)?;
    let line = counters::line(all, run.ranks.facts.iter().map(|facts| facts.host.as_str()));
    let is_recorded = moment == EvidenceMoment::End || !line.blocks.is_empty();
    run.journal.write_all(|| is_recorded.then(|| Line::Counters(Box::new(line))).into_iter().collect())?;
    record_library_use(run, backend)
}

/// Collective if the backend has a log of its library, else does nothing.
fn record_library_use(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let Some(mine) = backend.library_use() else { return Ok(()) };
    let now = LibraryUseLine::of(gather_all(run.world, &mine)?);
    let is_new = now != run.library_use;
    run.library_use = now.clone();
    run.journal.write_all(|| is_new.then(|| Line::LibraryUse(Box::new(now))).into_iter().collect())
}

fn readings(all: &[Option<DeviceReadings>], case: u32, replicate: u32) -> DeviceReadingsLine {
    let read = || all.iter().flatten();
    let changed: Vec<DeviceChange> = (0u32..)
        .zip(all)
        .filter_map(|(rank, readings)| {
            let (before, after) = readings.as_ref()?;
            Some(DeviceChange { rank, what: change(before, after)? })
        })
        .collect();
    DeviceReadingsLine {
        case,
        replicate,
        ranks_read: read().count() as u32,
        before: spread(read().map(|(before, _)| before)),
        after: spread(read().map(|(_, after)| after)),
        ranks_changed: changed.len() as u32,
        changes: changed.into_iter().take(MAX_CHANGES).collect(),
    }
}

fn spread<'a>(states: impl Iterator<Item = &'a DeviceState> + Clone) -> DeviceSpread {
    let of = |value: fn(&DeviceState) -> Option<f64>| {
        let values = states.clone().filter_map(value);
        values.fold(None, |range: Option<(f64, f64)>, one| {
            Some(range.map_or((one, one), |(a, b)| (a.min(one), b.max(one))))
        })
    };
    let reasons: Vec<String> = ascending(states.clone().flat_map(|state| state.throttle_reasons.iter().cloned()));
    DeviceSpread {
        multiprocessor_clock_mhz: of(|state| state.multiprocessor_clock_mhz),
        memory_clock_mhz: of(|state| state.memory_clock_mhz),
        power_watts: of(|state| state.power_watts),
        temperature_celsius: of(|state| state.temperature_celsius),
        throttle_reasons: reasons,
    }
}

/// Describes a change between two readings that makes the times in between unreliable. Clocks that rise when an idle
/// device gets work do not count.
fn change(before: &DeviceState, after: &DeviceState) -> Option<String> {
    let mut what = Vec::new();
    for (name, clock) in [
        ("multiprocessor clock", (before.multiprocessor_clock_mhz, after.multiprocessor_clock_mhz)),
        ("memory clock", (before.memory_clock_mhz, after.memory_clock_mhz)),
    ] {
        let (Some(first), Some(second)) = clock else { continue };
        let fell = second < first * (1.0 - SIGNIFICANT_CHANGE) && !after.is_idle;
        let rose = second > first * (1.0 + SIGNIFICANT_CHANGE) && !before.is_idle;
        if fell || rose {
            what.push(format!("{name} {first:.0} -> {second:.0} MHz"));
        }
    }
    let reasons: Vec<&String> = ascending(before.throttle_reasons.iter().chain(&after.throttle_reasons));
    what.extend(reasons.into_iter().map(|reason| format!("throttled by {reason}")));
    (!what.is_empty()).then(|| what.join(", "))
}

#[cfg(test)]
mod tests {
    // Tests of the device messages, on synthetic readings.
    use super::*;

    fn state(clock: f64, reasons: &[&str], is_idle: bool) -> DeviceState {
        DeviceState {
            multiprocessor_clock_mhz: Some(clock),
            memory_clock_mhz: Some(2619.0),
            power_watts: Some(300.0),
            temperature_celsius: Some(50.0),
            throttle_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            is_idle,
        }
    }

    #[test]
    fn throttling_and_lost_clocks_are_reported_and_waking_up_is_not() {
        for (before, after, expected) in [
            (state(1980.0, &[], false), state(1980.0, &[], false), None),
            (state(1980.0, &[], false), state(1950.0, &[], false), None),
            (state(345.0, &[], true), state(1980.0, &[], false), None),
            (state(1980.0, &[], false), state(345.0, &[], true), None),
            (state(1980.0, &[], false), state(1410.0, &[], false), Some("multiprocessor clock 1980 -> 1410 MHz")),
            (state(1410.0, &[], false), state(1980.0, &[], false), Some("multiprocessor clock 1410 -> 1980 MHz")),
            (
                state(1980.0, &["power cap"], false),
                state(1980.0, &["power cap"], false),
                Some("throttled by power cap"),
            ),
            (DeviceState::default(), DeviceState::default(), None),
        ] {
            assert_eq!(change(&before, &after).as_deref(), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn the_spread_over_ranks_and_the_first_changes_are_recorded_and_the_others_counted() {
        let readings_of_one = || (state(1980.0, &[], false), state(1410.0, &["thermal slowdown (hardware)"], false));
        let mut all: Vec<Option<DeviceReadings>> = (0..100).map(|_| Some(readings_of_one())).collect();
        all[3] = None;
        let line = readings(&all, 7, 2);
        assert_eq!((line.case, line.replicate, line.ranks_read, line.ranks_changed), (7, 2, 99, 99));
        assert_eq!(line.changes.len(), MAX_CHANGES);
        assert!(line.changes.iter().all(|change| change.rank != 3));
        assert_eq!(line.before.multiprocessor_clock_mhz, Some((1980.0, 1980.0)));
        assert_eq!(line.after.throttle_reasons, ["thermal slowdown (hardware)"]);
        let none = readings(&[None, None], 0, 0);
        assert_eq!((none.ranks_read, none.before), (0, DeviceSpread::default()));
    }

    #[test]
    fn a_host_without_nvml_is_named_and_the_others_are_recorded() {
        let report = |source: std::result::Result<&str, &str>| DeviceReport {
            identity: source.is_ok().then(|| DeviceFacts { name: "H100".into(), ..DeviceFacts::default() }),
            source: source.map(str::to_owned).map_err(str::to_owned),
        };
        let line = devices_line(vec![report(Ok("NVML 13")), report(Err("NVML cannot be used"))]);
        assert_eq!((line.source.as_deref(), line.devices.len()), (Some("NVML 13"), 1));
        assert_eq!(line.absent.as_deref(), Some("rank 1: NVML cannot be used"));
    }
}
