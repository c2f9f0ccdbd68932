//! What was examined, and what the data therefore cannot determine.

use super::analysis::Analysis;
use super::document::{Examined, MIN_MEMBERS};
use super::explain::percent;
use super::groups::Extent;
use super::leaves::MIN_LEAVES;

/// Where a path at a third of its rate would not be seen, nothing is called good; as a logarithm.
const MAX_ALLOWED_OF_PATH: f64 = 1.1;

/// The extent of the data.
pub(super) fn examined(analysis: &Analysis) -> Examined {
    let (places, pair_matrices) = (&analysis.places, &analysis.pair_matrices);
    let mut group_nodes: Vec<u32> = analysis
        .growths
        .iter()
        .flat_map(|growth| &growth.levels)
        .map(|level| level.nodes)
        .filter(|nodes| *nodes > 1)
        .collect();
    group_nodes.sort_unstable();
    group_nodes.dedup();
    Examined {
        nodes: places.nodes() as u32,
        hosts: places.hosts.clone(),
        local_ranks: pair_matrices.locals as u32,
        nodes_per_leaf: places.nodes_per_leaf,
        nodes_per_rack: places.nodes_per_rack,
        node_pairs: (places.nodes() as u64 * (places.nodes() as u64).saturating_sub(1)) / 2,
        node_pairs_measured: pair_matrices.measured,
        nodes_measured_inside: analysis.nodes_inside,
        inside_pairs: analysis.inside_pairs.compared,
        group_nodes,
        isolated_cases: analysis.arrivals.cases,
        replicates: pair_matrices.replicates as u32,
    }
}

/// Why the data cannot decide on nodes and links; none where they can.
pub(super) fn undecided(analysis: &Analysis) -> Option<String> {
    let nodes = analysis.places.nodes();
    if analysis.pair_matrices.planned == 0 {
        return Some("no two nodes met in pairs: neither nodes nor links can be distinguished; `commgauge run qualify` lets all meet".to_owned());
    }
    if nodes < MIN_MEMBERS {
        return Some(format!(
            "{nodes} nodes: the outlier among them cannot be determined; at least {MIN_MEMBERS} are needed"
        ));
    }
    analysis.allowed_of_path.filter(|allowed| *allowed > MAX_ALLOWED_OF_PATH).map(|allowed| {
        format!(
            "the times of the pairs scatter so much that a path must take {} longer to be seen; measure on quiet hosts, with larger messages \
             (`bandwidth_bytes` in [pairs]) or more replicates",
            percent(allowed)
        )
    })
}

/// What the data cannot determine, as sentences.
pub(super) fn cannot_tell(analysis: &Analysis) -> Vec<String> {
    let (places, pair_matrices) = (&analysis.places, &analysis.pair_matrices);
    let mut texts: Vec<String> = undecided(analysis).into_iter().collect();
    if pair_matrices.planned > 0 {
        texts.extend(limits_of_pairs(analysis));
    }
    if analysis.coarse {
        texts.push("histograms of this many ranks cover several nodes each: the time that a node takes by itself, and groups of nodes, cannot be judged".to_owned());
    } else if analysis.nodes_inside == 0 {
        texts.push("no collective was measured within each node: a node that is slow inside, or whether a suspected one is, cannot be determined".to_owned());
    } else if (analysis.nodes_inside as usize) < MIN_MEMBERS {
        texts.push(format!(
            "{} nodes were measured inside: the outlier among them cannot be determined",
            analysis.nodes_inside
        ));
    } else if analysis.inside_pairs.compared == 0 {
        texts.push("no pairs of devices inside the nodes were measured: which device or link of a node that is slow inside cannot be determined; `inside_nodes` in [pairs] lets them meet".to_owned());
    }
    let sizes = |extent| {
        let growths = analysis.growths.iter().filter(|growth| growth.extent == extent);
        growths.map(|growth| growth.levels.len()).max().unwrap_or(0)
    };
    if sizes(Extent::Inside) < 3 {
        texts.push(
            "no groups of at least three growing sizes were measured: what is slow only at scale cannot be determined"
                .to_owned(),
        );
    } else if !analysis.all_sizes {
        texts.push(
            "the largest groups contain a suspect: whether they are slow for their size too is known only without it"
                .to_owned(),
        );
    }
    if places.has_racks() && sizes(Extent::Beyond) < 3 {
        texts.push(
            "no groups of at least three sizes larger than a rack were measured: what is slow only at a scale of racks cannot be determined"
                .to_owned(),
        );
    }
    if analysis.arrivals.no_clock {
        texts.push("the clocks of the ranks were not synchronised: late ranks cannot be determined".to_owned());
    } else if analysis.arrivals.cases == 0 {
        texts.push(
            "no case with a common start (cadence isolated) was measured: late ranks cannot be determined".to_owned(),
        );
    } else if analysis.arrivals.late.is_some() {
        texts.push("others that are late by less than the late rank hide behind it".to_owned());
    }
    if places.nodes_per_leaf.is_none() {
        texts.push("which leaf switch a node is behind is not known, so a leaf shows as several nodes; give --nodes-per-leaf, or between_nodes.nodes_per_leaf in the machine file of the run".to_owned());
    } else if places.leaves() < MIN_LEAVES {
        texts.push(format!(
            "{} leaves: a slow leaf cannot be distinguished from others; at least {MIN_LEAVES} are needed",
            places.leaves()
        ));
    }
    texts
}

fn limits_of_pairs(analysis: &Analysis) -> Vec<String> {
    let pair_matrices = &analysis.pair_matrices;
    let mut texts = Vec::new();
    if pair_matrices.measured < pair_matrices.planned {
        texts.push(format!(
            "{} of {} pairs of nodes have no values: their links cannot be determined",
            pair_matrices.planned - pair_matrices.measured,
            pair_matrices.planned
        ));
    }
    if pair_matrices.locals < 2 {
        texts.push(
            "one rank of each node met others: a slow rail or adapter cannot be distinguished from slow nodes"
                .to_owned(),
        );
    }
    if pair_matrices.replicates < 2 {
        texts.push("one replicate only: a disturbance that passed looks like a fault, and one that comes and goes is not recognised".to_owned());
    }
    if pair_matrices.one_at_a_time {
        texts.push("pairs met one at a time: links that pairs share were never loaded together".to_owned());
    }
    texts.extend(analysis.unconfirmed.iter().cloned());
    if analysis.slow_once > 0 {
        let subject = if analysis.slow_once == 1 { "single meeting was" } else { "single meetings were" };
        texts.push(format!(
            "{} {subject} slow once and normal in other replicates: a disturbance that passed, or a link that comes and goes; more replicates would decide",
            analysis.slow_once
        ));
    }
    texts.push(
        "messages go there and back: whether a suspect is slow in sending or in receiving cannot be determined"
            .to_owned(),
    );
    texts
}
