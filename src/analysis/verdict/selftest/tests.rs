//! The self-test is deterministic, reports drift, and detects a broken rule.

use super::*;

/// The documented numbers in optimised builds; fewer otherwise, so that the tests stay quick.
const COMPARISONS: u32 = if cfg!(debug_assertions) { 12 } else { 400 };
const ROWS: u32 = if cfg!(debug_assertions) { 20 } else { 200 };

fn rule() -> SelfTestRule {
    SelfTestRule {
        level: 0.05,
        relevant_slowdown: 0.03,
        comparisons: COMPARISONS,
        rows: ROWS,
        replicates: 7,
        sigma: 0.01,
        seed: 1,
    }
}

#[test]
fn the_rules_meet_their_error_rates_and_the_same_seed_gives_the_same_answer() {
    let once = selftest(&rule(), None).unwrap();
    assert!(once.holds, "{:#?}", once.trials);
    assert_eq!(once, selftest(&rule(), None).unwrap());
    for trial in once.trials.iter().filter(|trial| trial.asked.is_power() && trial.noise == Noise::Normal) {
        assert!(trial.counted.count * 10 >= trial.counted.of * 9, "{trial:?}");
    }
    assert!(once.summary().contains("at most 5.0 % false alarms"), "{}", once.summary());
}

#[test]
fn drift_from_run_to_run_is_reported_without_a_guarantee() {
    let rule = SelfTestRule { comparisons: 10, rows: 10, sigma: 0.02, ..rule() };
    let tried = trial(TrialKind::CompareFalseAlarm, Noise::DriftingOn, &rule).unwrap();
    assert_eq!((tried.promised, tried.decision), (None, None));
    assert!(tried.counted.count >= 9, "a machine that becomes 6 % slower is slower: {tried:?}");
}

#[test]
fn a_rule_that_alarms_too_often_would_be_found() {
    assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(40, 400), 0.05), Decision::Fail);
    assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(20, 400), 0.05), Decision::Inconclusive);
    assert_eq!(decide(TrialKind::CompareFalseAlarm, &counted(4, 400), 0.05), Decision::Pass);
    assert_eq!(decide(TrialKind::ComparePower, &counted(300, 400), 0.9), Decision::Fail);
    assert_eq!(decide(TrialKind::ComparePower, &counted(396, 400), 0.9), Decision::Pass);
}

#[test]
fn runs_of_the_user_are_split_by_time_and_unusable_ones_are_listed() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut run = |id: &str, started: &str, replicates: usize| {
        let rows: Vec<Vec<f64>> = (0..5).map(|_| Noise::Normal.draw(0.005, replicates, 0, &mut random)).collect();
        let mut loaded = synthetic::loaded(id, &rows).unwrap();
        loaded.record.header.started_at = started.to_owned();
        loaded
    };
    let runs = vec![
        run("c", "2026-11-03", 6),
        run("a", "2026-11-01", 6),
        run("b", "2026-11-02", 6),
        run("d", "2026-11-04", 2),
    ];
    let own = OwnRecords { records: runs, left_out: vec!["x: broken".to_owned()] };
    let found = selftest(&SelfTestRule { comparisons: 1, rows: 2, ..rule() }, Some(own));
    let history = found.unwrap().history.unwrap();
    assert_eq!((history.records, history.run_against_run.of, history.half_against_half.of), (4, 3, 3));
    assert_eq!(history.left_out[0], "x: broken");
    assert!(history.left_out[1].contains("halves of d.jsonl: with 1 and 1 replicates"), "{:?}", history.left_out);
}
