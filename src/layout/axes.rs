//! Degrees and axis order -> the groups of each axis.
//!
//! The algorithm is Megatron-LM's (`megatron/core/parallel_state.py`, `RankGenerator`): the leftmost axis of the
//! order varies fastest over consecutive ranks.

use crate::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A dimension of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// All ranks in one group.
    World,
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Expert parallel.
    Ep,
    /// Data parallel.
    Dp,
    /// Pipeline parallel.
    Pp,
}

impl Axis {
    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Axis::World => "world",
            Axis::Tp => "tp",
            Axis::Cp => "cp",
            Axis::Ep => "ep",
            Axis::Dp => "dp",
            Axis::Pp => "pp",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The process groups of one axis. Every rank of the world is in exactly one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// The axis.
    pub axis: Axis,
    /// World ranks of each group, in group-rank order.
    pub groups: Vec<Vec<u32>>,
}

impl Groups {
    /// The whole world as one group.
    pub fn world(ranks: u32) -> Groups {
        Groups { axis: Axis::World, groups: vec![(0..ranks).collect()] }
    }

    /// Ranks in each group; the groups of an axis are equally large.
    pub fn group_size(&self) -> u32 {
        self.groups.first().map_or(0, |group| group.len() as u32)
    }

    /// Index of the group that a world rank is in, and its rank within it.
    pub fn place_of(&self, world_rank: u32) -> Option<(usize, u32)> {
        self.groups.iter().enumerate().find_map(|(index, group)| {
            group.iter().position(|rank| *rank == world_rank).map(|position| (index, position as u32))
        })
    }
}

/// Degrees of the dense axes in one layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Degrees {
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel.
    pub dp: u32,
    /// Pipeline parallel.
    pub pp: u32,
}

impl Degrees {
    /// The degree of an axis; 1 for those that these degrees do not hold.
    pub fn of(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Tp => self.tp,
            Axis::Cp => self.cp,
            Axis::Dp => self.dp,
            Axis::Pp => self.pp,
            Axis::World | Axis::Ep => 1,
        }
    }

    /// Ranks that the layout needs.
    pub fn world(&self) -> u64 {
        [self.tp, self.cp, self.dp, self.pp].into_iter().map(u64::from).product()
    }

    /// The groups of an axis, with `order` naming the axes from the fastest varying on.
    ///
    /// # Errors
    /// A usage error where an axis with a degree above 1 is missing in the order or named twice.
    pub fn groups(&self, axis: Axis, order: &[Axis]) -> Result<Groups> {
        for wanted in [Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp] {
            let named = order.iter().filter(|a| **a == wanted).count();
            if named > 1 || (named == 0 && self.of(wanted) > 1) {
                return Err(Error::usage(format!(
                    "axis order: {wanted} is named {named} times; it must be named once"
                )));
            }
        }
        let stride: u32 = order.iter().take_while(|a| **a != axis).map(|a| self.of(*a)).product();
        let degree = self.of(axis);
        let world = self.world() as u32;
        let firsts = (0..world).filter(|rank| (rank / stride).is_multiple_of(degree));
        let groups = firsts.map(|first| (0..degree).map(|i| first + i * stride).collect()).collect();
        Ok(Groups { axis, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGATRON_ORDER: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];

    #[test]
    fn the_sixteen_rank_example_of_megatron_comes_out() {
        let degrees = Degrees { tp: 2, cp: 1, dp: 2, pp: 4 };
        for (axis, first, last) in [
            (Axis::Tp, vec![0, 1], vec![14, 15]),
            (Axis::Dp, vec![0, 2], vec![13, 15]),
            (Axis::Pp, vec![0, 4, 8, 12], vec![3, 7, 11, 15]),
        ] {
            let groups = degrees.groups(axis, &MEGATRON_ORDER).unwrap().groups;
            assert_eq!((groups.first(), groups.last()), (Some(&first), Some(&last)), "{axis}");
        }
    }

    #[test]
    fn an_order_that_forgets_an_axis_is_refused() {
        let degrees = Degrees { tp: 2, cp: 1, dp: 2, pp: 1 };
        let message = degrees.groups(Axis::Tp, &[Axis::Tp]).unwrap_err().to_string();
        assert!(message.contains("dp is named 0 times"), "{message}");
    }

    proptest::proptest! {
        #[test]
        fn groups_partition_the_ranks(tp in 1u32..5, cp in 1u32..4, dp in 1u32..5, pp in 1u32..5) {
            let degrees = Degrees { tp, cp, dp, pp };
            for axis in [Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp] {
                let mut ranks: Vec<u32> = degrees.groups(axis, &MEGATRON_ORDER).unwrap().groups.concat();
                ranks.sort_unstable();
                proptest::prop_assert_eq!(ranks, (0..tp * cp * dp * pp).collect::<Vec<_>>());
            }
        }
    }
}
