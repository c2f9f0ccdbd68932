//! Determines which ranks block the others: from the states of all ranks to a line of the record and a text. Pure
//! functions.

use super::table::{Entry, RankStatus, Trigger};
use crate::progress::{Doing, NO_GROUP};
use crate::rank_list::ranges;
use crate::record::hang_line::{HangLine, HangReason, HeldState, HungActivity, RankPlace, RanksHeld};
use crate::units::Seconds;
use std::fmt::Write;

/// Maximum number of hosts that are named for a set of ranks.
const MOST_HOSTS: usize = 4;
/// Ranks that are described individually.
const MOST_DETAILS: usize = 8;

/// A rank as seen by the collector at the time of the report.
#[derive(Clone, Copy, Debug)]
pub struct RankView<'a> {
    /// Its entry in the table.
    pub entry: &'a Entry,
    /// Its host.
    pub host: &'a str,
    /// Whether it answers.
    pub answers: bool,
}

/// States of the ranks relative to the operation in which they are blocked.
pub struct BlockedRanks<'a> {
    seen: &'a [RankView<'a>],
    /// Activity and step of the earliest operation that not all ranks have finished.
    target: (u64, u64),
}

impl<'a> BlockedRanks<'a> {
    /// Finds the operation. The progress of ranks that do not answer is unknown after their last heartbeat, but those
    /// that answer cannot have passed an operation that these did not perform.
    pub fn of(seen: &'a [RankView<'a>]) -> BlockedRanks<'a> {
        let place = |seen: &&RankView| (seen.entry.state.shown.activity, seen.entry.state.shown.step | 1);
        let answering = seen.iter().filter(|seen| seen.answers && seen.entry.status == RankStatus::Live);
        let known = seen.iter().filter(|seen| !matches!(seen.entry.status, RankStatus::Left(_) | RankStatus::Expected));
        let earliest = answering.map(|seen| place(&seen)).min();
        let target = earliest.or_else(|| known.map(|seen| place(&seen)).max()).unwrap_or((0, 1));
        BlockedRanks { seen, target }
    }

    /// State of a rank in the report.
    pub fn state(&self, seen: &RankView) -> HeldState {
        match seen.entry.status {
            RankStatus::Died => return HeldState::Died,
            RankStatus::Left(_) => return HeldState::Left,
            RankStatus::Expected | RankStatus::Unwatched => return HeldState::StoppedAnswering,
            RankStatus::Live if !seen.answers => return HeldState::StoppedAnswering,
            RankStatus::Live | RankStatus::Dragged => {}
        }
        let shown = &seen.entry.state.shown;
        match (shown.activity, shown.step).cmp(&self.target) {
            std::cmp::Ordering::Less => HeldState::NeverEntered,
            std::cmp::Ordering::Equal => HeldState::EnteredNotFinished,
            std::cmp::Ordering::Greater => HeldState::Finished,
        }
    }

    /// A rank inside the operation.
    fn inside(&self) -> Option<&RankView<'a>> {
        let shown = |seen: &RankView| (seen.entry.state.shown.activity, seen.entry.state.shown.step);
        self.seen.iter().find(|seen| shown(seen) == self.target && seen.answers)
    }

    fn doing(&self) -> Option<Doing> {
        self.inside().map(|seen| match Doing(seen.entry.state.shown.doing) {
            // Between two operations a rank is in none, except in a replay, which is one operation of many actions.
            doing if doing == Doing::ITS_OWN || doing >= Doing::REPLAY => Doing::REPLAY,
            doing => doing,
        })
    }

    fn of_state(&self, state: HeldState) -> Vec<&RankView<'a>> {
        self.seen.iter().filter(|seen| self.state(seen) == state).collect()
    }

    /// The ranks that block the others.
    fn suspects(&self) -> Vec<u32> {
        for state in [HeldState::Died, HeldState::StoppedAnswering, HeldState::NeverEntered] {
            let of = self.of_state(state);
            if of.is_empty() {
                continue;
            }
            // A rank that waits for a message is blocked itself.
            let alone =
                of.iter().filter(|seen| seen.entry.state.shown.peer.is_none() || state != HeldState::NeverEntered);
            let alone: Vec<u32> = alone.map(|seen| seen.entry.rank).collect();
            return if alone.is_empty() { of.iter().map(|seen| seen.entry.rank).collect() } else { alone };
        }
        let is_outside_calls =
            |seen: &&&RankView| matches!(Doing(seen.entry.state.shown.doing), Doing::ITS_OWN | Doing::COMPUTING);
        let inside = self.of_state(HeldState::EnteredNotFinished);
        let suspects: Vec<u32> = inside.iter().filter(is_outside_calls).map(|seen| seen.entry.rank).collect();
        if !suspects.is_empty() {
            return if suspects.len() < inside.len() { suspects } else { Vec::new() };
        }
        // Ranks that wait inside a library poll; a few that sleep while the others poll are not in it.
        let asleep: Vec<u32> = inside.iter().filter(|seen| seen.entry.sleeps).map(|seen| seen.entry.rank).collect();
        if 2 * asleep.len() < inside.len() { asleep } else { Vec::new() }
    }

    fn group(&self, suspects: &[u32]) -> Option<String> {
        let of = |seen: &RankView| {
            let shown = &seen.entry.state.shown;
            (shown.activity == self.target.0 && shown.group != NO_GROUP).then_some(shown.group)
        };
        let first = self.seen.iter().find(|seen| suspects.first() == Some(&seen.entry.rank));
        let group = first.and_then(&of).or_else(|| self.inside().and_then(&of))?;
        let members: Vec<u32> =
            self.seen.iter().filter(|seen| of(seen) == Some(group)).map(|seen| seen.entry.rank).collect();
        Some(ranges(&members))
    }

    /// Ranks whose last heartbeat was before the activity began, so that their groups in it are unknown.
    fn ranks_with_unknown_group(&self) -> Option<String> {
        let before = self.seen.iter().filter(|seen| seen.entry.state.shown.activity < self.target.0);
        let ranks: Vec<u32> = before.map(|seen| seen.entry.rank).collect();
        (!ranks.is_empty()).then(|| ranges(&ranks))
    }
}

/// Builds the line of the record. `activity` returns the description of an activity, by its number.
pub fn hang_line(
    trigger: Trigger,
    seen: &[RankView],
    activity: impl Fn(u64) -> Option<HungActivity>,
    nccl_ras: Option<String>,
    report: Option<String>,
) -> HangLine {
    let blocked = BlockedRanks::of(seen);
    let suspects = blocked.suspects();
    let activity = activity(blocked.target.0)
        .unwrap_or_else(|| HungActivity { name: format!("activity {}", blocked.target.0), ..HungActivity::default() });
    let doing = blocked.doing();
    let sequence =
        (doing == Some(Doing::CALL)).then(|| blocked.inside().map(|seen| seen.entry.state.shown.calls)).flatten();
    let (reason, deadline_seconds) = match trigger {
        Trigger::Deadline(deadline) => (HangReason::Deadline, Some(Seconds(deadline.as_secs_f64()))),
        Trigger::Death { .. } => (HangReason::Death, None),
    };
    let group_ranks = (doing == Some(Doing::CALL)).then(|| blocked.group(&suspects)).flatten();
    let operation = operation(doing, sequence, &activity);
    HangLine {
        reason,
        deadline_seconds,
        operation,
        activity,
        sequence,
        group_ranks,
        suspects: ranges(&suspects),
        ranks: by_state(&blocked),
        places: described_ranks(&suspects, seen).map(place).collect(),
        nccl_ras,
        report,
    }
}

fn operation(doing: Option<Doing>, sequence: Option<u64>, activity: &HungActivity) -> String {
    match doing {
        Some(Doing::CALL) => {
            let collective = activity.collective.as_deref().unwrap_or("the collective");
            let bytes = activity.bytes_total.map_or_else(String::new, |bytes| format!(" of {bytes}"));
            format!("{collective}{bytes}, call {}", sequence.unwrap_or_default())
        }
        Some(Doing::BARRIER) => "a barrier".to_owned(),
        Some(Doing::BROADCAST) => "a broadcast of the control plane".to_owned(),
        Some(Doing::GATHER) => "a gathering of the control plane".to_owned(),
        Some(Doing::AGREEMENT) => "an agreement of all ranks".to_owned(),
        Some(_) => "the replay of a step".to_owned(),
        None => "the next operation".to_owned(),
    }
}

fn by_state(blocked: &BlockedRanks) -> Vec<RanksHeld> {
    use HeldState::*;
    let states = [Died, StoppedAnswering, NeverEntered, EnteredNotFinished, Finished, Left];
    let of = states.map(|state| (state, blocked.of_state(state)));
    of.into_iter()
        .filter(|(_, of)| !of.is_empty())
        .map(|(state, of)| {
            let mut hosts: Vec<String> = Vec::new();
            for seen in &of {
                if hosts.len() < MOST_HOSTS && !hosts.iter().any(|host| host == seen.host) {
                    hosts.push(seen.host.to_owned());
                }
            }
            let ranks: Vec<u32> = of.iter().map(|seen| seen.entry.rank).collect();
            RanksHeld { state, ranks: ranges(&ranks), count: ranks.len() as u64, hosts }
        })
        .collect()
}

/// The ranks that are described individually: the suspects, or, if there are none, the ranks with a known device.
fn described_ranks<'s, 'a>(suspects: &[u32], seen: &'s [RankView<'a>]) -> impl Iterator<Item = &'s RankView<'a>> {
    let is_described = move |seen: &&RankView| match suspects {
        [] => seen.entry.device.is_some(),
        some => some.contains(&seen.entry.rank),
    };
    seen.iter().filter(is_described).take(MOST_DETAILS)
}

fn place(seen: &RankView) -> RankPlace {
    let device = seen.entry.device.as_deref().map(str::to_owned);
    RankPlace { rank: seen.entry.rank, host: seen.host.to_owned(), device }
}

/// Text for the terminal: the summary, the states, and the suspects one by one.
pub fn short_text(line: &HangLine, seen: &[RankView]) -> String {
    let mut text = format!("{}\n", line.sentence());
    let blocked = BlockedRanks::of(seen);
    if let Some(case) = &line.activity.case {
        let perhaps =
            blocked.ranks_with_unknown_group().map_or_else(String::new, |ranks| format!(", and perhaps {ranks}"));
        let group =
            line.group_ranks.as_deref().map_or_else(String::new, |ranks| format!("; group: ranks {ranks}{perhaps}"));
        let _ = writeln!(text, "  {case}{group}");
    }
    for of in &line.ranks {
        let ranks = cut(&of.ranks, 60);
        let _ = writeln!(text, "  {:<23} rank{} {ranks} on {}", of.state.name(), plural(of.count), shown_hosts(of));
    }
    for seen in described_ranks(&blocked.suspects(), seen) {
        let place = match seen.entry.device.as_deref() {
            Some(device) => format!(" on {}, {}", shown_host(seen.host), shown_host(device)),
            None => String::new(),
        };
        let _ = writeln!(text, "  rank {}{place}: {}", seen.entry.rank, position_text(seen));
    }
    if let Some(ras) = &line.nccl_ras {
        let _ = writeln!(text, "  NCCL RAS: {}", cut(ras.lines().next().unwrap_or_default(), 120));
    }
    text
}

/// Full text: every rank on its own line, and all further information.
pub fn whole_text(line: &HangLine, seen: &[RankView]) -> String {
    let blocked = BlockedRanks::of(seen);
    let mut text = short_text(line, seen);
    let _ = writeln!(text, "\nrank  host[:device]  process  state  where");
    for seen in seen {
        let entry = seen.entry;
        let process = if entry.process.0 == 0 { "-".to_owned() } else { entry.process.0.to_string() };
        let (rank, state) = (entry.rank, blocked.state(seen).name());
        let device = entry.device.as_deref().map_or_else(String::new, |device| format!(":{}", shown_host(device)));
        let _ =
            writeln!(text, "{rank}  {}{device}  {process}  {state}  {}", shown_host(seen.host), position_text(seen));
    }
    if let Some(ras) = &line.nccl_ras {
        let _ = writeln!(text, "\nNCCL RAS\n{ras}");
    }
    text
}

/// Last known position of a rank.
fn position_text(seen: &RankView) -> String {
    let (entry, shown) = (seen.entry, &seen.entry.state.shown);
    let place = match (shown.step % 2, Doing(shown.doing)) {
        (1, Doing::CALL) => format!("in call {}", shown.calls),
        (1, Doing::BARRIER) => "in a barrier".to_owned(),
        (1, doing) if doing == Doing::ITS_OWN || doing >= Doing::REPLAY => "in the replay".to_owned(),
        (1, _) => "in an agreement of all ranks".to_owned(),
        _ => format!("on its own after call {}", shown.calls),
    };
    let stayed = f64::from(entry.state.stuck_milliseconds) / 1e3;
    let mut text = match (entry.status, seen.answers) {
        (RankStatus::Expected, _) => return "it never connected to the watchdog".to_owned(),
        (RankStatus::Left(code), _) => return format!("it ended in order, with exit code {code}"),
        (RankStatus::Unwatched, _) => format!("the watchdog of its host is gone; last heard of {place}"),
        (RankStatus::Died | RankStatus::Dragged, _) => format!("its connection closed; last heard of {place}"),
        (RankStatus::Live, false) if entry.state.stopped => format!("its process is stopped; last heard of {place}"),
        (RankStatus::Live, false) => format!("no heartbeat; last heard of {place}"),
        (RankStatus::Live, true) => format!("{place} of activity {}, for {stayed:.1} s", shown.activity),
    };
    if let Some(detail) = entry.detail.as_deref().filter(|detail| !detail.is_empty()) {
        let _ = write!(text, "; {detail}");
    }
    text
}

fn shown_hosts(of: &RanksHeld) -> String {
    let hosts: Vec<String> = of.hosts.iter().map(|host| shown_host(host)).collect();
    let more = if of.hosts.len() == MOST_HOSTS { ", ..." } else { "" };
    format!("{}{more}", hosts.join(", "))
}

/// A host name may contain anything; only plain characters are passed to a terminal.
fn shown_host(host: &str) -> String {
    host.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn plural(count: u64) -> &'static str {
    if count == 1 { " " } else { "s" }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most).chain("...".chars()).collect() }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
