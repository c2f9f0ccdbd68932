//! Every pair once, no rank twice in a round, and the cases of the rounds.

use super::*;
use std::collections::HashSet;

fn request() -> PairsRequest {
    PairsRequest { latency_bytes: Bytes(8), bandwidth_bytes: Bytes(4 << 20), one_at_a_time: false, rank_stride: 1 }
}

fn refusal(request: &PairsRequest, ranks: u32) -> String {
    let error = WorkPlan::of_pairs(request, ranks).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn invalid_requests_are_refused_with_the_flag() {
    assert_eq!(refusal(&request(), 1), "a pair needs two ranks; this launch has 1");
    let wide = PairsRequest { rank_stride: 4, ..request() };
    assert_eq!(refusal(&wide, 4), "--rank-stride 4 leaves one of 4 ranks; a pair needs two");
    for (latency, bandwidth, expected) in [
        (0, 1024, "--latency-bytes: found 0 B; accepted: 1 B to 2147483647 B"),
        (8, 1 << 31, "--bandwidth-bytes: found 2 GiB"),
        (4096, 4096, "--latency-bytes 4096 is not below --bandwidth-bytes 4096"),
    ] {
        let odd = PairsRequest { latency_bytes: Bytes(latency), bandwidth_bytes: Bytes(bandwidth), ..request() };
        assert!(refusal(&odd, 4).starts_with(expected), "{}", refusal(&odd, 4));
    }
    let alone = PairsRequest { one_at_a_time: true, ..request() };
    assert!(refusal(&alone, 100).contains("14850 cases, more than 10000"), "{}", refusal(&alone, 100));
    assert!(refusal(&alone, 100).ends_with("or leave out --one-at-a-time"));
    assert!(refusal(&request(), u32::MAX).contains("all pairs of 4294967295 ranks make 12884901885 cases"));
    assert!(refusal(&alone, u32::MAX).contains("more than 10000"));
}

#[test]
fn every_pair_is_measured_once_and_no_rank_twice_in_a_round() {
    for players in 2..=65 {
        let rounds = rounds(players);
        assert_eq!(rounds.len(), if players % 2 == 0 { players - 1 } else { players }, "{players}");
        let mut met = HashSet::new();
        for round in &rounds {
            assert_eq!(round.len(), players / 2, "{players}: at most one stands aside");
            let mut busy = HashSet::new();
            for pair in round {
                assert!(pair[0] < pair[1] && pair[1] < players, "{pair:?}");
                assert!(busy.insert(pair[0]) && busy.insert(pair[1]), "{players}: {pair:?} twice in a round");
                assert!(met.insert(*pair), "{players}: {pair:?} meets twice");
            }
        }
        assert_eq!(met.len(), players * (players - 1) / 2);
    }
    assert!(rounds(0).is_empty() && rounds(1).is_empty());
}

#[test]
fn a_round_has_three_cases_on_its_pairs() {
    let plan = WorkPlan::of_pairs(&request(), 4).unwrap();
    assert_eq!((plan.groups.len(), plan.cases.len()), (3, 9));
    let names: Vec<String> = plan.cases[3..6].iter().map(Case::name).collect();
    assert_eq!(
        names,
        [
            "pair/round-1/ping_pong/uint8/8/out-of-place/streaming",
            "pair/round-1/ping_pong/uint8/4194304/out-of-place/streaming",
            "pair/round-1/bidirectional/uint8/4194304/out-of-place/streaming",
        ]
    );
    assert_eq!(plan.groups[1].groups, [[0, 2], [1, 3]]);
}

#[test]
fn pairs_one_at_a_time_are_all_pairs_by_their_names() {
    let alone = PairsRequest { one_at_a_time: true, rank_stride: 2, ..request() };
    let plan = WorkPlan::of_pairs(&alone, 8).unwrap();
    assert!(plan.groups.iter().all(|groups| groups.groups.len() == 1 && groups.group_size() == 2));
    let mut labels: Vec<&str> = plan.cases.iter().map(|case| case.groups_label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels, ["0-2", "0-4", "0-6", "2-4", "2-6", "4-6"]);
}
