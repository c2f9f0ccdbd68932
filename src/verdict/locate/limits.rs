//! What there was to look at, and what the data therefore cannot tell.

use super::Looked;
use super::document::Examined;
use super::explain::{FEWEST, FEWEST_LEAVES};

/// What there was to look at.
pub(super) fn examined(looked: &Looked) -> Examined {
    let (places, meetings) = (&looked.places, &looked.meetings);
    let mut group_nodes: Vec<u32> = looked
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
        local_ranks: meetings.locals as u32,
        nodes_per_leaf: places.nodes_per_leaf,
        node_pairs: (places.nodes() as u64 * (places.nodes() as u64).saturating_sub(1)) / 2,
        node_pairs_measured: meetings.measured,
        nodes_measured_inside: looked.nodes_inside,
        group_nodes,
        isolated_cases: looked.arrivals.cases,
        replicates: meetings.replicates as u32,
    }
}

/// Why the data cannot say whether nodes and links are well, if so.
pub(super) fn undecided(looked: &Looked) -> Option<String> {
    let nodes = looked.places.nodes();
    if looked.meetings.planned == 0 {
        return Some("no two nodes met in pairs: neither nodes nor links can be distinguished; `commgauge run qualify` lets all meet".to_owned());
    }
    (nodes < FEWEST)
        .then(|| format!("{nodes} nodes: the outlier among them cannot be determined; at least {FEWEST} are needed"))
}

/// What the data cannot tell, as sentences.
pub(super) fn cannot_tell(looked: &Looked) -> Vec<String> {
    let (places, meetings) = (&looked.places, &looked.meetings);
    let mut told: Vec<String> = undecided(looked).into_iter().collect();
    let met = meetings.planned > 0;
    if met {
        told.extend(of_meetings(looked));
    }
    if looked.coarse {
        told.push("histograms of this many ranks cover several nodes each: the time that a node takes by itself, and groups of nodes, cannot be judged".to_owned());
    } else if looked.nodes_inside == 0 {
        told.push("no collective was measured within each node: a node that is slow inside, or whether a suspected one is, cannot be determined".to_owned());
    } else if (looked.nodes_inside as usize) < FEWEST {
        told.push(format!(
            "{} nodes were measured inside: the outlier among them cannot be determined",
            looked.nodes_inside
        ));
    }
    let sizes = looked.growths.iter().map(|growth| growth.levels.len()).max().unwrap_or(0);
    if sizes < 3 {
        told.push(
            "no groups of at least three growing sizes were measured: what is slow only at scale cannot be determined"
                .to_owned(),
        );
    } else if !looked.all_sizes {
        told.push(
            "the largest groups contain a suspect: whether they are slow for their size too is known only without it"
                .to_owned(),
        );
    }
    if looked.arrivals.no_clock {
        told.push("the clocks of the ranks were not synchronised: late ranks cannot be determined".to_owned());
    } else if looked.arrivals.cases == 0 {
        told.push(
            "no case with a common start (cadence isolated) was measured: late ranks cannot be determined".to_owned(),
        );
    } else if looked.arrivals.late.is_some() {
        told.push("others that are late by less than the late rank hide behind it".to_owned());
    }
    if places.nodes_per_leaf.is_none() {
        told.push("which leaf switch a node is behind is not known, so a leaf shows as several nodes; give --nodes-per-leaf, or between_nodes.nodes_per_leaf in the machine file of the run".to_owned());
    } else if places.leaves() < FEWEST_LEAVES {
        told.push(format!(
            "{} leaves: a slow leaf cannot be distinguished from others; at least {FEWEST_LEAVES} are needed",
            places.leaves()
        ));
    }
    told
}

fn of_meetings(looked: &Looked) -> Vec<String> {
    let meetings = &looked.meetings;
    let mut told = Vec::new();
    if meetings.measured < meetings.planned {
        told.push(format!(
            "{} of {} pairs of nodes have no values: their links cannot be determined",
            meetings.planned - meetings.measured,
            meetings.planned
        ));
    }
    if meetings.locals < 2 {
        told.push(
            "one rank of each node met others: a slow rail or adapter cannot be distinguished from slow nodes"
                .to_owned(),
        );
    }
    if meetings.replicates < 2 {
        told.push("one replicate only: a disturbance that passed looks like a fault, and one that comes and goes is not recognised".to_owned());
    }
    if meetings.one_at_a_time {
        told.push("pairs met one at a time: links that pairs share were never loaded together".to_owned());
    }
    told.extend(looked.alone.iter().cloned());
    if looked.slow_once > 0 {
        let meetings = if looked.slow_once == 1 { "single meeting was" } else { "single meetings were" };
        told.push(format!(
            "{} {meetings} slow once and normal in other replicates: a disturbance that passed, or a link that comes and goes; more replicates would decide",
            looked.slow_once
        ));
    }
    told.push(
        "messages go there and back: whether a suspect node is slow in sending or in receiving cannot be determined"
            .to_owned(),
    );
    told
}
