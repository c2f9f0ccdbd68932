//! The exit code of a launch and its messages, from the record's last line and the launcher's end. Pure functions.
//!
//! Launchers change the exit code of a rank, so the record takes precedence, and without its end line nothing is a
//! success.

use super::record_state::{OutOfMemoryKills, RecordState};
use super::unwatched::own_deadline;
use crate::launch::{Cause, Death, Ending, Reported, advice, deaths};
use commgauge_base::error::{ENVIRONMENT_EXIT_CODE, HANG_EXIT_CODE};
use commgauge_base::stop_signal::signal_name;
use commgauge_base::units::Seconds;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::hang_line::{HangLine, HangReason};
use commgauge_model::record::line::{End, EndStatus, RankFacts};
use std::time::Duration;

/// Deaths that are described one by one.
const MAX_DEATHS: usize = 4;
/// Ranks in a list.
const MAX_LISTED: usize = 8;

/// Exit code and messages of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Exit code of the program.
    pub exit_code: i32,
    /// Sentences for standard error.
    pub sentences: Vec<String>,
}

/// Combines the end of the launcher and the record.
pub(super) fn conclude(ending: &Ending, record_state: &RecordState) -> Verdict {
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

/// The end line of a record whose ranks and watchdog left none.
pub(super) fn missing_end(ending: &Ending, record_state: &RecordState, exit_code: i32, elapsed: Duration) -> End {
    let status = if ending.interrupted_by.is_some() { EndStatus::Interrupted } else { EndStatus::Failed };
    let lone = || lone_hang(record_state).filter(|_| exit_code == HANG_EXIT_CODE).map(HangLine::sentence);
    let reason = own_deadline(&ending.output).map(str::to_owned).or_else(lone);
    let error = Some(reason.unwrap_or_else(|| format!("the ranks left no end line; {}", launcher_end(ending))));
    let elapsed_seconds = Seconds(elapsed.as_secs_f64());
    End { status, exit_code, error, elapsed_seconds, lines_before: None, sha256: None }
}

fn judge(ending: &Ending, record_state: &RecordState, sentences: &mut Vec<String>) -> i32 {
    // A launcher that was stopped and then terminated may find its ranks gone and report success.
    let launcher_fine = ending.code == Some(0) && ending.overdue.is_none();
    let died_by_signal = deaths(&ending.output).iter().any(signalled);
    // No rank is to blame for a record that somebody took away while it was written.
    // Nor is it resumed by itself where its time was over: the name that was asked for leads to nothing.
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
                true => "the run did not go on; the record is as it was".to_owned(),
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

/// Why the watchdog of one host has ended its ranks alone, if nobody else has said why the run ended: that the launcher then ended the
/// other ranks is a consequence.
pub(super) fn lone_hang(record_state: &RecordState) -> Option<&HangLine> {
    let is_consequence = record_state.end.as_ref().is_none_or(|end| end.status == EndStatus::Interrupted);
    let is_cause =
        |line: &&HangLine| line.reason == HangReason::Deadline && is_consequence && record_state.hang.is_none();
    record_state.lone_report.as_ref().filter(is_cause)
}

/// Whether the launcher itself was killed, so that its ranks died through no fault of their own. A launcher that has
/// reported a dead rank was alive to see it; errors found by ranks (wrong data, a hang) came before.
fn launcher_was_killed(ending: &Ending, end: &End) -> bool {
    let of_its_ranks = match end.status {
        EndStatus::Failed => end.exit_code == ENVIRONMENT_EXIT_CODE,
        EndStatus::Interrupted => true,
        _ => false,
    };
    let by_others = ending.signal.is_some() && ending.interrupted_by.is_none() && ending.overdue.is_none();
    by_others && of_its_ranks && deaths(&ending.output).is_empty()
}

fn signalled(death: &Death) -> bool {
    matches!(death.cause, Cause::Signal(_))
}

fn measured(record_state: &RecordState) -> String {
    match (record_state.cases, record_state.planned) {
        (0, _) => "nothing was measured yet".to_owned(),
        (cases, Some(planned)) => format!("{cases} of {planned} measured cases are kept"),
        (cases, None) => format!("{cases} measured cases are kept"),
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
    let suspects = hang.map_or(&[][..], |hang| hang.suspects.as_slice());
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
            match (suspects, &record_state.first_exit[..]) {
                ([rank], _) => (death.rank, death.pid) = (Some(*rank), None),
                (_, [pid]) => death.pid = Some(*pid),
                (_, []) => {}
                (_, several) => {
                    let exited: Vec<&RankFacts> = ranks.iter().filter(|facts| several.contains(&facts.pid)).collect();
                    sentences.push(format!(
                        "one of these ended badly, and the others with it: {}",
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

/// `rank 1 (process 4711 on node-a, killed by SIGKILL)`, with a cause as it stands behind the host, or none.
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
            "; {here} ran out of memory meanwhile: the system killed {processes} of its processes for that (see dmesg). Take smaller \
             sizes or fewer ranks on a host, or raise the limit of the container or job"
        );
    }
    "; if no person did that, the host may have run out of memory (see dmesg)".to_owned()
}

/// Launchers and hosts may differ in whether a name includes its domain.
fn same_host(one: &str, other: &str) -> bool {
    one.split('.').next() == other.split('.').next()
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
