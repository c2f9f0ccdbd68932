//! The simulated machines: where each rank runs, and how fast each node and path is with its faults.

use commgauge_analysis::machine_time::Hop;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::Machine;
use commgauge_model::config::machine::Fault;

/// More ranks than any machine has; a slip of the keyboard must not take all memory.
const MOST_RANKS: u32 = 1 << 20;
/// Maximum number of intermittent faults; each doubles the number of possible states of the fleet.
const MOST_INTERMITTENT: usize = 16;

/// A number of nodes of one kind, some of them broken.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub machine: Machine,
    pub ranks: u32,
    /// Ranks that are late for every agreed start, with nanoseconds, by rank.
    pub delays: Vec<(u32, u64)>,
    /// Ranks that produce wrong data, with the probability, by rank.
    pub corrupt: Vec<(u32, f64)>,
    /// Intermittent faults.
    pub intermittent: Vec<Intermittent>,
    rate_factor_of_node: Vec<f64>,
    /// Factor of leaf switches on the network rate of each node.
    network_factor_of_node: Vec<f64>,
    /// Factor of each adapter index, on all nodes.
    rail_factors: Vec<f64>,
    /// Adapters of one node that are slow: node, adapter, share that is left.
    slow_adapters: Vec<(u32, u32, f64)>,
    /// Slow paths: both nodes, the lower first, and the share of the rate that is left.
    slow_links: Vec<([u32; 2], f64)>,
    /// Fewest nodes of a group from which it is slow, and the share that is left.
    slow_together: Vec<(u32, f64)>,
}

/// An intermittent fault.
#[derive(Clone, Debug)]
pub(super) struct Intermittent {
    fault: Fault,
    pub recurrence: Recurrence,
}

/// When a fault is active.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recurrence {
    /// Active in each call with this probability.
    ByCall(f64),
    /// Active with this probability in each window of this many nanoseconds.
    ByWindow(f64, u64),
    /// Active from one time to another, in nanoseconds.
    Once(u64, u64),
}

impl Fleet {
    pub(super) fn new(machine: &Machine, ranks: u32) -> Result<Fleet> {
        if !(1..=MOST_RANKS).contains(&ranks) {
            return Err(Error::usage(format!(
                "found {ranks} ranks to simulate; accepted: from 1 to {MOST_RANKS}, for the machine {}",
                machine.name
            )));
        }
        let nodes = ranks.div_ceil(machine.ranks_per_node) as usize;
        let mut fleet = Fleet {
            machine: machine.clone(),
            ranks,
            delays: Vec::new(),
            corrupt: Vec::new(),
            intermittent: Vec::new(),
            rate_factor_of_node: vec![1.0; nodes],
            network_factor_of_node: vec![1.0; nodes],
            rail_factors: vec![1.0; machine.between_nodes.adapters_per_node as usize],
            slow_adapters: Vec::new(),
            slow_links: Vec::new(),
            slow_together: Vec::new(),
        };
        for (index, fault) in machine.faults.iter().enumerate() {
            fleet.check(index, fault)?;
            fleet.apply_fault(fault);
        }
        if fleet.intermittent.len() > MOST_INTERMITTENT {
            let problem =
                format!("found {} faults that come and go; at most {MOST_INTERMITTENT}", fleet.intermittent.len());
            return Err(Error::config(&machine.path, "faults", problem));
        }
        fleet.delays.sort_unstable();
        fleet.corrupt.sort_by_key(|(rank, _)| *rank);
        Ok(fleet)
    }

    /// The fleet with those intermittent faults active whose bit is set.
    pub(super) fn with_active(&self, present: u64) -> Fleet {
        let mut fleet = Fleet { intermittent: Vec::new(), ..self.clone() };
        for (bit, intermittent) in self.intermittent.iter().enumerate() {
            if present >> bit & 1 == 1 {
                fleet.apply_fault(&intermittent.fault);
            }
        }
        fleet.delays.sort_unstable();
        fleet
    }

    /// Refuses faults of nodes, adapters or ranks that do not exist.
    fn check(&self, index: usize, fault: &Fault) -> Result<()> {
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
            Fault::Node { node, .. } => exists("node", node, nodes, "node"),
            Fault::Link { nodes: [one, other], .. } => {
                exists("nodes", one, nodes, "node")?;
                exists("nodes", other, nodes, "node")
            }
            Fault::Rail { rail, .. } => exists("rail", rail, adapters, "adapter"),
            Fault::Adapter { node, adapter, .. } => {
                exists("node", node, nodes, "node")?;
                exists("adapter", adapter, adapters, "adapter")
            }
            Fault::Leaf { leaf, .. } => match self.machine.between_nodes.nodes_per_leaf {
                Some(each) => exists("leaf", leaf, nodes.div_ceil(each), "leaf"),
                None => wrong("leaf", "a leaf needs between_nodes.nodes_per_leaf, which this file lacks".to_owned()),
            },
            Fault::Scale { from_nodes, .. } => exists("from_nodes", from_nodes - 1, nodes, "node"),
            Fault::Intermittent { ref fault, .. } | Fault::While { ref fault, .. } => self.check(index, fault),
        }
    }

    fn apply_fault(&mut self, fault: &Fault) {
        match *fault {
            Fault::Rank { rank, delay } => self.delays.push((rank, delay.as_nanoseconds())),
            Fault::Corrupt { rank, probability } => self.corrupt.push((rank, probability)),
            Fault::Node { node, rate_factor } => self.rate_factor_of_node[node as usize] *= rate_factor,
            Fault::Link { nodes: [one, other], rate_factor } => {
                self.slow_links.push(([one.min(other), one.max(other)], rate_factor));
            }
            Fault::Rail { rail, rate_factor } => self.rail_factors[rail as usize] *= rate_factor,
            Fault::Adapter { node, adapter, rate_factor } => self.slow_adapters.push((node, adapter, rate_factor)),
            Fault::Leaf { leaf, rate_factor } => {
                let each = self.machine.between_nodes.nodes_per_leaf.unwrap_or(1) as usize;
                let behind = self.network_factor_of_node.chunks_mut(each).nth(leaf as usize);
                behind.into_iter().flatten().for_each(|factor| *factor *= rate_factor);
            }
            Fault::Scale { from_nodes, rate_factor } => self.slow_together.push((from_nodes, rate_factor)),
            Fault::Intermittent { ref fault, probability, window } => self.intermittent.push(Intermittent {
                fault: (**fault).clone(),
                recurrence: match window {
                    None => Recurrence::ByCall(probability),
                    Some(window) => Recurrence::ByWindow(probability, window.as_nanoseconds().max(1)),
                },
            }),
            Fault::While { ref fault, from, until } => self.intermittent.push(Intermittent {
                fault: (**fault).clone(),
                recurrence: Recurrence::Once(from.as_nanoseconds(), until.as_nanoseconds()),
            }),
        }
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

    /// The rate into or out of a node for one rank while `ranks_at_work` ranks of the node use the network, with all
    /// adapters healthy.
    pub(super) fn adapter_share(&self, node: u32, ranks_at_work: u32) -> f64 {
        let factor = self.rate_factor_of_node[node as usize] * self.network_factor_of_node[node as usize];
        self.machine.adapter_rate_per_rank(ranks_at_work).0 * factor
    }

    /// Factor on the rate of the adapters of a rank.
    pub(super) fn adapter_factor(&self, rank: u32) -> f64 {
        if self.slow_adapters.is_empty() && self.rail_factors.iter().all(|factor| *factor == 1.0) {
            return 1.0;
        }
        let (node, local) = (self.node_of(rank), u64::from(rank % self.machine.ranks_per_node));
        let (adapters, ranks) = (self.rail_factors.len() as u64, u64::from(self.machine.ranks_per_node));
        // Several adapters for the rank, or a share of one.
        let first = local * adapters / ranks;
        let own = first..(first + 1).max((local + 1) * adapters / ranks);
        let factor = |adapter: u64| {
            let alone = self.slow_adapters.iter().filter(|slow| (slow.0, u64::from(slow.1)) == (node, adapter));
            alone.fold(self.rail_factors[adapter as usize], |factor, slow| factor * slow.2)
        };
        let count = (own.end - own.start) as f64;
        own.map(factor).sum::<f64>() / count
    }

    /// Factor by which slow paths reduce the rate of a group on these nodes (in ascending order).
    pub(super) fn link_factor(&self, nodes: &[u32]) -> f64 {
        let slows = |ends: &[u32; 2]| ends.iter().all(|end| nodes.binary_search(end).is_ok());
        self.slow_links.iter().filter(|(ends, _)| slows(ends)).map(|(_, factor)| factor).product()
    }

    /// Factor on the rate between nodes for a group that spans this many.
    pub(super) fn scale_factor(&self, nodes: u32) -> f64 {
        self.slow_together.iter().filter(|(from, _)| *from <= nodes).map(|(_, factor)| factor).product()
    }
}
