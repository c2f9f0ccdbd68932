//! A trace as the work of its ranks, for a replay: every call in order, with the computing between and during the calls.
//!
//! A replay covers the whole job: a trace that lacks ranks, has unknown calls or calls on unknown groups is refused.

use super::call::{CallKind, TracedCall};
use super::read::Trace;
use crate::trace::call::ComputingSpan;
use crate::trace::compare::{GroupPlace, TracedPlaces, callers_as_group};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::writing::ranges;
use commgauge_model::layout::{Axis, Groups, Layout};
use commgauge_model::workload::replay::{RecordedAction, RecordedCall, RecordedKind, RecordedRank, TracedReplay};
use std::collections::BTreeSet;

/// The work of the ranks, for a launch of `world` ranks.
///
/// # Errors
/// If the trace lacks ranks of the launch, has unknown calls, or lacks facts about its calls.
pub fn traced_replay(trace: &Trace, layout: Option<&Layout>, world: u32) -> Result<TracedReplay> {
    ensure_whole(trace, world)?;
    let places = CallPlaces::new(trace, layout)?;
    let mut calls_of: Vec<Vec<&TracedCall>> = vec![Vec::new(); world as usize];
    let mut idle = 0_u64;
    for call in &trace.calls {
        if places.is_alone(call.group) || is_empty(call) {
            idle += 1;
            continue;
        }
        calls_of[call.rank as usize].push(call);
    }
    let mut replay = TracedReplay {
        groups: places.groups.clone(),
        ranks: Vec::with_capacity(world as usize),
        job_nanoseconds: None,
        notes: trace.notes.clone(),
    };
    let mut without_times = Vec::new();
    for (rank, calls) in (0u32..).zip(&mut calls_of) {
        let ordered = of(calls, trace.computing.get(&rank).map_or(&[], Vec::as_slice));
        let recorded = calls.iter().map(|call| recorded(call, &places)).collect::<Result<_>>()?;
        if ordered.span_nanoseconds.is_none() {
            without_times.push(rank);
        }
        replay.job_nanoseconds = replay.job_nanoseconds.max(ordered.span_nanoseconds);
        replay.ranks.push(RecordedRank { calls: recorded, actions: ordered.actions });
    }
    if replay.ranks.iter().all(|rank| rank.calls.is_empty()) {
        return Err(Error::usage("the trace has no call between ranks; nothing to replay"));
    }
    if idle > 0 {
        replay.notes.push(format!("{idle} calls with one rank or no bytes are not replayed"));
    }
    if !without_times.is_empty() {
        let ranks = ranges(&without_times);
        replay.notes.push(format!(
            "the trace lacks the durations of the calls of ranks {ranks}: they are replayed in order, without computing between them"
        ));
    }
    Ok(replay)
}

/// Checks that the trace covers all ranks of the launch, and every call in it is known.
fn ensure_whole(trace: &Trace, world: u32) -> Result<()> {
    let ranks_of_job = trace.world.or(trace.ranks.last().map(|last| last + 1)).unwrap_or(0);
    if ranks_of_job != world {
        return Err(Error::usage(format!(
            "--trace: the job had {ranks_of_job} ranks, but this launch has {world}; accepted: a launch of {ranks_of_job} ranks"
        )));
    }
    let missing: Vec<u32> = (0..world).filter(|rank| !trace.ranks.contains(rank)).collect();
    if !missing.is_empty() {
        return Err(Error::usage(format!(
            "--trace: the files lack {} of {world} ranks: {}; accepted: a file of every rank",
            missing.len(),
            ranges(&missing)
        )));
    }
    if let Some((name, count)) = trace.unknown.first_key_value() {
        let all: u64 = trace.unknown.values().sum();
        return Err(Error::usage(format!(
            "--trace: {all} calls have an unknown kind, such as {name} ({count} times); without them it would be a different job. Accepted: collectives and messages of PyTorch and NCCL"
        )));
    }
    Ok(())
}

/// Whether a call moves nothing and waits for no rank.
fn is_empty(call: &TracedCall) -> bool {
    call.bytes_total.0 == 0
        && call.kind != CallKind::Collective(Collective::Barrier)
        && call.detail.elements_to_each.is_none()
}

fn recorded(call: &TracedCall, places: &CallPlaces) -> Result<RecordedCall> {
    let CallPlace { groups, peers } = places.of(call.group, call.rank)?;
    let lacks = |what: &str, rest: &str| {
        let TracedCall { kind, bytes_total, rank, .. } = call;
        Error::usage(format!("--trace: the trace lacks the {what} of {kind} of {bytes_total} on rank {rank}{rest}"))
    };
    let peer = || {
        let of_more = ", whose group has more than two ranks";
        peers.of(call.detail.peer).ok_or_else(|| lacks("other end", of_more))
    };
    let kind = match call.kind {
        CallKind::Collective(collective) => RecordedKind::Together(collective),
        CallKind::Send => RecordedKind::Send { to: peer()? },
        CallKind::Receive => RecordedKind::Receive { from: peer()? },
    };
    let element = match (call.element, kind) {
        (Some(element), _) => element,
        (None, RecordedKind::Together(Collective::Barrier)) => ElementType::Uint8,
        (None, _) => return Err(lacks("type", "; accepted: traces of PyTorch or NCCL's log")),
    };
    Ok(RecordedCall {
        groups,
        kind,
        element,
        bytes_total: call.bytes_total,
        elements_to_each: call.detail.elements_to_each.as_ref().map(|counts| peers.in_order(counts)),
        sequence: call.detail.sequence,
    })
}

// Maps the groups and ranks of a trace to those of the layout.

/// The groups of all calls.
struct CallPlaces {
    groups: Vec<Groups>,
    /// By group of the trace: its ranks in the trace's order, and the index of its axis among `groups`; none for a group of one rank.
    places: Vec<Option<(Vec<u32>, usize)>>,
}

struct CallPlace<'a> {
    pub groups: usize,
    pub peers: Peers<'a>,
}

/// The ranks of a group in the trace's order and in the layout's.
struct Peers<'a> {
    traced: &'a [u32],
    members: &'a [u32],
    me: u32,
}

impl Peers<'_> {
    /// The other end of a message as a rank within the layout's group; the trace numbers it in its own order, and in a group of two it is
    /// the other rank.
    fn of(&self, peer: Option<u32>) -> Option<u32> {
        let world_rank = match peer {
            Some(peer) => *self.traced.get(peer as usize)?,
            None if self.traced.len() == 2 => *self.traced.iter().find(|rank| **rank != self.me)?,
            None => return None,
        };
        self.members.iter().position(|rank| *rank == world_rank).map(|at| at as u32)
    }

    /// Counts for each rank of the trace's group, in the order of the layout's.
    fn in_order(&self, counts: &[u64]) -> Vec<u64> {
        let count_of =
            |rank: &u32| self.traced.iter().position(|traced| traced == rank).and_then(|at| counts.get(at)).copied();
        self.members.iter().filter_map(count_of).collect()
    }
}

impl CallPlaces {
    /// Finds the axis of every group with calls.
    fn new(trace: &Trace, layout: Option<&Layout>) -> Result<CallPlaces> {
        let used: BTreeSet<usize> = trace.calls.iter().map(|call| call.group).collect();
        let trace = groups_with_ranks(trace)?;
        let named = TracedPlaces::new(&trace, layout);
        let mut groups: Vec<Groups> = Vec::new();
        let mut places = Vec::with_capacity(trace.groups.len());
        for (index, group) in trace.groups.iter().enumerate() {
            let ranks = group.ranks.clone().unwrap_or_default();
            if ranks.len() < 2 || !used.contains(&index) {
                places.push(None);
                continue;
            }
            let of_axis = groups_of(named.of(index), &ranks, trace.world, layout)?;
            let at = groups.iter().position(|known| known.axis == of_axis.axis).unwrap_or_else(|| {
                groups.push(of_axis);
                groups.len() - 1
            });
            places.push(Some((ranks, at)));
        }
        Ok(CallPlaces { groups, places })
    }

    /// Whether a group has one rank only.
    fn is_alone(&self, group: usize) -> bool {
        self.places[group].is_none()
    }

    /// The place of a call of a rank on a group of the trace.
    fn of(&self, group: usize, rank: u32) -> Result<CallPlace<'_>> {
        let outside = || {
            Error::usage(format!(
                "--trace: rank {rank} has a call on a group without it; accepted: the traces of one job"
            ))
        };
        let (traced, at) = self.places[group].as_ref().ok_or_else(outside)?;
        let groups = &self.groups[*at];
        let place = groups.place_of(rank).filter(|_| traced.contains(&rank)).ok_or_else(outside)?;
        Ok(CallPlace { groups: *at, peers: Peers { traced, members: &groups.groups[place.group], me: rank } })
    }
}

/// The groups of an axis of the layout, or all ranks.
fn groups_of(place: &GroupPlace, ranks: &[u32], world: Option<u32>, layout: Option<&Layout>) -> Result<Groups> {
    match (place, layout, world) {
        (GroupPlace::Axis(axis), Some(layout), _) => Ok(layout.groups(*axis)),
        (GroupPlace::Shape(shape), _, Some(world)) if shape == Axis::World.name() => Ok(Groups::world(world)),
        _ => Err(Error::usage(format!(
            "--trace: calls are on a group of ranks {} ({}), which is not in the layout; accepted: the degrees of the job (--tp, --dp, ..., \
             --order)",
            commgauge_base::writing::ranges(ranks),
            place.name()
        ))),
    }
}

/// The groups of a trace with their ranks, without calls. If the trace lacks the ranks, they are the callers.
fn groups_with_ranks(trace: &Trace) -> Result<Trace> {
    let callers = trace.callers();
    let world = trace.world.or(Some(trace.ranks.len() as u32));
    let mut groups = Trace { world, groups: trace.groups.clone(), ..Trace::default() };
    for (index, group) in groups.groups.iter_mut().enumerate() {
        let (None, Some(callers)) = (&group.ranks, callers.get(&index)) else { continue };
        group.ranks = callers_as_group(group, callers, true);
        if group.ranks.is_none() {
            let size = group.size.map_or_else(String::new, |size| format!(" of {size} ranks"));
            return Err(Error::usage(format!(
                "--trace: the trace lacks the ranks of a group{size} that {} ranks call on; accepted: traces of NCCL, dumps of the \
                 flight recorder, execution traces",
                callers.len()
            )));
        }
    }
    Ok(groups)
}

// The calls of a rank in order, with the computing between and during them.
//
// The order of all starts and ends is that of the job: what came after the end of a call comes after it in the replay. Time without a call
// in flight counts as computing, whatever the rank did. During a call only the device's computing in the trace counts; the rest was
// waiting, which the replay finds by itself.

/// What a rank did.
struct Ordered {
    pub actions: Vec<RecordedAction>,
    /// From its first call to the end of its last, if the trace has durations.
    pub span_nanoseconds: Option<u64>,
}

/// A beginning or an end of a call.
#[derive(Clone, Copy)]
struct Moment {
    at: u64,
    call: usize,
    begins: bool,
}

/// Orders the calls of a rank by their starts, and returns the rank's work.
fn of(calls: &mut [&TracedCall], computing: &[ComputingSpan]) -> Ordered {
    let is_timed = |call: &&TracedCall| call.detail.begin_nanoseconds.is_some();
    if calls.iter().all(is_timed) {
        calls.sort_by_key(|call| call.detail.begin_nanoseconds);
    }
    if calls.is_empty() || !calls.iter().all(is_timed) || calls.iter().all(|call| call.duration.is_none()) {
        let one_by_one = |call| [RecordedAction::Start { call }, RecordedAction::Wait { call }];
        return Ordered { actions: (0..calls.len()).flat_map(one_by_one).collect(), span_nanoseconds: None };
    }
    let moments = moments(calls);
    let mut actions = Vec::with_capacity(3 * calls.len());
    let (mut now, mut in_flight) = (moments[0].at, 0u32);
    let mut spans = Spans { computing, next: 0 };
    for moment in &moments {
        let nanoseconds = if in_flight == 0 { moment.at - now } else { spans.within(now..moment.at) };
        if nanoseconds > 0 {
            actions.push(RecordedAction::Compute { nanoseconds });
        }
        now = moment.at;
        match moment.begins {
            true => in_flight += 1,
            false => in_flight -= 1,
        }
        let call = moment.call;
        actions.push(if moment.begins { RecordedAction::Start { call } } else { RecordedAction::Wait { call } });
    }
    Ordered { actions, span_nanoseconds: Some(now - moments[0].at) }
}

/// The starts and ends in order. A call of unknown duration ends where it starts.
fn moments(calls: &[&TracedCall]) -> Vec<Moment> {
    let mut moments = Vec::with_capacity(2 * calls.len());
    for (call, traced) in calls.iter().enumerate() {
        let begin = traced.detail.begin_nanoseconds.unwrap_or(0);
        let nanoseconds = nanoseconds(traced);
        moments.push(Moment { at: begin, call, begins: true });
        moments.push(Moment { at: begin.saturating_add(nanoseconds), call, begins: false });
    }
    // At the same time, ends come before starts of other calls, but never before the call's own start.
    moments.sort_by_key(|moment| {
        let of_no_time = nanoseconds(calls[moment.call]) == 0;
        (moment.at, moment.begins || of_no_time)
    });
    moments
}

/// The duration of a call, 0 if unknown.
fn nanoseconds(call: &TracedCall) -> u64 {
    call.duration.map_or(0, |duration| (duration.0 * 1e9).round() as u64)
}

/// The spans of a rank, visited once.
struct Spans<'a> {
    computing: &'a [ComputingSpan],
    next: usize,
}

impl Spans<'_> {
    /// Nanoseconds of computing within a period; periods come in order.
    fn within(&mut self, time: ComputingSpan) -> u64 {
        while self.computing.get(self.next).is_some_and(|span| span.end <= time.start) {
            self.next += 1;
        }
        let here = self.computing[self.next..].iter().take_while(|span| span.start < time.end);
        here.map(|span| span.end.min(time.end).saturating_sub(span.start.max(time.start))).sum()
    }
}

#[cfg(test)]
mod tests {
    // The work of ranks, from traces made by hand.
    use super::*;
    use crate::trace::call::{CallDetail, TracedGroup};
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
    fn times_without_calls_are_computing_and_during_calls_what_the_device_computed() {
        // 0: 10 to 20 us; 1: 30 to 60, during which 2 runs from 40 to 50; the device computes from 25 to 45 and 55 to 58.
        let mut trace = trace(vec![
            timed(0, 30, 30),
            timed(0, 10, 10),
            timed(0, 40, 10),
            timed(1, 10, 1),
            timed(1, 20, 1),
            timed(1, 30, 1),
        ]);
        trace.computing.insert(0, vec![25_000..45_000, 55_000..58_000]);
        let replay = traced_replay(&trace, None, 2).unwrap();
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
        let replay = traced_replay(&trace, None, 2).unwrap();
        assert_eq!(replay.ranks[1].actions, [Start { call: 0 }, Wait { call: 0 }, Start { call: 1 }, Wait { call: 1 }]);
        assert_eq!(replay.job_nanoseconds, None);
        assert!(replay.notes[0].contains("lacks the durations of the calls of ranks 0-1"), "{:?}", replay.notes);
    }

    /// Two groups of two ranks, of which the trace has only the names, and all four.
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
    fn groups_known_by_name_only_consist_of_the_ranks_that_call_on_them() {
        let trace = four(&[("1", &[0, 1]), ("2", &[2, 3]), ("3", &[0, 2]), ("4", &[1, 3]), ("0", &[0, 1, 2, 3])]);
        let replay = traced_replay(&trace, Some(&layout(2, 2)), 4).unwrap();
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
        let replay = traced_replay(&trace, None, 4).unwrap();
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
                "the job had 2 ranks, but this launch has 4; accepted: a launch of 2 ranks",
            ),
            ("a rank missing", one_rank, None, 2, "the files lack 1 of 2 ranks: 1"),
            ("an unknown call", unknown, None, 2, "3 calls have an unknown kind, such as nccl:fancy"),
            ("no type", untyped, None, 2, "lacks the type of all_reduce of 64 B on rank 1"),
            ("no group", nameless, None, 2, "lacks the ranks of a group that 2 ranks call on"),
            (
                "a group of others",
                smaller,
                Some(layout(2, 2)),
                4,
                "lacks the ranks of a group of 4 ranks that 2 ranks call on",
            ),
            (
                "no axis",
                four(&[("1", &[0, 3]), ("2", &[1, 2])]),
                Some(layout(2, 2)),
                4,
                "ranks 0,3 (2 ranks, stride 3), which is not in the layout",
            ),
            (
                "no layout",
                four(&[("1", &[0, 1]), ("2", &[2, 3])]),
                None,
                4,
                "accepted: the degrees of the job (--tp, --dp, ..., --order)",
            ),
            ("no other end", far, None, 4, "lacks the other end of send of 64 B on rank 0"),
            ("nothing", trace(vec![]), None, 2, "nothing to replay"),
        ] {
            let error = traced_replay(&trace, layout.as_ref(), world).expect_err(what);
            assert!(error.to_string().contains(words) && error.exit_code() == 2, "{what}: {error}");
        }
    }
}
