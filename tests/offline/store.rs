//! The store of a fleet's history as a user keeps it, and its dataset as DuckDB and pandas read it, by the queries of the documentation.

use crate::common;
use crate::offline::{commgauge, text};
use crate::qualified::as_measured;
use crate::records::{Made, write};
use commgauge::config::Machine;
use commgauge::record::Line;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../docs/reference/files.md");
const NIGHTS: u32 = 10;
/// The first night with another library and a slow link.
const CHANGE: u32 = 6;

/// A folder with a store `fleet` of nightly qualifications.
fn fleet() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let machine = Machine::load(Path::new("embedded:suites/machines/h100-nvswitch-ndr.toml")).expect("a machine");
    for night in 0..NIGHTS {
        let record = format!("{night}.jsonl");
        let mut words = vec!["simulate", "qualify", "--machine", "h100-nvswitch-ndr", "--nodes", "4", "-o", &record];
        words.extend(["--fault", "link:0-1:rate=0.5"].into_iter().filter(|_| night >= CHANGE));
        assert_eq!(commgauge(folder.path(), &words).status.code(), Some(0));
        as_measured(&folder.path().join(&record), &machine, |header| {
            header.run_id = format!("night-{night}");
            header.started_at = format!("2026-11-{:02}T03:00:00+00:00", night + 1);
            header.backend.library = if night >= CHANGE { "NCCL 2.28.9" } else { "NCCL 2.27.5" }.to_owned();
        });
        added(folder.path(), &[record]);
    }
    folder
}

#[track_caller]
fn added<Record: AsRef<str>>(folder: &Path, records: &[Record]) -> String {
    let mut words = vec!["history", "add", "--store", "fleet"];
    words.extend(records.iter().map(AsRef::as_ref));
    let ran = commgauge(folder, &words);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    text(&ran.stderr)
}

#[test]
fn a_store_says_at_which_run_rows_changed_and_what_else_changed_there() {
    let folder = fleet();
    let shown = commgauge(folder.path(), &["history", "--store", "fleet", "--width", "140"]);
    let out = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1), "{out}{}", text(&shown.stderr));
    assert!(out.contains("from run night-6") && out.contains("library: NCCL 2.27.5 before, NCCL 2.28.9 now"), "{out}");
    assert!(added(folder.path(), &["3.jsonl"]).contains("0 runs added to fleet, 1 run there already"));
    for (words, reason) in [
        (&["history", "--store", "nowhere"][..], "there is no folder records in it"),
        (&["history", "fleet"], "fleet is a store: --store fleet"),
        (&["history", "add", "gone.jsonl", "--store", "fleet"], "gone.jsonl"),
        (&["history", "runs", "--store", "fleet"], "cannot be used with"),
        (&["history", "rebuild", "--store", "."], "there is no folder records in it"),
    ] {
        let refused = commgauge(folder.path(), words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(text(&refused.stderr).contains(reason), "{words:?}: {}", text(&refused.stderr));
    }
    // What a killed writer leaves is no part of the answer, and the records alone bring everything back.
    fs::write(folder.path().join("fleet/records/.night-9.jsonl.1.tmp"), "half").expect("written");
    let rebuilt = commgauge(folder.path(), &["history", "rebuild", "--store", "fleet"]);
    assert!(text(&rebuilt.stderr).contains("made again of 10 runs"), "{}", text(&rebuilt.stderr));
    assert_eq!(text(&commgauge(folder.path(), &["history", "--store", "fleet", "--width", "140"]).stdout), out);
}

/// Records of healthy nights, by name.
fn nights(folder: &Path, count: usize) -> Vec<String> {
    (0..count)
        .map(|night| {
            let mut lines = Made::steady(&format!("night-{night:02}"), 12, 3, night as u64 + 1).lines();
            let Line::Header(header) = &mut lines[0] else { unreachable!() };
            header.started_at = format!("2026-11-{:02}T03:00:00+00:00", night % 28 + 1);
            let name = format!("{night}.jsonl");
            write(&folder.join(&name), &lines);
            name
        })
        .collect()
}

/// The runs that `commgauge history` knows of a store.
fn runs_in(folder: &Path) -> usize {
    let shown = commgauge(folder, &["history", "--store", "fleet", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&shown.stdout)
        .unwrap_or_else(|cause| panic!("the store cannot be read: {cause}: {}", text(&shown.stderr)));
    let lineages = document["lineages"].as_array().expect("lineages");
    lineages.iter().map(|lineage| lineage["runs"].as_array().expect("runs").len()).sum()
}

/// `commgauge history` on the store, with a fault at one operation on files. Returns how it ended; none where it was killed.
fn with_fault(folder: &Path, shim: &Path, fault: &str, operation: u32, words: &[&str]) -> Option<i32> {
    let mut command = Command::new(common::COMMGAUGE);
    command.arg("history").args(words).args(["--store", "fleet"]).current_dir(folder);
    command.env("LD_PRELOAD", shim).env(fault, operation.to_string());
    command.output().expect("it starts").status.code()
}

#[test]
fn a_writer_that_is_killed_or_whose_disk_is_full_or_fails_at_any_operation_loses_nothing() {
    let Some(shim) = common::shim() else { return };
    let two = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let records = nights(two.path(), 4);
    added(two.path(), &records[..2]);
    for words in [&["add", "2.jsonl", "3.jsonl"][..], &["rebuild"]] {
        let most = words.len() + 1;
        // As many as a writer makes that is killed by none.
        let mut operations = u32::MAX;
        for fault in ["FAULT_KILL_AT", "FAULT_FULL_AT", "FAULT_FAIL_AT"] {
            for operation in 1..=operations {
                let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
                let at = folder.path();
                let copy = Command::new("cp").arg("-r").arg(two.path().join(".")).arg(at).status();
                assert!(copy.expect("cp starts").success());
                let ended = with_fault(at, &shim, fault, operation, words);
                let known = runs_in(at);
                assert!((2..=most).contains(&known), "{words:?} {fault}={operation}: {known} runs");
                // No truncated rest is in the way, and nothing is stored twice.
                added(at, &records);
                assert_eq!(runs_in(at), 4, "{words:?} {fault}={operation}");
                match (fault, ended) {
                    ("FAULT_KILL_AT", None) | ("FAULT_FULL_AT" | "FAULT_FAIL_AT", Some(6)) => {}
                    ("FAULT_KILL_AT", Some(0)) if operation > 5 => {
                        operations = operation - 1;
                        break;
                    }
                    // What a writer only cleans up may fail.
                    (_, Some(0)) => assert_eq!(known, most, "{words:?} {fault}={operation}"),
                    (_, code) => panic!("{words:?} {fault}={operation}: {code:?}"),
                }
            }
        }
    }
    fs::remove_file(shim).expect("removed");
}

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let mut blocks = Vec::new();
    let mut rest = PAGE;
    while let Some((_, after)) = rest.split_once(begin.as_str()) {
        let (block, behind) = after.split_once("```").expect("it ends");
        blocks.push(block);
        rest = behind;
    }
    blocks
}

/// Python with the packages that scripts/fetch-readers puts aside, or those of the machine.
fn python(folder: &Path, script: &str) -> Option<Output> {
    let packages = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/readers");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", packages).current_dir(folder).args(["-c", script]);
    command.output().ok()
}

#[test]
fn duckdb_and_pandas_answer_the_documented_questions() {
    let nowhere = tempfile::tempdir().expect("a folder");
    if !python(nowhere.path(), "import duckdb, pandas, pyarrow").is_some_and(|ran| ran.status.success()) {
        let reason = "python3 has no duckdb, pandas and pyarrow; scripts/fetch-readers gets them";
        return common::skipped("the dataset's readers", reason);
    }
    let folder = fleet();
    let queries = blocks("sql");
    assert_eq!(queries.len(), 3);
    let asked = |query: &str| {
        let script =
            format!("import duckdb\nfor row in duckdb.sql(\"\"\"{query}\"\"\").fetchall(): print(*row, sep='|')");
        let ran = python(folder.path(), &script).expect("python3 is there");
        assert!(ran.status.success(), "{query}\n{}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let slowest = asked(queries[0]);
    assert!(slowest.lines().all(|line| line.starts_with("h100-nvswitch-ndr|node-000")), "{slowest}");
    let drift = asked(queries[1]);
    let percent: Vec<f64> = drift.lines().map(|line| line.rsplit('|').next().unwrap().parse().unwrap()).collect();
    assert_eq!(percent.len(), NIGHTS as usize, "{drift}");
    assert!(percent[..6].iter().all(|percent| percent.abs() < 5.0), "{drift}");
    assert!(percent[6..].iter().all(|percent| *percent < -30.0), "{drift}");
    let versions = asked(queries[2]);
    assert!(versions.contains("|NCCL 2.27.5|") && versions.contains("|NCCL 2.28.9|"), "{versions}");
    let ran = python(folder.path(), blocks("python")[0]).expect("python3 is there");
    let shown = text(&ran.stdout);
    assert!(ran.status.success() && shown.contains("2026-11"), "{shown}{}", text(&ran.stderr));
}
