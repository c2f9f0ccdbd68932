//! `commgauge trace` of what a real job of PyTorch on gloo left: what it called is in tests/data/traces/job.py.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn data(name: &str) -> String {
    format!("{}/tests/data/traces/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn traced(files: &[String], more: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["trace", "--format", "json"];
    arguments.extend(files.iter().map(String::as_str));
    arguments.extend(more);
    let output = commgauge(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Call, type, bytes and calls of a rank in a step, in no order.
fn calls(document: &Value) -> Vec<(String, String, u64, f64)> {
    let lines = document["calls"].as_array().expect("calls");
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut calls: Vec<(String, String, u64, f64)> = lines
        .iter()
        .map(|line| {
            let (bytes, count) = (line["bytes_total"].as_u64().unwrap(), line["calls_per_step"].as_f64().unwrap());
            (word(&line["call"]), word(&line["element_type"]), bytes, count)
        })
        .collect();
    calls.sort_by(|one, other| one.partial_cmp(other).expect("finite"));
    calls
}

/// What job.py calls in a step, on the rank with the most of each. A message has 128 x 32 floats.
fn expected(all_gather_bytes: u64) -> Vec<(String, String, u64, f64)> {
    [
        ("all_gather", "bfloat16", all_gather_bytes, 2.0),
        ("all_reduce", "bfloat16", 64 * 32 * 2, 2.0),
        ("all_reduce", "float32", 4000, 1.0),
        ("barrier", "-", 0, 1.0),
        ("broadcast", "float32", 16, 1.0),
        ("receive", "float32", 128 * 32 * 4, 1.0),
        ("send", "float32", 128 * 32 * 4, 1.0),
    ]
    .map(|(call, element, bytes, count)| (call.to_owned(), element.to_owned(), bytes, count))
    .to_vec()
}

#[test]
fn every_call_of_a_real_job_is_found_in_its_flight_recorder_as_pickle_and_as_json() {
    let pickles: Vec<String> = (0..4).map(|rank| data(&format!("fr_trace_rank_{rank}"))).collect();
    let document = traced(&pickles, &["--steps", "2"]);
    let mut found = calls(&document);
    // Each group of two has calls of its own, as gloo does not say that they are the same axis.
    found.dedup();
    let mut expected = expected(2 * 64 * 32 * 2);
    // gloo's recorder leaves messages out.
    expected.retain(|(call, ..)| call != "send" && call != "receive");
    assert_eq!(found, expected, "{document:#}");
    assert_eq!((&document["ranks"], &document["sources"][0]), (&"0-3".into(), &"flight recorder".into()));
    let one = |file: &str| calls(&traced(&[data(file)], &["--steps", "2"]));
    assert_eq!(one("fr_json_rank_0.json"), one("fr_trace_rank_0"));
}

#[test]
fn groups_of_which_a_trace_has_the_name_alone_are_found_by_who_calls_on_them() {
    let pickles: Vec<String> = (0..4).map(|rank| data(&format!("fr_trace_rank_{rank}"))).collect();
    let places = |files: &[String]| {
        let document = traced(files, &["--steps", "2", "--tp", "2", "--dp", "2"]);
        let calls = document["calls"].as_array().expect("calls").iter();
        calls.map(|line| line["place"].as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<String> = ["tp", "dp", "world"].map(str::to_owned).into();
    assert_eq!(places(&pickles), all);
    let profiles: Vec<String> = (0..4).map(|rank| data(&format!("kineto-rank{rank}.json.gz"))).collect();
    let alone = traced(&profiles, &["--dp", "4"]);
    let lines = alone["calls"].as_array().expect("calls");
    assert!(lines.iter().all(|line| line["place"] == "dp"), "a layout of one group leaves no other: {alone:#}");
    assert!(lines.iter().all(|line| line["group_size"] == 4), "and its ranks are those of the layout: {alone:#}");
    let one_file = traced(&pickles[..1], &["--steps", "2", "--dp", "4"]);
    let lines = one_file["calls"].as_array().expect("calls");
    let of_two = |line: &&Value| line["group_size"] == 2;
    assert!(lines.iter().filter(|line| !of_two(line)).all(|line| line["place"] == "dp"), "{one_file:#}");
    // Two all_gathers of a step are of 64 x 32 bfloat16 of each rank, of which gloo's profile has one rank's part.
    assert!(calls(&alone).iter().any(|(call, _, bytes, _)| (call.as_str(), *bytes) == ("all_gather", 4 * 64 * 32 * 2)));
}

#[test]
fn every_call_of_a_real_job_is_found_in_the_traces_of_its_profiler_with_its_times() {
    let traces: Vec<String> = (0..4).map(|rank| data(&format!("kineto-rank{rank}.json.gz"))).collect();
    let document = traced(&traces, &["--steps", "2"]);
    // gloo's events have what a rank passes in, and no group from which the whole would follow.
    assert_eq!(calls(&document), expected(64 * 32 * 2), "{document:#}");
    assert!(document["calls"].as_array().unwrap().iter().all(|line| line["seconds_median"].as_f64().unwrap() > 0.0));
    assert_eq!(document["job_ranks"], 4);
    assert!(document["notes"][0].as_str().unwrap().contains("do not name"), "{}", document["notes"]);
    let some = traced(&traces[..2], &[]);
    assert!(some["notes"].to_string().contains("the files lack 2 of 4 ranks: 2-3"), "{}", some["notes"]);
}

#[test]
fn the_terminal_shows_it_in_80_columns_and_what_is_no_trace_ends_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let pickles: Vec<String> = (0..4).map(|rank| data(&format!("fr_trace_rank_{rank}"))).collect();
    let mut arguments = vec!["trace", "--steps", "2", "--width", "80"];
    arguments.extend(pickles.iter().map(String::as_str));
    let output = commgauge(folder.path(), &arguments);
    insta::assert_snapshot!("trace_80_columns", text(&output.stdout));
    for (name, content) in [("rank0.json", &b"{\"entries\": 5}"[..]), ("rank0", b"\x80\x04\x95"), ("rank0.txt", b"")] {
        std::fs::write(folder.path().join(name), content).expect("written");
        let output = commgauge(folder.path(), &["trace", name]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(name) && said.lines().count() <= 3, "{name}: {said}");
    }
    assert!(Path::new(&data("job.py")).exists(), "what it called is there to read");
}

/// The logs of NCCL's inspector: what its processes called is in tests/data/traces/README.md.
fn inspector_logs() -> Vec<String> {
    [26_916, 26_918, 26_920, 26_922].map(|process| data(&format!("vm-pid{process}.log.gz"))).to_vec()
}

#[test]
fn every_call_is_found_in_the_logs_of_an_inspector_of_nccl_and_who_is_late_is_named() {
    let document = traced(&inspector_logs(), &["--steps", "12", "--tp", "2", "--dp", "2"]);
    let mut places: Vec<(&str, &str)> = (document["calls"].as_array().unwrap().iter())
        .map(|call| (call["call"].as_str().unwrap(), call["place"].as_str().unwrap()))
        .collect();
    places.sort_unstable();
    let expected = [
        ("all_gather", 131_072, 2.0),
        ("all_reduce", 4, 1.0),
        ("all_reduce", 1_000_000, 1.0),
        ("receive", 16_384, 1.0),
        ("reduce_scatter", 131_072, 1.0),
        ("send", 16_384, 1.0),
    ]
    .map(|(call, bytes, count)| (call.to_owned(), "-".to_owned(), bytes, count));
    assert_eq!(calls(&document), expected, "{document:#}");
    let expected = [
        ("all_gather", "tp"),
        ("all_reduce", "dp"),
        ("all_reduce", "world"),
        ("receive", "dp"),
        ("reduce_scatter", "tp"),
        ("send", "dp"),
    ];
    assert_eq!(places, expected, "{document:#}");
    assert_eq!((&document["ranks"], &document["job_ranks"]), (&"0-3".into(), &4.into()));
    let late: Vec<u64> =
        document["late_ranks"].as_array().unwrap().iter().map(|late| late["rank"].as_u64().unwrap()).collect();
    assert_eq!(late, [1, 3], "{document:#}");
    assert_eq!(document["notes"].as_array().unwrap().len(), 0, "{document:#}");
}

#[test]
fn a_suite_of_the_inspectors_calls_needs_their_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |more: &[&str]| {
        let mut arguments = vec!["trace", "--tp", "2", "--dp", "2", "-o", "job.toml"];
        let logs = inspector_logs();
        arguments.extend(logs.iter().map(String::as_str));
        arguments.extend(more);
        commgauge(folder.path(), &arguments)
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("(--element-type)"), "{}", text(&output.stderr));
    let output = run(&["--element-type", "bfloat16"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let suite = std::fs::read_to_string(folder.path().join("job.toml")).expect("a suite");
    assert!(suite.contains("axis = \"tp\"\ncollectives = \"all_gather\"\nelement_types = \"bfloat16\""), "{suite}");
    let pickle = data("fr_trace_rank_0");
    let output = commgauge(folder.path(), &["trace", &pickle, "--element-type", "bfloat16"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("says the type of every call"), "{}", text(&output.stderr));
}

#[test]
fn one_log_of_an_inspector_says_its_rank_and_two_kinds_of_traces_are_not_counted_twice() {
    let document = traced(&inspector_logs()[2..3], &[]);
    assert_eq!((&document["ranks"], &document["job_ranks"]), (&"2".into(), &4.into()), "{document:#}");
    assert!(document["notes"].to_string().contains("the files lack 3 of 4 ranks"), "{document:#}");
    let folder = tempfile::tempdir().expect("a folder");
    let both = [inspector_logs()[0].clone(), data("fr_trace_rank_0")];
    let output = commgauge(folder.path(), &["trace", &both[0], &both[1]]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("would be counted twice"), "{}", text(&output.stderr));
}

#[test]
fn traces_of_gpu_jobs_of_pytorch_and_chakra_are_read() {
    let document = traced(&[data("execution-trace-rank0.json.gz")], &[]);
    // Ten of one float on each of two ranks.
    assert_eq!(calls(&document), [("all_gather".to_owned(), "float32".to_owned(), 8, 10.0)], "{document:#}");
    assert_eq!((&document["job_ranks"], &document["calls"][0]["group_size"]), (&2.into(), &2.into()));
    let document = traced(&[data("chakra.0.et.gz")], &[]);
    assert_eq!(document["sources"][0], "Chakra execution trace");
    let broadcasts: Vec<(String, String, u64, f64)> = calls(&document);
    assert!(!broadcasts.is_empty(), "{document:#}");
}
