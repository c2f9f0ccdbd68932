//! The rules: which calls are compared with which. Significance is left to the caller.

use super::check::{Check, CheckedTimes, Timed};
use crate::verdict::finding::Guideline;
use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::three_digits;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, HashMap};

/// A collective, and the collectives that together do the same with the same `bytes_total`.
const MADE_OF: [(Collective, &[Collective]); 11] = [
    (AllReduce, &[ReduceScatter, AllGather]),
    (AllReduce, &[Reduce, Broadcast]),
    (Broadcast, &[Scatter, AllGather]),
    (Reduce, &[ReduceScatter, Gather]),
    (Reduce, &[AllReduce]),
    (ReduceScatter, &[AllReduce]),
    (ReduceScatter, &[Reduce, Scatter]),
    (AllGather, &[Gather, Broadcast]),
    (AllGather, &[AllToAll]),
    (Gather, &[AllGather]),
    (Scatter, &[Broadcast]),
];

/// What must be equal for calls to be comparable.
type Key<'a> = (Axis, &'a Locality, [u32; 2], Placement, Cadence, bool, &'a BTreeMap<String, String>);

fn key<'a>(facts: &'a CaseFacts) -> Key<'a> {
    let alone = facts.solo_of.is_some();
    (
        facts.axis,
        &facts.locality,
        [facts.group_size, facts.groups],
        facts.placement,
        facts.cadence,
        alone,
        &facts.labels,
    )
}

/// What must also be equal along a curve.
fn curve(facts: &CaseFacts) -> (Collective, ElementType, Option<ReduceOp>, Option<u32>) {
    (facts.collective, facts.element_type, facts.reduce_op, facts.root)
}

/// Every comparison that the cases allow, in their order.
pub(super) fn checks<'a>(cases: &[Timed<'a>]) -> Vec<Check<'a>> {
    let usable: Vec<&Timed> = cases.iter().filter(|case| is_usable(case)).collect();
    let mut alike: Vec<Vec<&Timed>> = Vec::new();
    let mut index: HashMap<Key, usize> = HashMap::new();
    for case in usable {
        let at = *index.entry(key(case.facts)).or_insert(alike.len());
        if at == alike.len() {
            alike.push(Vec::new());
        }
        alike[at].push(case);
    }
    alike.iter().flat_map(|cases| along_curves(cases).into_iter().chain(made_of_others(cases))).collect()
}

fn is_usable(case: &Timed) -> bool {
    let facts = case.facts;
    facts.collective != Barrier && facts.splits.is_none() && facts.bytes_total.0 > 0 && !case.seconds.is_empty()
}

fn along_curves<'a>(cases: &[&Timed<'a>]) -> Vec<Check<'a>> {
    let mut curves: Vec<Vec<&Timed<'a>>> = Vec::new();
    for case in cases {
        match curves.iter_mut().find(|known| curve(known[0].facts) == curve(case.facts)) {
            Some(known) => known.push(case),
            None => curves.push(vec![case]),
        }
    }
    for curve in &mut curves {
        curve.sort_by_key(|case| case.facts.bytes_total);
        curve.dedup_by_key(|case| case.facts.bytes_total);
    }
    let steps = curves.iter().flat_map(|curve| curve.windows(2)).flat_map(|pair| [split(pair), less_time(pair)]);
    let dips = curves.iter().flat_map(|curve| curve.windows(3)).map(dip);
    steps.chain(dips).flatten().collect()
}

/// T(b) is at most ceil(b/a) T(a).
fn split<'a>(pair: &[&Timed<'a>]) -> Option<Check<'a>> {
    let times = pair[1].facts.bytes_total.0.div_ceil(pair[0].facts.bytes_total.0) as f64;
    check(Guideline::SplitIsFaster, pair[1], &[pair[0]], |smaller| smaller[0] * times)
}

/// T(a) is at most T(b).
fn less_time<'a>(pair: &[&Timed<'a>]) -> Option<Check<'a>> {
    check(Guideline::MoreBytesAreFaster, pair[0], &[pair[1]], |larger| larger[0])
}

/// T(b)/b is at most the larger of T(a)/a and T(c)/c.
fn dip<'a>(three: &[&Timed<'a>]) -> Option<Check<'a>> {
    let [a, b, c] = [0, 1, 2].map(|at| three[at].facts.bytes_total.0 as f64);
    check(Guideline::Dip, three[1], &[three[0], three[2]], |times| b * (times[0] / a).max(times[1] / c))
}

fn made_of_others<'a>(cases: &[&Timed<'a>]) -> Vec<Check<'a>> {
    let mut found = Vec::new();
    let mut index: HashMap<(Collective, u64, ElementType), &Timed<'a>> = HashMap::new();
    for case in cases {
        let facts = case.facts;
        index.entry((facts.collective, facts.bytes_total.0, facts.element_type)).or_insert(case);
    }
    for slow in cases {
        let rules = MADE_OF.iter().filter(|(whole, _)| *whole == slow.facts.collective);
        for (_, parts) in rules {
            let part =
                |part: &Collective| index.get(&(*part, slow.facts.bytes_total.0, slow.facts.element_type)).copied();
            let parts: Option<Vec<&Timed>> = parts.iter().map(part).collect();
            let sum = |times: &[f64]| times.iter().sum();
            found.extend(parts.and_then(|parts| check(Guideline::OthersTogetherAreFaster, slow, &parts, sum)));
        }
    }
    found
}

/// A comparison over the replicates that all calls have; none without a common replicate.
fn check<'a>(
    guideline: Guideline,
    slow: &Timed<'a>,
    against: &[&Timed<'a>],
    allowed: impl Fn(&[f64]) -> f64,
) -> Option<Check<'a>> {
    let of_replicate = |(replicate, seconds): (&usize, &f64)| {
        let others: Option<Vec<f64>> = against.iter().map(|case| case.seconds.get(replicate).copied()).collect();
        Some(CheckedTimes { slow: *seconds, allowed: allowed(&others?) })
    };
    let times: Vec<CheckedTimes> = slow.seconds.iter().filter_map(of_replicate).collect();
    let against = against.iter().map(|case| case.facts).collect();
    (!times.is_empty()).then_some(Check { guideline, slow: slow.facts, against, times })
}

/// A finding for people: what is slow, by how much, and what it is compared with.
pub(super) fn sentence(check: &Check, times_allowed: f64) -> String {
    let name = &check.slow.name;
    let more = format!("{} %", three_digits((times_allowed - 1.0) * 100.0));
    let other = |at: usize| check.against.get(at).map_or("", |facts| facts.name.as_str());
    match check.guideline {
        Guideline::SplitIsFaster => {
            let smaller = check.against.first().map_or(1, |facts| facts.bytes_total.0.max(1));
            let times = check.slow.bytes_total.0.div_ceil(smaller);
            format!("{name} takes {more} longer than {times} calls of {}", other(0))
        }
        Guideline::MoreBytesAreFaster => format!("{name} takes {more} longer than {}, which has more bytes", other(0)),
        Guideline::OthersTogetherAreFaster => {
            let parts: Vec<&str> = check.against.iter().map(|facts| facts.name.as_str()).collect();
            format!("{name} takes {more} longer than {}, which does the same", parts.join(" and "))
        }
        Guideline::Dip => {
            format!(
                "{name} dips: {more} more time for each byte than the slower of its neighbours {} and {}",
                other(0),
                other(1)
            )
        }
    }
}
