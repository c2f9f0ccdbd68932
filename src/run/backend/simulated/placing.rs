//! The placement of the groups of an axis on the fleet, computed once per replicate.
//!
//! Ranks are stored in *slots*, group after group, so that a call accesses memory in order whatever the layout.

use super::fleet::{Fleet, LateRank};
use commgauge_base::error::{Error, Result};
use commgauge_cost::machine_time::{Hop, Paths, Shape};
use commgauge_model::config::machine::Direction;
use commgauge_model::layout::{Axis, Groups};
use std::ops::Range;

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
