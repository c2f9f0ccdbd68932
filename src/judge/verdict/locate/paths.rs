//! Finds leaf switches whose nodes are slow with nodes behind other leaves, even if half of the leaves are slow.

use super::document::{FEW_NODES, MIN_MEMBERS, SuspectKind};
use super::explain::{
    Finding, MIN_DEVIATION, MIN_EXCESS_OF_MANY, MIN_EXCESS_OF_PATH, Search, SlowPartners, percent, rule,
};
use super::pair_lines::{Measure, PairLine, Places, Way};
use commgauge_base::stats::{OddRule, Usual, low_median, sorted};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of leaves for one to be an outlier.
pub(super) const MIN_LEAVES: usize = 3;

/// Share of the nodes behind a leaf that must be slow with others before the leaf is a suspect.
const MIN_SLOW_SHARE: f64 = 0.8;

/// Times of the nodes behind a leaf with others.
struct Leaf {
    leaf: usize,
    nodes: Vec<usize>,
    /// Each node's, if it met other leaves.
    of_nodes: Vec<f64>,
    middle: f64,
}

/// Adds the slow leaves to the findings, and explains their nodes by them.
pub(super) fn find(search: &mut Search) {
    let places = search.places;
    if places.leaves() < MIN_LEAVES || places.nodes_per_leaf.is_none_or(|each| each < 2) {
        return;
    }
    let leaves: Vec<Leaf> = (0..places.leaves()).filter_map(|leaf| of_leaf(search, leaf)).collect();
    let Some(usual) = usual(&leaves) else { return };
    for leaf in leaves.iter().filter(|leaf| usual.strength(leaf.middle) > 1.0) {
        let slower = leaf.middle - usual.middle;
        let slow = leaf.of_nodes.iter().filter(|of_node| **of_node - usual.middle > slower / 2.0).count();
        if leaf.nodes.len() < 2 || (slow as f64) < MIN_SLOW_SHARE * leaf.nodes.len() as f64 {
            continue;
        }
        let inside = low_median(
            (leaf.nodes.iter())
                .flat_map(|a| leaf.nodes.iter().filter(move |b| a < b).map(move |b| [*a, *b]))
                .filter_map(|pair| search.excess(pair)),
        );
        let within = match inside {
            Some(excess) if excess > usual.allowed => "among themselves too",
            Some(_) => "not among themselves, so check its uplinks",
            None => "among themselves unknown",
        };
        leaf.nodes.iter().for_each(|node| search.explained[*node] = true);
        let (count, longer) = (leaf.nodes.len(), percent(slower));
        let evidence =
            format!("{slow} of its {count} nodes take {longer} longer with nodes behind other leaves; {within}");
        let nodes = leaf.nodes.iter().map(|node| *node as u32).collect();
        search.add(SuspectKind::Leaf { leaf: leaf.leaf as u32, nodes }, leaf.middle, &usual, evidence);
    }
}

fn of_leaf(search: &Search, leaf: usize) -> Option<Leaf> {
    let nodes = search.places.behind(leaf);
    let of_nodes: Vec<f64> = nodes.iter().filter_map(|node| with_faster_leaves(search, *node)).collect();
    let middle = low_median(of_nodes.iter().copied())?;
    Some(Leaf { leaf, nodes, of_nodes, middle })
}

/// A node's times with the third of the other leaves that it is fastest with, the slowest of these: for a normal node they include normal
/// leaves.
fn with_faster_leaves(search: &Search, node: usize) -> Option<f64> {
    let places = search.places;
    let mut with: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for other in search.matrix.partners(node).filter(|other| places.way([node, *other]) == Way::AcrossLeaves) {
        with.entry(places.leaf_of(other)).or_default().extend(search.matrix.of_pair([node, other]));
    }
    let of_leaves = sorted(with.into_values().filter_map(low_median));
    of_leaves.get(of_leaves.len().saturating_sub(1) / 3).copied()
}

/// The usual value of a leaf. If none is an outlier by the scatter of the leaves, half of them may be slow and cause the scatter: then the
/// scatter of the nodes behind each leaf, and of the faster leaves, applies.
fn usual(leaves: &[Leaf]) -> Option<Usual> {
    let middles: Vec<f64> = leaves.iter().map(|leaf| leaf.middle).collect();
    let rule = rule(leaves.len(), MIN_EXCESS_OF_MANY);
    let usual = rule.usual(&middles)?;
    if middles.iter().any(|middle| usual.strength(*middle) > 1.0) {
        return Some(usual);
    }
    let of_leaf = |leaf: &Leaf| low_median(leaf.of_nodes.iter().map(|of_node| (of_node - leaf.middle).abs()));
    let scatter = low_median(leaves.iter().filter_map(of_leaf)).unwrap_or(0.0);
    OddRule { least_deviation: MIN_DEVIATION.max(scatter), ..rule }.usual_by_lower_half(&middles)
}

// Adapters that are slow in one direction only, from the excess of calls with both directions at once and back and forth.
//
// For a call that takes r times as long in one direction: with both directions at once it takes r times as long, as the slower one decides,
// and back and forth (1 + r) / 2 times. If both directions are slow it is r times for both.

/// Smaller differences do not separate the two explanations.
const MIN_DIFFERENCE: f64 = 0.04;

/// Whether an adapter is slow in one direction only, as far as the searches of both measures show.
pub(super) fn is_one_direction(searches: &[Search], node: usize, local: usize) -> bool {
    let excess = |measure| {
        let search = searches.iter().find(|search| search.measure == measure && search.matrix.nodes >= FEW_NODES)?;
        search.excess_of_adapter.get(node)?.get(local).copied().filter(|excess| !excess.is_nan())
    };
    match (excess(Measure::OneWay), excess(Measure::BothWays)) {
        (Some(back_and_forth), Some(both_ways)) => fits_one_direction(back_and_forth, both_ways),
        _ => false,
    }
}

/// From logarithms.
fn fits_one_direction(back_and_forth: f64, both_ways: f64) -> bool {
    let expected = ((1.0 + both_ways.exp()) / 2.0).ln();
    let difference = both_ways - expected;
    difference >= MIN_DIFFERENCE && (back_and_forth - expected).abs() < difference / 2.0
}

// Intermittent faults: pairs that were slow in one replicate but not in another, and the node that they share.

/// Minimum excess of a single slow measurement, as a logarithm.
const MIN_EXCESS: f64 = 0.1;

/// Minimum number of slow partners of an intermittent node ...
const MIN_PARTNERS: usize = 3;

/// ... and the minimum multiple of the usual number of slow partners.
const MIN_MULTIPLE_OF_USUAL: usize = 3;

/// Minimum number of slow replicates of an intermittent link; once may be a passing disturbance.
const MIN_REPLICATES: usize = 2;

/// A measurement of a pair that was slower than the scatter explains.
struct Slow {
    pair: [usize; 2],
    excess: f64,
}

/// Adds intermittent findings, after all constant ones are explained. Returns the number of pairs that were slow only once.
pub(super) fn intermittent(search: &mut Search) -> usize {
    let replicates = search.matrix.replicates();
    if search.matrix.nodes < MIN_MEMBERS || replicates < MIN_REPLICATES {
        return 0;
    }
    let (mut slow, allowed) = slow_pairs(search);
    while let Some((node, partners)) = worst_node(search.matrix.nodes, &slow) {
        let own: Vec<f64> = slow.iter().filter(|slow| slow.pair.contains(&node)).map(|slow| slow.excess).collect();
        let excess = low_median(own.iter().copied()).unwrap_or(0.0);
        let all = search.matrix.partners(node).count() * replicates;
        search.findings.push(Finding {
            suspect: SuspectKind::Node { node: node as u32 },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            inside: false,
            evidence: format!(
                "{}: slow in {} of {all} meetings, with {partners} other nodes, by {}; normal in the others",
                search.measure.name(),
                own.len(),
                percent(excess)
            ),
        });
        slow.retain(|slow| !slow.pair.contains(&node));
    }
    let mut of_pair: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
    slow.into_iter().for_each(|slow| of_pair.entry(slow.pair).or_default().push(slow.excess));
    let mut once = 0;
    for (pair, excesses) in of_pair {
        if excesses.len() < MIN_REPLICATES {
            once += 1;
            continue;
        }
        let excess = low_median(excesses.iter().copied()).unwrap_or(0.0);
        search.findings.push(Finding {
            suspect: SuspectKind::Link { nodes: pair.map(|node| node as u32), local_rank: None },
            slower: excess,
            strength: excess / allowed,
            intermittent: true,
            inside: false,
            evidence: format!(
                "{}: slow in {} of {replicates} replicates, by {}",
                search.measure.name(),
                excesses.len(),
                percent(excess)
            ),
        });
    }
    once
}

/// Slow measurements of unexplained nodes and links, and the allowed excess.
fn slow_pairs(search: &Search) -> (Vec<Slow>, f64) {
    let is_suspected = |pair: [usize; 2]| {
        let link = |finding: &Finding| match &finding.suspect {
            SuspectKind::Link { nodes, .. } => *nodes == pair.map(|node| node as u32),
            _ => false,
        };
        pair.iter().any(|node| search.explained[*node]) || search.findings.iter().any(link)
    };
    let open: Vec<[usize; 2]> = search.matrix.pairs().filter(|pair| !is_suspected(*pair)).collect();
    let mut all = Vec::new();
    for replicate in 0..search.matrix.replicates() {
        let excess = |pair: &[usize; 2]| Some(search.matrix.of_pair_in(*pair, replicate)? - search.usual_of(*pair));
        let mut of_line: BTreeMap<Option<usize>, Vec<Slow>> = BTreeMap::new();
        for (pair, excess) in open.iter().filter_map(|pair| Some((*pair, excess(pair)?))) {
            of_line.entry(search.matrix.line_of(pair, replicate)).or_default().push(Slow { pair, excess });
        }
        let of_replicate = shift(of_line.values().flatten());
        for slow in of_line.into_values() {
            // A slowdown of the whole round is not attributed to a pair; of few pairs, one would pass for it.
            let shift = if slow.len() < MIN_MEMBERS { of_replicate } else { shift(&slow) };
            all.extend(slow.into_iter().map(|slow| Slow { excess: slow.excess - shift, ..slow }));
        }
    }
    let excesses: Vec<f64> = all.iter().map(|slow| slow.excess).collect();
    let Some(usual) = rule(all.len(), MIN_EXCESS).usual(&excesses) else { return (Vec::new(), 1.0) };
    all.retain(|slow| usual.strength(slow.excess) > 1.0);
    (all, usual.allowed)
}

/// By how much most of these measurements are slower than usual.
fn shift<'a>(measured: impl IntoIterator<Item = &'a Slow>) -> f64 {
    low_median(measured.into_iter().map(|slow| slow.excess)).unwrap_or(0.0)
}

/// The node with the most slow partners, and their number, if far above the usual.
fn worst_node(nodes: usize, slow: &[Slow]) -> Option<(usize, usize)> {
    let mut partners = vec![BTreeSet::new(); nodes];
    for [a, b] in slow.iter().map(|slow| slow.pair) {
        partners[a].insert(b);
        partners[b].insert(a);
    }
    let partners: Vec<usize> = partners.iter().map(BTreeSet::len).collect();
    let usual = low_median(partners.iter().map(|count| *count as f64)).unwrap_or(0.0) as usize;
    let worst = partners.iter().copied().enumerate().max_by_key(|(node, count)| (*count, nodes - node))?;
    (worst.1 >= MIN_PARTNERS.max(MIN_MULTIPLE_OF_USUAL * usual)).then_some(worst)
}

// Devices of a node whose links to the other devices are slow, from pairs of ranks inside the nodes.
//
// A pair is compared with the pair of the same local ranks on the other nodes, so that devices which are further apart by design (another
// socket, no direct link) do not look slow. Bandwidth only: latencies inside a node depend on the load of the processor.

/// One measure between the devices of every node.
#[derive(Debug)]
struct InsideMatrix {
    measure: Measure,
    locals: usize,
    /// For each replicate and node, every pair of local ranks: the logarithm of its time; NaN if not measured.
    by_replicate: Vec<Vec<Vec<f64>>>,
    /// The lower median of the replicates above that of the other nodes, in the same order.
    excess: Vec<Vec<f64>>,
    /// The usual time of each pair of local ranks, over all nodes.
    usual: Vec<f64>,
}

/// Results of pairs inside nodes.
#[derive(Debug, Default)]
pub(super) struct InsidePairs {
    pub findings: Vec<Finding>,
    /// Pairs of devices that were compared with those of other nodes.
    pub compared: u64,
}

impl InsidePairs {
    /// Searches all lines; without four nodes there is nothing to compare with.
    pub(super) fn of(lines: &[PairLine], places: &Places) -> InsidePairs {
        if places.nodes() < MIN_MEMBERS {
            return InsidePairs::default();
        }
        let matrices: Vec<InsideMatrix> =
            [Measure::OneWay, Measure::BothWays].iter().filter_map(|m| InsideMatrix::of(*m, lines, places)).collect();
        let compared = |matrix: &InsideMatrix| matrix.excess.iter().flatten().filter(|value| !value.is_nan()).count();
        let by_measure: Vec<Vec<Finding>> = matrices.iter().map(|matrix| matrix.findings(places)).collect();
        // As between nodes: on few nodes a single measure suspects nothing.
        let agreed = |finding: &&Finding| {
            places.nodes() >= FEW_NODES
                || by_measure.iter().all(|found| found.iter().any(|other| other.suspect == finding.suspect))
        };
        InsidePairs {
            findings: by_measure.iter().flatten().filter(agreed).cloned().collect(),
            compared: matrices.iter().map(compared).max().unwrap_or(0) as u64,
        }
    }
}

impl InsideMatrix {
    fn of(measure: Measure, lines: &[PairLine], places: &Places) -> Option<InsideMatrix> {
        let locals = places.ranks_on.iter().copied().max().unwrap_or(0) as usize;
        let lines: Vec<&PairLine> = lines.iter().filter(|line| line.measure == measure).collect();
        let replicates = lines.iter().map(|line| line.replicate + 1).max().unwrap_or(0);
        let mut by_replicate =
            vec![vec![vec![f64::NAN; locals * locals.saturating_sub(1) / 2]; places.nodes()]; replicates];
        let mut any = false;
        for line in lines {
            for value in line.values(places).filter(|value| value.nodes[0] == value.nodes[1]) {
                by_replicate[line.replicate][value.nodes[0]][index(locals, value.locals)] = value.middle();
                any = true;
            }
        }
        any.then(|| InsideMatrix::with_excess(measure, locals, by_replicate))
    }

    fn with_excess(measure: Measure, locals: usize, by_replicate: Vec<Vec<Vec<f64>>>) -> InsideMatrix {
        let known = |value: &f64| !value.is_nan();
        let (nodes, pairs) = (by_replicate[0].len(), by_replicate[0][0].len());
        let middle = |node: usize, pair: usize| {
            low_median(by_replicate.iter().map(|replicate| replicate[node][pair]).filter(known)).unwrap_or(f64::NAN)
        };
        let mut excess: Vec<Vec<f64>> =
            (0..nodes).map(|node| (0..pairs).map(|pair| middle(node, pair)).collect()).collect();
        let of_pair = |pair: usize| excess.iter().map(|of_node| of_node[pair]).filter(known).collect::<Vec<f64>>();
        let usual: Vec<f64> = (0..pairs)
            .map(|pair| Some(of_pair(pair)).filter(|all| all.len() >= MIN_MEMBERS))
            .map(|all| all.and_then(low_median).unwrap_or(f64::NAN))
            .collect();
        for of_node in &mut excess {
            of_node.iter_mut().zip(&usual).for_each(|(value, usual)| *value -= usual);
        }
        InsideMatrix { measure, locals, by_replicate, excess, usual }
    }

    /// Excess of the pairs of a device with the others of its node.
    fn with_others(&self, node: usize, local: usize) -> impl Iterator<Item = f64> + '_ {
        let others = (0..self.locals).filter(move |other| *other != local);
        others
            .map(move |other| self.excess[node][index(self.locals, [local.min(other), local.max(other)])])
            .filter(|excess| !excess.is_nan())
    }

    fn findings(&self, places: &Places) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut explained = vec![vec![false; self.locals]; self.excess.len()];
        self.devices(places, &mut explained, &mut found);
        self.links(places, &explained, &mut found);
        found
    }

    /// Devices that are slow with nearly all others of their node. If nearly all devices of a node are, the node is slow.
    fn devices(&self, places: &Places, explained: &mut [Vec<bool>], found: &mut Vec<Finding>) {
        if self.locals < 3 {
            return;
        }
        let score = |node, local| low_median(self.with_others(node, local));
        let all = (0..self.excess.len()).flat_map(|node| (0..self.locals).map(move |local| (node, local)));
        let scores: Vec<((usize, usize), f64)> =
            all.filter_map(|(node, local)| Some(((node, local), score(node, local)?))).collect();
        let values: Vec<f64> = scores.iter().map(|(_, score)| *score).collect();
        let Some(usual) = rule(values.len(), MIN_EXCESS_OF_MANY).usual(&values) else { return };
        let slow_partners = |(node, local): (usize, usize)| {
            let allowed = usual.middle + usual.allowed;
            let (slow, partners) = self
                .with_others(node, local)
                .fold((0, 0), |(slow, all), excess| (slow + usize::from(excess > allowed), all + 1));
            SlowPartners { slow, partners }
        };
        let slow: Vec<((usize, usize), f64)> = (scores.into_iter())
            .filter(|(device, score)| usual.strength(*score) > 1.0 && slow_partners(*device).are_nearly_all())
            .collect();
        for of_node in slow.chunk_by(|((a, _), _), ((b, _), _)| a == b) {
            let ((node, _), slower) = of_node[0];
            of_node.iter().for_each(|((_, local), _)| explained[node][*local] = true);
            if (SlowPartners { slow: of_node.len(), partners: self.locals }).are_nearly_all() {
                let evidence = format!(
                    "{} of {} devices inside {} take {} longer with each other than on other nodes",
                    of_node.len(),
                    self.locals,
                    places.name(node),
                    percent(slower - usual.middle)
                );
                found.push(self.finding(SuspectKind::Node { node: node as u32 }, slower, &usual, &evidence));
                continue;
            }
            for ((node, local), slower) in of_node.iter().copied() {
                let evidence = format!(
                    "local rank {local} takes {} longer with most others inside {} than on other nodes",
                    percent(slower - usual.middle),
                    places.name(node)
                );
                let suspect = SuspectKind::NvLink { node: node as u32, local_rank: local as u32, peer: None };
                found.push(self.finding(suspect, slower, &usual, &evidence));
            }
        }
    }

    /// Links between two devices that are otherwise normal, slow in every replicate.
    fn links(&self, places: &Places, explained: &[Vec<bool>], found: &mut Vec<Finding>) {
        let pairs = || (0..self.locals).flat_map(|a| (a + 1..self.locals).map(move |b| [a, b]));
        let open: Vec<(usize, [usize; 2], f64)> = (0..self.excess.len())
            .flat_map(|node| pairs().map(move |pair| (node, pair)))
            .filter(|(node, [a, b])| !explained[*node][*a] && !explained[*node][*b])
            .map(|(node, pair)| (node, pair, self.excess[node][index(self.locals, pair)]))
            .filter(|(.., excess)| !excess.is_nan())
            .collect();
        let values: Vec<f64> = open.iter().map(|(.., excess)| *excess).collect();
        let Some(usual) = rule(values.len(), MIN_EXCESS_OF_PATH).usual(&values) else { return };
        for (node, pair, slower) in open {
            let cell = index(self.locals, pair);
            let replicates = self.by_replicate.iter().map(|replicate| replicate[node][cell]);
            let excesses = replicates.filter(|value| !value.is_nan()).map(|value| value - self.usual[cell]);
            if usual.strength(slower) <= 1.0 || !excesses.into_iter().all(|excess| usual.strength(excess) > 1.0) {
                continue;
            }
            let evidence = format!(
                "local ranks {} and {} take {} longer with each other inside {} than on other nodes; both are normal with others",
                pair[0],
                pair[1],
                percent(slower - usual.middle),
                places.name(node)
            );
            let [local_rank, peer] = pair.map(|local| local as u32);
            let suspect = SuspectKind::NvLink { node: node as u32, local_rank, peer: Some(peer) };
            found.push(self.finding(suspect, slower, &usual, &evidence));
        }
    }

    fn finding(&self, suspect: SuspectKind, slower: f64, usual: &Usual, evidence: &str) -> Finding {
        Finding {
            suspect,
            slower: slower - usual.middle,
            strength: usual.strength(slower),
            intermittent: false,
            inside: true,
            evidence: format!("inside, {}: {evidence}", self.measure.name()),
        }
    }
}

/// Index of a pair of local ranks, the lower first.
fn index(locals: usize, [a, b]: [usize; 2]) -> usize {
    a * (2 * locals - a - 1) / 2 + (b - a - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_costs_half_as_much_back_and_forth() {
        for (back_and_forth, both_ways, one_direction) in [
            (1.5, 2.0, true),
            (1.45, 2.0, true),
            (2.0, 2.0, false),
            (1.9, 2.0, false),
            // Slow only if both directions are used at once.
            (1.0, 2.0, false),
            // Too little data.
            (1.025, 1.05, false),
            (1.1, 1.2, true),
        ] {
            let (one, both): (f64, f64) = (back_and_forth, both_ways);
            assert_eq!(fits_one_direction(one.ln(), both.ln()), one_direction, "{back_and_forth} and {both_ways}");
        }
    }

    fn places(nodes: usize) -> Places {
        Places {
            hosts: (0..nodes).map(|node| format!("host{node}")).collect(),
            node_of: Vec::new(),
            local_of: Vec::new(),
            ranks_on: vec![4; nodes],
            nodes_per_leaf: None,
            nodes_per_rack: None,
        }
    }

    /// The suspects among nodes of four devices, two of which are further apart by design, with a scatter of 2 %.
    fn suspects_of(nodes: usize, times: impl Fn(usize, [usize; 2]) -> f64) -> Vec<SuspectKind> {
        let scatter = |node: usize, pair: [usize; 2], replicate: usize| {
            1.0 + ((node * 31 + pair[0] * 17 + pair[1] * 7 + replicate * 13) % 20) as f64 * 1e-3
        };
        let time = |node: usize, pair: [usize; 2], replicate: usize| {
            let design = if pair == [0, 3] { 3.0 } else { 1.0 };
            (design * times(node, pair) * scatter(node, pair, replicate)).ln()
        };
        let pairs = || (0..4).flat_map(|a| (a + 1..4).map(move |b| [a, b]));
        let by_replicate = (0..3)
            .map(|replicate| {
                let of_node = |node| pairs().map(|pair| time(node, pair, replicate)).collect();
                (0..nodes).map(of_node).collect()
            })
            .collect();
        let matrix = InsideMatrix::with_excess(Measure::OneWay, 4, by_replicate);
        matrix.findings(&places(nodes)).into_iter().map(|finding| finding.suspect).collect()
    }

    #[test]
    fn a_slow_device_a_slow_link_and_a_slow_node_are_distinguished_inside() {
        assert_eq!(suspects_of(8, |_, _| 1.0), []);
        let device = suspects_of(8, |node, pair| if node == 5 && pair.contains(&2) { 1.5 } else { 1.0 });
        assert_eq!(device, [SuspectKind::NvLink { node: 5, local_rank: 2, peer: None }]);
        let link = suspects_of(8, |node, pair| if node == 5 && pair == [1, 2] { 1.5 } else { 1.0 });
        assert_eq!(link, [SuspectKind::NvLink { node: 5, local_rank: 1, peer: Some(2) }]);
        let node = suspects_of(8, |node, _| if node == 5 { 1.5 } else { 1.0 });
        assert_eq!(node, [SuspectKind::Node { node: 5 }]);
    }
}
