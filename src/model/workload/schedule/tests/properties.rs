//! Properties of every schedule of any shape.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use commgauge_base::units::Seconds;

fn any_schedule() -> impl Strategy<Value = Schedule> {
    (0..ScheduleKind::ALL.len(), 1u32..10, 2u32..4, 1u32..25).prop_map(|(kind, stages, chunks, micro_batches)| {
        let kind = ScheduleKind::ALL[kind];
        // The nearest shape that the kind accepts.
        let stages = if kind == DualPipe { stages.next_multiple_of(2) } else { stages };
        let micro_batches = match kind {
            kind if kind.goes_round() => micro_batches.next_multiple_of(stages),
            DualPipe => micro_batches.next_multiple_of(2).max(2 * stages),
            DualPipeV => micro_batches.max(2 * stages),
            _ => micro_batches,
        };
        let virtual_stages = if kind.goes_round() { chunks } else { 1 };
        Schedule::new(kind, stages, virtual_stages, micro_batches).unwrap()
    })
}

fn any_costs() -> impl Strategy<Value = StageCosts> {
    (1u32..9, 1u32..9, 1u32..9, 0u32..4).prop_map(|(forward, input_gradient, weight_gradient, communication)| {
        let seconds = |count: u32| Seconds(f64::from(count));
        StageCosts {
            forward: seconds(forward),
            input_gradient: seconds(input_gradient),
            weight_gradient: seconds(weight_gradient),
            communication: seconds(communication),
        }
    })
}

/// Rank and position of each pass of each chunk of the model.
fn places(schedule: &Schedule) -> HashMap<(u32, u32, Pass), (u32, usize)> {
    let mut places = HashMap::new();
    for rank in 0..schedule.stages() {
        for (place, event) in schedule.events(rank).iter().enumerate() {
            let key = (event.micro_batch, schedule.model_chunk_of(rank, event.chunk), event.pass);
            assert_eq!(places.insert(key, (rank, place)), None, "{} does {event:?} twice", schedule.kind());
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_micro_batch_passes_every_chunk_once_forward_and_once_backward(schedule in any_schedule()) {
        let places = places(&schedule);
        let mut passes = 0;
        for micro_batch in 0..schedule.micro_batches() {
            for chunk in 0..schedule.model_chunks() {
                let find = |pass| places.get(&(micro_batch, chunk, pass));
                let (rank, forward) = find(Pass::Forward).expect("a forward");
                let whole = find(Pass::Backward);
                let input = find(Pass::InputGradient);
                let weight = find(Pass::WeightGradient);
                prop_assert!(whole.is_some() != input.is_some());
                prop_assert_eq!(input.is_some(), weight.is_some());
                let (backward_rank, backward) = whole.or(input).expect("a backward");
                prop_assert_eq!(rank, backward_rank);
                prop_assert!(forward < backward);
                if let Some((weight_rank, weight)) = weight {
                    prop_assert_eq!(rank, weight_rank);
                    prop_assert!(backward < weight);
                }
                passes += 2 + usize::from(weight.is_some());
            }
        }
        prop_assert_eq!(places.len(), passes);
    }

    #[test]
    fn no_schedule_gets_stuck_and_none_beats_its_critical_path(schedule in any_schedule(), costs in any_costs()) {
        let timeline = simulate(&schedule, &costs).unwrap();
        let stages = f64::from(schedule.stages());
        let of_a_rank = costs.forward.0 + costs.input_gradient.0 + costs.weight_gradient.0;
        let busy = f64::from(schedule.micro_batches()) * of_a_rank;
        // The first micro-batch passes the whole model and back, with a message at each boundary between ranks.
        let there_and_back = stages * (costs.forward.0 + costs.input_gradient.0) + 2.0 * (stages - 1.0) * costs.communication.0;
        let makespan = timeline.makespan().0;
        prop_assert!(makespan >= busy - 1e-9 && makespan >= there_and_back - 1e-9);
        for rank in 0..schedule.stages() {
            prop_assert!((timeline.busy(rank).0 - busy).abs() < 1e-9 * busy.max(1.0));
            let events = &timeline.events[rank as usize];
            prop_assert!(events.windows(2).all(|pair| pair[0].finish.0 <= pair[1].start.0));
        }
        prop_assert!((0.0..1.0).contains(&(timeline.bubble_fraction() + 1e-12)));
    }

    #[test]
    fn split_backwards_never_make_the_bubble_of_1f1b_larger(stages in 1u32..9, micro_batches in 1u32..25) {
        let of_1f1b = run(&schedule(OneForwardOneBackward, stages, micro_batches)).bubble_fraction();
        for kind in [ZbH1, ZbH2, Zb1p, Zb2p, ZbV, VHalf, VMin] {
            let bubble = run(&schedule(kind, stages, micro_batches)).bubble_fraction();
            prop_assert!(bubble <= of_1f1b + 1e-12, "{kind}: {bubble} above {of_1f1b}");
        }
    }

    #[test]
    fn a_searched_order_keeps_to_its_memory(stages in 1u32..9, micro_batches in 1u32..25, costs in any_costs()) {
        let fitting = crate::workload::schedule::Fitting { costs, weight_gradient_activations: 1.0 };
        let limits = [
            (Zb1p, stages),
            (Zb2p, 2 * stages),
            (ZbV, stages),
            (VHalf, (stages + 2) / 2),
            (VMin, (stages + 4) / 3),
        ];
        for (kind, limit) in limits {
            let schedule = Schedule::fitted(kind, stages, 1, micro_batches, &fitting).unwrap();
            prop_assert!(schedule.peak_activations_max() <= f64::from(limit), "{kind}");
            prop_assert!(simulate(&schedule, &costs).is_ok());
        }
    }
}

#[test]
fn sixty_four_stages_and_five_hundred_micro_batches_are_scheduled() {
    for kind in [OneForwardOneBackward, Interleaved, ZbH1, DualPipe] {
        let schedule = schedule(kind, 64, 512);
        assert!(run(&schedule).makespan().0 > 0.0);
    }
}
