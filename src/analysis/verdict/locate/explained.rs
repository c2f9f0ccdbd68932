//! What explains what: findings that together are one culprit, and findings that a larger one explains.

use super::document::SuspectKind;
use super::explain::Finding;

/// A link that is slow by chance is slower than its node by less than this factor, of the logarithms.
const MOST_BY_CHANCE: f64 = 1.5;

/// Replaces adapters by what is known better: the cable where one direction is slow, the device where it is slow inside its node too.
pub(super) fn narrowed(found: Vec<Finding>, cables: &[SuspectKind]) -> Vec<Finding> {
    let suspected: Vec<SuspectKind> =
        found.iter().filter(|finding| !finding.intermittent).map(|finding| finding.suspect.clone()).collect();
    let culprit = |suspect: &SuspectKind| {
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
    found.into_iter().map(|finding| Finding { suspect: culprit(&finding.suspect), ..finding }).collect()
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

/// Whether a link that was slow in every replicate is one that a node which comes and goes met slow each time by chance: of dozens of
/// links there is nearly always one. A link that is much slower than its node has a fault of its own.
fn is_by_chance(finding: &Finding, other: &Finding) -> bool {
    let of_node = matches!(
        (&finding.suspect, &other.suspect),
        (SuspectKind::Link { nodes, .. }, SuspectKind::Node { node }) if nodes.contains(node)
    );
    of_node && finding.slower < MOST_BY_CHANCE * other.slower
}

/// Whether the slowness of one suspect makes another one look slow.
fn is_part_of(finding: &Finding, other: &Finding) -> bool {
    // A node that is slow inside alone makes no way to other nodes slow.
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
