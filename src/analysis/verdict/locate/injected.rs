//! The suspects that the injected faults of a simulated machine should lead to, so that a rehearsal can count how often
//! they do.

use super::document::{SuspectKind, Suspects};
use commgauge_model::config::Machine;
use commgauge_model::config::machine::Fault;

/// How the suspects of a rehearsal compare with its injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Every injected fault was found, by class and location.
    pub all_named: bool,
    /// Something else became a suspect.
    pub others_suspected: bool,
}

impl Found {
    /// Compares suspects with the expected ones.
    pub fn of(suspects: &Suspects, expected: &[SuspectKind]) -> Found {
        let named = |kind: &SuspectKind| suspects.suspects.iter().any(|suspect| suspect.culprit == *kind);
        Found {
            all_named: expected.iter().all(named),
            others_suspected: suspects.suspects.iter().any(|suspect| !expected.contains(&suspect.culprit)),
        }
    }

    /// All expected suspects were found, and no others.
    pub fn right(self) -> bool {
        self.all_named && !self.others_suspected
    }
}

/// The suspects that the faults of a machine should lead to on this many nodes. Wrong data leads to none.
pub fn expected_suspects(machine: &Machine, nodes: u32) -> Vec<SuspectKind> {
    let mut suspects: Vec<SuspectKind> =
        machine.faults.iter().flat_map(|fault| of_fault(fault, machine, nodes)).collect();
    suspects.sort_unstable();
    suspects.dedup();
    suspects
}

fn of_fault(fault: &Fault, machine: &Machine, nodes: u32) -> Vec<SuspectKind> {
    let locals = |adapter: u32| {
        let (adapters, ranks) = (u64::from(machine.between_nodes.adapters_per_node), u64::from(machine.ranks_per_node));
        let drives = move |local: &u32| {
            let first = u64::from(*local) * adapters / ranks;
            (first..(first + 1).max((u64::from(*local) + 1) * adapters / ranks)).contains(&u64::from(adapter))
        };
        (0..machine.ranks_per_node).filter(drives)
    };
    match *fault {
        Fault::Node { node, .. } => vec![SuspectKind::Node { node }],
        Fault::Link { nodes: [a, b], .. } => vec![SuspectKind::Link { nodes: [a.min(b), a.max(b)], local_rank: None }],
        Fault::Rail { rail, .. } => locals(rail).map(|local_rank| SuspectKind::Rail { local_rank }).collect(),
        Fault::Adapter { node, adapter, .. } => {
            locals(adapter).map(|local_rank| SuspectKind::Adapter { node, local_rank }).collect()
        }
        Fault::Cable { node, adapter, .. } => {
            locals(adapter).map(|local_rank| SuspectKind::Cable { node, local_rank }).collect()
        }
        Fault::Device { node, device, .. } => vec![SuspectKind::Device { node, local_rank: device }],
        Fault::NvLink { node, device, peer: None, .. } => {
            vec![SuspectKind::NvLink { node, local_rank: device, peer: None }]
        }
        Fault::NvLink { node, device, peer: Some(peer), .. } => {
            vec![SuspectKind::NvLink { node, local_rank: device.min(peer), peer: Some(device.max(peer)) }]
        }
        Fault::Neighbour { node, .. } => vec![SuspectKind::Node { node }],
        Fault::Leaf { leaf, .. } => {
            let each = machine.between_nodes.nodes_per_leaf.unwrap_or(1);
            let first = leaf.saturating_mul(each);
            vec![SuspectKind::Leaf { leaf, nodes: (first..first.saturating_add(each).min(nodes)).collect() }]
        }
        // Group sizes double, so it shows from the next power of two on, or with all nodes.
        Fault::Scale { from_nodes, .. } => {
            vec![SuspectKind::OnlyAtScale { from_nodes: from_nodes.next_power_of_two().min(nodes) }]
        }
        Fault::Rank { rank, .. } => vec![SuspectKind::LateRank { rank, node: rank / machine.ranks_per_node }],
        Fault::Corrupt { .. } => Vec::new(),
        // The whole network for a while is no suspect.
        Fault::While { ref fault, .. } if matches!(**fault, Fault::Scale { .. }) => Vec::new(),
        Fault::Intermittent { ref fault, .. } | Fault::While { ref fault, .. } => of_fault(fault, machine, nodes),
    }
}
