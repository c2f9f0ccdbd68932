//! Where a curve is least certain, and when it is certain enough, on curves with a known answer.

use super::*;

fn measured(sizes: &[u64], seconds: impl Fn(f64) -> f64) -> Vec<Point> {
    sizes.iter().map(|bytes| Point::new(*bytes as f64, seconds(*bytes as f64))).collect()
}

#[test]
fn a_straight_line_is_certain_everywhere() {
    for gap in gaps(&measured(&[1 << 10, 1 << 14, 1 << 18, 1 << 22], |bytes| 1e-5 + bytes * 1e-9)) {
        let doublings = (gap.high as f64 / gap.low as f64).log2();
        // The interpolation consists of pieces that are linear in log-log.
        assert!(gap.expected_error <= OF_DISAGREEMENT * doublings * OF_DOUBLING + 0.005, "{gap:?}");
    }
}

#[test]
fn the_interval_of_a_protocol_switch_is_the_least_certain() {
    // One protocol up to 256 KiB, then another with three times the latency and a third of the cost of a byte.
    let switching = |bytes: f64| if bytes <= 262_144.0 { 1e-5 + bytes * 3e-10 } else { 2.8e-4 + bytes * 1e-10 };
    let gaps = gaps(&measured(&[1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24], switching));
    let worst = gaps.iter().max_by(|a, b| a.expected_error.total_cmp(&b.expected_error)).unwrap();
    assert_eq!((worst.low, worst.high), (1 << 17, 1 << 20), "{gaps:?}");
}

#[test]
fn an_interval_next_to_an_outlier_is_as_uncertain_as_without_it() {
    let line = |bytes: f64| 1e-5 + bytes * 1e-9;
    let mut points = measured(&[1 << 10, 1 << 14, 1 << 18, 1 << 22], line);
    points[1].seconds *= 50.0;
    let found = gaps(&points);
    assert_eq!(found.len(), 3, "every measured size is an end");
    let without = gaps(&[points[0], points[2], points[3]]);
    assert!((found[0].expected_error - without[0].expected_error).abs() < 0.03, "{found:?} {without:?}");
}

#[test]
fn the_middle_is_a_size_that_divides_or_none() {
    for (low, high, expected) in [
        (1 << 10, 1 << 16, Some(1 << 13)),
        (1 << 10, 1 << 11, Some(1536)),
        (1 << 10, 1536, Some(1280)),
        (1 << 10, 1280, None),
        (8, 16, Some(12)),
        (1, 2, None),
        (1, 4, Some(2)),
        (1 << 45, 1 << 46, Some(6 << 43)),
    ] {
        let found = Gap { low, high, expected_error: 0.1 }.middle();
        assert_eq!(found, expected, "{low} to {high}");
    }
}

#[test]
fn a_prediction_is_given_inside_only() {
    let points = measured(&[100, 10_000], |bytes| bytes * 1e-9);
    assert!((interpolated(&points, 1_000.0).unwrap() - 1e-6).abs() < 1e-12);
    assert_eq!(interpolated(&points, 99.0), None);
    assert_eq!(interpolated(&points, 10_001.0), None);
    assert_eq!(interpolated(&points[..1], 100.0), None);
}

#[test]
fn a_curve_is_certain_only_after_a_size_was_predicted_well() {
    let points = measured(&[1 << 10, 1 << 12, 1 << 14], |bytes| 1e-5 + bytes * 1e-9);
    let next = |last_error, until| next_point(&points, last_error, until, Gap::middle).map(|(_, bytes)| bytes);
    assert_eq!(next(None, 0.1), Some(1 << 13), "nothing was predicted yet");
    assert_eq!(next(Some(0.2), 0.1), Some(1 << 13), "the last prediction was wrong");
    assert_eq!(next(Some(0.05), 0.1), None);
    assert_eq!(next(Some(0.0), 1e-6), Some(1 << 13), "the interval is less certain than requested");
    assert_eq!(next_point(&points, None, 0.1, |_| None), None, "no interval can be split");
}
