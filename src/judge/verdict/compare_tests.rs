//! Guarantees of a comparison: few false alarms over all rows, slowdowns are found, and runs that differ are refused.

use super::testing::{lines, loaded};
use super::*;
use commgauge_base::error::Error;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::{Line, Record};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const RULE: CompareRule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };

/// Distribution of run-to-run noise.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal,
    /// Most runs are near the best time, some are much faster than the rest.
    LeftSkewed,
}

/// A time in microseconds with noise of this standard deviation, as a share.
fn noisy(middle: f64, sigma: f64, shape: Shape, random: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform: f64 = random.random_range(f64::EPSILON..1.0);
    let deviate = match shape {
        Shape::Normal => {
            let angle = std::f64::consts::TAU * random.random_range(0.0..1.0);
            (-2.0 * uniform.ln()).sqrt() * angle.cos()
        }
        Shape::LeftSkewed => 1.0 + uniform.ln(),
    };
    middle * (1.0 + sigma * deviate)
}

fn run(
    id: &str,
    rows: usize,
    replicates: usize,
    slow: Option<(usize, f64)>,
    noise: (f64, Shape),
    seed: u64,
) -> LoadedRecord {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let factor = |row: usize| slow.filter(|(slow, _)| *slow == row).map_or(1.0, |(_, factor)| factor);
    let times: Vec<Vec<f64>> = (0..rows)
        .map(|row| (0..replicates).map(|_| noisy(1000.0 * factor(row), noise.0, noise.1, &mut random)).collect())
        .collect();
    loaded(&format!("{id}.jsonl"), lines(id, &times))
}

fn compared(base: &LoadedRecord, new: &LoadedRecord) -> Verdict {
    compare(std::slice::from_ref(base), std::slice::from_ref(new), &RULE).unwrap()
}

#[test]
fn forced_settings_of_calls_are_named_and_may_be_allowed_by_name() {
    let base = run("a", 2, 4, None, (0.01, Shape::Normal), 1);
    let labelled = |rows: &[usize], value: &str| {
        let mut new = run("b", 2, 4, None, (0.01, Shape::Normal), 2);
        for row in rows {
            new.record.plan.cases[*row].labels.insert("buffers".to_owned(), value.to_owned());
        }
        new
    };
    let refused = |base: &LoadedRecord, new: &LoadedRecord| {
        let sides = [base, new].map(std::slice::from_ref);
        compare(sides[0], sides[1], &RULE).unwrap_err().to_string()
    };
    let (all, some) = (labelled(&[0, 1], "registered"), labelled(&[1], "registered"));
    for (message, words) in [
        (refused(&base, &all), r#"labels (buffers): "not set" and "registered""#),
        (refused(&base, &some), r#"labels (buffers): "not set" and "none, registered""#),
    ] {
        assert!(message.contains(words) && message.ends_with("use --allow labels"), "{message}");
    }
    let rule = CompareRule { allowed: vec![Allowed::Labels], ..RULE };
    let verdict = compare(&[base], &[all], &rule).unwrap();
    assert!(
        verdict.rule.iter().any(|text| text.starts_with("allowed to differ: labels (buffers)")),
        "{:?}",
        verdict.rule
    );
}

#[test]
fn runs_that_are_not_alike_are_refused_unless_the_difference_is_allowed() {
    let base = run("a", 2, 4, None, (0.01, Shape::Normal), 1);
    let mut new = run("b", 2, 4, None, (0.01, Shape::Normal), 2);
    new.record.header.ranks[0].processor = "another".to_owned();
    new.record.header.suite.sha256 = "0".to_owned();
    new.record.header.ranks[1].node = 1;
    let error = compare(std::slice::from_ref(&base), std::slice::from_ref(&new), &RULE).unwrap_err();
    let text = error.to_string();
    assert!(error.exit_code() == 2 && text.contains("hardware (processors)") && text.contains("rank-map (rank map)"));
    assert!(text.ends_with("use --allow hardware,rank-map,suite"), "{text}");
    let rule = CompareRule { allowed: vec![Allowed::Hardware, Allowed::RankMap, Allowed::Suite], ..RULE };
    let verdict = compare(std::slice::from_ref(&base), &[new], &rule).unwrap();
    assert!(verdict.rule.iter().any(|text| text.starts_with("allowed to differ: hardware")), "{:?}", verdict.rule);
    assert!(compare(std::slice::from_ref(&base), std::slice::from_ref(&base), &RULE).is_err(), "one run twice");
}

#[test]
fn rows_that_lack_something_on_either_side_never_pass() {
    let noise = (0.005, Shape::Normal);
    let (base, new) = (run("a", 2, 7, None, noise, 1), run("b", 2, 7, None, noise, 2));
    assert_eq!(compared(&base, &new).exit_code, 0);
    type Harm = (&'static str, i32, fn(&mut LoadedRecord));
    let harms: [Harm; 5] = [
        ("a replicate is missing", 7, |loaded| {
            loaded.record.cases.remove(0);
        }),
        ("not verified", 3, |loaded| loaded.record.cases[0].outcome = Outcome::Measured { verified: false }),
        ("excluded", 3, |loaded| loaded.record.cases[0].warnings.push("times were still falling".to_owned())),
        ("zero time", 7, |loaded| loaded.record.cases[0].samples.slowest_nanoseconds.fill(0)),
        ("no end", 7, |loaded| loaded.record.end = None),
    ];
    for (what, code, harm) in harms {
        for side in [0, 1] {
            let mut sides = [base.clone(), new.clone()];
            harm(&mut sides[side]);
            assert_eq!(compared(&sides[0], &sides[1]).exit_code, code, "{what}, side {side}");
        }
    }
}

#[test]
fn too_few_replicates_find_nothing_and_say_how_many_would() {
    let noise = (0.01, Shape::Normal);
    let verdict = compared(&run("a", 1, 2, None, noise, 1), &run("b", 1, 2, Some((0, 2.0)), noise, 2));
    assert_eq!(verdict.exit_code, 3, "a slowdown by half cannot be shown with 2 and 2");
    assert!(verdict.problems[0].text.contains("no probability below 0.167 can be reached"), "{:?}", verdict.problems);
    assert!(verdict.problems[0].text.contains("3 on each side are needed"), "{:?}", verdict.problems);
    assert_eq!(verdict.rows[0].replicates_more, Some(1));
    let three = compared(&run("a", 1, 3, None, noise, 1), &run("b", 1, 3, Some((0, 2.0)), noise, 2));
    assert_eq!(three.exit_code, 1);
}

#[test]
fn a_row_that_became_faster_is_marked_and_passes() {
    let noise = (0.005, Shape::Normal);
    let verdict = compared(&run("a", 3, 7, None, noise, 1), &run("b", 3, 7, Some((1, 0.8)), noise, 2));
    let faster: Vec<bool> = verdict.rows.iter().map(|row| row.against_base.as_ref().unwrap().faster).collect();
    assert_eq!((verdict.exit_code, faster), (0, vec![false, true, false]));
}

/// One curve of all_reduces, 64 KiB to 64 MiB: alpha and bandwidth in microseconds and GB/s, with noise of 1 % for each
/// replicate.
fn curve(id: &str, alpha: f64, bandwidth: f64, seed: u64) -> LoadedRecord {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let bytes: Vec<u64> = (16..27).map(|power| 1 << power).collect();
    let time = |bytes: &u64| alpha + *bytes as f64 / (bandwidth * 1e3);
    let times: Vec<Vec<f64>> = (bytes.iter())
        .map(|bytes| (0..7).map(|_| noisy(time(bytes), 0.01, Shape::Normal, &mut random)).collect())
        .collect();
    let mut lines = lines(id, &times);
    for line in &mut lines {
        if let Line::Plan(plan) = line {
            for (case, bytes) in plan.cases.iter_mut().zip(&bytes) {
                let bytes = commgauge_base::units::Bytes(*bytes);
                (case.bytes_total, case.bytes_accounted, case.bytes_per_rank) = (bytes, bytes, bytes);
            }
        }
    }
    loaded(&format!("{id}.jsonl"), lines)
}

#[test]
fn latency_and_bandwidth_regressions_are_distinguished() {
    for (alpha, bandwidth, worse) in [
        (100.0, 20.0, vec![]),
        (130.0, 20.0, vec![CurvePart::Latency]),
        (100.0, 16.0, vec![CurvePart::Bandwidth]),
        (130.0, 16.0, vec![CurvePart::Latency, CurvePart::Bandwidth]),
        (80.0, 25.0, vec![]),
    ] {
        let verdict = compared(&curve("a", 100.0, 20.0, 3), &curve("b", alpha, bandwidth, 4));
        let worse_parts: Vec<CurvePart> =
            verdict.curves.iter().filter(|curve| curve.worse).map(|curve| curve.part).collect();
        assert_eq!(worse_parts, worse, "{alpha} us, {bandwidth} GB/s: {:?}", verdict.curves);
        let [latency, rate] = &verdict.curves[..] else { panic!("{:?}", verdict.curves) };
        assert!((latency.slowdown - (alpha / 100.0 - 1.0)).abs() < 0.05, "{latency:?}");
        assert!((rate.slowdown - (20.0 / bandwidth - 1.0)).abs() < 0.05, "{rate:?}");
        let problem =
            verdict.problems.iter().any(|problem| problem.exit_code == 1 && problem.text.contains("got worse"));
        assert_eq!(problem, !worse.is_empty(), "{:?}", verdict.problems);
    }
}

#[test]
fn a_slow_down_too_small_for_any_row_alone_is_seen_on_the_curve() {
    let verdict = compared(&curve("a", 100.0, 20.0, 3), &curve("b", 105.0, 19.0, 4));
    assert_eq!(verdict.exit_code, 1);
    assert!(verdict.curves.iter().all(|curve| curve.worse), "{:?}", verdict.curves);
}

/// The documented numbers in optimised builds; fewer otherwise, so that the tests stay fast.
const TRIALS: u64 = if cfg!(debug_assertions) { 12 } else { 2000 };
const ROWS: usize = if cfg!(debug_assertions) { 40 } else { 200 };

#[test]
fn alarms_without_a_change_are_no_more_frequent_than_stated() {
    let mut false_alarms = 0;
    for trial in 0..TRIALS {
        let shape = if trial % 2 == 0 { Shape::Normal } else { Shape::LeftSkewed };
        let noise = ([0.005, 0.01, 0.02][trial as usize % 3], shape);
        let replicates = [5, 6, 7][trial as usize / 2 % 3];
        let base = run("a", ROWS, replicates, None, noise, 2 * trial);
        let verdict = compared(&base, &run("b", ROWS, replicates, None, noise, 2 * trial + 1));
        false_alarms += u64::from(verdict.exit_code == 1);
    }
    // Four standard deviations above the stated level.
    let (expected, trials) = (0.05 * TRIALS as f64, TRIALS as f64);
    let most = expected + 4.0 * (trials * 0.05 * 0.95).sqrt();
    assert!(false_alarms as f64 <= most, "{false_alarms} of {TRIALS}");
}

#[test]
fn a_slow_down_by_five_per_cent_is_found_with_seven_replicates_at_one_per_cent_noise() {
    let trials = TRIALS.min(400);
    let found = (0..trials).filter(|trial| {
        let shape = if trial % 2 == 0 { Shape::Normal } else { Shape::LeftSkewed };
        let base = run("a", ROWS, 7, None, (0.01, shape), 7000 + 2 * trial);
        let verdict = compared(&base, &run("b", ROWS, 7, Some((17, 1.05)), (0.01, shape), 7001 + 2 * trial));
        verdict.exit_code == 1 && verdict.rows[17].decision == Some(Decision::Fail)
    });
    let found = found.count() as u64;
    assert!(found * 10 >= trials * 9, "{found} of {trials}");
}

#[test]
fn deleting_any_line_of_either_record_never_passes() {
    let noise = (0.005, Shape::Normal);
    let text = |judged_as: &str, seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let times: Vec<f64> = (0..6).map(|_| noisy(1000.0, noise.0, noise.1, &mut random)).collect();
        lines(judged_as, &[times])
    };
    let (base, new) = (text("a", 1), text("b", 2));
    let code = |base: Vec<Line>, new: Vec<Line>| {
        let read =
            |name: &str, lines: Vec<Line>| Ok(LoadedRecord { path: name.into(), record: Record::from_lines(lines)? });
        let verdict = read("a", base).and_then(|base| compare(&[base], &[read("b", new)?], &RULE));
        verdict.map_or_else(|error: Error| error.exit_code(), |verdict| verdict.exit_code)
    };
    assert_eq!(code(base.clone(), new.clone()), 0);
    for deleted in 0..base.len() {
        let without = |lines: &[Line]| {
            let mut lines = lines.to_vec();
            lines.remove(deleted);
            lines
        };
        assert_ne!(code(without(&base), new.clone()), 0, "the base without line {}", deleted + 1);
        assert_ne!(code(base.clone(), without(&new)), 0, "the new without line {}", deleted + 1);
    }
}

/// A run with a time budget: the number of replicates of its rows depends on the time.
fn uneven(id: &str, rows: &[Vec<f64>]) -> LoadedRecord {
    let mut lines = lines(id, rows);
    for line in &mut lines {
        match line {
            Line::Header(header) => header.settings.within = Some(commgauge_base::units::Seconds(3.0)),
            Line::Plan(plan) => plan.case_lines = plan.cases.len() as u64,
            _ => {}
        }
    }
    loaded(&format!("{id}.jsonl"), lines)
}

/// Times with 0.1 % of scatter.
fn steady(middle: f64, replicates: usize, from: usize) -> Vec<f64> {
    (from..from + replicates).map(|index| middle * (1.0 + 0.0005 * ((index * 7) % 5) as f64)).collect()
}

#[test]
fn every_row_is_compared_with_the_replicates_that_it_has_and_no_side_is_taken_for_the_other() {
    for first in 0..36 {
        // Each number of replicates of one row meets each of the other.
        for second in (first % 3..36).step_by(3) {
            let counts = [[first / 6 + 1, first % 6 + 1], [second / 6 + 1, second % 6 + 1]];
            // The first row became slower, the second faster, the third neither.
            let base: Vec<Vec<f64>> =
                [(100.0, 0), (400.0, 1), (700.0, 1)].map(|(middle, row)| steady(middle, counts[row][0], 0)).into();
            let new: Vec<Vec<f64>> =
                [(150.0, 0), (300.0, 1), (700.0, 1)].map(|(middle, row)| steady(middle, counts[row][1], 3)).into();
            let verdict = compared(&uneven("a", &base), &uneven("b", &new));
            for (row, [of_base, of_new]) in verdict.rows.iter().zip([counts[0], counts[1], counts[1]]) {
                let against = row.against_base.as_ref().unwrap();
                assert_eq!((against.replicates_base, row.replicates), (of_base as u32, of_new as u32), "{counts:?}");
            }
            let slowdown = |row: usize| verdict.rows[row].against_base.as_ref().unwrap().slowdown.unwrap();
            assert!(slowdown(0) > 0.45 && slowdown(1) < -0.2 && slowdown(2).abs() < 0.01, "{counts:?}");
            assert_ne!(verdict.rows[1].decision, Some(Decision::Fail), "{counts:?}");
            assert_ne!(verdict.rows[2].decision, Some(Decision::Fail), "{counts:?}");
            assert_ne!(verdict.rows[0].decision, Some(Decision::Pass), "{counts:?}");
        }
    }
}

#[test]
fn a_slow_row_is_found_among_rows_that_have_fewer_replicates() {
    let times = |slow: f64, from: usize| -> Vec<Vec<f64>> {
        (0..9)
            .map(|row| steady(if row == 4 { 100.0 * slow } else { 100.0 }, if row % 2 == 0 { 5 } else { 1 }, from))
            .collect()
    };
    let verdict = compared(&uneven("a", &times(1.0, 0)), &uneven("b", &times(1.2, 2)));
    let failed: Vec<usize> = (0..9).filter(|row| verdict.rows[*row].decision == Some(Decision::Fail)).collect();
    assert_eq!((verdict.exit_code, failed), (1, vec![4]), "{:?}", verdict.problems);
    assert!(verdict.rule.iter().any(|text| text.contains("1 to 5 and 1 to 5 replicates")), "{:?}", verdict.rule);
}

#[test]
fn alarms_of_uneven_runs_without_a_change_are_no_more_frequent_than_stated() {
    let trials = TRIALS.min(400);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut false_alarms = 0;
    for _ in 0..trials {
        let mut run = |id: &str| {
            let rows: Vec<Vec<f64>> = (0..ROWS)
                .map(|_| {
                    let replicates = random.random_range(3..7usize);
                    (0..replicates).map(|_| noisy(1000.0, 0.01, Shape::Normal, &mut random)).collect()
                })
                .collect();
            uneven(id, &rows)
        };
        let (base, new) = (run("a"), run("b"));
        false_alarms += u64::from(compared(&base, &new).exit_code == 1);
    }
    let most = 0.05 * trials as f64 + 4.0 * (trials as f64 * 0.05 * 0.95).sqrt();
    assert!(false_alarms as f64 <= most, "{false_alarms} of {trials}");
}

#[test]
fn curves_take_the_rows_that_have_as_many_replicates() {
    // Eleven sizes: the sizes in `fewer` have three replicates, the others seven.
    let cut = |mut record: LoadedRecord, fewer: &[u32]| {
        record.record.header.settings.within = Some(commgauge_base::units::Seconds(3.0));
        record.record.cases.retain(|line| !fewer.contains(&line.case) || line.replicate < 3);
        record
    };
    for fewer in [&[][..], &[0], &[10], &[3, 4, 5], &[0, 2, 4, 6, 8]] {
        let (base, new) = (curve("a", 100.0, 20.0, 3), curve("b", 130.0, 16.0, 4));
        let verdict = compared(&cut(base, fewer), &cut(new, fewer));
        assert_eq!(verdict.curves.len(), 2, "{fewer:?}");
        assert!(
            verdict.curves.iter().all(|curve| curve.worse && curve.cases as usize == 11 - fewer.len()),
            "{fewer:?}"
        );
        // In one run only.
        let verdict = compared(&curve("a", 100.0, 20.0, 3), &cut(curve("b", 130.0, 16.0, 4), fewer));
        assert!(verdict.curves.iter().all(|curve| curve.worse), "{fewer:?}: {:?}", verdict.curves);
    }
}
