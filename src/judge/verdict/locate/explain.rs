//! Finds suspects in a node-pair matrix: first what explains most (a leaf, a rail), then nodes and adapters, then single paths. Slowness
//! explained by a suspect makes nothing else a suspect.
//!
//! A node is judged by the lower median over its partners, so one bad partner does not make it look bad, and one bad node does
//! not make all its partners look bad. A rail is judged within each pair, so that slow nodes do not count.

use super::document::{FEW_NODES, MIN_MEMBERS, SuspectKind, Unconfirmed, name};
use super::pair_lines::{Measure, PairMatrix, Places, Way};
use commgauge_base::stats::{OddRule, Usual, low_median};

/// False-alarm probability of one kind of evidence on a healthy machine.
pub(super) const FALSE_ALARM_PROBABILITY: f64 = 0.001;

/// Lower bound on the standard deviation of a logarithm.
pub(super) const MIN_DEVIATION: f64 = 0.01;

/// Slowness below 5 % with most partners is ignored.
pub(super) const MIN_EXCESS_OF_MANY: f64 = 0.05;

/// Slowness below 10 % on a single path is ignored.
pub(super) const MIN_EXCESS_OF_PATH: f64 = 0.1;

/// Share of its partners with which a node must be slow before it is a suspect.
const MIN_SLOW_SHARE_OF_PARTNERS: f64 = 0.8;

/// A suspect by one kind of evidence.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub suspect: SuspectKind,
    /// Logarithm of the slowdown.
    pub slower: f64,
    pub strength: f64,
    pub intermittent: bool,
    /// Based only on times inside nodes.
    pub inside: bool,
    pub evidence: String,
}

/// The outlier rule for a number of comparisons.
pub(super) fn rule(comparisons: usize, least_distance: f64) -> OddRule {
    OddRule { chance: FALSE_ALARM_PROBABILITY, comparisons, least_deviation: MIN_DEVIATION, least_distance }
}

/// Excess allowed for a single path if too few are left to estimate the scatter of paths.
fn single_path(middle: f64) -> Usual {
    Usual::given(middle, MIN_EXCESS_OF_PATH)
}

/// State of the search in one matrix.
pub(super) struct Search<'a> {
    pub measure: Measure,
    pub matrix: &'a PairMatrix,
    pub places: &'a Places,
    /// Nodes whose slow pairs are explained.
    pub explained: Vec<bool>,
    pub findings: Vec<Finding>,
    /// Usual value of each kind of path.
    usual: [f64; 3],
    /// Local ranks whose rail is a suspect.
    slow_locals: Vec<bool>,
    slow_adapters: Vec<(usize, usize)>,
    /// For each node and local rank, how much longer it takes than its neighbours; empty with fewer than two local ranks.
    pub excess_of_adapter: Vec<Vec<f64>>,
    /// Minimum excess of a single path to be an outlier, as a logarithm; `None` if too few paths are left to estimate.
    pub allowed_of_path: Option<f64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(measure: Measure, matrix: &'a PairMatrix, places: &'a Places) -> Search<'a> {
        let mut search = Search {
            measure,
            matrix,
            places,
            explained: vec![false; matrix.nodes],
            findings: Vec::new(),
            usual: [0.0; 3],
            slow_locals: vec![false; matrix.locals],
            slow_adapters: Vec::new(),
            excess_of_adapter: Vec::new(),
            allowed_of_path: None,
        };
        search.usual = search.usual_of_ways();
        search
    }

    /// The usual value of each kind of path among unexplained nodes; the previous one if no nodes are left.
    fn usual_of_ways(&self) -> [f64; 3] {
        let open = |node: &usize| !self.explained[*node];
        Way::ALL.map(|way| {
            let of_node = |node| {
                let partners = self.partners(node).filter(open).filter(|other| self.places.way([node, *other]) == way);
                low_median(partners.filter_map(|other| self.matrix.of_pair([node, other])))
            };
            low_median((0..self.matrix.nodes).filter(open).filter_map(of_node)).unwrap_or(self.usual[way as usize])
        })
    }

    /// Updates the usual values to unexplained paths: if many leaves are slow, the previous values were theirs.
    pub(super) fn forget_explained(&mut self) {
        self.usual = self.usual_of_ways();
    }

    fn partners(&self, node: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.matrix.partners(node)
    }

    /// Usual value between two nodes.
    pub(super) fn usual_of(&self, pair: [usize; 2]) -> f64 {
        self.usual[self.places.way(pair) as usize]
    }

    /// Excess of a pair over the usual value.
    pub(super) fn excess(&self, pair: [usize; 2]) -> Option<f64> {
        Some(self.matrix.of_pair(pair)? - self.usual_of(pair))
    }

    /// As above for the path of one local rank.
    pub(super) fn excess_of_local(&self, pair: [usize; 2], local: usize) -> Option<f64> {
        Some(self.matrix.of_local(pair, local)? - self.usual_of(pair))
    }

    /// Median excess of a node over its unexplained partners.
    fn with_partners(&self, node: usize) -> Option<f64> {
        let partners = self.partners(node).filter(|other| !self.explained[*other]);
        low_median(partners.filter_map(|other| self.excess([node, other])))
    }

    /// The number of unexplained partners with which a node exceeds `allowed`, and the number of all unexplained partners.
    pub(super) fn slow_partners(&self, node: usize, allowed: f64) -> SlowPartners {
        let partners = self.partners(node).filter(|other| !self.explained[*other]);
        let excesses: Vec<f64> = partners.filter_map(|other| self.excess([node, other])).collect();
        SlowPartners { slow: excesses.iter().filter(|excess| **excess > allowed).count(), partners: excesses.len() }
    }

    pub(super) fn add(&mut self, suspect: SuspectKind, slower: f64, usual: &Usual, evidence: String) {
        let intermittent = self.measure == Measure::Tail;
        let strength = usual.strength(slower);
        let slower = slower - usual.middle;
        let text = format!("{}: {evidence}", self.measure.name());
        self.findings.push(Finding { suspect, slower, strength, intermittent, inside: false, evidence: text });
    }

    /// Finds local ranks that are slower than their neighbours, on all nodes (rail) or on one (adapter).
    pub(super) fn rails_and_adapters(&mut self) {
        let (matrix, locals) = (self.matrix, self.matrix.locals);
        if locals < 2 || matrix.nodes < 2 {
            return;
        }
        let mut of_adapter = vec![vec![f64::NAN; locals]; matrix.nodes];
        for (node, scores) in of_adapter.iter_mut().enumerate() {
            for (local, score) in scores.iter_mut().enumerate() {
                let within = |other| Some(matrix.of_local([node, other], local)? - matrix.of_pair([node, other])?);
                // Inside a rack adapters are idle.
                let others = self
                    .partners(node)
                    .filter(|other| !self.places.has_racks() || self.places.way([node, *other]) != Way::WithinRack);
                *score = low_median(others.filter_map(within)).unwrap_or(f64::NAN);
            }
        }
        let of_nodes =
            |local: usize| of_adapter.iter().map(move |scores| scores[local]).filter(|score| !score.is_nan());
        let rails: Vec<f64> = (0..locals).map(|local| low_median(of_nodes(local)).unwrap_or(0.0)).collect();
        // With few rails the scatter is estimated from the adapters of each rail.
        let scatter =
            (0..locals).filter_map(|local| low_median(of_nodes(local).map(|score| (score - rails[local]).abs())));
        let scatter = low_median(scatter).unwrap_or(0.0);
        let least_deviation = MIN_DEVIATION.max(scatter);
        let rule_of_rails = OddRule { least_deviation, ..rule(locals, MIN_EXCESS_OF_MANY) };
        if let Some(usual) = rule_of_rails.usual(&rails).filter(|_| matrix.nodes > 2) {
            for (local, slower) in rails.iter().enumerate().filter(|(_, slower)| usual.strength(**slower) > 1.0) {
                self.slow_locals[local] = true;
                let nodes = of_nodes(local).filter(|score| usual.strength(*score) > 1.0).count();
                let evidence = format!(
                    "local rank {local} takes {} longer than its neighbours on {nodes} of {} nodes",
                    percent(*slower - usual.middle),
                    matrix.nodes
                );
                self.add(SuspectKind::Rail { local_rank: local as u32 }, *slower, &usual, evidence);
            }
        }
        let whole = |local: &usize| !self.slow_locals[*local];
        let adapters: Vec<(usize, usize)> = (0..matrix.nodes)
            .flat_map(|node| (0..locals).filter(whole).map(move |local| (node, local)).collect::<Vec<_>>())
            .filter(|(node, local)| !of_adapter[*node][*local].is_nan())
            .collect();
        let scores: Vec<f64> = adapters.iter().map(|(node, local)| of_adapter[*node][*local]).collect();
        // With two nodes the end of a slow path that causes it is unknown.
        let usual = rule(scores.len(), MIN_EXCESS_OF_MANY).usual(&scores).filter(|_| matrix.nodes > 2);
        let Some(usual) = usual else { return };
        for ((node, local), slower) in
            adapters.into_iter().zip(scores).filter(|(_, slower)| usual.strength(*slower) > 1.0)
        {
            self.slow_adapters.push((node, local));
            let evidence = format!(
                "local rank {local} of {} takes {} longer with most nodes, its neighbours do not",
                self.places.name(node),
                percent(slower - usual.middle)
            );
            self.add(SuspectKind::Adapter { node: node as u32, local_rank: local as u32 }, slower, &usual, evidence);
        }
        self.excess_of_adapter = of_adapter;
    }

    /// Finds nodes that are slow with nearly all others, the worst first; removes the pairs of each before the next.
    pub(super) fn nodes(&mut self) {
        loop {
            let mut left: Vec<(usize, f64)> = (0..self.matrix.nodes)
                .filter(|node| !self.explained[*node])
                .filter_map(|node| Some((node, self.with_partners(node)?)))
                .collect();
            if left.len() < MIN_MEMBERS - 1 {
                return;
            }
            let scores: Vec<f64> = left.iter().map(|(_, score)| *score).collect();
            let Some(usual) = rule(self.matrix.nodes, MIN_EXCESS_OF_MANY).usual(&scores) else { return };
            left.sort_by(|one, other| other.1.total_cmp(&one.1));
            let odd = left.into_iter().filter(|(_, slower)| usual.strength(*slower) > 1.0);
            let allowed = usual.middle + usual.allowed;
            let worst = odd
                .map(|(node, slower)| (node, slower, self.slow_partners(node, allowed)))
                .find(|(.., partners)| partners.are_nearly_all());
            let Some((node, slower, SlowPartners { slow, partners })) = worst else { return };
            let evidence = format!(
                "takes {} longer than usual, with {slow} of {partners} other nodes",
                percent(slower - usual.middle)
            );
            self.explained[node] = true;
            self.add(SuspectKind::Node { node: node as u32 }, slower, &usual, evidence);
        }
    }

    /// On three nodes finds the path that is slower than the two others, or the node on the two that are slower than the third; on two and
    /// three the rails that are slow between two nodes, at an unknown end.
    pub(super) fn of_few_nodes(&mut self) {
        let mut ways: Vec<([usize; 2], f64)> =
            self.matrix.pairs().filter_map(|pair| Some((pair, self.matrix.of_pair(pair)?))).collect();
        ways.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut normal: Vec<[usize; 2]> = ways.iter().map(|(pair, _)| *pair).collect();
        let is_comparable = normal.iter().all(|pair| self.places.way(*pair) == self.places.way(normal[0]));
        if let ([(fast, fastest), (middle, second), (slow, _)], true) = (&ways[..], is_comparable) {
            if let Some(slower) = self.always_slower(&[*slow], &[*fast, *middle]) {
                let evidence = format!("takes {} longer than the paths to the third node", percent(slower));
                let suspect = SuspectKind::Link { nodes: slow.map(|node| node as u32), local_rank: None };
                self.add(suspect, second + slower, &single_path(*second), evidence);
                normal.retain(|pair| pair != slow);
            } else if let Some(slower) = self.always_slower(&[*middle, *slow], &[*fast]) {
                let evidence =
                    format!("takes {} longer with both other nodes than they take with each other", percent(slower));
                let node = middle.iter().find(|node| slow.contains(node)).map_or(0, |node| *node as u32);
                self.add(SuspectKind::Node { node }, fastest + slower, &single_path(*fastest), evidence);
                normal = vec![*fast];
            }
        }
        self.paths_of_locals(&normal);
    }

    /// By how much the fastest of some pairs is slower than the slowest of others, if by enough in every replicate.
    fn always_slower(&self, slow: &[[usize; 2]], fast: &[[usize; 2]]) -> Option<f64> {
        let gap = |value: &dyn Fn([usize; 2]) -> Option<f64>| -> Option<f64> {
            let least = slow.iter().filter_map(|pair| value(*pair)).reduce(f64::min)?;
            Some(least - fast.iter().filter_map(|pair| value(*pair)).reduce(f64::max)?)
        };
        let is_enough = |gap: f64| gap > MIN_EXCESS_OF_PATH;
        let mut gaps = (0..self.matrix.replicates()).filter_map(|at| gap(&|pair| self.matrix.of_pair_in(pair, at)));
        gap(&|pair| self.matrix.of_pair(pair)).filter(|gap| is_enough(*gap) && gaps.all(is_enough))
    }

    /// Finds paths between otherwise normal nodes that are slow in every replicate.
    pub(super) fn links(&mut self) {
        let open: Vec<([usize; 2], f64)> = (self.matrix.pairs())
            .filter(|[a, b]| !self.explained[*a] && !self.explained[*b])
            .filter_map(|pair| Some((pair, self.excess(pair)?)))
            .collect();
        let scores: Vec<f64> = open.iter().map(|(_, excess)| *excess).collect();
        let Some(usual) = rule(scores.len(), MIN_EXCESS_OF_PATH).usual(&scores).filter(|_| scores.len() >= 3) else {
            return;
        };
        self.allowed_of_path = Some(usual.allowed);
        for (pair, slower) in open.iter().copied().filter(|(_, slower)| usual.strength(*slower) > 1.0) {
            let replicates =
                (0..self.matrix.replicates()).filter_map(|replicate| self.matrix.of_pair_in(pair, replicate));
            let always = replicates.map(|value| value - self.usual_of(pair)).all(|excess| usual.strength(excess) > 1.0);
            if always {
                let evidence = format!(
                    "takes {} longer than usual; both nodes are normal with others",
                    percent(slower - usual.middle)
                );
                let nodes = pair.map(|node| node as u32);
                self.add(SuspectKind::Link { nodes, local_rank: None }, slower, &usual, evidence);
            }
        }
        self.paths_of_locals(
            &open
                .iter()
                .filter(|(_, slower)| usual.strength(*slower) <= 1.0)
                .map(|(pair, _)| *pair)
                .collect::<Vec<_>>(),
        );
    }

    /// Finds slow paths of one local rank between two nodes.
    fn paths_of_locals(&mut self, pairs: &[[usize; 2]]) {
        let locals = self.matrix.locals;
        if locals < 2 || self.measure == Measure::Tail {
            return;
        }
        let explained = |[a, b]: [usize; 2], local: usize| {
            self.slow_locals[local] || self.slow_adapters.iter().any(|slow| *slow == (a, local) || *slow == (b, local))
        };
        let cells: Vec<([usize; 2], usize, f64)> = (pairs.iter())
            .flat_map(|pair| (0..locals).map(move |local| (*pair, local)))
            .filter(|(pair, local)| !explained(*pair, *local))
            .filter_map(|(pair, local)| Some((pair, local, self.excess_of_local(pair, local)?)))
            .collect();
        let scores: Vec<f64> = cells.iter().map(|(_, _, excess)| *excess).collect();
        let Some(usual) = rule(scores.len(), MIN_EXCESS_OF_PATH).usual(&scores).filter(|_| scores.len() >= MIN_MEMBERS)
        else {
            return;
        };
        for (pair, local, slower) in cells.into_iter().filter(|(_, _, slower)| usual.strength(*slower) > 1.0) {
            let evidence = format!(
                "the path of local rank {local} takes {} longer than usual; the paths of the others do not",
                percent(slower - usual.middle)
            );
            let suspect = SuspectKind::Link { nodes: pair.map(|node| node as u32), local_rank: Some(local as u32) };
            self.add(suspect, slower, &usual, evidence);
        }
    }
}

/// The number of slow partners among several.
#[derive(Clone, Copy)]
pub(super) struct SlowPartners {
    pub slow: usize,
    pub partners: usize,
}

impl SlowPartners {
    /// Whether nearly all are slow. With few partners two slow paths must not look like a slow node.
    pub(super) fn are_nearly_all(self) -> bool {
        self.partners > 0 && self.slow as f64 >= MIN_SLOW_SHARE_OF_PARTNERS * self.partners as f64
    }
}

/// A logarithm as a share in per cent.
pub(super) fn percent(logarithm: f64) -> String {
    format!("{:.0} %", 100.0 * logarithm.exp_m1())
}

// Explains findings by others: findings that together are one suspect, and findings that a larger one explains.

/// A link that is slow by chance is slower than its node by less than this factor, in logarithms.
const MOST_BY_CHANCE: f64 = 1.5;

/// Replaces adapters by more precise findings: the cable if one direction is slow, the device if it is slow inside its node too.
pub(super) fn narrowed(found: Vec<Finding>, cables: &[SuspectKind]) -> Vec<Finding> {
    let suspected: Vec<SuspectKind> =
        found.iter().filter(|finding| !finding.intermittent).map(|finding| finding.suspect.clone()).collect();
    let named = |suspect: &SuspectKind| {
        let (node, local_rank) = match *suspect {
            SuspectKind::Adapter { node, local_rank } | SuspectKind::NvLink { node, local_rank, peer: None } => {
                (node, local_rank)
            }
            _ => return suspect.clone(),
        };
        let adapter = SuspectKind::Adapter { node, local_rank };
        let inside = SuspectKind::NvLink { node, local_rank, peer: None };
        let cable = SuspectKind::Cable { node, local_rank };
        if suspected.contains(&adapter) && suspected.contains(&inside) {
            SuspectKind::Device { node, local_rank }
        } else if *suspect == adapter && cables.contains(&cable) {
            cable
        } else {
            suspect.clone()
        }
    };
    found.into_iter().map(|finding| Finding { suspect: named(&finding.suspect), ..finding }).collect()
}

/// Removes findings that a larger one explains, and intermittent findings about suspects that are always slow.
pub(super) fn unexplained(all: Vec<Finding>) -> Vec<Finding> {
    let explains = |other: &Finding, finding: &Finding| {
        let firm = !other.intermittent || finding.intermittent || is_by_chance(finding, other);
        let same = finding.suspect == other.suspect && finding.intermittent && !other.intermittent;
        same || (firm && is_part_of(finding, other))
    };
    all.iter().filter(|finding| !all.iter().any(|other| explains(other, finding))).cloned().collect()
}

/// Whether a link that was slow in every replicate may have met an intermittent node at its slow times by chance: with dozens of links
/// there is nearly always one. A link that is much slower than its node has its own fault.
fn is_by_chance(finding: &Finding, other: &Finding) -> bool {
    let of_node = matches!(
        (&finding.suspect, &other.suspect),
        (SuspectKind::Link { nodes, .. }, SuspectKind::Node { node }) if nodes.contains(node)
    );
    of_node && finding.slower < MOST_BY_CHANCE * other.slower
}

/// Whether the slowness of one suspect makes another one look slow.
fn is_part_of(finding: &Finding, other: &Finding) -> bool {
    // A node that is slow only inside makes no path to other nodes slow.
    let slow_node = |node: u32| match &other.suspect {
        SuspectKind::Node { node: suspected } => *suspected == node && !other.inside,
        SuspectKind::Leaf { nodes, .. } => nodes.contains(&node),
        _ => false,
    };
    let slow_adapter = |node: u32, local: u32| match &other.suspect {
        SuspectKind::Adapter { node: own, local_rank }
        | SuspectKind::Cable { node: own, local_rank }
        | SuspectKind::Device { node: own, local_rank }
        | SuspectKind::NvLink { node: own, local_rank, peer: None } => (*own, *local_rank) == (node, local),
        SuspectKind::Rail { local_rank } => *local_rank == local,
        _ => false,
    };
    match &finding.suspect {
        SuspectKind::Node { node } => match &other.suspect {
            SuspectKind::Leaf { nodes, .. } => nodes.contains(node) && finding.intermittent,
            SuspectKind::Device { node: own, .. } | SuspectKind::NvLink { node: own, .. } => {
                own == node && finding.inside
            }
            _ => false,
        },
        SuspectKind::Adapter { node, local_rank } | SuspectKind::Cable { node, local_rank } => {
            let on_rail = matches!(&other.suspect, SuspectKind::Rail { local_rank: rail } if rail == local_rank);
            slow_node(*node) || on_rail
        }
        SuspectKind::Device { node, .. } | SuspectKind::NvLink { node, .. } => {
            matches!(&other.suspect, SuspectKind::Node { node: own } if own == node) && !other.inside
        }
        SuspectKind::Link { nodes, local_rank } => {
            let of_path = local_rank.is_some_and(|local| nodes.iter().any(|node| slow_adapter(*node, local)));
            let whole = matches!(&other.suspect, SuspectKind::Link { nodes: own, local_rank: None } if own == nodes);
            nodes.iter().any(|node| slow_node(*node)) || of_path || (whole && local_rank.is_some())
        }
        SuspectKind::Rail { .. }
        | SuspectKind::Network
        | SuspectKind::Leaf { .. }
        | SuspectKind::OnlyAtScale { .. }
        | SuspectKind::LateRank { .. } => false,
    }
}

/// Whether a suspect slows these nodes down when they work together.
pub(super) fn slows_down(suspect: &SuspectKind, members: &[usize]) -> bool {
    let there = |node: &u32| members.contains(&(*node as usize));
    match suspect {
        SuspectKind::Node { node }
        | SuspectKind::Adapter { node, .. }
        | SuspectKind::Cable { node, .. }
        | SuspectKind::Device { node, .. }
        | SuspectKind::NvLink { node, .. } => there(node),
        SuspectKind::Link { nodes, .. } => nodes.iter().all(there),
        SuspectKind::Leaf { nodes, .. } => nodes.iter().any(there),
        // It slows all groups alike, so their growth can still be checked.
        SuspectKind::Rail { .. }
        | SuspectKind::Network
        | SuspectKind::OnlyAtScale { .. }
        | SuspectKind::LateRank { .. } => false,
    }
}

// On few nodes a node or a link becomes a suspect only if several measures agree.
//
// With three partners each, all pairs of a node can easily be slow by chance. Observed on four healthy hosts over TCP:
// *both ways* takes as long as either one message or two, at random for each pair, and three slow pairs of six share a node
// in one case of five.

/// A measure confirms another if its excess is at least this share of the other's excess, in logarithms.
const CONFIRMING_SHARE: f64 = 0.25;

/// The findings of one measure, and its search.
struct MeasureFindings<'a> {
    search: Search<'a>,
    findings: Vec<Finding>,
}

/// The confirmed findings of all measures, and the unconfirmed ones.
pub(super) fn confirmed(searches: Vec<Search>, places: &Places) -> (Vec<Finding>, Vec<Unconfirmed>) {
    let by_measure: Vec<MeasureFindings> = searches
        .into_iter()
        .map(|mut search| MeasureFindings { findings: std::mem::take(&mut search.findings), search })
        .collect();
    let (mut findings, mut unconfirmed) = (Vec::new(), Vec::new());
    for one in &by_measure {
        for finding in &one.findings {
            // Adapters, rails and leaves are compared with many neighbours even on few nodes, so they need no confirmation.
            let needs_confirmation = matches!(finding.suspect, SuspectKind::Node { .. } | SuspectKind::Link { .. });
            if places.nodes() >= FEW_NODES || !needs_confirmation {
                findings.push(finding.clone());
                continue;
            }
            let others = by_measure.iter().filter(|other| is_independent(one.search.measure, other.search.measure));
            let agreeing: Vec<&str> =
                others.filter(|other| confirms(other, finding)).map(|other| other.search.measure.name()).collect();
            if agreeing.is_empty() {
                unconfirmed.push((one.search.measure, finding));
            } else {
                let evidence = format!("{}; confirmed by {}", finding.evidence, agreeing.join(" and "));
                findings.push(Finding { evidence, ..finding.clone() });
            }
        }
    }
    // Drop findings that a confirmed one already covers.
    unconfirmed.retain(|(_, finding)| !findings.iter().any(|suspected| explains(&suspected.suspect, &finding.suspect)));
    let alone = unconfirmed.iter().map(|(measure, finding)| Unconfirmed {
        measure: *measure,
        name: name(&finding.suspect, places),
        slower_by: finding.slower.exp_m1(),
    });
    (findings, alone.collect())
}

/// Exactly one of the two must be a one-way measure, the most stable kind; the tail comes from the same messages.
fn is_independent(one: Measure, other: Measure) -> bool {
    let one_way = |measure| matches!(measure, Measure::OneWay | Measure::Tail);
    one_way(one) != one_way(other)
}

/// Whether a measure has the same finding, or at least shows the same suspect as slower.
fn confirms(other: &MeasureFindings, finding: &Finding) -> bool {
    let same = other.findings.iter().any(|own| own.suspect == finding.suspect);
    if same || finding.intermittent {
        // An intermittent fault may be absent during another measure, so its median shows nothing.
        return same;
    }
    let (search, share) = (&other.search, CONFIRMING_SHARE * finding.slower);
    let path = |excess: Option<f64>| excess.is_some_and(|slower| slower > share.max(MIN_EXCESS_OF_PATH));
    match &finding.suspect {
        SuspectKind::Node { node } => {
            search.slow_partners(*node as usize, share.max(MIN_EXCESS_OF_MANY)).are_nearly_all()
        }
        SuspectKind::Link { nodes, local_rank: None } => path(search.excess(nodes.map(|node| node as usize))),
        SuspectKind::Link { nodes, local_rank: Some(local) } => {
            path(search.excess_of_local(nodes.map(|node| node as usize), *local as usize))
        }
        _ => false,
    }
}

/// Whether a suspect explains another slow place.
fn explains(suspected: &SuspectKind, other: &SuspectKind) -> bool {
    match (suspected, other) {
        (SuspectKind::Node { node }, SuspectKind::Link { nodes, .. }) => nodes.contains(node),
        _ => suspected == other,
    }
}
