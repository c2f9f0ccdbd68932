//! `commgauge run` as people and scripts use it: the shown command works, standard output is the summary and nothing else, and
//! ranks on two hosts are distinguished. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, FAMILY, Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE_TEXT: &str = "name = \"tiny\"\n[measure]\nminimum_samples = 5\nmaximum_samples = 20\ncase_budget = \"20ms\"\nreplicates = 1\nwarm_buffers = true\n[[sweep]]\ncollectives = [\"all_reduce\", \"all_gather\"]\nbytes = [\"1KiB\", \"4KiB\"]\n";

fn tiny_suite(folder: &Path) -> PathBuf {
    let suite = folder.join("tiny.toml");
    fs::write(&suite, SUITE_TEXT).unwrap();
    suite
}

fn run(suite: &Path, record: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(COMMGAUGE);
    command.env("NO_COLOR", "1").arg("run").arg(suite).args(["-n", "2", "--record"]).arg(record).args(more);
    command
}

#[test]
fn a_dry_run_starts_nothing_and_shows_a_command_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, record) = (tiny_suite(folder.path()), record_in(&folder));
    let dry = Ran::of(&mut run(&suite, &record, &["--dry-run"]), 20).ended_with(0);
    assert!(!record.exists());
    let shown = dry.stdout.lines().next().unwrap();
    Ran::of(Command::new("sh").args(["-c", shown]), 30).ended_with(0);
    let lines = lines(&record);
    assert_eq!(lines.last().unwrap()["status"], "complete");
    let shared = dry.stdout.lines().filter(|line| line.starts_with("  world/")).count();
    assert_eq!(of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().len(), shared, "the plan was the one shown");
}

#[test]
fn a_secret_of_a_launcher_argument_is_in_no_command_that_is_shown_and_in_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, record) = (tiny_suite(folder.path()), record_in(&folder));
    let flags: &[&str] = match FAMILY {
        "open-mpi" => &["--launcher-arg=-x", "--launcher-arg=HF_TOKEN=abc123"],
        _ => &["--launcher-arg=-genv", "--launcher-arg=HF_TOKEN", "--launcher-arg=abc123"],
    };
    let dry = Ran::of(&mut run(&suite, &record, &[flags, &["--dry-run"]].concat()), 20).ended_with(0);
    let dry = dry.printed_error("the command has (hidden) in place of secret values; put them in before you run it");
    let ran = Ran::of(&mut run(&suite, &record, flags), 30).ended_with(0);
    let record = fs::read_to_string(&record).unwrap();
    for shown in [&dry.stdout, &dry.stderr, &ran.stdout, &ran.stderr, &record] {
        assert!(!shown.contains("abc123"), "{shown}");
    }
    let words = if FAMILY == "open-mpi" { "-x 'HF_TOKEN=(hidden)'" } else { "-genv HF_TOKEN '(hidden)'" };
    assert!(dry.stdout.contains(words), "{}", dry.stdout);
    ran.printed_error(words);
}

#[test]
fn a_dry_run_takes_the_nodes_from_the_host_file() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, record, hosts) = (tiny_suite(folder.path()), record_in(&folder), folder.path().join("hosts"));
    let host_file = hosts.display().to_string();
    let dry = |text: &str, code| {
        std::fs::write(&hosts, text).unwrap();
        Ran::of(&mut run(&suite, &record, &["--dry-run", "--hostfile", &host_file]), 20).ended_with(code)
    };
    let two = dry("a slots=1\nb slots=1\n", 0).stdout;
    assert!(two.contains(" on 2 ranks of 2 nodes"), "{two}");
    let one = dry("a slots=2\nb slots=2\n", 0).stdout;
    assert!(one.contains(" on 2 ranks\n"), "{one}");
    let refused = dry("a slots=many\n", 2).stderr;
    assert!(refused.contains("line 1: found `a slots=many`"), "{refused}");
}

#[test]
fn standard_output_holds_the_format_that_was_asked_for_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let suite = tiny_suite(folder.path());
    let output = |format: &str| {
        let record = folder.path().join(format!("{format}.jsonl"));
        let ran = Ran::of(&mut run(&suite, &record, &["--format", format]), 30).ended_with(0);
        (ran.stdout, lines(&record))
    };
    let (json, record) = output("json");
    let _: serde_json::Value = serde_json::from_str(&json).expect("one JSON document");
    let planned = of_kind(&record, "plan")[0]["cases"].as_array().unwrap().len();

    let (csv, _) = output("csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let columns = reader.headers().unwrap().len();
    let rows: Vec<_> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), planned);
    assert!(columns > 5 && rows.iter().all(|row| row.len() == columns));

    assert_reads_as_nccl_tests(&output("nccl-tests").0);
}

/// As people parse it: lines that do not begin with `#` are size, count, type, redop, root, and twice time, algbw, busbw, #wrong.
#[track_caller]
fn assert_reads_as_nccl_tests(text: &str) {
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 4, "{text}");
    for row in rows {
        assert_eq!(row.len(), 13, "{row:?}");
        let size: u64 = row[0].parse().expect("size");
        let count: u64 = row[1].parse().expect("count");
        assert_eq!((row[2], ["sum", "none"].contains(&row[3]), row[4]), ("float", true, "-1"), "{row:?}");
        assert!(size >= 1024 && count * 4 <= size, "{row:?}");
        for half in [&row[5..9], &row[9..13]] {
            assert!(half[..3].iter().all(|number| number.parse::<f64>().is_ok_and(|number| number >= 0.0)), "{row:?}");
            assert_eq!(half[3], "0", "{row:?}");
        }
    }
}

#[test]
fn a_sweep_prints_what_a_parser_of_nccl_tests_reads() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = launcher(2);
    let flags =
        "all_reduce -b 1K -e 8K -f 2 -n 20 -w 5 --replicates 1 --warm-buffers --cadence streaming --format nccl-tests";
    let ran = Ran::of(command.arg(SWEEP).args(words(flags)).arg("--record").arg(record_in(&folder)), 30).ended_with(0);
    assert_reads_as_nccl_tests(&ran.stdout);
}

#[test]
fn ranks_that_find_different_files_for_a_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("smoke.toml"), SUITE_TEXT).unwrap();
    // The second rank starts in a folder without such a file, and uses the embedded one.
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let starting_in = |folder: &std::path::Path| format!(r#"cd {} && exec "$@""#, folder.display());
    let scripts = [starting_in(folder.path()), starting_in(&elsewhere)];
    let mut command = launcher(2);
    command.args(["sh", "-c", &common::by_rank(&scripts), "sh", common::SUITE, "smoke", "--check-launch"]);
    let refused = Ran::of(&mut command, 30).ended_with(7);
    let output_text = format!("{}{}", refused.stdout, refused.stderr);
    assert!(output_text.contains("the ranks do not run the same suite"), "{output_text}");
}

/// Two hosts on this one: the launcher's remote shell is a new host name on the same machine.
fn remote_shell(folder: &Path) -> Option<PathBuf> {
    let probe = Command::new("unshare").args(["--uts", "hostname", "commgauge-probe"]).output();
    if !probe.as_ref().is_ok_and(|probe| probe.status.success()) {
        eprintln!("skipped: no namespace for a host name here ({probe:?}); it needs root");
        return None;
    }
    let agent = folder.join("agent.sh");
    // Hydra calls it as it would call ssh, with flags in front of the host.
    let text = r#"#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
exec unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
"#;
    common::programs::write_program(&agent, text);
    Some(agent)
}

#[test]
fn ranks_on_two_hosts_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = remote_shell(folder.path()) else { return };
    let record = record_in(&folder);
    let agent = agent.to_str().unwrap();
    let mut flags = words(if FAMILY == "open-mpi" {
        "--launcher-arg=--mca --launcher-arg=plm_rsh_agent"
    } else {
        "--launcher-arg=-launcher --launcher-arg=ssh --launcher-arg=-launcher-exec"
    });
    flags.push(format!("--launcher-arg={agent}"));
    let mut command = Command::new(COMMGAUGE);
    // By routes, as Debian's Open MPI 5 asks for them, two hosts with one address do not reach each other.
    command.env("OMPI_MCA_reachable", "weighted");
    command.env("NO_COLOR", "1").arg("run").arg(tiny_suite(folder.path())).args(["-n", "4"]);
    command.args(["--hosts", "nodea:2,nodeb:2", "--record"]).arg(&record).args(flags);
    let ran = Ran::of(&mut command, 60).ended_with(0);
    assert!(ran.stdout.contains("4 ranks on 2 hosts"), "{}", ran.stdout);
    let lines = lines(&record);
    let ranks = lines[0]["ranks"].as_array().unwrap();
    let hosts: Vec<(&str, u64)> =
        ranks.iter().map(|rank| (rank["host"].as_str().unwrap(), rank["node"].as_u64().unwrap())).collect();
    assert_eq!(hosts, [("nodea", 0), ("nodea", 0), ("nodeb", 1), ("nodeb", 1)]);
    for case in of_kind(&lines, "plan")[0]["cases"].as_array().unwrap() {
        assert_eq!(
            (case["locality"]["nodes_spanned"].as_u64(), case["locality"]["ranks_per_node"].as_u64()),
            (Some(2), Some(2))
        );
    }
}

/// The quick suite with short sequences and few samples, so that it ends soon on a busy machine too.
fn hurried_quick_suite(folder: &Path) -> PathBuf {
    let mut text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/quick.toml")).unwrap();
    for (long, short) in [
        ("\"120ms\"", "\"1ms\""),
        ("minimum_samples = 10", "minimum_samples = 1"),
        ("maximum_samples = 20_000", "maximum_samples = 6"),
        ("replicates = 3", "replicates = 1"),
        ("[\"streaming\", \"isolated\"]", "[\"streaming\"]"),
        ("sequence = 2048", "sequence = 64"),
        ("sequence = 1024", "sequence = 64"),
        ("6_553_600", "65_536"),
        ("preset = \"llama-3-8b\"", "preset = \"llama-3-8b\"\nlayers = 2"),
        ("preset = \"qwen3-30b-a3b\"", "preset = \"qwen3-30b-a3b\", layers = 2"),
        ("preset = \"mixtral-8x7b\"", "preset = \"mixtral-8x7b\", layers = 2"),
    ] {
        assert!(text.contains(long), "{long}");
        text = text.replace(long, short);
    }
    let suite = folder.join("hurried.toml");
    fs::write(&suite, text).unwrap();
    suite
}

#[test]
fn the_quick_suite_ends_with_one_screen_that_ranks_every_parallelism() {
    let folder = tempfile::tempdir().unwrap();
    let suite = hurried_quick_suite(folder.path());
    for ranks in ["2", "4"] {
        let record = folder.path().join(format!("{ranks}.jsonl"));
        let mut command = Command::new(COMMGAUGE);
        command.env("NO_COLOR", "1").arg("run").arg(&suite).args(["-np", ranks, "--width", "80", "--record"]);
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        let ran = Ran::of(command.arg(&record), 240).ended_with(0);
        let text = &ran.stdout;
        assert!(text.lines().count() <= 22, "{text}");
        assert!(text.contains("predicted from calls of ") && text.contains("0 failed"), "{text}");
        for family in ["TP", "DP", "PP", "CP", "EP"] {
            let row =
                text.lines().find(|line| line.trim_start().starts_with(&format!("{family} ")) && line.contains('%'));
            assert!(row.is_some(), "{family}: {text}");
        }
        assert!(text.contains("TP > DP > PP"), "{text}");
        let report = format!("report {}", record.display());
        assert!(text.contains(&report), "the next command is one to type: {text}");

        let mut full = Command::new(COMMGAUGE);
        let full = Ran::of(full.arg("report").arg(&record).args(["--color", "never"]), 60).ended_with(0).stdout;
        assert!(full.lines().count() > 100 && full.contains("What each parallelism costs"), "{full}");
        assert!(full.matches("nothing to compare").count() <= 1, "{full}");
    }
}

#[test]
fn every_table_comes_with_full() {
    let folder = tempfile::tempdir().unwrap();
    let suite = tiny_suite(folder.path());
    let short = Ran::of(&mut run(&suite, &folder.path().join("short.jsonl"), &[]), 30).ended_with(0).stdout;
    assert!(short.contains("has no step of a model") && short.lines().count() <= 22, "{short}");
    assert!(!short.contains("busbw"), "{short}");
    let full = Ran::of(&mut run(&suite, &folder.path().join("full.jsonl"), &["--full"]), 30).ended_with(0).stdout;
    assert!(full.contains("busbw") && full.contains("measuring"), "{full}");
}
