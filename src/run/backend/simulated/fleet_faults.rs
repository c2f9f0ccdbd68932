//! The effect of faults on a fleet.

use super::fleet::{CorruptRank, Fleet, Intermittent, LateRank, Recurrence, SlowAdapter, SlowInnerLink};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::machine::Fault;

/// Another job on the network of a node: the share of the time in which it sends, ...
const SHARE_OF_BURSTS: f64 = 0.3;
/// ... and how long it then does.
const BURST_NANOSECONDS: u64 = 5_000_000;

impl Fleet {
    /// Refuses faults of nodes, adapters or ranks that do not exist.
    pub(super) fn check(&self, index: usize, fault: &Fault) -> Result<()> {
        let (nodes, adapters) = (self.nodes(), self.rail_factors.len() as u32);
        let wrong =
            |key: &str, problem| Err(Error::config(&self.machine.path, &format!("faults[{index}].{key}"), problem));
        let exists = |key: &str, found: u32, total: u32, what: &str| {
            if found < total {
                return Ok(());
            }
            wrong(key, format!("found {found}; with {} ranks the last {what} is {}", self.ranks, total - 1))
        };
        match *fault {
            Fault::Rank { rank, .. } | Fault::Corrupt { rank, .. } => exists("rank", rank, self.ranks, "rank"),
            Fault::Node { node, .. } | Fault::Neighbour { node, .. } => exists("node", node, nodes, "node"),
            Fault::Link { nodes: [one, other], .. } => {
                exists("nodes", one, nodes, "node")?;
                exists("nodes", other, nodes, "node")
            }
            Fault::Rail { rail, .. } => exists("rail", rail, adapters, "adapter"),
            Fault::Adapter { node, adapter, .. } | Fault::Cable { node, adapter, .. } => {
                exists("node", node, nodes, "node")?;
                exists("adapter", adapter, adapters, "adapter")
            }
            Fault::Leaf { leaf, .. } => match self.machine.between_nodes.nodes_per_leaf {
                Some(each) => exists("leaf", leaf, nodes.div_ceil(each), "leaf"),
                None => wrong("leaf", "a leaf needs between_nodes.nodes_per_leaf, which this file lacks".to_owned()),
            },
            Fault::Device { node, device, .. } => {
                exists("node", node, nodes, "node")?;
                exists("device", device, self.machine.ranks_per_node, "device of a node")
            }
            Fault::NvLink { node, device, peer, .. } => {
                exists("node", node, nodes, "node")?;
                exists("device", device, self.machine.ranks_per_node, "device of a node")?;
                exists("peer", peer.unwrap_or(0), self.machine.ranks_per_node, "device of a node")
            }
            Fault::Scale { from_nodes, .. } => exists("from_nodes", from_nodes - 1, nodes, "node"),
            Fault::Intermittent { ref fault, .. } | Fault::While { ref fault, .. } => self.check(index, fault),
        }
    }

    /// Slows the fleet down, or notes when a fault that comes and goes will.
    pub(super) fn apply_fault(&mut self, fault: &Fault) {
        let (fault, recurrence) = match fault {
            Fault::Intermittent { fault, probability, window: None } => (&**fault, Recurrence::ByCall(*probability)),
            Fault::Intermittent { fault, probability, window: Some(window) } => {
                (&**fault, Recurrence::ByWindow(*probability, window.as_nanoseconds().max(1)))
            }
            Fault::While { fault, from, until } => {
                (&**fault, Recurrence::Once(from.as_nanoseconds(), until.as_nanoseconds()))
            }
            Fault::Neighbour { .. } => (fault, Recurrence::ByWindow(SHARE_OF_BURSTS, BURST_NANOSECONDS)),
            always => return self.slow_down(always),
        };
        self.intermittent.push(Intermittent { fault: fault.clone(), recurrence });
    }

    /// Slows the fleet down.
    pub(super) fn slow_down(&mut self, fault: &Fault) {
        let rank_of = |node: u32, device: u32| node * self.machine.ranks_per_node + device;
        match *fault {
            Fault::Rank { rank, delay } => self.late.push(LateRank { rank, nanoseconds: delay.as_nanoseconds() }),
            Fault::Corrupt { rank, probability } => self.corrupt.push(CorruptRank { rank, probability }),
            Fault::Node { node, rate_factor } => self.rate_factor_of_node[node as usize] *= rate_factor,
            Fault::Neighbour { node, rate_factor } => self.network_factor_of_node[node as usize] *= rate_factor,
            Fault::Link { nodes: [one, other], rate_factor } => {
                self.slow_links.push(([one.min(other), one.max(other)], rate_factor));
            }
            Fault::Rail { rail, rate_factor } => self.rail_factors[rail as usize] *= rate_factor,
            Fault::Adapter { node, adapter, rate_factor: factor } => {
                self.slow_adapters.push(SlowAdapter { node, adapter, direction: None, factor });
            }
            Fault::Cable { node, adapter, direction, rate_factor: factor } => {
                self.slow_adapters.push(SlowAdapter { node, adapter, direction: Some(direction), factor });
            }
            Fault::Device { node, device, rate_factor } => {
                let rank = rank_of(node, device);
                self.slow_devices.push((rank, rate_factor));
            }
            Fault::NvLink { node, device, peer, rate_factor: factor } => {
                let (rank, peer) = (rank_of(node, device), peer.map(|peer| rank_of(node, peer)));
                self.slow_inner_links.push(SlowInnerLink { rank, peer, factor });
            }
            Fault::Leaf { leaf, rate_factor } => {
                let each = self.machine.between_nodes.nodes_per_leaf.unwrap_or(1) as usize;
                let behind = self.network_factor_of_node.chunks_mut(each).nth(leaf as usize);
                behind.into_iter().flatten().for_each(|factor| *factor *= rate_factor);
            }
            Fault::Scale { from_nodes, rate_factor } => self.slow_together.push((from_nodes, rate_factor)),
            // Neither of them contains another one; `apply_fault` takes them apart.
            Fault::Intermittent { .. } | Fault::While { .. } => {}
        }
    }
}
