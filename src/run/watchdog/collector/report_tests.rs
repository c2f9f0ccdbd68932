//! Reports of hangs with a known cause.

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
            let mut state = super::super::super::wire::RankState { rank, ..Default::default() };
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
            "rank 2 does not come to call 100; the other group is through and waits in the barrier after it",
            LATE,
            vec![live(3, 203, 100, BARRIER), live(3, 203, 100, BARRIER), live(3, 200, 99, 0), live(3, 201, 100, CALL)],
            "2",
            vec![(NeverEntered, "2"), (EnteredNotFinished, "3"), (Finished, "0-1")],
            Some(100),
            Some("2-3"),
        ),
        (
            "rank 1 is stopped; what was last heard of it is long past",
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
            "all have entered, and one sleeps where the others look for what should come",
            LATE,
            vec![live(3, 5, 2, CALL), Rank { sleeps: true, ..live(3, 5, 2, CALL) }, live(3, 5, 2, CALL)],
            "1",
            vec![(EnteredNotFinished, "0-2")],
            Some(2),
            Some("0-1"),
        ),
        (
            "rank 0 died, and the launcher took rank 1 along",
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
            "rank 0 writes to a disk that does not answer",
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
            "rank 1 is stopped, and nobody watches rank 2 any more",
            LATE,
            vec![live(3, 5, 2, CALL), silent(3, 4, 1), Rank { status: RankStatus::Unwatched, ..silent(3, 1, 0) }],
            "1",
            vec![(StoppedAnswering, "1"), (EnteredNotFinished, "0"), (Unwatched, "2")],
            Some(2),
            Some("0-1"),
        ),
        (
            "all that are watched wait",
            LATE,
            vec![live(3, 5, 2, CALL), live(3, 5, 2, CALL), Rank { status: RankStatus::Unwatched, ..silent(3, 1, 0) }],
            "2",
            vec![(EnteredNotFinished, "0-1"), (Unwatched, "2")],
            Some(2),
            Some("2"),
        ),
        (
            "nobody answers",
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
    let ranks = [live(3, 203, 100, BARRIER), live(3, 203, 100, BARRIER), live(3, 200, 99, 0), live(3, 201, 100, CALL)];
    insta::assert_snapshot!(report(LATE, &ranks).1);
}

#[test]
fn sixteen_thousand_ranks_are_reported_in_a_few_lines() {
    let entry = |rank: u32| {
        let step = if rank == 9_999 { 200 } else { 201 };
        let state = super::super::super::wire::RankState {
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
    let seen: Vec<RankView> =
        entries.iter().map(|entry| RankView { entry, host: &hosts[entry.rank as usize / 8], answers: true }).collect();
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
        let mut state = super::super::super::wire::RankState { rank, ..Default::default() };
        state.shown = Shown { activity: 3, step, calls: 2, doing: CALL, peer: None, group: 0 };
        let process = Process { pid: 1, start: 1 };
        let (last_heartbeat, device) = (Instant::now(), device.map(Into::into));
        Entry { rank, status, state, last_heartbeat, process, detail: None, device, sleeps: false }
    };
    for (steps, sentence) in [
        ([5, 5], "all ranks have entered all_reduce, call 2 (c) and none stands out"),
        ([5, 7], "all ranks have entered all_reduce, call 2 (c); rank 1 on a came through it, the others did not"),
    ] {
        let entries = [0, 1].map(|rank| entry(rank, RankStatus::Live, Some("device\u{1b}0"), steps[rank as usize]));
        let seen = [0, 1].map(|rank: usize| RankView { entry: &entries[rank], host: "a", answers: true });
        let activity = |_| {
            Some(HungActivity { name: "c".into(), collective: Some("all_reduce".into()), ..HungActivity::default() })
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
