//! The groups of every axis: the published examples, the expert grid, and properties for any degrees.

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
        "nodes of 8 ranks do not divide the 12 ranks of a group of shards (gather_inner); nearest that do: 6 or 12"
    );
    let on_nodes = divided.divided(Division::InnerShards, 4).unwrap();
    check_first(&on_nodes, Axis::DpShardInner, 6, &[0, 1, 2, 3]);
    check_first(&on_nodes, Axis::DpShardOuter, 8, &[0, 4, 8]);
}

#[test]
fn a_layout_in_another_order_is_divided_as_before() {
    let plain = layout(Degrees::dense(4, 1, 4, 1), &DEFAULT_ORDER);
    let divided = plain.divided(Division::DecodeContext, 2).unwrap().divided(Division::ReplicasOfShards, 2).unwrap();
    let reordered = divided.reordered(&[Axis::Dp, Axis::Tp]).unwrap();
    check_first(&reordered, Axis::Dcp, 8, &[0, 4]);
    check_first(&reordered, Axis::DpShard, 8, &[0, 1]);
    assert!(divided.reordered(&[Axis::Dp]).is_err());
}

#[test]
fn ranks_of_tp_share_out_a_context_in_runs_of_neighbours() {
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
