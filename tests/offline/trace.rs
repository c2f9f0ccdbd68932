//! `commgauge trace` of what a real job of PyTorch on gloo left: what it called is in tests/data/traces/job.py.

use crate::{common, offline};

use offline::{commgauge, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

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

// Exports of Nsight Systems, which tests/data/traces/nsys.py writes with Python's SQLite; what the processes called is there.

/// The files of these ranks, or none, and a word, without Python.
fn nsys(folder: &Path, ranks: &[u32], options: &[&str]) -> Option<Vec<String>> {
    let write = |rank: &u32| {
        let file = folder.join(format!("{}-rank{rank}.sqlite", options.join("-").replace('=', "-")));
        let mut command = Command::new("python3");
        let wrote = command.arg(data("nsys.py")).arg(&file).arg(rank.to_string()).args(options).output().ok()?;
        if !wrote.status.success() {
            assert!(text(&wrote.stderr).contains("No module named"), "{}", text(&wrote.stderr));
            return None;
        }
        Some(file.to_string_lossy().into_owned())
    };
    let files: Option<Vec<String>> = ranks.iter().map(write).collect();
    if files.is_none() {
        common::skipped("exports of Nsight Systems", "there is no python3 with sqlite3");
    }
    files
}

/// What ranks of nsys.py call in three steps, by place, call and bytes.
fn called_by_nsys(files: &[String]) -> Vec<String> {
    let document = traced(files, &["--steps", "3", "--tp", "2", "--dp", "2"]);
    let line = |line: &Value| {
        format!("{} {} {} x {}", line["place"], line["call"], line["bytes_total"], line["calls_per_step"])
    };
    document["calls"].as_array().expect("calls").iter().map(line).map(|line| line.replace('"', "")).collect()
}

const CALLED: [&str; 6] = [
    "world all_reduce 4 x 1.0",
    "tp all_gather 131072 x 2.0",
    "tp reduce_scatter 131072 x 1.0",
    "dp all_reduce 1000000 x 1.0",
    "dp send 16384 x 1.0",
    "dp receive 16384 x 1.0",
];

#[test]
fn calls_of_an_export_of_nsight_systems_have_sizes_groups_and_ranks_on_pages_of_any_size() {
    let folder = tempfile::tempdir().expect("a folder");
    for page in ["512", "1024", "4096", "8192", "65536"] {
        // Some thousand rows of up to 9000 bytes: pages above leaves, and overflow pages.
        for options in
            [["form=binary", "rows=900", &format!("page={page}")], ["form=json", "rows=5", &format!("page={page}")]]
        {
            let Some(files) = nsys(folder.path(), &[0, 1, 2, 3], &options) else { return };
            assert_eq!(called_by_nsys(&files), CALLED, "{options:?}");
        }
    }
    let kept: Vec<String> = (0..4).map(|rank| data(&format!("nsys-rank{rank}.sqlite"))).collect();
    assert_eq!(called_by_nsys(&kept), CALLED);
}

#[test]
fn what_an_export_of_nsight_systems_lacks_is_said_with_how_to_record_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |file: &str| {
        let output = commgauge(folder.path(), &["trace", file]);
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let unsized_calls =
        "ncclAllGather without its size (NCCL before 2.19, or an export without --include-blobs=true) (6)";
    for (options, code, expected) in [
        (
            ["form=late", "pid=7"],
            0,
            &["ranks 1, 1 step", "9 calls on communicators of unknown size", "1 call of unknown kinds: ncclPutSignal"]
                [..],
        ),
        (["form=unsized", "pid=7"], 2, &["18 calls of unknown kinds", unsized_calls]),
        (
            ["form=none", "rows=40"],
            2,
            &["without ranges of NCCL; accepted: of a job with NCCL 2.19 or later", "`nsys profile --trace=nvtx,cuda`"],
        ),
        (["form=json", "journal=wal"], 2, &["may be in a write-ahead log; accepted: after `sqlite3 FILE 'PRAGMA"]),
        (
            ["form=json", "also=3"],
            0,
            &["all_reduce of a process with several ranks of a communicator (3)", "ncclPutSignal"],
        ),
    ] {
        let Some(files) = nsys(folder.path(), &[1], &options) else { return };
        let (ended, said) = run(&files[0]);
        for expected in expected {
            assert!(ended == Some(code) && said.contains(expected), "{options:?}: {ended:?} {said}");
        }
    }
}

#[test]
fn a_job_of_more_ranks_than_there_can_be_is_refused_before_they_fill_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let call = r#"{"ph": "X", "name": "record_param_comms", "ts": 2.0, "dur": 1.0, "args": {"External id": 7, "Collective name": "allreduce",
        "dtype": "Float", "In msg nelems": 4, "Out msg nelems": 4, "Group size": 2, "Process Group Name": "0"}}"#;
    let group = r#""pg_config": [{"pg_name": "0", "pg_size": 4000000000, "ranks": []}]"#;
    let inspector = r#"{"header": {"id": "0x7f", "rank": 0, "n_ranks": 4000000000}, "metadata": {"inspector_output_format_version": "v4.0",
        "hostname": "n1", "pid": 7}, "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 8, "coll_exec_time_us": 1}}"#;
    for (text, code) in [
        (format!(r#"{{"distributedInfo": {{"rank": 0, "world_size": 4000000000}}, "traceEvents": [{call}]}}"#), 2),
        (format!(r#"{{"distributedInfo": {{"rank": 0, "world_size": 2, {group}}}, "traceEvents": [{call}]}}"#), 0),
        (inspector.to_owned(), 2),
    ] {
        std::fs::write(folder.path().join("rank0.json"), &text).expect("written");
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 4000000; exec \"$0\" trace rank0.json", common::COMMGAUGE]);
        let output = command.current_dir(folder.path()).output().expect("sh starts");
        let said = offline::text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}: {said}");
        assert!(code == 0 || said.contains("a job of 4000000000 ranks; accepted: up to 1048576"), "{said}");
    }
}

#[test]
fn a_rank_that_only_a_digit_of_a_name_tells_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, original) in [("fr-2.json", "fr_json_rank_0.json"), ("report1.json.gz", "execution-trace-rank0.json.gz")]
    {
        std::fs::copy(data(original), folder.path().join(name)).expect("copied");
        let said = text(&commgauge(folder.path(), &["trace", name]).stdout);
        assert!(said.contains(&format!("{name}: its rank is the last number of its name")), "{said}");
    }
    std::fs::copy(data("nsys-rank2.sqlite"), folder.path().join("report1.sqlite")).expect("copied");
    let said = text(&commgauge(folder.path(), &["trace", "report1.sqlite"]).stdout);
    assert!(said.contains("ranks 2 of 4") && !said.contains("last number"), "{said}");
}

#[test]
fn a_damaged_export_of_nsight_systems_is_used_up_to_the_damage_and_never_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(data("nsys-rank0.sqlite")).expect("read");
    let file = folder.path().join("cut-rank0.sqlite");
    let mut used = 0;
    for length in (0..whole.len()).step_by(512) {
        std::fs::write(&file, &whole[..length]).expect("written");
        let output = commgauge(folder.path(), &["trace", "cut-rank0.sqlite"]);
        let said = text(&output.stdout) + &text(&output.stderr);
        used += u32::from(said.contains("truncated or damaged database") && said.contains("which are used"));
        assert!(output.status.code() == Some(2) || said.contains("truncated or damaged"), "{length}: {said}");
    }
    assert!(used > 0);
}
