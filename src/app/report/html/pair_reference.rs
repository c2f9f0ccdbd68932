//! What pairs of ranks are compared with beside the median of their locality: the expectation of the machine file, else the bound of
//! its links. All pairs of a measure and locality have the same kind. A machine that is slow everywhere is calm in a picture that
//! is relative to its own median; these shares show it.

use super::input::HtmlRun;
use crate::report::document::optional;
use crate::report::pairs::{Measure, Pair, PairLocality, PairsView};
use commgauge_analysis::verdict::{Metric, Verdict};
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Bytes;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, HashMap};

/// What a pair can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The limit that the machine file sets.
    Expected,
    /// What the links of the machine file allow.
    Bound,
}

/// Which measure and which two ranks, the lower first.
type Key = (usize, u32, u32);

/// The references of a run's pairs.
pub(super) struct References {
    kinds: [[Option<Kind>; 3]; 2],
    expected: HashMap<Key, f64>,
    bounds: HashMap<Key, f64>,
}

impl References {
    /// The references from the limits of the verdict and the bounds of the plan.
    pub fn of(run: &HtmlRun, view: &PairsView, verdict: Option<&Verdict>) -> References {
        let rows = verdict.into_iter().flat_map(|verdict| &verdict.rows);
        let limits: BTreeMap<&str, (Metric, f64)> = rows
            .filter_map(|row| Some((row.name.as_str(), row.against_limit.as_ref()?)))
            .map(|(name, limit)| (name, (limit.metric, limit.limit)))
            .collect();
        let mut references = References { kinds: [[None; 3]; 2], expected: HashMap::new(), bounds: HashMap::new() };
        let node_of: HashMap<u32, u32> = view.ranks.iter().map(|rank| (rank.rank, rank.node)).collect();
        for line in &run.record.cases {
            let facts = run.record.plan.cases.get(line.case as usize).filter(|facts| facts.style == Style::Pairs);
            let (Some(facts), Some(pairs)) = (facts, &line.pairs) else { continue };
            let measure = Measure::of(facts, view.latency_bytes);
            let limit = limits
                .get(facts.name.as_str())
                .and_then(|(metric, limit)| on_measure(measure, facts.bytes_total, *metric, *limit));
            let bound = facts.bound_bytes_per_second.filter(|_| measure != Measure::Latency).map(|bound| bound.0);
            for (a, b) in pairs.rank_a.iter().zip(&pairs.rank_b).map(|(a, b)| (*a.min(b), *a.max(b))) {
                // The bound of a round in which some pairs cross the network does not apply to those that do not.
                if (node_of.get(&a) == node_of.get(&b)) != stays_inside(facts) {
                    continue;
                }
                let key = (measure as usize, a, b);
                references.expected.extend(limit.map(|limit| (key, limit)));
                references.bounds.extend(bound.map(|bound| (key, bound)));
            }
        }
        for locality in PairLocality::ALL {
            for measure in Measure::ALL {
                references.kinds[locality as usize][measure as usize] = references.kind(view, locality, measure);
            }
        }
        references
    }

    /// The first kind that every pair has.
    fn kind(&self, view: &PairsView, locality: PairLocality, measure: Measure) -> Option<Kind> {
        let with_value =
            || view.pairs.iter().filter(|pair| pair.locality == locality && pair.values[measure as usize].is_some());
        let all_in = |known: &HashMap<Key, f64>| {
            with_value().next().is_some() && with_value().all(|pair| known.contains_key(&key(view, pair, measure)))
        };
        match () {
            () if all_in(&self.expected) => Some(Kind::Expected),
            () if all_in(&self.bounds) => Some(Kind::Bound),
            () => None,
        }
    }

    fn reference(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<f64> {
        let known = match self.kinds[pair.locality as usize][measure as usize]? {
            Kind::Expected => &self.expected,
            Kind::Bound => &self.bounds,
        };
        known.get(&key(view, pair, measure)).copied()
    }

    /// The value of a pair in per cent of its reference, less is worse, with what that is: `85 % of what is expected`.
    pub fn share(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<String> {
        let kind = self.kinds[pair.locality as usize][measure as usize]?;
        Some(format!("{:.0} % of {}", self.percent(view, pair, measure)?, kind.name()))
    }

    fn percent(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<f64> {
        let value = pair.values[measure as usize]?.value;
        let reference = self.reference(view, pair, measure)?;
        Some(measure.goodness(100.0 * value / reference)).filter(|percent| percent.is_finite())
    }

    /// For a table: the median of the pairs' shares and what they are shares of, with its number where that is the same for all.
    pub fn cell(&self, view: &PairsView, locality: PairLocality, measure: Measure) -> String {
        let pairs = || view.pairs.iter().filter(|pair| pair.locality == locality);
        let shares = sorted(pairs().filter_map(|pair| self.percent(view, pair, measure)));
        let kind = self.kinds[locality as usize][measure as usize];
        let Some((kind, share)) = kind.zip(median(&shares)) else { return optional(None::<String>) };
        let mut values = pairs().filter_map(|pair| self.reference(view, pair, measure));
        let first = values.next().filter(|first| values.all(|value| value == *first));
        let number = first.map_or_else(String::new, |value| format!(", {}", measure.shown(value)));
        format!("{share:.0} % of {}{number}", kind.name())
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Expected => "what is expected",
            Kind::Bound => "the bound of the links",
        }
    }
}

fn key(view: &PairsView, pair: &Pair, measure: Measure) -> Key {
    let (a, b) = (view.ranks[pair.a].rank, view.ranks[pair.b].rank);
    (measure as usize, a.min(b), a.max(b))
}

fn stays_inside(facts: &CaseFacts) -> bool {
    facts.locality.is_known() && facts.locality.nodes_spanned <= 1
}

/// A limit of a call as one of what is shown of pairs: seconds of a message, or bytes per second.
fn on_measure(measure: Measure, bytes: Bytes, metric: Metric, limit: f64) -> Option<f64> {
    let other = || (limit > 0.0 && bytes.0 > 0).then(|| bytes.0 as f64 / limit);
    match (measure, metric) {
        (Measure::Latency, Metric::LatencySeconds) => Some(limit),
        (Measure::Latency, Metric::BusBandwidthBytesPerSecond) => other(),
        (_, Metric::BusBandwidthBytesPerSecond) => Some(limit),
        (_, Metric::LatencySeconds) => other(),
        (_, Metric::CopyBytesPerSecond | Metric::FlopsPerSecond) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::View;
    use crate::report::pairs::tests::{healthy, record};
    use commgauge_base::units::Rate;

    /// Eight ranks on two hosts; the rounds with these indices among the cases carry a bound.
    fn with_bounds(carries: impl Fn(&CaseFacts) -> bool, locality_of_hosts: u32) -> (PairsView, References) {
        let mut record = record(8, 4, healthy);
        for facts in &mut record.plan.cases {
            facts.locality.nodes_spanned = locality_of_hosts;
            facts.bound_bytes_per_second = carries(facts).then_some(Rate(2e9));
        }
        let view = View::new(&record);
        let pairs = view.pairs.clone().unwrap();
        let run = HtmlRun { name: String::new(), record: &record, view, differences: Vec::new() };
        let references = References::of(&run, &pairs, None);
        (pairs, references)
    }

    #[test]
    fn without_a_bound_or_an_expectation_pairs_have_no_share_but_that_of_the_median() {
        let (view, references) = with_bounds(|_| false, 2);
        for measure in Measure::ALL {
            assert!(view.pairs.iter().all(|pair| references.share(&view, pair, measure).is_none()), "{measure:?}");
            assert_eq!(references.cell(&view, PairLocality::DifferentHosts, measure), "-");
        }
    }

    #[test]
    fn a_bound_applies_to_the_pairs_on_its_links_and_never_to_latency() {
        let (view, references) = with_bounds(|_| true, 2);
        let across = view.pairs.iter().find(|pair| pair.locality == PairLocality::DifferentHosts).unwrap();
        let within = view.pairs.iter().find(|pair| pair.locality == PairLocality::SameHost).unwrap();
        let value = across.values[Measure::OneWay as usize].unwrap().value;
        let share = format!("{:.0} % of the bound of the links", 100.0 * value / 2e9);
        assert_eq!(references.share(&view, across, Measure::OneWay), Some(share.clone()));
        assert_eq!(references.share(&view, across, Measure::Latency), None);
        assert_eq!(references.share(&view, within, Measure::OneWay), None, "that link is not between hosts");
        let cell = references.cell(&view, PairLocality::DifferentHosts, Measure::OneWay);
        assert!(cell.ends_with(" % of the bound of the links, 2.00 GB/s"), "{cell}");
    }

    #[test]
    fn where_one_round_has_no_bound_no_pair_has_a_share() {
        let (view, references) = with_bounds(|facts| !facts.name.starts_with("pair/round-0/"), 2);
        let mixed = PairLocality::ALL.map(|locality| references.cell(&view, locality, Measure::BothWays));
        assert_eq!(mixed, ["-", "-"]);
    }

    #[test]
    fn limits_of_either_metric_become_those_of_a_measure() {
        let (bytes, time, rate) = (Bytes(1000), Metric::LatencySeconds, Metric::BusBandwidthBytesPerSecond);
        for (measure, metric, limit, shown) in [
            (Measure::Latency, time, 1e-6, Some(1e-6)),
            (Measure::Latency, rate, 1e9, Some(1e-6)),
            (Measure::OneWay, rate, 1e9, Some(1e9)),
            (Measure::BothWays, time, 1e-6, Some(1e9)),
            (Measure::OneWay, time, 0.0, None),
        ] {
            let found = on_measure(measure, bytes, metric, limit);
            assert!(
                found.zip(shown).map_or(found == shown, |(a, b)| (a / b - 1.0).abs() < 1e-9),
                "{measure:?} {found:?}"
            );
        }
    }
}
