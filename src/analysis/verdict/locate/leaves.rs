//! Finds leaf switches whose nodes are slow with nodes behind other leaves, also where half of the leaves are.

use super::document::SuspectKind;
use super::explain::{MIN_DEVIATION, MIN_EXCESS_OF_MANY, Search, percent, rule};
use super::places::Way;
use commgauge_base::stats::{OddRule, Usual, low_median, sorted};

/// Minimum number of leaves for one to be an outlier.
pub(super) const MIN_LEAVES: usize = 3;
/// Share of the nodes behind a leaf that must be slow with others before the leaf is a suspect.
const MIN_SLOW_SHARE: f64 = 0.8;

/// What the nodes behind a leaf take with others.
struct Leaf {
    leaf: usize,
    nodes: Vec<usize>,
    /// Each node's, where it met other leaves.
    of_nodes: Vec<f64>,
    /// The lower median of these.
    middle: f64,
}

/// Adds the leaves that are slow to the findings, and explains their nodes by them.
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
            Some(_) => "not among themselves, so look at its uplinks",
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

/// What a node takes with the third of the other leaves that it is fastest with, the slowest of these: a node that is well has leaves
/// that are well among them.
fn with_faster_leaves(search: &Search, node: usize) -> Option<f64> {
    let places = search.places;
    let with = |leaf: usize| {
        let partners = places.behind(leaf).into_iter().filter(|other| places.way([node, *other]) == Way::AcrossLeaves);
        low_median(partners.filter_map(|other| search.matrix.of_pair([node, other])))
    };
    let of_leaves = sorted((0..places.leaves()).filter(|leaf| *leaf != places.leaf_of(node)).filter_map(with));
    of_leaves.get(of_leaves.len().saturating_sub(1) / 3).copied()
}

/// The usual value of a leaf. Where none is an outlier by the scatter of the leaves, half of them may be slow and the scatter theirs: then
/// that of the nodes behind each leaf, and of the faster leaves, is taken.
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
