//! What the outputs for other programs are worth to those programs: Prometheus' own checker and a real Prometheus read the metrics,
//! the alert rules and the queries of the dashboard, xmllint holds test reports to Jenkins' schema, systemd reads the units.
//! Skipped where a program is missing.

use crate::common;
use crate::offline::{commgauge, text};
use crate::records::{Made, machine, write};

use commgauge::record::Line;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// True where a program can be started; else the test says that it was skipped.
fn is_there(test: &str, program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        common::skipped(test, &format!("there is no {program}"));
    }
    found
}

fn monitoring(file: &str) -> PathBuf {
    Path::new(ROOT).join("scripts/monitoring").join(file)
}

/// A folder with nightly records of which the last three are slower, a base and a machine that expects more than they reach.
fn nights() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    fs::create_dir(folder.path().join("runs")).expect("a folder");
    for night in 0..9u64 {
        // Enough samples for a 99th percentile.
        let mut made = Made { samples: 40, ..Made::steady(&format!("night-{night}"), 3, 7, night + 1) };
        if night > 5 {
            made.rows[1].iter_mut().for_each(|time| *time *= 1.4);
        }
        let mut lines = made.lines();
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.started_at = format!("2026-11-{:02}T03:00:00+00:00", night + 1);
        write(&folder.path().join(format!("runs/{night}.jsonl")), &lines);
    }
    fs::write(folder.path().join("m.toml"), machine("500GB/s")).expect("written");
    folder
}

/// What each command writes in a format.
fn outputs(folder: &Path, format: &str) -> Vec<(&'static str, String)> {
    [
        ("report", &["report", "runs/8.jsonl"][..]),
        ("gate", &["judge", "--part", "thresholds", "runs/8.jsonl", "--machine", "m.toml"]),
        ("compare", &["compare", "runs/0.jsonl", "runs/8.jsonl"]),
        ("history", &["history", "runs"]),
    ]
    .map(|(name, words)| (name, text(&commgauge(folder, &[words, &["--format", format]].concat()).stdout)))
    .into()
}

/// A program that reads a text on its standard input.
fn fed(program: &str, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn promtool_finds_nothing_to_say_about_the_metrics_of_any_command() {
    if !is_there("metrics", "promtool") {
        return;
    }
    let folder = nights();
    for (name, metrics) in outputs(folder.path(), "prometheus") {
        assert!(metrics.contains("collective=\"all_reduce\"") && metrics.contains("bytes=\""), "{name}: {metrics}");
        let checked = fed("promtool", &["check", "metrics"], &metrics);
        let said = text(&checked.stdout) + &text(&checked.stderr);
        assert!(checked.status.success() && said.is_empty(), "{name}: {said}\n{metrics}");
    }
    // The checker sees what it should.
    let wrong = "# HELP x_seconds X.\n# TYPE x_seconds gauge\nx_seconds{quantile=\"0.5\"} 1\n";
    assert!(!fed("promtool", &["check", "metrics"], wrong).status.success());
}

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    if !is_there("alerts", "promtool") {
        return;
    }
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]] {
        let mut command = Command::new("promtool");
        let ran = command.args(words).current_dir(monitoring("")).output().expect("it runs");
        assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    }
}

#[test]
fn test_reports_are_valid_by_the_schema_of_jenkins_and_have_times() {
    if !is_there("junit", "xmllint") {
        return;
    }
    let folder = nights();
    let schema = Path::new(ROOT).join("tests/data/foreign/junit-10.xsd").display().to_string();
    for (name, report) in outputs(folder.path(), "junit") {
        let checked = fed("xmllint", &["--noout", "--nonet", "--schema", &schema, "-"], &report);
        assert!(checked.status.success(), "{name}: {}\n{report}", text(&checked.stderr));
        assert_eq!(report.contains("time=\""), name == "report", "{name}: {report}");
    }
}

/// Serves texts by HTTP until the process ends, as the node exporter would; returns where.
fn served(metrics: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream.try_clone().expect("a handle")).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{metrics}", metrics.len());
        }
    });
    address
}

/// The body of what a server answers; empty while it does not.
fn asked(address: &str, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
    }
    answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

fn encoded(query: &str) -> String {
    query
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { (byte as char).into() } else { format!("%{byte:02X}") })
        .collect()
}

/// A Prometheus of its own, which ends with the test.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(folder: &Path, target: &str) -> Prometheus {
        let rules = monitoring("alerts.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n  - job_name: node\n    \
             static_configs: [{{ targets: ['{target}'] }}]\n",
            rules.display()
        );
        fs::write(folder.join("prometheus.yml"), config).expect("written");
        // A port that is free now; who takes it in between makes the start fail, which is seen.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").to_string();
        let mut command = Command::new("prometheus");
        command.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &format!("--web.listen-address={address}"),
        ]);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Prometheus { child: command.spawn().expect("it starts"), address }
    }

    fn query(&self, expression: &str) -> serde_json::Value {
        let body = asked(&self.address, &format!("/api/v1/query?query={}", encoded(expression)));
        serde_json::from_str(&body).unwrap_or_default()
    }

    /// Waits until a query has a result, and returns how many series.
    #[track_caller]
    fn series(&self, expression: &str) -> usize {
        let start = Instant::now();
        loop {
            let answer = self.query(expression);
            assert_ne!(answer["status"], "error", "{expression}: {answer}");
            let found = answer["data"]["result"].as_array().map_or(0, Vec::len);
            if found > 0 {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{expression}: {answer}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn a_real_prometheus_has_data_for_every_panel_and_raises_the_alerts() {
    if !is_there("prometheus", "prometheus") {
        return;
    }
    let folder = nights();
    let metrics: String = outputs(folder.path(), "prometheus").into_iter().map(|(_, metrics)| metrics).collect();
    // One page of metrics has each heading once, as the node exporter sees to for its files.
    let mut seen = std::collections::HashSet::new();
    let metrics: String = (metrics.lines())
        .filter(|line| !line.starts_with('#') || seen.insert(line.to_owned()))
        .map(|line| format!("{line}\n"))
        .collect();
    let prometheus = Prometheus::start(folder.path(), &served(metrics));
    let dashboard = fs::read_to_string(monitoring("grafana-dashboard.json")).expect("it is shipped");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression =
                target["expr"].as_str().expect("a query").replace("$suite", ".*").replace("$collective", ".*");
            assert!(prometheus.series(&expression) > 0);
            expressions += 1;
        }
    }
    assert!(expressions >= 9, "{expressions}");
    for alert in ["ClusterBelowExpectation", "ClusterSlowerThanBase", "ClusterSlowerSinceChange"] {
        assert_eq!(prometheus.series(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}")), 1);
    }
    assert_eq!(prometheus.query("ALERTS{alertname=\"WrongData\"}")["data"]["result"], serde_json::json!([]));
}

/// Runs the nightly script where `commgauge` is played by a shell line; the exit code, and its calls.
fn nightly(commgauge: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("commgauge");
    common::programs::write_program(&program, format!("#!/bin/sh\necho \"$@\" >>calls\n{commgauge}\n"));
    let mut command = Command::new(monitoring("nightly"));
    command.args(["-n", "2"]).current_dir(folder.path()).stdin(Stdio::null());
    command.env("COMMGAUGE", "./commgauge").env("COMMGAUGE_MACHINE", "m").env("COMMGAUGE_BASE", "base.jsonl");
    let ran = command.output().expect("it runs");
    (ran.status.code(), fs::read_to_string(folder.path().join("calls")).unwrap_or_default())
}

#[test]
fn the_nightly_script_ends_with_the_worst_code_of_all_that_it_calls() {
    let record = "[ $1 = run ] && echo x >$4";
    for (line, expected) in [
        ("exit 0", 0),
        ("[ $1 = judge ] && exit 1; exit 0", 1),
        ("[ $1 = compare ] && exit 3; exit 0", 3),
        ("[ $1 = judge ] && exit 1; [ $1 = compare ] && exit 3; exit 0", 1),
        ("[ $1 = run ] && exit 4; [ $1 = judge ] && exit 1; exit 0", 4),
        ("[ $1 = run ] && exit 143; [ $1 = judge ] && exit 7; exit 0", 143),
        // In the first nights.
        ("[ $1 = history ] && exit 3; exit 0", 0),
    ] {
        let (code, calls) = nightly(&format!("{record}\n{line}"));
        assert_eq!(code, Some(expected), "{line}: {calls}");
        let first: Vec<&str> = calls.lines().filter_map(|call| call.split(' ').next()).collect();
        assert_eq!(first, ["run", "report", "judge", "compare", "report", "history", "history"], "{calls}");
    }
    // Without a record there is nothing to show.
    assert_eq!(nightly("exit 0").0, Some(6));
    assert_eq!(nightly("exit 2").0, Some(2));
}

#[test]
fn systemd_takes_the_units() {
    if !is_there("units", "systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for name in ["commgauge-nightly.service", "commgauge-nightly.timer"] {
        let unit = fs::read_to_string(monitoring(name)).expect("it is shipped");
        // It asks for the program at its place.
        let unit =
            unit.replace("/srv/commgauge/scripts/monitoring/nightly", &monitoring("nightly").display().to_string());
        fs::write(folder.path().join(name), unit).expect("written");
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "./commgauge-nightly.timer"]).current_dir(folder.path());
    let ran = command.output().expect("it runs");
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
}

#[test]
fn the_scrontab_has_options_of_sbatch_and_starts_the_nightly_script_once_a_night() {
    let text = fs::read_to_string(monitoring("nightly.scrontab")).expect("it is shipped");
    let options: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#SCRON ")).collect();
    // Those of the shipped jobs, which a real Slurm takes in the tests on several hosts.
    let known = ["--job-name=", "--nodes=", "--ntasks-per-node=", "--exclusive", "--time="];
    let is_known = |option: &&str| known.iter().any(|known| option.starts_with(known));
    assert!(options.len() == known.len() && options.iter().all(is_known), "{options:?}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    let fields: Vec<&str> = line.split(' ').collect();
    let (times, command) = fields.split_at(5);
    let within = [59, 23, 31, 12, 7];
    let is_time = |(field, most): (&&str, u32)| *field == "*" || field.parse::<u32>().is_ok_and(|at| at <= most);
    assert!(times.iter().zip(within).all(is_time) && times[1] != "*", "{times:?}");
    assert_eq!(command.last(), Some(&"scripts/monitoring/nightly"), "{line}");
    assert!(monitoring("nightly").is_file());
}

/// Python with the packages that scripts/fetch-readers puts aside, in a folder of its own; none where a package is missing.
fn python(test: &str, package: &str, folder: &Path, words: &[&str]) -> Option<Output> {
    let packages = Path::new(ROOT).join("target/tools/readers");
    let command = |words: &[&str]| {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &packages).env("HOME", folder).current_dir(folder).args(words);
        command.stdin(Stdio::null()).output().ok()
    };
    if !command(&["-c", &format!("import {package}")]).is_some_and(|ran| ran.status.success()) {
        common::skipped(test, &format!("python3 has no {package}; scripts/fetch-readers gets it"));
        return None;
    }
    command(words)
}

/// ReFrame's exit code and what it prints, with a check; none where it is missing.
fn reframe(folder: &Path, check: &Path, words: &[&str]) -> Option<(Option<i32>, String)> {
    let call = "import sys; from reframe.frontend.cli import main; sys.exit(main())";
    let check = check.display().to_string();
    let words = [&["-c", call, "-c", &check, "--system=generic"], words].concat();
    python("the ReFrame check", "reframe", folder, &words).map(|ran| (ran.status.code(), text(&ran.stdout)))
}

#[test]
fn reframe_lists_the_check_measures_with_it_and_fails_by_its_verdict() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = format!("program={}", common::COMMGAUGE);
    let reframe = |words: &[&str]| reframe(folder.path(), &monitoring("reframe_commgauge.py"), words);
    let Some((code, listed)) = reframe(&["--list"]) else { return };
    assert!(code == Some(0) && listed.contains("Found 1 check(s)"), "{listed}");
    let run = ["-S", &program, "-S", "suite=smoke", "-S", "ranks=8", "-r"];
    let simulated = "flags=--backend simulated --machine h100-nvswitch-ndr";
    let (code, ran) = reframe(&[&run[..], &["-S", simulated]].concat()).expect("it is there");
    assert!(code == Some(0) && ran.contains("Ran 1/1 test case(s)"), "{ran}");
    assert!(ran.contains("_latency: ") && ran.contains("_busbw: ") && ran.contains(" GB/s"), "{ran}");
    // A simulated run never passes, so that its verdict is another one than the check accepts.
    let judged = [&run[..], &["-S", "machine=h100-nvswitch-ndr", "-S", "flags=--backend simulated"]].concat();
    let (code, judged) = reframe(&judged).expect("it is there");
    assert!(code == Some(1) && judged.contains("commgauge judge ended with"), "{judged}");
}

#[test]
fn references_of_a_site_judge_the_rows_that_reframe_gets_and_none_is_about_nothing() {
    const ROW: &str = "world_all_gather_bfloat16_4096_in_place_isolated_busbw";
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    fs::copy(monitoring("reframe_commgauge.py"), folder.path().join("reframe_commgauge.py")).expect("copied");
    for (row, floor, code, expected) in [
        (ROW, "0.001", 0, "Ran 1/1 test case(s)"),
        (ROW, "900000.0", 1, "failed to meet reference(s)"),
        ("world_all_gather_bfloat16_4069_in_place_isolated_busbw", "0.001", 1, &format!("did you mean {ROW}?")),
    ] {
        let site = folder.path().join("site.py");
        let class = format!(
            "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport reframe as rfm\n\
             from reframe_commgauge import CommgaugeCheck\n\n@rfm.simple_test\nclass Nightly(CommgaugeCheck):\n    \
             program, suite, ranks = '{}', 'smoke', 8\n    flags = '--backend simulated --machine h100-nvswitch-ndr'\n    \
             reference = {{'generic:default': {{'{row}': ({floor}, -0.05, None, 'GB/s')}}}}\n",
            common::COMMGAUGE
        );
        fs::write(&site, class).expect("written");
        let Some((ended, printed)) = reframe(folder.path(), &site, &["-r"]) else { return };
        assert!(ended == Some(code) && printed.contains(expected), "{row} {floor}: {printed}");
    }
}

#[test]
fn the_dashboard_has_no_key_and_no_value_that_grafanas_own_types_do_not_know() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let script = r"
import json, sys
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
plugins.register_default_plugins()
ours = json.load(open(sys.argv[1]))
theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
def lost(a, b, path):
    if isinstance(a, dict) and isinstance(b, dict):
        return [x for key in a for x in (lost(a[key], b[key], path + '.' + key) if key in b else [path + '.' + key])]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [x for number, (one, other) in enumerate(zip(a, b)) for x in lost(one, other, f'{path}[{number}]')]
    return [] if a == b else [path]
print(len(ours['panels']), *lost(ours, theirs, ''))
";
    let dashboard = monitoring("grafana-dashboard.json").display().to_string();
    let words = ["-c", script, &dashboard];
    let Some(ran) = python("Grafana's types", "grafana_foundation_sdk", folder.path(), &words) else { return };
    assert_eq!(text(&ran.stdout).trim(), "9", "{}", text(&ran.stderr));
}
