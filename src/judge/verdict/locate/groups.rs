//! Times of groups of nodes, each node alone and growing groups, from the medians or histograms of their ranks.

use super::super::comparability::LoadedRecord;
use super::super::expected::{Expected, expected_call};
use super::super::network;
use super::document::{MIN_MEMBERS, SuspectKind, Unconfirmed};
use super::explain::{Finding, Search, percent, rule};
use super::pair_lines::{Measure, PairMatrices, Places, is_pairs};
use super::paths::InsidePairs;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{Histogram, Usual, low_median};
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::{Limit, Machine};
use commgauge_model::layout::{Axis, Nodes};
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockMethod, Outcome};
use std::collections::BTreeMap;

/// A node that is slower inside by less than 5 % is ignored.
const MIN_INSIDE: f64 = 0.05;

/// Growth beyond a straight line by less than 10 % is ignored.
const MIN_GROWTH: f64 = 0.1;

/// A size of groups is compared with the line through this many smaller ones.
pub(super) const FIRST_COMPARED: usize = 2;

#[derive(Debug)]
pub(super) struct Level {
    /// Nodes in each group.
    pub nodes: u32,
    /// By their first node.
    groups: BTreeMap<usize, Group>,
}

impl Level {
    fn new(nodes: u32) -> Level {
        Level { nodes, groups: BTreeMap::new() }
    }
}

/// Nodes that work together.
#[derive(Debug)]
struct Group {
    members: Vec<usize>,
    /// Time of its slowest rank, in each replicate.
    seconds: Vec<f64>,
}

impl Group {
    fn new(members: &[usize]) -> Group {
        Group { members: members.to_vec(), seconds: Vec::new() }
    }
}

/// The longest of the members.
fn slowest(members: &[usize], seconds: &[Option<f64>]) -> Option<f64> {
    members.iter().filter_map(|node| seconds[*node]).reduce(f64::max)
}

/// The groups of one call by ascending size, starting at single nodes.
#[derive(Debug)]
pub(super) struct Growth {
    call: String,
    pub extent: Extent,
    pub levels: Vec<Level>,
}

/// Extent of the groups of a growth. A call that leaves a rack takes longer than its growth inside one allows, which is not a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// Inside racks, or on nodes without racks.
    Inside,
    /// Larger than a rack.
    Beyond,
}

impl Extent {
    /// The extent of a group; `None` if it is small and still spans two racks.
    fn of(members: &[usize], places: &Places) -> Option<Extent> {
        let racks =
            members.first().zip(members.last()).map(|(first, last)| (places.rack_of(*first), places.rack_of(*last)));
        match places.nodes_per_rack {
            Some(each) if members.len() > each as usize => Some(Extent::Beyond),
            Some(_) if racks.is_some_and(|(first, last)| first != last) => None,
            _ => Some(Extent::Inside),
        }
    }
}

/// All calls of nodes or groups of nodes, and whether histograms were too coarse to separate nodes.
pub(super) fn growths(records: &[LoadedRecord], places: &Places) -> (Vec<Growth>, bool) {
    let mut found: BTreeMap<(String, Extent), BTreeMap<u32, Level>> = BTreeMap::new();
    let mut coarse = false;
    for LoadedRecord { record, .. } in records {
        let nodes = Nodes::of_hosts(&places.node_of);
        for line in &record.cases {
            let Some(facts) = record.plan.cases.get(line.case as usize) else { continue };
            let count = match facts.axis {
                Axis::Node => 1,
                Axis::Nodes => facts.locality.nodes_spanned.max(1),
                _ => continue,
            };
            if !matches!(line.outcome, Outcome::Measured { .. }) {
                continue;
            }
            let seconds = seconds_of_nodes(line, facts, places);
            coarse |= seconds.is_none();
            let (call, blocks) = (call(facts), (0..nodes.count()).collect::<Vec<_>>());
            for members in blocks.chunks_exact(count as usize) {
                let Some(extent) = Extent::of(members, places) else { continue };
                let level =
                    found.entry((call.clone(), extent)).or_default().entry(count).or_insert_with(|| Level::new(count));
                let group = level.groups.entry(members[0]).or_insert_with(|| Group::new(members));
                group.seconds.extend(seconds.as_ref().and_then(|seconds| slowest(members, seconds)));
            }
        }
    }
    let growths = found.into_iter().map(|((call, extent), levels)| Growth {
        call,
        extent,
        levels: levels.into_values().collect(),
    });
    (growths.collect(), coarse)
}

fn call(facts: &CaseFacts) -> String {
    format!("{} of {} {} {}", facts.collective, facts.bytes_total, facts.element_type.name(), facts.placement)
}

/// The median of each node's slowest rank, from the medians of ranks or from histograms. `None` where a histogram covers ranks of several nodes.
fn seconds_of_nodes(line: &CaseLine, facts: &CaseFacts, places: &Places) -> Option<Vec<Option<f64>>> {
    let calls = f64::from(line.calls_per_sample.max(1)) * f64::from(facts.transfers_per_call.max(1));
    let mut seconds: Vec<Option<f64>> = vec![None; places.nodes()];
    for (median, node) in line.rank_medians.iter().zip(&places.node_of).filter(|(median, _)| **median > 0) {
        let (own, slowest) = (*median as f64 * 1e-9 / calls, &mut seconds[*node as usize]);
        *slowest = Some(slowest.map_or(own, |other| other.max(own)));
    }
    if !line.rank_medians.is_empty() {
        return Some(seconds);
    }
    for histogram in &line.histograms {
        let mut nodes = (histogram.rank..histogram.rank.saturating_add(histogram.ranks))
            .filter_map(|rank| places.node_of.get(rank as usize));
        let node = *nodes.next()? as usize;
        if nodes.any(|other| *other as usize != node) {
            return None;
        }
        let decoded = Histogram::decode(&histogram.hdr_v2_deflate_base64).ok()?;
        let median = decoded.percentile(50.0).or_else(|| decoded.percentile(0.0)).filter(|_| decoded.count() > 0);
        if let Some(median) = median {
            let own = median as f64 * 1e-9 / calls;
            seconds[node] = Some(seconds[node].map_or(own, |other| other.max(own)));
        }
    }
    Some(seconds)
}

impl Growth {
    /// Finds nodes that are slower inside than the others, the worst first. Returns the number compared.
    pub(super) fn inside(&self, places: &Places, findings: &mut Vec<Finding>) -> u32 {
        let Some(level) = self.levels.first().filter(|level| level.nodes == 1) else { return 0 };
        let mut left: Vec<(usize, f64)> = (level.groups.iter())
            .filter_map(|(node, group)| Some((*node, low_median(group.seconds.iter().copied())?.ln())))
            .collect();
        let all = left.len();
        while left.len() >= MIN_MEMBERS - 1 && all >= MIN_MEMBERS {
            let scores: Vec<f64> = left.iter().map(|(_, score)| *score).collect();
            let Some(usual) = rule(all, MIN_INSIDE).usual(&scores) else { break };
            let worst = left.iter().copied().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
            let Some((index, (node, slower))) = worst.filter(|(_, (_, slower))| usual.strength(*slower) > 1.0) else {
                break;
            };
            left.remove(index);
            let excess = slower - usual.middle;
            let always = level.groups[&node].seconds.iter().all(|seconds| usual.strength(seconds.ln()) > 1.0);
            findings.push(Finding {
                suspect: SuspectKind::Node { node: node as u32 },
                slower: excess,
                strength: usual.strength(slower),
                intermittent: !always,
                inside: true,
                evidence: format!(
                    "inside {}: {} takes {} longer than on other nodes",
                    places.name(node),
                    self.call,
                    percent(excess)
                ),
            });
        }
        all as u32
    }

    /// Finds group sizes that take longer than a straight line through the smaller ones allows. The time of a healthy collective grows at
    /// most in proportion to the nodes (its steps), and usually less, as the share of each node falls; so twice the nodes may cost twice
    /// the last increase. Groups with a suspect are excluded. Returns whether all sizes could be checked.
    pub(super) fn at_scale(&self, is_suspected: &dyn Fn(&[usize]) -> bool, findings: &mut Vec<Finding>) -> bool {
        let clean: Vec<(u32, Vec<f64>)> = (self.levels.iter())
            .map(|level| (level.nodes, of_replicates(level, is_suspected)))
            .filter(|(_, times)| !times.is_empty())
            .collect();
        let whole = clean.len() == self.levels.len();
        let middle = |times: &[f64]| low_median(times.iter().copied()).unwrap_or(f64::NAN);
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        for [(nodes_a, a), (nodes_b, b), (nodes, times)] in clean.array_windows() {
            // A passing slowdown of the smallest groups leaves them one normal replicate, and must not flatten the line.
            let slope = ((middle(b) - least(a)) / f64::from(nodes_b - nodes_a)).max(0.0);
            let line = middle(b) + slope * f64::from(nodes - nodes_b);
            let (excess, always) = ((middle(times) / line).ln(), (least(times) / line).ln());
            if always > MIN_GROWTH {
                findings.push(Finding {
                    suspect: SuspectKind::OnlyAtScale { from_nodes: *nodes },
                    slower: excess,
                    strength: excess / MIN_GROWTH,
                    intermittent: false,
                    inside: false,
                    evidence: format!(
                        "{} takes {} longer on {nodes} nodes than its growth from {nodes_a} to {nodes_b} nodes allows, while groups of {nodes_b} are normal",
                        self.call, percent(excess)
                    ),
                });
                break;
            }
        }
        whole
    }
}

/// In each replicate the lower median of the groups without a suspect.
fn of_replicates(level: &Level, is_suspected: &dyn Fn(&[usize]) -> bool) -> Vec<f64> {
    let clean: Vec<&Vec<f64>> =
        level.groups.values().filter(|group| !is_suspected(&group.members)).map(|group| &group.seconds).collect();
    let replicates = clean.iter().map(|times| times.len()).max().unwrap_or(0);
    (0..replicates)
        .filter_map(|replicate| low_median(clean.iter().filter_map(|times| times.get(replicate).copied())))
        .collect()
}

// The late rank: the one that arrived last in a clear majority of the samples of isolated cases.

/// Share of the samples in which a rank must be last; with two ranks each is last in half of them by chance.
const CLEAR_MAJORITY: f64 = 0.6;

const CLEAR_MAJORITY_OF_TWO: f64 = 0.8;

/// Lateness below this share of the time of the call is ignored.
const MIN_LATENESS_SHARE: f64 = 0.1;

/// Result of the search for a late rank.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Isolated cases with samples.
    pub cases: u32,
    /// True if the clocks of a record were not synchronised, so that it cannot show a late rank.
    pub no_clock: bool,
    /// The late rank and its median lateness.
    pub late: Option<(Finding, Seconds)>,
}

/// Searches the isolated cases of all records for a late rank.
pub(super) fn arrivals(records: &[LoadedRecord], places: &Places) -> Arrivals {
    let mut found = Arrivals::default();
    let mut spreads: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    let mut transfers = Vec::new();
    let (mut samples, mut residual) = (0usize, 0u64);
    for LoadedRecord { record, .. } in records {
        let isolated = record.plan.cases.iter().filter(|facts| facts.cadence == Cadence::Isolated).count() as u32;
        if isolated == 0 {
            continue;
        }
        found.cases += isolated;
        if record.clocks.is_empty() || record.clocks.iter().any(|clock| clock.method != ClockMethod::Synchronised) {
            found.no_clock = true;
            continue;
        }
        residual = residual.max(record.clocks.iter().map(|clock| clock.residual_nanoseconds).max().unwrap_or(0));
        for line in record.cases.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. })) {
            let (last, spread_of) = (&line.samples.last_rank, &line.samples.arrival_spread_nanoseconds);
            let arrivals =
                line.samples.valid().filter_map(|index| Some((index, last.get(index)?, spread_of.get(index)?)));
            for (index, rank, spread) in arrivals {
                // Both arrivals may be off by the clock errors of their devices.
                let error = line.samples.arrival_error_nanoseconds(index);
                spreads.entry(*rank).or_default().push([*spread as f64, error as f64]);
                samples += 1;
            }
            transfers.extend(line.samples.transfer_nanoseconds.iter().map(|time| *time as f64));
        }
    }
    let Some((rank, times)) = spreads.into_iter().max_by_key(|(_, times)| times.len()) else { return found };
    let share = times.len() as f64 / samples as f64;
    let low = |of: fn(&[f64; 2]) -> f64| low_median(times.iter().map(of)).unwrap_or(0.0);
    let (spread, certain) = (low(|[spread, _]| *spread), low(|[spread, error]| spread - error));
    let call = low_median(transfers).unwrap_or(0.0);
    let majority = if places.node_of.len() > 2 { CLEAR_MAJORITY } else { CLEAR_MAJORITY_OF_TWO };
    let agreement = residual as f64 + low(|[_, error]| *error);
    let least = agreement.max(MIN_LATENESS_SHARE * call).max(1.0);
    if share > majority && spread > least && certain > residual as f64 {
        let node = places.node_of.get(rank as usize).copied().unwrap_or(0);
        let late = Seconds(spread * 1e-9);
        let evidence = format!(
            "arrivals: last in {:.0} % of {samples} common starts, {late} after the first (median); the clocks agree to {}",
            100.0 * share,
            Seconds(agreement * 1e-9)
        );
        let suspect = SuspectKind::LateRank { rank, node };
        found.late = Some((
            Finding { suspect, slower: 0.0, strength: spread / least, intermittent: false, inside: false, evidence },
            late,
        ));
    }
    found
}

// All data and intermediate results of a search for suspects.

/// All data and intermediate results of a search.
pub(super) struct Analysis {
    pub(super) places: Places,
    pub(super) pair_matrices: PairMatrices,
    pub(super) inside_pairs: InsidePairs,
    pub(super) growths: Vec<Growth>,
    /// Histograms covered ranks of several nodes.
    pub(super) coarse: bool,
    pub(super) arrivals: Arrivals,
    pub(super) nodes_inside: u32,
    /// True if groups of every size could be checked.
    pub(super) all_sizes: bool,
    /// Pairs that were slow in a single replicate and are not suspects.
    pub(super) slow_once: usize,
    /// Minimum excess of a path that the least scattering measure of bandwidth can show, as a logarithm.
    pub(super) allowed_of_path: Option<f64>,
    /// Findings of a single measure on few nodes. They make no suspect, but the machine does not count as good either.
    pub(super) unconfirmed: Vec<Unconfirmed>,
    /// The machine file's expectations of pairs; empty without one.
    pub(super) expected_pairs: Vec<ExpectedPairs>,
}

// Pairs of nodes against the expectations of the machine file: a uniform slowdown shows in no comparison of the parts, and with two nodes
// there is nothing to compare.

/// Performance of pairs by one measure on a machine that meets its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedPairs {
    measure: Measure,
    /// The rate of one path.
    rate: Rate,
    /// The logarithm of a message's nanoseconds at that rate, and the allowed excess.
    usual: Usual,
}

/// The machine file's expectation for large messages of pairs between nodes.
pub(super) fn expected_pairs(records: &[LoadedRecord], machine: Option<&Machine>) -> Vec<ExpectedPairs> {
    let Some(machine) = machine.map(|machine| network::expecting(machine, records)) else { return Vec::new() };
    let expected = Expected::new(Some(&machine));
    let cases = records.iter().flat_map(|loaded| &loaded.record.plan.cases);
    let between_nodes: Vec<_> = cases.filter(|facts| is_pairs(facts) && facts.locality.nodes_spanned > 1).collect();
    let of_measure = |measure: Measure| {
        let cases =
            between_nodes.iter().filter(|facts| Measure::of(facts.collective, facts.bytes_total, None) == measure);
        // Small messages say nothing about a rate, though learned files bound them too.
        let largest = cases.clone().map(|facts| facts.bytes_total).max()?;
        cases.filter(|facts| facts.bytes_total == largest).find_map(|facts| {
            let required = expected.of_any_algorithm(&expected_call(facts))?;
            let Limit::BusBandwidthFloor(floor) = required.limit else { return None };
            let (rate, bytes) = (required.figure(), facts.bytes_accounted.0 as f64);
            let usual = Usual::given((1e9 * bytes / rate).ln(), (rate / floor.0).ln().max(f64::EPSILON));
            Some(ExpectedPairs { measure, rate: Rate(rate), usual })
        })
    };
    [Measure::OneWay, Measure::BothWays].into_iter().filter_map(of_measure).collect()
}

impl ExpectedPairs {
    /// Names what all paths between all nodes have in common, if none of them reaches the expectation.
    pub(super) fn all_slow(expected: &[ExpectedPairs], search: &mut Search) {
        let Some(expected) = expected.iter().find(|one| one.measure == search.measure) else { return };
        let nodes = search.matrix.nodes;
        let values: Vec<f64> = search.matrix.pairs().filter_map(|pair| search.matrix.of_pair(pair)).collect();
        let Some(fastest) = values.iter().copied().reduce(f64::min).filter(|_| nodes > 1) else { return };
        if expected.usual.strength(fastest) <= 1.0 {
            return;
        }
        let share = (expected.usual.middle - fastest).exp();
        let file = format!("of the {} expected by the machine file", expected.rate);
        let (suspect, evidence) = match nodes {
            2 => {
                let evidence = format!(
                    "reaches {share:.2} {file}; on two nodes it may be either of them or the path between them"
                );
                (SuspectKind::Link { nodes: [0, 1], local_rank: None }, evidence)
            }
            _ => {
                let evidence = format!(
                    "the fastest of {} pairs of nodes reaches {share:.2} {file}, so all are slow",
                    values.len()
                );
                (SuspectKind::Network, evidence)
            }
        };
        search.add(suspect, fastest, &expected.usual, evidence);
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_passing_slowdown_of_small_groups_makes_large_ones_no_suspects_and_a_lasting_one_of_large_groups_does() {
        let level = |(nodes, seconds): (u32, [f64; 3])| {
            let group = Group { members: vec![0], seconds: seconds.to_vec() };
            Level { nodes, groups: BTreeMap::from([(0, group)]) }
        };
        for (name, of_four, of_sixteen, is_found) in [
            ("healthy", [1.2; 3], [1.8; 3], false),
            ("groups of four for a while", [1.2, 1.8, 1.8], [1.8; 3], false),
            ("groups of sixteen for a while", [1.2; 3], [1.8, 3.0, 3.0], false),
            ("groups of sixteen", [1.2; 3], [3.0; 3], true),
        ] {
            let levels = [(4, of_four), (8, [1.4; 3]), (16, of_sixteen)].map(level).into();
            let growth = Growth { call: "all_reduce".to_owned(), extent: Extent::Inside, levels };
            let mut findings = Vec::new();
            growth.at_scale(&|_| false, &mut findings);
            assert_eq!(!findings.is_empty(), is_found, "{name}");
        }
    }

    #[test]
    fn groups_that_leave_a_rack_are_compared_with_groups_larger_than_a_rack_only() {
        let of = |nodes_per_rack, members: std::ops::Range<usize>| {
            let places = Places {
                hosts: (0..72).map(|node| format!("host{node}")).collect(),
                node_of: (0..72).collect(),
                local_of: vec![0; 72],
                ranks_on: vec![1; 72],
                nodes_per_leaf: None,
                nodes_per_rack,
            };
            Extent::of(&members.collect::<Vec<_>>(), &places)
        };
        for (members, extent) in [
            (0..1, Some(Extent::Inside)),
            (0..16, Some(Extent::Inside)),
            // A part of each of two racks.
            (16..32, None),
            (16..20, None),
            (20..24, Some(Extent::Inside)),
            (0..32, Some(Extent::Beyond)),
            (0..72, Some(Extent::Beyond)),
        ] {
            assert_eq!(of(Some(18), members.clone()), extent, "{members:?}");
            assert_eq!(of(None, members), Some(Extent::Inside));
        }
    }
}
