//! Determines which ranks block the others: from the states of all ranks to a line of the record and a text. Pure
//! functions.

use super::process::{Entry, RankStatus, Trigger};
use commgauge_base::progress::{Doing, NO_GROUP};
use commgauge_base::units::Seconds;
use commgauge_base::visible::{visible, visible_lines};
use commgauge_base::writing::ranges;
use commgauge_model::record::launch_lines::{HangLine, HangReason, HangState, HungActivity, RankPlace, RanksInState};
use std::fmt::Write;

/// Maximum number of hosts named for a set of ranks.
const MAX_HOSTS: usize = 4;

/// Ranks that are described individually.
const MAX_DETAILS: usize = 8;

/// A rank as seen by the collector at the time of the report.
#[derive(Clone, Copy, Debug)]
pub struct RankView<'a> {
    pub entry: &'a Entry,
    pub host: &'a str,
    /// Whether it responds.
    pub answers: bool,
}

/// States of the ranks relative to the operation in which they are blocked.
pub struct BlockedRanks<'a> {
    views: &'a [RankView<'a>],
    /// Activity and step of the earliest operation that not all ranks have finished.
    target: (u64, u64),
}

impl<'a> BlockedRanks<'a> {
    /// Finds the operation. The progress of silent ranks is unknown after their last heartbeat, but the others cannot have passed an
    /// operation that silent ranks did not perform.
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

    fn inside(&self) -> Option<&RankView<'a>> {
        let shown = |view: &RankView| (view.entry.state.shown.activity, view.entry.state.shown.step);
        self.views.iter().find(|view| shown(view) == self.target && view.answers)
    }

    fn doing(&self) -> Option<Doing> {
        self.inside().map(|view| match Doing(view.entry.state.shown.doing) {
            // Between two operations a rank is in none, except in a replay, which is one operation with many actions.
            doing if doing == Doing::OUTSIDE_CALLS || doing >= Doing::REPLAY => Doing::REPLAY,
            doing => doing,
        })
    }

    fn of_state(&self, state: HangState) -> Vec<&RankView<'a>> {
        self.views.iter().filter(|view| self.state(view) == state).collect()
    }

    /// The ranks that block the others.
    fn suspects(&self) -> Vec<u32> {
        // Unwatched ranks are not suspects: their state is unknown.
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
        // Ranks that wait inside a library poll; a few that sleep while the others poll are elsewhere.
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

/// Builds the line of the record. `activity` returns the description of an activity by number.
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

/// The ranks described individually: the suspects, or, if there are none, the ranks with a known device.
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
    // Texts from other programs and suites may contain terminal escapes too.
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
        (RankStatus::Left(code), _) => return format!("it ended normally, with exit code {code}"),
        (RankStatus::Unwatched, _) => format!("the watchdog of its host is gone; last report {place}"),
        (RankStatus::Died | RankStatus::Dragged, _) => format!("its connection closed; last report {place}"),
        (RankStatus::Live, false) if entry.state.stopped => format!("its process is stopped; last report {place}"),
        (RankStatus::Live, false) => format!("no heartbeat; last report {place}"),
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
mod tests {
    // Reports of hangs with a known cause.
    use super::super::process::Process;
    use super::*;
    use commgauge_base::progress::{CallPhase, Shown};
    use commgauge_base::units::Bytes;
    use commgauge_base::visible::is_control_or_format;
    use std::time::{Duration, Instant};

    const CALL: u32 = Doing::CALL.0;
    const BARRIER: u32 = Doing::BARRIER.0;

    struct Rank {
        status: RankStatus,
        answers: bool,
        /// Activity, step, calls, doing.
        at: (u64, u64, u64, u32),
        peer: Option<u32>,
        sleeps: bool,
    }

    fn live(activity: u64, step: u64, calls: u64, doing: u32) -> Rank {
        Rank { status: RankStatus::Live, answers: true, at: (activity, step, calls, doing), peer: None, sleeps: false }
    }

    fn silent(activity: u64, step: u64, calls: u64) -> Rank {
        Rank { answers: false, ..live(activity, step, calls, CALL) }
    }

    fn waiting_for(peer: u32) -> Rank {
        Rank { peer: Some(peer), ..live(3, 4, 0, 0) }
    }

    /// Ranks in groups of two, with two ranks on each host.
    fn report(trigger: Trigger, ranks: &[Rank]) -> (HangLine, String) {
        let entries: Vec<Entry> = (0..)
            .zip(ranks)
            .map(|(rank, given)| {
                let (activity, step, calls, doing) = given.at;
                let mut state = crate::watchdog::wire::RankState { rank, ..Default::default() };
                state.shown = Shown { activity, step, calls, doing, peer: given.peer, group: rank / 2 };
                state.stuck_milliseconds = 2_100;
                let status = given.status;
                Entry {
                    rank,
                    status,
                    state,
                    last_heartbeat: Instant::now(),
                    process: Process { pid: 100 + rank, start: 1 },
                    detail: None,
                    device: None,
                    sleeps: given.sleeps,
                }
            })
            .collect();
        let hosts = ["node-a", "node-b", "node-c"];
        let seen: Vec<RankView> = entries
            .iter()
            .zip(ranks)
            .map(|(entry, given)| RankView { entry, host: hosts[entry.rank as usize / 2], answers: given.answers })
            .collect();
        let activity = |number| {
            Some(HungActivity {
                name: format!("case {number} of 9, replicate 0"),
                case: Some("tp/all_reduce/sum/float32/64/in-place/streaming".into()),
                collective: Some("all_reduce".into()),
                bytes_total: Some(Bytes(64)),
                axis: Some("tp".into()),
            })
        };
        let line = hang_line(trigger, &seen, activity, None, None);
        let text = whole_text(&line, &seen);
        (line, text)
    }

    const LATE: Trigger = Trigger::Deadline(Duration::from_secs(2));
    const DEAD: Trigger = Trigger::Death { requested: false };

    fn states(line: &HangLine) -> Vec<(HangState, &str)> {
        line.ranks.iter().map(|held| (held.state, held.ranks.as_str())).collect()
    }

    #[test]
    fn the_suspect_is_named_and_not_the_ranks_that_wait_for_it() {
        use HangState::*;
        for (what, trigger, ranks, suspects, expected, sequence, group) in [
            (
                "rank 2 never enters call 100; the other group has finished and waits in the next barrier",
                LATE,
                vec![
                    live(3, 203, 100, BARRIER),
                    live(3, 203, 100, BARRIER),
                    live(3, 200, 99, 0),
                    live(3, 201, 100, CALL),
                ],
                "2",
                vec![(NeverEntered, "2"), (EnteredNotFinished, "3"), (Finished, "0-1")],
                Some(100),
                Some("2-3"),
            ),
            (
                "rank 1 is stopped; its last report is old",
                LATE,
                vec![live(3, 9_001, 4_500, CALL), silent(3, 77, 38), live(3, 9_003, 4_501, BARRIER)],
                "1",
                vec![(StoppedAnswering, "1"), (EnteredNotFinished, "0"), (Finished, "2")],
                Some(4_500),
                Some("0-1"),
            ),
            (
                "all have entered",
                LATE,
                vec![live(3, 5, 2, CALL), live(3, 5, 2, CALL)],
                "",
                vec![(EnteredNotFinished, "0-1")],
                Some(2),
                Some("0-1"),
            ),
            (
                "all have entered, and one sleeps while the others poll",
                LATE,
                vec![live(3, 5, 2, CALL), Rank { sleeps: true, ..live(3, 5, 2, CALL) }, live(3, 5, 2, CALL)],
                "1",
                vec![(EnteredNotFinished, "0-2")],
                Some(2),
                Some("0-1"),
            ),
            (
                "rank 0 died, and the launcher ended rank 1",
                DEAD,
                vec![
                    Rank { status: RankStatus::Died, ..silent(3, 5, 2) },
                    Rank { status: RankStatus::Dragged, ..silent(3, 7, 3) },
                    live(3, 7, 3, CALL),
                ],
                "0",
                vec![(Died, "0"), (EnteredNotFinished, "1-2")],
                Some(3),
                Some("0-1"),
            ),
            (
                "rank 0 writes to a disk that does not respond",
                LATE,
                vec![live(3, 8, 4, 0), live(3, 9, 4, Doing::AGREEMENT.0), live(3, 9, 4, Doing::AGREEMENT.0)],
                "0",
                vec![(NeverEntered, "0"), (EnteredNotFinished, "1-2")],
                None,
                None,
            ),
            (
                "clocks are compared: rank 0 waits for rank 1, which does nothing",
                LATE,
                vec![waiting_for(1), live(3, 4, 0, 0), live(3, 5, 0, BARRIER)],
                "1",
                vec![(NeverEntered, "0-1"), (EnteredNotFinished, "2")],
                None,
                None,
            ),
            (
                "in a replay rank 1 is on its own",
                LATE,
                vec![
                    live(4, 3, 17, Doing::op(2, CallPhase::Wait).0),
                    live(4, 3, 12, 0),
                    live(4, 3, 17, Doing::op(0, CallPhase::Start).0),
                ],
                "1",
                vec![(EnteredNotFinished, "0-2")],
                None,
                None,
            ),
            (
                "rank 1 is stopped, and rank 2 is no longer watched",
                LATE,
                vec![live(3, 5, 2, CALL), silent(3, 4, 1), Rank { status: RankStatus::Unwatched, ..silent(3, 1, 0) }],
                "1",
                vec![(StoppedAnswering, "1"), (EnteredNotFinished, "0"), (Unwatched, "2")],
                Some(2),
                Some("0-1"),
            ),
            (
                "all watched ranks wait",
                LATE,
                vec![
                    live(3, 5, 2, CALL),
                    live(3, 5, 2, CALL),
                    Rank { status: RankStatus::Unwatched, ..silent(3, 1, 0) },
                ],
                "2",
                vec![(EnteredNotFinished, "0-1"), (Unwatched, "2")],
                Some(2),
                Some("2"),
            ),
            (
                "no rank answers",
                LATE,
                vec![silent(3, 5, 2), silent(3, 4, 1)],
                "0-1",
                vec![(StoppedAnswering, "0-1")],
                None,
                None,
            ),
        ] {
            let (line, text) = report(trigger, &ranks);
            assert_eq!(line.suspects, suspects, "{what}\n{text}");
            assert_eq!(states(&line), expected, "{what}");
            assert_eq!((line.sequence, line.group_ranks.as_deref()), (sequence, group), "{what}");
            assert_eq!(line.ranks.iter().map(|held| held.count).sum::<u64>(), ranks.len() as u64, "{what}");
        }
    }

    #[test]
    fn a_rank_without_heartbeat_since_the_call_is_no_certain_member_of_its_group() {
        let (line, text) = report(LATE, &[live(3, 5, 2, CALL), silent(2, 4, 1)]);
        assert_eq!((line.group_ranks.as_deref(), line.suspects.as_str()), (Some("0"), "1"), "{text}");
        assert!(text.contains("; group: ranks 0, and perhaps 1\n"), "{text}");
    }

    #[test]
    fn a_report_reads_as_it_should() {
        let ranks =
            [live(3, 203, 100, BARRIER), live(3, 203, 100, BARRIER), live(3, 200, 99, 0), live(3, 201, 100, CALL)];
        insta::assert_snapshot!(report(LATE, &ranks).1);
    }

    #[test]
    fn sixteen_thousand_ranks_are_reported_in_a_few_lines() {
        let entry = |rank: u32| {
            let step = if rank == 9_999 { 200 } else { 201 };
            let state = crate::watchdog::wire::RankState {
                rank,
                shown: Shown { activity: 1, step, calls: 100, doing: CALL, peer: None, group: 0 },
                ..Default::default()
            };
            Entry {
                rank,
                status: RankStatus::Live,
                state,
                last_heartbeat: Instant::now(),
                process: Process::default(),
                detail: None,
                device: None,
                sleeps: false,
            }
        };
        let entries: Vec<Entry> = (0..16_384).map(entry).collect();
        let hosts: Vec<String> = (0..2_048).map(|host| format!("node-{host}")).collect();
        let seen: Vec<RankView> = entries
            .iter()
            .map(|entry| RankView { entry, host: &hosts[entry.rank as usize / 8], answers: true })
            .collect();
        let line = hang_line(LATE, &seen, |_| None, None, None);
        assert_eq!((line.suspects.as_str(), line.ranks.len()), ("9999", 2));
        assert_eq!(line.ranks[1].ranks, "0-9998,10000-16383");
        assert!(short_text(&line, &seen).lines().count() < 10);
        assert_eq!(
            whole_text(&line, &seen).lines().filter(|row| row.contains("node-1249 ")).count(),
            9,
            "8 ranks and the table"
        );
    }

    #[test]
    fn no_hostile_name_or_answer_reaches_the_terminal() {
        let entry = Entry {
            rank: 0,
            status: RankStatus::Live,
            state: Default::default(),
            last_heartbeat: Instant::now(),
            process: Process::default(),
            detail: Some("waits for \x1b[2J".into()),
            device: Some("\u{202e}0".into()),
            sleeps: false,
        };
        let seen = [RankView { entry: &entry, host: "\x1b[31mnode\n\u{202e}", answers: true }];
        let ras = Some("of\x1b[31m NCCL\n\u{9b}31m".to_owned());
        let mut line = hang_line(LATE, &seen, |_| None, ras, None);
        line.unreachable_hosts = vec!["\x1b[31mnode\n\u{202e}".to_owned()];
        for text in [whole_text(&line, &seen), line.sentence()] {
            let acts = |c: char| c != '\n' && is_control_or_format(c);
            assert!(!text.contains(acts) && !text.contains("node\n"), "{text:?}");
        }
    }

    #[test]
    fn without_suspects_devices_and_single_finishers_are_listed() {
        let entry = |rank, status, device: Option<&str>, step| {
            let mut state = crate::watchdog::wire::RankState { rank, ..Default::default() };
            state.shown = Shown { activity: 3, step, calls: 2, doing: CALL, peer: None, group: 0 };
            let process = Process { pid: 1, start: 1 };
            let (last_heartbeat, device) = (Instant::now(), device.map(Into::into));
            Entry { rank, status, state, last_heartbeat, process, detail: None, device, sleeps: false }
        };
        for (steps, sentence) in [
            ([5, 5], "all ranks have entered all_reduce, call 2 (c) with no outlier"),
            ([5, 7], "all ranks have entered all_reduce, call 2 (c); rank 1 on a came through it, the others did not"),
        ] {
            let entries = [0, 1].map(|rank| entry(rank, RankStatus::Live, Some("device\u{1b}0"), steps[rank as usize]));
            let seen = [0, 1].map(|rank: usize| RankView { entry: &entries[rank], host: "a", answers: true });
            let activity = |_| {
                Some(HungActivity {
                    name: "c".into(),
                    collective: Some("all_reduce".into()),
                    ..HungActivity::default()
                })
            };
            let line = hang_line(LATE, &seen, activity, None, None);
            assert!(line.sentence().contains(sentence), "{}", line.sentence());
            let places: Vec<(u32, &str, Option<&str>)> =
                line.places.iter().map(|place| (place.rank, place.host.as_str(), place.device.as_deref())).collect();
            assert_eq!(places, [0, 1].map(|rank| (rank, "a", Some("device\u{1b}0"))));
            let text = short_text(&line, &seen);
            assert!(text.contains("\n  rank 0 on a, device\\u{1b}0: in call 2"), "{text}");
            assert!(text.contains("\n  rank 1 on a, device\\u{1b}0: "), "{text}");
        }
    }
}
