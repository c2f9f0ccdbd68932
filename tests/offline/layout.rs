//! `commgauge show layout` as a program: exit codes, streams, a pipe that closes early, and a layout of 131,072 ranks.

use std::io::Read;
use std::process::{Command, Output, Stdio};

fn layout(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commgauge"));
    command.args(["show", "layout"]).args(line.split_whitespace());
    command
}

fn run(line: &str) -> Output {
    layout(line).output().expect("commgauge starts")
}

#[test]
fn a_layout_that_cannot_be_ends_with_2_and_says_so_on_stderr_only() {
    for (line, expected) in [
        ("--ranks 16 --tp 3", "needs a multiple of 3 ranks, but there are 16; nearest: 15 or 18"),
        ("--ranks 2000000", "--ranks: found 2000000; accepted: a whole number from 1 to 1048576"),
        (
            "--tp 1048576 --cp 1048576 --pp 1048576 --dp 1048576",
            "= 1208925819614629174706176 ranks; the maximum is 1048576",
        ),
        ("--ranks 16 --rank-list /no/such/file", "--rank-list: there is no file /no/such/file"),
        ("--ranks 16 --nodes 2", "unexpected argument '--nodes'"),
    ] {
        let output = run(line);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(expected) && output.stdout.is_empty(), "{line}: {text}");
    }
}

#[test]
fn every_group_of_131072_ranks_is_in_the_document() {
    let output = run("--ranks 131072 --tp 8 --cp 2 --pp 16 --ep 64 --etp 1 --format json");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let groups = document["groups"].as_object().expect("groups");
    assert_eq!(groups.len(), 10);
    for (axis, groups) in groups {
        let ranks = groups.as_array().expect("a list").iter().flat_map(|group| group.as_array().expect("ranks"));
        let mut seen = vec![false; 131_072];
        for rank in ranks {
            let seen = &mut seen[rank.as_u64().expect("a rank") as usize];
            assert!(!*seen, "{axis} has rank {rank} twice");
            *seen = true;
        }
        // Inner stages have no embedding.
        let expected = if axis == "embedding" { 131_072 / 16 * 2 } else { 131_072 };
        assert_eq!(seen.iter().filter(|seen| **seen).count(), expected, "{axis}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let mut child = layout("--ranks 131072 --format json").stdout(Stdio::piped()).spawn().expect("commgauge starts");
    let mut start = [0; 32];
    child.stdout.take().expect("a pipe").read_exact(&mut start).expect("a beginning");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(start.starts_with(b"{\n  \"format\": \"commgauge-layout\""));
}
