//! `commgauge expect selftest` as a user starts it. Needs nothing.

use crate::offline;
use crate::records;

use offline::{commgauge, text};
use records::Made;
use std::fs;

/// Small enough for an unoptimised build.
const SMALL: [&str; 8] = ["expect", "selftest", "--comparisons", "8", "--rows", "10", "--replicates", "5"];

#[test]
fn the_answer_is_deterministic_and_fits_the_published_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = [&SMALL[..], &["--format", "json"]].concat();
    let (once, again) = (commgauge(folder.path(), &json), commgauge(folder.path(), &json));
    assert_eq!(once.status.code(), Some(0), "{}", text(&once.stderr));
    assert_eq!(once.stdout, again.stdout);
    let document: serde_json::Value = serde_json::from_slice(&once.stdout).expect("JSON");
    let schema: serde_json::Value =
        serde_json::from_slice(&commgauge(folder.path(), &["show", "schema", "selftest"]).stdout).expect("JSON");
    assert!(jsonschema::validator_for(&schema).expect("a schema").is_valid(&document));
    assert_eq!(
        (document["level"].as_f64().map(|level| (level * 1e9).round()), document["rows"].as_u64()),
        (Some(5e7), Some(10))
    );
    let other = commgauge(folder.path(), &[&json[..], &["--seed", "5"]].concat());
    assert_ne!(once.stdout, other.stdout, "another seed is other noise");
}

#[test]
fn the_table_states_level_interval_and_what_is_not_promised_within_its_width() {
    let folder = tempfile::tempdir().expect("a folder");
    for width in ["80", "140"] {
        let output = commgauge(folder.path(), &[&SMALL[..], &["--width", width]].concat());
        let shown = text(&output.stdout);
        for words in [
            "compare: false alarm",
            "at most 5.0 %",
            "at least 90.0 %",
            "nothing is promised where",
            "no promise is broken",
        ] {
            assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}: {shown}");
        }
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= width.parse().ok(), "{shown}");
    }
}

#[test]
fn runs_of_the_user_are_compared_with_each_other_and_unreadable_ones_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        Made::steady(name, 4, 6, seed).write(&folder.path().join(format!("{name}.jsonl")));
    }
    fs::write(folder.path().join("broken.jsonl"), "x").expect("written");
    let output = commgauge(folder.path(), &[&SMALL[..], &["--records", "."]].concat());
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("own runs: 3 records"), "{shown}");
    assert!(shown.contains("runs against the next like them: false alarms in 0 of 2 comparisons"), "{shown}");
    assert!(shown.contains("halves of runs: false alarms in 0 of 3 comparisons"), "{shown}");
    assert!(shown.contains("broken.jsonl is not a commgauge record"), "{shown}");
    for (arguments, words) in [
        (["--records", "nowhere"], "--records: cannot read the folder nowhere"),
        (["--records", "a.jsonl"], "--records: cannot read the folder a.jsonl"),
        (["--noise", "nan"], "a number from 0.01 to 20"),
    ] {
        let output = commgauge(folder.path(), &[&SMALL[..], &arguments].concat());
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
