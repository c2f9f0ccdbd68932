//! The order of the parallelisms by one measure, its confidence, and the fate of the rule TP > DP > PP.

use crate::planner::communication::{OpCost, localities, span};
use crate::planner::rates::Rates;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::random::normal;
use commgauge_base::stats::Span;
use commgauge_model::layout::{Axis, Layout, Locality};
use commgauge_model::workload::step::Step;
use commgauge_model::workload::{Family, Measure, Op};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Below this probability an order is a tie.
pub const TIE: f64 = 0.95;

/// The parallelisms by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub measure: Measure,
    pub places: Vec<OrderPlace>,
    /// Share of resamples with exactly this order; `None` if no interval is known.
    pub probability: Option<f64>,
    /// Status of TP > DP > PP among the parallelisms in use.
    pub rule: Rule,
    /// Those of them that the rule is about, the largest first.
    pub of_rule: Vec<OrderPlace>,
    /// Share of resamples in which the rule is true.
    pub rule_probability: Option<f64>,
    /// Ops without a time, and why; `places` is then incomplete.
    pub incomplete: Vec<String>,
}

/// A parallelism in an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderPlace {
    pub family: Family,
    /// Bytes or seconds of a step.
    pub value: Span,
    /// Share of resamples in which it is larger than the next; `None` for the last, and if no interval is known.
    pub probability_above_next: Option<f64>,
}

/// Status of the rule TP > DP > PP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The rule is true among the parallelisms in use.
    Holds,
    /// The rule is false.
    DoesNotHold,
    /// The intervals are too wide to decide.
    Tie,
    /// Some calls have no time.
    NotKnown,
    /// Fewer than two of its parallelisms communicate.
    NothingToCompare,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Rule::Holds => "holds",
            Rule::DoesNotHold => "does not hold",
            Rule::Tie => "tie",
            Rule::NotKnown => "not known",
            Rule::NothingToCompare => "nothing to compare",
        }
    }
}

/// A parallelism with its value, and the values of the resamples.
struct Member {
    family: Family,
    value: Span,
    drawn: Option<Vec<f64>>,
}

impl Order {
    pub(super) fn of(measure: Measure, priced: &[Priced], draws: &mut Draws) -> Order {
        let mut incomplete = Vec::new();
        let mut members = Vec::new();
        for family in Family::ALL {
            let own: Vec<&Priced> = priced.iter().filter(|op| Family::of(op.op.axis) == Some(family)).collect();
            if own.is_empty() {
                continue;
            }
            let amounts: Vec<Option<Span>> = own.iter().map(|op| op.amount(measure)).collect();
            let lacking = amounts.iter().filter(|amount| amount.is_none()).count();
            if let Some(op) = own.iter().zip(&amounts).find(|(_, amount)| amount.is_none()).map(|(op, _)| op) {
                let reason = op.cost.call.reason.as_deref().unwrap_or("no answer");
                incomplete.push(format!("{}: {lacking} of {} ops without a time: {reason}", family.name(), own.len()));
            }
            let value = amounts.into_iter().flatten().fold(Span::exact(0.0), Span::plus);
            members.push(Member { family, value, drawn: drawn(measure, &own, value, draws) });
        }
        members.sort_by(|a, b| b.value.middle.total_cmp(&a.value.middle));
        let (rule, rule_probability) = rule(&members, &incomplete);
        let all: Option<Vec<&Vec<f64>>> = members.iter().map(|member| member.drawn.as_ref()).collect();
        let probability = all.filter(|_| incomplete.is_empty()).map(|drawn| descending(&drawn));
        let of_rule = members.iter().filter(|member| Family::RULE.contains(&member.family));
        let of_rule = places(&of_rule.collect::<Vec<_>>());
        let places = places(&members.iter().collect::<Vec<_>>());
        Order { measure, places, probability, rule, of_rule, rule_probability, incomplete }
    }

    /// `TP > DP = PP`, with `=` for a tie and `?` for an order of unknown probability.
    pub fn text(&self) -> String {
        text_of(&self.places)
    }

    /// The verdict on the rule: `does not hold: DP > TP > PP`.
    pub fn rule_text(&self) -> String {
        match self.rule {
            Rule::Holds | Rule::DoesNotHold if self.rule_probability.is_none() => {
                "not known: too few samples for an interval".to_owned()
            }
            Rule::Holds => "holds".to_owned(),
            Rule::DoesNotHold | Rule::Tie => format!("{}: {}", self.rule.name(), text_of(&self.of_rule)),
            Rule::NotKnown => format!("not known, {}", self.incomplete.join("; ")),
            Rule::NothingToCompare => "nothing to compare: fewer than two of its axes communicate".to_owned(),
        }
    }
}

/// The parallelisms in the order of places, with `=` for a tie and `?` for an order of unknown probability.
pub fn text_of(places: &[OrderPlace]) -> String {
    let mut text = String::new();
    for (index, place) in places.iter().enumerate() {
        text += place.family.name();
        if index + 1 < places.len() {
            text += match place.probability_above_next {
                Some(probability) if probability >= TIE => " > ",
                Some(_) => " = ",
                None => " ? ",
            };
        }
    }
    text
}

fn places(members: &[&Member]) -> Vec<OrderPlace> {
    let above_next =
        |index: usize| Some(descending(&[members[index].drawn.as_ref()?, members.get(index + 1)?.drawn.as_ref()?]));
    let place = |(index, member): (usize, &&Member)| OrderPlace {
        family: member.family,
        value: member.value,
        probability_above_next: above_next(index),
    };
    members.iter().enumerate().map(place).collect()
}

/// The resamples of a parallelism: drawn for times, all the same for bytes.
fn drawn(measure: Measure, own: &[&Priced], value: Span, draws: &mut Draws) -> Option<Vec<f64>> {
    match measure {
        Measure::PayloadBytes | Measure::WireBytes => Some(vec![value.middle]),
        Measure::Time => draws.sums(own.iter().copied()),
        Measure::ExposedTime => draws.sums(own.iter().copied().filter(|op| op.op.overlap.is_exposed())),
    }
}

/// The share of resamples in which values fall from one to the next.
fn descending(drawn: &[&Vec<f64>]) -> f64 {
    let resamples = drawn.first().map_or(0, |first| first.len());
    let falls = |index: usize| drawn.windows(2).all(|pair| pair[0].get(index) > pair[1].get(index));
    share(resamples, falls)
}

fn rule(members: &[Member], incomplete: &[String]) -> (Rule, Option<f64>) {
    let of = |family: &Family| members.iter().find(|member| member.family == *family);
    let ruled: Vec<&Member> = Family::RULE.iter().filter_map(of).collect();
    if ruled.len() < 2 {
        return (Rule::NothingToCompare, None);
    }
    let lacks = |text: &String| ruled.iter().any(|member| text.starts_with(&format!("{}:", member.family.name())));
    if incomplete.iter().any(lacks) {
        return (Rule::NotKnown, None);
    }
    let drawn: Option<Vec<&Vec<f64>>> = ruled.iter().map(|member| member.drawn.as_ref()).collect();
    match drawn.map(|drawn| descending(&drawn)) {
        Some(probability) if probability >= TIE => (Rule::Holds, Some(probability)),
        Some(probability) if probability <= 1.0 - TIE => {
            let equal = ruled.windows(2).any(|pair| pair[0].value.middle == pair[1].value.middle);
            (if equal { Rule::Tie } else { Rule::DoesNotHold }, Some(probability))
        }
        Some(probability) => (Rule::Tie, Some(probability)),
        None if ruled.windows(2).all(|pair| pair[0].value.middle > pair[1].value.middle) => (Rule::Holds, None),
        None => (Rule::DoesNotHold, None),
    }
}

// Alternative outcomes: every predicted time drawn again from its interval, with a seed.
//
// The interval of a prediction covers 95 of 100. A draw is log-normal with that spread, with separate spreads for the
// two sides if they differ. Calls of one kind on one axis in one place are read from the same curve, so they are
// drawn together, all too slow or all too fast. Others are drawn independently.

/// Standard deviations on each side that cover 95 of 100.
const SIGMAS_OF_95: f64 = 1.959_964;

/// Draws by what they have in common.
#[derive(Debug)]
pub(super) struct Draws {
    options: RankOptions,
    known: Vec<(Key, Vec<f64>)>,
}

type Key = (Axis, Collective, Locality);

impl Draws {
    pub(super) fn new(options: RankOptions) -> Draws {
        Draws { options, known: Vec::new() }
    }

    /// The sums over some calls, one per resample; `None` if a call has no time or no interval.
    pub(super) fn sums<'p>(&mut self, priced: impl Iterator<Item = &'p Priced<'p>>) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.options.resamples.max(1) as usize];
        for op in priced {
            let call = op.call()?;
            let ends = call.interval?;
            let calls = op.cost.calls as f64;
            let sigma = |ratio: f64| ratio.max(1.0).ln() / SIGMAS_OF_95;
            let (down, up) = (sigma(call.middle / ends.low), sigma(ends.high / call.middle));
            for (sum, z) in sums.iter_mut().zip(self.normals(op)) {
                let spread = if *z < 0.0 { down } else { up };
                *sum += calls * call.middle * (spread * z).exp();
            }
        }
        Some(sums)
    }

    fn normals(&mut self, op: &Priced) -> &[f64] {
        let key = (op.op.axis, op.op.collective, op.locality.clone());
        let index = match self.known.iter().position(|(known, _)| *known == key) {
            Some(index) => index,
            None => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(self.options.seed);
                // Far apart on the generator's cycle, in the order of first use.
                (0..self.known.len()).for_each(|_| random.jump());
                let drawn = (0..self.options.resamples.max(1))
                    .map(|_| normal([random.next_u64(), random.next_u64()]))
                    .collect();
                self.known.push((key, drawn));
                self.known.len() - 1
            }
        };
        &self.known[index].1
    }
}

/// The share of resamples for which the predicate is true.
pub(super) fn share(resamples: usize, predicate: impl Fn(usize) -> bool) -> f64 {
    (0..resamples).filter(|index| predicate(*index)).count() as f64 / resamples.max(1) as f64
}

// The ops of a step with their prices, by which parallelisms are ranked.

/// Number of resamples for the probability of an order, and their seed.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Number of resamples; at least 1.
    pub resamples: u32,
    /// The same seed gives the same result.
    pub seed: u64,
}

impl Default for RankOptions {
    fn default() -> Self {
        RankOptions { resamples: 2000, seed: 1 }
    }
}

/// An op with its price, predicted or measured, and the values that the ranking needs.
#[derive(Clone, Debug)]
pub struct Priced<'o> {
    /// The op.
    pub op: &'o Op,
    /// What it costs in a step.
    pub cost: OpCost,
    /// Placement of its groups.
    pub locality: Locality,
}

impl Priced<'_> {
    /// Amount by a measure; `None` if it has no time.
    pub(super) fn amount(&self, measure: Measure) -> Option<Span> {
        match measure {
            Measure::PayloadBytes => Some(Span::exact(self.cost.payload_bytes.0 as f64)),
            Measure::WireBytes => Some(Span::exact(self.cost.wire_bytes.0 as f64)),
            Measure::Time => self.cost.time(),
            Measure::ExposedTime if self.op.overlap.is_exposed() => self.cost.time(),
            Measure::ExposedTime => Some(Span::exact(0.0)),
        }
    }

    /// Seconds of one call with their interval.
    pub(super) fn call(&self) -> Option<Span> {
        span(&self.cost.call)
    }
}

pub(super) fn priced<'o>(
    step: &Step,
    ops: &'o [Op],
    localities: &BTreeMap<Axis, Locality>,
    rates: &dyn Rates,
) -> Result<Vec<Priced<'o>>> {
    let known = ops.iter().filter_map(|op| Some((op, localities.get(&op.axis)?)));
    known
        .map(|(op, locality)| {
            let cost = OpCost::of(op, step.group_size(op.axis), locality, step.micro_batches(), rates)?;
            Ok(Priced { op, cost, locality: locality.clone() })
        })
        .collect()
}

/// Whether a group of the axis is on one node.
pub(super) fn is_inside(layout: &Layout, axis: Axis, ranks_per_node: u32) -> bool {
    localities(layout, &[axis], ranks_per_node).get(&axis).is_some_and(|locality| locality.nodes_spanned == 1)
}
