//! Combinations without a schedule, and lists that deadlock.

use super::*;
use crate::workload::schedule::Fitting;
use commgauge_base::units::Seconds;

#[test]
fn a_combination_without_a_schedule_is_refused_with_the_nearest_that_has_one() {
    let rows = [
        (GPipe, 0, 1, 4, "gpipe: 0 pipeline stages, must be at least 1"),
        (GPipe, 4, 1, 0, "gpipe: 0 micro-batches, must be at least 1"),
        (
            OneForwardOneBackward,
            4,
            2,
            8,
            "1f1b: 2 virtual stages, must be 1; interleaved and interleaved-zb allow more",
        ),
        (Interleaved, 4, 1, 8, "interleaved: 1 virtual stage, must be at least 2; without virtual stages it is 1f1b"),
        (
            Interleaved,
            4,
            2,
            10,
            "interleaved: 10 micro-batches, must be a multiple of the 4 pipeline stages: nearest: 8 or 12",
        ),
        (Interleaved, 4, 2, 3, "interleaved: 3 micro-batches, must be a multiple of the 4 pipeline stages: nearest: 4"),
        (ZbV, 4, 3, 8, "zb-v: 3 virtual stages, must be 2, the two arms of its V (or 1, not set)"),
        (DualPipe, 5, 1, 20, "dualpipe: 5 pipeline stages, must be even: nearest: 4 or 6"),
        (DualPipe, 1, 1, 20, "dualpipe: 1 pipeline stages, must be even: nearest: 2"),
        (DualPipe, 4, 1, 6, "dualpipe: 6 micro-batches, must be even and at least 2 x pipeline stages = 8: nearest: 8"),
        (
            DualPipe,
            4,
            1,
            9,
            "dualpipe: 9 micro-batches, must be even and at least 2 x pipeline stages = 8: nearest: 8 or 10",
        ),
        (DualPipeV, 4, 1, 7, "dualpipe-v: 7 micro-batches, must be at least 2 x pipeline stages = 8"),
        (
            GPipe,
            64,
            1,
            u32::MAX,
            "gpipe: 4294967295 micro-batches over 64 stages of 1 chunks make 824633720640 passes, more than 67108864; \
             at most 349525 micro-batches are accepted",
        ),
    ];
    for (kind, stages, virtual_stages, micro_batches, expected) in rows {
        assert_eq!(Schedule::new(kind, stages, virtual_stages, micro_batches), Err(expected.to_string()));
    }
}

#[test]
fn costs_that_are_no_length_of_time_are_refused() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let costs = StageCosts { weight_gradient: Seconds(wrong), ..StageCosts::EQUAL };
        let error = Schedule::fitted(Zb2p, 4, 1, 8, &Fitting { costs, ..Fitting::EQUAL }).unwrap_err();
        assert_eq!(error, format!("weight gradient takes {wrong} s, must be 0 or more and finite"));
    }
    let error = Schedule::fitted(Zb2p, 4, 1, 8, &Fitting { weight_gradient_activations: 1.5, ..Fitting::EQUAL });
    assert_eq!(error, Err("1.5 of the activations are kept for the weight gradient, must be 0 to 1".to_string()));
}

#[test]
fn passes_that_take_no_time_do_not_keep_the_search_running() {
    let nothing = Seconds(0.0);
    let costs =
        StageCosts { forward: nothing, input_gradient: nothing, weight_gradient: nothing, communication: nothing };
    for kind in [Zb1p, Zb2p, ZbV, VHalf, VMin] {
        let schedule = Schedule::fitted(kind, 4, 1, 8, &Fitting { costs, ..Fitting::EQUAL }).unwrap();
        assert_eq!(simulate(&schedule, &costs).unwrap().makespan().0, 0.0);
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    for &kind in ScheduleKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "zbh1".parse::<ScheduleKind>().unwrap_err();
    assert!(error.starts_with("found schedule `zbh1`; accepted: naive, gpipe, 1f1b, "), "{error}");
}

#[test]
fn a_list_that_waits_for_itself_is_an_error_and_not_a_hang() {
    // Rank 0 waits for the gradient of micro-batch 0 before it sends micro-batch 1; rank 1 waits for both first.
    let mut stuck = schedule(GPipe, 2, 2);
    stuck.events[0].swap(1, 2);
    assert_eq!(
        simulate(&stuck, &StageCosts::EQUAL),
        Err("gpipe is stuck: rank 0 blocks forever on the input of its event 1, Backward of micro-batch 0 through \
             chunk 0"
            .to_string())
    );
    let mut before_its_forward = schedule(GPipe, 1, 1);
    before_its_forward.events[0].reverse();
    assert!(simulate(&before_its_forward, &StageCosts::EQUAL).is_err());
}
