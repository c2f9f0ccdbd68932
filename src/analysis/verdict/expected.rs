//! Which expectations of a machine file apply to a case, and whether its replicates meet the limit.

use super::algorithm::may_use;
use super::document::{AgainstLimit, Metric};
use crate::verdict::Decision;
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{fewest_for_bound, median, median_bounds, sorted, values_to_decide};
use commgauge_base::units::Bytes;
use commgauge_base::variant::LABELS;
use commgauge_model::config::{Expectation, Limit, toml_string};
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, HashMap};

/// How the calls of a row were handed over, by the labels of variants: what was forced upon them, or done otherwise than one plain call
/// after another. nccl-tests has names of its own for calls in a group and in a graph.
pub(super) fn variant(facts: &CaseFacts) -> BTreeMap<String, String> {
    let ours = |name: &str| match name {
        "agg_iters" => Some("aggregate"),
        "graph" => Some("submit"),
        _ => LABELS.into_iter().find(|label| *label == name),
    };
    facts.labels.iter().filter_map(|(name, value)| Some((ours(name)?.to_owned(), value.clone()))).collect()
}

/// The same for people.
pub(super) fn variant_words(variant: &BTreeMap<String, String>) -> String {
    variant.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// The same as a line of an expectation; empty for plain calls.
pub(super) fn variant_line(variant: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = variant.iter().map(|(name, value)| format!("{name} = {}", toml_string(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("variant = {{ {} }}\n", pairs.join(", ")) }
}

/// The expectations of a machine, indexed so that those for a case are found without a linear search.
pub(super) struct Expected<'a> {
    all: &'a [Expectation],
    /// Expectations of a single size.
    of_size: HashMap<(Place, Bytes), Vec<usize>>,
    /// Expectations of a range of sizes.
    of_range: HashMap<Place, Vec<usize>>,
}

/// Call, ranks, ranks per node, nodes, groups per node, cadence.
type Place = (Collective, [u32; 4], Cadence);

impl<'a> Expected<'a> {
    /// Expectations that runs with these variables can be compared with.
    pub fn new(all: &'a [Expectation], environment: Option<&BTreeMap<String, String>>) -> Expected<'a> {
        let mut expected = Expected { all, of_size: HashMap::new(), of_range: HashMap::new() };
        for (index, one) in all.iter().enumerate() {
            let forced_away = environment.zip(one.algorithm.as_ref());
            if forced_away.is_some_and(|(environment, name)| !may_use(environment, one.collective, name)) {
                continue;
            }
            let place = (one.collective, [one.ranks, one.ranks_per_node, one.nodes, one.groups_per_node], one.cadence);
            if one.bytes.0 == one.bytes.1 {
                expected.of_size.entry((place, one.bytes.0)).or_default().push(index);
            } else {
                expected.of_range.entry(place).or_default().push(index);
            }
        }
        expected
    }

    /// The indices of the expectations about calls of this kind: the same call, group, place, cadence and size.
    pub fn about(&self, facts: &CaseFacts) -> Vec<usize> {
        let lies = &facts.locality;
        let group = [facts.group_size, lies.ranks_per_node, lies.nodes_spanned, lies.concurrent_groups_per_node];
        let place = (facts.collective, group, facts.cadence);
        let candidates = (self.of_size.get(&(place, facts.bytes_total)).into_iter().flatten())
            .chain(self.of_range.get(&place).into_iter().flatten());
        let mut about: Vec<usize> = candidates
            .copied()
            .filter(|index| {
                let expected = &self.all[*index];
                expected.placement.is_none_or(|placement| placement == facts.placement)
                    && expected.element_type.is_none_or(|element| element == facts.element_type)
                    && (expected.bytes.0..=expected.bytes.1).contains(&facts.bytes_total)
            })
            .collect();
        if !about.is_empty() {
            let variant = variant(facts);
            about.retain(|index| self.all[*index].variant == variant);
        }
        about.sort_unstable();
        about
    }

    /// An expectation by its index.
    pub fn at(&self, index: usize) -> &'a Expectation {
        &self.all[index]
    }
}

/// The result of checking a row against one expectation.
pub(super) struct LimitCheck {
    pub decision: Decision,
    /// True where each replicate by itself meets the limit.
    pub all_meet_the_limit: bool,
    pub reason: String,
    pub replicates_more: Option<u32>,
    pub against: AgainstLimit,
}

/// Compares the replicates' times of one transfer with a limit: a pass only where the lower confidence bound of the median
/// clears it, a fail where the upper bound is beyond it on the bad side. The bounds are of order statistics, each with
/// confidence `level`.
pub(super) fn check_limit(expected: &Expectation, facts: &CaseFacts, seconds: &[f64], level: f64) -> LimitCheck {
    let factor = facts.bus_factor.filter(|factor| *factor > 0.0);
    let bytes = facts.bytes_accounted.0 as f64 * factor.unwrap_or(0.0);
    let (metric, limit) = match expected.limit {
        Limit::BusBandwidthFloor(rate) => (Metric::BusBandwidthBytesPerSecond, rate.0),
        Limit::LatencyCeiling(time) => (Metric::LatencySeconds, time.0),
    };
    let more_is_better = metric == Metric::BusBandwidthBytesPerSecond;
    let values = match metric {
        Metric::BusBandwidthBytesPerSecond if bytes > 0.0 => sorted(seconds.iter().map(|time| bytes / time)),
        Metric::BusBandwidthBytesPerSecond => Vec::new(),
        Metric::LatencySeconds => sorted(seconds.iter().copied()),
    };
    let good = |value: &f64| if more_is_better { *value >= limit } else { *value <= limit };
    let bounds = median_bounds(&values, level);
    let (count, agreeing) = (values.len(), values.iter().filter(|value| good(value)).count());
    let decision = match bounds {
        Some((low, high)) if good(&low) && good(&high) => Decision::Pass,
        Some((low, high)) if !good(&low) && !good(&high) => Decision::Fail,
        _ => Decision::Inconclusive,
    };
    let majority = agreeing.max(count - agreeing);
    let needed = values_to_decide(count, majority, level);
    let (reason, replicates_more) = match decision {
        Decision::Pass => (String::new(), None),
        Decision::Fail => (format!("{} of {count} replicates are beyond the limit", count - agreeing), None),
        _ => undecided(count, agreeing, needed, level),
    };
    let against = AgainstLimit {
        metric,
        limit,
        median: median(&values),
        lower_bound: bounds.map(|bounds| bounds.0),
        upper_bound: bounds.map(|bounds| bounds.1),
        place: expected.place.clone(),
        source: expected.source.clone(),
        date: expected.date.clone(),
        algorithm: expected.algorithm.clone(),
        version: expected.version.clone(),
    };
    LimitCheck { decision, all_meet_the_limit: count > 0 && agreeing == count, reason, replicates_more, against }
}

fn undecided(count: usize, agreeing: usize, needed: Option<usize>, level: f64) -> (String, Option<u32>) {
    let more = needed.map(|needed| needed.saturating_sub(count) as u32);
    let fewest = fewest_for_bound(level);
    let advice = match more {
        Some(more) => format!("about {more} more replicates would decide if they fall as these did"),
        None => "no sensible number of replicates will decide: the median lies at the limit".to_owned(),
    };
    let reason = match count {
        0 => "nothing was measured that can be compared with the limit".to_owned(),
        _ if count < fewest => format!("{count} replicates bound nothing, at least {fewest} are needed; {advice}"),
        _ => format!("{agreeing} of {count} replicates meet the limit; {advice}"),
    };
    (reason, more)
}
