//! Damaged files never pass: missing, truncated, duplicated or moved lines, and flipped bytes.

use super::testing::{lines, loaded, machine, written};
use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;

const RULE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };

fn good() -> String {
    written(&lines(
        "a",
        &[vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2], vec![200.0, 202.0, 199.0, 201.0, 198.0, 200.0]],
    ))
}

/// The exit code of a gate on these bytes.
fn code(folder: &Path, bytes: &[u8]) -> i32 {
    let path = folder.join("r.jsonl");
    std::fs::write(&path, bytes).unwrap();
    let verdict = LoadedRecord::read(&path).and_then(|loaded| gate(&[loaded], Some(&machine("10GB/s")), &RULE));
    verdict.map_or_else(|error| error.exit_code(), |verdict| verdict.exit_code)
}

/// A name, and a way to damage the line at an index.
type Harm = (&'static str, fn(&mut Vec<String>, usize));

const HARMS: [Harm; 5] = [
    ("deleted", |lines, at| {
        lines.remove(at);
    }),
    ("cut in half", |lines, at| {
        let half = lines[at].len() / 2;
        lines[at].truncate(half);
    }),
    ("cut by its last character", |lines, at| {
        lines[at].pop();
    }),
    ("doubled", |lines, at| lines.insert(at, lines[at].clone())),
    ("swapped with the next", |lines, at| {
        let next = (at + 1) % lines.len();
        lines.swap(at, next);
    }),
];

#[test]
fn a_record_with_any_line_deleted_cut_doubled_or_swapped_never_passes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = good();
    assert_eq!(code(folder.path(), whole.as_bytes()), 0, "whole, it passes");
    let sample = include_str!("../../../tests/data/sample-record.jsonl");
    for (name, text) in [("good", whole.as_str()), ("sample", sample)] {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for at in 0..lines.len() {
            for (what, harm) in HARMS {
                let mut harmed = lines.clone();
                harm(&mut harmed, at);
                let code = code(folder.path(), (harmed.join("\n") + "\n").as_bytes());
                assert_ne!(code, 0, "{name}, line {} {what}", at + 1);
            }
        }
    }
}

#[test]
fn a_record_with_any_of_500_bytes_flipped_never_passes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = good().into_bytes();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20_261_121);
    for _ in 0..500 {
        let (at, bit) = (random.random_range(0..whole.len()), random.random_range(0..8u32));
        let mut harmed = whole.clone();
        harmed[at] ^= 1 << bit;
        let around = String::from_utf8_lossy(&whole[at.saturating_sub(20)..(at + 20).min(whole.len())]).into_owned();
        assert_ne!(code(folder.path(), &harmed), 0, "bit {bit} of byte {at}, in `{around}`");
    }
}

#[test]
fn a_number_that_was_edited_by_hand_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let (path, whole) = (folder.path().join("r.jsonl"), good());
    let without_digest = |line: &str| line.rsplit_once(",\"sha256\"").unwrap().0.to_owned() + "}\n";
    let last = whole.lines().count();
    for (text, words, code) in [
        (whole.replacen("[100000,", "[100001,", 1), "the digest of line 4 does not fit".to_owned(), 7),
        (without_digest(&whole), format!("the digest of line {last} does not fit"), 7),
        (whole.lines().map(without_digest).collect(), "the record carries no digest".to_owned(), 3),
    ] {
        assert_ne!(text, whole);
        std::fs::write(&path, text).unwrap();
        let verdict = gate(&[LoadedRecord::read(&path).unwrap()], Some(&machine("10GB/s")), &RULE).unwrap();
        assert_eq!(verdict.exit_code, code);
        assert!(verdict.troubles[0].text.contains(&words), "{:?}", verdict.troubles);
    }
}

#[test]
fn lines_that_were_never_a_file_need_no_digest() {
    let record = loaded("r.jsonl", lines("a", &[vec![100.0; 6]]));
    assert_eq!(gate(&[record], Some(&machine("10GB/s")), &RULE).unwrap().exit_code, 0);
}
