//! Suspects on small fleets, where half of the values can be bad: matrices with a known fault.

use super::explain::{Finding, Search};
use super::explained::unexplained;
use super::pair_lines::Measure;
use super::pair_matrix::PairMatrix;
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
        nodes_per_rack: None,
    }
}

/// The suspects in a matrix in which each pair takes `times` as long as usual, with a scatter of 2 %.
fn suspects_of(
    nodes: usize,
    leaf: Option<u32>,
    seed: u64,
    times: impl Fn([usize; 2], usize) -> f64,
) -> Vec<SuspectKind> {
    suspects_at(&places(nodes, leaf), seed, times)
}

fn suspects_at(places: &Places, seed: u64, times: impl Fn([usize; 2], usize) -> f64) -> Vec<SuspectKind> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let matrix = PairMatrix::of(places.nodes(), 2, 3, |pair, local, _| {
        (times(pair, local) * random.random_range(0.98..1.02_f64)).ln()
    });
    let mut search = Search::new(Measure::OneWay, &matrix, places);
    search_pairs(&mut search);
    intermittent::intermittent(&mut search);
    let found: Vec<Finding> = unexplained(search.findings);
    found.into_iter().map(|finding| finding.suspect).collect()
}

#[test]
fn on_four_nodes_a_slow_node_and_a_slow_link_are_told_apart() {
    for seed in 0..100 {
        let node = suspects_of(4, None, seed, |pair, _| if pair.contains(&2) { 4.0 } else { 1.0 });
        assert_eq!(node, [SuspectKind::Node { node: 2 }], "seed {seed}");
        let link = suspects_of(4, None, seed, |pair, _| if pair == [0, 3] { 4.0 } else { 1.0 });
        assert_eq!(link, [SuspectKind::Link { nodes: [0, 3], local_rank: None }], "seed {seed}");
    }
}

/// The suspects by one way and both ways together on four nodes, and the number of unconfirmed findings, where both ways takes
/// as long as one message or two, at random for each pair.
fn confirmed_on_four(
    seed: u64,
    one_way: impl Fn([usize; 2]) -> f64,
    both: impl Fn([usize; 2]) -> f64,
) -> (Vec<SuspectKind>, usize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut scatter = |value: f64| (value * random.random_range(0.98..1.02_f64)).ln();
    let first = PairMatrix::of(4, 1, 3, |pair, _, _| scatter(one_way(pair)));
    let mut coin = Xoshiro256PlusPlus::seed_from_u64(seed + 1_000);
    let second =
        PairMatrix::of(4, 1, 3, |pair, _, _| scatter(both(pair) * if coin.random_bool(0.5) { 2.0 } else { 1.0 }));
    let places = places(4, None);
    let searched = |measure, matrix| {
        let mut search = Search::new(measure, matrix, &places);
        search_pairs(&mut search);
        intermittent::intermittent(&mut search);
        search
    };
    let searches = vec![searched(Measure::OneWay, &first), searched(Measure::BothWays, &second)];
    let (found, alone) = confirm::confirmed(searches, &places);
    let mut suspects: Vec<SuspectKind> = unexplained(found).into_iter().map(|finding| finding.suspect).collect();
    suspects.dedup();
    (suspects, alone.len())
}

#[test]
fn on_four_nodes_what_one_measure_says_alone_accuses_nobody() {
    let mut unconfirmed = 0;
    for seed in 0..500 {
        let slow = |slow: bool| if slow { 4.0 } else { 1.0 };
        let link = |pair| slow(pair == [0, 3]);
        assert_eq!(
            confirmed_on_four(seed, link, link).0,
            [SuspectKind::Link { nodes: [0, 3], local_rank: None }],
            "seed {seed}"
        );
        let node = |pair: [usize; 2]| slow(pair.contains(&2));
        assert_eq!(confirmed_on_four(seed, node, node).0, [SuspectKind::Node { node: 2 }], "seed {seed}");
        let (healthy, alone) = confirmed_on_four(seed, |_| 1.0, |_| 1.0);
        assert_eq!(healthy, [], "seed {seed}");
        unconfirmed += usize::from(alone > 0);
    }
    assert!(unconfirmed > 0, "what one measure alone shows is listed");
}

#[test]
fn slow_links_and_a_noisy_measure_do_not_add_up_to_a_slow_node() {
    // Both ways is slow with all three partners of node 3, one way with a single one of them.
    let (found, alone) = confirmed_on_four(
        1,
        |pair| if pair == [0, 3] { 4.0 } else { 1.0 },
        |pair| {
            if pair.contains(&3) { 8.0 } else { 1.0 }
        },
    );
    assert_eq!(found, [SuspectKind::Link { nodes: [0, 3], local_rank: None }]);
    assert!(alone >= 1, "both ways spoke against node 3 alone");
}

#[test]
fn two_slow_paths_of_a_node_with_three_partners_do_not_make_it_a_suspect() {
    let found = suspects_of(4, None, 1, |pair, _| if pair == [0, 3] || pair == [1, 3] { 4.0 } else { 1.0 });
    assert!(!found.contains(&SuspectKind::Node { node: 3 }), "{found:?}");
}

#[test]
fn a_healthy_fleet_of_any_size_has_no_suspects() {
    for nodes in [2, 3, 4, 5, 8, 16, 33] {
        for seed in 0..20 {
            assert_eq!(suspects_of(nodes, Some(4), seed, |_, _| 1.0), [], "{nodes} nodes, seed {seed}");
        }
    }
}

#[test]
fn a_slow_leaf_its_uplinks_and_two_adjacent_slow_nodes_are_distinguished() {
    let nodes = vec![4, 5, 6, 7];
    let leaf = SuspectKind::Leaf { leaf: 1, nodes };
    let behind = |node: &usize| (4..8).contains(node);
    let switch = suspects_of(16, Some(4), 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
    assert_eq!(switch, std::slice::from_ref(&leaf));
    let uplinks =
        suspects_of(16, Some(4), 1, |pair, _| if pair.iter().filter(|n| behind(n)).count() == 1 { 1.6 } else { 1.0 });
    assert_eq!(uplinks, [leaf]);
    let two = suspects_of(16, Some(4), 1, |pair, _| if pair.contains(&4) || pair.contains(&5) { 1.6 } else { 1.0 });
    assert_eq!(two, [SuspectKind::Node { node: 4 }, SuspectKind::Node { node: 5 }]);
    let unknown = suspects_of(16, None, 1, |pair, _| if pair.iter().any(behind) { 1.6 } else { 1.0 });
    assert_eq!(unknown.len(), 4, "without leaves its nodes are suspected: {unknown:?}");
}

#[test]
fn half_of_the_leaves_can_be_slow_and_only_they_are_suspected() {
    for (leaves, slow) in [(4, vec![0, 1]), (4, vec![1, 3]), (5, vec![0, 4]), (6, vec![0, 2, 3]), (8, vec![1, 2, 6])] {
        let is_slow = |node: &usize| slow.contains(&(node / 4));
        let expected: Vec<SuspectKind> = (slow.iter())
            .map(|leaf| SuspectKind::Leaf {
                leaf: *leaf as u32,
                nodes: (4 * leaf..4 * leaf + 4).map(|node| node as u32).collect(),
            })
            .collect();
        for seed in 0..20 {
            let switches =
                suspects_of(4 * leaves, Some(4), seed, |pair, _| if pair.iter().any(is_slow) { 1.6 } else { 1.0 });
            assert_eq!(switches, expected, "{leaves} leaves, switches {slow:?}, seed {seed}");
            let uplinks = suspects_of(4 * leaves, Some(4), seed, |pair, _| {
                if pair[0] / 4 != pair[1] / 4 && pair.iter().any(is_slow) { 1.6 } else { 1.0 }
            });
            assert_eq!(uplinks, expected, "{leaves} leaves, uplinks {slow:?}, seed {seed}");
        }
    }
}

#[test]
fn the_way_out_of_a_rack_is_compared_with_other_ways_out_of_racks() {
    let racks = Places { nodes_per_rack: Some(6), ..places(12, None) };
    let usual = |[a, b]: [usize; 2]| if a / 6 == b / 6 { 0.1 } else { 1.0 };
    let adapter = SuspectKind::Adapter { node: 3, local_rank: 1 };
    let link = SuspectKind::Link { nodes: [2, 9], local_rank: None };
    for seed in 0..20 {
        assert_eq!(suspects_at(&racks, seed, |pair, _| usual(pair)), [], "seed {seed}");
        let node = suspects_at(&racks, seed, |pair, _| usual(pair) * if pair.contains(&7) { 1.6 } else { 1.0 });
        assert_eq!(node, [SuspectKind::Node { node: 7 }], "seed {seed}");
        let found = suspects_at(&racks, seed, |pair, local| {
            let slow = pair.contains(&3) && local == 1 && pair[0] / 6 != pair[1] / 6;
            usual(pair) * if slow { 1.6 } else { 1.0 }
        });
        assert_eq!(found, std::slice::from_ref(&adapter), "seed {seed}");
        let found = suspects_at(&racks, seed, |pair, _| usual(pair) * if pair == [2, 9] { 1.6 } else { 1.0 });
        assert_eq!(found, std::slice::from_ref(&link), "seed {seed}");
    }
}

#[test]
fn a_slow_local_rank_is_a_rail_an_adapter_or_a_path() {
    let rail = suspects_of(8, None, 1, |_, local| if local == 1 { 1.6 } else { 1.0 });
    assert_eq!(rail, [SuspectKind::Rail { local_rank: 1 }]);
    let adapter = suspects_of(8, None, 1, |pair, local| if local == 1 && pair.contains(&3) { 1.6 } else { 1.0 });
    assert_eq!(adapter, [SuspectKind::Adapter { node: 3, local_rank: 1 }]);
    let path = suspects_of(8, None, 1, |pair, local| if local == 1 && pair == [3, 5] { 1.6 } else { 1.0 });
    assert_eq!(path, [SuspectKind::Link { nodes: [3, 5], local_rank: Some(1) }]);
}

#[test]
fn a_suspect_explains_its_slow_links_and_constant_evidence_outweighs_intermittent() {
    let finding = |suspect: SuspectKind, intermittent| Finding {
        suspect,
        slower: 0.5,
        strength: 2.0,
        intermittent,
        inside: false,
        evidence: String::new(),
    };
    let node = SuspectKind::Node { node: 3 };
    let all = vec![
        finding(node.clone(), false),
        finding(node.clone(), true),
        finding(SuspectKind::Link { nodes: [1, 3], local_rank: None }, false),
        finding(SuspectKind::Link { nodes: [1, 2], local_rank: None }, false),
        finding(SuspectKind::Adapter { node: 3, local_rank: 0 }, false),
    ];
    let left: Vec<SuspectKind> = unexplained(all).into_iter().map(|finding| finding.suspect).collect();
    assert_eq!(left, [node, SuspectKind::Link { nodes: [1, 2], local_rank: None }]);
}

#[test]
fn a_link_that_met_a_node_that_comes_and_goes_is_suspected_only_where_it_is_much_slower() {
    let finding = |suspect, slower, intermittent| Finding {
        suspect,
        slower,
        strength: 2.0,
        intermittent,
        inside: false,
        evidence: String::new(),
    };
    let (node, link) = (SuspectKind::Node { node: 3 }, SuspectKind::Link { nodes: [1, 3], local_rank: None });
    let left = |slower| -> Vec<SuspectKind> {
        let all = vec![finding(node.clone(), 0.4, true), finding(link.clone(), slower, false)];
        unexplained(all).into_iter().map(|finding| finding.suspect).collect()
    };
    assert_eq!(left(0.42), std::slice::from_ref(&node));
    assert_eq!(left(0.9), [node.clone(), link.clone()]);
}

#[test]
fn on_three_nodes_the_slow_way_or_the_slow_node_is_named_and_on_two_the_slow_rail_with_both_ends() {
    for seed in 0..100 {
        assert_eq!(suspects_of(3, None, seed, |_, _| 1.0), [], "seed {seed}");
        assert_eq!(suspects_of(2, None, seed, |_, _| 1.0), [], "seed {seed}");
        for factor in [2.0, 10.0] {
            let slow = |slow: bool| if slow { factor } else { 1.0 };
            let link = suspects_of(3, None, seed, |pair, _| slow(pair == [0, 2]));
            assert_eq!(link, [SuspectKind::Link { nodes: [0, 2], local_rank: None }], "seed {seed}");
            let node = suspects_of(3, None, seed, |pair, _| slow(pair.contains(&1)));
            assert_eq!(node, [SuspectKind::Node { node: 1 }], "seed {seed}");
        }
    }
    // Behind different leaves ways differ by design.
    assert_eq!(suspects_of(3, Some(2), 1, |pair, _| if pair.contains(&2) { 2.0 } else { 1.0 }), []);
    let rails = |slow_local: usize| {
        let matrix = PairMatrix::of(2, 8, 3, |_, local, replicate| {
            let scatter = 1.0 + (replicate * 8 + local) as f64 * 1e-3;
            (scatter * if local == slow_local { 2.0 } else { 1.0 }).ln()
        });
        let places = places(2, None);
        let mut search = Search::new(Measure::OneWay, &matrix, &places);
        search_pairs(&mut search);
        search.findings.into_iter().map(|finding| finding.suspect).collect::<Vec<_>>()
    };
    assert_eq!(rails(3), [SuspectKind::Link { nodes: [0, 1], local_rank: Some(3) }]);
    assert_eq!(rails(8), []);
}
