//! What a suspect is called in sentences.

use super::document::SuspectKind;
use super::places::Places;

pub(super) fn name(suspect: &SuspectKind, places: &Places) -> String {
    let of = |node: u32| places.name(node as usize);
    match suspect {
        SuspectKind::Node { node } => of(*node),
        SuspectKind::Link { nodes: [a, b], local_rank: None } => format!("link between {} and {}", of(*a), of(*b)),
        SuspectKind::Link { nodes: [a, b], local_rank: Some(local) } => {
            format!("path of local rank {local} between {} and {}", of(*a), of(*b))
        }
        SuspectKind::Adapter { node, local_rank } => format!("adapter of local rank {local_rank} of {}", of(*node)),
        SuspectKind::Cable { node, local_rank } => {
            format!("cable of local rank {local_rank} of {}, in one direction", of(*node))
        }
        SuspectKind::Device { node, local_rank } => format!("device of local rank {local_rank} of {}", of(*node)),
        SuspectKind::NvLink { node, local_rank, peer: None } => {
            format!("links of local rank {local_rank} inside {}", of(*node))
        }
        SuspectKind::NvLink { node, local_rank, peer: Some(peer) } => {
            format!("link between local ranks {local_rank} and {peer} inside {}", of(*node))
        }
        SuspectKind::Rail { local_rank } => {
            format!("rail {local_rank}, the adapters of local rank {local_rank} on all nodes")
        }
        SuspectKind::Leaf { leaf, nodes } => match (nodes.first(), nodes.last()) {
            (Some(first), Some(last)) => format!("leaf {leaf}, nodes {first} to {last}"),
            _ => format!("leaf {leaf}"),
        },
        SuspectKind::Network => "the network of all nodes".to_owned(),
        SuspectKind::OnlyAtScale { from_nodes } => format!("only at scale, from {from_nodes} nodes on"),
        SuspectKind::LateRank { rank, node } => format!("rank {rank} on {}", of(*node)),
    }
}
