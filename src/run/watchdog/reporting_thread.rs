//! The watchdog's thread in a rank: reports the rank's progress to the collector of its host, and ends the rank on
//! request.

use super::reporter::{MainThread, Outgoing, Reporter, RunState, locked};
use super::wire::{Direction, Frame, LOST_COLLECTOR, MAX_FRAME_BYTES, OWN_DEADLINE, RankState, Session, print_message};
use commgauge_base::error::HANG_EXIT_CODE;
use commgauge_base::host;
use commgauge_base::output_file::folder_of;
use commgauge_base::progress::{Progress, Shown};
use commgauge_base::units::Seconds;
use commgauge_model::record::launch_lines::{HangLine, UnwatchedLine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Interval of heartbeats. All ranks of a host send theirs at the same time: each interruption delays all ranks, so they are interrupted
/// together.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(400);

/// A collector that was silent for this long does not watch: it beats every second.
const COLLECTOR_SILENT_AFTER: Duration = Duration::from_secs(5);

/// How long after its deadline an unwatched rank ends the launch; ranks other than 0 wait twice as long.
const OWN_MARGIN: Duration = Duration::from_secs(2);

/// How long a launcher may take to end a rank that aborts.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends the whole launch with an exit code.
pub type EndLaunch = fn(i32) -> !;

/// Starts the thread. `signal` is the number of the received stop signal, or 0.
pub(super) fn start(
    rank: u32,
    host: &str,
    progress: Progress,
    connection: TcpStream,
    session: Session,
    signal: Arc<AtomicUsize>,
    end_launch: EndLaunch,
) -> std::io::Result<Arc<Reporter>> {
    let incoming = connection.try_clone()?;
    let outgoing = Outgoing { stream: connection, sealer: session.sealer };
    let reporter = Arc::new(Reporter::new(rank, host, progress, outgoing, signal));
    let (now, last) = (Instant::now(), reporter.progress.shown());
    let mut thread = WatchdogThread {
        reporter: Arc::clone(&reporter),
        incoming,
        opener: session.opener,
        received: Vec::new(),
        end_launch,
        last,
        since: now,
        beat: now,
        begun: now,
        heard: now,
        main_thread: None,
    };
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || thread.run())?;
    Ok(reporter)
}

struct WatchdogThread {
    reporter: Arc<Reporter>,
    incoming: TcpStream,
    opener: Direction,
    received: Vec<u8>,
    end_launch: EndLaunch,
    last: Shown,
    since: Instant,
    beat: Instant,
    begun: Instant,
    /// When the collector last sent something.
    heard: Instant,
    /// The measuring thread's CPU time when it was first seen without progress; none while it makes progress.
    main_thread: Option<MainThread>,
}

impl WatchdogThread {
    fn run(&mut self) {
        while self.send_heartbeat().is_ok() && self.listen().is_ok() {
            self.check_silence();
        }
        let run_state = *locked(&self.reporter.run_state);
        match run_state {
            RunState::Watched => {
                let rank = self.reporter.rank;
                print_message(&format!("rank {rank}{LOST_COLLECTOR}is gone; the run continues without it"));
                self.reporter.set_run_state(RunState::Unwatched);
                self.watch_alone();
            }
            RunState::GivenUp(code) => (self.end_launch)(code),
            RunState::Concluded | RunState::Aborted | RunState::Unwatched | RunState::Left => {}
        }
    }

    /// Applies its own deadline to this rank after its collector is gone.
    fn watch_alone(&mut self) {
        self.reporter.is_unwatched.store(true, Ordering::Relaxed);
        while *locked(&self.reporter.run_state) == RunState::Unwatched {
            std::thread::sleep(HEARTBEAT);
            self.observe();
            self.end_if_late("is gone");
        }
    }

    /// A collector that is stopped accepts heartbeats, and does nothing.
    fn check_silence(&mut self) {
        let silent = self.heard.elapsed();
        let is_watched = *locked(&self.reporter.run_state) == RunState::Watched;
        if silent > COLLECTOR_SILENT_AFTER && is_watched {
            if !self.reporter.is_unwatched.swap(true, Ordering::Relaxed) {
                let rank = self.reporter.rank;
                print_message(&format!("rank {rank}{LOST_COLLECTOR}does not answer; the run continues without it"));
            }
            self.end_if_late("does not answer");
        }
    }

    /// Ends the launch if this rank has exceeded its deadline and no other process will: without the collector, which knows all ranks, the
    /// blocking rank is unknown.
    fn end_if_late(&self, collector: &str) {
        let reporter = &self.reporter;
        let deadline = reporter.progress.deadline();
        // Rank 0 comes first, since it can end the record.
        let margin = if reporter.rank == 0 { OWN_MARGIN } else { 2 * OWN_MARGIN };
        if self.since.elapsed() <= deadline.saturating_add(margin) {
            return;
        }
        let (rank, shown) = (reporter.rank, Seconds(deadline.as_secs_f64()));
        let why = format!(
            "no progress within {shown}: rank {rank}{OWN_DEADLINE}, because the watchdog of its host {collector}, so the blocking rank is unknown"
        );
        print_message(&why);
        let record = locked(&reporter.record).clone();
        let lost = UnwatchedLine { host: reporter.host.clone(), rank };
        if let Some(Err(cause)) = record.map(|record| record.end(HANG_EXIT_CODE, why, lost, self.begun.elapsed())) {
            print_message(&cause.to_string());
        }
        // A launcher that is gone or stopped cannot do it.
        std::thread::spawn(|| {
            std::thread::sleep(ABORT_TIMEOUT);
            // This is the last chance to report it.
            let _ = kill_process(getpid(), Signal::KILL);
        });
        (self.end_launch)(HANG_EXIT_CODE);
    }

    /// Notes whether the rank has made progress.
    fn observe(&mut self) {
        let (now, shown) = (Instant::now(), self.reporter.progress.shown());
        // A process that was suspended as a whole, for example by a scheduler, did not stop by itself.
        let gap = now - self.beat;
        if gap > HEARTBEAT * 5 {
            (self.since, self.heard) = (self.since + gap, self.heard + gap);
        }
        self.beat = now;
        if shown != self.last {
            (self.last, self.since, self.main_thread) = (shown, now, None);
        } else if self.main_thread.is_none() {
            self.main_thread = Some(MainThread::now());
        }
    }

    /// Sends a heartbeat, and all activities since the last one.
    fn send_heartbeat(&mut self) -> std::io::Result<()> {
        self.observe();
        let mut frames: Vec<Frame> = locked(&self.reporter.activities)
            .unsent
            .drain(..)
            .map(|(number, text)| Frame::Activity(number, text))
            .collect();
        frames.push(Frame::State(RankState {
            rank: self.reporter.rank,
            shown: self.last,
            stuck_milliseconds: milliseconds(self.beat.saturating_duration_since(self.since)),
            deadline_milliseconds: milliseconds(self.reporter.progress.deadline()),
            silent_milliseconds: 0,
            signalled: self.reporter.signal.load(Ordering::Relaxed) != 0,
            stopped: false,
        }));
        self.reporter.send(&frames)
    }

    /// Receives frames until the next heartbeat.
    fn listen(&mut self) -> std::io::Result<()> {
        let until = next_heartbeat(host::now_nanoseconds());
        loop {
            let left = Duration::from_nanos(until.saturating_sub(host::now_nanoseconds()));
            if left.is_zero() {
                return Ok(());
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut waiting = [PollFd::new(&self.incoming, PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(0) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(cause) => return Err(cause.into()),
                Ok(_) => {}
            }
            let mut bytes = [0; MAX_FRAME_BYTES];
            let count = self.incoming.read(&mut bytes)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.heard = Instant::now();
            self.received.extend(&bytes[..count]);
            self.handle_frames()?;
        }
    }

    fn handle_frames(&mut self) -> std::io::Result<()> {
        loop {
            match self.opener.open(&self.received) {
                Ok(Some((frame, taken))) => {
                    self.received.drain(..taken);
                    match frame {
                        Frame::Query => {
                            self.send_heartbeat()?;
                            let (sleeps, does) = self.main_thread.get_or_insert_with(MainThread::now).since();
                            let text = self.reporter.detail(&does);
                            self.reporter.send(&[Frame::Detail(self.reporter.rank, sleeps, text)])?;
                        }
                        Frame::Abort(code) => {
                            self.reporter.set_run_state(RunState::Aborted);
                            (self.end_launch)(code);
                        }
                        Frame::GiveUpRecord(code) => {
                            self.reporter.set_run_state(RunState::GivenUp(code));
                            let record = locked(&self.reporter.record).clone();
                            if record.is_none_or(|record| record.give_up()) {
                                self.reporter.send(&[Frame::RecordGivenUp])?;
                            }
                        }
                        Frame::Concluded => self.reporter.set_run_state(RunState::Concluded),
                        _ => {}
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err(ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// The next multiple of the heartbeat interval, on the clock that all processes of the host share.
fn next_heartbeat(now_nanoseconds: u64) -> u64 {
    let period = HEARTBEAT.as_nanos() as u64;
    (now_nanoseconds / period + 1) * period
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

// Findings of the watchdogs of hosts that decided alone, because the first one was gone or unreachable: files next to the record. From them
// the process that writes the end of the record learns why the ranks of that host were ended. Each finding is a text for people, and the
// line that belongs in the record.

/// Suffix of the file with the line.
const DATA: &str = ".json";

/// The reports that earlier launches left.
#[derive(Debug, Default)]
pub struct LoneReports {
    before: BTreeSet<(PathBuf, Option<SystemTime>)>,
}

impl LoneReports {
    /// The reports next to a record before its launch.
    pub fn before(record: &Path) -> LoneReports {
        LoneReports { before: reports_near(record).collect() }
    }

    /// A report written since.
    pub fn new_since(&self, record: &Path) -> Option<HangLine> {
        let (path, _) = reports_near(record).find(|report| !self.before.contains(report))?;
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

pub(super) fn text_path(record: &Path, node: u32) -> PathBuf {
    record.with_extension(format!("hang.host-{node}.txt"))
}

/// Path of its line.
pub(super) fn data_path(record: &Path, node: u32) -> PathBuf {
    record.with_extension(format!("hang.host-{node}{DATA}"))
}

fn reports_near(record: &Path) -> impl Iterator<Item = (PathBuf, Option<SystemTime>)> {
    let prefix = record.file_stem().map(|stem| format!("{}.hang.host-", stem.to_string_lossy()));
    let entries = std::fs::read_dir(folder_of(record)).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let (name, prefix) = (entry.file_name().to_string_lossy().into_owned(), prefix.as_ref()?);
        let is_report = name.starts_with(prefix) && name.ends_with(DATA);
        is_report.then(|| (entry.path(), entry.metadata().and_then(|data| data.modified()).ok()))
    })
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_model::record::launch_lines::HangReason;

    #[test]
    fn a_report_of_this_launch_is_found_and_one_of_an_earlier_launch_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("run.jsonl");
        let line = |reason: &str| {
            serde_json::json!({
                "reason": reason, "operation": "a barrier", "activity": {"name": "a case"}, "suspects": "3", "ranks": [],
                "only_of_host": "host2",
            })
        };
        std::fs::write(data_path(&record, 1), line("death").to_string()).unwrap();
        let reports = LoneReports::before(&record);
        assert_eq!(reports.new_since(&record), None);
        std::fs::write(folder.path().join("other.hang.host-2.json"), line("death").to_string()).unwrap();
        std::fs::write(folder.path().join(".run.hang.host-3.json.tmp"), "half").unwrap();
        // The text for people decides nothing, whatever its first words.
        std::fs::write(text_path(&record, 2), "no progress within 4.00 s: rank 3\n").unwrap();
        assert_eq!(reports.new_since(&record), None);
        std::fs::write(data_path(&record, 2), line("deadline").to_string()).unwrap();
        let found = reports.new_since(&record).expect("the line");
        assert_eq!((found.reason, found.only_of_host.as_deref()), (HangReason::Deadline, Some("host2")));
    }
}
