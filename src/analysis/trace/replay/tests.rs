//! What ranks did, from traces made by hand.

use super::*;
use crate::trace::trace_file::{CallDetail, TracedGroup};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees};
use commgauge_model::workload::replay::RecordedAction::{Compute, Start, Wait};

const REDUCE: CallKind = CallKind::Collective(Collective::AllReduce);

/// A call of 64 bytes on group 0, in microseconds.
fn timed(rank: u32, begin: u64, microseconds: u64) -> TracedCall {
    TracedCall {
        rank,
        kind: REDUCE,
        element: Some(ElementType::Bfloat16),
        bytes_total: Bytes(64),
        group: 0,
        duration: Some(Seconds(microseconds as f64 * 1e-6)),
        detail: CallDetail { begin_nanoseconds: Some(begin * 1000), ..CallDetail::default() },
    }
}

/// A job of two ranks.
fn trace(calls: Vec<TracedCall>) -> Trace {
    let group = TracedGroup { name: "0".to_owned(), ranks: Some(vec![0, 1]), size: Some(2) };
    Trace { ranks: [0, 1].into(), world: Some(2), groups: vec![group], calls, ..Trace::default() }
}

#[test]
fn times_without_calls_are_computing_and_beside_calls_what_the_device_computed() {
    // 0: 10 to 20 us; 1: 30 to 60, beside which 2 comes from 40 to 50; of 25 to 45 and 55 to 58 the device computes.
    let mut trace = trace(vec![
        timed(0, 30, 30),
        timed(0, 10, 10),
        timed(0, 40, 10),
        timed(1, 10, 1),
        timed(1, 20, 1),
        timed(1, 30, 1),
    ]);
    trace.computing.insert(0, vec![25_000..45_000, 55_000..58_000]);
    let replay = TracedReplay::new(&trace, None, 2).unwrap();
    let compute = |microseconds: u64| Compute { nanoseconds: microseconds * 1000 };
    let expected = [
        Start { call: 0 },
        Wait { call: 0 },
        compute(10),
        Start { call: 1 },
        compute(10),
        Start { call: 2 },
        compute(5),
        Wait { call: 2 },
        compute(3),
        Wait { call: 1 },
    ];
    assert_eq!(replay.ranks[0].actions, expected);
    assert_eq!(replay.job_nanoseconds, Some(50_000));
    assert!(replay.notes.is_empty(), "{:?}", replay.notes);
    replay.plan(|_| true).unwrap();
}

#[test]
fn calls_without_durations_come_in_order_without_computing_and_that_is_said() {
    let calls = [0, 1].iter().flat_map(|rank| [timed(*rank, 10, 1), timed(*rank, 20, 1)]);
    let trace = trace(calls.map(|call| TracedCall { duration: None, ..call }).collect());
    let replay = TracedReplay::new(&trace, None, 2).unwrap();
    assert_eq!(replay.ranks[1].actions, [Start { call: 0 }, Wait { call: 0 }, Start { call: 1 }, Wait { call: 1 }]);
    assert_eq!(replay.job_nanoseconds, None);
    assert!(replay.notes[0].contains("does not say how long the calls of ranks 0-1 took"), "{:?}", replay.notes);
}

/// Two groups of two ranks, of which the trace says only the names, and all four.
fn four(layout_of: &[(&str, &[u32])]) -> Trace {
    let group = |(name, _): &(&str, &[u32])| TracedGroup { name: (*name).to_owned(), ranks: None, size: None };
    let calls = layout_of.iter().enumerate().flat_map(|(group, (_, ranks))| {
        ranks.iter().map(move |rank| TracedCall { group, ..timed(*rank, 10 * group as u64 + 1, 1) })
    });
    let groups = layout_of.iter().map(group).collect();
    Trace { ranks: (0..4).collect(), world: Some(4), groups, calls: calls.collect(), ..Trace::default() }
}

fn layout(tp: u32, dp: u32) -> Layout {
    Layout::new(Degrees { tp, cp: 1, dp, pp: 1, ep: 1, etp: tp }, &DEFAULT_ORDER).unwrap()
}

#[test]
fn groups_of_which_only_names_are_known_are_of_those_that_call_on_them() {
    let trace = four(&[("1", &[0, 1]), ("2", &[2, 3]), ("3", &[0, 2]), ("4", &[1, 3]), ("0", &[0, 1, 2, 3])]);
    let replay = TracedReplay::new(&trace, Some(&layout(2, 2)), 4).unwrap();
    let axes: Vec<Axis> = replay.groups.iter().map(|groups| groups.axis).collect();
    assert_eq!(axes, [Axis::Tp, Axis::Dp, Axis::World]);
    assert_eq!(replay.ranks[3].calls.iter().map(|call| call.groups).collect::<Vec<_>>(), [0, 1, 2]);
    replay.plan(|_| true).unwrap();
}

#[test]
fn the_other_end_of_a_message_is_found_in_the_order_of_the_layout() {
    let group = TracedGroup { name: "7".to_owned(), ranks: Some(vec![3, 1, 0, 2]), size: Some(4) };
    let message = |rank, kind, peer| TracedCall {
        kind,
        detail: CallDetail { peer: Some(peer), begin_nanoseconds: Some(5), ..CallDetail::default() },
        ..timed(rank, 10, 1)
    };
    // Rank 0 sends to the second of the group, which is rank 1.
    let calls = vec![message(0, CallKind::Send, 1), message(1, CallKind::Receive, 2)];
    let trace = Trace { ranks: (0..4).collect(), world: Some(4), groups: vec![group], calls, ..Trace::default() };
    let replay = TracedReplay::new(&trace, None, 4).unwrap();
    assert_eq!(replay.ranks[0].calls[0].kind, RecordedKind::Send { to: 1 });
    assert_eq!(replay.ranks[1].calls[0].kind, RecordedKind::Receive { from: 0 });
    replay.plan(|_| true).unwrap();
}

#[test]
fn a_trace_that_is_not_whole_or_says_too_little_is_refused_with_what_is_missing() {
    let usual = || trace(vec![timed(0, 10, 1), timed(1, 10, 1)]);
    let mut one_rank = usual();
    one_rank.ranks.remove(&1);
    let mut unknown = usual();
    unknown.unknown.insert("nccl:fancy".to_owned(), 3);
    let mut untyped = usual();
    untyped.calls[1].element = None;
    let mut nameless = usual();
    nameless.groups[0] = TracedGroup { name: String::new(), ranks: None, size: None };
    let mut smaller = four(&[("1", &[0, 1])]);
    smaller.groups[0].size = Some(4);
    let mut far = four(&[("1", &[0, 1, 2, 3])]);
    far.groups[0].ranks = Some(vec![0, 1, 2, 3]);
    far.calls.iter_mut().for_each(|call| call.kind = CallKind::Send);
    for (what, trace, layout, world, words) in [
        (
            "another launch",
            usual(),
            None,
            4,
            "the job had 2 ranks, and this launch has 4; accepted: a launch of 2 ranks",
        ),
        ("a rank missing", one_rank, None, 2, "of 2 ranks 1 are not in the files: 1"),
        ("an unknown call", unknown, None, 2, "3 calls are of a kind that is not known, such as nccl:fancy"),
        ("no type", untyped, None, 2, "does not say the type of all_reduce of 64 B on rank 1"),
        ("no group", nameless, None, 2, "does not say which ranks are in a group that 2 ranks call on"),
        ("a group of others", smaller, Some(layout(2, 2)), 4, "in a group of 4 ranks that 2 ranks call on"),
        (
            "no axis",
            four(&[("1", &[0, 3]), ("2", &[1, 2])]),
            Some(layout(2, 2)),
            4,
            "ranks 0,3 (2 ranks, stride 3), which is none of the layout",
        ),
        (
            "no layout",
            four(&[("1", &[0, 1]), ("2", &[2, 3])]),
            None,
            4,
            "accepted: the degrees of the job (--tp, --dp, ..., --order)",
        ),
        ("no other end", far, None, 4, "does not say the other end of send of 64 B on rank 0"),
        ("nothing", trace(vec![]), None, 2, "nothing to be replayed"),
    ] {
        let error = TracedReplay::new(&trace, layout.as_ref(), world).expect_err(what);
        assert!(error.to_string().contains(words) && error.exit_code() == 2, "{what}: {error}");
    }
}
