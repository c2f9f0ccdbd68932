//! Whom the faults of a simulated machine should have accused, so that a rehearsal can say how often they are.

use super::document::{Culprit, Suspects};
use crate::config::Machine;
use crate::config::machine::Fault;

/// What a rehearsal found of what was planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Every planted fault was named, class and name.
    pub all_named: bool,
    /// Somebody else was accused.
    pub others_accused: bool,
}

impl Found {
    /// Holds suspects against what should have been named.
    pub fn of(suspects: &Suspects, planted: &[Culprit]) -> Found {
        let named = |culprit: &Culprit| suspects.suspects.iter().any(|suspect| suspect.culprit == *culprit);
        Found {
            all_named: planted.iter().all(named),
            others_accused: suspects.suspects.iter().any(|suspect| !planted.contains(&suspect.culprit)),
        }
    }

    /// Right in everything: all named and nobody else.
    pub fn right(self) -> bool {
        self.all_named && !self.others_accused
    }
}

/// The culprits that the faults of a machine come to on so many nodes. Wrong data is no matter of who is slow.
pub fn planted(machine: &Machine, nodes: u32) -> Vec<Culprit> {
    let mut culprits: Vec<Culprit> = machine.faults.iter().flat_map(|fault| of_fault(fault, machine, nodes)).collect();
    culprits.sort_unstable();
    culprits.dedup();
    culprits
}

fn of_fault(fault: &Fault, machine: &Machine, nodes: u32) -> Vec<Culprit> {
    let locals = |adapter: u32| {
        let (adapters, ranks) = (u64::from(machine.between_nodes.adapters_per_node), u64::from(machine.ranks_per_node));
        let drives = move |local: &u32| {
            let first = u64::from(*local) * adapters / ranks;
            (first..(first + 1).max((u64::from(*local) + 1) * adapters / ranks)).contains(&u64::from(adapter))
        };
        (0..machine.ranks_per_node).filter(drives)
    };
    match *fault {
        Fault::Node { node, .. } => vec![Culprit::Node { node }],
        Fault::Link { nodes: [a, b], .. } => vec![Culprit::Link { nodes: [a.min(b), a.max(b)], local_rank: None }],
        Fault::Rail { rail, .. } => locals(rail).map(|local_rank| Culprit::Rail { local_rank }).collect(),
        Fault::Adapter { node, adapter, .. } => {
            locals(adapter).map(|local_rank| Culprit::Adapter { node, local_rank }).collect()
        }
        Fault::Leaf { leaf, .. } => {
            let each = machine.between_nodes.nodes_per_leaf.unwrap_or(1);
            let first = leaf.saturating_mul(each);
            vec![Culprit::Leaf { leaf, nodes: (first..first.saturating_add(each).min(nodes)).collect() }]
        }
        // Groups double, so it shows from the next power of two on, or with all nodes.
        Fault::Scale { from_nodes, .. } => {
            vec![Culprit::OnlyAtScale { from_nodes: from_nodes.next_power_of_two().min(nodes) }]
        }
        Fault::Rank { rank, .. } => vec![Culprit::LateRank { rank, node: rank / machine.ranks_per_node }],
        Fault::Corrupt { .. } => Vec::new(),
        Fault::Intermittent { ref fault, .. } | Fault::While { ref fault, .. } => of_fault(fault, machine, nodes),
    }
}
