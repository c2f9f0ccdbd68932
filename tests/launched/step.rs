//! The step of a model measured op by op between real ranks: its ops are those that `commgauge ops` lists, its report ranks the
//! parallelisms, and what makes no sense is refused. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, Ran, STEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A model of a few thousand parameters, so that gradients and a whole replay need hardly any memory.
const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;
const QUICK: &str = "-n 3 -w 1 --replicates 2 --warm-buffers --format json";

/// The flags of its step, after its file was written.
fn model() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launched-step");
    std::fs::create_dir_all(&folder).unwrap();
    // Written to another file and renamed, as the tests of this file run at the same time.
    let (config, new) = (folder.join("config.json"), tempfile::NamedTempFile::new_in(&folder).unwrap());
    std::fs::write(new.path(), TINY).unwrap();
    new.persist(&config).unwrap();
    format!("--model {} --sequence 16 --micro-batches 4", config.display())
}

/// Runs `commgauge-step` and returns its report and the lines of its record.
fn step(ranks: u32, flags: &str) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(ranks);
    command.arg(STEP).args(words(flags)).arg("--record").arg(&record);
    let ran = Ran::of(&mut command, 60).ended_with(0);
    (serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stdout)), lines(&record))
}

/// What of an op must be the same in the list and in what was measured.
fn identity(op: &Value) -> Vec<String> {
    let keys = [
        "axis",
        "style",
        "collective",
        "element_type",
        "group_size",
        "bytes_total",
        "count_per_step",
        "wire_bytes_per_step",
    ];
    keys.iter().map(|key| op[key].to_string()).collect()
}

fn listed(ranks: u32, flags: &str) -> Vec<Vec<String>> {
    let mut command = Command::new(COMMGAUGE);
    command.arg("ops").args(words(flags)).args(["--format", "json", "--ranks", &ranks.to_string()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["ops"].as_array().unwrap().iter().map(identity).collect()
}

#[test]
fn what_is_measured_is_what_is_listed_with_the_same_bytes_and_counts() {
    for (ranks, layout) in [
        (4, "--tp 2 --dp 2"),
        (4, "--tp 2 --pp 2 --sequence-parallel"),
        (2, "--dp 2 --grad-type bf16 --style data"),
        (
            4,
            "--dp 4 --framework deepspeed --data-style zero3 --persistent-parameters 100 --quantised-parameters --quantised-gradients 2",
        ),
        (4, "--dp 4 --framework megatron --data-style hsdp --replicas-of-shards 2"),
        (4, "--tp 2 --pp 2 --framework megatron"),
        (3, "--dp 3 --framework megatron --data-style zero1 --bucket-rule layer_wise"),
    ] {
        let flags = format!("{} {layout}", model());
        let (report, record) = step(ranks, &format!("{flags} {QUICK}"));
        let [measured] = report["steps"].as_array().unwrap().as_slice() else { panic!("{report}") };
        let mut ops: Vec<_> = measured["ops"].as_array().unwrap().iter().map(identity).collect();
        let mut expected = listed(ranks, &flags);
        ops.sort();
        expected.sort();
        assert_eq!(ops, expected, "{layout}");
        assert_eq!(measured["whole"]["ops_without_a_time"], 0, "{layout}");
        let plan = &of_kind(&record, "plan")[0];
        assert_eq!(plan["steps"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn the_report_ranks_the_parallelisms_and_says_where_their_order_turns_round() {
    let (report, _) = step(4, &format!("{} --tp 2 --dp 2 {QUICK}", model()));
    let step = &report["steps"][0];
    let by = |name: &str| step["rankings"].as_array().unwrap().iter().find(|ranking| ranking["by"] == name).unwrap();
    // 4 layers of 4 calls of 2 KiB in 4 micro-batches against 4 bytes for each of 200,000 gradients.
    let wire = by("wire bytes");
    assert_eq!((wire["rule"].as_str(), wire["order"][0]["parallelism"].as_str()), (Some("does not hold"), Some("DP")));
    let crossover = &step["crossovers"][0];
    assert_eq!(crossover["between"], serde_json::json!(["TP", "DP"]));
    let axis = |name: &str| step["axes"].as_array().unwrap().iter().find(|totals| totals["name"] == name).unwrap();
    let bytes = |name: &str| axis(name)["wire_bytes_per_step"].as_f64().unwrap();
    let tokens = crossover["by_wire_bytes"]["tokens_per_replica"].as_f64().unwrap();
    let expected = step["tokens_per_replica"].as_f64().unwrap() * bytes("dp") / bytes("tp");
    assert!((tokens / expected - 1.0).abs() < 0.05, "{tokens} {expected}: but for small calls T* = T_d DP/TP");
    assert!(by("time")["order"].as_array().unwrap().len() == 2, "{}", by("time"));
}

#[test]
fn one_group_alone_is_compared_with_all_at_once() {
    let flags = format!("{} --tp 2 --pp 2 --style tensor --solo -n 3 -w 1 --warm-buffers --format json", model());
    let (report, record) = step(4, &flags);
    let pairs = report["contention"].as_array().unwrap();
    assert!(!pairs.is_empty());
    for pair in pairs {
        assert!(pair["case"].as_str().unwrap().starts_with("tp/"), "{pair}");
        assert_eq!((pair["groups"].as_u64(), pair["replicates"].as_u64()), (Some(2), Some(6)), "{pair}");
        assert!(pair["factor_median"].as_f64().unwrap() > 0.0 && pair["factor_interval_low"].is_f64(), "{pair}");
    }
    for case in of_kind(&record, "case") {
        assert_eq!(case["outcome"]["status"], "measured", "{case}");
    }
}

#[test]
fn a_step_is_launched_or_simulated_by_commgauge_run() {
    let folder = tempfile::tempdir().unwrap();
    let flags = format!("{} --tp 2 --pp 2 --style tensor,pipeline -n 3 -w 1 --replicates 2 --solo", model());
    for (name, backend, ranks) in [
        ("mpi", "--backend mpi", 4),
        ("simulated", "--backend simulated --machine suites/machines/h100-nvswitch-ndr.toml", 64),
    ] {
        let record = folder.path().join(format!("{name}.jsonl"));
        let mut command = Command::new(COMMGAUGE);
        command.args(["run", "--step", "-n", &ranks.to_string(), "--format", "json", "--record"]).arg(&record);
        command.args(words(backend)).arg("--").args(words(&flags)).env("NO_COLOR", "1");
        let ran = Ran::of(&mut command, 60).ended_with(0);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(report["synthetic"], name == "simulated");
        assert!(report["steps"][0]["whole"]["seconds_per_step_median"].as_f64().unwrap() > 0.0, "{name}");
        assert!(!report["contention"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn calls_of_two_axes_are_timed_at_once_and_the_step_is_replayed_as_a_whole() {
    let flags = format!("{} --tp 2 --dp 2", model());
    let (report, record) = step(4, &format!("{flags} --interfere tp,dp --replay --replay-repetitions 3 {QUICK}"));
    let pairs = report["interference"].as_array().unwrap();
    let axes: Vec<_> =
        pairs.iter().map(|pair| (pair["timed"]["axis"].as_str(), pair["beside"]["axis"].as_str())).collect();
    assert_eq!(axes, [(Some("tp"), Some("dp")), (Some("dp"), Some("tp"))]);
    for pair in pairs {
        assert!(pair["factor_median"].as_f64().unwrap() > 0.0 && pair["factor_interval_low"].is_null(), "{pair}");
        assert_eq!((pair["replicates"].as_u64(), pair["trouble"].is_null()), (Some(2), true), "{pair}");
        assert!((0.0..=1.0).contains(&pair["surely_beside_share"].as_f64().unwrap()), "{pair}");
    }
    assert_eq!(of_kind(&record, "interference").len(), 4, "two directions in two replicates");
    let [replay] = report["replays"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(
        (replay["bytes_as_listed"].as_bool(), replay["outcome"]["verified"].as_bool()),
        (Some(true), Some(true))
    );
    assert!(replay["seconds_median"].as_f64().unwrap() > 0.0, "{replay}");
}

#[test]
fn invalid_requests_are_refused_with_exit_code_2() {
    for (ranks, flags, expected_error) in [
        (2, "--tp 4", "a multiple of 4 ranks, but there are 2"),
        (2, "--tp 2 --solo", "every axis has a single group, so there is nothing to compare"),
        (2, "--tp 2 --style pipeline", "so there is nothing to measure"),
        (2, "--tp 2 --style tensors", "accepted: tensor"),
        (2, "--tp 2 --interfere tp,dp", "dp has no call in this step (tp 2)"),
    ] {
        let mut command = launcher(ranks);
        command.arg(STEP).args(words(&model())).args(words(flags));
        Ran::of(&mut command, 30).ended_with(2).printed_error(expected_error);
    }
}
