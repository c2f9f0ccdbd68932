//! `commgauge-step --trace` between real ranks: traces of jobs, whole and harmed.

use crate::common;

use common::{COMMGAUGE, Ran, STEP, launcher, lines, of_kind, record_in};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Replays files on that many ranks.
fn replay(ranks: u32, files: &[PathBuf], flags: &[&str], code: i32) -> (Ran, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(ranks);
    command.arg(STEP).arg("--trace").args(files).args(flags).arg("--record").arg(&record);
    let ran = Ran::of(&mut command, 60).ended_with(code);
    let lines = if code == 0 { lines(&record) } else { Vec::new() };
    (ran, lines)
}

/// Axis, calls, payload and wire bytes of the busiest rank.
fn axes(record: &[Value]) -> Vec<(String, u64, u64, u64)> {
    let replay = &of_kind(record, "replay")[0];
    assert_eq!(replay["outcome"], json!({"status": "measured", "verified": true}), "{replay}");
    assert_eq!((&replay["bytes_as_listed"], &replay["schedule"]), (&json!(true), &json!("trace")), "{replay}");
    let axis = |axis: &Value| {
        let number = |key: &str| axis[key].as_u64().unwrap();
        let name = axis["axis"].as_str().unwrap().to_owned();
        (name, number("calls_counted"), number("payload_bytes_counted"), number("wire_bytes_counted"))
    };
    replay["axes"].as_array().unwrap().iter().map(axis).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces").join(name)
}

#[test]
fn the_dumps_of_a_real_job_are_replayed_call_by_call() {
    let files: Vec<PathBuf> = (0..4).map(|rank| data(&format!("fr_trace_rank_{rank}"))).collect();
    let (ran, record) = replay(4, &files, &["--tp", "2", "--dp", "2", "--replay-repetitions", "3"], 0);
    // job.py, two steps: on tp twice 2 x 64 x 32 bfloat16 gathered and 64 x 32 reduced, on dp 1000 floats, on all 4 floats and a barrier.
    let (gathered, reduced) = (2 * 64 * 32 * 2, 64 * 32 * 2);
    let expected = [
        ("tp".to_owned(), 8, 4 * gathered + 4 * reduced, 4 * gathered / 2 + 4 * reduced),
        ("dp".to_owned(), 2, 2 * 4000, 2 * 4000),
        ("world".to_owned(), 4, 2 * 16, 2 * 16),
    ];
    assert_eq!(axes(&record), expected);
    assert!(ran.stdout.contains("every rank moved exactly the bytes of the trace"), "{}", ran.stdout);
    let notes = of_kind(&record, "header")[0]["notes"].to_string();
    assert!(notes.contains("lacks the durations of the calls of ranks 0-3"), "{notes}");
}

/// An event of a call and its kernel, in microseconds.
fn call(id: u64, name: &str, at: u64, long: u64, group: &[u32], args: Value) -> [Value; 2] {
    let mut host = json!({"External id": id, "Collective name": name, "dtype": "Float", "Group size": group.len(),
        "Process Group Name": format!("{group:?}"), "Process Group Ranks": format!("{group:?}")});
    host.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
    [
        json!({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": at - 5, "dur": 1, "args": host}),
        json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "ts": at, "dur": long,
            "args": {"External id": id, "Collective name": name}}),
    ]
}

fn elements(sent: u64, received: u64) -> Value {
    json!({"In msg nelems": sent, "Out msg nelems": received})
}

/// What the profiler leaves of a job of tp 2 x dp 2 on GPUs, as its source writes it.
fn profile(rank: u32) -> Value {
    let (tp, dp) = ([rank / 2 * 2, rank / 2 * 2 + 1], [rank % 2, rank % 2 + 2]);
    let mut events: Vec<Value> = Vec::new();
    events.extend(call(1, "_allgather_base", 1_000, 500, &tp, elements(512, 1024)));
    events.push(json!({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1_500, "dur": 2_000, "args": {}}));
    // During 3 ms of a product.
    events.extend(call(2, "allreduce", 3_500, 4_000, &dp, elements(4096, 4096)));
    events.push(json!({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 3_600, "dur": 3_000, "args": {}}));
    let ends = json!({"Src Rank": dp[0], "Dst Rank": dp[1]});
    let message = |name, mut of: Value| {
        of.as_object_mut().unwrap().extend(ends.as_object().unwrap().clone());
        call(3, name, 8_500, 100, &dp, of)
    };
    events.extend(match rank < 2 {
        true => message("send", elements(256, 256)),
        false => message("recv", elements(256, 256)),
    });
    // Rank r sends r rows of 8 to each, so that the last sends most.
    let (rows, sent) = (vec![rank; 4], 32 * u64::from(rank));
    let exchange = json!({"In msg nelems": sent, "Out msg nelems": 48, "In split size": format!("{rows:?}")});
    events.extend(call(4, "all_to_allv", 9_000, 200, &[0, 1, 2, 3], exchange));
    json!({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}, "traceEvents": events})
}

/// The files of that job, as `change` makes them.
fn job(folder: &Path, change: impl Fn(u32, &mut Value)) -> Vec<PathBuf> {
    let write = |rank| {
        let (mut profile, path) = (profile(rank), folder.join(format!("trace-rank{rank}.json")));
        change(rank, &mut profile);
        std::fs::write(&path, profile.to_string()).unwrap();
        path
    };
    (0..4).map(write).collect()
}

#[test]
fn a_profile_is_replayed_with_its_overlap_its_messages_and_its_uneven_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let files = job(folder.path(), |_, _| {});
    let (ran, record) = replay(4, &files, &["--tp", "2", "--dp", "2", "--replay-repetitions", "3"], 0);
    // Rank 3 sends 32 x 3 floats, of which a quarter stays.
    let exchange = (4 * 96, 4 * 72);
    let expected = [
        ("tp".to_owned(), 1, 4096, 2048),
        ("dp".to_owned(), 2, 4096 * 4 + 1024, 4096 * 4 + 1024),
        ("world".to_owned(), 1, exchange.0, exchange.1),
    ];
    assert_eq!(axes(&record), expected);
    let replay = &of_kind(&record, "replay")[0];
    // 2 ms before the all_reduce, 3 ms during it, and 1 ms and 400 us between the others.
    let computing = replay["computing_nanoseconds_median"].as_u64().unwrap();
    assert!((6_400_000..60_000_000).contains(&computing), "{computing}");
    assert_eq!(replay["job_nanoseconds"], 8_200_000);
    assert!(ran.stdout.contains("the job itself took 8.20 ms"), "{}", ran.stdout);
}

#[test]
fn a_profile_of_gloo_is_replayed_where_the_layout_has_one_group_alone() {
    let folder = tempfile::tempdir().unwrap();
    // gloo's profile does not say to whom a message goes, and the job has one.
    let without_messages = |rank: u32| {
        let mut text = String::new();
        let file = std::fs::File::open(data(&format!("kineto-rank{rank}.json.gz"))).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let mut profile: Value = serde_json::from_str(&text).unwrap();
        let events = profile["traceEvents"].as_array_mut().unwrap();
        events.retain(|event| !matches!(event["name"].as_str(), Some("gloo:send" | "gloo:recv")));
        let path = folder.path().join(format!("kineto-rank{rank}.json"));
        std::fs::write(&path, profile.to_string()).unwrap();
        path
    };
    let files: Vec<PathBuf> = (0..4).map(without_messages).collect();
    let (_, record) = replay(4, &files, &["--dp", "4", "--replay-repetitions", "2"], 0);
    let axes = axes(&record);
    assert_eq!(axes.iter().map(|(axis, calls, ..)| (axis.as_str(), *calls)).collect::<Vec<_>>(), [("dp", 14)]);
}

#[test]
fn traces_that_are_not_the_whole_job_are_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let layout = ["--tp", "2", "--dp", "2"];
    let files = job(folder.path(), |_, _| {});
    let harmed = |name: &str, change: &dyn Fn(u32, &mut Value)| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        job(&folder, change)
    };
    let renamed = harmed("unknown", &|rank, profile| {
        if rank == 1 {
            profile["traceEvents"][0]["args"]["Collective name"] = "ring_of_dreams".into();
        }
    });
    let cut = harmed("cut", &|rank, profile| {
        if rank == 2 {
            profile["traceEvents"].as_array_mut().unwrap().truncate(3);
        }
    });
    let model = ["--tp", "2", "--dp", "2", "--sequence", "16"];
    let gloo: Vec<PathBuf> = (0..4).map(|rank| data(&format!("kineto-rank{rank}.json.gz"))).collect();
    for (files, flags, words) in [
        (&files[..3], &layout[..], "the files lack 1 of 4 ranks: 3"),
        (&renamed[..], &layout, "1 calls have an unknown kind, such as ring_of_dreams"),
        (&cut[..], &layout, "whose trace lacks it"),
        (&files[..], &[], "accepted: the degrees of the job (--tp, --dp"),
        (&files[..], &model, "--trace: a trace says itself what is called, and takes no --sequence"),
        (&gloo[..], &layout, "lacks the ranks of a group"),
    ] {
        let (ran, _) = replay(4, files, flags, 2);
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    let (ran, _) = replay(2, &files, &["--tp", "2"], 2);
    assert!(ran.stderr.contains("the job had 4 ranks, but this launch has 2"), "{}", ran.stderr);
}

/// The layout of the list of its step has copies of shards, which no degree says.
#[test]
fn a_real_job_over_nccl_is_replayed_on_the_groups_of_its_list() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("step.json");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/frameworks/llama/config.json");
    let mut ops = Command::new(COMMGAUGE);
    ops.args(["ops", "--format", "json", "--sequence", "64", "--small-calls", "none", "--framework", "torchtitan"]);
    ops.args(["--dp", "4", "--micro-batches", "2", "--data-style", "hsdp", "--replicas-of-shards", "2", "--model"]);
    std::fs::write(&list, ops.arg(model).output().unwrap().stdout).unwrap();
    let list = list.display().to_string();
    let file = |rank| data(&format!("nccl/fsdp2-torchtitan-hsdp-kineto-rank{rank}.json.gz"));
    let files: Vec<PathBuf> = (0..4).map(file).collect();
    let (ran, record) = replay(4, &files, &["--ops", &list, "--replay-repetitions", "1"], 0);
    // What the list says itself of a rank's step: as many calls and bytes.
    let listed: Value = serde_json::from_slice(&std::fs::read(&list).unwrap()).unwrap();
    let expected = ["dp_shard", "dp_replicate"].map(|name| {
        let ops = listed["ops"].as_array().unwrap().iter().filter(|op| op["axis"] == name);
        let bytes = |key: &str| listed["axes"][name][key].as_u64().unwrap();
        let calls = ops.map(|op| op["count_per_step"].as_u64().unwrap()).sum();
        (name.to_owned(), calls, bytes("payload_bytes_per_step"), bytes("wire_bytes_per_step"))
    });
    assert_eq!(axes(&record), expected);
    assert!(ran.stdout.contains("every rank moved exactly the bytes of the trace"), "{}", ran.stdout);
    for (ranks, flags, said) in [
        (2, &["--ops", &list][..], "is of 4 ranks, and this launch has 2"),
        (4, &["--ops", &list, "--dp", "4"], "accepted: no --tp, --dp and the like with it"),
        (4, &["--dp", "4"], "which is not in the layout"),
    ] {
        let (ran, _) = replay(ranks, &files, flags, 2);
        assert!(ran.stderr.contains(said), "{flags:?}: {}", ran.stderr);
    }
}
