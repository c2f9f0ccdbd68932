//! What accusations promise on small fleets, where half of the values can be bad: matrices whose culprit is known.

use super::explain::{Finding, Search};
use super::meetings::{Measure, Meetings};
use super::places::Places;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn places(nodes: usize, nodes_per_leaf: Option<u32>) -> Places {
    Places {
        hosts: (0..nodes).map(|node| format!("host{node}")).collect(),
        node_of: (0..nodes as u32).collect(),
        local_of: vec![0; nodes],
        ranks_on: vec![1; nodes],
        nodes_per_leaf,
    }
}

/// Whom a matrix accuses, in which each pair takes so many times as long as usual, with a scatter of 2 %.
fn accused(nodes: usize, leaf: Option<u32>, seed: u64, times: impl Fn([usize; 2], usize) -> f64) -> Vec<Culprit> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let meetings =
        Meetings::of(nodes, 2, 3, |pair, local, _| (times(pair, local) * random.random_range(0.98..1.02_f64)).ln());
    let places = places(nodes, leaf);
    let mut search = Search::new(Measure::OneWay, &meetings, &places);
    search.run();
    passing::passing(&mut search);
    let found: Vec<Finding> = unexplained(search.findings);
    found.into_iter().map(|finding| finding.culprit).collect()
}

#[test]
fn on_four_nodes_a_slow_node_and_a_slow_link_are_told_apart() {
    for seed in 0..100 {
        let node = accused(4, None, seed, |pair, _| if pair.contains(&2) { 4.0 } else { 1.0 });
        assert_eq!(node, [Culprit::Node { node: 2 }], "seed {seed}");
        let link = accused(4, None, seed, |pair, _| if pair == [0, 3] { 4.0 } else { 1.0 });
        assert_eq!(link, [Culprit::Link { nodes: [0, 3], local_rank: None }], "seed {seed}");
    }
}

/// Whom one way and both ways together accuse on four nodes, and what speaks alone, where both ways takes as long as one
/// message or as two, at random for each meeting.
fn agreed_on_four(
    seed: u64,
    one_way: impl Fn([usize; 2]) -> f64,
    both: impl Fn([usize; 2]) -> f64,
) -> (Vec<Culprit>, usize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut scatter = |value: f64| (value * random.random_range(0.98..1.02_f64)).ln();
    let first = Meetings::of(4, 1, 3, |pair, _, _| scatter(one_way(pair)));
    let mut coin = Xoshiro256PlusPlus::seed_from_u64(seed + 1_000);
    let second =
        Meetings::of(4, 1, 3, |pair, _, _| scatter(both(pair) * if coin.random_bool(0.5) { 2.0 } else { 1.0 }));
    let places = places(4, None);
    let searched = |measure, meetings| {
        let mut search = Search::new(measure, meetings, &places);
        search.run();
        passing::passing(&mut search);
        search
    };
    let searches = vec![searched(Measure::OneWay, &first), searched(Measure::BothWays, &second)];
    let (found, alone) = agree::agreed(searches, &places);
    let mut culprits: Vec<Culprit> = unexplained(found).into_iter().map(|finding| finding.culprit).collect();
    culprits.dedup();
    (culprits, alone.len())
}

#[test]
fn on_four_nodes_what_one_measure_says_alone_accuses_nobody() {
    let mut doubted = 0;
    for seed in 0..500 {
        let slow = |slow: bool| if slow { 4.0 } else { 1.0 };
        let link = |pair| slow(pair == [0, 3]);
        assert_eq!(
            agreed_on_four(seed, link, link).0,
            [Culprit::Link { nodes: [0, 3], local_rank: None }],
            "seed {seed}"
        );
        let node = |pair: [usize; 2]| slow(pair.contains(&2));
        assert_eq!(agreed_on_four(seed, node, node).0, [Culprit::Node { node: 2 }], "seed {seed}");
        let (healthy, alone) = agreed_on_four(seed, |_| 1.0, |_| 1.0);
        assert_eq!(healthy, [], "seed {seed}");
        doubted += usize::from(alone > 0);
    }
    assert!(doubted > 0, "what one measure alone shows is listed");
}

#[test]
fn a_slow_node_is_not_made_of_slow_links_by_a_measure_that_scatters() {
    // Both ways is slow with all three partners of node 3, one way with a single one of them.
    let (found, alone) = agreed_on_four(
        1,
        |pair| if pair == [0, 3] { 4.0 } else { 1.0 },
        |pair| {
            if pair.contains(&3) { 8.0 } else { 1.0 }
        },
    );
    assert_eq!(found, [Culprit::Link { nodes: [0, 3], local_rank: None }]);
    assert!(alone >= 1, "both ways spoke against node 3 alone");
}

#[test]
fn two_slow_paths_of_a_node_with_three_partners_do_not_accuse_the_node() {
    let found = accused(4, None, 1, |pair, _| if pair == [0, 3] || pair == [1, 3] { 4.0 } else { 1.0 });
    assert!(!found.contains(&Culprit::Node { node: 3 }), "{found:?}");
}

#[test]
fn a_healthy_fleet_of_any_size_accuses_nobody() {
    for nodes in [2, 3, 4, 5, 8, 16, 33] {
        for seed in 0..20 {
            assert_eq!(accused(nodes, Some(4), seed, |_, _| 1.0), [], "{nodes} nodes, seed {seed}");
        }
    }
}

#[test]
fn a_leaf_is_told_from_two_bad_nodes_side_by_side_and_its_uplinks_from_itself() {
    let nodes = vec![4, 5, 6, 7];
    let leaf = Culprit::Leaf { leaf: 1, nodes };
    let behind = |node: &usize| (4..8).contains(node);
    let switch = accused(16, Some(4), 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
    assert_eq!(switch, std::slice::from_ref(&leaf));
    let uplinks =
        accused(16, Some(4), 1, |pair, _| if pair.iter().filter(|n| behind(n)).count() == 1 { 1.6 } else { 1.0 });
    assert_eq!(uplinks, [leaf]);
    let two = accused(16, Some(4), 1, |pair, _| if pair.contains(&4) || pair.contains(&5) { 1.6 } else { 1.0 });
    assert_eq!(two, [Culprit::Node { node: 4 }, Culprit::Node { node: 5 }]);
    let unknown = accused(16, None, 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
    assert_eq!(unknown.len(), 4, "without leaves its nodes are suspected: {unknown:?}");
}

#[test]
fn one_of_two_local_ranks_is_a_rail_an_adapter_or_a_path() {
    let rail = accused(8, None, 1, |_, local| if local == 1 { 1.6 } else { 1.0 });
    assert_eq!(rail, [Culprit::Rail { local_rank: 1 }]);
    let adapter = accused(8, None, 1, |pair, local| if local == 1 && pair.contains(&3) { 1.6 } else { 1.0 });
    assert_eq!(adapter, [Culprit::Adapter { node: 3, local_rank: 1 }]);
    let path = accused(8, None, 1, |pair, local| if local == 1 && pair == [3, 5] { 1.6 } else { 1.0 });
    assert_eq!(path, [Culprit::Link { nodes: [3, 5], local_rank: Some(1) }]);
}

#[test]
fn what_an_accused_explains_accuses_nobody_else_and_firm_evidence_outdoes_doubt() {
    let finding = |culprit: Culprit, intermittent| Finding {
        culprit,
        slower: 0.5,
        strength: 2.0,
        intermittent,
        evidence: String::new(),
    };
    let node = Culprit::Node { node: 3 };
    let all = vec![
        finding(node.clone(), false),
        finding(node.clone(), true),
        finding(Culprit::Link { nodes: [1, 3], local_rank: None }, false),
        finding(Culprit::Link { nodes: [1, 2], local_rank: None }, false),
        finding(Culprit::Adapter { node: 3, local_rank: 0 }, false),
    ];
    let left: Vec<Culprit> = unexplained(all).into_iter().map(|finding| finding.culprit).collect();
    assert_eq!(left, [node, Culprit::Link { nodes: [1, 2], local_rank: None }]);
}
