//! What ranks did at which time in the last repetition of a replay, small enough for a record and a page: exact spans, or slots of time of
//! which each shows what the rank did for most of it. Everything here is after the timed part.

use crate::backend::{Replayer, Span, SpanKind, ranks_with_spans};
use crate::world::{World, gather_all};
use commgauge_base::error::Result;
use commgauge_model::record::work_lines::{ActivitySpans, RankActivity, RankSpans, Timeline};
use commgauge_model::workload::replay::ReplayPlan;
use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::ops::Range;

/// Spans of all ranks together.
const MOST_SPANS: usize = 32_768;

const MOST_SPANS_OF_A_RANK: usize = 400;

/// Begin and length of each.
type Spans = BTreeMap<SpanKind, Vec<(u64, u64)>>;

/// Gathers the last repetition on process 0.
///
/// # Errors
/// If the processes cannot exchange them.
pub(super) fn gather(
    world: &dyn World,
    local_ranks: Range<u32>,
    replayer: &dyn Replayer,
    plan: &ReplayPlan,
) -> Result<Timeline> {
    let shown = ranks_with_spans(plan);
    let most = (MOST_SPANS / shown.len().max(1)).min(MOST_SPANS_OF_A_RANK);
    let mut resolution_nanoseconds = 0;
    let mut mine = Vec::new();
    for (local, rank) in local_ranks.enumerate().filter(|(_, rank)| shown.binary_search(rank).is_ok()) {
        let (slot, spans) = at_most(most, &replayer.spans(local));
        resolution_nanoseconds = slot.max(resolution_nanoseconds);
        let of_kind = |(kind, begin_and_length)| {
            let activity = match kind {
                SpanKind::Computing => RankActivity::Computing,
                SpanKind::Waiting { axis } => RankActivity::Waiting(plan.groups[axis].axis),
                SpanKind::InFlight { axis } => RankActivity::InFlight(plan.groups[axis].axis),
            };
            ActivitySpans { activity, begin_and_length }
        };
        let stage = plan.stage_of_rank[rank as usize];
        mine.push(RankSpans { rank, stage, spans: spans.into_iter().map(of_kind).collect() });
    }
    let all = gather_all::<(u64, Vec<RankSpans>)>(world, &(resolution_nanoseconds, mine))?;
    let resolution_nanoseconds = all.iter().map(|(slot, _)| *slot).max().unwrap_or(0);
    let mut ranks: Vec<RankSpans> = all.into_iter().flat_map(|(_, ranks)| ranks).collect();
    ranks.sort_by_key(|rank| rank.rank);
    Ok(Timeline { resolution_nanoseconds, ranks })
}

/// The spans, and 0; or, where there are more than `most`, the finest slots with at most that many, and their length.
fn at_most(most: usize, spans: &[Span]) -> (u64, Spans) {
    let exact = exact(spans);
    let count = |spans: &Spans| spans.values().map(Vec::len).sum::<usize>();
    if count(&exact) <= most {
        return (0, exact);
    }
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
    let mut slots = most as u64;
    loop {
        let slot = end.div_ceil(slots).max(1);
        let coarse = in_slots(slot, &exact);
        if count(&coarse) <= most || slots == 1 {
            return (slot, coarse);
        }
        slots = (slots / 4 * 3).max(1);
    }
}

/// In the order of time; those of one axis that overlap are one.
fn exact(spans: &[Span]) -> Spans {
    let mut sorted: Vec<&Span> = spans.iter().filter(|span| span.end > span.begin).collect();
    sorted.sort_unstable_by_key(|span| span.begin);
    let mut exact = Spans::new();
    for Span { kind, begin, end } in sorted {
        let known = exact.entry(*kind).or_default();
        match known.last_mut() {
            Some((first, length)) if *begin < *first + *length => *length = (*end).max(*first + *length) - *first,
            _ => known.push((*begin, end - begin)),
        }
    }
    exact
}

/// What the rank did for most of each slot: one of computing, waiting for an axis and nothing, and for each axis whether a call was in
/// flight.
fn in_slots(slot: u64, exact: &Spans) -> Spans {
    let times: BTreeMap<SpanKind, Vec<u64>> =
        exact.iter().map(|(kind, spans)| (*kind, time_in_slots(slot, spans))).collect();
    let slots = times.values().map(Vec::len).max().unwrap_or(0);
    let mut coarse = Spans::new();
    for at in 0..slots {
        let of_slot = times.iter().filter_map(|(kind, times)| Some((*kind, *times.get(at)?)));
        let (in_flight, alone): (Vec<_>, Vec<_>) =
            of_slot.partition(|(kind, _)| matches!(kind, SpanKind::InFlight { .. }));
        let nothing = slot.saturating_sub(alone.iter().map(|(_, time)| time).sum());
        let longest = alone.into_iter().max_by_key(|(_, time)| *time).filter(|(_, time)| *time > nothing);
        let in_flight = in_flight.into_iter().filter(|(_, time)| 2 * time > slot);
        for (kind, _) in longest.into_iter().chain(in_flight) {
            let (spans, begin) = (coarse.entry(kind).or_default(), at as u64 * slot);
            match spans.last_mut() {
                Some((first, length)) if *first + *length == begin => *length += slot,
                _ => spans.push((begin, slot)),
            }
        }
    }
    coarse
}

/// By slot, how much of it these spans take.
fn time_in_slots(slot: u64, spans: &[(u64, u64)]) -> Vec<u64> {
    let mut times: Vec<u64> = Vec::new();
    for (begin, length) in spans {
        let (mut at, end) = (*begin, begin + length);
        while at < end {
            let index = (at / slot) as usize;
            let next = end.min((index as u64 + 1) * slot);
            times.extend(repeat_n(0, (index + 1).saturating_sub(times.len())));
            times[index] += next - at;
            at = next;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPUTING: SpanKind = SpanKind::Computing;
    const WAITING: SpanKind = SpanKind::Waiting { axis: 2 };
    const IN_FLIGHT: SpanKind = SpanKind::InFlight { axis: 1 };

    fn span(kind: SpanKind, begin: u64, end: u64) -> Span {
        Span { kind, begin, end }
    }

    #[test]
    fn few_spans_stay_exact_and_calls_of_an_axis_that_overlap_are_one() {
        let spans = [
            span(IN_FLIGHT, 50, 90),
            span(COMPUTING, 0, 40),
            span(COMPUTING, 40, 60),
            span(IN_FLIGHT, 30, 60),
            span(WAITING, 60, 60),
        ];
        let (slot, all) = at_most(4, &spans);
        assert_eq!(slot, 0);
        assert_eq!(all[&COMPUTING], [(0, 40), (40, 20)], "passes stay apart");
        assert_eq!(all[&IN_FLIGHT], [(30, 60)]);
        assert_eq!(all.len(), 2, "no span without a length");
    }

    #[test]
    fn many_spans_become_slots_that_show_what_the_rank_did_for_most_of_each() {
        // 1,000 turns of 70 ns of computing and 20 of waiting, then 10,000 ns of waiting.
        let mut spans: Vec<Span> = (0..1_000)
            .flat_map(|turn| {
                let begin = turn * 100;
                [span(COMPUTING, begin, begin + 70), span(WAITING, begin + 70, begin + 90)]
            })
            .collect();
        spans.push(span(WAITING, 100_000, 110_000));
        let (slot, all) = at_most(100, &spans);
        assert!((1_000..2_000).contains(&slot), "{slot}");
        let [(begin, length)] = all[&COMPUTING][..] else { panic!("{all:?}") };
        assert!(begin == 0 && length.abs_diff(100_000) <= slot, "{length}");
        let [(begin, length)] = all[&WAITING][..] else { panic!("{all:?}") };
        assert!(begin.abs_diff(100_000) <= slot && length.abs_diff(10_000) <= slot, "{begin} {length}");
    }

    #[test]
    fn no_timeline_is_larger_than_its_bound_whatever_the_spans() {
        for (count, length, most) in
            [(5_000, 3, 64), (401, 1_000_000, 400), (3, 1, 1), (0, 1, 64), (9, u64::MAX / 16, 2)]
        {
            let spans: Vec<Span> = (0..count)
                .map(|at| span([COMPUTING, WAITING][at as usize % 2], at * length, (at + 1) * length))
                .collect();
            let (_, all) = at_most(most, &spans);
            assert!(all.values().map(Vec::len).sum::<usize>() <= most, "{count} {length} {most}: {all:?}");
        }
    }
}
