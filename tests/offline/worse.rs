//! What `commgauge judge` makes of a record never looks better for one more failure in it: a call whose data were wrong, that
//! failed, that is missing or unverified, or that was slower.

use crate::offline;

use commgauge::record::line::{EndStatus, Outcome};
use commgauge::record::{Line, Record};
use commgauge::verdict::LoadedRecord;
use commgauge::verdict::locate::{LocateOptions, locate};
use offline::{commgauge, text};
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The lines of a rehearsal on eight nodes, as if it had been real.
fn rehearsed(faults: &[&str]) -> Vec<Line> {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("r.jsonl");
    let machine = Path::new(ROOT).join("suites/machines/two-hosts-1gbit.toml").display().to_string();
    let suite = Path::new(ROOT).join("suites/qualify.toml").display().to_string();
    let record_path = record.display().to_string();
    let mut words = vec!["simulate", &suite, "--machine", &machine, "--nodes", "8", "-o", &record_path];
    faults.iter().for_each(|fault| words.extend(["--fault", fault]));
    let output = commgauge(folder.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = std::fs::read_to_string(&record).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn code(lines: &[Line]) -> i32 {
    // Inconsistent lines are refused, which is never better.
    let Ok(record) = Record::from_lines(lines.to_vec()) else { return 2 };
    locate(&[LoadedRecord { path: "r.jsonl".into(), record }], &LocateOptions::default())
        .map_or_else(|error| error.exit_code(), |suspects| suspects.exit_code)
}

fn gravity(code: i32) -> usize {
    [0, 3, 1, 7, 6, 5, 4].iter().position(|known| *known == code).unwrap_or(7)
}

/// A way to damage the line of a case.
type Harm = (&'static str, fn(&mut Vec<Line>, usize));

fn outcome(lines: &mut [Line], at: usize, outcome: Outcome) {
    if let Line::Case(case) = &mut lines[at] {
        case.outcome = outcome;
    }
}

const HARMS: [Harm; 6] = [
    ("wrong data", |lines, at| {
        let (when, expected, got) = ("after".to_owned(), "1".to_owned(), "2".to_owned());
        outcome(lines, at, Outcome::Corrupt { when, rank: 1, element: 2, expected, got, count: 1, call: None });
    }),
    ("it failed", |lines, at| outcome(lines, at, Outcome::Failed { reason: "out of memory".to_owned() })),
    ("it was not verified", |lines, at| outcome(lines, at, Outcome::Measured { verified: false })),
    ("it is missing", |lines, at| drop(lines.remove(at))),
    ("ten times as slow", |lines, at| {
        if let Line::Case(case) = &mut lines[at] {
            case.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time *= 10);
        }
    }),
    ("the run hung", |lines, _| {
        if let Some(Line::End(end)) = lines.last_mut() {
            (end.status, end.exit_code) = (EndStatus::Failed, 5);
        }
    }),
];

#[test]
fn one_more_failure_never_makes_the_answer_of_locate_better() {
    for (faults, expected) in [(&[][..], 0), (&["node:5:rate=0.5"][..], 1)] {
        let whole = rehearsed(faults);
        let before = code(&whole);
        assert!(before == expected || before == 3, "{faults:?}: {before}");
        let cases: Vec<usize> = (0..whole.len()).filter(|at| matches!(whole[*at], Line::Case(_))).collect();
        // Lines from begin to end, of every kind of case.
        for at in cases.iter().step_by(cases.len().div_ceil(40)) {
            for (first, harm) in HARMS {
                let mut once = whole.clone();
                harm(&mut once, *at);
                let after = code(&once);
                assert!(gravity(after) >= gravity(before), "{faults:?}, line {at}: {first}: {before}, then {after}");
            }
        }
        let middle = cases[cases.len() / 2];
        for (first, harm) in HARMS {
            let mut once = whole.clone();
            harm(&mut once, middle);
            for (second, harm) in HARMS {
                let mut twice = once.clone();
                harm(&mut twice, cases[cases.len() / 3]);
                assert!(gravity(code(&twice)) >= gravity(code(&once)), "{faults:?}: {first}, then {second}");
            }
        }
    }
}
