//! Peak activations and messages per rank.

use super::*;

#[test]
fn each_rank_of_1f1b_stores_as_many_activations_as_its_distance_from_the_end() {
    for (p, m) in [(1, 5), (4, 2), (4, 8), (8, 64)] {
        for rank in 0..p {
            // Megatron-LM schedules.py: warm-up of p - rank - 1, and the active one.
            assert_eq!(schedule(OneForwardOneBackward, p, m).peak_activations(rank), f64::from(m.min(p - rank)));
            assert_eq!(schedule(GPipe, p, m).peak_activations(rank), f64::from(m));
            assert_eq!(schedule(Naive, p, m).peak_activations(rank), 1.0);
        }
    }
}

#[test]
fn interleaving_costs_the_memory_of_its_longer_warm_up() {
    for (p, v, m) in [(2, 2, 8), (4, 2, 16), (4, 5, 16), (8, 3, 64)] {
        let schedule = Schedule::new(Interleaved, p, v, m).unwrap();
        let (p, v) = (f64::from(p), f64::from(v));
        // arXiv 2205.05198 section 4.2.3: 1 + (p - 1)/(pv) times 1F1B.
        let expected = p * (1.0 + (p - 1.0) / (p * v));
        assert!((schedule.peak_activations(0) - expected).abs() < 1e-12, "p={p} v={v} m={m}");
    }
}

#[test]
fn the_most_memory_of_a_rank_is_the_papers() {
    // In micro-batches of a stage; m large.
    type Peak = fn(u32) -> f64;
    let rows: [(ScheduleKind, Peak, &str); 10] = [
        (ZbH1, |p| f64::from(p), "arXiv 2401.10241 table 2"),
        (ZbH2, |p| f64::from(2 * p - 1), "arXiv 2401.10241 table 2"),
        (Zb1p, |p| f64::from(p), "arXiv 2401.10241 section 5.1"),
        (Zb2p, |p| f64::from(2 * p), "arXiv 2401.10241 section 5.1"),
        (ZbV, |p| f64::from(p), "arXiv 2401.10241 section 6"),
        (VHalf, |p| f64::from((p + 2) / 2), "playground of arXiv 2405.15362"),
        (VMin, |p| f64::from((p + 4) / 3), "playground of arXiv 2405.15362"),
        (DualPipe, |p| f64::from(p + 1), "arXiv 2412.19437 table 2"),
        (DualPipeV, |p| f64::from(p) + 0.5, "2p + 1 half stages"),
        (
            InterleavedZb,
            |p| f64::from(p),
            "torch/distributed/pipelining/schedules.py: v p chunk forwards before the first W",
        ),
    ];
    for (kind, peak, source) in rows {
        for (p, m) in [(4, 32), (8, 64), (16, 128)] {
            assert_eq!(schedule(kind, p, m).peak_activations_max(), peak(p), "{kind} p={p} m={m} ({source})");
        }
    }
}

#[test]
fn a_rank_sends_once_for_each_boundary_that_its_micro_batches_cross() {
    for (p, m) in [(2, 8), (4, 16), (8, 32)] {
        let (last, many) = (p - 1, u64::from(m));
        for kind in [Naive, GPipe, OneForwardOneBackward, ZbH1, ZbH2, Zb1p, Zb2p] {
            let schedule = schedule(kind, p, m);
            for rank in 0..p {
                assert_eq!(schedule.forward_sends(rank), if rank == last { 0 } else { many }, "{kind} rank {rank}");
                assert_eq!(schedule.backward_sends(rank), if rank == 0 { 0 } else { many }, "{kind} rank {rank}");
            }
        }
        // The last rank sends back to the first, but not after the model's last chunk.
        let ring = Schedule::new(Interleaved, p, 3, m).unwrap();
        for rank in 0..p {
            assert_eq!(ring.forward_sends(rank), if rank == last { 2 * many } else { 3 * many });
            assert_eq!(ring.backward_sends(rank), if rank == 0 { 2 * many } else { 3 * many });
        }
        // Down and up again: the ends send in one direction only, the turning point sends nothing to itself.
        for kind in [ZbV, VHalf, VMin, DualPipeV] {
            let schedule = schedule(kind, p, m);
            for rank in 0..p {
                let expected = if rank == 0 || rank == last { many } else { 2 * many };
                assert_eq!((schedule.forward_sends(rank), schedule.backward_sends(rank)), (expected, expected));
            }
        }
        // Half of the micro-batches down, half up, each through every rank once: m in all, not 2m.
        let both_ways = schedule(DualPipe, p, m);
        for rank in 0..p {
            let expected = if rank == 0 || rank == last { many / 2 } else { many };
            assert_eq!((both_ways.forward_sends(rank), both_ways.backward_sends(rank)), (expected, expected));
        }
    }
}

#[test]
fn one_rank_alone_sends_nothing() {
    for &kind in ScheduleKind::ALL {
        if kind != DualPipe {
            let schedule = schedule(kind, 1, 6);
            assert_eq!((schedule.forward_sends(0), schedule.backward_sends(0)), (0, 0), "{kind}");
            assert_eq!(run(&schedule).bubble_fraction(), 0.0, "{kind}");
        }
    }
}

#[test]
fn what_one_rank_sends_its_peer_receives() {
    for &kind in ScheduleKind::ALL {
        let schedule = schedule(kind, 4, 8);
        let mut sent = Vec::new();
        let mut received = Vec::new();
        for rank in 0..4 {
            let end = |chunk, peer, peer_chunk, sends| {
                if sends { (rank, chunk, peer, peer_chunk) } else { (peer, peer_chunk, rank, chunk) }
            };
            sent.extend(
                schedule.sends(rank).map(|m| (m.micro_batch, m.forward, end(m.chunk, m.peer, m.peer_chunk, true))),
            );
            received.extend(
                schedule.receives(rank).map(|m| (m.micro_batch, m.forward, end(m.chunk, m.peer, m.peer_chunk, false))),
            );
        }
        sent.sort_unstable();
        received.sort_unstable();
        assert!(!sent.is_empty());
        assert_eq!(sent, received, "{kind}");
    }
}
