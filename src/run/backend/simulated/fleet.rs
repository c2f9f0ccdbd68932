//! The simulated machines: where each rank runs, and how fast each node and path is with its faults.

use commgauge_base::error::{Error, Result};
use commgauge_cost::machine_time::{Hop, Paths, Shape};
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{Direction, Fault};
use commgauge_model::layout::{Axis, Groups};
use std::ops::Range;

/// More ranks than any machine has, so that a typo does not exhaust memory.
const MOST_RANKS: u32 = 1 << 20;

/// Maximum number of intermittent faults; each doubles the number of possible states of the fleet.
const MOST_INTERMITTENT: usize = 16;

/// A number of nodes of one kind, some of them broken. Nodes are hosts, as in records; the links within a node of the machine file may join
/// several of them to a domain.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub machine: Machine,
    pub ranks_per_domain: u32,
    pub ranks: u32,
    pub late: Vec<LateRank>,
    pub corrupt: Vec<CorruptRank>,
    /// Intermittent faults.
    pub intermittent: Vec<Intermittent>,
    pub rate_factor_of_node: Vec<f64>,
    /// Factor of leaf switches and other jobs on the network rate of each node.
    pub network_factor_of_node: Vec<f64>,
    /// Factor of each adapter index, on all nodes.
    pub rail_factors: Vec<f64>,
    /// Adapters of one node that are slow.
    pub slow_adapters: Vec<SlowAdapter>,
    /// Slow devices, to their node and to the network: rank, remaining share of the rate.
    pub slow_devices: Vec<(u32, f64)>,
    /// Links inside a node that are slow.
    pub slow_inner_links: Vec<SlowInnerLink>,
    /// Slow paths: both nodes, the lower first, and the remaining share of the rate.
    pub slow_links: Vec<([u32; 2], f64)>,
    /// The group size in nodes from which it is slow, and the remaining share.
    pub slow_together: Vec<(u32, f64)>,
}

/// A rank that is late for every agreed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LateRank {
    pub rank: u32,
    pub nanoseconds: u64,
}

/// A rank that produces wrong data with some probability.
#[derive(Clone, Copy, Debug)]
pub(super) struct CorruptRank {
    pub rank: u32,
    pub probability: f64,
}

/// A slow adapter, or one direction of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowAdapter {
    pub node: u32,
    pub adapter: u32,
    /// None where both directions are slow.
    pub direction: Option<Direction>,
    pub factor: f64,
}

/// Slow links inside a node, between ranks of the world.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowInnerLink {
    pub rank: u32,
    /// None where all links of the rank's device are slow.
    pub peer: Option<u32>,
    pub factor: f64,
}

/// An intermittent fault.
#[derive(Clone, Debug)]
pub(super) struct Intermittent {
    pub fault: Fault,
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
        let (nodes, ranks_per_domain) = (machine.hosts_of(ranks) as usize, machine.ranks_per_node);
        let machine = machine.by_hosts();
        let mut fleet = Fleet {
            ranks_per_domain,
            ranks,
            late: Vec::new(),
            corrupt: Vec::new(),
            intermittent: Vec::new(),
            rate_factor_of_node: vec![1.0; nodes],
            network_factor_of_node: vec![1.0; nodes],
            rail_factors: vec![1.0; machine.between_nodes.adapters_per_node as usize],
            slow_adapters: Vec::new(),
            slow_devices: Vec::new(),
            slow_inner_links: Vec::new(),
            slow_links: Vec::new(),
            slow_together: Vec::new(),
            machine,
        };
        for (index, fault) in fleet.machine.faults.clone().iter().enumerate() {
            fleet.check(index, fault)?;
            fleet.apply_fault(fault);
        }
        if fleet.intermittent.len() > MOST_INTERMITTENT {
            let problem =
                format!("found {} intermittent faults; at most {MOST_INTERMITTENT}", fleet.intermittent.len());
            return Err(Error::config(&fleet.machine.path, "faults", problem));
        }
        fleet.late.sort_unstable();
        fleet.corrupt.sort_by_key(|corrupt| corrupt.rank);
        Ok(fleet)
    }

    /// The fleet with the intermittent faults active whose bits are set.
    pub(super) fn with_active(&self, present: u64) -> Fleet {
        let mut fleet = Fleet { intermittent: Vec::new(), ..self.clone() };
        for (bit, intermittent) in self.intermittent.iter().enumerate() {
            if present >> bit & 1 == 1 {
                fleet.slow_down(&intermittent.fault);
            }
        }
        fleet.late.sort_unstable();
        fleet
    }

    pub(super) fn nodes(&self) -> u32 {
        self.rate_factor_of_node.len() as u32
    }

    pub(super) fn node_of(&self, rank: u32) -> u32 {
        rank / self.machine.ranks_per_node
    }

    /// The ranks that the links within a node join: those of a node, or of several hosts.
    pub(super) fn domain_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_domain
    }

    /// The hop between two ranks of a domain.
    pub(super) fn within(&self, sender: u32, receiver: u32) -> Hop {
        let ends = [sender.min(receiver), sender.max(receiver)];
        Hop { latency_seconds: self.machine.within_node.latency.0, rate: self.rate_within(&ends) }
    }

    /// The rate of the slowest link among ranks of one domain, in ascending order.
    pub(super) fn rate_within(&self, ranks: &[u32]) -> f64 {
        let of_nodes = ranks.iter().map(|rank| self.rate_factor_of_node[self.node_of(*rank) as usize]);
        let slowest = of_nodes.fold(1.0, f64::min);
        let paths = if self.slow_links.is_empty() { 1.0 } else { self.link_factor(&self.nodes_of(ranks)) };
        let rate = self.machine.within_node.rate.0 * slowest * paths;
        if self.slow_devices.is_empty() && self.slow_inner_links.is_empty() {
            return rate;
        }
        let takes_part = |rank: &u32| ranks.binary_search(rank).is_ok();
        let devices = self.slow_devices.iter().filter(|(rank, _)| takes_part(rank)).map(|(_, factor)| *factor);
        let links = self.slow_inner_links.iter();
        let links = links.filter(|link| takes_part(&link.rank) && link.peer.as_ref().is_none_or(takes_part));
        rate * devices.chain(links.map(|link| link.factor)).fold(1.0, f64::min)
    }

    /// The nodes of ranks in ascending order.
    pub(super) fn nodes_of(&self, ranks: &[u32]) -> Vec<u32> {
        let mut nodes: Vec<u32> = ranks.iter().map(|rank| self.node_of(*rank)).collect();
        nodes.dedup();
        nodes
    }

    /// The rate into or out of a node for one rank while `active_ranks` ranks of the node use the network, with all adapters healthy.
    pub(super) fn adapter_share(&self, node: u32, active_ranks: u32) -> f64 {
        let factor = self.rate_factor_of_node[node as usize] * self.network_factor_of_node[node as usize];
        self.machine.adapter_rate_per_rank(active_ranks).0 * factor
    }

    /// Factor on the rate of a rank to or from the network: of its adapters and its device.
    pub(super) fn adapter_factor(&self, rank: u32, direction: Direction) -> f64 {
        let device = || self.slow_devices.iter().filter(|(slow, _)| *slow == rank).map(|(_, factor)| factor).product();
        if self.slow_adapters.is_empty() && self.rail_factors.iter().all(|factor| *factor == 1.0) {
            return device();
        }
        let (node, local) = (self.node_of(rank), u64::from(rank % self.machine.ranks_per_node));
        let (adapters, ranks) = (self.rail_factors.len() as u64, u64::from(self.machine.ranks_per_node));
        // Several adapters for the rank, or a share of one.
        let first = local * adapters / ranks;
        let own = first..(first + 1).max((local + 1) * adapters / ranks);
        let factor = |adapter: u64| {
            let concerns = |slow: &&SlowAdapter| {
                (slow.node, u64::from(slow.adapter)) == (node, adapter)
                    && slow.direction.is_none_or(|slow| slow == direction)
            };
            let alone = self.slow_adapters.iter().filter(concerns);
            alone.fold(self.rail_factors[adapter as usize], |factor, slow| factor * slow.factor)
        };
        let count = (own.end - own.start) as f64;
        own.map(factor).sum::<f64>() / count * device()
    }

    /// The hop between two ranks; messages that leave or enter a node at the same time, by its number, share its adapters.
    pub(super) fn hop(
        &self,
        sender: u32,
        receiver: u32,
        leaving: impl Fn(u32) -> u32,
        entering: impl Fn(u32) -> u32,
    ) -> Hop {
        if self.domain_of(sender) == self.domain_of(receiver) {
            return self.within(sender, receiver);
        }
        let (from, to) = (self.node_of(sender), self.node_of(receiver));
        let out = self.adapter_share(from, leaving(from)) * self.adapter_factor(sender, Direction::Send);
        let into = self.adapter_share(to, entering(to)) * self.adapter_factor(receiver, Direction::Receive);
        Hop {
            latency_seconds: self.machine.between_nodes.latency.0,
            rate: out.min(into) * self.link_factor(&[from.min(to), from.max(to)]),
        }
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

// The effect of faults on a fleet.

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

    /// Slows the fleet down, or registers an intermittent fault.
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
            // No fault contains another one; `apply_fault` splits them.
            Fault::Intermittent { .. } | Fault::While { .. } => {}
        }
    }
}

/// The groups of one axis, placed.
#[derive(Debug)]
pub(super) struct Placed {
    /// World rank in each slot.
    pub rank_of_slot: Vec<u32>,
    pub node_of_slot: Vec<u32>,
    /// Domain of each slot: the nodes joined by the links within a node.
    pub domain_of_slot: Vec<u32>,
    /// First slot of each group, and one past the last slot of all.
    pub group_starts: Vec<usize>,
    /// For each group.
    pub shapes: Vec<(Shape, Paths)>,
    /// Ranks in none of the groups, in ascending order.
    idle_ranks: Vec<u32>,
}

/// A slot that is late for every agreed start.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateSlot {
    pub slot: usize,
    pub nanoseconds: u64,
}

impl Placed {
    /// # Errors
    /// If a rank is in two groups, or not in the world.
    pub(super) fn new(groups: &Groups, fleet: &Fleet) -> Result<Placed> {
        let rank_of_slot = groups.groups.concat();
        check_disjoint(groups.axis, &rank_of_slot, fleet.ranks)?;
        let mut group_starts = vec![0];
        group_starts.extend(groups.groups.iter().scan(0, |end, group| {
            *end += group.len();
            Some(*end)
        }));
        let node_of_slot: Vec<u32> = rank_of_slot.iter().map(|rank| fleet.node_of(*rank)).collect();
        let domain_of_slot: Vec<u32> = rank_of_slot.iter().map(|rank| fleet.domain_of(*rank)).collect();
        let members = || group_starts.array_windows().map(|[start, end]| *start..*end);
        let spans: Vec<TouchedDomains> =
            members().map(|slots| TouchedDomains::of(&rank_of_slot[slots], fleet)).collect();
        // Every rank of a group that spans domains uses the network; ranks of other groups do not.
        let mut active_ranks = vec![0; fleet.nodes() as usize];
        for (_, slots) in spans.iter().zip(members()).filter(|(span, _)| span.domains.len() > 1) {
            node_of_slot[slots].iter().for_each(|node| active_ranks[*node as usize] += 1);
        }
        let shapes = spans.iter().map(|span| (span.shape(), span.paths(fleet, &active_ranks))).collect();
        let mut is_active = vec![false; fleet.ranks as usize];
        rank_of_slot.iter().for_each(|rank| is_active[*rank as usize] = true);
        let idle_ranks = (0..fleet.ranks).filter(|rank| !is_active[*rank as usize]).collect();
        Ok(Placed { rank_of_slot, node_of_slot, domain_of_slot, group_starts, shapes, idle_ranks })
    }

    pub(super) fn late_slots(&self, ranks: &[LateRank]) -> Vec<LateSlot> {
        let slot_of = |rank: u32| self.rank_of_slot.iter().position(|other| *other == rank);
        let one = |late: &LateRank| Some(LateSlot { slot: slot_of(late.rank)?, nanoseconds: late.nanoseconds });
        ranks.iter().filter_map(one).collect()
    }

    /// Whether a rank is in none of the groups.
    pub(super) fn is_idle_rank(&self, rank: u32) -> bool {
        self.idle_ranks.binary_search(&rank).is_ok()
    }

    /// The slots of every group.
    pub(super) fn slots(&self) -> impl Iterator<Item = Range<usize>> {
        self.group_starts.array_windows().map(|[start, end]| *start..*end)
    }
}

fn check_disjoint(axis: Axis, ranks: &[u32], world: u32) -> Result<()> {
    let mut seen = vec![0u32; world as usize];
    for rank in ranks {
        match seen.get_mut(*rank as usize) {
            Some(count) => *count += 1,
            None => {
                return Err(Error::usage(format!("axis {axis}: rank {rank} in a world of {world} simulated ranks")));
            }
        }
    }
    match seen.iter().position(|count| *count > 1) {
        None => Ok(()),
        Some(rank) => {
            let count = seen[rank];
            Err(Error::usage(format!("axis {axis}: rank {rank} is in {count} groups; a rank can be in one at most")))
        }
    }
}

struct TouchedDomains {
    /// The nodes, in ascending order.
    nodes: Vec<u32>,
    /// The domains, in ascending order.
    domains: Vec<TouchedDomain>,
}

/// A node, or several hosts whose ranks the links within a node join.
struct TouchedDomain {
    /// Its nodes that the group touches, in ascending order.
    nodes: Vec<u32>,
    /// Ranks of the group.
    ranks: u32,
    /// Factor of the worst adapter that the group uses.
    adapter_factor: f64,
    /// Rate of the slowest link that the group uses inside.
    rate_within: f64,
}

impl TouchedDomain {
    /// `members` must be in ascending order.
    fn of(members: &[u32], fleet: &Fleet) -> TouchedDomain {
        // A collective sends and receives at the same time.
        let factor = |rank: &u32| Direction::ALL.map(|direction| fleet.adapter_factor(*rank, direction));
        TouchedDomain {
            nodes: fleet.nodes_of(members),
            ranks: members.len() as u32,
            adapter_factor: members.iter().flat_map(factor).fold(1.0, f64::min),
            rate_within: fleet.rate_within(members),
        }
    }

    /// The network share of one rank, on the node with the least.
    fn adapter_share(&self, fleet: &Fleet, active_ranks: impl Fn(u32) -> u32) -> f64 {
        let shares = self.nodes.iter().map(|node| fleet.adapter_share(*node, active_ranks(*node)));
        shares.fold(f64::INFINITY, f64::min)
    }
}

impl TouchedDomains {
    fn of(members: &[u32], fleet: &Fleet) -> TouchedDomains {
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        let runs = sorted.chunk_by(|a, b| fleet.domain_of(*a) == fleet.domain_of(*b));
        let domains: Vec<TouchedDomain> = runs.map(|run| TouchedDomain::of(run, fleet)).collect();
        TouchedDomains { nodes: domains.iter().flat_map(|domain| domain.nodes.iter().copied()).collect(), domains }
    }

    fn shape(&self) -> Shape {
        let ranks = || self.domains.iter().map(|domain| domain.ranks);
        Shape {
            ranks: ranks().sum(),
            nodes: self.domains.len() as u32,
            ranks_per_node_most: ranks().max().unwrap_or(1),
            ranks_per_node_least: ranks().min().unwrap_or(1),
        }
    }

    /// The slowest of each kind, since all ranks of a group end together.
    fn paths(&self, fleet: &Fleet, active_ranks: &[u32]) -> Paths {
        let within = self.domains.iter().map(|domain| domain.rate_within).fold(f64::INFINITY, f64::min);
        let shared = fleet.link_factor(&self.nodes) * fleet.scale_factor(self.nodes.len() as u32);
        let slowest = |rate: &dyn Fn(&TouchedDomain, f64) -> f64| {
            let rates = self.domains.iter().map(|domain| {
                let share = domain.adapter_share(fleet, |node| active_ranks[node as usize]);
                rate(domain, share) * domain.adapter_factor
            });
            rates.fold(f64::INFINITY, f64::min) * shared
        };
        let network = &fleet.machine.between_nodes;
        let exit = |domain: &TouchedDomain, share: f64| f64::from(domain.ranks) * share;
        Paths {
            within: Hop { latency_seconds: fleet.machine.within_node.latency.0, rate: within },
            between: Hop { latency_seconds: network.latency.0, rate: slowest(&|_, share| share) },
            node_exit_rate: slowest(&exit),
            // The other ranks of its group yield their share to the leader, as far as its own adapters allow.
            leader_rate: slowest(&|domain, share| exit(domain, share).min(domain.adapter_share(fleet, |_| 1))),
        }
    }
}
