//! The order of the parallelisms by one measure, how sure it is, and what becomes of the rule TP > DP > PP.

use super::draws::{Draws, share};
use super::priced::Priced;
use commgauge_base::stats::Span;
use commgauge_model::workload::{Family, Measure};

/// Below this probability an order is a tie.
pub const TIE: f64 = 0.95;

/// The parallelisms by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The measure.
    pub measure: Measure,
    /// The largest first.
    pub places: Vec<OrderPlace>,
    /// Share of resamples with exactly this order; none if no interval is known.
    pub probability: Option<f64>,
    /// Status of TP > DP > PP among the parallelisms in use.
    pub rule: Rule,
    /// Share of resamples in which the rule is true.
    pub rule_probability: Option<f64>,
    /// Ops without a time, and why; `places` is then incomplete.
    pub incomplete: Vec<String>,
}

/// A parallelism in an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderPlace {
    /// Which.
    pub family: Family,
    /// Bytes or seconds of a step.
    pub value: Span,
    /// Share of resamples in which it is larger than the next; none for the last, and if no interval is known.
    pub probability_above_next: Option<f64>,
}

/// Status of the rule TP > DP > PP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The rule is true among the parallelisms in use.
    Holds,
    /// It does not.
    DoesNotHold,
    /// The intervals are too wide to decide.
    Tie,
    /// Some calls have no time.
    NotKnown,
    /// Fewer than two of its parallelisms communicate.
    NothingToCompare,
}

impl Rule {
    /// In words.
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
        let above_next =
            |index: usize| Some(descending(&[members[index].drawn.as_ref()?, members.get(index + 1)?.drawn.as_ref()?]));
        let places = (0..members.len()).map(|index| OrderPlace {
            family: members[index].family,
            value: members[index].value,
            probability_above_next: above_next(index),
        });
        Order { measure, places: places.collect(), probability, rule, rule_probability, incomplete }
    }

    /// `TP > DP = PP`, with `=` for a tie and `?` for an order of unknown probability.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, place) in self.places.iter().enumerate() {
            text += place.family.name();
            if index + 1 < self.places.len() {
                text += match place.probability_above_next {
                    Some(probability) if probability >= TIE => " > ",
                    Some(_) => " = ",
                    None => " ? ",
                };
            }
        }
        text
    }
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
