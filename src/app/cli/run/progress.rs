//! Reports the progress of a launch from the growing record: a bar on a terminal, else a line for every tenth.

use super::resumable::Deadlines;
use crate::cli::report::{new_bar, write_above};
use crate::launch::{OutOfMemoryKills, RecordState, Watch, find, first_exit};
use crate::report::LiveRows;
use commgauge_base::error::{Error, Result};
use commgauge_base::host::{self, Segments, StopSignal, stop_signals};
use commgauge_base::units::Seconds;
use commgauge_base::writing::{self, eprintln};
use commgauge_model::record::line::EndStatus;
use commgauge_model::record::{Follower, Line, Record};
use commgauge_run::watchdog::LoneReports;
use indicatif::ProgressBar;
use signal_hook::consts::SIGPIPE;
use signal_hook::iterator::Signals;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Rows that are printed when they are done, and the output.
pub(super) struct Rows<'a> {
    pub rows: LiveRows,
    pub out: &'a mut dyn Write,
}

/// What a record was found to hold when its launch was over.
pub(super) struct Followed {
    /// The record, which may have been renamed meanwhile.
    pub record: PathBuf,
    /// What is known of it.
    pub state: RecordState,
    /// The rows that were printed.
    pub live: Option<LiveRows>,
    /// Why its lines could no longer be followed.
    pub problem: Option<String>,
}

/// Progress of one launch.
pub(super) struct Progress<'a> {
    /// Where the record was asked for.
    asked: PathBuf,
    follower: Follower,
    deadlines: Deadlines,
    begun: Instant,
    /// When the end line, or the report of a host that decided alone, was first seen.
    over: Option<Instant>,
    /// Such reports that earlier launches into the record had left.
    lone_reports: LoneReports,
    /// When the folder of the record was last searched for one.
    searched: Instant,
    record_state: RecordState,
    /// The bar, where standard error is a terminal.
    bar: Option<ProgressBar>,
    /// The rows that are printed above it.
    rows: Option<Rows<'a>>,
    reported: Reported,
    stops: Stops,
    /// Reports which rank of this host exits first; available after the rank map was read.
    first_exit: Option<Receiver<Vec<u32>>>,
    /// Shared memory segments of the ranks.
    segments: Segments,
    /// Number of OOM kills on this host before the launch.
    out_of_memory_kills: Option<u64>,
}

/// What was reported so far.
#[derive(Default)]
struct Reported {
    /// Tenths of the plan.
    tenths: u64,
    /// The newest round of added cases.
    round: u32,
    /// A read error of the record, which is reported once and does not end the launch.
    read_error: Option<String>,
}

/// What ends the launch from outside.
struct Stops {
    signals: Signals,
    /// Whether the end of whoever reads our messages was reported, which ends the launch as a signal does.
    is_reader_gone: bool,
    /// Whether the ranks can read which signal it was.
    is_noted: bool,
}

impl<'a> Progress<'a> {
    /// Follows a record, which need not exist yet.
    pub(super) fn new(record: &Path, deadlines: Deadlines) -> Result<Self> {
        let signals = Signals::new(stop_signals().iter().map(|signal| signal.number))
            .map_err(|cause| Error::environment(format!("cannot wait for signals: {cause}")))?;
        let bar = std::io::stderr().is_terminal().then(new_bar);
        Ok(Self {
            asked: record.to_owned(),
            follower: Follower::open(record),
            deadlines,
            begun: Instant::now(),
            over: None,
            lone_reports: LoneReports::before(record),
            searched: Instant::now(),
            record_state: RecordState::default(),
            bar,
            rows: None,
            reported: Reported::default(),
            stops: Stops { signals, is_reader_gone: false, is_noted: false },
            first_exit: None,
            segments: Segments::default(),
            out_of_memory_kills: find::out_of_memory_kills(),
        })
    }

    /// Follows a record that a launch resumes, from its current end.
    pub(super) fn resuming(path: &Path, record: &Record, deadlines: Deadlines) -> Result<Self> {
        let follower = Follower::from_end(path)?;
        let record_state = RecordState::before(record);
        let tenths = record_state.planned.map_or(0, |planned| tenths(record_state.cases, planned));
        let reported = Reported { tenths, ..Reported::default() };
        Ok(Self { follower, record_state, reported, ..Self::new(path, deadlines)? })
    }

    /// Sets the rows to print when they are done.
    pub(super) fn with_rows(self, rows: Option<Rows<'a>>) -> Self {
        Self { rows, ..self }
    }

    /// Clears the bar, removes shared memory of killed ranks, and returns what the record was found to hold.
    pub(super) fn finish(mut self) -> Followed {
        host::remove_note(&self.asked);
        self.segments.remove_left();
        let kills = find::out_of_memory_kills().zip(self.out_of_memory_kills);
        let processes = kills.map_or(0, |(now, before)| now.saturating_sub(before));
        self.record_state.out_of_memory_kills = OutOfMemoryKills { host: find::name(), processes };
        self.record_state.first_exit = self.first_exit.and_then(|exited| exited.try_recv().ok()).unwrap_or_default();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let path = self.follower.path().to_owned();
        self.record_state.lone_report = self.lone_reports.new_since(&path);
        self.record_state.moved_to = (path != self.asked).then(|| path.clone());
        let live = self.rows.map(|rows| rows.rows);
        Followed { record: path, state: self.record_state, live, problem: self.reported.read_error }
    }

    fn take(&mut self, line: Line) {
        if let Some(Rows { rows, out }) = &mut self.rows {
            write_above(self.bar.as_ref(), out, &rows.take(&line));
        }
        self.record_state.take(line);
    }

    /// The next signal, or the end of whoever reads our messages, which counts as one.
    fn received(&mut self) -> Option<i32> {
        if let Some(number) = self.stops.signals.pending().next() {
            let counts_as = |signal: &StopSignal| (signal.number == number).then_some(signal.counts_as);
            return stop_signals().iter().find_map(counts_as);
        }
        if !self.stops.is_reader_gone && writing::is_unread() {
            self.stops.is_reader_gone = true;
            return Some(SIGPIPE);
        }
        None
    }

    fn report(&mut self) {
        let Some(planned) = self.record_state.planned else { return };
        let newest = self.record_state.round.filter(|(round, _)| *round > self.reported.round);
        if let Some(bar) = &self.bar {
            // With a budget for all cases there may be more lines than planned.
            bar.set_length(planned.max(self.record_state.cases));
            bar.set_position(self.record_state.cases);
            if let Some((round, sizes)) = newest {
                self.reported.round = round;
                bar.set_message(format!(", round {round}: {sizes} sizes more"));
            }
            return;
        }
        if let Some((round, sizes)) = newest {
            self.reported.round = round;
            // The plan is longer now, so the reported tenths are recomputed.
            self.reported.tenths = tenths(self.record_state.cases, planned);
            eprintln!(
                "round {round}: {sizes} sizes more where curves are least sure ({} of {planned} cases)",
                self.record_state.cases
            );
        }
        if let Some(line) = tenth(&mut self.reported.tenths, self.record_state.cases, planned) {
            eprintln!("{line}");
        }
    }
}

impl Watch for Progress<'_> {
    fn tick(&mut self) {
        if self.reported.read_error.is_some() {
            return;
        }
        match self.follower.poll() {
            Ok(lines) => lines.into_iter().for_each(|line| self.take(line)),
            Err(error) => {
                self.output(&format!("commgauge: no more progress: {error}"));
                self.reported.read_error = Some(error.to_string());
            }
        }
        if let (None, Some(ranks)) = (&self.first_exit, &self.record_state.header) {
            let here = find::name();
            let own: Vec<u32> = ranks.iter().filter(|facts| facts.host == here).map(|facts| facts.pid).collect();
            self.segments = Segments::of(&own);
            self.first_exit = Some(first_exit(own));
        }
        self.report();
    }

    /// Everything that ranks and launcher print goes to standard error: standard output is for the summary alone.
    fn output(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    fn overdue(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.record_state.end.is_none() && self.record_state.header.is_none() {
            let limit = self.deadlines.start.filter(|limit| now - self.begun > *limit)?;
            return Some(format!("the ranks did not come together within {}", Seconds(limit.as_secs_f64())));
        }
        if self.record_state.end.is_none() && self.over.is_none() && now - self.searched > SEARCH_INTERVAL {
            self.searched = now;
            if self.lone_reports.new_since(self.follower.path()).is_some() {
                self.over = Some(now);
            }
        }
        let ended = self.record_state.end.as_ref().map(|end| end.status);
        let limit = match ended {
            None => self.over.map(|_| self.deadlines.failed)?,
            Some(EndStatus::Failed) => self.deadlines.failed,
            Some(_) => self.deadlines.ended,
        };
        let since = *self.over.get_or_insert(now);
        let limit_shown = Seconds(limit.as_secs_f64());
        (now - since > limit).then(|| format!("the launcher did not end within {limit_shown} of the end of the run"))
    }

    fn signal(&mut self) -> Option<i32> {
        let number = self.received()?;
        if !self.stops.is_noted {
            self.stops.is_noted = true;
            // Without the note the record says that it was stopped by SIGTERM.
            let _ = host::leave_note(&self.asked, number);
        }
        Some(number)
    }
}

/// Completed tenths of a plan.
fn tenths(cases: u64, planned: u64) -> u64 {
    cases.saturating_mul(10).checked_div(planned).unwrap_or(0)
}

/// The line for the newest tenth that was reached, once for each.
fn tenth(reported: &mut u64, cases: u64, planned: u64) -> Option<String> {
    let reached = tenths(cases, planned).min(10);
    if reached <= *reported {
        return None;
    }
    *reported = reached;
    // With a budget for all cases there may be more lines than planned.
    Some(format!("{} % ({} of {planned} cases)", reached * 10, cases.min(planned)))
}

/// Interval of searching for reports of hosts that decided alone.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const END: &str = r#"{"line":"end","status":"complete","exit_code":0,"elapsed_seconds":1.0}"#;
    const PLAN: &str = r#"{"line":"plan","cases":[],"case_lines":7,"estimated_seconds":1.0}"#;

    #[test]
    fn a_record_is_followed_from_before_it_exists_and_through_half_written_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let mut follower = Follower::open(&path);
        assert_eq!(follower.poll().expect("no file is no error"), []);
        let mut file = File::create(&path).expect("made");
        write!(file, "{PLAN}\n{}", &END[..20]).expect("written");
        assert!(matches!(follower.poll().expect("readable")[..], [Line::Plan(_)]));
        assert_eq!(follower.poll().expect("half a line is no error"), []);
        writeln!(file, "{}", &END[20..]).expect("written");
        assert!(matches!(follower.poll().expect("readable")[..], [Line::End(_)]));
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, "what\n").expect("written");
        let error = Follower::open(&path).poll().expect_err("no record");
        assert!(error.to_string().contains("run.jsonl"), "{error}");
    }

    #[test]
    fn without_a_terminal_every_tenth_is_reported_once() {
        let mut reported = 0;
        let lines: Vec<String> = (0..=25).filter_map(|cases| tenth(&mut reported, cases, 25)).collect();
        assert_eq!(lines.len(), 10);
        assert_eq!((lines[0].as_str(), lines[9].as_str()), ("10 % (3 of 25 cases)", "100 % (25 of 25 cases)"));
        assert_eq!(tenth(&mut 0, 5, 0), None);
        assert_eq!(tenth(&mut 0, 9, 3), Some("100 % (3 of 3 cases)".into()));
    }
}
