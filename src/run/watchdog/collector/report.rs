//! Determines which ranks block the others: from the states of all ranks to a line of the record and a text. Pure
//! functions.

use super::table::{Entry, RankStatus, Trigger};
use commgauge_base::progress::{Doing, NO_GROUP};
use commgauge_base::rank_list::ranges;
use commgauge_base::units::Seconds;
use commgauge_base::visible::{visible, visible_lines};
use commgauge_model::record::hang_line::{HangLine, HangReason, HangState, HungActivity, RankPlace, RanksInState};
use std::fmt::Write;

/// Maximum number of hosts that are named for a set of ranks.
const MAX_HOSTS: usize = 4;
/// Ranks that are described individually.
const MAX_DETAILS: usize = 8;

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
    views: &'a [RankView<'a>],
    /// Activity and step of the earliest operation that not all ranks have finished.
    target: (u64, u64),
}

impl<'a> BlockedRanks<'a> {
    /// Finds the operation. The progress of ranks that do not answer is unknown after their last heartbeat, but those
    /// that answer cannot have passed an operation that these did not perform.
    pub fn of(views: &'a [RankView<'a>]) -> BlockedRanks<'a> {
        let place = |view: &&RankView| (view.entry.state.shown.activity, view.entry.state.shown.step | 1);
        let answering = views.iter().filter(|view| view.answers && view.entry.status == RankStatus::Live);
        let known =
            views.iter().filter(|view| !matches!(view.entry.status, RankStatus::Left(_) | RankStatus::Expected));
        let earliest = answering.map(|view| place(&view)).min();
        let target = earliest.or_else(|| known.map(|view| place(&view)).max()).unwrap_or((0, 1));
        BlockedRanks { views, target }
    }

    /// State of a rank in the report.
    pub fn state(&self, view: &RankView) -> HangState {
        match view.entry.status {
            RankStatus::Died => return HangState::Died,
            RankStatus::Left(_) => return HangState::Left,
            RankStatus::Expected => return HangState::StoppedAnswering,
            RankStatus::Unwatched => return HangState::Unwatched,
            RankStatus::Live if !view.answers => return HangState::StoppedAnswering,
            RankStatus::Live | RankStatus::Dragged => {}
        }
        let shown = &view.entry.state.shown;
        match (shown.activity, shown.step).cmp(&self.target) {
            std::cmp::Ordering::Less => HangState::NeverEntered,
            std::cmp::Ordering::Equal => HangState::EnteredNotFinished,
            std::cmp::Ordering::Greater => HangState::Finished,
        }
    }

    /// A rank inside the operation.
    fn inside(&self) -> Option<&RankView<'a>> {
        let shown = |view: &RankView| (view.entry.state.shown.activity, view.entry.state.shown.step);
        self.views.iter().find(|view| shown(view) == self.target && view.answers)
    }

    fn doing(&self) -> Option<Doing> {
        self.inside().map(|view| match Doing(view.entry.state.shown.doing) {
            // Between two operations a rank is in none, except in a replay, which is one operation of many actions.
            doing if doing == Doing::OUTSIDE_CALLS || doing >= Doing::REPLAY => Doing::REPLAY,
            doing => doing,
        })
    }

    fn of_state(&self, state: HangState) -> Vec<&RankView<'a>> {
        self.views.iter().filter(|view| self.state(view) == state).collect()
    }

    /// The ranks that block the others.
    fn suspects(&self) -> Vec<u32> {
        // Of those that nobody watches it is not known whether they are to blame.
        for state in [HangState::Died, HangState::StoppedAnswering, HangState::NeverEntered, HangState::Unwatched] {
            let of = self.of_state(state);
            if of.is_empty() {
                continue;
            }
            // A rank that waits for a message is blocked itself.
            let alone =
                of.iter().filter(|view| view.entry.state.shown.peer.is_none() || state != HangState::NeverEntered);
            let alone: Vec<u32> = alone.map(|view| view.entry.rank).collect();
            return if alone.is_empty() { of.iter().map(|view| view.entry.rank).collect() } else { alone };
        }
        let is_outside_calls =
            |view: &&&RankView| matches!(Doing(view.entry.state.shown.doing), Doing::OUTSIDE_CALLS | Doing::COMPUTING);
        let inside = self.of_state(HangState::EnteredNotFinished);
        let suspects: Vec<u32> = inside.iter().filter(is_outside_calls).map(|view| view.entry.rank).collect();
        if !suspects.is_empty() {
            return if suspects.len() < inside.len() { suspects } else { Vec::new() };
        }
        // Ranks that wait inside a library poll; a few that sleep while the others poll are not in it.
        let asleep: Vec<u32> = inside.iter().filter(|view| view.entry.sleeps).map(|view| view.entry.rank).collect();
        if 2 * asleep.len() < inside.len() { asleep } else { Vec::new() }
    }

    fn group(&self, suspects: &[u32]) -> Option<String> {
        let of = |view: &RankView| {
            let shown = &view.entry.state.shown;
            (shown.activity == self.target.0 && shown.group != NO_GROUP).then_some(shown.group)
        };
        let first = self.views.iter().find(|view| suspects.first() == Some(&view.entry.rank));
        let group = first.and_then(&of).or_else(|| self.inside().and_then(&of))?;
        let members: Vec<u32> =
            self.views.iter().filter(|view| of(view) == Some(group)).map(|view| view.entry.rank).collect();
        Some(ranges(&members))
    }

    /// Ranks whose last heartbeat was before the activity began, so that their groups in it are unknown.
    fn ranks_with_unknown_group(&self) -> Option<String> {
        let before = self.views.iter().filter(|view| view.entry.state.shown.activity < self.target.0);
        let ranks: Vec<u32> = before.map(|view| view.entry.rank).collect();
        (!ranks.is_empty()).then(|| ranges(&ranks))
    }
}

/// Builds the line of the record. `activity` returns the description of an activity, by its number.
pub fn hang_line(
    trigger: Trigger,
    views: &[RankView],
    activity: impl Fn(u64) -> Option<HungActivity>,
    nccl_ras: Option<String>,
    report: Option<String>,
) -> HangLine {
    let blocked = BlockedRanks::of(views);
    let suspects = blocked.suspects();
    let activity = activity(blocked.target.0)
        .unwrap_or_else(|| HungActivity { name: format!("activity {}", blocked.target.0), ..HungActivity::default() });
    let doing = blocked.doing();
    let sequence =
        (doing == Some(Doing::CALL)).then(|| blocked.inside().map(|view| view.entry.state.shown.calls)).flatten();
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
        launcher_may_have_ended_some: false,
        ranks: by_state(&blocked),
        places: described_ranks(&suspects, views).map(place).collect(),
        unreachable_hosts: Vec::new(),
        only_of_host: None,
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

fn by_state(blocked: &BlockedRanks) -> Vec<RanksInState> {
    use HangState::*;
    let states = [Died, StoppedAnswering, NeverEntered, EnteredNotFinished, Finished, Left, Unwatched];
    let of = states.map(|state| (state, blocked.of_state(state)));
    of.into_iter()
        .filter(|(_, of)| !of.is_empty())
        .map(|(state, of)| {
            let mut hosts: Vec<String> = Vec::new();
            for view in &of {
                if hosts.len() < MAX_HOSTS && !hosts.iter().any(|host| host == view.host) {
                    hosts.push(view.host.to_owned());
                }
            }
            let ranks: Vec<u32> = of.iter().map(|view| view.entry.rank).collect();
            RanksInState { state, ranks: ranges(&ranks), count: ranks.len() as u64, hosts }
        })
        .collect()
}

/// The ranks that are described individually: the suspects, or, if there are none, the ranks with a known device.
fn described_ranks<'s, 'a>(suspects: &[u32], views: &'s [RankView<'a>]) -> impl Iterator<Item = &'s RankView<'a>> {
    let is_described = move |view: &&RankView| match suspects {
        [] => view.entry.device.is_some(),
        some => some.contains(&view.entry.rank),
    };
    views.iter().filter(is_described).take(MAX_DETAILS)
}

fn place(view: &RankView) -> RankPlace {
    let device = view.entry.device.as_deref().map(str::to_owned);
    RankPlace { rank: view.entry.rank, host: view.host.to_owned(), device, stack: None }
}

/// Text for the terminal: the summary, the states, and the suspects one by one.
pub fn short_text(line: &HangLine, views: &[RankView]) -> String {
    let mut text = format!("{}\n", line.sentence());
    let blocked = BlockedRanks::of(views);
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
    for view in described_ranks(&blocked.suspects(), views) {
        let place = match view.entry.device.as_deref() {
            Some(device) => format!(" on {}, {}", visible(view.host), visible(device)),
            None => String::new(),
        };
        let _ = writeln!(text, "  rank {}{place}: {}", view.entry.rank, position_text(view));
    }
    if let Some(ras) = &line.nccl_ras {
        let _ = writeln!(text, "  NCCL RAS: {}", cut(ras.lines().next().unwrap_or_default(), 120));
    }
    text
}

/// Full text: every rank on its own line, and all further information.
pub fn whole_text(line: &HangLine, views: &[RankView]) -> String {
    let blocked = BlockedRanks::of(views);
    let mut text = short_text(line, views);
    let _ = writeln!(text, "\nrank  host[:device]  process  state  where");
    for view in views {
        let entry = view.entry;
        let process = if entry.process.is_here() { entry.process.pid.to_string() } else { "-".to_owned() };
        let (rank, state) = (entry.rank, blocked.state(view).name());
        let device = entry.device.as_deref().map_or_else(String::new, |device| format!(":{}", visible(device)));
        let _ = writeln!(text, "{rank}  {}{device}  {process}  {state}  {}", visible(view.host), position_text(view));
    }
    if let Some(ras) = &line.nccl_ras {
        let _ = writeln!(text, "\nNCCL RAS\n{ras}");
    }
    // What other programs and suites say may act on a terminal as well.
    visible_lines(&text).into_owned()
}

/// Last known position of a rank.
fn position_text(view: &RankView) -> String {
    let (entry, shown) = (view.entry, &view.entry.state.shown);
    let place = match (shown.step % 2, Doing(shown.doing)) {
        (1, Doing::CALL) => format!("in call {}", shown.calls),
        (1, Doing::BARRIER) => "in a barrier".to_owned(),
        (1, doing) if doing == Doing::OUTSIDE_CALLS || doing >= Doing::REPLAY => "in the replay".to_owned(),
        (1, _) => "in an agreement of all ranks".to_owned(),
        _ => format!("on its own after call {}", shown.calls),
    };
    let stayed = f64::from(entry.state.stuck_milliseconds) / 1e3;
    let mut text = match (entry.status, view.answers) {
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

fn shown_hosts(of: &RanksInState) -> String {
    let hosts: Vec<_> = of.hosts.iter().map(|host| visible(host)).collect();
    let more = if of.hosts.len() == MAX_HOSTS { ", ..." } else { "" };
    format!("{}{more}", hosts.join(", "))
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
