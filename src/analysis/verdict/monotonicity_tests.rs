//! One more failure never improves a comparison: neither its exit code nor the decision of any row.

use super::testing::{lines, loaded};
use super::tests::{HARMS, good};
use super::*;
use commgauge_model::record::Line;
use proptest::prelude::*;

const RULE: CompareRule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };

/// Severity of an exit code. Refused runs count as the most severe.
fn gravity(code: i32) -> usize {
    [0, 3, 1, 7, 6, 5, 4].iter().position(|known| *known == code).unwrap_or(7)
}

/// The verdict's exit code, or that of the refusal.
fn code(base: &[Line], new: &[Line]) -> i32 {
    let verdict = compare(&[loaded("a.jsonl", base.to_vec())], &[loaded("b.jsonl", new.to_vec())], &RULE);
    verdict.map_or_else(|error| error.exit_code(), |verdict| verdict.exit_code)
}

/// Every time of a row, longer by a factor.
fn slower(lines: &mut [Line], row: u32, factor: f64) {
    for line in lines {
        if let Line::Case(case) = line
            && case.case == row
        {
            case.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time = (*time as f64 * factor) as u64);
        }
    }
}

#[test]
fn a_failure_on_either_side_never_makes_a_comparison_better() {
    let (base, alike) = (lines("a", &good()), lines("b", &good()));
    let mut slow = alike.clone();
    slower(&mut slow, 0, 1.2);
    slower(&mut slow, 1, 1.2);
    assert_eq!((code(&base, &alike), code(&base, &slow)), (0, 1));
    for new in [alike, slow] {
        let before = gravity(code(&base, &new));
        for (first, _, harm) in HARMS {
            let (mut base_once, mut new_once) = (base.clone(), new.clone());
            harm(&mut base_once);
            harm(&mut new_once);
            assert!(gravity(code(&base_once, &new)) >= before, "{first}, in the base");
            let once = gravity(code(&base, &new_once));
            assert!(once >= before, "{first}, in the new run");
            for (second, _, harm) in HARMS {
                // A run ends once.
                if first.starts_with("the run") && second.starts_with("the run") {
                    continue;
                }
                let mut twice = new_once.clone();
                harm(&mut twice);
                assert!(gravity(code(&base, &twice)) >= once, "{first}, then {second}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_run_that_is_slower_still_never_compares_better(
        noise in prop::collection::vec(0.98f64..1.02, 24), first in 1.0f64..1.3, row in 0u32..2, more in 1.0f64..3.0,
    ) {
        let times = |from: usize| -> Vec<Vec<f64>> {
            (0..2).map(|row| noise[from + row * 6..][..6].iter().map(|share| 1000.0 * share).collect()).collect()
        };
        let (base, mut new) = (lines("a", &times(0)), lines("b", &times(12)));
        slower(&mut new, 0, first);
        let before = code(&base, &new);
        slower(&mut new, row, more);
        prop_assert!(gravity(code(&base, &new)) >= gravity(before), "{} before, {}", before, code(&base, &new));
    }
}
