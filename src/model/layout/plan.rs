//! Degrees and axis order -> the groups of every axis.
//!
//! The algorithm is Megatron-LM's (`megatron/core/parallel_state.py`, `RankGenerator` and
//! `generate_masked_orthogonal_rank_groups`): the leftmost axis of the order varies fastest over consecutive ranks. Dense
//! layers and experts have a grid each over the same ranks. Which degrees and orders may be is in `check`.

use super::check::{check_degrees, check_pipelines, complete_order};
use super::division::Divisions;
use super::grid::Grid;
use super::{Axis, Degrees, Division, Groups};
use commgauge_base::error::Result;
use std::sync::Arc;

/// Most ranks of a layout: more than any machine has, and few enough that every group of every axis fits into memory.
pub use crate::config::step::MOST_RANKS;

/// The role of each rank: checked degrees, an order of the axes, and, if ranks were placed by hand, the rank at each
/// position of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The degrees.
    pub degrees: Degrees,
    order: Vec<Axis>,
    placed: Option<Placed>,
    divisions: Divisions,
}

/// Ranks placed by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    rank_at: Arc<[u32]>,
    position_of: Arc<[u32]>,
}

impl Layout {
    /// The layout of these degrees, with `order` naming tp, cp, ep, dp and pp from the fastest varying on. Axes of
    /// degree 1
    /// may be missing; they are put at its end.
    ///
    /// # Errors
    /// A usage error that says the rule: a degree of 0 or more than [`MOST_RANKS`] ranks; an order that names an axis
    /// twice, leaves one out whose degree is above 1, or names what is no axis of the grid; experts that do not divide the
    /// ranks of a stage; dense layers and experts with different pipelines.
    pub fn new(degrees: Degrees, order: &[Axis]) -> Result<Layout> {
        check_degrees(&degrees)?;
        let order = complete_order(&degrees, order)?;
        check_pipelines(&degrees, &order)?;
        Ok(Layout { degrees, order, placed: None, divisions: Divisions::NONE })
    }

    /// Places ranks by hand: `rank_at[i]` is the rank at position `i` of the grid.
    ///
    /// # Errors
    /// What is wrong with the list: too short or long, a rank named twice or not at all.
    pub fn with_ranks_at(mut self, rank_at: Vec<u32>) -> std::result::Result<Layout, String> {
        let world = self.group_size(Axis::World);
        if rank_at.len() as u64 != u64::from(world) {
            return Err(format!("names {} ranks; the layout has {world}", rank_at.len()));
        }
        let mut position_of = vec![None; rank_at.len()];
        for (position, rank) in rank_at.iter().enumerate() {
            match position_of.get_mut(*rank as usize) {
                None => return Err(format!("names rank {rank}; the last is {}", world - 1)),
                Some(Some(_)) => return Err(format!("names rank {rank} twice")),
                Some(seen) => *seen = Some(position as u32),
            }
        }
        // As many ranks as there are positions, none twice and none too large: so every rank is present.
        self.placed =
            Some(Placed { rank_at: rank_at.into(), position_of: position_of.into_iter().flatten().collect() });
        Ok(self)
    }

    /// Divides the groups that a [`Division`] is about into groups of so many ranks, or copies.
    ///
    /// # Errors
    /// Where so many do not divide them, with what does.
    pub fn divided(mut self, division: Division, parts: u32) -> std::result::Result<Layout, String> {
        self.divisions = self.divisions.with(division, parts, |axis| self.group_size(axis))?;
        Ok(self)
    }

    /// The same degrees and divisions with the axes in another order, and no rank placed by hand.
    ///
    /// # Errors
    /// As of [`Layout::new`] for the order.
    pub fn reordered(&self, order: &[Axis]) -> Result<Layout> {
        Ok(Layout { divisions: self.divisions, ..Layout::new(self.degrees, order)? })
    }

    /// The order of the axes, the fastest varying first; all five, including those that were left out.
    pub fn order(&self) -> &[Axis] {
        &self.order
    }

    /// The order in its text form, such as `tp-cp-ep-dp-pp`.
    pub fn order_name(&self) -> String {
        self.order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("-")
    }

    /// True if ranks were placed by hand.
    pub fn is_placed_by_hand(&self) -> bool {
        self.placed.is_some()
    }

    /// The rank at each position of the grid, where ranks were placed by hand.
    pub(super) fn ranks_placed_by_hand(&self) -> Option<&[u32]> {
        self.placed.as_ref().map(|placed| &*placed.rank_at)
    }

    /// Ranks, or copies, that a [`Division`] makes of each of its groups; 1 where it is not made.
    pub(super) fn parts_of(&self, division: Division) -> u32 {
        self.divisions.of(division)
    }

    /// True if the groups of tensor parallelism inside experts differ from those of the dense layers.
    pub fn has_own_expert_tensor_groups(&self) -> bool {
        let shape = |grid: Grid| {
            let degree = grid.degree(&self.degrees, Axis::Tp);
            // Groups of one rank are the same wherever their axis is in the order.
            (degree, if degree == 1 { 1 } else { grid.stride(&self.degrees, &self.order, Axis::Tp) })
        };
        self.degrees.divides_experts() && shape(Grid::Dense) != shape(Grid::Experts)
    }

    /// Ranks in each group of an axis, without making the groups.
    ///
    /// # Panics
    /// For [`Axis::Node`] and [`Axis::Nodes`], whose groups are not the layout's.
    pub fn group_size(&self, axis: Axis) -> u32 {
        let d = &self.degrees;
        match axis {
            Axis::World => d.tp * d.cp * d.dp * d.pp,
            Axis::Tp => d.tp,
            Axis::Cp => d.cp,
            Axis::Ep => d.ep,
            Axis::Etp => d.etp,
            Axis::Dp => d.dp,
            Axis::Pp => d.pp,
            Axis::Mp => d.tp * d.pp,
            Axis::DpCp => d.dp * d.cp,
            Axis::Edp => self.edp(),
            Axis::EtpEp => d.etp * d.ep,
            Axis::TpCp => d.tp * d.cp,
            Axis::TpCpDp => d.tp * d.cp * d.dp,
            Axis::ExpertMp => d.etp * d.ep * d.pp,
            Axis::Embedding => d.pp.min(2),
            Axis::DpShard => d.dp * d.cp / self.divisions.of(Division::ReplicasOfShards),
            Axis::DpReplicate => self.divisions.of(Division::ReplicasOfShards),
            Axis::DpShardInner => self.divisions.of(Division::InnerShards),
            Axis::DpShardOuter => self.group_size(Axis::DpShard) / self.divisions.of(Division::InnerShards),
            Axis::CpInner => self.divisions.of(Division::InnerContext),
            Axis::CpOuter => d.cp / self.divisions.of(Division::InnerContext),
            Axis::EpInner => self.divisions.of(Division::InnerExperts),
            Axis::EpOuter => d.ep / self.divisions.of(Division::InnerExperts),
            Axis::PrefillDecode => d.dp / self.replicas_of_a_pool(),
            Axis::Dcp => self.divisions.of(Division::DecodeContext),
            Axis::Pair => 2,
            Axis::Node | Axis::Nodes => panic!("how ranks are placed on nodes is not a matter of the layout"),
        }
    }

    /// The groups of an axis.
    ///
    /// # Panics
    /// For [`Axis::Pair`], [`Axis::Node`] and [`Axis::Nodes`], whose groups are not the layout's.
    pub fn groups(&self, axis: Axis) -> Groups {
        let experts = match self.degrees.divides_experts() {
            true => Grid::Experts,
            false => Grid::Dense,
        };
        let groups = match axis {
            Axis::World => self.grid(Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp]),
            Axis::Tp | Axis::Cp | Axis::Dp | Axis::Pp => self.grid(Grid::Dense, &[axis]),
            Axis::Mp => self.grid(Grid::Dense, &[Axis::Tp, Axis::Pp]),
            Axis::DpCp => self.grid(Grid::Dense, &[Axis::Dp, Axis::Cp]),
            Axis::Ep => self.grid(experts, &[Axis::Ep]),
            Axis::Etp => self.grid(experts, &[Axis::Tp]),
            // In the grid of experts cp has degree 1; undivided experts are replicated like dense layers.
            Axis::Edp => self.grid(experts, &[Axis::Dp, Axis::Cp]),
            Axis::EtpEp => self.grid(experts, &[Axis::Tp, Axis::Ep]),
            Axis::TpCp => self.grid(Grid::Dense, &[Axis::Tp, Axis::Cp]),
            Axis::TpCpDp => self.grid(Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp]),
            Axis::ExpertMp => self.grid(experts, &[Axis::Tp, Axis::Ep, Axis::Pp]),
            Axis::Embedding => self.embedding(),
            Axis::DpShard => consecutive(&self.groups(Axis::DpCp), self.group_size(Axis::DpShard)),
            Axis::DpReplicate => strided(&self.groups(Axis::DpCp), self.group_size(Axis::DpShard)),
            Axis::DpShardInner => consecutive(&self.groups(Axis::DpShard), self.divisions.of(Division::InnerShards)),
            Axis::DpShardOuter => strided(&self.groups(Axis::DpShard), self.divisions.of(Division::InnerShards)),
            Axis::CpInner => consecutive(&self.groups(Axis::Cp), self.divisions.of(Division::InnerContext)),
            Axis::CpOuter => strided(&self.groups(Axis::Cp), self.divisions.of(Division::InnerContext)),
            Axis::EpInner => consecutive(&self.groups(Axis::Ep), self.divisions.of(Division::InnerExperts)),
            Axis::EpOuter => strided(&self.groups(Axis::Ep), self.divisions.of(Division::InnerExperts)),
            Axis::PrefillDecode => strided(&self.groups(Axis::Dp), self.replicas_of_a_pool()),
            Axis::Dcp => consecutive(&self.groups(Axis::Tp), self.divisions.of(Division::DecodeContext)),
            Axis::Pair => panic!("the pairs of a round are not a matter of the layout"),
            Axis::Node | Axis::Nodes => panic!("how ranks are placed on nodes is not a matter of the layout"),
        };
        Groups { axis, groups }
    }

    /// The stage of a rank.
    ///
    /// # Panics
    /// For a rank that the layout does not have.
    pub fn stage_of(&self, rank: u32) -> u32 {
        assert!(rank < self.group_size(Axis::World), "rank {rank} is not in the layout");
        let position = self.placed.as_ref().map_or(rank, |placed| placed.position_of[rank as usize]);
        position / Grid::Dense.stride(&self.degrees, &self.order, Axis::Pp) % self.degrees.pp
    }

    /// Replicas that prefill, and as many that decode; all of them where their number is odd.
    fn replicas_of_a_pool(&self) -> u32 {
        if self.degrees.dp.is_multiple_of(2) { self.degrees.dp / 2 } else { self.degrees.dp }
    }

    fn edp(&self) -> u32 {
        self.degrees.edp().unwrap_or(1)
    }

    /// Groups whose members differ in the axes of `members` only.
    fn grid(&self, grid: Grid, members: &[Axis]) -> Vec<Vec<u32>> {
        let shape = |inside: bool| -> Vec<Extent> {
            let chosen = self.order.iter().filter(|axis| members.contains(axis) == inside);
            let shape = |axis| Extent {
                degree: grid.degree(&self.degrees, axis),
                stride: grid.stride(&self.degrees, &self.order, axis),
            };
            chosen.map(|axis| shape(*axis)).collect()
        };
        let members = positions(&shape(true));
        let group = |first: u32| members.iter().map(|offset| self.rank_at(first + offset)).collect();
        positions(&shape(false)).into_iter().map(group).collect()
    }

    fn rank_at(&self, position: u32) -> u32 {
        self.placed.as_ref().map_or(position, |placed| placed.rank_at[position as usize])
    }

    fn embedding(&self) -> Vec<Vec<u32>> {
        let ends = |group: Vec<u32>| match group.as_slice() {
            [first, .., last] => vec![*first, *last],
            _ => group,
        };
        self.groups(Axis::Pp).groups.into_iter().map(ends).collect()
    }
}

/// An axis of a grid: its degree, and how far neighbours along it lie apart.
struct Extent {
    degree: u32,
    stride: u32,
}

/// Positions of a grid of these axes, the first varying fastest.
fn positions(shape: &[Extent]) -> Vec<u32> {
    shape.iter().fold(vec![0], |offsets, Extent { degree, stride }| {
        (0..*degree).flat_map(|i| offsets.iter().map(move |offset| offset + i * stride)).collect()
    })
}

/// Runs of `length` neighbours within each group.
fn consecutive(groups: &Groups, length: u32) -> Vec<Vec<u32>> {
    groups.groups.iter().flat_map(|group| group.chunks(length as usize).map(<[u32]>::to_vec)).collect()
}

/// Every `length`-th member of each group.
fn strided(groups: &Groups, length: u32) -> Vec<Vec<u32>> {
    let every = |group: &Vec<u32>, first: usize| group.iter().copied().skip(first).step_by(length as usize).collect();
    groups
        .groups
        .iter()
        .flat_map(|group| (0..length as usize).map(|first| every(group, first)).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
