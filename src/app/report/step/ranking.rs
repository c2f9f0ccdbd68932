//! Which parallelism costs most, by bytes and by time, and whether the rule TP > DP > PP holds here.

use super::op::StepOp;
use super::totals::{Sum, Totals};
use commgauge_base::stats::Span;
use commgauge_model::workload::{Family, Measure};
use std::cmp::Ordering;

/// The parallelisms of a step by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The measure.
    pub measure: Measure,
    /// The largest first.
    pub order: Vec<Place>,
    /// Whether TP > DP > PP holds among the existing ones.
    pub rule: Rule,
}

/// A parallelism in a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The parallelism.
    pub family: Family,
    /// Bytes or seconds of a step.
    pub value: Span,
    /// Whether its interval overlaps with that of the next, so that their order is not known. `None` for the last, and where
    /// there is no interval.
    pub ties_with_next: Option<bool>,
}

/// Result of the rule TP > DP > PP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It holds among the existing axes.
    Holds,
    /// It does not; the order that was found.
    DoesNotHold(String),
    /// Nothing contradicts it, but intervals overlap; the order that was found.
    Tie(String),
    /// Too few samples for an interval.
    TooFewSamples,
    /// Some calls have no time.
    Incomplete(String),
    /// Fewer than two of its axes communicate.
    NothingToCompare,
}

impl Rule {
    /// The result as text.
    pub fn text(&self) -> String {
        match self {
            Rule::Holds => "holds".to_owned(),
            Rule::DoesNotHold(order) => format!("does not hold: {order}"),
            Rule::Tie(order) => format!("tie: {order}"),
            Rule::TooFewSamples => "not known: too few samples for an interval".to_owned(),
            Rule::Incomplete(what) => format!("not known, {what}"),
            Rule::NothingToCompare => "nothing to compare: fewer than two of its axes communicate".to_owned(),
        }
    }
}

impl Ranking {
    pub(super) fn of(measure: Measure, ops: &[StepOp]) -> Ranking {
        let mut places = Vec::new();
        let mut missing = None;
        for family in Family::ALL {
            let belongs = |op: &StepOp| Family::of(op.axis) == Some(family);
            if !ops.iter().any(belongs) {
                continue;
            }
            let totals = Totals::of(family.name(), ops, belongs);
            let (value, sum) = value(measure, &totals);
            missing = missing.or_else(|| sum.and_then(Sum::incomplete).map(|text| format!("{} {text}", family.name())));
            places.push(Place { family, value, ties_with_next: None });
        }
        places.sort_by(|a, b| b.value.middle.total_cmp(&a.value.middle));
        for index in 1..places.len() {
            let compared = places[index - 1].value.compared(places[index].value);
            places[index - 1].ties_with_next = compared.map(|order| order == Ordering::Equal);
        }
        let rule = missing.map_or_else(|| rule(&places), Rule::Incomplete);
        Ranking { measure, order: places, rule }
    }

    /// `TP > DP = PP`, where `=` is a tie and `?` an order that is not known.
    pub fn order_text(&self) -> String {
        order_text(&self.order)
    }
}

fn value(measure: Measure, totals: &Totals) -> (Span, Option<&Sum>) {
    match measure {
        Measure::PayloadBytes => (Span::exact(totals.payload_bytes_per_step.0 as f64), None),
        Measure::WireBytes => (Span::exact(totals.wire_bytes_per_step.0 as f64), None),
        Measure::Time => (totals.time.known_seconds, Some(&totals.time)),
        Measure::ExposedTime => (totals.exposed_time.known_seconds, Some(&totals.exposed_time)),
    }
}

fn order_text(places: &[Place]) -> String {
    let mut text = String::new();
    for (index, place) in places.iter().enumerate() {
        text += place.family.name();
        if index + 1 < places.len() {
            text += match place.ties_with_next {
                Some(true) => " = ",
                Some(false) => " > ",
                None => " ? ",
            };
        }
    }
    text
}

fn rule(places: &[Place]) -> Rule {
    let mut found: Vec<Place> = places.iter().copied().filter(|place| Family::RULE.contains(&place.family)).collect();
    if found.len() < 2 {
        return Rule::NothingToCompare;
    }
    for index in 1..found.len() {
        let compared = found[index - 1].value.compared(found[index].value);
        found[index - 1].ties_with_next = compared.map(|order| order == Ordering::Equal);
    }
    let value = |family: &Family| found.iter().find(|place| place.family == *family).map(|place| place.value);
    let ruled: Vec<Span> = Family::RULE.iter().filter_map(value).collect();
    let mut tie = false;
    for (index, above) in ruled.iter().enumerate() {
        for below in &ruled[index + 1..] {
            match above.compared(*below) {
                None => return Rule::TooFewSamples,
                Some(Ordering::Less) => return Rule::DoesNotHold(order_text(&found)),
                Some(Ordering::Equal) => tie = true,
                Some(Ordering::Greater) => {}
            }
        }
    }
    if tie { Rule::Tie(order_text(&found)) } else { Rule::Holds }
}
