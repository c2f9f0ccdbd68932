//! From the lines of a record to the pairs: values over the replicates, medians of the localities, averages of hosts.

use super::view::{LocalityStatistics, Measure, Pair, PairLocality, PairRank, PairValue, PairsView, Standing};
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Bytes;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome, RankFacts};
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Ranks and pairs, whose shares of the middle are not known yet.
pub(super) struct Found {
    pub ranks: Vec<PairRank>,
    pub pairs: Vec<Pair>,
}

/// Values of one pair by one measure: seconds of a message in each replicate, and all samples.
#[derive(Clone, Default)]
struct Replicates {
    seconds: Vec<f64>,
    samples: u64,
}

/// Reads all lines of rounds. A case with a corrupt or failed replicate gives no values.
pub(super) fn gather(record: &Record, latency_bytes: Bytes) -> Found {
    let mut pairs: BTreeMap<(u32, u32), [Replicates; 3]> = BTreeMap::new();
    let spoilt: HashSet<u32> =
        record.cases.iter().filter(|line| !matches!(line.outcome, Outcome::Measured { .. })).map(|l| l.case).collect();
    for line in &record.cases {
        let Some(facts) = record.plan.cases.get(line.case as usize).filter(|facts| facts.style == Style::Pairs) else {
            continue;
        };
        let measure = Measure::of(facts, latency_bytes);
        for (pair, seconds, samples) in times(line, facts) {
            let replicates = &mut pairs.entry(pair).or_default()[measure as usize];
            if let Some(seconds) = seconds.filter(|_| !spoilt.contains(&line.case)) {
                replicates.seconds.push(seconds);
                replicates.samples += samples;
            }
        }
    }
    let seen: BTreeSet<u32> = pairs.keys().flat_map(|(a, b)| [*a, *b]).collect();
    let ranks: Vec<PairRank> = seen.into_iter().map(|rank| place(&record.header.ranks, rank)).collect();
    let devices: HashMap<u32, &str> =
        record.devices.iter().flat_map(|line| &line.devices).map(|device| (device.rank, &*device.uuid)).collect();
    let index: HashMap<u32, usize> = ranks.iter().enumerate().map(|(index, rank)| (rank.rank, index)).collect();
    let pairs = pairs.into_iter().map(|((a, b), replicates)| {
        let (a, b) = (index[&a], index[&b]);
        let same = ranks[a].node == ranks[b].node;
        let locality = if same { PairLocality::SameHost } else { PairLocality::DifferentHosts };
        let bytes = |measure: Measure| record_bytes(record, measure, latency_bytes);
        let values = Measure::ALL.map(|measure| value(&replicates[measure as usize], measure, bytes(measure)));
        let shares_device = devices.get(&ranks[a].rank).is_some_and(|uuid| devices.get(&ranks[b].rank) == Some(uuid));
        Pair { a, b, locality, shares_device, values }
    });
    Found { pairs: pairs.collect(), ranks }
}

/// The message of a measure.
fn record_bytes(record: &Record, measure: Measure, latency_bytes: Bytes) -> Bytes {
    let rounds = record.plan.cases.iter().filter(|facts| facts.style == Style::Pairs);
    rounds
        .filter(|facts| Measure::of(facts, latency_bytes) == measure)
        .map(|facts| facts.bytes_accounted)
        .next()
        .unwrap_or_default()
}

/// For every pair of a line: the ranks, the seconds of one message, and the number of samples.
fn times<'a>(line: &'a CaseLine, facts: &'a CaseFacts) -> impl Iterator<Item = ((u32, u32), Option<f64>, u64)> + 'a {
    let messages = f64::from(line.calls_per_sample) * f64::from(facts.transfers_per_call);
    line.pairs.iter().flat_map(move |pairs| {
        let ranks = pairs.rank_a.iter().zip(&pairs.rank_b).map(|(a, b)| (*a.min(b), *a.max(b)));
        ranks.zip(&pairs.median_nanoseconds).zip(&pairs.samples).map(move |((ranks, median), samples)| {
            let seconds = (*median > 0).then(|| *median as f64 * 1e-9 / messages);
            (ranks, seconds, *samples)
        })
    })
}

fn value(replicates: &Replicates, measure: Measure, bytes: Bytes) -> Option<PairValue> {
    let seconds = median(&sorted(replicates.seconds.iter().copied()))?;
    let shortest = replicates.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let of = |seconds: f64| if measure == Measure::Latency { seconds } else { bytes.0 as f64 / seconds };
    let (value, best) = (of(seconds), of(shortest));
    let replicate_count = replicates.seconds.len() as u32;
    Some(PairValue { value, best, percent: 100.0, samples: replicates.samples, replicates: replicate_count })
}

fn place(map: &[RankFacts], rank: u32) -> PairRank {
    let facts = map.iter().find(|facts| (facts.rank..facts.rank.saturating_add(facts.ranks)).contains(&rank));
    let host = facts.map_or_else(|| "unknown".to_owned(), |facts| facts.host.clone());
    PairRank { rank, host, node: facts.map_or(u32::MAX, |facts| facts.node) }
}

/// Fills in the medians, and every value as a share of its median.
pub(super) fn compare_with_medians(view: &mut PairsView) {
    for locality in PairLocality::ALL {
        for measure in Measure::ALL {
            let of_locality = view.pairs.iter().filter(|pair| pair.locality == locality);
            let values = sorted(of_locality.filter_map(|pair| Some(pair.values[measure as usize]?.value)));
            let middle = median(&values).map(|median| LocalityStatistics {
                pairs: values.len(),
                minimum: values[0],
                median,
                maximum: values[values.len() - 1],
            });
            view.middles[locality as usize][measure as usize] = middle;
        }
    }
    for pair in &mut view.pairs {
        for (value, middle) in pair.values.iter_mut().zip(&view.middles[pair.locality as usize]) {
            if let (Some(value), Some(middle)) = (value, middle) {
                value.percent = 100.0 * value.value / middle.median;
            }
        }
    }
}

/// The averages of hosts, where there are several, and of ranks.
pub(super) fn standings(view: &PairsView) -> (Vec<Standing>, Vec<Standing>) {
    let ranks = (0..view.ranks.len()).map(|index| (index, format!("rank {}", view.ranks[index].rank)));
    let ranks = ranks.map(|(index, name)| standing(view, name, |member| member == index)).collect();
    if view.host_count() < 2 {
        return (Vec::new(), ranks);
    }
    let mut hosts: Vec<(u32, &str)> = Vec::new();
    for rank in &view.ranks {
        if hosts.iter().all(|(node, _)| *node != rank.node) {
            hosts.push((rank.node, &rank.host));
        }
    }
    let of_host = |(node, name): (u32, &str)| standing(view, name.to_owned(), |member| view.ranks[member].node == node);
    (hosts.into_iter().map(of_host).collect(), ranks)
}

fn standing(view: &PairsView, name: String, is_member: impl Fn(usize) -> bool) -> Standing {
    let own: Vec<&Pair> = view.pairs.iter().filter(|pair| is_member(pair.a) || is_member(pair.b)).collect();
    let percent = Measure::ALL.map(|measure| {
        let percents: Vec<f64> = own.iter().filter_map(|pair| Some(pair.values[measure as usize]?.percent)).collect();
        (!percents.is_empty()).then(|| percents.iter().sum::<f64>() / percents.len() as f64)
    });
    Standing { name, pairs: own.len(), percent }
}
