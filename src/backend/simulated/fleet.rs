//! The simulated machines: where each rank runs, and how fast each node and path is with its faults.

use super::time_model::Hop;
use crate::config::Machine;
use crate::config::machine::Fault;
use crate::error::{Error, Result};

/// More ranks than any machine has; a slip of the keyboard must not take all memory.
const MOST_RANKS: u32 = 1 << 20;

/// A number of nodes of one kind, some of them broken.
#[derive(Debug)]
pub(super) struct Fleet {
    pub machine: Machine,
    pub ranks: u32,
    /// Ranks that come late to every agreed start, with nanoseconds, by rank.
    pub delays: Vec<(u32, u64)>,
    /// Ranks whose data come out wrong, with the probability, by rank.
    pub corrupt: Vec<(u32, f64)>,
    rate_factor_of_node: Vec<f64>,
    /// Slow paths: both nodes, the lower first, and the share of the rate that is left.
    slow_links: Vec<([u32; 2], f64)>,
}

impl Fleet {
    pub(super) fn new(machine: &Machine, ranks: u32) -> Result<Fleet> {
        if !(1..=MOST_RANKS).contains(&ranks) {
            return Err(Error::usage(format!(
                "found {ranks} ranks to simulate; accepted: from 1 to {MOST_RANKS}, for the machine {}",
                machine.name
            )));
        }
        let nodes = ranks.div_ceil(machine.ranks_per_node);
        let mut fleet = Fleet {
            machine: machine.clone(),
            ranks,
            delays: Vec::new(),
            corrupt: Vec::new(),
            rate_factor_of_node: vec![1.0; nodes as usize],
            slow_links: Vec::new(),
        };
        for (index, fault) in machine.faults.iter().enumerate() {
            fleet.break_on_purpose(index, fault)?;
        }
        fleet.delays.sort_unstable();
        fleet.corrupt.sort_by_key(|(rank, _)| *rank);
        Ok(fleet)
    }

    fn break_on_purpose(&mut self, index: usize, fault: &Fault) -> Result<()> {
        let nodes = self.rate_factor_of_node.len() as u32;
        let exists = |key: &str, found: u32, total: u32, what: &str| {
            if found < total {
                return Ok(());
            }
            let problem = format!("found {found}; with {} ranks the last {what} is {}", self.ranks, total - 1);
            Err(Error::config(&self.machine.path, &format!("faults[{index}].{key}"), problem))
        };
        match *fault {
            Fault::Rank { rank, delay } => {
                exists("rank", rank, self.ranks, "rank")?;
                self.delays.push((rank, delay.as_nanoseconds()));
            }
            Fault::Corrupt { rank, probability } => {
                exists("rank", rank, self.ranks, "rank")?;
                self.corrupt.push((rank, probability));
            }
            Fault::Node { node, rate_factor } => {
                exists("node", node, nodes, "node")?;
                self.rate_factor_of_node[node as usize] *= rate_factor;
            }
            Fault::Link { nodes: ends, rate_factor } => {
                exists("nodes", ends[0], nodes, "node")?;
                exists("nodes", ends[1], nodes, "node")?;
                self.slow_links.push(([ends[0].min(ends[1]), ends[0].max(ends[1])], rate_factor));
            }
        }
        Ok(())
    }

    pub(super) fn nodes(&self) -> u32 {
        self.rate_factor_of_node.len() as u32
    }

    pub(super) fn node_of(&self, rank: u32) -> u32 {
        rank / self.machine.ranks_per_node
    }

    /// The way between ranks of a node.
    pub(super) fn within(&self, node: u32) -> Hop {
        Hop {
            latency_seconds: self.machine.within_node.latency.0,
            rate: self.machine.within_node.rate.0 * self.rate_factor_of_node[node as usize],
        }
    }

    /// What one rank gets out of or into a node while `ranks_at_work` ranks of the node use the network.
    pub(super) fn adapter_share(&self, node: u32, ranks_at_work: u32) -> f64 {
        self.machine.adapter_rate_per_rank(ranks_at_work).0 * self.rate_factor_of_node[node as usize]
    }

    /// Share of the rate that slow paths leave to a group that lies on these nodes (in ascending order).
    pub(super) fn link_factor(&self, nodes: &[u32]) -> f64 {
        let slows = |ends: &[u32; 2]| ends.iter().all(|end| nodes.binary_search(end).is_ok());
        self.slow_links.iter().filter(|(ends, _)| slows(ends)).map(|(_, factor)| factor).product()
    }
}
