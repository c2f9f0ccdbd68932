//! Properties of rates: measured places are answered unchanged, others are extrapolated and marked, the rest is
//! refused.

use super::*;
use crate::cost::{CurveKey, FamilyKey, Fit, FitOptions, Measurements, Place, Predictor, Query, Status, fit};
use commgauge_model::config::Machine;
use std::path::Path;

/// Seconds of a ring over `ranks` ranks: 2 us and 100 GB/s for each step.
fn ring(ranks: u32, bytes: f64) -> f64 {
    let n = f64::from(ranks);
    (n - 1.0) * (2e-6 + bytes / n / 100e9)
}

fn place(nodes_spanned: u32, concurrent_groups_per_node: u32, stride: u32) -> Place {
    Place { nodes_spanned, concurrent_groups_per_node, stride }
}

/// A fit of calls measured at 1 KiB, 4 KiB ... 64 MiB on these group sizes in these places.
fn fitted(measured: &[(Collective, Option<ElementType>, Place, u32)]) -> Fit {
    let mut all = Measurements::default();
    for (collective, element_type, place, ranks) in measured {
        let cadence = Cadence::Streaming;
        let family = FamilyKey {
            collective: *collective,
            element_type: *element_type,
            cadence,
            place: *place,
            labels: Default::default(),
        };
        let sizes = (0..9).map(|step| 1024u64 << (2 * step));
        let times = sizes.map(|bytes| (bytes, vec![ring(*ranks, bytes as f64)])).collect();
        all.curves.insert(CurveKey { family, ranks: *ranks }, times);
    }
    fit(&all, FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit")
}

fn call(collective: Collective, ranks: u32, place: Place) -> RatedCall {
    let ranks_per_node = ranks.div_ceil(place.nodes_spanned.max(1));
    RatedCall {
        collective,
        element_type: ElementType::Bfloat16,
        ranks,
        bytes_total: Bytes(3_000_000),
        locality: Locality {
            nodes_spanned: place.nodes_spanned,
            ranks_per_node,
            stride: place.stride,
            concurrent_groups_per_node: place.concurrent_groups_per_node,
        },
        cadence: None,
    }
}

use Collective::{AllGather, AllReduce, AllToAll, AllToAllV, SendRecv, SendRecvChain};

#[test]
fn unmeasured_calls_are_refused_with_a_list_of_what_was_measured() {
    let fit = fitted(&[(AllGather, None, place(1, 1, 1), 8), (AllGather, None, place(0, 0, 0), 4)]);
    let rates = Fitted::new(&fit, "fit.json", None);
    for (call, expected) in [
        (call(AllReduce, 8, place(1, 1, 1)), "all_reduce was not measured"),
        (call(AllGather, 8, place(2, 1, 1)), "8 ranks at 2n/1g/s1 was not measured, nor near enough; there is"),
        (call(AllGather, 4, place(1, 1, 1)), "can be said with --unknown-locality"),
        (RatedCall { cadence: Some(Cadence::Isolated), ..call(AllGather, 8, place(1, 1, 1)) }, "was not measured"),
        (RatedCall { bytes_total: Bytes(1 << 50), ..call(AllGather, 8, place(1, 1, 1)) }, "more than 64 times"),
    ] {
        let answer = rates.price(&call);
        assert_eq!((answer.status, answer.seconds), (Status::Refused, None), "{call:?}");
        let reason = answer.reason.unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn what_was_measured_is_named_once() {
    let one = place(1, 1, 1);
    let mut fit = fitted(&[(AllReduce, None, one, 2)]);
    let mut other = fit.families[0].clone();
    other.key.element_type = Some(ElementType::Float32);
    fit.families.push(other);
    let reason = Fitted::new(&fit, "fit.json", None).price(&call(AllReduce, 4, one)).reason.unwrap();
    assert_eq!(reason.matches("all_reduce of 2 ranks").count(), 1, "{reason}");
}

#[test]
fn a_measured_place_is_answered_as_the_fit_answers() {
    let one = place(1, 1, 1);
    let fit = fitted(&[(AllGather, None, one, 8), (AllGather, None, place(2, 8, 8), 2)]);
    let rates = Fitted::new(&fit, "fit.json", None);
    let query = Query {
        collective: AllGather,
        ranks: 8,
        bytes_total: Bytes(3_000_000),
        element_type: None,
        locality: Some("1n".parse().unwrap()),
        cadence: None,
    };
    assert_eq!(rates.price(&call(AllGather, 8, one)), Predictor::new(&fit).predict(&query));
    assert!(rates.calibrated() && !rates.synthetic());
    assert_eq!(rates.ground(&call(AllGather, 8, one)), "all_gather on 8 ranks at 1n/1g/s1");
}

#[test]
fn more_groups_than_were_measured_widen_the_interval_by_what_sharing_can_cost() {
    let fit = fitted(&[(AllGather, None, place(2, 2, 8), 2)]);
    let rates = Fitted::new(&fit, "fit.json", None);
    let as_measured = rates.price(&call(AllGather, 2, place(2, 2, 8)));
    let crowded = rates.price(&call(AllGather, 2, place(2, 8, 8)));
    assert_eq!((as_measured.status, crowded.status), (Status::Interpolated, Status::Extrapolated));
    let times = |a: Option<commgauge_base::units::Seconds>, b: Option<commgauge_base::units::Seconds>| {
        a.unwrap().0 / b.unwrap().0
    };
    // Four times as many: at best as before, at worst four times as long.
    for (found, expected) in [
        (times(crowded.low, as_measured.low), 1.0),
        (times(crowded.seconds, as_measured.seconds), 2.0),
        (times(crowded.high, as_measured.high), 4.0),
    ] {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    let ground = rates.ground(&call(AllGather, 2, place(2, 8, 8)));
    assert!(ground.ends_with("8 instead of 2 concurrent groups on a host: 1.00 to 4.00 times as long"), "{ground}");
}

#[test]
fn other_numbers_of_hosts_follow_the_steps_of_the_ring() {
    let fit = fitted(&[(AllGather, None, place(2, 8, 8), 2), (AllGather, None, place(8, 8, 8), 8)]);
    let rates = Fitted::new(&fit, "fit.json", None);
    for (nodes, ranks, expected) in
        [(4, 4, Some(ring(4, 3e6))), (16, 16, Some(ring(16, 3e6))), (32, 32, None), (4, 8, None)]
    {
        let answer = rates.price(&call(AllGather, ranks, place(nodes, 8, 8)));
        match expected {
            None => assert_eq!(answer.status, Status::Refused, "{nodes} {ranks}"),
            Some(expected) => {
                let found = answer.seconds.unwrap().0;
                // The curves are interpolated between sizes, so not to the last digit.
                assert!((found / expected - 1.0).abs() < 0.03, "{nodes}: {found}, {expected}");
                assert_eq!(answer.status, Status::Extrapolated);
                assert!(answer.low.unwrap().0 <= expected && expected <= answer.high.unwrap().0);
            }
        }
    }
}

#[test]
fn calls_of_equal_cost_are_used_as_substitutes_and_marked() {
    let one = place(1, 1, 1);
    let half = Some(ElementType::Float16);
    let fit = fitted(&[
        (AllToAll, None, one, 8),
        (SendRecv, None, place(2, 8, 8), 2),
        (AllReduce, half, one, 8),
        (AllReduce, Some(ElementType::Float32), one, 8),
    ]);
    let rates = Fitted::new(&fit, "fit.json", None);
    for (call, ground) in [
        (call(AllToAllV, 8, one), "all_to_all on 8 ranks at 1n/1g/s1"),
        // However long the pipeline is, its messages are between neighbours.
        (call(SendRecvChain, 16, place(16, 8, 8)), "send_recv on 2 ranks at 2n/8g/s8"),
        (call(AllReduce, 8, one), "all_reduce of float16 on 8 ranks at 1n/1g/s1"),
    ] {
        assert_eq!(rates.price(&call).status, Status::Extrapolated, "{call:?}");
        assert_eq!(rates.ground(&call), ground);
    }
    assert_eq!(rates.price(&call(SendRecvChain, 4, one)).status, Status::Refused, "a message inside was not measured");
}

#[test]
fn the_user_may_state_where_unknown_groups_were_placed() {
    let fit = fitted(&[(AllGather, None, place(0, 0, 0), 8)]);
    let with_unknown = |text: &str| Fitted::new(&fit, "fit.json", Some(text.parse().unwrap()));
    assert_eq!(with_unknown("1n").price(&call(AllGather, 8, place(1, 1, 1))).status, Status::Interpolated);
    assert_eq!(with_unknown("1n/1g").price(&call(AllGather, 8, place(1, 2, 1))).status, Status::Refused);
    assert_eq!(with_unknown("1n").price(&call(AllGather, 8, place(2, 8, 8))).status, Status::Refused);
}

#[test]
fn published_rates_are_never_calibrated_and_fill_what_a_fit_lacks_only_where_both_are_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/h100-nvswitch-ndr.toml");
    let machine = Machine::load(&path).unwrap();
    let published = Published::new(&machine);
    let inside = call(AllGather, 8, place(1, 1, 1));
    let answer = published.price(&inside);
    // 7 steps of 3.4 us, 7/8 of 3 MB at 450 GB/s.
    assert!((answer.seconds.unwrap().0 - (7.0 * 3.4e-6 + 0.875 * 3e6 / 450e9)).abs() < 1e-12);
    assert!(answer.untrusted && answer.low.is_none() && answer.status == Status::Extrapolated);
    assert!(!published.calibrated() && published.ground(&inside).ends_with("not calibrated"));
    let fit = fitted(&[(AllGather, None, place(1, 1, 1), 8)]);
    let both = Both::new(Fitted::new(&fit, "fit.json", None), published);
    assert_eq!(both.price(&inside).status, Status::Interpolated);
    let outside = call(AllGather, 2, place(2, 8, 8));
    assert_eq!(both.price(&outside), published.price(&outside));
    assert!(
        both.ground(&outside).contains("not calibrated (the fit: all_gather of 2 ranks at 2n/8g/s8 was not measured")
    );
    assert!(!both.calibrated());
}

#[test]
fn an_uneven_exchange_is_priced_by_its_busiest_rank() {
    let op = Op {
        splits: Splits::Given(vec![7, 1, 1, 1]),
        ..Op::new(
            commgauge_model::workload::Style::Expert,
            commgauge_model::layout::Axis::Ep,
            AllToAllV,
            ElementType::Int8,
            1000,
        )
    };
    // Rank 0 receives 700 from each of three others; so does every rank of an even exchange of 2800.
    assert_eq!(RatedCall::of(&op, 4, &Locality::UNKNOWN).bytes_total, Bytes(2800));
    assert_eq!(RatedCall::of(&Op { splits: Splits::Equal, ..op }, 4, &Locality::UNKNOWN).bytes_total, Bytes(1000));
}
