//! `commgauge plan` as a user starts it, from published rates and from a fit. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SMALL: &str =
    "--model gpt2 --gpus 8 --gpu-memory 16GB --global-batch 32 --sequence 1024 --peak-tflops 100 --efficiency 0.5";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(root.join("suites/machines/h100-nvswitch-ndr.toml"), folder.path().join("machine.toml")).expect("copied");
    fs::copy(root.join("tests/data/nccl/h100_sxm-nccl-2.29.2.csv"), folder.path().join("h100.csv")).expect("copied");
    folder
}

fn plan(folder: &Path, flags: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = std::iter::once("plan").chain(flags.split_whitespace()).collect();
    let output = commgauge(folder, &arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_a_command_would_print_goes_into_the_file_that_is_named() {
    let folder = folder();
    let file = |name: &str| fs::read_to_string(folder.path().join(name)).expect("it is written");
    let run = |line: &str| commgauge(folder.path(), &line.split_whitespace().collect::<Vec<_>>());
    let plan = format!("plan --machine machine.toml {SMALL}");
    let rank = "rank --machine machine.toml --model gpt2 --tp 2 --dp 4 --sequence 1024 --global-batch 32";
    for line in [&plan, rank, "plan validate --template"] {
        for format in ["--format table --width 90", "--format csv"] {
            let printed = run(&format!("{line} {format}"));
            let written = run(&format!("{line} {format} -o answer.txt"));
            assert!(written.status.code() == Some(0) && written.stdout.is_empty(), "{line}: {}", text(&written.stderr));
            // A plan says how long it took.
            let lines = |text: &str| text.lines().filter(|line| !line.contains(" s: ")).count();
            assert_eq!(lines(&file("answer.txt")), lines(&text(&printed.stdout)), "{line} {format}");
        }
    }
    assert_eq!(run(&format!("{plan} -o plan.html")).status.code(), Some(0));
    assert!(file("plan.html").starts_with("<!doctype html>"));
    for (line, expected) in [
        (format!("{plan} -o machine.toml"), "is one of the inputs"),
        (format!("{plan} -o plan.pdf"), "no format for files that end in .pdf"),
        (format!("{plan} -o plan.html --explain tp=1 tp=2"), "accepted: --format table, json"),
        (format!("{rank} -o rank.html"), "table (.txt, .text, .log), json (.json), csv (.csv)"),
        (format!("{rank} -o machine.toml"), "is one of the inputs"),
        (format!("{rank} -o ."), "is a folder"),
    ] {
        let refused = run(&line);
        let said = text(&refused.stderr).replace("\n", " ");
        assert!(refused.status.code() == Some(2) && said.contains(expected), "{line}: {said}");
    }
    assert!(file("machine.toml").contains("[[expect]]"), "an input is as it was");
}

#[test]
fn a_mistake_is_reported_on_stderr_and_ends_with_2() {
    let folder = folder();
    let machine = "--machine machine.toml";
    for (flags, expected) in [
        (SMALL.to_owned(), "<--fit <FILE>|--machine <FILE>>"),
        (format!("{machine} {}", SMALL.replace("gpt2", "gpt2x")), "gpt2"),
        (format!("{machine} {}", SMALL.replace("16GB", "100MB")), "GB too much; take more GPUs"),
        (format!("{machine} {}", SMALL.replace("16GB", "0GB")), "found 0 B, and a GPU has at least 64 MiB"),
        (format!("{machine} {}", SMALL.replace("16GB", "16")), "accepted: with its unit, such as 80GB"),
        (format!("{machine} {}", SMALL.replace("--gpus 8", "--gpus 0")), "--gpus"),
        (
            format!("{machine} {}", SMALL.replace("--gpus 8", "--gpus 7 --only dp=7")),
            "dp does not divide the global batch",
        ),
        (
            format!("{machine} {}", SMALL.replace("--gpus 8", "--gpus 49999")),
            "no layout of gpt2 on 49999 GPUs is legal",
        ),
        (format!("{machine} {}", SMALL.replace("1024", "4096")), "allows up to 1024"),
        (format!("{machine} {SMALL} --only tp=3"), "is legal"),
        (format!("{machine} {SMALL} --only tp=2 --explain tp=1 tp=2"), "cannot be used with"),
        (format!("{machine} {SMALL} --only zero=2"), "did you mean `zero_stage`?"),
        (format!("{machine} {}", SMALL.replace("0.5", "1.5")), "above 0 and up to 1"),
        (format!("{machine} {SMALL} --explain tp=1 tp=2 --format csv"), "accepted: --format table, json"),
        (format!("--fit none.json --ranks-per-node 8 {SMALL}"), "none.json"),
        (format!("{machine} {}", SMALL.replace("0.5", "half")), "or `measured`"),
        (format!("{machine} {}", SMALL.replace("0.5", "measured")), "--products is missing"),
        (format!("{machine} {SMALL} --products products.jsonl"), "for --efficiency measured"),
        (format!("{machine} {SMALL} --anchor step.csv"), "a share and --anchor both set the level"),
        (format!("{machine} {SMALL} --element-type int8"), "--element-type"),
        (format!("{machine} {SMALL} --training micro_batch=2"), "chosen by the planner"),
        (format!("{machine} {SMALL} --fp8-linears"), "the peak in 8 bits is not known"),
        (format!("{machine} {}", SMALL.replace("--gpus 8", "--gpus 8,16")), "several with --pareto"),
        (format!("{machine} {SMALL} --framework vllm"), "accepted, as they train: megatron"),
        (format!("{machine} {SMALL} --training framework=ddp"), "--framework"),
        (format!("{machine} {SMALL} --framework fsdp2 --only zero_stage=1"), "found 1; the framework has 3"),
        (
            format!("{machine} {SMALL} --framework megatron --explain zero_stage=1 zero_stage=2"),
            "found 2; the framework has 0, 1, 3",
        ),
        (format!("{machine} {SMALL} --framework fsdp2 --training data_style=zero3"), "fsdp2 has no data_style zero3"),
        (format!("{machine} {SMALL} --framework ddp --only tp=2"), "the framework does not divide by tp, cp, ep or pp"),
        (
            format!("{machine} {SMALL} --framework fsdp2 --training bucket_rule=megatron"),
            "fsdp2 does not use bucket_rule",
        ),
    ] {
        let (code, stdout, stderr) = plan(folder.path(), &flags);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{flags}: {stderr}");
        assert!(stderr.contains(expected), "{flags}: {stderr}");
    }
}

#[test]
fn a_plan_from_published_rates_says_so_and_keeps_its_schema() {
    let folder = folder();
    let (code, stdout, stderr) = plan(folder.path(), &format!("--machine machine.toml {SMALL} --format json"));
    assert_eq!(code, Some(0), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    crate::common::fits_schema("plan", &document);
    // Steps err as those of published runs did: layouts that take nearly as long are a tie.
    assert_eq!((&document["calibrated"], &document["order"]["verdict"]), (&Value::from(false), &Value::from("tie")));
    assert!(document["order"]["probability"].as_f64().expect("a number") >= 0.5, "{stdout}");
    assert!(document["computing"].as_str().expect("a text").contains("Constants of published runs"), "{stdout}");
    assert!(document["feasible"].as_u64() <= document["considered"].as_u64());
    let layouts = document["layouts"].as_array().expect("layouts");
    let seconds = |layout: &Value| layout["step_seconds"].as_f64().unwrap_or(f64::NAN);
    for layout in layouts {
        let end = |name: &str| layout[name].as_f64().unwrap_or(f64::NAN);
        assert!(end("step_seconds_low") < seconds(layout) && seconds(layout) < end("step_seconds_high"), "{layout}");
    }
    assert!(layouts.len() == 4 && layouts[1..].windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1])));
    let ways = |layout: &Value| ["tp", "cp", "pp", "dp", "zero_stage"].map(|key| layout[key].to_string());
    let ways: std::collections::BTreeSet<_> = layouts.iter().map(ways).collect();
    assert_eq!(ways.len(), 4, "each layout divides the model otherwise: {ways:?}");
    for rival in document["rivals"].as_array().expect("rivals") {
        let place = rival["place"].as_u64().expect("a place") as usize;
        assert_eq!(rival["name"], layouts[place - 1]["name"]);
        assert!(
            rival["probability_first_is_faster"].as_f64() < Some(0.95) && !rival["decided_by"][0].is_null(),
            "{rival}"
        );
    }
    assert!(
        document["measured_by"].as_str().expect("a command").starts_with("commgauge calibrate measure --model gpt2")
    );
    for layout in layouts {
        let exposed = layout["exposed_communication_seconds"].as_object().expect("axes");
        let parts =
            ["compute_seconds", "host_seconds", "bubble_seconds", "optimizer_seconds"].map(|part| &layout[part]);
        let sum: f64 = parts.into_iter().chain(exposed.values()).filter_map(Value::as_f64).sum();
        assert!((sum / seconds(layout) - 1.0).abs() < 1e-9, "{layout}");
    }
    let (_, table, _) = plan(folder.path(), &format!("--machine machine.toml {SMALL}"));
    assert!(table.starts_with("NOT CALIBRATED"), "{table}");
}

#[test]
fn the_first_screen_of_a_plan_is_a_choice_between_ways_that_differ_with_the_plainest_first() {
    let folder = folder();
    let asked = "--model llama-3-70b --gpus 64 --gpu-memory 80GB --global-batch 512 --sequence 8192 --width 100";
    let (code, screen, stderr) = plan(folder.path(), &format!("--machine machine.toml {asked}"));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(screen.lines().count() <= 22, "{} lines: {screen}", screen.lines().count());
    for expected in [
        "  2   4   1  1f1b          2 ",
        "Line 2 is ",
        " exposed ",
        "To decide, measure: commgauge",
        "line 5 surely fits",
    ] {
        assert!(screen.contains(expected), "{expected}: {screen}");
    }
    let (_, more, _) = plan(folder.path(), &format!("--machine machine.toml {asked} --details"));
    assert!(more.contains("the best layout") && more.contains("its fullest GPU holds"), "{more}");
}

#[test]
fn nvlink_domains_that_do_not_divide_are_filled_alike_and_the_plan_says_so() {
    let folder = folder();
    let asked = "--machine gb200-nvl72 --model llama-3-70b --gpu-memory 186GB --global-batch 288 --sequence 8192 --only tp=2,pp=4,cp=1";
    for (gpus, flags, used, expected) in [
        (256, "", 64, "64 of the 72 GPUs of each NVLink domain are used: 72 do not divide 256"),
        (144, "", 72, ""),
        (64, "", 72, ""),
        (104, "", 52, "52 of the 72 GPUs"),
        (88, "", 44, "44 of the 72 GPUs"),
        (80, "", 40, "40 of the 72 GPUs"),
        (256, "--ranks-per-node 72", 72, ""),
    ] {
        let batch = format!("--global-batch {}", gpus * 4);
        let asked = asked.replace("--global-batch 288", &batch);
        let (code, json, stderr) = plan(folder.path(), &format!("{asked} --gpus {gpus} {flags} --format json"));
        assert_eq!(code, Some(0), "{gpus}: {stderr}");
        let document: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(document["ranks_per_node"], used, "{gpus} {flags}");
        let notes = document["notes"].to_string();
        assert_eq!(notes.contains("NVLink domain"), !expected.is_empty(), "{gpus}: {notes}");
        assert!(notes.contains(expected), "{gpus}: {notes}");
    }
}

/// A plan of Llama 3 8B on a shipped machine.
fn plan_on(folder: &Path, machine: &str, flags: &str) -> (Option<i32>, String, String) {
    let question = "--model llama-3-8b --gpus 8 --gpu-memory 80GB --global-batch 16 --sequence 8192";
    let only = "--only tp=2,pp=1,dp=4,micro_batch=1,zero_stage=1,recompute=none";
    plan(folder, &format!("--machine {machine} {question} {only} {flags}"))
}

#[test]
fn a_plan_names_the_level_of_its_gpu_and_says_first_where_nothing_was_validated() {
    let folder = folder();
    for (machine, flags, origin, validated) in [
        ("h100-nvswitch-ndr", "", "level of H100 in 16 bits, dense: 102 runs of 2 sources", true),
        ("h100-nvswitch-ndr", "--fp8-linears", "level of H100 in 8 bits, dense: 41 runs of", true),
        ("a100-nvswitch-hdr", "", "level of A100 in 16 bits, dense: 317 runs of 6 sources", true),
        ("h200-nvswitch-ndr", "", "level of H100 in 16 bits, dense", false),
        ("b200-nvswitch-ndr", "", "level of GB200 in 8 bits, dense", false),
        ("gb200-nvl72", "--fp4-linears", "linear layers in 4 bits, at a peak of 10000 TFLOP/s", true),
        ("mi300x-mesh-ndr", "", "the middle of all GPUs", false),
        ("h100-nvswitch-ndr", "--peak-tflops 800", "the middle of all GPUs", false),
    ] {
        let (code, table, stderr) = plan_on(folder.path(), machine, &format!("{flags} --details --width 400"));
        assert_eq!(code, Some(0), "{machine}: {stderr}");
        assert!(table.contains(origin), "{machine} {flags}: {table}");
        let first_lines = table.lines().take(3).collect::<Vec<_>>().join("\n");
        assert_eq!(!first_lines.contains("NOT VALIDATED: no published step"), validated, "{machine} {flags}: {table}");
    }
    let width = |machine: &str| {
        let (_, stdout, _) = plan_on(folder.path(), machine, "--format json");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        let end = |name: &str| document["layouts"][0][name].as_f64().expect("seconds");
        end("step_seconds_high") / end("step_seconds_low")
    };
    assert!(width("h200-nvswitch-ndr") > 1.2 * width("h100-nvswitch-ndr"), "what was not validated is less sure");
}

#[test]
fn a_users_own_step_sets_the_level_of_a_plan_and_a_wrong_one_is_named_by_file_and_row() {
    let folder = folder();
    let step = folder.path().join("step.csv");
    let heading = "machine,model,tp,dp,data_style,sequence_parallel,sequence,global_batch,recompute,step_seconds\n";
    let row = |model: &str, recompute: &str, seconds: &str| {
        let text = format!("{heading}h100-nvswitch-ndr,{model},2,4,zero1,true,8192,16,{recompute},{seconds}\n");
        fs::write(&step, text).expect("written");
    };
    let seconds = |machine: &str, flags: &str| {
        let (code, stdout, stderr) = plan_on(folder.path(), machine, &format!("{flags} --format json"));
        assert_eq!(code, Some(0), "{stderr}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        let of = |key: &str| document["layouts"][0][key].as_f64().expect("seconds");
        (of("step_seconds"), of("step_seconds_low"), of("step_seconds_high"))
    };
    let (usual, ..) = seconds("h100-nvswitch-ndr", "");
    row("llama-3-8b", "none", &format!("{:.4}", 1.2 * usual));
    let (step_seconds, low, high) = seconds("h100-nvswitch-ndr", "--anchor step.csv");
    assert!((step_seconds / usual - 1.2).abs() < 2e-3, "{usual} {step_seconds}");
    assert!(low < 0.9 * step_seconds && 1.1 * step_seconds < high, "{low} {high}");
    let refused = |machine: &str, expected: &str| {
        let (code, _, stderr) = plan_on(folder.path(), machine, "--anchor step.csv");
        let said = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code == Some(2) && said.contains(expected), "{expected}: {stderr}");
    };
    refused("a100-nvswitch-hdr", "step.csv: line 2: machine: found `H100`, but the plan is for `A100`");
    row("llama-2-7b", "none", "2");
    refused("h100-nvswitch-ndr", "step.csv: line 2: model: found llama-2-7b, but the plan is for llama-3-8b");
    row("llama-3-8b", "", "2");
    refused("h100-nvswitch-ndr", "step.csv: line 2: recompute: is missing; accepted: none, selective, full");
    row("llama-3-8b", "none", "0.2");
    refused("h100-nvswitch-ndr", "step.csv: line 2: step_seconds: 0.2 s would be");
    fs::remove_file(&step).expect("removed");
    refused("h100-nvswitch-ndr", "--anchor step.csv: cannot be read");
}

/// The activations of the layout that recomputes nothing, and what the plan says of them.
fn activations(folder: &Path, flags: &str) -> (u64, String) {
    let flags =
        format!("--machine machine.toml {SMALL} --only recompute=none,tp=1,pp=1,micro_batch=1 {flags} --format json");
    let (code, stdout, stderr) = plan(folder, &flags);
    assert_eq!(code, Some(0), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let parts = document["layouts"][0]["memory"].as_array().expect("parts");
    let part = parts.iter().find(|part| part["part"] == "activations").expect("activations");
    (part["bytes"].as_u64().expect("bytes"), part["why"].as_str().expect("why").to_owned())
}

#[test]
fn kernels_that_are_not_fused_need_the_memory_that_they_keep() {
    let folder = folder();
    let (fused, _) = activations(folder.path(), "");
    let (attention, why) = activations(folder.path(), "--unfused-attention");
    // 12 layers of 12 heads: of every two of 1024 tokens a score, its mask and what dropout leaves, 5 bytes; and no sum for each row.
    assert_eq!(attention - fused, 12 * 12 * 1024 * (5 * 1024 - 4));
    assert!(why.contains("attention with its matrices"), "{why}");
    let (separate, why) = activations(folder.path(), "--unfused-kernels");
    // GELU by operations: three more of 3072 numbers.
    assert_eq!(separate - fused, 12 * 1024 * 3 * 3072 * 2);
    assert!(why.contains("norms and gates in separate kernels"), "{why}");
    let short = SMALL.replace("16GB", "3GB");
    let only = "--only recompute=none,tp=1,cp=1,pp=1,zero_stage=1";
    let plan = |flags: &str| plan(folder.path(), &format!("--machine machine.toml {short} {only} {flags}"));
    assert!(!plan("").1.contains("TOO MUCH"));
    assert!(plan("--unfused-attention --unfused-kernels").1.contains("TOO MUCH"));
}

#[test]
fn a_framework_is_planned_with_its_own_stages_axes_and_defaults() {
    let folder = folder();
    for (framework, stages, axes, default) in [
        ("megatron", "013", "tp cp pp dp", "data_style"),
        ("deepspeed", "0123", "tp cp pp dp", "gradient_element_type"),
        ("torchtitan", "3", "tp cp pp dp", "unit_rule"),
        ("fsdp2", "3", "tp cp pp dp", "unit_rule"),
        ("fsdp1", "3", "dp", "unit_rule"),
        ("hf", "03", "tp cp dp", "tensor_style"),
        ("ddp", "01", "dp", "bucket_rule"),
    ] {
        let flags = format!("--machine machine.toml {SMALL} --framework {framework} --top 1000 --format json");
        let (code, stdout, stderr) = plan(folder.path(), &flags);
        assert_eq!(code, Some(0), "{framework}: {stderr}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        crate::common::fits_schema("plan", &document);
        let choices = &document["framework"];
        assert_eq!(choices["framework"], framework);
        let defaults = choices["defaults"].as_array().expect("defaults");
        let has = |key: &str| defaults.iter().any(|one| one["key"] == key && !one["source"].is_null());
        // What the planner chooses itself is no default.
        assert_eq!(has(default), default != "data_style", "{framework}: {choices}");
        for layout in document["layouts"].as_array().expect("layouts") {
            let divided = ["tp", "cp", "pp", "dp"].into_iter().filter(|axis| layout[axis] != 1);
            assert!(
                divided.into_iter().all(|axis| axes.split(' ').any(|known| known == axis)),
                "{framework}: {layout}"
            );
            assert!(stages.contains(&layout["zero_stage"].to_string()), "{framework}: {layout}");
        }
    }
    let (_, table, _) =
        plan(folder.path(), &format!("--machine machine.toml {SMALL} --framework ddp --width 100 --details"));
    assert!(table.contains("\ndefaults of ddp (torch 2.15), each to be set by its own flag or key:\n"), "{table}");
}

/// A record with two products in float32, 1 and 2 TFLOP/s, and one with a wrong result.
fn record_with_products(folder: &Path) {
    let sample = include_str!("../data/sample-record.jsonl");
    let product = |n: u64, nanoseconds: u64, outcome: &str| {
        format!(
            r#"{{"line":"product","product":{{"m":1024,"n":{n},"k":768,"element_type":"float32","uses":["gpt2 qkv, tp 1, micro-batch 1"]}},"replicate":0,"library":"test 1.0","ranks_per_host":4,"threads_per_rank":1,"outcome":{outcome},"warm_up_products":1,"slowest_nanoseconds":[{nanoseconds},{nanoseconds}],"slowest_rank":[0,1]}}"#
        )
    };
    let good = r#"{"status":"measured","verified":true}"#;
    let failed = r#"{"status":"failed","reason":"no memory"}"#;
    let mut lines: Vec<String> = sample.lines().map(str::to_owned).collect();
    let end = lines.pop().expect("an end");
    // 2 m n k operations: 2304 columns in 3.62 ms are 1 TFLOP/s, 768 in 0.604 ms 2.
    lines.extend([product(2304, 3_623_878, good), product(768, 603_980, good), product(3072, 1, failed), end]);
    fs::write(folder.join("products.jsonl"), lines.join("\n") + "\n").expect("written");
}

#[test]
fn measured_products_are_planned_on_and_those_of_another_type_are_not() {
    let folder = folder();
    record_with_products(folder.path());
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample-record.jsonl"),
        folder.path().join("none.jsonl"),
    )
    .expect("copied");
    let flags = |more: &str| {
        let asked = SMALL.replace("--peak-tflops 100 --efficiency 0.5", "--efficiency measured");
        format!("--machine machine.toml {asked} --products products.jsonl {more}")
    };
    for (more, expected) in [
        ("", "no matrix product of bfloat16 was measured, of float32"),
        ("--element-type float32 --peak-tflops 1.5", "the fastest product in products.jsonl reached 2.00 TFLOP/s"),
    ] {
        let (code, _, stderr) = plan(folder.path(), &flags(more));
        assert_eq!(code, Some(2), "{more}: {stderr}");
        assert!(stderr.contains(expected), "{more}: {stderr}");
    }
    let (code, _, stderr) =
        plan(folder.path(), &flags("--element-type float32").replace("products.jsonl", "none.jsonl"));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("none at all"), "{stderr}");

    let (code, stdout, stderr) = plan(folder.path(), &flags("--element-type float32 --peak-tflops 4 --format json"));
    assert_eq!(code, Some(0), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let computing = document["computing"].as_str().expect("a text");
    assert_eq!(
        computing,
        "measured on 2 matrix products of float32, 1.00 to 2.00 TFLOP/s a rank, 25.0 to 50.0 % of 4 TFLOP/s (given) \
         (products.jsonl)"
    );
    let notes = document["notes"].to_string();
    for expected in [
        "with test 1.0 on 4 ranks of a host at once",
        "1024 x 2304 x 768 1.00 TFLOP/s",
        "1 without a time were left out",
        "Matrix products are measured; other kernels move 0.75 of 3350 GB/s",
        "shapes of matrix products in the best layout",
    ] {
        assert!(notes.contains(expected), "{expected}: {notes}");
    }
    // No product is faster than the fastest that was measured, or slower than the slowest.
    let seconds = |flags: &str| {
        let (_, stdout, stderr) = plan(folder.path(), flags);
        let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
        document["layouts"][0]["compute_seconds"].as_f64().expect("seconds")
    };
    let one =
        "--only tp=1,pp=1,dp=8,cp=1,micro_batch=1,zero_stage=0,recompute=none --element-type float32 --format json";
    let measured = seconds(&flags(one));
    let at = |peak: &str| seconds(&format!("--machine machine.toml {} {one}", SMALL.replace("tflops 100", peak)));
    // A published product of gpt2 reaches between a third and all of half the peak.
    let (slow, fast) = (at("tflops 2"), at("tflops 12"));
    assert!(fast < measured && measured < slow, "{fast} {measured} {slow}");
}

#[test]
fn products_that_were_measured_cool_give_the_shape_and_published_steps_the_level() {
    let folder = folder();
    record_with_products(folder.path());
    let file = folder.path().join("products.jsonl");
    let record = fs::read_to_string(&file).expect("a record");
    let asked = SMALL.replace("--peak-tflops 100 --efficiency 0.5", "--efficiency measured --products products.jsonl");
    let with = |changes: &[(&str, &str)]| {
        let text =
            changes.iter().fold(record.replace("float32", "bfloat16"), |text, (from, to)| text.replace(from, to));
        fs::write(&file, text).expect("written");
        let (code, stdout, stderr) = plan(folder.path(), &format!("--machine machine.toml {asked} --format json"));
        assert_eq!(code, Some(0), "{stderr}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        let seconds = document["layouts"][0]["compute_seconds"].as_f64().expect("seconds");
        (seconds, document["computing"].to_string(), document["notes"].to_string())
    };
    let (cool, ground, notes) = with(&[]);
    assert!(ground.contains("their shape, at the level 0.678 (level of H100 in 16 bits, dense"), "{ground}");
    assert!(notes.contains("on 4 of the 8 GPUs of a host at once") && notes.contains("--anchor"), "{notes}");
    let halved = [("3623878", "1811939"), ("603980", "301990")];
    let (faster, ..) = with(&halved);
    assert!((faster / cool - 1.0).abs() < 1e-3, "the level is not the products': {cool} {faster}");
    let eight = ("\"ranks_per_host\":4", "\"ranks_per_host\":8");
    let (_, _, notes) = with(&[eight]);
    assert!(notes.contains("in all, and a GPU is warm after 20 s"), "{notes}");
    let (hot, ground, _) = with(&[eight, ("3623878", "11000000000")]);
    assert!(!ground.contains("their shape") && hot > 10.0 * cool, "{ground}: {hot} {cool}");
}

#[test]
fn one_given_layout_is_priced_whether_it_fits_or_not() {
    let folder = folder();
    let only =
        "--only tp=2,cp=1,ep=1,pp=2,virtual_stages=1,dp=2,zero_stage=1,micro_batch=4,recompute=none,order=tp-pp-dp";
    for (memory, fit) in [("32GB", "fits"), ("8GB", "at_the_edge"), ("1GB", "does_not_fit")] {
        let flags = format!("--machine machine.toml {} {only} --format json", SMALL.replace("16GB", memory));
        let (code, stdout, stderr) = plan(folder.path(), &flags);
        assert_eq!(code, Some(0), "{stderr}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(document["considered"], 1, "{stdout}");
        assert_eq!(document["layouts"][0]["memory_fit"], fit);
        assert_eq!(document["layouts"][0]["order"], "tp-pp-dp-cp-ep");
    }
}

#[test]
fn a_fit_without_what_a_plan_needs_says_what_is_missing_and_with_it_the_order_has_a_probability() {
    let folder = folder();
    for arguments in [
        &["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"][..],
        &["calibrate", "h100.jsonl", "-o", "fit.json", "--resamples", "0"],
    ] {
        let output = commgauge(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    let (code, _, stderr) = plan(folder.path(), &format!("--fit fit.json --ranks-per-node 8 {SMALL}"));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("has a price") && stderr.contains("--unknown-locality"), "{stderr}");
    let flags = format!("--fit fit.json --unknown-locality 1n --ranks-per-node 8 {SMALL} --only pp=1 --format json");
    // One question has one answer; the flag changes the exit code at most.
    let (code, marked, stderr) = plan(folder.path(), &flags);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, stdout, stderr) = plan(folder.path(), &format!("{flags} --allow-untrusted"));
    assert_eq!(code, Some(0), "{stderr}");
    let chosen = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["layouts"][0]["degrees"].clone();
    assert_eq!(chosen(&marked), chosen(&stdout));
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(document["calibrated"], true);
    assert!(document["order"]["probability"].is_number(), "{stdout}");
}

/// The layouts of a plan as JSON.
fn layouts(folder: &Path, flags: &str) -> Vec<Value> {
    let (code, stdout, stderr) = plan(folder, &format!("{flags} --format json"));
    assert_eq!(code, Some(0), "{flags}: {stderr}");
    let mut document: Value = serde_json::from_str(&stdout).expect("JSON");
    serde_json::from_value(document["layouts"].take()).expect("layouts")
}

#[test]
fn plan_prices_a_published_run_exactly_as_validate_does() {
    let folder = folder();
    let output = commgauge(folder.path(), &["plan", "validate", "--set", "vtrain", "--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let set = &document["sets"][0];
    let share = set["share_of_peak"].as_f64().expect("a share");
    let runs = set["runs"].as_array().expect("runs");
    for run in runs.iter().step_by(18) {
        let of = |key: &str| run[key].to_string().trim_matches('"').to_owned();
        let (model, gpus, batch) = (of("model"), of("gpus"), of("global_batch"));
        let only = format!(
            "tp={},pp={},dp={},cp=1,ep=1,virtual_stages=1,micro_batch={},zero_stage=0,recompute=full,order=tp-cp-ep-dp-pp",
            of("tp"),
            of("pp"),
            of("dp"),
            of("micro_batch")
        );
        let choices = "--training sequence_parallel=false --training overlap_tensor=false --training overlap_gradients=false \
                       --training scatter_gather=true --training gradient_element_type=float16 --element-type float16 \
                       --unfused-attention";
        let flags = format!(
            "--machine embedded:suites/published/a100-800gbit.toml --model {model} --gpus {gpus} --gpu-memory 80GB \
             --global-batch {batch} --sequence 2048 --efficiency {share} {choices} --only {only}"
        );
        let planned = layouts(folder.path(), &flags)[0]["step_seconds"].as_f64().expect("seconds");
        let validated = run["predicted_seconds"].as_f64().expect("seconds");
        assert!((planned / validated - 1.0).abs() < 1e-6, "{run}: {planned}");
    }
}

#[test]
fn a_pareto_list_has_no_layout_that_another_beats_in_time_memory_and_gpus() {
    let folder = folder();
    let flags = format!("--machine machine.toml {} --pareto", SMALL.replace("--gpus 8", "--gpus 4,8"));
    let found = layouts(folder.path(), &flags);
    assert!(found.len() > 2, "{found:?}");
    let facts = |layout: &Value| {
        let of = |key: &str| layout[key].as_f64().expect("a number");
        [of("step_seconds"), of("memory_bytes"), of("gpus")]
    };
    for (index, one) in found.iter().enumerate() {
        for other in found.iter().enumerate().filter(|(which, _)| *which != index).map(|(_, other)| other) {
            let beaten = facts(other).iter().zip(facts(one)).all(|(other, one)| *other <= one);
            assert!(!beaten, "{other} beats {one}");
        }
    }
}

#[test]
fn a_plan_says_what_other_machines_would_choose_and_can_be_a_page() {
    let folder = folder();
    let (code, stdout, stderr) =
        plan(folder.path(), &format!("--machine machine.toml {SMALL} --what-if --format json"));
    assert_eq!(code, Some(0), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let changes = document["what_if"].as_array().expect("changes");
    assert_eq!(changes.len(), 6, "{stdout}");
    let today = document["layouts"][0]["step_seconds"].as_f64().expect("seconds");
    for change in changes {
        let (then, own) = (change["step_seconds"].as_f64(), change["todays_step_seconds"].as_f64());
        assert!(then <= own || own.is_none(), "{change}");
        let slower = change["change"].as_str().is_some_and(|name| name.contains("half as fast"));
        assert!(!slower || then >= Some(today), "{change}");
    }
    let (code, page, _) = plan(folder.path(), &format!("--machine machine.toml {SMALL} --what-if --format html"));
    assert_eq!(code, Some(0));
    for expected in ["<html", "A plan for gpt2", "What another machine would choose", "NOT CALIBRATED", "95 of 100"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[test]
fn linear_layers_in_8_bits_compute_faster_and_a_slower_memory_does_not() {
    let folder = folder();
    let only = "--only tp=1,pp=1,dp=8,micro_batch=1,zero_stage=1,recompute=none";
    let base = format!("--machine machine.toml {} {only}", SMALL.replace("--peak-tflops 100 --efficiency 0.5", ""));
    let compute = |more: &str| layouts(folder.path(), &format!("{base} {more}"))[0]["compute_seconds"].as_f64();
    let (plain, eight, slow) = (compute(""), compute("--fp8-linears"), compute("--memory-rate 335GB/s"));
    assert!(eight < plain && plain < slow, "{eight:?} {plain:?} {slow:?}");
}
