//! The calls that frameworks were seen to make in a step, against what `commgauge ops` lists for them, call by call.
//!
//! `scripts/check-frameworks` recorded them (gloo, on the CPU) and can do so again; here no framework is needed. What is
//! compared: collective, element type, bytes, ranks of the group, and how often in a step.

use crate::offline::{commgauge, text};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A step as it was recorded on the first rank of a stage.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    versions: BTreeMap<String, String>,
    ranks: u32,
    /// Below the folder of the recordings.
    model: String,
    flags: String,
    stage: u32,
    sequence: u64,
    /// What differs, and why, where something does.
    #[serde(default)]
    differs: String,
    /// Collective, element type, bytes, ranks of the group.
    calls: Vec<(String, String, u64, Vec<u32>)>,
}

/// Collective, element type, bytes and ranks of the group, with the number of calls.
type Counts = BTreeMap<(String, String, u64, u64), u64>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/frameworks")
}

fn recorded() -> Vec<Recorded> {
    let files = fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("readable");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    files.iter().map(read).collect()
}

fn run(recorded: &Recorded) -> Counts {
    let mut counts = Counts::new();
    for (collective, element, bytes, ranks) in &recorded.calls {
        let call = (collective.clone(), element.clone(), *bytes, ranks.len() as u64);
        *counts.entry(call).or_default() += 1;
    }
    counts
}

fn listed(recorded: &Recorded) -> Counts {
    let sequence = recorded.sequence.to_string();
    let (model, stage) = (format!("{}/config.json", recorded.model), recorded.stage.to_string());
    let mut arguments = vec!["ops", "--model", &model];
    // Prompts have their length among the flags.
    if !recorded.flags.contains("--serve") {
        arguments.extend(["--sequence", &sequence]);
    }
    arguments.extend(recorded.flags.split_whitespace());
    arguments.extend(["--stage", &stage, "--format", "json"]);
    let output = commgauge(&folder(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}: {}", recorded.name, text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["ranks"], recorded.ranks, "{}", recorded.name);
    let word = |op: &Value, key: &str| op[key].as_str().expect("a word").to_owned();
    let number = |op: &Value, key: &str| op[key].as_u64().expect("a number");
    // The transfers of a pipeline are recorded as what a rank calls.
    let name = |op: &Value| match word(op, "collective") {
        transfer if transfer.starts_with("send_recv") => "send".to_owned(),
        collective => collective,
    };
    let mut counts = Counts::new();
    for op in document["ops"].as_array().expect("a list") {
        let call = (name(op), word(op, "element_type"), number(op, "bytes_total"), number(op, "group_size"));
        *counts.entry(call).or_default() += number(op, "count_per_step");
    }
    counts
}

/// Every call that ran another number of times than it is listed.
fn differences(ran: &Counts, listed: &Counts) -> String {
    let calls: BTreeSet<_> = ran.keys().chain(listed.keys()).collect();
    let times = |counts: &Counts, call| counts.get(call).copied().unwrap_or(0);
    let other = calls.into_iter().filter(|call| times(ran, call) != times(listed, call));
    other.map(|call| format!("\n    {call:?}: ran {}, listed {}", times(ran, call), times(listed, call))).collect()
}

#[test]
fn every_recorded_step_calls_what_ops_lists_for_its_framework() {
    let all = recorded();
    assert!(all.len() >= 100, "{} recorded steps", all.len());
    let mut problems = Vec::new();
    for step in &all {
        assert!(step.versions.contains_key("torch"), "{}: no version", step.name);
        let (ran, listed) = (run(step), listed(step));
        if step.differs.is_empty() && listed != ran {
            problems.push(format!("{}: commgauge ops {}{}", step.name, step.flags, differences(&ran, &listed)));
        } else if !step.differs.is_empty() && listed == ran {
            problems.push(format!("{}: differs no longer; remove what says so", step.name));
        }
    }
    assert!(problems.is_empty(), "{} of {} steps: {}", problems.len(), all.len(), problems.join("\n"));
}

#[test]
fn flags_that_a_model_that_serves_does_not_take_are_all_named() {
    let flags = "--sequence-parallel --recompute full --linears pair --fused-cross-entropy --data-style ddp --grad-type bf16 \
                 --bucket-rule megatron --replicas-of-shards 1 --schedule 1f1b --virtual-stages 1 --context-grad-type bf16 --routing uniform \
                 --capacity-factor 2 --sequence 1024 --global-batch 4";
    let mut arguments = vec!["ops", "--model", "llama-3-8b", "--tp", "2", "--serve", "decode", "--batch", "4"];
    arguments.extend(flags.split_whitespace());
    let output = commgauge(&folder(), &arguments);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    for flag in flags.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(message.contains(flag), "{flag}: {message}");
    }
    let training = ["ops", "--model", "llama-3-8b", "--sequence", "1024", "--micro-batches", "1", "--batch", "4"];
    let output = commgauge(&folder(), &training);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--batch: for a model that serves; accepted: with --serve"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_list_says_which_choices_a_framework_made_and_where() {
    let arguments = "ops --model llama-3-8b --dp 8 --sequence 4096 --micro-batches 2 --framework fsdp2 --param-type bf16 --width 120";
    let output = commgauge(&folder(), &arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("defaults of fsdp2 (torch 2.15), each to be set by its own flag or key:"), "{shown}");
    assert!(shown.contains("unit_rule = root_kept (torch/distributed/fsdp/_fully_shard/_fsdp_state.py"), "{shown}");
    assert!(!shown.contains("parameter_element_type ="), "{shown}");
    let own = arguments.replace("fsdp2", "fsdp2 --unit-rule layers");
    let output = commgauge(&folder(), &own.split_whitespace().collect::<Vec<_>>());
    assert!(!text(&output.stdout).contains("unit_rule ="), "{}", text(&output.stdout));
    for (flags, expected) in [
        ("--framework vllm", "--framework: vllm serves, and this model trains"),
        ("--framework fsdp2 --bucket-rule pytorch", "--bucket-rule: fsdp2 does not use bucket_rule"),
    ] {
        let command = arguments.replace("--framework fsdp2", flags);
        let output = commgauge(&folder(), &command.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn data_parallel_attention_divides_the_rest_among_all_replicas() {
    let base = "ops --model llama-3-70b --tp 2 --dp 4 --serve decode --batch 16 --layers 2 --feed-forward-ranks stage --format json";
    let calls = |more: &str| {
        let command = format!("{base} {more}");
        let output = commgauge(&folder(), &command.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = |op: &Value| {
            let word = |key: &str| op[key].as_str().expect("a word").to_owned();
            let number = |key: &str| op[key].as_u64().expect("a number");
            (word("collective"), word("axis"), number("bytes_total"), number("count_per_step"))
        };
        document["ops"].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let call = |collective: &str, axis: &str, bytes, times| (collective.to_owned(), axis.to_owned(), bytes, times);
    // 16 requests of 8192 x 2 B; 4 replicas; 128,256 words are a multiple of 64 and of 8 ranks.
    let own = 16 * 8192 * 2;
    let last = [call("all_reduce", "tp_cp_dp", 4 * own, 1), call("all_gather", "tp_cp_dp", 16 * 4 * 128_256 * 2, 1)];
    let summed = [&vec![call("all_reduce", "tp_cp_dp", 4 * own, 2); 2][..], &last].concat();
    assert_eq!(calls("--framework sglang"), summed);
    let gathered = [
        call("reduce_scatter", "tp", own, 2),
        call("all_gather", "tp", own, 2),
        call("all_gather", "tp_cp_dp", 4 * own, 2),
        call("reduce_scatter", "tp_cp_dp", 4 * own, 2),
    ];
    assert_eq!(calls("--framework sglang --token-exchange all_gather"), [&gathered[..], &last].concat());
    let refused = "ops --model llama-3-70b --tp 2 --serve decode --batch 16 --token-exchange all_reduce";
    let output = commgauge(&folder(), &refused.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("feed_forward_ranks = stage and dp above 1"), "{}", text(&output.stderr));
}

#[test]
fn replicas_that_serve_may_agree_on_a_batch() {
    let command =
        "ops --model llama-3-8b --dp 4 --serve decode --batch 16 --framework vllm --batch-agreement --format json";
    let output = commgauge(&folder(), &command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let op = &document["ops"][0];
    assert_eq!(
        (&op["collective"], &op["axis"], &op["element_type"]),
        (&"all_reduce".into(), &"dp".into(), &"int32".into())
    );
    assert_eq!((&op["bytes_total"], &op["count_per_step"]), (&64.into(), &1.into()));
}

#[test]
fn switches_that_a_framework_turns_on_can_be_turned_off() {
    let base = "ops --model llama-3-8b --tp 2 --sequence 4096 --micro-batches 2 --framework torchtitan --format json";
    let styles = |more: &str| {
        let command = format!("{base} {more}");
        let output = commgauge(&folder(), &command.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        document["styles"].as_object().expect("styles").keys().cloned().collect::<Vec<_>>()
    };
    assert!(styles("").contains(&"sequence".to_owned()));
    let off = styles("--sequence-parallel=false");
    assert!(off.contains(&"tensor".to_owned()) && !off.contains(&"sequence".to_owned()), "{off:?}");
}
