//! The axes along which ranks are grouped, and the groups of one axis as data.

use super::MOST_RANKS;
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A dimension of the layout, or a combination of dimensions with its own groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Axis {
    /// All ranks in one group.
    World,
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Expert parallel, carved out of the data-parallel ranks.
    Ep,
    /// Tensor parallel inside experts.
    Etp,
    /// Data parallel.
    Dp,
    /// Pipeline parallel.
    Pp,
    /// Model parallel: tensor and pipeline together, all ranks that hold one replica.
    Mp,
    /// Data and context parallel together: the ranks that reduce the gradients of dense layers.
    DpCp,
    /// Data parallel of experts: the ranks that reduce the gradients of the same experts.
    Edp,
    /// Tensor parallel inside experts and expert parallel together: the ranks that exchange tokens.
    EtpEp,
    /// Tensor and context parallel together: the ranks that hold the tokens of one replica's micro-batch.
    TpCp,
    /// All ranks of a stage: tensor, context and data parallel together.
    TpCpDp,
    /// Tensor parallel inside experts, expert and pipeline parallel together: all ranks that hold one replica of the experts.
    ExpertMp,
    /// First and last stage of each pipeline, if they share an embedding. The other ranks are in no group.
    Embedding,
    /// Within `dp_cp`: the ranks over which parameters are sharded, if shards are replicated.
    DpShard,
    /// Within `dp_cp`: the ranks that hold the same shard.
    DpReplicate,
    /// Within `dp_shard`: the ranks of a node, which gather last.
    DpShardInner,
    /// Within `dp_shard`: the ranks with the same place on each node, which gather first.
    DpShardOuter,
    /// Within `cp`: the ranks of the inner all_to_all of hybrid context parallelism.
    CpInner,
    /// Within `cp`: the ranks of the outer ring of hybrid context parallelism.
    CpOuter,
    /// Disjoint pairs of ranks, one round of a tournament.
    Pair,
    /// The ranks of each node.
    Node,
    /// Groups of neighbouring nodes.
    Nodes,
    /// Within `ep`: the ranks of a node, or of an NVLink domain.
    EpInner,
    /// Within `ep`: the ranks with the same place on each node.
    EpOuter,
    /// Within `dp`, whose first half prefills and second half decodes: a rank and its counterpart in the other half.
    PrefillDecode,
    /// Within `tp`: the ranks that shard the tokens of the same keys and values during decode.
    Dcp,
}

impl Axis {
    pub const ALL: [Axis; 28] = *<Axis as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn named(name: &str) -> Option<Axis> {
        Axis::ALL.into_iter().find(|axis| axis.name() == name)
    }
}

/// The process groups of one axis. A rank is in at most one of them; only the ranks of [`Axis::Embedding`], [`Axis::Pair`], [`Axis::Node`]
/// and [`Axis::Nodes`], and of selected groups, leave some without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    pub axis: Axis,
    /// World ranks of each group, in group-rank order.
    pub groups: Vec<Vec<u32>>,
}

/// A rank's place in the groups of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Index of its group.
    pub group: usize,
    /// Its rank within the group.
    pub rank_in_group: u32,
}

impl Groups {
    /// The whole world as one group.
    pub fn world(ranks: u32) -> Groups {
        Groups { axis: Axis::World, groups: vec![(0..ranks).collect()] }
    }

    /// Ranks in each group; all groups of an axis have the same size.
    pub fn group_size(&self) -> u32 {
        self.groups.first().map_or(0, |group| group.len() as u32)
    }

    /// The place of a world rank; `None` if it is in no group.
    pub fn place_of(&self, world_rank: u32) -> Option<Membership> {
        self.groups.iter().enumerate().find_map(|(group, members)| {
            let position = members.iter().position(|rank| *rank == world_rank)?;
            Some(Membership { group, rank_in_group: position as u32 })
        })
    }
}

// Degrees of parallelism, and the order in which the axes vary over consecutive ranks.

/// Degrees of all axes in one layout. Experts divide the same ranks separately: `tp x cp x dp x pp = etp x ep x edp x pp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Degrees {
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Data parallel.
    pub dp: u32,
    /// Pipeline parallel.
    pub pp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Tensor parallel inside experts.
    pub etp: u32,
}

impl Degrees {
    /// Dense degrees, without expert parallelism.
    pub fn dense(tp: u32, cp: u32, dp: u32, pp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep: 1, etp: tp }
    }

    /// Ranks that the layout needs; `u64::MAX` if they exceed 64 bits, which no checked layout does.
    pub fn world(&self) -> u64 {
        u64::try_from(self.world_exactly()).unwrap_or(u64::MAX)
    }

    /// Ranks that the layout needs, however large the degrees are.
    pub fn world_exactly(&self) -> u128 {
        [self.tp, self.cp, self.dp, self.pp].into_iter().map(u128::from).product()
    }

    /// Ranks of one pipeline stage, all replicas together; `u64::MAX` if they exceed 64 bits.
    pub fn ranks_of_stage(&self) -> u64 {
        Degrees { pp: 1, ..*self }.world()
    }

    /// Replicas of each expert: the ranks of a stage divided by the degrees of the experts; `None` if that is not an integer.
    pub fn edp(&self) -> Option<u32> {
        let divided = u64::from(self.etp) * u64::from(self.ep);
        let even = divided > 0 && self.ranks_of_stage().is_multiple_of(divided);
        even.then(|| u32::try_from(self.ranks_of_stage() / divided).ok()).flatten()
    }

    /// True if experts are divided separately. Otherwise they are placed like the dense layers, and their replicas are the groups of
    /// `dp_cp`.
    pub fn divides_experts(&self) -> bool {
        self.ep != 1 || self.etp != self.tp
    }

    /// The degrees above 1, such as `tp 2 x dp 2`; also a degree inside experts of 1, if the dense layers' is above 1.
    pub fn name(&self) -> String {
        let dense =
            [(Axis::Tp, self.tp), (Axis::Cp, self.cp), (Axis::Dp, self.dp), (Axis::Pp, self.pp), (Axis::Ep, self.ep)];
        let etp = Some((Axis::Etp, self.etp)).filter(|_| self.etp != self.tp);
        let all = dense.into_iter().filter(|(_, degree)| *degree > 1).chain(etp);
        let parts: Vec<_> = all.map(|(axis, degree)| format!("{axis} {degree}")).collect();
        if parts.is_empty() { "one rank".to_owned() } else { parts.join(" x ") }
    }
}

/// The divisors of `number` next to `wanted`, the one below (or equal) first; for messages that suggest valid values.
pub fn nearest_divisors(number: u64, wanted: u64) -> Vec<u64> {
    let (mut below, mut above) = (None, None);
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    for divisor in small.flat_map(|divisor| [divisor, number / divisor]) {
        if divisor <= wanted {
            below = below.max(Some(divisor));
        } else {
            above = Some(above.map_or(divisor, |other: u64| other.min(divisor)));
        }
    }
    below.into_iter().chain(above).collect()
}

/// Numbers as a choice: `4 or 8`.
pub fn either(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
}

// The two grids of a layout, in which the ranks have their places for dense layers and for experts.

/// Axis order of Megatron-LM.
pub const DEFAULT_ORDER: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];

/// The grid over which groups are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// `tp x cp x dp x pp`.
    Dense,
    /// `etp x ep x edp x pp`; the place of tp in the order is that of etp, and the place of dp that of edp.
    Experts,
}

impl Grid {
    /// The degree of an axis of an order in this grid; 1 if the grid lacks it.
    pub(super) fn degree(self, d: &Degrees, axis: Axis) -> u32 {
        match (axis, self) {
            (Axis::Tp, Grid::Dense) => d.tp,
            (Axis::Tp, Grid::Experts) => d.etp,
            (Axis::Cp, Grid::Dense) => d.cp,
            (Axis::Ep, Grid::Experts) => d.ep,
            (Axis::Dp, Grid::Dense) => d.dp,
            (Axis::Dp, Grid::Experts) => d.edp().unwrap_or(1),
            (Axis::Pp, _) => d.pp,
            _ => 1,
        }
    }

    /// Distance between positions that are neighbours along an axis: the product of all degrees before it.
    pub(super) fn stride(self, degrees: &Degrees, order: &[Axis], axis: Axis) -> u32 {
        order.iter().take_while(|other| **other != axis).map(|axis| self.degree(degrees, *axis)).product()
    }
}

// Groups that a layout divides further, into groups of equal size.

/// The divided groups, and the purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Division {
    /// Groups of `dp_cp` into this many copies of each shard, each within a smaller group (HSDP).
    ReplicasOfShards,
    /// Groups of shards into inner groups of this many consecutive ranks, those of a node, if they gather in two steps.
    InnerShards,
    /// Groups of cp into inner groups of this many consecutive ranks: the all_to_all of hybrid context parallelism.
    InnerContext,
    /// Groups of ep into inner groups of this many consecutive ranks, those of a node.
    InnerExperts,
    /// Groups of tp into groups of this many consecutive ranks, which shard the tokens of a request during decode.
    DecodeContext,
}

impl Division {
    /// All divisions, outer ones before those of their results.
    pub(super) const ALL: [Division; 5] = [
        Division::ReplicasOfShards,
        Division::InnerShards,
        Division::InnerContext,
        Division::InnerExperts,
        Division::DecodeContext,
    ];

    /// The axis whose groups are divided.
    fn whole(self) -> Axis {
        match self {
            Division::ReplicasOfShards => Axis::DpCp,
            Division::InnerShards => Axis::DpShard,
            Division::InnerContext => Axis::Cp,
            Division::InnerExperts => Axis::Ep,
            Division::DecodeContext => Axis::Tp,
        }
    }

    /// The message that `parts` do not divide a group of `ranks`.
    fn sentence(self, parts: u32, ranks: u32) -> String {
        match self {
            Division::ReplicasOfShards => {
                format!("{parts} replicas of shards do not divide the {ranks} ranks of dp x cp")
            }
            Division::InnerShards => {
                format!("nodes of {parts} ranks do not divide the {ranks} ranks of a group of shards")
            }
            Division::InnerContext => format!("inner groups of {parts} ranks do not divide cp = {ranks}"),
            Division::InnerExperts => format!("nodes of {parts} ranks do not divide ep = {ranks} (expert_inner)"),
            Division::DecodeContext => format!("decode_context = {parts} does not divide tp = {ranks}"),
        }
    }
}

/// The size of each [`Division`]; 1 if it is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divisions([u32; 5]);

impl Divisions {
    /// No divisions.
    pub(super) const NONE: Divisions = Divisions([1; 5]);

    pub(super) fn of(&self, division: Division) -> u32 {
        self.0[division as usize]
    }

    /// With another division, of groups whose size `group_size` knows.
    ///
    /// # Errors
    /// If `parts` do not divide them, with the nearest valid values.
    pub(super) fn with(
        mut self,
        division: Division,
        parts: u32,
        group_size: impl Fn(Axis) -> u32,
    ) -> std::result::Result<Divisions, String> {
        let ranks = group_size(division.whole());
        if parts == 0 || !ranks.is_multiple_of(parts) {
            let nearest = either(&nearest_divisors(u64::from(ranks), u64::from(parts)));
            return Err(format!("{}; nearest that do: {nearest}", division.sentence(parts, ranks)));
        }
        self.0[division as usize] = parts;
        Ok(self)
    }
}

// Which degrees and orders make a valid layout: each violated rule is reported with the numbers and with valid ones.

/// Degrees are 1 or more, their product is a supported number of ranks, and experts divide the ranks of a stage.
pub(super) fn check_degrees(d: &Degrees) -> Result<()> {
    let all = [("tp", d.tp), ("cp", d.cp), ("dp", d.dp), ("pp", d.pp), ("ep", d.ep), ("etp", d.etp)];
    if let Some((axis, _)) = all.into_iter().find(|(_, degree)| *degree == 0) {
        return Err(Error::usage(format!("{axis} is 0; a degree is 1 or more")));
    }
    let (dense, world) = (dense_name(d), d.world_exactly());
    if world > u128::from(MOST_RANKS) {
        return Err(Error::usage(format!("{dense} x pp {} = {world} ranks; the maximum is {MOST_RANKS} (2^20)", d.pp)));
    }
    let (stage, etp, ep) = (d.ranks_of_stage(), u64::from(d.etp), u64::from(d.ep));
    if d.edp().is_some() {
        return Ok(());
    }
    let nearest = match stage.is_multiple_of(etp) {
        true => format!("nearest with etp {etp}: ep {}", either(&nearest_divisors(stage / etp, ep))),
        false => format!("nearest that divide: etp {}", either(&nearest_divisors(stage, etp))),
    };
    let divided = u128::from(d.ep) * u128::from(d.etp);
    Err(Error::usage(format!(
        "ep {ep} x etp {etp} = {divided} does not divide the {dense} = {stage} ranks of a stage, which experts share; {nearest}"
    )))
}

/// Every axis is named once; an axis of degree 1 in both grids may be missing, and is appended.
pub(super) fn complete_order(degrees: &Degrees, order: &[Axis]) -> Result<Vec<Axis>> {
    let written = || order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("-");
    let mut complete: Vec<Axis> = Vec::with_capacity(DEFAULT_ORDER.len());
    for axis in order {
        if !DEFAULT_ORDER.contains(axis) {
            let accepted = DEFAULT_ORDER.map(Axis::name).join(", ");
            return Err(Error::usage(format!("axis order {}: {axis} is not an axis; accepted: {accepted}", written())));
        }
        if complete.contains(axis) {
            return Err(Error::usage(format!("axis order {}: {axis} is named twice", written())));
        }
        complete.push(*axis);
    }
    for axis in DEFAULT_ORDER {
        if complete.contains(&axis) {
            continue;
        }
        let (dense, experts) = (Grid::Dense.degree(degrees, axis), Grid::Experts.degree(degrees, axis));
        let name = match axis {
            Axis::Tp if dense == 1 => "etp",
            Axis::Dp if dense == 1 => "edp",
            _ => axis.name(),
        };
        // Undivided experts are placed like the dense layers, so their grid adds no condition.
        let degree = if degrees.divides_experts() { dense.max(experts) } else { dense };
        if degree > 1 {
            let degree = if dense > 1 { dense } else { experts };
            return Err(Error::usage(format!(
                "axis order {}: {axis} is missing, but {name} is {degree}; only axes of degree 1 may be missing",
                written()
            )));
        }
        complete.push(axis);
    }
    Ok(complete)
}

/// Dense layers and experts of a rank belong to one stage: the pipelines of both grids are the same.
///
/// Megatron-LM asserts the same (`megatron/core/parallel_state.py`, `initialize_model_parallel`: "Pipeline parallel groups are expected to
/// be the same"). Both grids have equally many stages, so the pipelines are the same if and only if their strides are: the degrees named
/// before pp must have the same product.
pub(super) fn check_pipelines(degrees: &Degrees, order: &[Axis]) -> Result<()> {
    let stride = |grid: Grid| grid.stride(degrees, order, Axis::Pp);
    let (dense, experts) = (stride(Grid::Dense), stride(Grid::Experts));
    if degrees.pp == 1 || !degrees.divides_experts() || dense == experts {
        return Ok(());
    }
    let before: Vec<Axis> = order.iter().copied().take_while(|axis| *axis != Axis::Pp).collect();
    let product = |grid: Grid, names: &[(Axis, &str)]| {
        let named = names.iter().filter(|(axis, _)| before.contains(axis));
        let parts: Vec<_> = named.map(|(axis, name)| format!("{name} {}", grid.degree(degrees, *axis))).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(" x ") }
    };
    let of_dense = product(Grid::Dense, &[(Axis::Tp, "tp"), (Axis::Cp, "cp"), (Axis::Dp, "dp")]);
    let of_experts = product(Grid::Experts, &[(Axis::Tp, "etp"), (Axis::Ep, "ep"), (Axis::Dp, "edp")]);
    let order = order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("-");
    Err(Error::usage(format!(
        "axis order {order}: dense layers and experts would have different pipelines, because {of_dense} = {dense} ranks for dense layers and {of_experts} = {experts} for experts precede pp; put pp last, or choose degrees whose \
         products are equal"
    )))
}

fn dense_name(d: &Degrees) -> String {
    format!("tp {} x cp {} x dp {}", d.tp, d.cp, d.dp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Axis, DEFAULT_ORDER, Degrees, Layout};

    #[test]
    fn every_name_reads_back_as_its_axis() {
        for axis in Axis::ALL {
            assert_eq!(Axis::named(axis.name()), Some(axis));
            assert_eq!(serde_json::to_value(axis).unwrap(), axis.name());
        }
    }

    #[test]
    fn the_nearest_divisors_lie_on_both_sides() {
        for (number, wanted, expected) in [
            (16, 3, vec![2, 4]),
            (16, 16, vec![16]),
            (16, 99, vec![16]),
            (12, 5, vec![4, 6]),
            (7, 3, vec![1, 7]),
            (1, 0, vec![1]),
        ] {
            assert_eq!(nearest_divisors(number, wanted), expected, "{number} {wanted}");
        }
    }

    #[test]
    fn the_name_identifies_the_layout() {
        let degrees = Degrees { tp: 8, cp: 1, dp: 4, pp: 2, ep: 8, etp: 8 };
        assert_eq!(degrees.name(), "tp 8 x dp 4 x pp 2 x ep 8");
        assert_eq!(Degrees { etp: 1, ..degrees }.name(), "tp 8 x dp 4 x pp 2 x ep 8 x etp 1");
        assert_eq!(Degrees::dense(1, 1, 1, 1).name(), "one rank");
    }

    #[test]
    fn degrees_whose_product_exceeds_64_bits_are_still_multiplied() {
        let vast = Degrees { tp: u32::MAX, cp: u32::MAX, dp: u32::MAX, pp: u32::MAX, ep: 1, etp: 1 };
        assert_eq!((vast.world_exactly(), vast.world()), (u128::from(u32::MAX).pow(4), u64::MAX));
        assert_eq!(vast.edp(), None, "more replicas than 32 bits can count");
    }

    const PP_BEFORE_DP: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp];

    fn experts(tp: u32, cp: u32, dp: u32, pp: u32, ep: u32, etp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep, etp }
    }

    #[test]
    fn what_breaks_a_rule_is_refused_with_the_rule() {
        let (tp, cp, ep, dp, pp) = (Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp);
        for (degrees, order, expected) in [
            (Degrees::dense(2, 0, 1, 1), &DEFAULT_ORDER[..], "cp is 0; a degree is 1 or more"),
            (experts(2, 1, 1, 1, 0, 2), &DEFAULT_ORDER, "ep is 0; a degree is 1 or more"),
            (
                Degrees::dense(1 << 20, 1, 1, 2),
                &DEFAULT_ORDER,
                "tp 1048576 x cp 1 x dp 1 x pp 2 = 2097152 ranks; the maximum is 1048576 (2^20)",
            ),
            (
                Degrees::dense(u32::MAX, u32::MAX, u32::MAX, u32::MAX),
                &DEFAULT_ORDER,
                "= 340282366604025813516997721482669850625 ranks; the maximum is",
            ),
            (
                experts(8, 1, 4, 1, 8, 8),
                &DEFAULT_ORDER,
                "ep 8 x etp 8 = 64 does not divide the tp 8 x cp 1 x dp 4 = 32 ranks of a stage, which experts share; nearest with etp 8: ep 4",
            ),
            (experts(2, 1, 4, 1, 3, 1), &DEFAULT_ORDER, "nearest with etp 1: ep 2 or 4"),
            (experts(2, 1, 4, 1, 1, 3), &DEFAULT_ORDER, "nearest that divide: etp 2 or 4"),
            (Degrees::dense(2, 1, 2, 1), &[tp], "axis order tp: dp is missing, but dp is 2; only axes of degree 1 may"),
            (Degrees::dense(1, 1, 2, 1), &[dp, tp, dp], "axis order dp-tp-dp: dp is named twice"),
            (Degrees::dense(1, 1, 2, 1), &[dp, Axis::Mp], "mp is not an axis; accepted: tp, cp, ep, dp, pp"),
            (experts(2, 2, 1, 1, 2, 1), &[tp, cp, dp], "ep is missing, but ep is 2"),
            (experts(2, 4, 1, 1, 2, 2), &[tp, cp, ep], "dp is missing, but edp is 2"),
            (experts(1, 1, 4, 1, 1, 2), &[dp], "tp is missing, but etp is 2"),
            (
                experts(2, 1, 4, 2, 4, 2),
                &[tp, cp, ep, pp, dp],
                "because tp 2 x cp 1 = 2 ranks for dense layers and etp 2 x ep 4 = 8 for experts precede pp; put pp last",
            ),
        ] {
            let error = Layout::new(degrees, order).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn pp_may_precede_dp_where_both_grids_have_the_same_pipelines() {
        for (degrees, order) in [
            (experts(4, 1, 4, 2, 4, 1), PP_BEFORE_DP),
            (experts(2, 2, 2, 4, 4, 1), PP_BEFORE_DP),
            (experts(2, 1, 4, 2, 4, 2), [Axis::Pp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp]),
            (experts(2, 1, 4, 2, 4, 2), DEFAULT_ORDER),
            // Without separate experts there is only one grid, wherever cp is in the order.
            (Degrees::dense(2, 4, 2, 2), PP_BEFORE_DP),
        ] {
            let layout = Layout::new(degrees, &order).unwrap();
            let stage = |rank: &u32| layout.stage_of(*rank);
            for axis in [Axis::Ep, Axis::Etp, Axis::Edp, Axis::EtpEp, Axis::Tp, Axis::Cp, Axis::Dp] {
                for group in layout.groups(axis).groups {
                    let of_first = stage(&group[0]);
                    assert!(group.iter().all(|rank| stage(rank) == of_first), "{axis} {group:?} leaves its stage");
                }
            }
        }
    }

    #[test]
    fn axes_left_out_of_the_order_come_last() {
        let layout = Layout::new(Degrees::dense(2, 1, 2, 1), &[Axis::Dp, Axis::Tp]).unwrap();
        assert_eq!(layout.order_name(), "dp-tp-cp-ep-pp");
    }
}
