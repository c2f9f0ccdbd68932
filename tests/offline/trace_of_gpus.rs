//! `commgauge trace` of what real jobs of PyTorch left that ran over NCCL on a GPU, against the lists of their steps: how they were made is in
//! tests/data/traces/README.md.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A job and the list of its step.
struct Job {
    folder: TempDir,
    files: Vec<String>,
}

impl Job {
    fn of(files: &str, model: &str, step: &str) -> Job {
        let root = env!("CARGO_MANIFEST_DIR");
        let folder = tempfile::tempdir().expect("a folder");
        let model = format!("{root}/tests/data/frameworks/{model}/config.json");
        let mut arguments =
            vec!["ops", "--format", "json", "--sequence", "64", "--small-calls", "none", "--model", &model];
        arguments.extend(step.split(' '));
        let listed = commgauge(folder.path(), &arguments);
        assert_eq!(listed.status.code(), Some(0), "{step}: {}", text(&listed.stderr));
        fs::write(folder.path().join("step.json"), listed.stdout).expect("a file");
        let place = |rank| format!("{root}/tests/data/traces/nccl/{}", files.replace('*', &format!("{rank}")));
        Job { folder, files: (0..4).map(place).collect() }
    }

    /// What `commgauge trace` says, which ends with that code.
    fn traced(&self, code: i32, more: &[&str]) -> Value {
        let mut arguments = vec!["trace", "--format", "json", "--ops", "step.json"];
        arguments.extend(self.files.iter().map(String::as_str));
        arguments.extend(more);
        let output = commgauge(self.folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a document")
    }
}

/// Place, call and difference of each compared call, in no order and each once.
fn differences(document: &Value) -> Vec<String> {
    let lines = document["comparison"].as_array().expect("a comparison");
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or("-").to_owned();
    let mut found: Vec<String> = lines
        .iter()
        .map(|line| [word(line, "place"), word(line, "call"), word(line, "difference")].join(" "))
        .collect();
    found.sort();
    found.dedup();
    found
}

const SHARDED_COPIES: &str = "--framework torchtitan --dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2";
const STAGES: &str = "--framework torchtitan --pp 2 --dp 2 --micro-batches 4 --activation-type fp32 --param-type fp32";
const RING: &str = "--framework fsdp2 --cp 4 --micro-batches 1 --activation-type fp32";
const TENSOR: &str = "--framework torchtitan --tp 2 --dp 2 --micro-batches 2 --activation-type fp32 --param-type fp32";

#[test]
fn real_jobs_over_nccl_call_what_the_lists_of_their_steps_say() {
    let shards = ["dp_replicate all_reduce same", "dp_shard all_gather same", "dp_shard reduce_scatter same"];
    let ring = ["cp all_gather same", "cp reduce_scatter same", "cp send same"];
    let tensor = [
        "dp all_gather same",
        "dp reduce_scatter same",
        "tp all_gather same",
        "tp all_reduce same",
        "tp reduce_scatter same",
    ];
    for (files, step, more, expected) in [
        ("fsdp2-torchtitan-hsdp-kineto-rank*.json.gz", SHARDED_COPIES, &[][..], &shards[..]),
        // Since the start of the job: two steps.
        ("fsdp2-torchtitan-hsdp-recorder-rank*.gz", SHARDED_COPIES, &["--steps", "2"], &shards),
        ("torch-cp-4-kineto-rank*.json.gz", RING, &[], &ring),
        ("torch-cp-4-execution-rank*.json.gz", RING, &[], &ring),
        ("torchtitan-tp-2-inspector-rank*.log.gz", TENSOR, &["--steps", "2", "--element-type", "float32"], &tensor),
    ] {
        let document = Job::of(files, "llama", step).traced(0, more);
        assert_eq!(differences(&document), expected, "{files}");
    }
}

#[test]
fn the_listed_stages_of_a_pipeline_are_compared_and_others_are_named() {
    for (stage, sizes) in [("", [80 * 1024, 82_176]), (" --stage 0", [82_176, 80 * 1024])] {
        let job = Job::of("torchtitan-pp-2-kineto-rank*.json.gz", "mistral", &format!("{STAGES}{stage}"));
        let document = job.traced(0, &[]);
        let expected = [
            "dp all_gather other stage",
            "dp all_gather same",
            "dp reduce_scatter other stage",
            "dp reduce_scatter same",
            "pp send same",
        ];
        assert_eq!(differences(&document), expected, "{stage}");
        let listed = if stage.is_empty() {
            "the list covers stage 0 (pp) and stage 1 (dp) of 2 pipeline stages; ranks of other stages"
        } else {
            "the list covers stage 0 (dp, pp) of 2 pipeline stages;"
        };
        assert!(document["notes"].to_string().contains(listed), "{stage}: {}", document["notes"]);
        let gathers = document["comparison"].as_array().unwrap().iter().filter(|line| line["call"] == "all_gather");
        let of = |difference: &str| -> Vec<u64> {
            let lines = gathers.clone().filter(|line| line["difference"] == difference);
            lines.filter_map(|line| line["traced"]["bytes_total"].as_u64()).collect()
        };
        let (other, same) = (of("other stage"), of("same"));
        assert!(
            other == [sizes[0]] && same.contains(&sizes[1]) && !same.contains(&sizes[0]),
            "{stage}: {other:?} {same:?}"
        );
    }
}

#[test]
fn messages_that_were_handed_over_in_batches_take_as_long_as_their_batch_did_on_the_device() {
    let document = Job::of("torchtitan-pp-2-kineto-rank*.json.gz", "mistral", STAGES).traced(0, &[]);
    let messages: Vec<&Value> =
        document["calls"].as_array().unwrap().iter().filter(|line| line["place"] == "pp").collect();
    assert_eq!(messages.len(), 2, "{document:#}");
    // Those that are received wait for the other stage.
    for (line, expected) in messages.iter().zip([6.61e-6, 4.947e-3]) {
        let seconds = line["seconds_median"].as_f64().expect("a time");
        assert!((seconds / expected - 1.0).abs() < 1e-3, "{line}");
    }
}

#[test]
fn the_layout_of_the_list_is_that_of_the_suite_and_of_the_replay_and_flags_may_not_contradict_it() {
    let job = Job::of("fsdp2-torchtitan-hsdp-kineto-rank*.json.gz", "llama", SHARDED_COPIES);
    job.traced(0, &["-o", "job.toml"]);
    let suite = fs::read_to_string(job.folder.path().join("job.toml")).unwrap();
    assert!(suite.contains("dp = 4\nreplicas_of_shards = 2\n") && suite.contains("axis = \"dp_replicate\""), "{suite}");
    let plan = commgauge(job.folder.path(), &["run", "job.toml", "-n", "4", "--dry-run"]);
    assert_eq!(plan.status.code(), Some(0), "{}", text(&plan.stderr));
    for (flags, said) in
        [(["--tp", "2"], "the flags say"), (["--order", "dp-tp-cp-ep-pp"], "the list of --ops dp 4 in the order")]
    {
        let mut arguments = vec!["trace", "--ops", "step.json", flags[0], flags[1]];
        arguments.extend(job.files.iter().map(String::as_str));
        let output = commgauge(job.folder.path(), &arguments);
        let problem = text(&output.stderr);
        assert!(output.status.code() == Some(2) && problem.contains(said), "{flags:?}: {problem}");
    }
    assert!(Path::new(&job.files[0]).exists());
}
