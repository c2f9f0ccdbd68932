//! Degrees and axis order -> the groups of every axis.
//!
//! The algorithm is Megatron-LM's (`megatron/core/parallel_state.py`, `RankGenerator` and `generate_masked_orthogonal_rank_groups`): the
//! leftmost axis of the order varies fastest over consecutive ranks. Dense layers and experts have one grid each over the same ranks.
//! `axes` checks degrees and orders.

/// Maximum ranks of a layout: more than any machine has, and few enough that every group of every axis fits into memory.
pub use crate::config::step::MOST_RANKS;

use super::axes::{Divisions, Grid, check_degrees, check_pipelines, complete_order};
use super::{Axis, DEFAULT_ORDER, Degrees, Division, Groups};
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The role of each rank: checked degrees, an order of the axes, and, if ranks were placed by hand, the rank at each
/// position of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub degrees: Degrees,
    order: Vec<Axis>,
    placed: Option<Placed>,
    divisions: Divisions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    rank_at: Arc<[u32]>,
    position_of: Arc<[u32]>,
}

impl Layout {
    /// The layout of these degrees; `order` names tp, cp, ep, dp and pp from the fastest varying on. Axes of degree 1 may be missing; they
    /// are appended.
    ///
    /// # Errors
    /// A usage error that names the rule: a degree of 0 or more than [`MOST_RANKS`] ranks; an order that names an axis twice, lacks one
    /// whose degree is above 1, or names something that is not an axis of the grid; experts that do not divide the ranks of a stage; dense
    /// layers and experts with different pipelines.
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
        // As many ranks as positions, none twice and none too large: so every rank is present.
        self.placed =
            Some(Placed { rank_at: rank_at.into(), position_of: position_of.into_iter().flatten().collect() });
        Ok(self)
    }

    /// Divides the groups of a [`Division`] into groups of this many ranks, or copies.
    ///
    /// # Errors
    /// If they cannot be divided this way, with valid values.
    pub fn divided(mut self, division: Division, parts: u32) -> std::result::Result<Layout, String> {
        self.divisions = self.divisions.with(division, parts, |axis| self.group_size(axis))?;
        Ok(self)
    }

    /// The same degrees and divisions with the axes in another order, and no rank placed by hand.
    ///
    /// # Errors
    /// As [`Layout::new`] for the order.
    pub fn reordered(&self, order: &[Axis]) -> Result<Layout> {
        Ok(Layout { divisions: self.divisions, ..Layout::new(self.degrees, order)? })
    }

    /// The order of the axes, the fastest varying first; all five, including appended ones.
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

    /// The rank at each position of the grid, if ranks were placed by hand.
    pub(super) fn ranks_placed_by_hand(&self) -> Option<&[u32]> {
        self.placed.as_ref().map(|placed| &*placed.rank_at)
    }

    /// Ranks, or copies, that a [`Division`] makes of each of its groups; 1 if it is not made.
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

    /// Ranks in each group of an axis, without listing the groups.
    ///
    /// # Panics
    /// For [`Axis::Node`] and [`Axis::Nodes`], whose groups do not belong to the layout.
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
            Axis::Node | Axis::Nodes => panic!("the layout does not place ranks on nodes"),
        }
    }

    /// The groups of an axis.
    ///
    /// # Panics
    /// For [`Axis::Pair`], [`Axis::Node`] and [`Axis::Nodes`], whose groups do not belong to the layout.
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
            Axis::Pair => panic!("the layout has no pairs"),
            Axis::Node | Axis::Nodes => panic!("the layout does not place ranks on nodes"),
        };
        Groups { axis, groups }
    }

    /// The stage of a rank.
    ///
    /// # Panics
    /// For a rank outside the layout.
    pub fn stage_of(&self, rank: u32) -> u32 {
        assert!(rank < self.group_size(Axis::World), "rank {rank} is not in the layout");
        let position = self.placed.as_ref().map_or(rank, |placed| placed.position_of[rank as usize]);
        position / Grid::Dense.stride(&self.degrees, &self.order, Axis::Pp) % self.degrees.pp
    }

    /// Replicas that prefill, and the equal number that decode; all of them if their number is odd.
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

/// An axis of a grid: its degree, and the distance of neighbours along it.
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

// A layout in documents: everything that determines its groups.

/// Degrees, order and divisions of a layout, and the placement of its ranks if by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutDescription {
    /// The degrees.
    pub degrees: Degrees,
    /// The axes, the fastest varying over consecutive ranks first, such as `tp-cp-ep-dp-pp`.
    #[serde(default = "default_order")]
    pub order: String,
    /// Groups that are divided further, and the number of ranks, or copies, of each part; absent without any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub divisions: BTreeMap<Division, u32>,
    /// The rank at each position of the grid, if ranks were placed by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_at: Option<Vec<u32>>,
}

fn default_order() -> String {
    DEFAULT_ORDER.map(Axis::name).join("-")
}

impl LayoutDescription {
    /// The layout.
    ///
    /// # Errors
    /// A usage error that names the contradiction.
    pub fn layout(&self) -> Result<Layout> {
        let axis = |name| {
            Axis::named(name).ok_or_else(|| Error::usage(format!("order: `{}` names no axis `{name}`", self.order)))
        };
        let order = self.order.split('-').map(axis).collect::<Result<Vec<Axis>>>()?;
        let mut layout = Layout::new(self.degrees, &order)?;
        if let Some(ranks) = &self.rank_at {
            layout =
                layout.with_ranks_at(ranks.clone()).map_err(|problem| Error::usage(format!("rank_at {problem}")))?;
        }
        // Divisions of shards come after those that make the shards, as in the enumeration.
        for (division, parts) in &self.divisions {
            layout = layout.divided(*division, *parts).map_err(Error::usage)?;
        }
        Ok(layout)
    }
}

impl From<&Layout> for LayoutDescription {
    fn from(layout: &Layout) -> LayoutDescription {
        let parts = Division::ALL.into_iter().map(|division| (division, layout.parts_of(division)));
        LayoutDescription {
            degrees: layout.degrees,
            order: layout.order_name(),
            divisions: parts.filter(|(_, parts)| *parts > 1).collect(),
            rank_at: layout.ranks_placed_by_hand().map(<[u32]>::to_vec),
        }
    }
}

#[cfg(test)]
mod description_tests {

    use super::*;

    fn degrees(tp: u32, cp: u32, dp: u32, pp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep: 1, etp: tp }
    }

    #[test]
    fn a_layout_is_the_same_after_a_document() {
        let divided = |layout: Layout| {
            let layout = layout.divided(Division::ReplicasOfShards, 2).unwrap();
            layout.divided(Division::InnerShards, 2).unwrap().divided(Division::InnerContext, 2).unwrap()
        };
        let plain = Layout::new(degrees(2, 2, 4, 2), &DEFAULT_ORDER).unwrap();
        let turned = Layout::new(degrees(2, 2, 4, 2), &[Axis::Dp, Axis::Tp, Axis::Cp, Axis::Pp, Axis::Ep]).unwrap();
        let by_hand = plain.clone().with_ranks_at((0..32).rev().collect()).unwrap();
        for layout in
            [plain.clone(), turned.clone(), by_hand.clone(), divided(plain), divided(turned), divided(by_hand)]
        {
            let text = serde_json::to_string(&LayoutDescription::from(&layout)).unwrap();
            let read: LayoutDescription = serde_json::from_str(&text).unwrap();
            assert_eq!(read.layout().unwrap(), layout, "{text}");
        }
    }

    #[test]
    fn degrees_alone_are_in_the_default_order_and_what_does_not_fit_is_refused() {
        let read = |text: &str| serde_json::from_str::<LayoutDescription>(text).unwrap().layout();
        let degrees = r#""degrees": {"tp": 2, "cp": 1, "dp": 3, "pp": 1, "ep": 1, "etp": 2}"#;
        assert_eq!(read(&format!("{{{degrees}}}")).unwrap().order_name(), "tp-cp-ep-dp-pp");
        for (more, problem) in [
            (r#""order": "tp-xp""#, "names no axis `xp`"),
            (r#""divisions": {"replicas_of_shards": 2}"#, "do not divide the 3 ranks"),
            (r#""rank_at": [0, 1]"#, "names 2 ranks"),
        ] {
            let said = read(&format!("{{{degrees}, {more}}}")).unwrap_err();
            assert!(said.exit_code() == 2 && said.to_string().contains(problem), "{more}: {said}");
        }
    }
}

#[cfg(test)]
mod tests {
    // The groups of every axis: the published examples, the expert grid, and properties for any degrees.
    use super::*;
    use crate::layout::{DEFAULT_ORDER, Locality};
    use proptest::strategy::{Just, Strategy};

    const PP_BEFORE_DP: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp];

    fn layout(degrees: Degrees, order: &[Axis]) -> Layout {
        Layout::new(degrees, order).unwrap()
    }

    fn check(layout: &Layout, axis: Axis, expected: &[&[u32]]) {
        assert_eq!(layout.groups(axis).groups, expected, "{axis}");
        assert_eq!(layout.group_size(axis), expected[0].len() as u32, "{axis}");
    }

    fn check_first(layout: &Layout, axis: Axis, groups: usize, first: &[u32]) {
        let all = layout.groups(axis).groups;
        assert_eq!((all.len(), all[0].as_slice()), (groups, first), "{axis}");
    }

    /// The docstring of `initialize_model_parallel` (Megatron-LM, `megatron/core/parallel_state.py`).
    #[test]
    fn the_sixteen_rank_example_of_megatron_comes_out() {
        let layout = layout(Degrees::dense(2, 1, 2, 4), &DEFAULT_ORDER);
        check(&layout, Axis::Tp, &[&[0, 1], &[2, 3], &[4, 5], &[6, 7], &[8, 9], &[10, 11], &[12, 13], &[14, 15]]);
        check(&layout, Axis::Dp, &[&[0, 2], &[1, 3], &[4, 6], &[5, 7], &[8, 10], &[9, 11], &[12, 14], &[13, 15]]);
        check(&layout, Axis::Pp, &[&[0, 4, 8, 12], &[1, 5, 9, 13], &[2, 6, 10, 14], &[3, 7, 11, 15]]);
        check(&layout, Axis::Mp, &[&[0, 1, 4, 5, 8, 9, 12, 13], &[2, 3, 6, 7, 10, 11, 14, 15]]);
        check(&layout, Axis::Embedding, &[&[0, 12], &[1, 13], &[2, 14], &[3, 15]]);
        for same in [Axis::DpCp, Axis::Edp] {
            assert_eq!(layout.groups(same).groups, layout.groups(Axis::Dp).groups, "{same}");
        }
        check_first(&layout, Axis::Cp, 16, &[0]);
        check_first(&layout, Axis::Ep, 16, &[0]);
    }

    #[test]
    fn with_pp_before_dp_the_pipelines_of_the_example_stay_on_one_node() {
        let layout = layout(Degrees::dense(2, 1, 2, 4), &PP_BEFORE_DP);
        check(&layout, Axis::Pp, &[&[0, 2, 4, 6], &[1, 3, 5, 7], &[8, 10, 12, 14], &[9, 11, 13, 15]]);
        check(&layout, Axis::Dp, &[&[0, 8], &[1, 9], &[2, 10], &[3, 11], &[4, 12], &[5, 13], &[6, 14], &[7, 15]]);
        check(&layout, Axis::Mp, &[&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14, 15]]);
        let hosts: Vec<u32> = (0..16).map(|rank| rank / 8).collect();
        let nodes = |axis| Locality::of(&layout.groups(axis), &hosts).nodes_spanned;
        assert_eq!([Axis::Tp, Axis::Pp, Axis::Mp, Axis::Dp].map(nodes), [1, 1, 1, 2]);
    }

    #[test]
    fn the_groups_of_128_ranks_come_out_in_both_orders() {
        let degrees = Degrees::dense(8, 1, 4, 4);
        let default = layout(degrees, &DEFAULT_ORDER);
        check_first(&default, Axis::Dp, 32, &[0, 8, 16, 24]);
        check_first(&default, Axis::Pp, 32, &[0, 32, 64, 96]);
        let swapped = layout(degrees, &PP_BEFORE_DP);
        check_first(&swapped, Axis::Dp, 32, &[0, 32, 64, 96]);
        check_first(&swapped, Axis::Pp, 32, &[0, 8, 16, 24]);
    }

    #[test]
    fn experts_are_carved_out_of_the_ranks_of_a_stage() {
        let degrees = Degrees { tp: 8, cp: 1, dp: 4, pp: 2, ep: 8, etp: 1 };
        assert_eq!(degrees.edp(), Some(4));
        let layout = layout(degrees, &DEFAULT_ORDER);
        let rows: Vec<Vec<u32>> = (0..8).map(|row| (row * 8..row * 8 + 8).collect()).collect();
        assert_eq!(layout.groups(Axis::Ep).groups, rows);
        check_first(&layout, Axis::Edp, 16, &[0, 8, 16, 24]);
        assert_eq!(layout.groups(Axis::Edp).groups[8], [32, 40, 48, 56]);
        check_first(&layout, Axis::Pp, 32, &[0, 32]);
        assert!(layout.has_own_expert_tensor_groups());
    }

    #[test]
    fn tensor_parallelism_inside_experts_may_be_less_or_more() {
        for (ep, etp, first_ep, first_etp, first_both) in [
            (4, 2, vec![0, 2, 4, 6], vec![0, 1], vec![0, 1, 2, 3, 4, 5, 6, 7]),
            (2, 8, vec![0, 8], vec![0, 1, 2, 3, 4, 5, 6, 7], (0..16).collect()),
        ] {
            let layout = layout(Degrees { tp: 4, cp: 1, dp: 4, pp: 1, ep, etp }, &DEFAULT_ORDER);
            for (axis, first) in [(Axis::Ep, first_ep), (Axis::Etp, first_etp), (Axis::EtpEp, first_both)] {
                assert_eq!(layout.groups(axis).groups[0], first, "{axis} of ep {ep} etp {etp}");
                assert_eq!(layout.group_size(axis) as usize, first.len());
            }
        }
    }

    /// "The Llama 3 Herd of Models", section 3.3.2: the order of parallelism is [TP, CP, PP, DP].
    #[test]
    fn the_order_of_llama_3_keeps_data_parallelism_outermost() {
        let order = [Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp];
        let layout = layout(Degrees::dense(8, 16, 8, 16), &order);
        assert_eq!(layout.order_name(), "tp-cp-pp-dp-ep");
        check_first(&layout, Axis::Tp, 2048, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let strided = |stride: u32, count: u32| (0..count).map(|i| i * stride).collect::<Vec<_>>();
        check_first(&layout, Axis::Cp, 1024, &strided(8, 16));
        check_first(&layout, Axis::Pp, 1024, &strided(128, 16));
        check_first(&layout, Axis::Dp, 2048, &strided(2048, 8));
        assert_eq!(
            layout.groups(Axis::Edp).groups,
            layout.groups(Axis::DpCp).groups,
            "no experts: replicas of dense layers"
        );
        assert_eq!([0, 127, 128, 2047, 2048, 16383].map(|rank| layout.stage_of(rank)), [0, 0, 1, 15, 0, 15]);
    }

    #[test]
    fn ranks_placed_by_hand_take_the_positions_of_the_grid() {
        let plain = layout(Degrees::dense(2, 1, 2, 1), &DEFAULT_ORDER);
        for (ranks, problem) in [
            (vec![0, 1, 2], "names 3 ranks; the layout has 4"),
            (vec![0, 1, 2, 2], "names rank 2 twice"),
            (vec![0, 1, 2, 4], "names rank 4; the last is 3"),
        ] {
            assert_eq!(plain.clone().with_ranks_at(ranks).unwrap_err(), problem);
        }
        let placed = layout(Degrees::dense(2, 1, 1, 2), &DEFAULT_ORDER).with_ranks_at(vec![3, 1, 0, 2]).unwrap();
        check(&placed, Axis::Tp, &[&[3, 1], &[0, 2]]);
        check(&placed, Axis::Pp, &[&[3, 0], &[1, 2]]);
        assert_eq!([0, 1, 2, 3].map(|rank| placed.stage_of(rank)), [1, 0, 1, 0]);
    }

    #[test]
    fn shards_and_hybrid_context_divide_their_groups_or_are_refused_with_what_would() {
        let plain = layout(Degrees::dense(1, 4, 6, 1), &DEFAULT_ORDER);
        let problem = plain.clone().divided(Division::ReplicasOfShards, 5).unwrap_err();
        assert_eq!(problem, "5 replicas of shards do not divide the 24 ranks of dp x cp; nearest that do: 4 or 6");
        let problem = plain.clone().divided(Division::InnerContext, 3).unwrap_err();
        assert_eq!(problem, "inner groups of 3 ranks do not divide cp = 4; nearest that do: 2 or 4");
        assert!(
            plain.clone().divided(Division::InnerContext, 0).is_err()
                && plain.clone().divided(Division::ReplicasOfShards, 0).is_err()
        );
        let divided = plain.divided(Division::InnerContext, 2).unwrap().divided(Division::ReplicasOfShards, 2).unwrap();
        check_first(&divided, Axis::CpInner, 12, &[0, 1]);
        check_first(&divided, Axis::CpOuter, 12, &[0, 2]);
        check_first(&divided, Axis::DpReplicate, 12, &[0, 12]);
        check_first(&divided, Axis::DpShard, 2, &(0..12).collect::<Vec<_>>());
        let problem = divided.clone().divided(Division::InnerShards, 8).unwrap_err();
        assert_eq!(
            problem,
            "nodes of 8 ranks do not divide the 12 ranks of a group of shards; nearest that do: 6 or 12"
        );
        let on_nodes = divided.divided(Division::InnerShards, 4).unwrap();
        check_first(&on_nodes, Axis::DpShardInner, 6, &[0, 1, 2, 3]);
        check_first(&on_nodes, Axis::DpShardOuter, 8, &[0, 4, 8]);
    }

    #[test]
    fn a_layout_in_another_order_is_divided_as_before() {
        let plain = layout(Degrees::dense(4, 1, 4, 1), &DEFAULT_ORDER);
        let divided =
            plain.divided(Division::DecodeContext, 2).unwrap().divided(Division::ReplicasOfShards, 2).unwrap();
        let reordered = divided.reordered(&[Axis::Dp, Axis::Tp]).unwrap();
        check_first(&reordered, Axis::Dcp, 8, &[0, 4]);
        check_first(&reordered, Axis::DpShard, 8, &[0, 1]);
        assert!(divided.reordered(&[Axis::Dp]).is_err());
    }

    #[test]
    fn ranks_of_tp_divide_a_context_into_runs_of_neighbours() {
        let plain = layout(Degrees::dense(4, 1, 2, 1), &DEFAULT_ORDER);
        let problem = plain.clone().divided(Division::DecodeContext, 3).unwrap_err();
        assert_eq!(problem, "decode_context = 3 does not divide tp = 4; nearest that do: 2 or 4");
        assert!(plain.clone().divided(Division::DecodeContext, 0).is_err());
        check(&plain.divided(Division::DecodeContext, 2).unwrap(), Axis::Dcp, &[&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
    }

    #[test]
    fn replicas_that_prefill_are_paired_with_those_that_decode() {
        let eight = layout(Degrees::dense(2, 1, 4, 1), &DEFAULT_ORDER);
        check(&eight, Axis::PrefillDecode, &[&[0, 4], &[2, 6], &[1, 5], &[3, 7]]);
        let odd = layout(Degrees::dense(1, 1, 3, 1), &DEFAULT_ORDER);
        check(&odd, Axis::PrefillDecode, &[&[0], &[1], &[2]]);
    }

    proptest::proptest! {
        #[test]
        fn groups_partition_the_ranks_in_any_order(
            tp in 1u32..5, cp in 1u32..4, dp in 1u32..5, pp in 1u32..5,
            order in Just(DEFAULT_ORDER.to_vec()).prop_shuffle(),
        ) {
            let layout = Layout::new(Degrees::dense(tp, cp, dp, pp), &order).unwrap();
            let elsewhere = |axis: &Axis| matches!(axis, Axis::Embedding | Axis::Pair | Axis::Node | Axis::Nodes);
            for axis in Axis::ALL.into_iter().filter(|axis| !elsewhere(axis)) {
                let groups = layout.groups(axis).groups;
                proptest::prop_assert!(groups.iter().all(|group| group.len() as u32 == layout.group_size(axis)));
                let mut ranks: Vec<u32> = groups.concat();
                ranks.sort_unstable();
                proptest::prop_assert_eq!(ranks, (0..tp * cp * dp * pp).collect::<Vec<_>>());
            }
        }

        #[test]
        fn experts_partition_the_ranks_and_stay_in_their_stage(
            tp in 1u32..5, cp in 1u32..4, dp in 1u32..5, pp in 1u32..4, ep in 1u32..9, etp in 1u32..5,
        ) {
            let Ok(layout) = Layout::new(Degrees { tp, cp, dp, pp, ep, etp }, &DEFAULT_ORDER) else { return Ok(()) };
            for axis in [Axis::Ep, Axis::Etp, Axis::Edp, Axis::EtpEp] {
                let groups = layout.groups(axis).groups;
                for group in &groups {
                    proptest::prop_assert_eq!(group.len() as u32, layout.group_size(axis));
                    proptest::prop_assert!(group.iter().all(|rank| layout.stage_of(*rank) == layout.stage_of(group[0])));
                }
                let mut ranks: Vec<u32> = groups.concat();
                ranks.sort_unstable();
                proptest::prop_assert_eq!(ranks, (0..tp * cp * dp * pp).collect::<Vec<_>>());
            }
        }
    }
}
