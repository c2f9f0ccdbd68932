//! Devices of a node whose links to the other devices are slow, from pairs of ranks inside the nodes.
//!
//! A pair is compared with the pair of the same local ranks on the other nodes, so that devices which are further apart by
//! design (another socket, no direct link) do not look slow. Bandwidth only: latencies inside a node depend on what else the
//! processor does.

use super::confirm::FEW_NODES;
use super::document::{MIN_MEMBERS, SuspectKind};
use super::explain::{Finding, MIN_EXCESS_OF_MANY, MIN_EXCESS_OF_PATH, SlowPartners, percent, rule};
use super::pair_lines::{Measure, PairLine};
use super::places::Places;
use commgauge_base::stats::{Usual, low_median};

/// One measure between the devices of every node.
#[derive(Debug)]
struct InsideMatrix {
    measure: Measure,
    locals: usize,
    /// For each replicate and node, every pair of local ranks: the logarithm of its time; NaN where nothing was measured.
    by_replicate: Vec<Vec<Vec<f64>>>,
    /// The lower median of the replicates above that of the other nodes, in the same order.
    excess: Vec<Vec<f64>>,
    /// The usual time of each pair of local ranks, over all nodes.
    usual: Vec<f64>,
}

/// What pairs inside nodes show.
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
        // As between nodes: on a few nodes one measure alone suspects nothing.
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

    /// Devices that are slow with nearly all others of their node. Where nearly all of a node are, it is the node.
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
