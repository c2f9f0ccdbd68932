//! Predictions from a fit, and their basis.

use super::*;
use crate::cost::{CurveKey, FamilyKey, FitOptions, Labels, Measurements, Place, fit};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_model::layout::Locality;

const ONE_NODE: Place = Place { nodes_spanned: 1, concurrent_groups_per_node: 1, stride: 1 };
const TWO_NODES: Place = Place { nodes_spanned: 2, concurrent_groups_per_node: 8, stride: 8 };

fn ring(ranks: u32, bytes: f64) -> f64 {
    let n = f64::from(ranks);
    4e-6 + 2.0 * (n - 1.0) * (1.5e-6 + bytes / n / 100e9)
}

/// Ring times of all_reduce on these group sizes and sizes 1 KiB, 4 KiB ...
fn measurements(ranks: &[u32], sizes: u32, place: Place, element: ElementType) -> Measurements {
    let family = FamilyKey {
        collective: Collective::AllReduce,
        element_type: Some(element),
        cadence: Cadence::Streaming,
        place,
        labels: Labels::new(),
    };
    let measured = |ranks: u32| {
        (0..sizes).map(|step| 1024 << (2 * step)).map(|bytes| (bytes, vec![ring(ranks, bytes as f64)])).collect()
    };
    Measurements {
        curves: ranks
            .iter()
            .map(|ranks| (CurveKey { family: family.clone(), ranks: *ranks }, measured(*ranks)))
            .collect(),
        ..Measurements::default()
    }
}

fn query(ranks: u32, bytes: u64) -> Query {
    Query {
        collective: Collective::AllReduce,
        ranks,
        bytes_total: Bytes(bytes),
        element_type: None,
        locality: None,
        cadence: None,
    }
}

fn plain(ranks: &[u32], sizes: u32) -> Fit {
    let measurements = measurements(ranks, sizes, ONE_NODE, ElementType::Bfloat16);
    fit(&measurements, FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit")
}

#[test]
fn what_was_not_measured_is_refused_with_the_reason() {
    let fit = plain(&[2, 8], 9);
    let predictor = Predictor::new(&fit);
    for (query, reason) in [
        (Query { collective: Collective::Broadcast, ..query(8, 4096) }, "broadcast was not measured"),
        (query(1, 4096), "at least 2 ranks"),
        (query(8, 0), "1 byte"),
        (query(32, 4096), "more than 2 times outside those that were measured: 2, 8"),
        (query(8, 1 << 40), "more than 64 times the largest size"),
        (Query { element_type: Some(ElementType::Int8), ..query(8, 4096) }, "not measured of int8; there is bfloat16"),
        (Query { locality: Some("2n".parse().unwrap()), ..query(8, 4096) }, "locality 1n/1g/s1"),
        (Query { cadence: Some(Cadence::Isolated), ..query(8, 4096) }, "not measured as isolated"),
    ] {
        let answer = predictor.predict(&query);
        assert_eq!(answer.status, Status::Refused, "{query:?}");
        assert!(answer.seconds.is_none() && answer.low.is_none());
        assert!(answer.reason.as_ref().unwrap().contains(reason), "{:?}", answer.reason);
    }
}

#[test]
fn a_single_group_size_predicts_no_other() {
    let fit = plain(&[8], 9);
    let answer = Predictor::new(&fit).predict(&query(4, 4096));
    assert_eq!(answer.status, Status::Refused);
    assert!(answer.reason.unwrap().contains("only groups of 8 ranks were measured"));
}

#[test]
fn every_answer_states_its_basis() {
    let fit = plain(&[2, 8], 9);
    let predictor = Predictor::new(&fit);
    for (ranks, bytes, status, off) in [
        (8, 10_000, Status::Interpolated, 0.01),
        (2, 64 << 20, Status::Interpolated, 0.01),
        (8, 512, Status::Extrapolated, 0.01),
        (8, 1 << 30, Status::Extrapolated, 0.01),
        (4, 1 << 20, Status::Transferred, 0.01),
        (16, 1 << 20, Status::Extrapolated, 0.01),
        (4, 128 << 20, Status::Extrapolated, 0.01),
    ] {
        let answer = predictor.predict(&query(ranks, bytes));
        let truth = ring(ranks, bytes as f64);
        assert_eq!(answer.status, status, "{ranks}, {bytes}");
        let seconds = answer.seconds.unwrap().0;
        assert!((seconds / truth - 1.0).abs() < off, "{ranks}, {bytes}: {seconds} for {truth}");
        let (low, high) = (answer.low.unwrap().0, answer.high.unwrap().0);
        assert!(low <= seconds && seconds <= high);
    }
}

#[test]
fn the_matching_place_and_type_answer_a_query() {
    let mut all = measurements(&[8], 9, ONE_NODE, ElementType::Bfloat16);
    for measured in all.curves.values_mut() {
        measured.values_mut().flatten().for_each(|seconds| *seconds *= 3.0);
    }
    all.curves.extend(measurements(&[8], 9, TWO_NODES, ElementType::Bfloat16).curves);
    let fit = fit(&all, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
    let predictor = Predictor::new(&fit);
    let query_at = |locality: &str| Query { locality: Some(locality.parse().unwrap()), ..query(8, 1 << 20) };
    assert!(predictor.predict(&query(8, 1 << 20)).reason.unwrap().contains("several curves answer"));
    let near = predictor.predict(&query_at("1n")).seconds.unwrap().0;
    let far = predictor.predict(&query_at("2n/8g")).seconds.unwrap().0;
    assert!((near / far - 3.0).abs() < 1e-9, "{near}, {far}");
}

#[test]
fn few_sizes_give_fewer_results_with_a_warning() {
    let one = measurements(&[8], 1, ONE_NODE, ElementType::Bfloat16);
    let lone = fit(&one, FitOptions::default()).unwrap();
    assert!(lone.warnings[0].contains("1 size measured, a curve needs two"), "{:?}", lone.warnings);
    let answer = Predictor::new(&lone).predict(&query(8, 1024));
    assert_eq!((answer.seconds.unwrap().0, answer.status), (ring(8, 1024.0), Status::Measured));
    let other = Predictor::new(&lone).predict(&query(8, 2048));
    assert!(other.reason.unwrap().contains("only single sizes were measured: 1 KiB on 8 ranks"));
    let two = plain(&[8], 2);
    assert!(two.warnings[0].contains("2 sizes, too few to leave any out"), "{:?}", two.warnings);
    let answer = Predictor::new(&two).predict(&query(8, 2048));
    assert!(answer.seconds.is_some() && answer.low.is_none() && answer.high.is_none());
}

#[test]
fn equal_times_have_no_bandwidth_and_are_predicted_flat() {
    let mut flat = measurements(&[8], 9, Place::of(&Locality::UNKNOWN), ElementType::Int8);
    flat.curves.values_mut().flat_map(|measured| measured.values_mut()).for_each(|times| *times = vec![2e-5]);
    let fit = fit(&flat, FitOptions::default()).unwrap();
    assert!(fit.warnings[0].contains("bandwidth is unknown"), "{:?}", fit.warnings);
    assert_eq!(fit.families[0].curves[0].bytes_per_second, None);
    let answer = Predictor::new(&fit).predict(&query(8, 1 << 28));
    assert!((answer.seconds.unwrap().0 - 2e-5).abs() < 1e-12);
}

#[test]
fn a_curve_that_does_not_predict_its_own_sizes_is_marked() {
    let mut jumpy = measurements(&[8], 9, ONE_NODE, ElementType::Bfloat16);
    for measured in jumpy.curves.values_mut() {
        for (index, times) in measured.values_mut().enumerate() {
            *times = vec![1e-5 * 4f64.powi(index as i32 / 2 * 2)];
        }
    }
    let fit = fit(&jumpy, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
    assert!(fit.families[0].curves[0].untrusted && fit.warnings[0].contains("not to be planned on"));
    assert!(Predictor::new(&fit).predict(&query(8, 5000)).untrusted);
}
