//! The closed forms of the bubble, with free messages.

use super::*;
use crate::workload::schedule::PassCosts;
use crate::workload::schedule::kinds::Event;
use commgauge_base::units::Seconds;

const SIZES: [(u32, u32); 6] = [(2, 4), (2, 12), (4, 8), (4, 32), (6, 24), (8, 64)];

#[test]
fn the_bubble_is_the_closed_form_exactly_where_messages_cost_nothing() {
    type ClosedForm = fn(f64, f64) -> f64;
    // Of the total, with F = B = W; p stages, m micro-batches.
    let rows: [(ScheduleKind, u32, ClosedForm, &str); 8] = [
        (Naive, 1, |p, _| 1.0 - 1.0 / p, "one rank of p active"),
        (GPipe, 1, |p, m| (p - 1.0) / (m + p - 1.0), "arXiv 1811.06965 section 2.3"),
        (OneForwardOneBackward, 1, |p, m| (p - 1.0) / (m + p - 1.0), "arXiv 2104.04473 section 2.2.1"),
        (Interleaved, 2, |p, m| (p - 1.0) / (2.0 * m + p - 1.0), "arXiv 2104.04473 section 2.2.2, v = 2"),
        (Interleaved, 5, |p, m| (p - 1.0) / (5.0 * m + p - 1.0), "arXiv 2104.04473 section 2.2.2, v = 5"),
        (InterleavedZb, 2, |p, m| (p - 1.0) / (6.0 * m + p - 1.0), "a third of interleaved's time, v = 2"),
        (InterleavedZb, 5, |p, m| (p - 1.0) / (15.0 * m + p - 1.0), "a third of interleaved's time, v = 5"),
        (ZbH1, 1, |p, m| (p - 1.0) / (3.0 * m + p - 1.0), "arXiv 2401.10241 table 2: a third of 1F1B's time"),
    ];
    for (kind, v, closed_form, source) in rows {
        for (p, m) in SIZES {
            let timeline = run(&Schedule::new(kind, p, v, m).unwrap());
            let expected = closed_form(f64::from(p), f64::from(m));
            assert!(
                (timeline.bubble_fraction() - expected).abs() < 1e-12,
                "{kind} p={p} m={m}: {} instead of {expected} ({source})",
                timeline.bubble_fraction()
            );
        }
    }
}

#[test]
fn the_idle_time_of_the_longest_rank_is_the_papers() {
    // In passes of a whole stage, F = B = W = 1; m at least 2p.
    type Idle = fn(f64) -> f64;
    let rows: [(ScheduleKind, Idle, &str); 8] = [
        (OneForwardOneBackward, |p| 3.0 * (p - 1.0), "arXiv 2401.10241 table 2"),
        (ZbH1, |p| p - 1.0, "arXiv 2401.10241 table 2: (p-1)(F + B - W)"),
        (ZbH2, |_| 0.0, "arXiv 2401.10241 table 2: (p-1)(F + B - 2W)"),
        (Zb1p, |p| p - 1.0, "arXiv 2401.10241 table 5: as ZB-H1"),
        (Zb2p, |_| 0.0, "arXiv 2401.10241 section 5.3"),
        (ZbV, |_| 0.0, "arXiv 2401.10241 section 6"),
        (DualPipe, |p| p - 2.0, "arXiv 2412.19437 table 2: (p/2 - 1)(F&B + B - 3W), its B the whole backward"),
        (DualPipeV, |p| p - 1.0, "the same for the 2p half stages of its V"),
    ];
    for (kind, idle, source) in rows {
        for (p, m) in SIZES {
            let schedule = schedule(kind, p, m);
            assert_eq!(idle_of_longest_span(&schedule), idle(f64::from(p)), "{kind} p={p} m={m} ({source})");
        }
    }
}

#[test]
fn the_handcrafted_kinds_keep_their_formula_when_passes_differ() {
    // F = B, where the formula of dualpipe is exact; its F&B is F + B + W, its B is B + W.
    let (f, b, w) = (11.0, 11.0, 9.0);
    let costs = StageCosts {
        forward: Seconds(f),
        input_gradient: Seconds(b),
        weight_gradient: Seconds(w),
        communication: Seconds(0.0),
    };
    let rows = [
        (OneForwardOneBackward, f + b + w, 1.0),
        (ZbH1, f + b - w, 1.0),
        (ZbH2, f + b - 2.0 * w, 1.0),
        (DualPipe, (f + b + w) + (b + w) - 3.0 * w, 0.5),
    ];
    for (kind, of_each, depth) in rows {
        for (p, m) in [(4, 32), (8, 64)] {
            let timeline = simulate(&schedule(kind, p, m), &costs).unwrap();
            let longest = (0..p).map(|rank| timeline.span(rank).0).fold(0.0, f64::max);
            let expected = f64::from(m) * (f + b + w) + (depth * f64::from(p) - 1.0) * of_each;
            assert!((longest - expected).abs() < 1e-9, "{kind} p={p} m={m}: {longest} instead of {expected}");
        }
    }
}

#[test]
fn less_memory_in_a_v_costs_at_most_the_bubble_that_its_authors_state() {
    // Playground of arXiv 2405.15362: bubble of about p/2m (V-Half) and 2p/3m (V-Min) of m(F + B + W).
    for (kind, of_stages) in [(VHalf, 0.5), (VMin, 2.0 / 3.0)] {
        for (p, m) in [(3, 30), (4, 32), (5, 40), (8, 64), (16, 128)] {
            let idle = idle_of_longest_span(&schedule(kind, p, m));
            assert!(idle > 0.0 && idle <= 3.0 * of_stages * f64::from(p), "{kind} p={p} m={m}: {idle}");
        }
    }
}

#[test]
fn without_micro_batches_enough_a_searched_order_still_shortens_1f1b() {
    // arXiv 2401.10241 appendix H: for m <= p a step takes (m + p - 1)(F + B) + W.
    for (p, m) in [(8, 2), (8, 4), (8, 8), (16, 4)] {
        for kind in [Zb1p, Zb2p] {
            let timeline = run(&schedule(kind, p, m));
            assert_eq!(timeline.makespan().0, f64::from(2 * (m + p - 1) + 1), "{kind} p={p} m={m}");
        }
    }
}

/// The last rank takes twice as long as the others.
struct SlowLastRank;

impl PassCosts for SlowLastRank {
    fn pass(&self, schedule: &Schedule, rank: u32, event: &Event) -> Seconds {
        let slowness = if rank + 1 == schedule.stages() { 2.0 } else { 1.0 };
        Seconds(slowness * StageCosts::EQUAL.pass(schedule, rank, event).0)
    }

    fn message(&self, _schedule: &Schedule, _from_rank: u32, _to_rank: u32, _event: &Event) -> Seconds {
        Seconds(0.5)
    }
}

#[test]
fn costs_may_differ_between_ranks_and_messages_delay_the_receiver() {
    // By hand: F 1, message 0.5; four times F 2 and B + W 4 without a gap; message 0.5, B + W 2.
    let timeline = simulate(&schedule(OneForwardOneBackward, 2, 4), &SlowLastRank).unwrap();
    assert_eq!(timeline.makespan().0, 1.0 + 0.5 + 4.0 * 6.0 + 0.5 + 2.0);
    assert_eq!((timeline.busy(0).0, timeline.span(1).0), (12.0, 24.0));
    // One micro-batch alone, forward and back.
    let timeline = simulate(&schedule(GPipe, 2, 1), &SlowLastRank).unwrap();
    assert_eq!(timeline.makespan().0, 1.0 + 0.5 + 2.0 + 4.0 + 0.5 + 2.0);
}

#[test]
fn interleaved_zero_bubble_is_pytorchs_pass_by_pass() {
    // The result of ScheduleInterleavedZeroBubble for 2 ranks, 2 chunks and 4 micro-batches: pass, micro-batch, chunk.
    let torch = [
        "F0.0 F1.0 F0.1 F1.1 B0.1 W0.1 F2.0 B1.1 W1.1 F3.0 B0.0 W0.0 F2.1 B1.0 W1.0 F3.1 B2.1 W2.1 B3.1 W3.1 B2.0 W2.0 B3.0 W3.0",
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 W0.1 F2.0 B0.0 W1.1 F3.0 B1.0 W0.0 F2.1 B2.1 W1.0 F3.1 B3.1 W2.1 B2.0 W3.1 B3.0 W2.0 W3.0",
    ];
    let schedule = Schedule::new(InterleavedZb, 2, 2, 4).unwrap();
    for (rank, expected) in (0..).zip(torch) {
        let letter = |pass| match pass {
            Pass::Forward => 'F',
            Pass::InputGradient => 'B',
            Pass::WeightGradient => 'W',
            Pass::Backward => panic!("no backward is whole"),
        };
        let of = |event: &Event| format!("{}{}.{}", letter(event.pass), event.micro_batch, event.chunk);
        let found: Vec<String> = schedule.events(rank).iter().map(of).collect();
        assert_eq!(found.join(" "), expected, "rank {rank}");
    }
}
