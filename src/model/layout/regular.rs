//! Placement of the groups of an axis on nodes of equally many neighbouring ranks, computed from degrees and strides.
//!
//! The result equals [`Locality::of`] on the listed groups, which a test checks, but without listing a world of ranks,
//! so that a planner can compute it for thousands of layouts. If nodes cut the grid unevenly, the groups are listed
//! after all.

use super::grid::Grid;
use super::{Axis, Groups, Layout, Locality};

/// An axis of a grid.
#[derive(Clone, Copy)]
struct GridAxis {
    degree: u32,
    /// The distance of neighbours along it, in ranks.
    stride: u32,
}

impl Layout {
    /// Placement of the groups of an axis on nodes of this many ranks each, neighbours in world rank.
    ///
    /// # Panics
    /// For [`Axis::Pair`], as [`Layout::groups`].
    pub fn locality(&self, axis: Axis, ranks_per_node: u32) -> Locality {
        let world = self.group_size(Axis::World);
        let node = ranks_per_node.clamp(1, world.max(1));
        let regular = match (self.is_placed_by_hand(), axis) {
            (true, _) => None,
            (false, Axis::Embedding) => self.ends_of_pipelines(world, node),
            (false, _) => self.members(axis).and_then(|members| regular(&members, world, node)),
        };
        regular.unwrap_or_else(|| listed(&self.groups(axis), world, node))
    }

    /// First and last stage of each pipeline, where nodes cut the grid evenly.
    fn ends_of_pipelines(&self, world: u32, node: u32) -> Option<Locality> {
        let (pp, stride) = (self.degrees.pp, Grid::Dense.stride(&self.degrees, self.order(), Axis::Pp));
        let block = stride.checked_mul(pp)?;
        if pp < 2 || !world.is_multiple_of(node) {
            return None;
        }
        let locality_of = |nodes_spanned, ranks_per_node, concurrent_groups_per_node| {
            Some(Locality { nodes_spanned, ranks_per_node, stride: (pp - 1) * stride, concurrent_groups_per_node })
        };
        if node.is_multiple_of(block) {
            locality_of(1, 2, node / pp)
        } else if stride.is_multiple_of(node) {
            locality_of(2, 1, node)
        } else if node.is_multiple_of(stride) && block.is_multiple_of(node) {
            locality_of(2, 1, stride)
        } else {
            None
        }
    }

    /// The axes along which the members of a group differ, the fastest first, without those of degree 1; `None` for groups that
    /// are no product of axes.
    fn members(&self, axis: Axis) -> Option<Vec<GridAxis>> {
        let experts = if self.degrees.divides_experts() { Grid::Experts } else { Grid::Dense };
        let (grid, axes): (Grid, &[Axis]) = match axis {
            Axis::World => (Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp]),
            Axis::Tp => (Grid::Dense, &[Axis::Tp]),
            Axis::Cp => (Grid::Dense, &[Axis::Cp]),
            Axis::Dp => (Grid::Dense, &[Axis::Dp]),
            Axis::Pp => (Grid::Dense, &[Axis::Pp]),
            Axis::Mp => (Grid::Dense, &[Axis::Tp, Axis::Pp]),
            Axis::DpCp => (Grid::Dense, &[Axis::Dp, Axis::Cp]),
            Axis::Ep => (experts, &[Axis::Ep]),
            Axis::Etp => (experts, &[Axis::Tp]),
            Axis::Edp => (experts, &[Axis::Dp, Axis::Cp]),
            Axis::EtpEp => (experts, &[Axis::Tp, Axis::Ep]),
            Axis::TpCp => (Grid::Dense, &[Axis::Tp, Axis::Cp]),
            Axis::TpCpDp => (Grid::Dense, &[Axis::Tp, Axis::Cp, Axis::Dp]),
            Axis::ExpertMp => (experts, &[Axis::Tp, Axis::Ep, Axis::Pp]),
            Axis::Embedding | Axis::DpShard | Axis::DpReplicate | Axis::CpInner | Axis::CpOuter => return None,
            Axis::DpShardInner | Axis::DpShardOuter | Axis::EpInner | Axis::EpOuter => return None,
            Axis::PrefillDecode | Axis::Dcp => return None,
            Axis::Pair | Axis::Node | Axis::Nodes => return None,
        };
        let chosen = self.order().iter().filter(|axis| axes.contains(axis));
        let members = chosen.map(|axis| GridAxis {
            degree: grid.degree(&self.degrees, *axis),
            stride: grid.stride(&self.degrees, self.order(), *axis),
        });
        Some(members.filter(|member| member.degree > 1).collect())
    }
}

/// For nodes that contain whole blocks of every axis, or are contained in one.
fn regular(members: &[GridAxis], world: u32, node: u32) -> Option<Locality> {
    if !world.is_multiple_of(node) {
        return None;
    }
    let mut on_one_node = 1;
    let mut all = 1;
    for GridAxis { degree, stride } in members {
        let block = stride.checked_mul(*degree)?;
        on_one_node *= if stride.is_multiple_of(node) {
            1
        } else if node.is_multiple_of(block) {
            *degree
        } else if node.is_multiple_of(*stride) && block.is_multiple_of(node) {
            node / stride
        } else {
            return None;
        };
        all *= degree;
    }
    Some(Locality {
        nodes_spanned: all / on_one_node,
        ranks_per_node: on_one_node,
        stride: common_stride(members),
        concurrent_groups_per_node: node / on_one_node,
    })
}

/// The distance of neighbours, if it is the same within an axis and from its end to the next one.
fn common_stride(members: &[GridAxis]) -> u32 {
    let follows =
        |pair: &[GridAxis]| u64::from(pair[1].stride) == u64::from(pair[0].degree) * u64::from(pair[0].stride);
    match members.first() {
        None => 1,
        Some(first) if members.windows(2).all(follows) => first.stride,
        Some(_) => 0,
    }
}

/// By listing.
fn listed(groups: &Groups, world: u32, node: u32) -> Locality {
    let nodes: Vec<u32> = (0..world).map(|rank| rank / node).collect();
    Locality::of(groups, &nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DEFAULT_ORDER, Degrees};
    use proptest::strategy::{Just, Strategy};

    #[test]
    fn sixteen_thousand_ranks_lie_as_the_llama_3_paper_has_them() {
        let order = [Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp];
        let layout = Layout::new(Degrees::dense(8, 1, 128, 16), &order).unwrap();
        let locality_of = |axis| layout.locality(axis, 8);
        assert_eq!(
            locality_of(Axis::Tp),
            Locality { nodes_spanned: 1, ranks_per_node: 8, stride: 1, concurrent_groups_per_node: 1 }
        );
        assert_eq!(
            locality_of(Axis::Pp),
            Locality { nodes_spanned: 16, ranks_per_node: 1, stride: 8, concurrent_groups_per_node: 8 }
        );
        assert_eq!(locality_of(Axis::Dp).stride, 128);
    }

    proptest::proptest! {
        #[test]
        fn equals_the_locality_of_the_listed_groups(
            tp in 1u32..5, cp in 1u32..4, dp in 1u32..7, pp in 1u32..5, ep in 1u32..5, own in proptest::bool::ANY,
            node in 1u32..13, order in Just(DEFAULT_ORDER.to_vec()).prop_shuffle(),
        ) {
            let degrees = Degrees { tp, cp, dp, pp, ep, etp: if own { 1 } else { tp } };
            let Ok(layout) = Layout::new(degrees, &order) else { return Ok(()) };
            let world = layout.group_size(Axis::World);
            let not_of_a_layout = [Axis::Pair, Axis::Node, Axis::Nodes];
            for axis in Axis::ALL.into_iter().filter(|axis| !not_of_a_layout.contains(axis)) {
                let expected = listed(&layout.groups(axis), world, node);
                proptest::prop_assert_eq!(layout.locality(axis, node), expected, "{} {:?} {}", axis, degrees, node);
            }
        }
    }
}
