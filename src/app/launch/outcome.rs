//! How a launch ended: its exit code and messages, from the record's last line and the launcher's end, and the end line
//! of a record whose ranks and watchdog left none.
//!
//! Launchers change the exit code of a rank, so the record takes precedence, and without its end line nothing is a
//! success.

use super::child::Ending;
use super::family::{Cause, Death, Reported, advice, deaths};
use commgauge_base::error::{ENVIRONMENT_EXIT_CODE, HANG_EXIT_CODE, Result};
use commgauge_base::host::signal_name;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing;
use commgauge_model::record::launch_lines::{HangLine, HangReason, UnwatchedLine};
use commgauge_model::record::line::{End, EndStatus, RankFacts};
use commgauge_model::record::{Line, Record, Writer, append_missing_end};
use commgauge_run::watchdog::{LOST_COLLECTOR, OWN_DEADLINE};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the record of ranks that are gone may still be locked.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// Deaths that are described one by one.
const MAX_DEATHS: usize = 4;

/// Ranks in a list.
const MAX_LISTED: usize = 8;

/// Exit code and messages of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Exit code of the program.
    pub exit_code: i32,
    /// Sentences for standard error.
    pub sentences: Vec<String>,
}

/// Combines the end of the launcher and the record.
pub fn conclude(ending: &Ending, record_state: &RecordState) -> Verdict {
    let mut sentences = Vec::new();
    let exit_code = if let Some(signal) = ending.interrupted_by {
        sentences.push(format!("stopped by {}; {}", signal_name(signal), measured(record_state)));
        128 + signal
    } else {
        let exit_code = judge(ending, record_state, &mut sentences);
        sentences.extend(ending.overdue.as_ref().map(|why| format!("{why}; it was terminated")));
        exit_code
    };
    if ending.leftovers_killed > 0 {
        sentences.push(format!("{} processes outlived the launcher and were killed", ending.leftovers_killed));
    }
    Verdict { exit_code, sentences }
}

/// Ends a record that was begun and whose ranks and watchdog left no end line. A rank that still writes, on a host out
/// of reach, keeps its record.
///
/// # Errors
/// If the record is still locked, or cannot be written.
pub fn end_record(
    path: &Path,
    ending: &Ending,
    record_state: &RecordState,
    exit_code: i32,
    elapsed: Duration,
) -> Result<bool> {
    if record_state.header.is_none() || record_state.end.is_some() {
        return Ok(false);
    }
    let hang = lone_hang(record_state).map(|line| Line::Hang(Box::new(line.clone())));
    let lines: Vec<Line> = missing_line(&ending.output, record_state).into_iter().chain(hang).collect();
    let end = missing_end(ending, record_state, exit_code, elapsed);
    append_missing_end(path, &lines, &end, Writer::Ending(LOCK_TIMEOUT))
}

fn missing_end(ending: &Ending, record_state: &RecordState, exit_code: i32, elapsed: Duration) -> End {
    let status = if ending.interrupted_by.is_some() { EndStatus::Interrupted } else { EndStatus::Failed };
    let lone = || lone_hang(record_state).filter(|_| exit_code == HANG_EXIT_CODE).map(HangLine::sentence);
    let reason = own_deadline(&ending.output).map(str::to_owned).or_else(lone);
    let error = Some(reason.unwrap_or_else(|| format!("the ranks left no end line; {}", launcher_end(ending))));
    End::new(status, exit_code, error, elapsed)
}

fn judge(ending: &Ending, record_state: &RecordState, sentences: &mut Vec<String>) -> i32 {
    // A launcher that was stopped and then terminated may find its ranks gone and report success.
    let launcher_fine = ending.code == Some(0) && ending.overdue.is_none();
    let died_by_signal = deaths(&ending.output).iter().any(signalled);
    // No rank is responsible for a record that was removed while it was written. Nor is it resumed automatically if its time is over: the
    // requested name leads to nothing.
    if let (Some(End { status, .. }), Some(path), Some(ENVIRONMENT_EXIT_CODE), false) =
        (&record_state.end, &record_state.moved_to, ending.code, died_by_signal)
        && let EndStatus::Complete | EndStatus::OutOfTime = status
    {
        let run = if *status == EndStatus::Complete { "the run is complete" } else { "the run was out of time" };
        let (path, measured) = (path.shown(), measured(record_state));
        sentences.push(format!("{run}, but its record is in {path}; {measured}"));
        return ENVIRONMENT_EXIT_CODE;
    }
    if let Some(line) = lone_hang(record_state) {
        sentences.push(format!("{}; {}", line.sentence(), measured(record_state)));
        return HANG_EXIT_CODE;
    }
    match &record_state.end {
        Some(end) if launcher_was_killed(ending, end) => {
            sentences.push(format!("{}, and its ranks with it; {}", launcher_end(ending), measured(record_state)));
            // The rank's own report of the consequence: true, but not the cause.
            sentences.extend(end.error.as_ref().map(|error| format!("after that the record says: {error}")));
            ENVIRONMENT_EXIT_CODE
        }
        // A launcher that lost a rank stops the others. They record this as an interruption, but the user interrupted
        // nothing: the dead rank is the cause.
        Some(end) if end.exit_code != 0 && !(end.status == EndStatus::Interrupted && died_by_signal) => {
            sentences.extend(end.error.clone());
            // The deaths of ranks that were ended because one hung are a consequence.
            let was_hung = record_state.hang.as_ref().is_some_and(|hang| hang.reason == HangReason::Deadline);
            if end.status == EndStatus::Failed && died_by_signal && !was_hung {
                sentences.push(measured(record_state));
                describe_deaths(ending, record_state, sentences);
            }
            // The system keeps only the low byte of larger codes, which may be 0.
            if (1..=255).contains(&end.exit_code) { end.exit_code } else { ENVIRONMENT_EXIT_CODE }
        }
        Some(end) if end.status == EndStatus::Complete && launcher_fine => 0,
        Some(End { status: EndStatus::Complete, .. }) if ending.overdue.is_some() => {
            sentences.push(format!("the run is complete; {}", measured(record_state)));
            HANG_EXIT_CODE
        }
        None if ending.overdue.is_some() => {
            sentences.push(measured(record_state));
            HANG_EXIT_CODE
        }
        Some(end) => {
            let status = format!("{:?}", end.status).to_lowercase();
            sentences.push(format!(
                "the record ends as {status}, but {}; {}",
                launcher_end(ending),
                measured(record_state)
            ));
            describe_deaths(ending, record_state, sentences);
            ENVIRONMENT_EXIT_CODE
        }
        None => {
            let record = match record_state.resumed && record_state.header.is_none() {
                true => "run not resumed; record unchanged".to_owned(),
                false => format!("the record has no end line; {}", measured(record_state)),
            };
            sentences.push(format!("{}, and {record}", launcher_end(ending)));
            describe_deaths(ending, record_state, sentences);
            match ending.code {
                // The exit codes of our own programs are passed on if they ended by MPI_Abort.
                Some(code @ (2 | 4 | 5 | 7)) if !died_by_signal => code,
                _ if own_deadline(&ending.output).is_some() => HANG_EXIT_CODE,
                _ => ENVIRONMENT_EXIT_CODE,
            }
        }
    }
}

/// Why the watchdog of one host has ended its ranks alone, if nothing else explains why the run ended: that the launcher then ended the
/// other ranks is a consequence.
fn lone_hang(record_state: &RecordState) -> Option<&HangLine> {
    let is_consequence = record_state.end.as_ref().is_none_or(|end| end.status == EndStatus::Interrupted);
    let is_cause =
        |line: &&HangLine| line.reason == HangReason::Deadline && is_consequence && record_state.hang.is_none();
    record_state.lone_report.as_ref().filter(is_cause)
}

/// Whether the launcher itself was killed, so that its ranks died through no fault of their own. A launcher that has
/// reported a dead rank was alive to see it; errors found by ranks (wrong data, a hang) came before.
fn launcher_was_killed(ending: &Ending, end: &End) -> bool {
    let has_failed = end.status == EndStatus::Failed && end.exit_code == ENVIRONMENT_EXIT_CODE;
    let of_its_ranks = has_failed || end.status == EndStatus::Interrupted;
    let by_others = ending.signal.is_some() && ending.interrupted_by.is_none() && ending.overdue.is_none();
    by_others && of_its_ranks && deaths(&ending.output).is_empty()
}

fn signalled(death: &Death) -> bool {
    matches!(death.cause, Cause::Signal(_))
}

fn measured(record_state: &RecordState) -> String {
    match (record_state.cases, record_state.planned) {
        (0, _) => "nothing was measured yet".to_owned(),
        (cases, Some(planned)) if cases <= planned => format!("{cases} of {planned} measured cases are kept"),
        // The rounds that added the others were planned in lines of the record that are lost.
        (cases, _) => format!("{cases} measured cases are kept"),
    }
}

fn launcher_end(ending: &Ending) -> String {
    match (ending.code, ending.signal) {
        (Some(code), _) => format!("the launcher ended with status {code}"),
        (None, Some(signal)) => format!("the launcher was ended by {}", signal_name(signal)),
        (None, None) => "the launcher ended".to_owned(),
    }
}

fn describe_deaths(ending: &Ending, record_state: &RecordState, sentences: &mut Vec<String>) {
    let ranks = record_state.header.as_deref().unwrap_or_default();
    let hang = record_state.hang.as_ref().filter(|hang| hang.reason == HangReason::Death);
    let suspects: Vec<u32> = hang.map_or_else(Vec::new, |hang| writing::parse(&hang.suspects).collect());
    let is_cause = |death: &Death| match death.reported {
        Reported::First => true,
        Reported::All => suspects.is_empty() || death.rank.is_some_and(|rank| suspects.contains(&rank)),
    };
    let mut causes: Vec<Death> = deaths(&ending.output).into_iter().filter(is_cause).collect();
    let known: Vec<&RankFacts> = ranks.iter().filter(|facts| suspects.contains(&facts.rank)).collect();
    if suspects.len() > 1 && !known.is_empty() {
        let together = died_together(&known, &causes, &record_state.out_of_memory_kills);
        let perhaps = match hang.is_some_and(|hang| hang.launcher_may_have_ended_some) {
            true => ", some of them perhaps ended by the launcher after one had died",
            false => "",
        };
        sentences.push(format!("{} ranks died at the same time{perhaps}: {together}", known.len()));
        // Of MPICH no rank is known, which then is one of the list.
        causes.retain(|death| death.rank.is_some_and(|rank| !suspects.contains(&rank)));
    }
    for mut death in causes.iter().take(MAX_DEATHS).cloned() {
        // Without a rank it is MPICH, whose process may have been killed after the first death. For the system, a
        // crashing rank is gone only after its teardown; the watchdog noticed it before.
        if death.rank.is_none() {
            match (&suspects[..], &record_state.first_exit[..]) {
                ([rank], _) => (death.rank, death.pid) = (Some(*rank), None),
                (_, [pid]) => death.pid = Some(*pid),
                (_, []) => {}
                (_, several) => {
                    let exited: Vec<&RankFacts> = ranks.iter().filter(|facts| several.contains(&facts.pid)).collect();
                    sentences.push(format!(
                        "one of these failed and took the others down: {}",
                        listed(exited.into_iter().map(|facts| named(facts, "")))
                    ));
                    continue;
                }
            }
        }
        sentences.push(describe(&death, ranks, &record_state.out_of_memory_kills));
    }
    if causes.len() > MAX_DEATHS {
        sentences.push(format!("and {} more", causes.len() - MAX_DEATHS));
    }
    sentences.extend(advice(&ending.output).map(str::to_owned));
}

/// One list of ranks that died at one time, with the causes that the launcher names.
fn died_together(victims: &[&RankFacts], causes: &[Death], kills: &OutOfMemoryKills) -> String {
    let cause_of = |facts: &RankFacts| causes.iter().find(|death| death.rank == Some(facts.rank)).map(|of| of.cause);
    let with_cause = |facts: &&RankFacts| match cause_of(facts) {
        Some(Cause::Signal(signal)) => named(facts, &format!(", killed by {}", signal_name(signal))),
        Some(Cause::Exit(code)) => named(facts, &format!(", exit code {code}")),
        None => named(facts, ""),
    };
    let list = listed(victims.iter().map(with_cause));
    let killed = victims.iter().find(|facts| cause_of(facts) == Some(Cause::Signal(9)));
    let why = killed.map_or_else(String::new, |facts| out_of_memory(Some(&facts.host), kills));
    format!("{list}{why}")
}

/// `rank 1 (process 4711 on node-a), rank 3 (process 4713 on node-a)`; of many the first few.
fn listed(all: impl Iterator<Item = String>) -> String {
    let mut list: Vec<String> = all.collect();
    let more = list.len().saturating_sub(MAX_LISTED);
    list.truncate(MAX_LISTED);
    list.extend((more > 0).then(|| format!("and {more} more")));
    list.join(", ")
}

/// `rank 1 (process 4711 on node-a, killed by SIGKILL)`, with its cause if one is known.
fn named(facts: &RankFacts, cause: &str) -> String {
    format!("rank {} (process {} on {}{cause})", facts.rank, facts.pid, facts.host)
}

/// `rank 1 (process 4711 on node-a) was killed by signal 9 (SIGKILL)`, completed from the record's rank map.
fn describe(death: &Death, ranks: &[RankFacts], kills: &OutOfMemoryKills) -> String {
    let facts = ranks.iter().find(|facts| match (death.rank, death.pid) {
        (Some(rank), _) => facts.rank == rank,
        (None, Some(pid)) => facts.pid == pid && death.host.as_ref().is_none_or(|host| same_host(host, &facts.host)),
        (None, None) => false,
    });
    let rank = death.rank.or(facts.map(|facts| facts.rank));
    let pid = death.pid.or(facts.map(|facts| facts.pid));
    let host = facts.map(|facts| facts.host.as_str()).or(death.host.as_deref());
    let rank_text = rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {rank}"));
    let place = match (pid, host) {
        (Some(pid), Some(host)) => format!(" (process {pid} on {host})"),
        (Some(pid), None) => format!(" (process {pid})"),
        (None, Some(host)) => format!(" (on {host})"),
        (None, None) => String::new(),
    };
    match death.cause {
        Cause::Signal(9) => format!("{rank_text}{place} was killed by SIGKILL{}", out_of_memory(host, kills)),
        Cause::Signal(signal) => format!("{rank_text}{place} was killed by {}", signal_name(signal)),
        Cause::Exit(code) => format!("{rank_text}{place} ended with exit code {code}"),
    }
}

/// What a rank that was killed by SIGKILL on this host may have died of.
fn out_of_memory(host: Option<&str>, kills: &OutOfMemoryKills) -> String {
    let OutOfMemoryKills { host: here, processes } = kills;
    if *processes > 0 && host.is_some_and(|host| same_host(host, here)) {
        return format!(
            "; {here} ran out of memory meanwhile: the kernel killed {processes} of its processes (see dmesg). Use smaller \
             sizes or fewer ranks per host, or raise the limit of the container or job"
        );
    }
    "; if no one sent the signal, the host may have run out of memory (see dmesg)".to_owned()
}

/// Launchers and hosts may differ in whether a name includes its domain.
fn same_host(one: &str, other: &str) -> bool {
    one.split('.').next() == other.split('.').next()
}

// A launch whose watchdog was lost and whose record could not say so, because the rank that writes it was stopped: what the
// output of the other ranks says of it.

/// The line that a record lacks.
fn missing_line(output: &str, record_state: &RecordState) -> Option<Line> {
    if record_state.is_unwatched {
        return None;
    }
    let rank: u32 =
        messages(output).find_map(|line| line.strip_prefix("rank ")?.split_once(LOST_COLLECTOR)?.0.parse().ok())?;
    let host = record_state.header.iter().flatten().find(|facts| facts.rank == rank)?.host.clone();
    Some(Line::Unwatched(UnwatchedLine { host, rank }))
}

/// Why a rank ended the launch by itself, where one did.
fn own_deadline(output: &str) -> Option<&str> {
    messages(output).find(|line| line.contains(OWN_DEADLINE))
}

/// The messages of our programs; launchers may put the rank before them.
fn messages(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| Some(line.split_once("commgauge: ")?.1))
}

// What is known of a record while its run writes it.

/// Processes of a host that the kernel killed because memory ran out.
#[derive(Clone, Debug, Default)]
pub struct OutOfMemoryKills {
    pub host: String,
    /// How many of its processes.
    pub processes: u64,
}

/// State collected from the record while it grew.
#[derive(Debug, Default)]
pub struct RecordState {
    /// The rank map, once the header is there.
    pub header: Option<Vec<RankFacts>>,
    /// Lines of cases and products that a complete record has.
    pub planned: Option<u64>,
    /// The newest round of a run that chooses its own sizes, and how many cases it added.
    pub round: Option<(u32, usize)>,
    /// Lines of cases and products so far.
    pub cases: u64,
    /// The end line, if there is one yet.
    pub end: Option<End>,
    /// Whether the launch resumes a record; its resume line then contains the rank map.
    pub resumed: bool,
    /// What the kernel killed because memory ran out since the launch began.
    pub out_of_memory_kills: OutOfMemoryKills,
    /// Processes of this host's ranks that exited first; several if their order is unknown.
    pub first_exit: Vec<u32>,
    /// What the watchdog found, if it ended the run.
    pub hang: Option<Box<HangLine>>,
    /// Whether the record says that a watchdog was lost.
    pub is_unwatched: bool,
    /// What a host found whose watchdog decided alone.
    pub lone_report: Option<HangLine>,
    /// Where the record is, if somebody removed or renamed it while it was written.
    pub moved_to: Option<PathBuf>,
}

impl RecordState {
    /// The state of a record before a launch resumes it.
    pub fn before(record: &Record) -> RecordState {
        let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
        let planned = (!record.plan.cases.is_empty() || planned > 0).then_some(planned);
        RecordState { planned, cases: record.measured_lines(), resumed: true, ..RecordState::default() }
    }

    /// Whether the run was begun, so that it can be resumed.
    pub fn can_be_resumed(&self) -> bool {
        let ended = self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete);
        self.header.is_some() && self.planned.is_some() && !ended
    }

    /// Takes the next line of the record.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.header = Some(header.ranks),
            Line::Plan(plan) => self.planned = Some(plan.case_lines.saturating_add(plan.product_lines)),
            Line::Case(_) | Line::Product(_) | Line::Copy(_) => self.cases += 1,
            Line::Hang(hang) => self.hang = Some(hang),
            Line::Resume(resume) => self.header = Some(resume.ranks),
            Line::End(end) => self.end = Some(end),
            Line::PlanGrowth(growth) => {
                self.planned = self.planned.map(|planned| planned.saturating_add(growth.case_lines));
                self.round = Some((growth.round, growth.cases.len()));
            }
            Line::Perftest(_) | Line::Clock(_) | Line::Replay(_) | Line::Interference(_) | Line::Calibration(_) => {}
            Line::Devices(_) | Line::DeviceReadings(_) | Line::Counters(_) | Line::LibraryUse(_) => {}
            Line::Unwatched(_) => self.is_unwatched = true,
        }
    }
}

#[cfg(test)]
mod unwatched_tests {

    use super::*;
    use commgauge_model::record::line::RankFacts;

    #[test]
    fn what_the_ranks_say_of_their_watchdog_is_found_in_the_output() {
        let facts: RankFacts = serde_json::from_value(serde_json::json!({
            "rank": 1, "ranks": 2, "host": "vm", "node": 0, "pid": 7, "cores": "0", "numa_nodes": "0", "processor": "p", "kernel": "k"
        }))
        .expect("facts of a rank");
        let state =
            |is_unwatched| RecordState { header: Some(vec![facts.clone()]), is_unwatched, ..RecordState::default() };
        let output = "noise\n[1] commgauge: rank 1: the watchdog of this host is gone; the run continues without it\n\
            commgauge: no progress within 4.00 s: rank 1 ends the launch by its own deadline, as the watchdog of its host is gone\n";
        let line = Line::Unwatched(UnwatchedLine { host: "vm".into(), rank: 1 });
        assert_eq!(missing_line(output, &state(false)), Some(line));
        assert_eq!(missing_line(output, &state(true)), None);
        assert_eq!(missing_line("rank 1 is fine\n", &state(false)), None);
        assert!(own_deadline(output).is_some_and(|why| why.starts_with("no progress within 4.00 s: rank 1")));
        assert_eq!(own_deadline("noise\n"), None);
    }
}

#[cfg(test)]
mod tests {
    // The exit code and the messages that follow from launcher and record.
    use super::*;

    const OPEN_MPI: &str = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n";
    const MPICH: &str = "=   PID 101 RUNNING AT vm\n=   EXIT CODE: 9\nEXIT STRING: Killed (signal 9)\n";

    fn rank(rank: u32) -> RankFacts {
        RankFacts { pid: 100 + rank, ..RankFacts::on_host(rank, "vm.cluster") }
    }

    fn end(status: EndStatus, exit_code: i32) -> Option<End> {
        let error = (exit_code != 0).then(|| "rank 3: data arrived wrong".to_owned());
        Some(End::new(status, exit_code, error, Duration::from_secs(1)))
    }

    fn check(code: Option<i32>, interrupted_by: Option<i32>, output: &str, end: Option<End>) -> (i32, String) {
        check_with(code, interrupted_by, output, end, (&[], &[]))
    }

    fn hang(reason: HangReason, suspects: &[u32]) -> Option<Box<HangLine>> {
        let suspects = suspects.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let line = serde_json::json!({
            "reason": reason, "operation": "a barrier", "activity": {"name": "case 1 of 2"}, "suspects": suspects, "ranks": [],
        });
        Some(serde_json::from_value(line).expect("a line"))
    }

    fn check_with(
        code: Option<i32>,
        interrupted_by: Option<i32>,
        output: &str,
        end: Option<End>,
        (first_exit, died): (&[u32], &[u32]),
    ) -> (i32, String) {
        let signal = code.is_none().then_some(9);
        let ending = Ending { code, signal, interrupted_by, output: output.into(), ..Ending::default() };
        let record_state = RecordState {
            round: None,
            resumed: false,
            header: Some(vec![rank(0), rank(1)]),
            planned: Some(80),
            cases: 12,
            end,
            out_of_memory_kills: OutOfMemoryKills {
                host: "vm".to_owned(),
                processes: u64::from(output.contains("no memory")),
            },
            first_exit: first_exit.to_vec(),
            hang: hang(HangReason::Death, died).filter(|_| !died.is_empty()),
            is_unwatched: false,
            lone_report: None,
            moved_to: output.contains("moved").then(|| "elsewhere.jsonl".into()),
        };
        let verdict = conclude(&ending, &record_state);
        (verdict.exit_code, verdict.sentences.join("\n"))
    }

    #[test]
    fn without_an_end_line_nothing_is_a_success() {
        for (code, expected) in
            [(Some(0), 6), (Some(1), 6), (Some(2), 2), (Some(4), 4), (Some(5), 5), (Some(7), 7), (None, 6)]
        {
            let (exit_code, text) = check(code, None, "", None);
            assert_eq!(exit_code, expected, "{text}");
            assert!(text.contains("no end line; 12 of 80 measured cases are kept"), "{text}");
        }
    }

    #[test]
    fn the_record_takes_precedence_over_the_launcher() {
        let complete = || end(EndStatus::Complete, 0);
        for (code, end, expected, words) in [
            (Some(0), complete(), 0, ""),
            (Some(139), complete(), 6, "the record ends as complete, but the launcher ended with status 139"),
            (Some(1), end(EndStatus::Failed, 4), 4, "data arrived wrong"),
            (Some(0), end(EndStatus::Failed, 256), 6, "data arrived wrong"),
            (Some(0), end(EndStatus::Interrupted, 0), 6, "ends as interrupted"),
            (Some(1), end(EndStatus::Interrupted, 143), 143, "data arrived wrong"),
        ] {
            let (exit_code, text) = check(code, None, "", end);
            assert_eq!(exit_code, expected, "{text}");
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(check(Some(0), None, "", complete()).1, "");
    }

    #[test]
    fn a_record_that_was_taken_away_is_the_reason_and_no_rank_is_blamed() {
        let output = "Process name: [[1,1],1] Exit code: 6 moved";
        let (exit_code, text) = check(Some(6), None, output, end(EndStatus::Complete, 0));
        assert_eq!(
            (exit_code, text.as_str()),
            (6, "the run is complete, but its record is in elsewhere.jsonl; 12 of 80 measured cases are kept")
        );
        let more = RecordState { planned: Some(22), cases: 35, ..RecordState::default() };
        assert_eq!(measured(&more), "35 measured cases are kept");
        // Out of time, it would be 75, with which a job goes back into the queue to resume what is not there.
        let (exit_code, text) = check(Some(6), None, output, end(EndStatus::OutOfTime, 75));
        assert!(
            exit_code == 6 && text.contains("out of time, but its record is in elsewhere.jsonl"),
            "{exit_code}: {text}"
        );
        let (exit_code, text) = check(Some(137), None, &format!("{OPEN_MPI} moved"), end(EndStatus::Complete, 0));
        assert!(exit_code == 6 && text.contains("killed by SIGKILL"), "{text}");
    }

    #[test]
    fn a_dead_rank_is_named_with_its_process_and_host() {
        for output in [OPEN_MPI, MPICH] {
            let (exit_code, text) = check(Some(9), None, output, None);
            assert_eq!(exit_code, 6);
            assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
        }
    }

    #[test]
    fn a_rank_that_died_during_oom_kills_on_its_host_is_reported_with_them() {
        let text = check(Some(9), None, &format!("{OPEN_MPI}no memory"), None).1;
        assert!(
            text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL; vm ran out of memory"),
            "{text}"
        );
        // An OOM kill on another host does not explain this rank's death.
        let text = check(
            Some(9),
            None,
            &format!("{} no memory", OPEN_MPI.replace("rank 1", "rank 7").replace("vm", "b")),
            None,
        )
        .1;
        assert!(text.contains("may have run out of memory"), "{text}");
    }

    #[test]
    fn the_process_that_mpich_names_yields_to_the_one_that_was_seen_to_end_first() {
        for (first_exit, died, expected) in [
            (&[][..], &[][..], "rank 1 (process 101 on vm.cluster) was killed"),
            (&[100], &[], "rank 0 (process 100 on vm.cluster) was killed"),
            (&[100, 101], &[], "one of these failed and took the others down: rank 0 (process 100"),
            // The watchdog is more reliable.
            (&[101], &[0], "rank 0 (process 100 on vm.cluster) was killed"),
        ] {
            let text = check_with(Some(9), None, MPICH, None, (first_exit, died)).1;
            assert!(text.contains(expected), "{text}");
        }
        let text = check_with(Some(137), None, OPEN_MPI, None, (&[100], &[0])).1;
        assert!(text.contains("rank 1 (process 101 on vm.cluster)"), "Open MPI knows: {text}");
    }

    #[test]
    fn ranks_that_were_stopped_because_another_died_are_no_interruption() {
        let (exit_code, text) = check(Some(137), None, OPEN_MPI, end(EndStatus::Interrupted, 143));
        assert_eq!(exit_code, 6);
        assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
    }

    #[test]
    fn a_killed_launcher_is_reported_before_its_ranks() {
        let failed = |code| end(EndStatus::Failed, code);
        for (interrupted_by, output, end, expected, begins) in [
            (
                None,
                "",
                failed(6),
                6,
                "the launcher was ended by SIGKILL, and its ranks with it; 12 of 80 measured cases",
            ),
            (None, "", end(EndStatus::Interrupted, 143), 6, "the launcher was ended by SIGKILL, and its ranks with it"),
            // The launcher was still alive when the rank died.
            (None, OPEN_MPI, failed(6), 6, "rank 3: data arrived wrong"),
            // Errors that the ranks found themselves.
            (None, "", failed(4), 4, "rank 3: data arrived wrong"),
            (None, "", failed(5), 5, "rank 3: data arrived wrong"),
            // Interrupted through us.
            (Some(15), "", failed(6), 143, "stopped by SIGTERM"),
        ] {
            let (exit_code, text) = check(None, interrupted_by, output, end);
            assert_eq!(exit_code, expected, "{text}");
            assert!(text.starts_with(begins), "{text}");
        }
        assert!(check(None, None, "", failed(6)).1.ends_with("after that the record says: rank 3: data arrived wrong"));
    }

    #[test]
    fn a_signal_that_happens_to_have_the_number_of_a_family_is_not_taken_for_it() {
        let output = MPICH.replace("9", "7");
        assert_eq!(check(Some(7), None, &output, None).0, 6);
    }

    #[test]
    fn ranks_that_the_launcher_ended_because_of_another_are_not_blamed() {
        let output = "srun: error: vm: tasks 0-1: Killed\n";
        let text = check_with(Some(9), None, output, end(EndStatus::Failed, 6), (&[], &[1])).1;
        assert!(text.contains("rank 1 (process 101 on vm.cluster) was killed by SIGKILL"), "{text}");
        assert!(!text.contains("rank 0"), "{text}");
        let text = check_with(Some(9), None, output, end(EndStatus::Failed, 6), (&[], &[7])).1;
        assert!(!text.contains("SIGKILL"), "the suspect ended by itself: {text}");
        let hang = hang(HangReason::Deadline, &[1]);
        let record_state = RecordState { hang, end: end(EndStatus::Failed, 5), ..RecordState::default() };
        let ending = Ending { code: Some(5), output: output.into(), ..Ending::default() };
        let verdict = conclude(&ending, &record_state);
        assert_eq!((verdict.exit_code, verdict.sentences.len()), (5, 1), "{:?}", verdict.sentences);
    }

    #[test]
    fn ranks_that_died_together_are_one_list_with_the_causes_that_are_known() {
        for (output, list) in [
            (
                OPEN_MPI,
                "rank 0 (process 100 on vm.cluster), rank 1 (process 101 on vm.cluster, killed by SIGKILL); if no one",
            ),
            (
                "srun: error: vm: tasks 0-1: Killed\n",
                "rank 0 (process 100 on vm.cluster, killed by SIGKILL), rank 1 (process 101 on vm.cluster, killed by SIGKILL); if",
            ),
            // Its launcher names a process that it may have killed itself.
            (MPICH, "rank 0 (process 100 on vm.cluster), rank 1 (process 101 on vm.cluster)"),
        ] {
            let text = check_with(Some(137), None, output, end(EndStatus::Failed, 6), (&[100], &[0, 1])).1;
            assert!(text.contains(&format!("\n2 ranks died at the same time: {list}")), "{text}");
            assert_eq!(text.matches("rank 1 (").count(), 1, "each once: {text}");
        }
    }

    #[test]
    fn where_the_launcher_may_have_ended_some_of_a_list_it_says_so() {
        let mut hang = hang(HangReason::Death, &[0, 1]);
        hang.as_mut().expect("one").launcher_may_have_ended_some = true;
        let header = Some(vec![rank(0), rank(1)]);
        let record_state = RecordState { hang, header, end: end(EndStatus::Failed, 6), ..RecordState::default() };
        let ending = Ending { code: Some(137), output: OPEN_MPI.into(), ..Ending::default() };
        let text = conclude(&ending, &record_state).sentences.join("\n");
        let list =
            "2 ranks died at the same time, some of them perhaps ended by the launcher after one had died: rank 0 (";
        assert!(text.contains(list), "{text}");
    }

    #[test]
    fn a_launch_that_was_overdue_counts_as_hung_however_the_terminated_launcher_ended() {
        let overdue = || Ending { overdue: Some("it is late".into()), ..Ending::default() };
        let by_signal = || Ending { signal: Some(15), ..overdue() };
        let with_success = || Ending { code: Some(0), ..overdue() };
        for (end, words) in [
            (None, "nothing was measured yet"),
            (end(EndStatus::Complete, 0), "the run is complete"),
            (end(EndStatus::Failed, 5), "data arrived wrong"),
        ] {
            for ending in [by_signal(), with_success()] {
                let verdict = conclude(&ending, &RecordState { end: end.clone(), ..RecordState::default() });
                assert_eq!(verdict.exit_code, 5, "{words}");
                let text = verdict.sentences.join("\n");
                assert!(text.contains(words) && text.ends_with("it is late; it was terminated"), "{text}");
            }
        }
    }

    #[test]
    fn an_interrupted_run_reports_its_measured_cases() {
        for (signal, expected) in [(2, 130), (15, 143)] {
            let (exit_code, text) = check(Some(1), Some(signal), "", end(EndStatus::Interrupted, 130));
            assert_eq!(exit_code, expected);
            assert!(text.contains("12 of 80 measured cases are kept"), "{text}");
        }
    }

    #[test]
    fn a_host_whose_watchdog_decided_alone_is_the_cause_and_the_ends_of_the_other_ranks_are_not() {
        let report: HangLine = serde_json::from_value(serde_json::json!({
        "reason": "deadline", "deadline_seconds": 4.0, "operation": "a barrier", "activity": {"name": "case 1 of 2"},
        "suspects": "2", "ranks": [{"state": "stopped_answering", "ranks": "2", "count": 1, "hosts": ["host1"]}],
    }))
    .expect("a line");
        let sentence =
            "no progress within 4.00 s: rank 2 on host1 stopped answering; the others are at a barrier (case 1 of 2)";
        let ending = Ending { code: Some(5), output: SLURM_KILLED.into(), ..Ending::default() };
        let state = |end, reason| RecordState {
            header: Some(vec![rank(0), rank(1)]),
            end,
            lone_report: Some(HangLine { reason, ..report.clone() }),
            ..RecordState::default()
        };
        for end in [None, end(EndStatus::Interrupted, 143)] {
            let state = state(end, HangReason::Deadline);
            let verdict = conclude(&ending, &state);
            assert_eq!(verdict.exit_code, 5);
            assert_eq!(verdict.sentences, [format!("{sentence}; nothing was measured yet")]);
            let end = missing_end(&ending, &state, 5, Duration::ZERO);
            assert_eq!((end.exit_code, end.error), (5, Some(sentence.to_owned())));
        }
        assert_eq!(conclude(&ending, &state(None, HangReason::Death)).exit_code, 6, "a rank died");
        assert_eq!(
            conclude(&ending, &state(end(EndStatus::Complete, 0), HangReason::Deadline)).exit_code,
            6,
            "not over in vain"
        );
    }

    /// What srun prints when a step is ended.
    const SLURM_KILLED: &str = "srun: error: host1: task 2: Killed\nsrun: error: host1: task 3: Exited with exit code 5\nsrun: error: host0: tasks 0-1: Killed\n";
}
