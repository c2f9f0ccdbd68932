//! `commgauge expect lint` and `expect learn` as a user starts them. Needs nothing.

use crate::offline;
use crate::records;

use commgauge::record::Line;
use offline::{commgauge, text};
use records::{Made, machine};
use std::fs;
use std::path::Path;

#[track_caller]
fn ended(folder: &Path, arguments: &[&str], code: i32, words: &str) -> String {
    let output = commgauge(folder, arguments);
    let message = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.contains(words), "{arguments:?}: `{words}` is not in:\n{message}");
    message
}

#[test]
fn lint_distinguishes_contradictions_from_advice_and_continues_past_a_broken_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("m.toml", &machine("10GB/s"));
    ended(folder, &["expect", "lint", "m.toml"], 0, "advice: m.toml: 1 of 1 expectations do not name the version");
    write("n.toml", &machine("20GB/s").replace("name = 'm'", "name = 'n'").replace("'1GiB'", "'2MiB'"));
    let both = ["expect", "lint", "m.toml", "n.toml"];
    ended(folder, &both, 0, "2 of 2 machine files read, 2 expectations, 0 contradictions");
    let rows = machine("300GB/s").replace("name = 'm'", "name = 'n'");
    let (_, twice) = rows.split_once("[[expect]]").expect("a row");
    write("n.toml", &format!("{}[[expect]]{twice}", machine("500GB/s")));
    ended(folder, &["expect", "lint", "n.toml"], 1, "contradiction: n.toml:");
    write("bad.toml", &machine("9000GB/s"));
    let message = ended(folder, &["expect", "lint", "bad.toml", "n.toml", "gone.toml"], 2, "unusable: bad.toml:");
    assert!(message.contains("is above the") && message.contains("contradiction: n.toml"), "{message}");
    assert!(message.contains("unusable: there is no file `gone.toml`"), "{message}");
}

#[test]
fn the_shipped_files_are_free_of_contradictions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<String> = fs::read_dir(root.join("suites/machines"))
        .expect("read")
        .map(|entry| entry.expect("read").path().display().to_string())
        .collect();
    let arguments: Vec<&str> = ["expect", "lint"].into_iter().chain(files.iter().map(String::as_str)).collect();
    ended(root, &arguments, 0, "0 contradictions");
    ended(root, &["expect", "lint", "gb200-nvl72"], 0, "1 of 1 machine files read");
}

#[test]
fn what_is_learned_gates_the_runs_that_it_was_learned_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    Made::steady("a", 3, 7, 1).write(&folder.join("a.jsonl"));
    Made::steady("b", 3, 7, 2).write(&folder.join("b.jsonl"));
    fs::write(folder.join("m.toml"), machine("1GB/s")).expect("written");
    let learn = ["expect", "learn", "a.jsonl", "b.jsonl", "--like", "m.toml", "--name", "ours", "-o", "ours.toml"];
    ended(folder, &learn, 0, "ours.toml: 3 expectations from 2 runs");
    ended(folder, &["judge", "--part", "thresholds", "a.jsonl", "--machine", "ours.toml"], 0, "3 of 3 rows judged");
    ended(folder, &["expect", "lint", "ours.toml"], 0, "3 expectations, 0 contradictions");
    let before = fs::read(folder.join("ours.toml")).expect("read");
    ended(folder, &learn, 2, "is there already; use --force to replace it");
    assert_eq!(fs::read(folder.join("ours.toml")).expect("read"), before);
    ended(folder, &[&learn[..], &["--force"]].concat(), 0, "3 expectations");
    let flags = [
        "--ranks-per-node",
        "2",
        "--rate",
        "400GB/s",
        "--latency",
        "1us",
        "--adapters-per-node",
        "2",
        "--rate-per-adapter",
        "400GB/s",
        "--network-latency",
        "5us",
    ];
    let by_flags = ["expect", "learn", "a.jsonl", "--name", "x", "-o", "x.toml"];
    ended(folder, &[&by_flags[..], &flags].concat(), 0, "3 expectations from 1 run");
    ended(folder, &["judge", "--part", "thresholds", "b.jsonl", "--machine", "x.toml"], 0, "3 of 3 rows judged");
}

#[test]
fn learning_refuses_what_it_should_not_learn_from_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("m.toml"), machine("1GB/s")).expect("written");
    let write = |name: &str, change: &dyn Fn(&mut Vec<Line>)| {
        let mut lines = Made::steady("a", 2, 7, 1).lines();
        change(&mut lines);
        records::write(&folder.join(name), &lines);
    };
    write("synthetic.jsonl", &|lines| {
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.backend.synthetic = true;
    });
    write("short.jsonl", &|lines| {
        lines.remove(5);
    });
    Made::steady("a", 2, 3, 1).write(&folder.join("few.jsonl"));
    Made::steady("a", 2, 7, 1).write(&folder.join("a.jsonl"));
    let like = ["--like", "m.toml", "--name", "ours", "-o", "ours.toml"];
    for (record, code, words) in [
        ("synthetic.jsonl", 2, "synthetic: no data moved"),
        ("short.jsonl", 7, "the run wrote"),
        ("few.jsonl", 2, "3 replicates, at least 5 are needed"),
        ("gone.jsonl", 2, "gone.jsonl"),
    ] {
        ended(folder, &[&["expect", "learn", record][..], &like].concat(), code, words);
        assert!(!folder.join("ours.toml").exists(), "{record}");
    }
    for (arguments, words) in [
        (&["--like", "m.toml", "--name", "../x", "-o", "x.toml"][..], "up to 100 letters"),
        (&["--like", "gone", "--name", "x", "-o", "x.toml"], "there is no machine `gone`"),
        (&["--name", "x", "-o", "x.toml"], "--like"),
        (&["--name", "x", "-o", "x.toml", "--rate", "1GB/s"], "--latency"),
        (&["--like", "m.toml", "--name", "x", "-o", "."], "is a folder"),
        (&["--like", "m.toml", "--name", "x", "-o", "gone/x.toml"], "cannot write gone/x.toml"),
        (&["--like", "m.toml", "--name", "x", "-o", "a.jsonl", "--force"], "is one of the inputs"),
    ] {
        ended(folder, &[&["expect", "learn", "a.jsonl"], arguments].concat(), 2, words);
    }
}
