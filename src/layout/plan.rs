//! Degrees and axis order -> the groups of every axis.
//!
//! The algorithm is Megatron-LM's (`megatron/core/parallel_state.py`, `RankGenerator` and
//! `generate_masked_orthogonal_rank_groups`): the leftmost axis of the order varies fastest over consecutive ranks. Dense
//! layers and experts have a grid each over the same ranks.

use super::{Axis, Degrees, Groups};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Axis order of Megatron-LM.
pub const DEFAULT_ORDER: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];

/// Which rank does what: checked degrees, an order of the axes, and, where ranks were placed by hand, which rank stands at
/// each position of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The degrees.
    pub degrees: Degrees,
    order: Vec<Axis>,
    rank_at: Option<Arc<[u32]>>,
    /// Copies of each shard, where data parallelism shards within smaller groups (HSDP); 1 elsewhere.
    replicas_of_shards: u32,
    /// Ranks of the inner all_to_all of hybrid context parallelism; 1 elsewhere.
    inner_context: u32,
}

impl Layout {
    /// The layout of these degrees, with `order` naming tp, cp, ep, dp and pp from the fastest varying on; ep may be missing.
    ///
    /// # Errors
    /// A usage error where an axis with a degree above 1 is missing in the order or named twice, where experts do not
    /// divide the ranks of a stage, and where dense layers and experts would have different pipelines.
    pub fn new(degrees: Degrees, order: &[Axis]) -> Result<Layout> {
        for (axis, degree) in [
            (Axis::Tp, degrees.tp),
            (Axis::Cp, degrees.cp),
            (Axis::Ep, degrees.ep),
            (Axis::Dp, degrees.dp),
            (Axis::Pp, degrees.pp),
        ] {
            let named = order.iter().filter(|other| **other == axis).count();
            if named > 1 || (named == 0 && degree > 1) {
                return Err(Error::usage(format!("axis order: {axis} is named {named} times; it must be named once")));
            }
        }
        if degrees.edp().is_none() {
            return Err(Error::usage(format!(
                "ep {} x etp {} does not divide the tp {} x cp {} x dp {} = {} ranks of a stage",
                degrees.ep,
                degrees.etp,
                degrees.tp,
                degrees.cp,
                degrees.dp,
                degrees.ranks_of_stage()
            )));
        }
        let layout = Layout { degrees, order: order.to_vec(), rank_at: None, replicas_of_shards: 1, inner_context: 1 };
        if degrees.pp > 1 && layout.stride(false, Axis::Pp) != layout.stride(true, Axis::Pp) {
            return Err(Error::usage(
                "this order gives dense layers and experts different pipelines; put pp last, or choose etp = tp and ep = 1",
            ));
        }
        Ok(layout)
    }

    /// Places ranks by hand: `rank_at[i]` is the rank at position `i` of the grid.
    ///
    /// # Errors
    /// What is wrong with the list: too short or long, a rank named twice or not at all.
    pub fn with_ranks_at(mut self, rank_at: Vec<u32>) -> std::result::Result<Layout, String> {
        let world = self.degrees.world();
        if rank_at.len() as u64 != world {
            return Err(format!("names {} ranks; the layout has {world}", rank_at.len()));
        }
        let mut seen = vec![false; rank_at.len()];
        for rank in &rank_at {
            match seen.get_mut(*rank as usize) {
                None => return Err(format!("names rank {rank}; the last is {}", world - 1)),
                Some(true) => return Err(format!("names rank {rank} twice")),
                Some(seen) => *seen = true,
            }
        }
        self.rank_at = Some(rank_at.into());
        Ok(self)
    }

    /// Shards within smaller groups, of which there are `replicas` in each group of `dp_cp`.
    ///
    /// # Errors
    /// Where the replicas do not divide those groups, with what does.
    pub fn with_replicas_of_shards(mut self, replicas: u32) -> std::result::Result<Layout, String> {
        let together = self.group_size(Axis::DpCp);
        if replicas == 0 || !together.is_multiple_of(replicas) {
            return Err(format!("{replicas} replicas of shards do not divide the {together} ranks of dp x cp"));
        }
        self.replicas_of_shards = replicas;
        Ok(self)
    }

    /// Divides each group of cp into inner groups of `inner` consecutive ranks.
    ///
    /// # Errors
    /// Where `inner` does not divide cp.
    pub fn with_inner_context(mut self, inner: u32) -> std::result::Result<Layout, String> {
        if inner == 0 || !self.degrees.cp.is_multiple_of(inner) {
            return Err(format!("inner groups of {inner} ranks do not divide cp = {}", self.degrees.cp));
        }
        self.inner_context = inner;
        Ok(self)
    }

    /// The order of the axes, the fastest varying first.
    pub fn order(&self) -> &[Axis] {
        &self.order
    }

    /// Ranks in each group of an axis, without making the groups.
    pub fn group_size(&self, axis: Axis) -> u32 {
        let d = &self.degrees;
        match axis {
            Axis::World => d.world() as u32,
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
            Axis::Embedding => d.pp.min(2),
            Axis::DpShard => d.dp * d.cp / self.replicas_of_shards,
            Axis::DpReplicate => self.replicas_of_shards,
            Axis::CpInner => self.inner_context,
            Axis::CpOuter => d.cp / self.inner_context,
            Axis::Pair => 2,
        }
    }

    /// The groups of an axis.
    ///
    /// # Panics
    /// For [`Axis::Pair`], whose groups change from round to round and are not the layout's.
    pub fn groups(&self, axis: Axis) -> Groups {
        let groups = match axis {
            Axis::World => self.grid(false, &[Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp]),
            Axis::Tp | Axis::Cp | Axis::Dp | Axis::Pp => self.grid(false, &[axis]),
            Axis::Mp => self.grid(false, &[Axis::Tp, Axis::Pp]),
            Axis::DpCp => self.grid(false, &[Axis::Dp, Axis::Cp]),
            Axis::Ep => self.grid(true, &[Axis::Ep]),
            Axis::Etp => self.grid(true, &[Axis::Tp]),
            Axis::Edp => self.grid(true, &[Axis::Dp]),
            Axis::EtpEp => self.grid(true, &[Axis::Tp, Axis::Ep]),
            Axis::Embedding => self.embedding(),
            Axis::DpShard => consecutive(&self.groups(Axis::DpCp), self.group_size(Axis::DpShard)),
            Axis::DpReplicate => strided(&self.groups(Axis::DpCp), self.group_size(Axis::DpShard)),
            Axis::CpInner => consecutive(&self.groups(Axis::Cp), self.inner_context),
            Axis::CpOuter => strided(&self.groups(Axis::Cp), self.inner_context),
            Axis::Pair => panic!("the pairs of a round are not a matter of the layout"),
        };
        Groups { axis, groups }
    }

    /// The stage that a rank belongs to.
    pub fn stage_of(&self, rank: u32) -> u32 {
        let position = match &self.rank_at {
            Some(rank_at) => rank_at.iter().position(|other| *other == rank).unwrap_or(0) as u32,
            None => rank,
        };
        position / self.stride(false, Axis::Pp) % self.degrees.pp
    }

    fn edp(&self) -> u32 {
        self.degrees.edp().unwrap_or(1)
    }

    /// Degree of an axis in the grid of dense layers, or in that of experts, where `tp` means `etp` and `dp` means `edp`.
    fn degree(&self, experts: bool, axis: Axis) -> u32 {
        let d = &self.degrees;
        match (axis, experts) {
            (Axis::Tp, false) => d.tp,
            (Axis::Tp, true) => d.etp,
            (Axis::Cp, false) => d.cp,
            (Axis::Ep, true) => d.ep,
            (Axis::Dp, false) => d.dp,
            (Axis::Dp, true) => self.edp(),
            (Axis::Pp, _) => d.pp,
            _ => 1,
        }
    }

    fn stride(&self, experts: bool, axis: Axis) -> u32 {
        self.order.iter().take_while(|other| **other != axis).map(|axis| self.degree(experts, *axis)).product()
    }

    /// Groups whose members differ in the axes of `members` only.
    fn grid(&self, experts: bool, members: &[Axis]) -> Vec<Vec<u32>> {
        let shape = |inside: bool| -> Vec<(u32, u32)> {
            let chosen = self.order.iter().filter(|axis| members.contains(axis) == inside);
            chosen.map(|axis| (self.degree(experts, *axis), self.stride(experts, *axis))).collect()
        };
        let (inside, outside) = (shape(true), shape(false));
        let positions = |shape: &[(u32, u32)]| -> Vec<u32> {
            shape.iter().fold(vec![0], |offsets, (degree, stride)| {
                (0..*degree).flat_map(|i| offsets.iter().map(move |offset| offset + i * stride)).collect()
            })
        };
        let members = positions(&inside);
        let group = |first: u32| members.iter().map(|offset| self.rank_at(first + offset)).collect();
        positions(&outside).into_iter().map(group).collect()
    }

    fn rank_at(&self, position: u32) -> u32 {
        self.rank_at.as_ref().map_or(position, |rank_at| rank_at[position as usize])
    }

    fn embedding(&self) -> Vec<Vec<u32>> {
        let ends = |group: Vec<u32>| match group.as_slice() {
            [first, .., last] => vec![*first, *last],
            _ => group,
        };
        self.groups(Axis::Pp).groups.into_iter().map(ends).collect()
    }
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
mod tests {
    use super::*;

    fn layout(degrees: Degrees, order: &[Axis]) -> Layout {
        Layout::new(degrees, order).unwrap()
    }

    #[test]
    fn the_sixteen_rank_example_of_megatron_comes_out() {
        let layout = layout(Degrees::dense(2, 1, 2, 4), &DEFAULT_ORDER);
        for (axis, first, last) in [
            (Axis::Tp, vec![0, 1], vec![14, 15]),
            (Axis::Dp, vec![0, 2], vec![13, 15]),
            (Axis::Pp, vec![0, 4, 8, 12], vec![3, 7, 11, 15]),
            (Axis::Mp, vec![0, 1, 4, 5, 8, 9, 12, 13], vec![2, 3, 6, 7, 10, 11, 14, 15]),
            (Axis::Embedding, vec![0, 12], vec![3, 15]),
        ] {
            let groups = layout.groups(axis).groups;
            assert_eq!((groups.first(), groups.last()), (Some(&first), Some(&last)), "{axis}");
            assert_eq!(groups[0].len() as u32, layout.group_size(axis));
        }
    }

    #[test]
    fn an_order_that_forgets_an_axis_is_refused() {
        let message = Layout::new(Degrees::dense(2, 1, 2, 1), &[Axis::Tp]).unwrap_err().to_string();
        assert!(message.contains("dp is named 0 times"), "{message}");
    }

    proptest::proptest! {
        #[test]
        fn groups_partition_the_ranks(tp in 1u32..5, cp in 1u32..4, dp in 1u32..5, pp in 1u32..5) {
            let layout = layout(Degrees::dense(tp, cp, dp, pp), &DEFAULT_ORDER);
            for axis in Axis::ALL.into_iter().filter(|axis| !matches!(axis, Axis::Embedding | Axis::Pair)) {
                let mut ranks: Vec<u32> = layout.groups(axis).groups.concat();
                ranks.sort_unstable();
                proptest::prop_assert_eq!(ranks, (0..tp * cp * dp * pp).collect::<Vec<_>>());
            }
        }
    }
}
