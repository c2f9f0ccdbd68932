//! Properties of routed exchanges: all copies arrive, none exceeds the capacity, and shares are as requested.

use super::*;
use proptest::prelude::*;

fn routed(routing: Routing, experts: u64, experts_per_token: u64) -> Routed {
    Routed { experts, experts_per_token, elements_per_token: 1, routing, capacity_factor: None, seed: 1, back: false }
}

fn rows(routed: &Routed, tokens: u64, ranks: u32) -> Vec<Vec<u64>> {
    let exchange = routed.copies(tokens, ranks).unwrap();
    let n = ranks as usize;
    (0..n).map(|i| (0..n).map(|j| exchange.between(i, j)).collect()).collect()
}

#[test]
fn counts_are_those_worked_out_by_hand() {
    use Routing::*;
    for (routing, experts, k, tokens, ranks, expected) in [
        (Uniform, 8, 2, 6, 4, vec![3, 3, 3, 3]),
        // 12 copies over 8 experts: one each, and the four left over one on each rank in turn.
        (Uniform, 8, 2, 6, 2, vec![6, 6]),
        (Uniform, 4, 1, 5, 2, vec![3, 2]),
        // A quarter of 80 copies, and 60 over seven experts: 8 each, and four left over, one on each rank in turn.
        (Hot(0.25), 8, 2, 40, 4, vec![20 + 9, 17, 17, 17]),
        // 1, 1/2, 1/3, 1/4 of 25/12: 48, 24, 16, 12 of 100.
        (Zipf(1.0), 4, 1, 100, 4, vec![48, 24, 16, 12]),
        (Zipf(1.0), 4, 2, 52, 4, vec![50, 25, 17, 12]),
        // A token is sent to an expert once: of 104 the first receives 52, the others 52 by 1/16 : 1/81 : 1/256, or
        // 41.3, 8.2, 2.6.
        (Zipf(4.0), 4, 2, 52, 4, vec![52, 41, 8, 3]),
    ] {
        let rows = rows(&routed(routing, experts, k), tokens, ranks);
        assert!(rows.iter().all(|row| *row == expected), "{routing} {rows:?}, expected {expected:?}");
    }
}

#[test]
fn a_hot_expert_gets_the_requested_share() {
    for (share, k, tokens) in [(0.125, 8, 4096), (0.5, 1, 1_000_003), (0.03, 8, 77), (0.999, 1, 1000)] {
        let row = rows(&routed(Routing::Hot(share), 64, k), tokens, 64).remove(0);
        let expected_count = share * (tokens * k) as f64;
        assert!((row[0] as f64 - expected_count).abs() <= 1.0, "{share} of {}: {}", tokens * k, row[0]);
        let others = &row[1..];
        assert!(others.iter().max().unwrap() - others.iter().min().unwrap() <= 1, "{others:?}");
    }
}

#[test]
fn capacity_is_that_of_megatron_lm() {
    // ceil(4096 x 8 / 256 x 1.25) = 160.
    let mut hot = routed(Routing::Hot(0.1), 256, 8);
    hot.capacity_factor = Some(1.25);
    assert_eq!(hot.capacity(4096), Some(160));
    let row = rows(&hot, 4096, 256).remove(0);
    // The hot expert would get 3277; the others 29491 / 255 = 115 or 116.
    assert_eq!((row[0], row[1], row.iter().sum::<u64>()), (160, 116, 160 + 32768 - 3277));
}

#[test]
fn draws_are_repeated_by_their_seed_and_differ_between_senders() {
    for tokens in [100, 100_000] {
        let random = routed(Routing::Random, 16, 2);
        let (first, again) = (rows(&random, tokens, 4), rows(&random, tokens, 4));
        assert_eq!(first, again);
        assert_ne!(first[0], first[1], "{tokens}");
        assert_ne!(first, rows(&Routed { seed: 2, ..random }, tokens, 4), "{tokens}");
    }
}

#[test]
fn random_counts_spread_as_those_of_independent_tokens() {
    // The variance of a count is N (K/E) (1 - K/E), whether drawn one by one (2048) or as sums (100,000).
    for tokens in [2048u64, 100_000] {
        let rows = rows(&routed(Routing::Random, 64, 4), tokens, 64);
        let chance = 4.0 / 64.0;
        let mean = tokens as f64 * chance;
        let squares: f64 = rows.iter().flatten().map(|count| (*count as f64 - mean).powi(2)).sum();
        let variance = squares / (64.0 * 64.0);
        let expected = mean * (1.0 - chance);
        assert!((variance / expected - 1.0).abs() < 0.1, "{tokens}: {variance}, expected {expected}");
    }
}

#[test]
fn impossible_routings_are_refused() {
    for (routed, ranks, expected) in [
        (routed(Routing::Uniform, 8, 2), 3, "8 experts do not come out even on 3 ranks; nearest that do: 6 or 9"),
        (routed(Routing::Uniform, 4, 2), 8, "4 experts do not come out even on 8 ranks; nearest that do: 8"),
        (routed(Routing::Uniform, 8, 9), 4, "found 9 experts for each token; accepted: 1 to 8"),
        (routed(Routing::Zipf(f64::NAN), 8, 2), 4, "found a Zipf exponent of NaN"),
        (routed(Routing::Hot(0.6), 8, 2), 4, "found a hot expert with a share of 0.6"),
        (routed(Routing::Random, 2048, 2), 2048, "random routing of 2048 experts on 2048 ranks; accepted: up to 1024"),
    ] {
        let problem = routed.copies(10, ranks).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }
}

fn any_routing() -> impl Strategy<Value = Routing> {
    prop_oneof![
        Just(Routing::Uniform),
        Just(Routing::Random),
        (0.01f64..8.0).prop_map(Routing::Zipf),
        (0.01f64..0.99).prop_map(Routing::Hot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_is_lost_and_the_way_back_is_the_transpose(
        routing in any_routing(),
        ranks in 1u32..9,
        experts_on_rank in 1u64..9,
        k in 1u64..9,
        tokens in 0u64..20_000,
        seed in 0u64..1000,
    ) {
        let there = Routed { seed, ..routed(routing, experts_on_rank * u64::from(ranks), k) };
        prop_assume!(there.check(ranks).is_ok());
        let sent = there.copies(tokens, ranks).unwrap();
        let received = Routed { back: true, ..there.clone() }.copies(tokens, ranks).unwrap();
        let n = ranks as usize;
        for i in 0..n {
            prop_assert_eq!(sent.sent_by(i), tokens * k);
            prop_assert_eq!(sent.sent_by(i), (0..n).map(|j| sent.between(i, j)).sum::<u64>());
            prop_assert_eq!(sent.received_by(i), (0..n).map(|j| sent.between(j, i)).sum::<u64>());
            for j in 0..n {
                // No token is sent to an expert twice.
                prop_assert!(sent.between(i, j) <= tokens * experts_on_rank);
                prop_assert_eq!(sent.between(i, j), received.between(j, i));
            }
        }
    }

    #[test]
    fn no_expert_takes_more_than_its_capacity(
        routing in any_routing(),
        ranks in 1u32..9,
        k in 1u64..9,
        tokens in 1u64..20_000,
        factor in 0.1f64..4.0,
    ) {
        // One expert on each rank, so that counts are those of experts.
        let free = routed(routing, u64::from(ranks), k);
        prop_assume!(free.check(ranks).is_ok());
        let limited = Routed { capacity_factor: Some(factor), ..free.clone() };
        let capacity = limited.capacity(tokens).unwrap();
        prop_assert!(capacity as f64 >= (tokens * k) as f64 / f64::from(ranks) * factor);
        for (limited, free) in rows(&limited, tokens, ranks).concat().iter().zip(rows(&free, tokens, ranks).concat()) {
            prop_assert_eq!(*limited, free.min(capacity));
        }
    }
}
