//! Records that fit together have programs without deadlock; others are refused with what does not fit.

use super::super::deadlock::carry_out;
use super::super::{Action, Movement};
use super::*;
use crate::layout::Axis;
use RecordedAction::{Compute, Start, Wait};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;

/// Two pipelines of two stages, and all ranks.
fn groups() -> Vec<Groups> {
    vec![
        Groups { axis: Axis::Pp, groups: vec![vec![0, 2], vec![1, 3]] },
        Groups { axis: Axis::World, groups: vec![vec![0, 1, 2, 3]] },
    ]
}

fn call(groups: usize, kind: RecordedKind, bytes: u64) -> RecordedCall {
    let element = ElementType::Float32;
    RecordedCall { groups, kind, element, bytes_total: Bytes(bytes), elements_to_each: None, sequence: None }
}

fn together(collective: Collective, bytes: u64) -> RecordedCall {
    call(1, RecordedKind::Together(collective), bytes)
}

/// Every call waited for at once, after some computing.
fn one_by_one(calls: &[RecordedCall]) -> RecordedRank {
    let of = |call| [Compute { nanoseconds: 5 }, Start { call }, Wait { call }];
    RecordedRank { calls: calls.to_vec(), actions: (0..calls.len()).flat_map(of).collect() }
}

fn plan(ranks: &[RecordedRank]) -> Result<ReplayPlan> {
    ReplayPlan::of_recorded(groups(), ranks, |_| true)
}

fn refused(ranks: &[RecordedRank]) -> String {
    let error = plan(ranks).expect_err("it does not fit together");
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn calls_keep_their_order_sizes_and_gaps_on_every_rank() {
    let calls = [
        together(Collective::AllReduce, 64),
        together(Collective::AllGather, 160),
        together(Collective::AllReduce, 64),
    ];
    let plan = plan(&[0; 4].map(|_| one_by_one(&calls))).unwrap();
    carry_out(&plan);
    for (rank, program) in plan.programs.iter().flatten().enumerate() {
        let started: Vec<(Collective, u64)> = program
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Start { slot } => Some(program.op_of(&program.slots[*slot as usize])),
                _ => None,
            })
            .map(|op| (op.collective, op.bytes_total.0))
            .collect();
        let expected = [(Collective::AllReduce, 64), (Collective::AllGather, 160), (Collective::AllReduce, 64)];
        assert_eq!((started.as_slice(), program.compute_nanoseconds()), (&expected[..], 15), "rank {rank}");
        // Twice 2 x 3/4 of 64, and 3/4 of 160.
        let [totals] = &plan.listed[rank][..] else { panic!("{:?}", plan.listed) };
        let bytes =
            (totals.payload_bytes_per_step.0, totals.wire_bytes_per_step.0, totals.exposed_wire_bytes_per_step.0);
        assert_eq!(bytes, (288, 192 + 120, 192 + 120));
        assert!(program.at_once.iter().all(|at_once| *at_once));
    }
}

#[test]
fn a_call_that_one_rank_overlaps_is_started_by_all_alike() {
    let calls = [together(Collective::AllReduce, 64)];
    let overlapped = RecordedRank {
        calls: calls.to_vec(),
        actions: vec![Start { call: 0 }, Compute { nanoseconds: 9 }, Wait { call: 0 }],
    };
    let ranks = [one_by_one(&calls), overlapped, one_by_one(&calls), one_by_one(&calls)];
    let plan = plan(&ranks).unwrap();
    carry_out(&plan);
    // MPI's blocking calls match no others.
    assert!(plan.programs.iter().flatten().all(|program| program.at_once == [false]));
}

#[test]
fn messages_that_both_ends_send_first_wait_for_nobody() {
    let exchange = |peer: u32| {
        one_by_one(&[call(0, RecordedKind::Send { to: peer }, 40), call(0, RecordedKind::Receive { from: peer }, 40)])
    };
    let plan = plan(&[exchange(1), exchange(1), exchange(0), exchange(0)]).unwrap();
    carry_out(&plan);
    let program = plan.programs[0].as_ref().unwrap();
    let kinds: Vec<Movement> = program.slots.iter().map(|slot| slot.movement).collect();
    assert_eq!(kinds, [Movement::Send { to: 1, stream: 0 }, Movement::Receive { from: 1, stream: 0 }]);
    assert_eq!(program.actions.last(), Some(&Action::Wait { slot: 0 }), "the wait for what is sent moves to the end");
    assert_eq!(plan.listed[0][0].wire_bytes_per_step, Bytes(40), "what is received counts where it is sent");
}

#[test]
fn a_broadcast_whose_root_goes_on_alone_does_not_hold_it_up() {
    // The root is through with its broadcast before rank 1 comes to it, which waits for a message that the root sends afterwards.
    let root = one_by_one(&[together(Collective::Broadcast, 8), call(0, RecordedKind::Send { to: 1 }, 40)]);
    let other = one_by_one(&[together(Collective::Broadcast, 8)]);
    let last = one_by_one(&[call(0, RecordedKind::Receive { from: 0 }, 40), together(Collective::Broadcast, 8)]);
    let plan = plan(&[root, other.clone(), last, other]).unwrap();
    carry_out(&plan);
}

#[test]
fn an_uneven_exchange_sends_what_each_rank_says() {
    let rows = [vec![1, 2, 3, 4], vec![4, 0, 0, 0], vec![1, 1, 1, 1], vec![0, 0, 5, 0]];
    let of = |row: &Vec<u64>| {
        let bytes = 4 * row.iter().sum::<u64>();
        let call = RecordedCall { elements_to_each: Some(row.clone()), ..together(Collective::AllToAll, bytes) };
        one_by_one(&[call])
    };
    let plan = plan(&rows.each_ref().map(of)).unwrap();
    carry_out(&plan);
    let program = plan.programs[0].as_ref().unwrap();
    assert_eq!(program.ops[0].collective, Collective::AllToAllV);
    for (rank, row) in rows.iter().enumerate() {
        assert_eq!(&program.geometries[0].counts_sent(rank as u32), row);
    }
    // Rank 0 sends 9 elements to others, rank 2 receives 8 from others and sends 3.
    let wire: Vec<u64> = plan.listed.iter().map(|totals| totals[0].wire_bytes_per_step.0).collect();
    assert_eq!(wire, [36, 16, 32, 20]);
}

#[test]
fn what_does_not_fit_together_is_refused_with_both_sides() {
    let reduce = |bytes| together(Collective::AllReduce, bytes);
    let three = |odd: RecordedRank| {
        let usual = one_by_one(&[reduce(64)]);
        [usual.clone(), odd, usual.clone(), usual]
    };
    let numbered = |number| RecordedCall { sequence: Some(number), ..reduce(64) };
    for (what, ranks, words) in [
        (
            "another size",
            three(one_by_one(&[reduce(68)])),
            "call 1 of rank 1, all_reduce of 68 B of float32 on world, does not fit",
        ),
        ("another call", three(one_by_one(&[together(Collective::AllGather, 64)])), "does not fit all_reduce of 64 B"),
        (
            "a call fewer",
            three(one_by_one(&[])),
            "call 1 of rank 0, all_reduce of 64 B of float32 on world, waits for rank 1",
        ),
        ("a call more", three(one_by_one(&[reduce(64), reduce(64)])), "waits for rank 0,2-3"),
        (
            "another window",
            [numbered(3), numbered(4), numbered(3), numbered(3)].map(|call| one_by_one(&[call])),
            "numbers 4 and 3 of the group",
        ),
        (
            "an exchange without counts",
            [16, 32, 16, 16].map(|bytes| one_by_one(&[together(Collective::AllToAll, bytes)])),
            "of an uneven all_to_all the trace must say what goes to each rank",
        ),
        (
            "a message that nobody receives",
            [
                one_by_one(&[call(0, RecordedKind::Send { to: 1 }, 8)]),
                one_by_one(&[]),
                one_by_one(&[]),
                one_by_one(&[]),
            ],
            "waits for rank 2, in whose trace it never comes",
        ),
        (
            "bytes that do not divide",
            [0; 4].map(|_| one_by_one(&[together(Collective::AllGather, 20)])),
            "divided among 4 ranks",
        ),
    ] {
        let found = refused(&ranks);
        assert!(found.contains(words), "{what}: {found}");
    }
}
