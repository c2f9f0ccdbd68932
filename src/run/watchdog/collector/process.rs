//! State of a process of this host according to the operating system, and killing it.

use super::super::asked_to_end::{signals, was_asked_to_end};
use super::super::wire::{COLLECTOR_VARIABLE, LAUNCH_MARK, RankState};
use commgauge_base::host::{ProcessStat, Segments, SessionFolder};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// An exiting process (`PF_EXITING` of the kernel, in field 9 of proc_pid_stat(5)).
const EXITING: u64 = 0x4;

/// SIGKILL in a signal mask: bit 8 is signal 9.
const KILL: u64 = 1 << 8;

/// A rank without a heartbeat for this long counts as not answering.
pub(super) const NO_ANSWER_AFTER: Duration = Duration::from_millis(1_200);

/// Fate of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Running,
    /// It received SIGTERM and still runs. No signal reaches a dying process.
    Asked,
    /// It received SIGTERM before it began to exit.
    AskedAndDying,
    /// It is exiting, and was not asked to.
    Dying,
    Gone,
}

impl Fate {
    pub(super) fn is_running(self) -> bool {
        matches!(self, Fate::Running | Fate::Asked)
    }

    /// This fate, if another source says that the process received SIGTERM.
    pub(super) fn after_request(self) -> Fate {
        if self.is_running() { Fate::Asked } else { Fate::AskedAndDying }
    }
}

/// Start time of a process, in clock ticks since boot: together with the pid it identifies a process uniquely.
pub fn process_start(pid: u32) -> Option<u64> {
    ProcessStat::of(pid).map(|stat| stat.start)
}

/// One process of this host, and no later one with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id; 0 for a process of another host.
    pub pid: u32,
    /// Its start time, from [`process_start`].
    pub start: u64,
}

impl Process {
    /// Whether it runs on this host.
    pub(super) fn is_here(self) -> bool {
        self.pid != 0
    }

    /// Whether it is stopped, by a signal or a debugger. `None` if it is gone.
    pub(super) fn is_stopped(self) -> Option<bool> {
        Some(self.stat().filter(|stat| !stat.is_zombie())?.is_stopped())
    }

    /// Whether it is exiting and still holds its resources.
    pub(super) fn is_dying(self) -> bool {
        self.is_stopped().is_some() && !self.fate().is_running()
    }

    fn stat(self) -> Option<ProcessStat> {
        ProcessStat::of(self.pid).filter(|stat| stat.start == self.start)
    }

    /// Its fate. A process is exiting once it has begun to exit or SIGKILL is pending for one of its threads; it may take long to disappear
    /// after that, since it needs a processor and frees its memory first.
    pub(super) fn fate(self) -> Fate {
        let pid = self.pid;
        let Some(stat) = self.stat() else { return Fate::Gone };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_dying = stat.is_zombie() || stat.flags & EXITING != 0 || is_being_killed(pid);
        let fate = if is_dying { Fate::Dying } else { Fate::Running };
        if was_asked_to_end(&status) { fate.after_request() } else { fate }
    }

    pub(super) fn kill(self) {
        if self.is_stopped().is_some()
            && let Some(pid) = Pid::from_raw(self.pid as i32)
        {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A fatal signal is pending for each thread until that thread has seen it.
fn is_being_killed(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    statuses.any(|status| signals(&status, "SigPnd:") & KILL != 0)
}

/// Whether a process certainly belongs to another launch: it runs another program, or carries another launch's mark. Such a process is
/// never killed. Missing information does not count.
pub(super) fn belongs_to_another_launch(pid: u32) -> bool {
    let program = |pid: &str| std::fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let pid = pid.to_string();
    let is_other_program = program(&pid).zip(program("self")).is_some_and(|(theirs, ours)| theirs != ours);
    let mark = std::env::var_os(COLLECTOR_VARIABLE).filter(|mark| mark != "1");
    let theirs = std::fs::read(format!("/proc/{pid}/environ")).ok().and_then(|all| variable(&all, LAUNCH_MARK));
    is_other_program || mark.zip(theirs).is_some_and(|(ours, theirs)| ours.as_encoded_bytes() != theirs)
}

/// The value of a variable in an environment as the kernel shows it.
fn variable(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let of = |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.split(|byte| *byte == 0).find_map(of)
}

// What killed ranks and a killed launcher leave on a host, and no other process removes if all of them end at once: shared memory, and the
// launcher's session folder.

/// Intervals of scanning the ranks' shared memory: until all have begun their cases, and after that.
const FIRST_SCANS: Duration = Duration::from_secs(1);

const LATER_SCANS: Duration = Duration::from_secs(30);

/// How long to wait for exiting processes. They need a processor, and free their memory first.
const DYING_TIMEOUT: Duration = Duration::from_secs(3);

/// What to remove at the end.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    segments: Segments,
    /// Time of the last scan, and whether all ranks had begun their cases.
    noted: Option<(Instant, bool)>,
    session: Option<Session>,
}

/// The session folder of the launcher that runs on this host.
#[derive(Debug)]
struct Session {
    folder: SessionFolder,
    launcher: Process,
}

impl Session {
    /// The session folder of the launcher that started a rank.
    fn of_rank(rank: u32) -> Option<Session> {
        let path = std::env::var_os("PMIX_SERVER_TMPDIR").map(PathBuf::from)?;
        let folder = SessionFolder::of_rank(&path, rank)?;
        let pid = folder.launcher();
        Some(Session { folder, launcher: Process { pid, start: process_start(pid)? } })
    }
}

impl Leftovers {
    /// Whether the next scan is not due yet, whatever the ranks do.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.noted.is_some_and(|(at, had_begun)| had_begun && now - at <= LATER_SCANS)
    }

    /// Periodically notes what processes of this host have in shared memory, as killed ones cannot be queried. `have_begun` is whether all
    /// ranks of the host have begun their cases.
    pub(super) fn note_at(&mut self, now: Instant, have_begun: bool, processes: &[Process]) {
        let is_due = self.noted.is_none_or(|(at, had_begun)| match (had_begun, have_begun) {
            (false, true) => true,
            (true, _) => !self.rests(now),
            (false, false) => now - at > FIRST_SCANS,
        });
        if is_due && !processes.is_empty() {
            self.noted = Some((now, have_begun));
            self.note(processes);
        }
    }

    /// Scans now, before ranks are ended.
    pub(super) fn note(&mut self, processes: &[Process]) {
        if let (None, Some(process)) = (&self.session, processes.first()) {
            self.session = Session::of_rank(process.pid);
        }
        processes.iter().for_each(|process| self.segments.note(process.pid));
    }

    /// Removes what these left, once they have ended. A running launcher removes its own folder.
    pub(super) fn remove(&self, processes: &[Process]) {
        let launcher = self.session.as_ref().map(|session| session.launcher);
        let ending = processes.iter().copied().chain(launcher);
        let deadline = Instant::now() + DYING_TIMEOUT;
        while ending.clone().any(Process::is_dying) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.segments.remove_left();
        if let Some(session) = &self.session {
            session.folder.remove_left();
        }
    }
}

// The state of every rank known to a collector, and whether it is time to act. Pure functions of given facts and times.

/// How long a rank may stay in an operation after any rank received a stop signal.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Connection state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankStatus {
    Expected,
    Live,
    Died,
    Dragged,
    /// It ended normally, with this exit code.
    Left(i32),
    /// Its host's collector is gone, so its state is unknown.
    Unwatched,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct Entry {
    pub rank: u32,
    pub status: RankStatus,
    pub state: RankState,
    pub last_heartbeat: Instant,
    /// Its process, if it is a rank of this host.
    pub process: Process,
    pub detail: Option<Box<str>>,
    pub device: Option<Box<str>>,
    /// Whether its thread sleeps, according to its answer.
    pub sleeps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A rank stayed in an operation for longer than this.
    Deadline(Duration),
    /// A rank died; true if it had received a stop signal, so that the death was intended.
    Death { requested: bool },
}

/// The table of ranks, sorted by number.
#[derive(Debug)]
pub struct RankTable {
    pub(super) entries: Vec<Entry>,
    pub(super) first_death: Option<Instant>,
    /// How long after the first death further deaths count as independent, not as its consequences.
    death_window: Duration,
    /// Error of a rank, reported before it ended: ranks that close after it were ended because of it.
    has_reported_error: bool,
}

impl RankTable {
    /// Creates the table from sorted ranks.
    pub fn new(ranks: impl Iterator<Item = u32>, now: Instant) -> RankTable {
        let entry = |rank| Entry {
            rank,
            status: RankStatus::Expected,
            state: RankState { rank, ..RankState::default() },
            last_heartbeat: now,
            process: Process::default(),
            detail: None,
            device: None,
            sleeps: false,
        };
        let entries = ranks.map(entry).collect();
        RankTable { entries, first_death: None, death_window: Duration::ZERO, has_reported_error: false }
    }

    /// With a launcher that asks ranks to end before it kills them, and so gives them this long.
    #[must_use]
    pub fn with_death_window(self, death_window: Duration) -> RankTable {
        RankTable { death_window, ..self }
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    pub fn get_mut(&mut self, rank: u32) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&rank, |entry| entry.rank).ok()?;
        self.entries.get_mut(at)
    }

    /// Updates the state of a rank after a heartbeat.
    pub fn record_heartbeat(&mut self, state: RankState, now: Instant) {
        let Some(entry) = self.get_mut(state.rank) else { return };
        if matches!(entry.status, RankStatus::Expected | RankStatus::Live | RankStatus::Unwatched) {
            entry.status = RankStatus::Live;
            (entry.state, entry.last_heartbeat) = (state, now);
        }
    }

    /// A rank's connection closed. Ranks that close together with the first, or before a launcher could have ended them, are equally
    /// suspect.
    pub fn close(&mut self, rank: u32, now: Instant) {
        let is_first = self.first_death.is_none();
        let (first, window) = (self.first_death.unwrap_or(now), self.death_window);
        let has_reported_error = self.has_reported_error;
        let Some(entry) = self.get_mut(rank) else { return };
        if matches!(entry.status, RankStatus::Expected | RankStatus::Live | RankStatus::Unwatched) {
            if has_reported_error {
                entry.status = RankStatus::Dragged;
                return;
            }
            let is_own = is_first || now - first <= window && !entry.state.signalled;
            entry.status = if is_own { RankStatus::Died } else { RankStatus::Dragged };
            self.first_death = Some(first);
        }
    }

    pub fn leave(&mut self, rank: u32, code: i32) {
        if let Some(entry) = self.get_mut(rank) {
            entry.status = RankStatus::Left(code);
        }
        self.has_reported_error |= code != 0 && self.first_death.is_none();
    }

    /// Whether it is time to act: a rank died, or has stayed in an operation beyond its deadline.
    pub fn trigger(&self, now: Instant) -> Option<Trigger> {
        if self.first_death.is_some() {
            let mut died = self.entries.iter().filter(|entry| entry.status == RankStatus::Died);
            return Some(Trigger::Death { requested: died.all(|entry| entry.state.signalled) });
        }
        // After a stop request the user does not want to wait for a blocked rank.
        let stop_requested = self.entries.iter().any(|entry| entry.state.signalled);
        let deadline = |entry: &Entry| if stop_requested { entry.deadline().min(STOP_GRACE) } else { entry.deadline() };
        let moved = if stop_requested { Duration::MAX } else { self.moved(now) };
        let late = |entry: &&Entry| {
            let counts = entry.process.is_here() || entry.is_heard(now) || moved > deadline(entry);
            entry.status == RankStatus::Live && entry.stayed(now) > deadline(entry) && counts
        };
        self.entries.iter().filter(late).map(deadline).min().map(Trigger::Deadline)
    }

    /// How long ago a rank that is heard made progress. While one does, nothing waits for a host that is silent: its watchdog alone may be
    /// stopped, which its ranks report once all agree.
    pub fn moved(&self, now: Instant) -> Duration {
        let heard = self.entries.iter().filter(|entry| entry.status == RankStatus::Live && entry.is_heard(now));
        heard.map(|entry| entry.stayed(now)).min().unwrap_or(Duration::MAX)
    }

    /// An answer to an earlier query does not count for the next.
    pub fn forget_answers(&mut self) {
        for entry in &mut self.entries {
            (entry.detail, entry.sleeps) = (None, false);
        }
    }

    /// Time in which the collector itself could not run counts against no rank.
    pub fn reset_heartbeats(&mut self, now: Instant) {
        self.entries.iter_mut().for_each(|entry| entry.last_heartbeat = now);
    }
}

impl Entry {
    /// Time since the last heartbeat.
    pub fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_heartbeat)
            + Duration::from_millis(self.state.silent_milliseconds.into())
    }

    fn is_heard(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_heartbeat) <= NO_ANSWER_AFTER
    }

    /// How long it has stayed in its operation, as far as known.
    pub fn stayed(&self, now: Instant) -> Duration {
        self.silent(now) + Duration::from_millis(self.state.stuck_milliseconds.into())
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.state.deadline_milliseconds.into())
    }
}

/// The stacks of ranks known to a collector, and how a thread hands them over.
pub(super) struct Stacks {
    pub(super) found: BTreeMap<u32, String>,
    pub(super) sender: Sender<(u32, String)>,
    pub(super) waiting: Receiver<(u32, String)>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let (sender, waiting) = channel();
        Stacks { found: BTreeMap::new(), sender, waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn process_of(child: &Child) -> Process {
        Process { pid: child.id(), start: process_start(child.id()).expect("it runs") }
    }

    #[test]
    fn stopped_running_and_ended_processes_are_distinguished() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("it starts");
        let process = process_of(&child);
        let later = Process { start: process.start + 1, ..process };
        assert_eq!(process.is_stopped(), Some(false));
        assert_eq!(later.is_stopped(), None, "another process with the same id");
        kill_process(Pid::from_child(&child), Signal::STOP).expect("ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while process.is_stopped() != Some(true) {
            assert!(std::time::Instant::now() < deadline, "it keeps running");
        }
        later.kill();
        assert_eq!(process.is_stopped(), Some(true), "not meant");
        process.kill();
        child.wait().expect("it ends");
        assert_eq!(process.is_stopped(), None);
    }

    #[test]
    fn a_process_of_another_program_is_not_part_of_this_launch() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("it starts");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // Between fork and exec it is still this program.
        while !belongs_to_another_launch(child.id()) {
            assert!(std::time::Instant::now() < deadline, "another program");
        }
        assert!(!belongs_to_another_launch(std::process::id()));
        assert!(!belongs_to_another_launch(0), "nothing is known about an invisible process");
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(variable(b"A=1\0COMMGAUGE_LAUNCH=x=y\0B=2\0", "COMMGAUGE_LAUNCH"), Some(b"x=y".to_vec()));
    }

    #[test]
    fn a_killed_process_is_dying_also_before_it_is_gone() {
        let mut children = [(); 3].map(|()| Command::new("sleep").arg("30").spawn().expect("it starts"));
        let processes: Vec<Process> = children.iter().map(process_of).collect();
        let is_dying = |process: Process| matches!(process.fate(), Fate::Dying | Fate::Gone);
        assert!(!processes.iter().any(|process| is_dying(*process)));
        // A stopped process that is killed needs a processor before it can end.
        kill_process(Pid::from_child(&children[0]), Signal::STOP).expect("ours");
        for child in &children[..2] {
            kill_process(Pid::from_child(child), Signal::KILL).expect("ours");
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // Between taking the signal and beginning to exit, a thread briefly shows neither.
        while processes.iter().filter(|process| is_dying(**process)).count() < 2 {
            assert!(std::time::Instant::now() < deadline, "both were killed");
        }
        assert!(!is_dying(processes[2]));
        let later = Process { start: processes[2].start + 1, ..processes[2] };
        assert!(is_dying(later), "another process with the same id");
        children[2].kill().expect("ours");
        for child in &mut children {
            child.wait().expect("it ends");
        }
        assert!(processes.iter().all(|process| is_dying(*process)));
    }

    #[test]
    fn a_process_asked_to_end_before_it_was_killed_is_distinguished_from_one_only_killed() {
        let mut children = [(); 2].map(|()| Command::new("sleep").arg("30").spawn().expect("it starts"));
        let processes = [0, 1].map(|at| process_of(&children[at]));
        let signal = |at: usize, signal| kill_process(Pid::from_child(&children[at]), signal).expect("ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // A stopped process handles nothing before it is killed, like a process that gets no processor. Of two pending signals it would
        // take SIGTERM first.
        signal(0, Signal::STOP);
        while processes[0].is_stopped() != Some(true) {
            assert!(std::time::Instant::now() < deadline, "it stops");
        }
        signal(0, Signal::TERM);
        assert_eq!(processes[0].fate(), Fate::Asked, "while it lives");
        signal(0, Signal::KILL);
        // In the other order, like a launcher that ends the rest.
        signal(1, Signal::KILL);
        signal(1, Signal::TERM);
        while !processes.iter().all(|process| ProcessStat::of(process.pid).is_some_and(ProcessStat::is_zombie)) {
            assert!(std::time::Instant::now() < deadline, "both were killed");
        }
        assert_eq!(processes.map(Process::fate), [Fate::AskedAndDying, Fate::Dying]);
        for child in &mut children {
            child.wait().expect("it ends");
        }
        assert_eq!(processes.map(Process::fate), [Fate::Gone, Fate::Gone]);
    }

    fn state(rank: u32, stuck: u32) -> RankState {
        RankState { rank, stuck_milliseconds: stuck, deadline_milliseconds: 2_000, ..RankState::default() }
    }

    #[test]
    fn a_rank_is_late_when_it_has_stayed_or_been_silent_for_longer_than_it_may() {
        let begun = Instant::now();
        let after = |milliseconds| begun + Duration::from_millis(milliseconds);
        for (stuck, silent, fires) in [(0, 1_900, false), (1_900, 0, false), (1_900, 200, true), (0, 2_001, true)] {
            let mut table = RankTable::new(0..3, begun);
            table.record_heartbeat(state(1, stuck), begun);
            let found = table.trigger(after(silent));
            assert_eq!(found, fires.then_some(Trigger::Deadline(Duration::from_secs(2))), "{stuck} {silent}");
        }
        let mut table = RankTable::new(0..3, begun);
        let long = |rank, signalled| RankState { deadline_milliseconds: 60_000, signalled, ..state(rank, 0) };
        table.record_heartbeat(long(0, false), begun);
        assert_eq!(table.trigger(after(10_001)), None);
        table.record_heartbeat(long(1, true), after(10_000));
        assert_eq!(table.trigger(after(10_001)), Some(Trigger::Deadline(STOP_GRACE)), "a stop was requested");
        let mut table = RankTable::new(0..3, begun);
        table.record_heartbeat(state(1, 0), begun);
        table.record_heartbeat(state(0, 0), after(5_000));
        assert_eq!(table.trigger(after(5_001)), None, "its host alone is silent, as another rank makes progress");
        table.record_heartbeat(state(0, 2_001), after(8_000));
        assert!(table.trigger(after(8_001)).is_some(), "the other rank waits");
        let mut table = RankTable::new(0..3, begun);
        table.record_heartbeat(state(1, 1_900), begun);
        table.leave(1, 0);
        assert_eq!(table.trigger(after(99_000)), None, "a rank that left is not late");
        table.record_heartbeat(state(2, 0), begun);
        table.reset_heartbeats(after(50_000));
        assert_eq!(table.trigger(after(51_000)), None, "the collector itself was stopped");
    }

    #[test]
    fn only_those_that_closed_first_died_and_the_others_were_dragged_along() {
        let begun = Instant::now();
        let later = begun + Duration::from_millis(3);
        let mut table = RankTable::new(0..4, begun);
        (0..4).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.leave(0, 0);
        for (rank, moment) in [(2, begun), (1, later), (0, later), (9, later)] {
            table.close(rank, moment);
        }
        let statuses: Vec<RankStatus> = table.entries.iter().map(|entry| entry.status).collect();
        assert_eq!(statuses, [RankStatus::Left(0), RankStatus::Dragged, RankStatus::Died, RankStatus::Live]);
        assert_eq!(table.trigger(later), Some(Trigger::Death { requested: false }));
        table.record_heartbeat(state(2, 0), later);
        assert_eq!(table.entries[2].status, RankStatus::Died, "no rank comes back");
    }

    #[test]
    fn ranks_that_are_killed_at_once_all_died_where_the_launcher_asks_first() {
        let begun = Instant::now();
        let after = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut table = RankTable::new(0..5, begun).with_death_window(Duration::from_millis(100));
        (0..5).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.record_heartbeat(RankState { signalled: true, ..state(4, 0) }, begun);
        for (rank, moment) in [(1, 0), (2, 40), (4, 50), (3, 101)] {
            table.close(rank, after(moment));
        }
        let died = table.entries.iter().filter(|entry| entry.status == RankStatus::Died);
        assert!(died.map(|entry| entry.rank).eq([1, 2]), "one was asked to end, one came too late");
    }

    #[test]
    fn ranks_that_end_after_a_reported_error_did_not_die() {
        let begun = Instant::now();
        let mut table = RankTable::new(0..2, begun);
        (0..2).for_each(|rank| table.record_heartbeat(state(rank, 0), begun));
        table.leave(1, 6);
        table.close(0, begun);
        assert_eq!((table.entries[0].status, table.trigger(begun)), (RankStatus::Dragged, None));
    }
}
