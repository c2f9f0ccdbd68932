//! The stacks of the blocking ranks, read on their hosts before the ranks are ended: they show whether a missing rank spins in its own
//! code, waits in a library, or waits in a driver.

use super::super::reporting_thread;
use super::super::wire::{Frame, PeerKind, print_message};
use super::process::{Entry, NO_ANSWER_AFTER, RankStatus, Trigger};
use super::report::{RankView, hang_line, short_text, whole_text};
use super::serve::{DEATH_SETTLING_TIME, Outcome, RasQuery, Serving, Stage, UNREACHABLE_AFTER};
use commgauge_base::error::{ENVIRONMENT_EXIT_CODE, Error, HANG_EXIT_CODE, Kind, Result};
use commgauge_base::output_file::write_own;
use commgauge_base::visible::{ShownPath, visible};
use commgauge_base::{host, writing};
use commgauge_model::record::launch_lines::{HangLine, HangReason, HangState, HungActivity, RankPlace};
use commgauge_model::record::line::{End, EndStatus};
use commgauge_model::record::{Line, Writer, append_missing_end};
use signal_hook::consts::SIGTERM;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for the stacks of all ranks together.
pub(super) const STACKS_TIMEOUT: Duration = Duration::from_secs(4);

/// How much earlier a host that reads a stack stops.
const MARGIN: Duration = Duration::from_millis(500);

/// Maximum number of stacks.
const MAX_STACKS: usize = 4;

impl Serving {
    /// Has the hosts of the suspects read their stacks; returns the ranks.
    pub(super) fn ask_for_stacks(&mut self, outcome: &Outcome) -> Vec<u32> {
        let wanted = outcome.line.as_deref().map_or_else(Vec::new, |line| self.of_interest(line));
        let (here, elsewhere): (Vec<u32>, Vec<u32>) = wanted
            .iter()
            .copied()
            .partition(|rank| self.table.get_mut(*rank).is_some_and(|entry| entry.process.is_here()));
        self.look_at_stacks(&here);
        for rank in elsewhere {
            let host = self.config.node_of_rank.get(rank as usize).copied();
            let peer = self.peers.iter_mut().find(|peer| peer.peer_kind == host.map(PeerKind::Host));
            peer.map(|peer| peer.connection.queue(&Frame::ShowStack(rank)));
        }
        wanted
    }

    /// The suspects of a hang whose process is not stopped; without suspects, some of the ranks inside the operation. Stopped processes are
    /// excluded, because a tool may wake them.
    fn of_interest(&mut self, line: &HangLine) -> Vec<u32> {
        if line.reason == HangReason::Death || !line.unreachable_hosts.is_empty() {
            return Vec::new();
        }
        let inside = line.ranks.iter().find(|of| of.state == HangState::EnteredNotFinished);
        let list = match line.suspects.as_str() {
            "" => inside.map_or("", |of| of.ranks.as_str()),
            suspects => suspects,
        };
        let is_busy = |rank: &u32| {
            self.table.get_mut(*rank).is_some_and(|entry| entry.status == RankStatus::Live && !entry.state.stopped)
        };
        writing::parse(list).filter(is_busy).take(MAX_STACKS).collect()
    }

    /// Looks at the stacks of ranks of this host, in its own thread.
    pub(super) fn look_at_stacks(&mut self, ranks: &[u32]) {
        let pid_of = |rank: &u32| Some(self.table.get_mut(*rank)?.process.pid).filter(|pid| *pid != 0);
        let ranks: Vec<u32> = ranks.to_vec();
        let pids: Vec<u32> = ranks.iter().filter_map(pid_of).collect();
        if pids.is_empty() || pids.len() < ranks.len() {
            return;
        }
        let (sender, deadline) = (self.stacks.sender.clone(), Instant::now() + STACKS_TIMEOUT - MARGIN);
        std::thread::spawn(move || {
            for (rank, stack) in ranks.into_iter().zip(functions_of(&pids, deadline)) {
                // The receiver lives as long as the process.
                let _ = sender.send((rank, stack.unwrap_or_else(|problem| format!("not known: {problem}"))));
            }
        });
    }

    /// Keeps the stacks found on this host, or sends them to the collector that asked.
    pub(super) fn pass_stacks_on(&mut self) {
        while let Ok((rank, text)) = self.stacks.waiting.try_recv() {
            self.send_up(&Frame::Stack(rank, text.clone()));
            self.stacks.found.insert(rank, text);
        }
    }

    /// Adds the stacks to the report, if any, and begins to end the run.
    pub(super) fn report_stacks(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Stacks { .. }) {
            return;
        }
        let before = std::mem::replace(&mut self.stage, Stage::Watching);
        let Stage::Stacks { mut outcome, wanted, report, .. } = before else { return };
        let mut text = String::new();
        for rank in wanted {
            let Some(stack) = self.stacks.found.remove(&rank) else { continue };
            let _ = writeln!(text, "  stack of rank {rank}: {}", visible(&stack));
            let host = self.host_of(rank).to_owned();
            if let Some(line) = &mut outcome.line {
                note(&mut line.places, rank, host, stack);
            }
        }
        if !text.is_empty() {
            let whole = format!("{report}\nFunctions of the measuring thread, innermost first\n{text}");
            if let Err(cause) = write_own(&self.report_path(), whole.as_bytes()) {
                let _ = writeln!(text, "  the stacks could not be added to the report: {cause}");
            }
            self.print_behind(format!("stack, innermost function first\n{}", text.trim_end()));
        }
        self.begin_ending(outcome, now);
    }

    /// Prints after the current output.
    fn print_behind(&mut self, text: String) {
        let before = self.printing.take();
        self.printing = Some(std::thread::spawn(move || {
            // A thread that cannot print has no other way to report it.
            let _ = before.map(std::thread::JoinHandle::join);
            print_message(&text);
        }));
    }
}

fn note(places: &mut Vec<RankPlace>, rank: u32, host: String, stack: String) {
    match places.iter_mut().find(|place| place.rank == rank) {
        Some(place) => place.stack = Some(stack),
        None => places.push(RankPlace { rank, host, device: None, stack: Some(stack) }),
    }
}

// The stages from the first suspicion to the end of a launch: detecting, querying, reporting, ending.

/// How long to wait for answers.
const QUERY_TIMEOUT: Duration = Duration::from_millis(1_200);

/// NCCL's service queries all its processes, and skips silent ones after some seconds.
const RAS_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Ranks end themselves first, so that launchers see the exit code; then the stopped ones are killed, then all.
const KILL_STOPPED_AFTER: Duration = Duration::from_millis(200);

const KILL_ALL_AFTER: Duration = Duration::from_millis(1_000);

/// How long rank 0 may take to release the record.
const GIVE_UP_TIMEOUT: Duration = Duration::from_millis(700);

/// How long a rank that has left may take to exit, and how much longer for each rank of the host, as all exit at once.
const EXIT_TIMEOUT_OF_RANKS: Duration = Duration::from_secs(10);

const EXIT_TIMEOUT_PER_RANK: Duration = Duration::from_millis(100);

/// How long the record's writer may take to exit, and how long it may hold the lock after it released the record.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

impl Serving {
    /// Advances the stage on the first collector, or on another one if the first is gone.
    pub(super) fn advance(&mut self, now: Instant) {
        if let Stage::Querying { ras: Some(ras_query), .. } = &mut self.stage
            && ras_query.answer.is_none()
        {
            ras_query.answer = ras_query.waiting.try_recv().ok();
        }
        self.kill_lingering(now);
        self.give_up_first(now);
        match &self.stage {
            Stage::Watching if self.upstream.is_some() => {}
            Stage::Watching => match self.trigger(now) {
                Some(Trigger::Death { requested: false }) if self.lone_hang().is_none() => {
                    self.stage = Stage::Settling(now);
                }
                Some(Trigger::Death { requested: false }) => {}
                // A rank with a stop request may end; the record shows what is missing.
                Some(Trigger::Death { requested: true }) | None => {}
                Some(trigger) => self.query(trigger, now),
            },
            Stage::Settling(since) if now - *since < DEATH_SETTLING_TIME && !self.peers.is_empty() => {}
            Stage::Settling(_) => self.query(Trigger::Death { requested: false }, now),
            Stage::Querying { since, ras, .. } => {
                let timeout = if ras.is_some() { RAS_TIMEOUT } else { QUERY_TIMEOUT };
                let ras_is_done = ras.as_ref().is_none_or(|ras| ras.answer.is_some());
                if (ras_is_done && self.all_have_answered()) || now - *since > timeout {
                    self.report(now);
                }
            }
            Stage::Stacks { since, wanted, .. } => {
                if wanted.iter().all(|rank| self.stacks.found.contains_key(rank)) || now - *since > STACKS_TIMEOUT {
                    self.report_stacks(now);
                }
            }
            Stage::TakingRecord { since, .. } => {
                let waited = now - *since;
                self.take_record(waited);
            }
            Stage::Ending { since, .. } => {
                let waited = now - *since;
                for process in self.local_processes() {
                    let stopped = waited > KILL_STOPPED_AFTER && process.is_stopped() == Some(true);
                    if stopped || waited > KILL_ALL_AFTER {
                        process.kill();
                    }
                }
            }
        }
    }

    /// Decides alone for the ranks of this host if the first collector is unreachable for long, or for a while when it is time to act.
    fn give_up_first(&mut self, now: Instant) {
        let silent = now.saturating_duration_since(self.times.first_heard);
        let blocks = || silent > self.host_deadline() && self.is_blocked(now);
        let acts = || blocks() || silent > UNREACHABLE_AFTER && self.table.trigger(now).is_some();
        if self.upstream.is_some() && acts() {
            self.upstream = None;
            self.is_cut_off = true;
        }
    }

    fn host_deadline(&self) -> Duration {
        Duration::from_millis(self.config.host_deadline_milliseconds)
    }

    /// Whether no rank that is heard has made progress for as long as a host may be silent.
    fn is_blocked(&self, now: Instant) -> bool {
        self.table.moved(now) > self.host_deadline()
    }

    /// Reason to act: a rank, or a silent host.
    fn trigger(&self, now: Instant) -> Option<Trigger> {
        let is_silent = || self.silent_hosts(now, self.host_deadline()).next().is_some();
        let lost = self.is_cut_off || is_silent() && self.is_blocked(now);
        self.table.trigger(now).or_else(|| lost.then(|| Trigger::Deadline(self.host_deadline())))
    }

    /// The other hosts that were silent for this long, except those of which only the collector is known to be silent.
    fn silent_hosts(&self, now: Instant, silence: Duration) -> impl Iterator<Item = &String> {
        let peers = self.peers.iter().filter(move |peer| now.saturating_duration_since(peer.heard) > silence);
        peers.filter_map(|peer| match peer.peer_kind {
            Some(PeerKind::Host(host)) if self.is_watched(host) => self.config.hosts.get(host as usize),
            _ => None,
        })
    }

    fn is_watched(&self, host: u32) -> bool {
        let is_there = |rank: u32| self.config.node_of_rank.get(rank as usize) == Some(&host);
        let entries = &self.table.entries;
        !entries.iter().any(|entry| entry.status == RankStatus::Unwatched && is_there(entry.rank))
    }

    /// The hosts that are unreachable from this one.
    fn unreachable_hosts(&self, now: Instant) -> Vec<String> {
        if self.is_cut_off {
            return vec![self.config.first_host.clone()];
        }
        let mut hosts: Vec<String> = self.silent_hosts(now, UNREACHABLE_AFTER).cloned().collect();
        hosts.sort_unstable();
        hosts
    }

    /// Kills ranks that announced their end but do not end: nothing else waits for them.
    fn kill_lingering(&self, now: Instant) {
        let has_left = |entry: &&Entry| matches!(entry.status, RankStatus::Left(_));
        let timeout = EXIT_TIMEOUT_OF_RANKS + EXIT_TIMEOUT_PER_RANK * self.local().count() as u32;
        for entry in self.local().filter(has_left) {
            if entry.silent(now) > timeout {
                entry.process.kill();
            }
        }
    }

    /// Reports without querying, if the launcher has ended all ranks already.
    pub(super) fn report_without_query(&mut self) {
        let now = Instant::now();
        let trigger = self.table.trigger(now);
        if let (Stage::Watching | Stage::Settling(_), true) = (&self.stage, self.upstream.is_none())
            && let Some(trigger @ Trigger::Death { requested: false }) = trigger
            && self.lone_hang().is_none()
        {
            self.stage = Stage::Querying { since: now, trigger, ras: None };
        }
        self.report(now);
        self.report_stacks(now);
        if let Stage::TakingRecord { is_given_up, .. } = &mut self.stage {
            *is_given_up = true;
            self.take_record(GIVE_UP_TIMEOUT);
        }
    }

    fn query(&mut self, trigger: Trigger, now: Instant) {
        self.table.forget_answers();
        let ras = (self.config.backend == "nccl").then(|| {
            let (sender, waiting) = channel();
            std::thread::spawn(move || {
                let address = std::env::var("NCCL_RAS_ADDR").ok();
                let answer = super::query(address.as_deref(), RAS_TIMEOUT - Duration::from_millis(300));
                // After a timeout the receiver is gone.
                let _ = sender.send(answer.unwrap_or_else(|problem| problem));
            });
            RasQuery { waiting, answer: None }
        });
        self.send_to_all(&Frame::Query);
        self.stage = Stage::Querying { since: now, trigger, ras };
    }

    /// Whether all ranks that can answer have answered.
    fn all_have_answered(&self) -> bool {
        self.table.entries.iter().filter(|entry| entry.status == RankStatus::Live).all(|entry| {
            entry.detail.is_some()
                || entry.state.stopped
                || (entry.process.is_here() && entry.process.is_stopped() != Some(false))
        })
    }

    fn report(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Querying { .. }) {
            return;
        }
        let Stage::Querying { trigger, ras, .. } = std::mem::replace(&mut self.stage, Stage::Watching) else { return };
        if let (Trigger::Deadline(deadline), None) = (trigger, self.trigger(now)) {
            // A host without free processors reported late, for which no rank is to be suspected.
            let seconds = deadline.as_secs_f64();
            print_message(&format!("some ranks missed heartbeats for {seconds:.2} s but recovered"));
            return;
        }
        let late = || "NCCL's RAS service did not answer in time".to_owned();
        let ras = ras.map(|ras_query| ras_query.answer.unwrap_or_else(late));
        self.table.entries_mut().filter(|entry| is_stopped_here(entry)).for_each(|entry| entry.state.stopped = true);
        let seen: Vec<RankView> = self
            .table
            .entries
            .iter()
            .map(|entry| {
                let host = self.host_of(entry.rank);
                let is_responsive = !entry.state.stopped && entry.silent(now) < NO_ANSWER_AFTER;
                RankView {
                    entry,
                    host,
                    answers: entry.status == RankStatus::Live && (entry.detail.is_some() || is_responsive),
                }
            })
            .collect();
        let activity = |number: u64| serde_json::from_str::<HungActivity>(self.activities.get(&number)?).ok();
        let path = self.report_path();
        let shown_path = Some(path.display().to_string());
        let mut line = hang_line(trigger, &seen, activity, ras, shown_path);
        line.unreachable_hosts = self.unreachable_hosts(now);
        line.only_of_host = (!self.is_first()).then(|| self.config.hosts.first().cloned()).flatten();
        line.launcher_may_have_ended_some = self.launcher_may_have_ended_some;
        let mut text = short_text(&line, &seen);
        let report = whole_text(&line, &seen);
        match write_own(&path, report.as_bytes()) {
            Ok(()) => text.push_str(&format!("  every rank: {}", path.shown())),
            Err(cause) => {
                text.push_str(&format!("  the full report could not be written to {}: {cause}", path.shown()));
                line.report = None;
            }
        }
        // In a separate thread: the reader of the output may hang as well.
        self.printing = Some(std::thread::spawn(move || print_message(text.trim_end())));
        let code = if matches!(trigger, Trigger::Deadline(_)) { HANG_EXIT_CODE } else { ENVIRONMENT_EXIT_CODE };
        let outcome = Outcome { line: Some(Box::new(line)), code };
        let wanted = self.ask_for_stacks(&outcome);
        let nothing_to_wait_for = wanted.is_empty();
        self.stage = Stage::Stacks { since: now, outcome, wanted, report };
        if nothing_to_wait_for {
            self.report_stacks(now);
        }
    }

    /// Begins to end a run whose report is complete: with its record, on the collector that has one.
    pub(super) fn begin_ending(&mut self, outcome: Outcome, now: Instant) {
        if !self.is_first() {
            // Before any rank is ended: whoever sees the others end looks for the reason.
            let path = reporting_thread::data_path(&self.config.record, self.config.node);
            let write = |line: &HangLine| write_own(&path, &serde_json::to_vec(line)?);
            if let Some(Err(cause)) = outcome.line.as_deref().map(write) {
                print_message(&format!("this host's findings could not be written: {cause}"));
            }
            self.end_all(outcome);
            return;
        }
        self.send_to_rank_0(&Frame::GiveUpRecord(outcome.code));
        self.stage = Stage::TakingRecord { since: now, outcome, is_given_up: false };
    }

    /// Ends the record as soon as rank 0 has stopped writing to it, then all ranks.
    fn take_record(&mut self, waited: Duration) {
        let is_given_up = matches!(self.stage, Stage::TakingRecord { is_given_up: true, .. });
        let writer = match self.table.get_mut(0) {
            Some(entry) if entry.status == RankStatus::Live && !is_given_up => match is_stopped_here(entry) {
                true => Writer::Stopped,
                false if waited < GIVE_UP_TIMEOUT => return,
                // It holds the lock; all that remains is to end it first.
                false => Writer::Ending(Duration::ZERO),
            },
            _ => Writer::Ending(LOCK_TIMEOUT),
        };
        let Stage::TakingRecord { outcome, .. } = std::mem::replace(&mut self.stage, Stage::Watching) else { return };
        // If this fails, it is repeated and reported once rank 0 is gone.
        let _ = self.end_record(&outcome, writer);
        self.end_all(outcome);
    }

    pub(super) fn end_all(&mut self, outcome: Outcome) {
        if matches!(self.stage, Stage::Ending { .. }) {
            return;
        }
        self.leftovers.note(&self.local_processes());
        self.send_to_all(&Frame::Abort(outcome.code));
        self.admission.accepts_ranks = false;
        self.stage = Stage::Ending { since: Instant::now(), outcome };
    }

    fn end_record(&self, outcome: &Outcome, writer: Writer) -> Result<bool> {
        let reason = outcome.line.as_ref().map_or_else(String::new, |line| line.sentence());
        self.append_end(self.end(EndStatus::Failed, outcome.code, reason), outcome.line.clone(), writer)
    }

    fn end(&self, status: EndStatus, exit_code: i32, reason: String) -> End {
        End::new(status, exit_code, Some(reason), self.times.begun.elapsed())
    }

    fn append_end(&self, end: End, hang: Option<Box<HangLine>>, writer: Writer) -> Result<bool> {
        if !self.is_first() || !self.has_begun_its_record() {
            return Ok(false);
        }
        append_missing_end(&self.config.record, &Vec::from_iter(hang.map(Line::Hang)), &end, writer)
    }

    /// Path next to the record; on a host that decides alone, with the host's number.
    pub(super) fn report_path(&self) -> PathBuf {
        match self.is_first() {
            true => self.config.record.with_extension("hang.txt"),
            false => reporting_thread::text_path(&self.config.record, self.config.node),
        }
    }

    /// Writes the remaining lines of the record when all ranks are gone.
    pub(super) fn finish(&mut self) {
        if let Some(printing) = self.printing.take() {
            let deadline = Instant::now() + Duration::from_secs(1);
            while !printing.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let exited = Writer::Ending(EXIT_TIMEOUT);
        let written = match (&self.stage, self.ended_by_ranks()) {
            (Stage::Ending { outcome, .. } | Stage::TakingRecord { outcome, .. }, _) => {
                self.end_record(outcome, exited)
            }
            (_, Some((end, hang))) => self.append_end(end, hang, exited),
            (_, None) => return,
        };
        if let Err(cause) = written {
            print_message(&cause.to_string());
        }
        self.leftovers.remove(&self.local_processes());
    }

    /// Why another host has ended its ranks while this collector was silent, so that the launcher ended the ranks of this host.
    fn lone_hang(&self) -> Option<HangLine> {
        if !self.is_first() || self.config.nodes == 1 {
            return None;
        }
        self.before.lone_reports.new_since(&self.config.record).filter(|line| line.reason == HangReason::Deadline)
    }

    /// The end line for ranks that ended by themselves without one, and the hang line before it.
    fn ended_by_ranks(&self) -> Option<(End, Option<Box<HangLine>>)> {
        if let Some((rank, exit_code, why)) = &self.error {
            return Some((self.end(EndStatus::Failed, *exit_code, format!("rank {rank}: {why}")), None));
        }
        self.table.first_death?;
        if let Some(line) = self.lone_hang() {
            let end = self.end(EndStatus::Failed, HANG_EXIT_CODE, line.sentence());
            return Some((end, Some(Box::new(line))));
        }
        let reason = "the ranks were signalled to stop and did not end; results so far are kept".to_owned();
        let signal = host::noted(&self.config.record).unwrap_or(SIGTERM);
        Some((self.end(EndStatus::Interrupted, Error::from(Kind::Interrupted(signal)).exit_code(), reason), None))
    }
}

fn is_stopped_here(entry: &Entry) -> bool {
    entry.process.is_here() && entry.process.is_stopped() == Some(true)
}

// The functions of a rank's measuring thread, from eu-stack or gdb, whichever is installed. Bounded in time and bytes, and optional: a
// system without them, or one that forbids tracing, gives no stacks.

/// Maximum number of functions, innermost first.
const MAX_FUNCTIONS: usize = 24;

/// Maximum total length, so that they fit into one message.
pub(super) const MAX_BYTES: usize = 1000;

/// Maximum number of bytes read from the tool.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Precedes the stack of each process in the output for several.
const MARK: &str = "commgauge: process ";

/// Marks functions outside the program's own.
const RUNTIME: &str = "__rust_begin_short_backtrace";

/// The functions of a process, or why they are missing.
type StackFound = std::result::Result<String, String>;

/// Output of a tool until it ended, or until it was killed at the deadline.
struct Output {
    tool: &'static str,
    text: String,
    is_whole: bool,
}

/// The functions of each process's first thread, innermost first: `poll < wait_for_message < MPI_Allreduce < main`, or why they are
/// missing. Returns soon after the deadline at the latest.
pub(super) fn functions_of(pids: &[u32], deadline: Instant) -> Vec<StackFound> {
    let found = with_eu_stack(pids, deadline).or_else(|| with_gdb(pids, deadline));
    found.unwrap_or_else(|| vec![Err("neither eu-stack nor gdb is installed".to_owned()); pids.len()])
}

/// The lighter tool; `None` if it is not installed.
fn with_eu_stack(pids: &[u32], deadline: Instant) -> Option<Vec<StackFound>> {
    let of = |pid: &u32| Some(read(&run("eu-stack", &["-1", "-p", &pid.to_string()].map(String::from), deadline)?));
    pids.iter().map(of).collect()
}

/// One run for all processes, since reading the symbols takes long.
fn with_gdb(pids: &[u32], deadline: Instant) -> Option<Vec<StackFound>> {
    // Nothing is fetched over the network, and no file of another user is executed.
    let mut words = ["--nx", "--batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]
        .map(String::from)
        .to_vec();
    let backtrace = format!("thread apply 1 -q backtrace {MAX_FUNCTIONS}");
    for pid in pids {
        let commands =
            [format!("attach {pid}"), format!("echo \\n{MARK}{pid}\\n"), backtrace.clone(), "detach".to_owned()];
        words.extend(commands.into_iter().flat_map(|command| ["-ex".to_owned(), command]));
    }
    let Output { tool, text, is_whole } = run("gdb", &words, deadline)?;
    let of = |pid: &u32| {
        let begin = format!("\n{MARK}{pid}\n");
        let part = text.split_once(&begin).map_or("", |(_, rest)| rest.split(MARK).next().unwrap_or(rest));
        read(&Output { tool, text: part.to_owned(), is_whole })
    };
    Some(pids.iter().map(of).collect())
}

fn read(output: &Output) -> StackFound {
    match (functions(&output.text), output.is_whole) {
        (functions, _) if !functions.is_empty() => Ok(functions),
        (_, true) => Err(format!("{} could not read the process", output.tool)),
        (_, false) => Err(format!("{} did not respond in time", output.tool)),
    }
}

/// Runs a tool until it ends or the deadline has passed; `None` if it cannot be started.
fn run(tool: &'static str, words: &[String], deadline: Instant) -> Option<Output> {
    let mut command = Command::new(tool);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().ok()?;
    let mut stream = child.stdout.take()?;
    let (sender, printed) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // The receiver is gone after the deadline.
        while let Ok(count @ 1..) = stream.read(&mut bytes)
            && sender.send(bytes[..count].to_vec()).is_ok()
        {}
    });
    let (mut bytes, mut is_whole) = (Vec::new(), false);
    while bytes.len() < MAX_OUTPUT_BYTES && !is_whole {
        match printed.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(more) => bytes.extend(more),
            Err(RecvTimeoutError::Disconnected) => is_whole = true,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    // It may have ended already. When it ends, the system detaches it from the traced process.
    let _ = child.kill();
    let _ = child.wait();
    Some(Output { tool, text: String::from_utf8_lossy(&bytes).into_owned(), is_whole })
}

/// The functions in the output of either tool: lines such as `#1  0x00007f in poll () from /lib/libc.so.6` and
/// `#1  0x00007f3a PMPI_Allreduce`.
fn functions(output: &str) -> String {
    // A tool that attaches shows the innermost function before the list; the list begins with its last `#0`.
    let list = output.rfind("#0 ").map_or("", |at| &output[at..]);
    let mut shown = String::new();
    for name in list.lines().filter_map(function).take(MAX_FUNCTIONS) {
        if shown.len() + name.len() + 8 > MAX_BYTES {
            shown.push_str(" < ...");
            break;
        }
        if !shown.is_empty() {
            shown.push_str(" < ");
        }
        shown.push_str(&name);
        if name == "main" || name.starts_with(RUNTIME) {
            break;
        }
    }
    shown
}

fn function(line: &str) -> Option<String> {
    let rest = line.strip_prefix('#')?.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let rest = match rest.strip_prefix("0x") {
        Some(address) => address.split_once(' ').map_or("??", |(_, rest)| rest.trim_start()),
        None => rest,
    };
    let rest = rest.strip_prefix("in ").unwrap_or(rest);
    let name = rest.split(" (").next().unwrap_or(rest).trim();
    let library = rest.rsplit_once(" from ").and_then(|(_, path)| path.trim().rsplit('/').next());
    Some(match (name, library) {
        ("" | "??", Some(library)) => format!("?? of {library}"),
        ("", None) => "??".to_owned(),
        (name, _) => without_hash(name).to_owned(),
    })
}

/// Names of Rust's older mangling end with `::h` and a hexadecimal hash.
fn without_hash(name: &str) -> &str {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash)).map_or(name, |(rest, _)| rest)
}

#[cfg(test)]
mod tests {

    use super::*;
    use std::time::Duration;

    #[test]
    fn the_functions_of_either_tool_are_read_innermost_first() {
        let gdb = "[Thread debugging using libthread_db enabled]\n0x00007f in ?? () from /lib/x.so\n[Switching to thread 1]\n\
            #0  0x00007f12 in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n\
            #1  commgauge_base::progress::fault::sleep_forever::h66d77e199b6599a2 () at src/base/progress/fault.rs:90\n\
            #2  0x000055 in <commgauge_run::measure::A as B>::call (self=0x1)\n\
            #3  0x00007f in ?? () from /usr/lib/libmpi.so.40\n#4  0x0000 in main ()\n";
        let eu_stack = "PID 7 - process\nTID 7:\n#0  0x00007f clock_nanosleep\n#1  0x01\n#2  0x000055 main\n#3  0x02\n";
        for (output, expected) in [
            (
                gdb,
                "clock_nanosleep < commgauge_base::progress::fault::sleep_forever < <commgauge_run::measure::A as B>::call < \
                 ?? of libmpi.so.40 < main",
            ),
            (eu_stack, "clock_nanosleep < ?? < main"),
            ("ptrace: Operation not permitted.\n", ""),
        ] {
            assert_eq!(functions(output), expected);
        }
        let long = format!("#0  0x1 in g ()\n{}", format!("#1  0x1 in {} ()\n", "f".repeat(400)).repeat(9));
        assert!(functions(&long).len() <= MAX_BYTES && functions(&long).ends_with("f < ..."));
    }

    #[test]
    fn a_tool_that_does_not_end_is_ended_at_the_deadline_and_what_it_printed_is_used() {
        let begun = Instant::now();
        let script = "echo '#0  0x1 in poll ()'; exec sleep 60";
        let output = run("sh", &["-c".to_owned(), script.to_owned()], begun + Duration::from_secs(5)).expect("a shell");
        assert!(!output.is_whole && begun.elapsed() < Duration::from_secs(50));
        assert_eq!(read(&output), Ok("poll".to_owned()));
        let nothing = |is_whole| read(&Output { tool: "gdb", text: String::new(), is_whole });
        assert_eq!(nothing(false), Err("gdb did not respond in time".to_owned()));
        assert_eq!(nothing(true), Err("gdb could not read the process".to_owned()));
        assert!(run("no-such-tool", &[], begun).is_none());
    }
}
