//! The pairs of a record as plain data.

use commgauge_base::collective::Collective;
use commgauge_base::stats::{OddRule, median, sorted};
use commgauge_base::units::{Bytes, Rate, Seconds, counted};
use commgauge_base::writing::{ascending, distinct, grouped};
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome, RankFacts};
use commgauge_model::workload::Style;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Measure {
    /// One-way time of a small message, half the round trip.
    #[strum(serialize = "latency")]
    Latency,
    /// Rate of a large message in a ping-pong.
    #[strum(serialize = "bandwidth one way")]
    OneWay,
    /// Rate of a large message in each direction at the same time.
    #[strum(serialize = "bandwidth both ways")]
    BothWays,
}

commgauge_base::error::names!(Measure, PairLocality);

impl Measure {
    /// Every one, in the order in which they are shown.
    pub const ALL: [Measure; 3] = [Measure::Latency, Measure::OneWay, Measure::BothWays];

    /// What a round of pairs measures; `latency_bytes` is the small message.
    pub(in crate::report) fn of(round: &CaseFacts, latency_bytes: Bytes) -> Measure {
        match round.collective {
            Collective::Bidirectional => Measure::BothWays,
            _ if round.bytes_total == latency_bytes => Measure::Latency,
            _ => Measure::OneWay,
        }
    }

    /// A share of the median in per cent, inverted where smaller values are better, so that below 100 is always worse.
    pub(in crate::report) fn speed(self, percent: f64) -> f64 {
        if self == Measure::Latency { 1e4 / percent } else { percent }
    }

    /// A value with its unit.
    pub(in crate::report) fn shown(self, value: f64) -> String {
        if self == Measure::Latency { Seconds(value).to_string() } else { Rate(value).to_string() }
    }
}

/// Relative location of two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PairLocality {
    /// On one host.
    SameHost,
    /// On different hosts.
    DifferentHosts,
}

impl PairLocality {
    /// Both, in the order in which they are shown.
    pub const ALL: [PairLocality; 2] = [PairLocality::SameHost, PairLocality::DifferentHosts];
}

impl fmt::Display for PairLocality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PairLocality::SameHost => "same host",
            PairLocality::DifferentHosts => "different hosts",
        })
    }
}

/// A rank that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairRank {
    /// World rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Number of the host in order of first appearance.
    pub node: u32,
}

/// The value of one measure between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairValue {
    /// Seconds, or bytes per second: the median of the replicates' medians.
    pub value: f64,
    /// The same for the best replicate.
    pub best: f64,
    /// Share of the median of all pairs of the same locality, in per cent.
    pub percent: f64,
    /// Samples of all replicates.
    pub samples: u64,
    /// Replicates in which it was measured.
    pub replicates: u32,
}

/// Two ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Index of the lower rank in [`PairsView::ranks`].
    pub a: usize,
    /// Index of the higher one.
    pub b: usize,
    /// Their relative location.
    pub locality: PairLocality,
    /// Whether both ranks are on one device (`--share-gpu`), so that no link is between them.
    pub shares_device: bool,
    /// The values in the order of [`Measure::ALL`]; `None` where nothing was measured or the case has no values.
    pub values: [Option<PairValue>; 3],
}

/// Statistics over all pairs of a locality.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct LocalityStatistics {
    /// Pairs with a value.
    pub pairs: usize,
    /// The least.
    pub minimum: f64,
    /// The median.
    pub median: f64,
    /// The greatest.
    pub maximum: f64,
}

/// A pair that is slower than the scatter of its locality explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPair {
    /// Index in [`PairsView::pairs`].
    pub pair: usize,
    /// By which measure.
    pub measure: Measure,
    /// Distance of its best replicate from the median, in robust standard deviations.
    pub deviations: f64,
    /// The allowed distance.
    pub allowed: f64,
}

/// Averages of a rank, or of all ranks of a host, over all of its pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The host, or `rank N`.
    pub name: String,
    /// Pairs that it is in.
    pub pairs: usize,
    /// Mean over its pairs of the share of the median, in per cent, in the order of [`Measure::ALL`].
    pub percent: [Option<f64>; 3],
}

/// The pairs of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsView {
    /// The participating ranks, in rank order.
    pub ranks: Vec<PairRank>,
    /// Rounds of the plan.
    pub rounds: usize,
    /// Maximum number of pairs that ran at the same time.
    pub pairs_at_once: u32,
    /// Pairs of the plan.
    pub pairs_planned: u64,
    /// Whether these are only some of the pairs.
    pub screened: bool,
    /// The small message.
    pub latency_bytes: Bytes,
    /// The large one.
    pub bandwidth_bytes: Bytes,
    /// Every pair in the record, in rank order.
    pub pairs: Vec<Pair>,
    /// Middle of each measure (inner) in each locality (outer), where there are such pairs.
    pub middles: [[Option<LocalityStatistics>; 3]; 2],
    /// Values that were compared with the others of their locality.
    pub compared: usize,
    /// The slow ones, the worst first.
    pub slow: Vec<SlowPair>,
    /// Every host, where there are several.
    pub hosts: Vec<Standing>,
    /// Every rank.
    pub standings: Vec<Standing>,
}

/// A row of the matrix of pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    Rank,
    /// All ranks of a host.
    Host,
}

impl PairsView {
    /// The rows of the matrix, each with the places of its ranks.
    pub(in crate::report) fn members(&self, kind: MemberKind) -> Vec<Vec<usize>> {
        let key = |(index, rank): (usize, &PairRank)| match kind {
            MemberKind::Rank => (index, index),
            MemberKind::Host => (rank.node as usize, index),
        };
        grouped(self.ranks.iter().enumerate().map(key)).into_iter().map(|(_, ranks)| ranks).collect()
    }

    /// The row of each rank among these.
    pub(in crate::report) fn member_of<'a>(&self, members: impl Iterator<Item = &'a Vec<usize>>) -> Vec<usize> {
        let mut member_of = vec![0; self.ranks.len()];
        for (index, ranks) in members.enumerate() {
            ranks.iter().for_each(|rank| member_of[*rank] = index);
        }
        member_of
    }

    /// The message by which something is measured.
    pub(in crate::report) fn message(&self, measure: Measure) -> Bytes {
        if measure == Measure::Latency { self.latency_bytes } else { self.bandwidth_bytes }
    }

    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        ascending(self.ranks.iter().map(|rank| rank.node)).len()
    }

    /// Pairs for which every measure has a value.
    pub fn complete_pairs(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.values.iter().all(Option::is_some)).count()
    }

    /// What was measured, in one sentence.
    pub fn sentence(&self) -> String {
        let (ranks, complete) = (self.ranks.len(), self.complete_pairs());
        let hosts = counted(self.host_count(), "host");
        let measured = if complete as u64 == self.pairs_planned { "measured" } else { "measured by every measure" };
        let at_once = match self.pairs_at_once {
            0 | 1 => "one pair at a time".to_owned(),
            pairs => format!("in {} rounds of up to {pairs} pairs at once", self.rounds),
        };
        let planned = if self.screened { " planned" } else { "" };
        format!("{complete} of {}{planned} pairs of {ranks} ranks on {hosts} {measured}, {at_once}", self.pairs_planned)
    }
}

// From the lines of a record to the pairs: values over the replicates, medians of the localities, averages of hosts.

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
    let hosts = standings_of(view, MemberKind::Host);
    (if hosts.len() < 2 { Vec::new() } else { hosts }, standings_of(view, MemberKind::Rank))
}

fn standings_of(view: &PairsView, kind: MemberKind) -> Vec<Standing> {
    let members = view.members(kind);
    let member_of = view.member_of(members.iter());
    let names = members.iter().map(|ranks| match (kind, &view.ranks[ranks[0]]) {
        (MemberKind::Rank, first) => format!("rank {}", first.rank),
        (MemberKind::Host, first) => first.host.clone(),
    });
    let mut sums = vec![(0, [(0.0, 0u32); 3]); members.len()];
    for pair in &view.pairs {
        let (a, b) = (member_of[pair.a], member_of[pair.b]);
        for member in std::iter::once(a).chain((a != b).then_some(b)) {
            let (pairs, of_measures) = &mut sums[member];
            *pairs += 1;
            for ((sum, count), value) in
                of_measures.iter_mut().zip(pair.values).filter_map(|(of, value)| Some((of, value?)))
            {
                *sum += value.percent;
                *count += 1;
            }
        }
    }
    let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
    let standing = |(name, (pairs, of_measures)): (String, (usize, [(f64, u32); 3]))| Standing {
        name,
        pairs,
        percent: of_measures.map(mean),
    };
    names.zip(sums).map(standing).collect()
}

// Slow pairs: those whose best replicate is an outlier of their locality by more than 10 % (a rate below 90 %, a time above 111 %), in
// logarithms, by the rule that also finds suspects. The best replicate counts, so that a passing disturbance is ignored.

/// False-alarm probability over all comparisons of a record with healthy pairs.
const CHANCE: f64 = 0.01;

/// Values nearer to the median than this are ignored.
const MIN_SHARE: f64 = 0.9;

/// Lower bound on the standard deviation of a logarithm: the repeatability of measurements.
const MIN_DEVIATION: f64 = 0.01;

/// Minimum number of pairs of a locality for one of them to be an outlier.
pub(super) const MIN_PAIRS: usize = 4;

/// Maximum number of findings that name a pair.
const MAX_NAMED: usize = 20;

/// How many values were compared, and those that are slow, the worst first.
pub(super) fn slow_pairs(view: &PairsView) -> (usize, Vec<SlowPair>) {
    let classes: Vec<(Measure, Vec<Member>)> = PairLocality::ALL
        .into_iter()
        .flat_map(|locality| Measure::ALL.map(|measure| (measure, members_of(view, locality, measure))))
        .filter(|(_, members)| members.len() >= MIN_PAIRS)
        .collect();
    let compared = classes.iter().map(|(_, members)| members.len()).sum();
    let of_class = |(measure, members): &(Measure, Vec<Member>)| {
        let measure = *measure;
        let slow = slow_members(members, compared).into_iter();
        slow.map(move |(pair, deviations, allowed)| SlowPair { pair, measure, deviations, allowed })
    };
    let mut slow: Vec<SlowPair> = classes.iter().flat_map(of_class).collect();
    let share = |slow: &SlowPair| {
        view.pairs[slow.pair].values[slow.measure as usize].map_or(0.0, |value| slow.measure.speed(value.percent))
    };
    slow.sort_by(|one, other| share(one).total_cmp(&share(other)));
    (compared, slow)
}

/// A pair of a class: logarithms, the larger the slower.
struct Member {
    pair: usize,
    middle: f64,
    best: f64,
}

fn members_of(view: &PairsView, locality: PairLocality, measure: Measure) -> Vec<Member> {
    let pairs = view.pairs.iter().enumerate().filter(|(_, pair)| pair.locality == locality && !pair.shares_device);
    let member = |(pair, value): (usize, PairValue)| {
        let slowness = |of: f64| if measure == Measure::Latency { of.ln() } else { -of.ln() };
        Member { pair, middle: slowness(value.value), best: slowness(value.best) }
    };
    pairs.filter_map(|(index, pair)| Some((index, pair.values[measure as usize]?))).map(member).collect()
}

/// The slow ones of a class, of this many compared values in all classes.
fn slow_members(members: &[Member], compared: usize) -> Vec<(usize, f64, f64)> {
    let rule = OddRule {
        chance: CHANCE,
        comparisons: compared,
        least_deviation: MIN_DEVIATION,
        least_distance: -MIN_SHARE.ln(),
    };
    let middles: Vec<f64> = members.iter().map(|member| member.middle).collect();
    let Some(usual) = rule.usual(&middles) else { return Vec::new() };
    let slow = members.iter().filter(|member| usual.strength(member.best) > 1.0);
    slow.map(|member| (member.pair, (member.best - usual.middle) / usual.deviation, usual.allowed / usual.deviation))
        .collect()
}

/// The sentences of the report.
pub(super) fn findings(view: &PairsView) -> Vec<String> {
    let sharing = view.pairs.iter().filter(|pair| pair.shares_device).count();
    let of_sharing = (sharing > 0).then(|| {
        format!("{} of ranks that share a GPU: not compared, as no link is between them", counted(sharing, "pair"))
    });
    if view.compared == 0 {
        let none = format!("no locality has {MIN_PAIRS} measured pairs, so no pair can be called slow");
        return of_sharing.into_iter().chain([none]).collect();
    }
    let named = distinct(view.slow.iter().map(|slow| slow.pair));
    let rule = format!(
        "{} values of pairs were compared with those of the same locality; slow is what is in every replicate worse than \
         the median by more than 10 % and by more than the scatter of all explains (robust, 1 % chance of any false alarm)",
        view.compared
    );
    let mut findings = vec![match named.len() {
        0 => format!("no pair is slow: {rule}"),
        1 => format!("1 pair is slow: {rule}"),
        pairs => format!("{pairs} pairs are slow: {rule}"),
    }];
    findings.extend(of_sharing);
    findings.extend(named.iter().take(MAX_NAMED).map(|pair| sentence(view, *pair)));
    if named.len() > MAX_NAMED {
        findings.push(format!("{} more pairs are slow; --format json lists them all", named.len() - MAX_NAMED));
    }
    findings
}

fn sentence(view: &PairsView, index: usize) -> String {
    let pair = &view.pairs[index];
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let hosts = match pair.locality {
        PairLocality::SameHost => format!("on {}", a.host),
        PairLocality::DifferentHosts => format!("on {} and {}", a.host, b.host),
    };
    let of_pair = view.slow.iter().filter(|slow| slow.pair == index);
    let measures: Vec<String> = of_pair
        .filter_map(|slow| {
            let value = pair.values[slow.measure as usize]?;
            let (name, shown) = (slow.measure.name(), slow.measure.shown(value.value));
            Some(format!("{name} {shown}, {:.0} % of the median's speed", slow.measure.speed(value.percent)))
        })
        .collect();
    format!("ranks {} and {} {hosts} are slow: {}", a.rank, b.rank, measures.join("; "))
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_base::testing::{Shape, draw};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn slow_pairs_of(values: &[f64]) -> Vec<usize> {
        let member = |(pair, value): (usize, &f64)| Member { pair, middle: -value, best: -value };
        let members: Vec<Member> = values.iter().enumerate().map(member).collect();
        slow_members(&members, 3 * values.len()).into_iter().map(|(pair, ..)| pair).collect()
    }

    fn noise(pairs: usize, deviation: f64, seed: u64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..pairs).map(|_| draw(Shape::LogNormal(deviation), &mut random).ln()).collect()
    }

    #[test]
    fn healthy_pairs_are_called_slow_in_less_than_2_of_100_runs() {
        for pairs in [4usize, 6, 10, 28, 120] {
            for deviation in [0.02, 0.05, 0.1] {
                // Each of three measures as in a run.
                let runs_with_findings = (0..1000).filter(|run| {
                    (0..3).any(|measure| {
                        !slow_pairs_of(&noise(pairs, deviation, run * 7 + measure * 1_000_003)).is_empty()
                    })
                });
                let count = runs_with_findings.count();
                assert!(count <= 20, "{pairs} pairs, noise {deviation}: {count} of 1000");
            }
        }
    }

    #[test]
    fn a_link_at_a_quarter_is_found_and_nothing_else() {
        for pairs in [6usize, 15, 28, 120, 2016] {
            let mut others = 0;
            for run in 0..100 {
                let mut values = noise(pairs, 0.03, run);
                let slow_pair = run as usize % pairs;
                values[slow_pair] += 0.25f64.ln();
                let found = slow_pairs_of(&values);
                assert!(found.contains(&slow_pair), "{pairs} pairs, run {run}");
                others += usize::from(found.len() > 1);
            }
            assert!(others <= 2, "{pairs} pairs: others were suspected in {others} of 100 runs");
        }
    }

    #[test]
    fn a_deviation_within_10_per_cent_is_ignored_however_small_the_scatter() {
        let mut values = vec![0.0; 28];
        values[3] = 0.91f64.ln();
        assert_eq!(slow_pairs_of(&values), Vec::<usize>::new());
        values[3] = 0.8f64.ln();
        assert_eq!(slow_pairs_of(&values), [3]);
    }
}
