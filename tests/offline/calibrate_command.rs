//! `commgauge calibrate measure`: from a model and GPUs to a ranking and a plan, on a simulated machine.

use crate::common::{COMMGAUGE, Ran, words};
use std::path::Path;
use std::process::Command;

const QUESTION: &str = "calibrate measure --model llama-3-8b --gpus 16 --ranks-per-node 8 --gpu-memory 80GB --global-batch 64 --sequence 8192 \
    --width 120 -o cal";
/// The words after the second `--` are for each launch: that of the suite and that of the step.
const LAUNCH: &str = "-- -n 16 --backend simulated --machine h100-nvswitch-ndr -- --timeout 60";

/// Runs `commgauge` with these words in a folder.
fn commgauge(folder: &Path, line: &str) -> Ran {
    Ran::of(Command::new(COMMGAUGE).current_dir(folder).env("NO_COLOR", "1").args(words(line)), 120)
}

#[test]
fn two_commands_lead_from_nothing_to_a_plan_in_which_every_layout_has_a_price() {
    let folder = tempfile::tempdir().unwrap();
    let calibrated = commgauge(folder.path(), &format!("{QUESTION} {LAUNCH}")).ended_with(0);
    for expected in ["TP > DP > PP", "per step, on the rank that the axis loads most", "the best layout", "SYNTHETIC"] {
        assert!(calibrated.stdout.contains(expected), "{expected}:\n{}", calibrated.stdout);
    }
    assert!(!calibrated.stdout.contains("WITHOUT A PRICE"), "{}", calibrated.stdout);
    // A simulated machine does not compute; calls overlapping with computing are still replayed on it.
    assert!(calibrated.stderr.contains("--backend simulated multiplies no bfloat16"), "{}", calibrated.stderr);
    assert!(folder.path().join("cal/overlap.jsonl").exists(), "{}", calibrated.stderr);
    assert!(calibrated.stdout.contains("by the measured factors"), "{}", calibrated.stdout);
    // The second command asks the fit something else.
    let line = "plan --fit cal/fit.json --model llama-3-8b --gpus 8 --ranks-per-node 8 --gpu-memory 80GB --global-batch 32 \
                --sequence 4096 --format json";
    let planned = commgauge(folder.path(), line).ended_with(0);
    let plan: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!(plan["unpriced"].as_array().map_or(0, Vec::len), 0, "{}", plan["unpriced"]);
    assert_eq!(plan["calibrated"], true);

    // Truncated in the middle, it continues; the header and the plan are the first two lines.
    let record = folder.path().join("cal/record.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&record, lines[..lines.len() / 2].join("\n") + "\n").unwrap();
    let resumed = commgauge(folder.path(), &format!("{QUESTION} {LAUNCH}")).ended_with(0);
    assert!(resumed.stderr.contains("measured cases; the rest is measured now"), "{}", resumed.stderr);
    assert!(resumed.stdout.contains("the best layout"), "{}", resumed.stdout);
    assert!(!resumed.stdout.contains("Next:"), "what comes next is the plan: {}", resumed.stdout);

    // Measured once: the same command only fits and plans again, and another question is not answered from this record.
    let again = commgauge(folder.path(), &format!("{QUESTION} {LAUNCH}")).ended_with(0);
    again.printed_error("is complete: nothing left to measure");
    let other = QUESTION.replace("--global-batch 64", "--global-batch 128").replace("8192", "2048");
    commgauge(folder.path(), &format!("{other} {LAUNCH}"))
        .ended_with(2)
        .printed_error("was measured for another suite");
}

#[test]
fn a_machine_that_is_never_quiet_still_gets_a_plan_which_names_the_curves_not_to_be_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let shown = commgauge(folder.path(), "show machine h100-nvswitch-ndr").ended_with(0).stdout;
    // Every second call takes four times as long, so that medians are one or the other by chance.
    let busy = shown.replace(
        "outlier_probability = 0.001\noutlier_factor = 2.0",
        "outlier_probability = 0.5\noutlier_factor = 4.0",
    );
    std::fs::write(folder.path().join("busy.toml"), busy).unwrap();
    let launch = LAUNCH.replace("h100-nvswitch-ndr", "busy.toml");
    let calibrated = commgauge(folder.path(), &format!("{QUESTION} --no-overlap {launch}")).ended_with(3);
    let head = "UNTRUSTED: the best layout rests on curves whose held-out error is over 10 %: ";
    assert!(calibrated.stdout.contains(head) && calibrated.stdout.contains("the best layout"), "{}", calibrated.stdout);
    calibrated.printed_error("measure on a quiet machine");
    // The same question to the same fit has the same answer.
    let question = QUESTION.replacen("calibrate measure", "plan --fit cal/fit.json", 1).replace(" -o cal", "");
    let planned = commgauge(folder.path(), &question).ended_with(3);
    assert!(planned.stdout.contains(head), "{}", planned.stdout);
    commgauge(folder.path(), &format!("{question} --allow-untrusted")).ended_with(0);
}

#[test]
fn what_cannot_be_calibrated_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    for (line, expected) in [
        (QUESTION.replace("--gpus 16", "--gpus 1"), "on 1 GPUs communicates"),
        (QUESTION.replace("--gpu-memory 80GB", "--gpu-memory 1GB"), "none is legal and fits into memory"),
        (QUESTION.replace("--ranks-per-node 8", ""), "--ranks-per-node is missing"),
        (QUESTION.replace("--gpus 16", "--gpus 8,16"), "found several numbers; accepted: one"),
        (QUESTION.replace("--width 120", "--largest-call 1KiB"), "accepted: 4KiB or more"),
        (QUESTION.replace("--width 120", "--budget soon"), "soon"),
        (format!("{QUESTION} -- --ranks-of 4"), "after `--`: unexpected argument '--ranks-of'"),
        (format!("{QUESTION} -- --record other.jsonl"), "after `--`:"),
        (format!("{QUESTION} -- smoke"), "after `--`:"),
        (QUESTION.replace("-o cal", "-o /dev/null/cal"), "--output: cannot make"),
    ] {
        commgauge(folder.path(), &line).ended_with(2).printed_error(expected);
    }
    let written = commgauge(folder.path(), &format!("{QUESTION} --suite-only")).ended_with(0);
    assert_eq!(written.stdout, "");
    commgauge(folder.path(), "run cal/suite.toml --dry-run -n 2").ended_with(0);
}

#[test]
fn products_are_in_the_suite_where_the_backend_multiplies_the_type_of_the_activations() {
    let folder = tempfile::tempdir().unwrap();
    for (folder_name, flags, words, expected) in [
        ("gpus", "", "-- --backend nccl", Some(["sequence = 8192", "micro_batch = [1, 2, 4]", "\"bfloat16\""])),
        ("hosts", "--element-type float32", "", Some(["sequence = 512", "micro_batch = [1]", "\"float32\""])),
        ("bf16", "", "", None),
        ("given", "--efficiency 0.5", "-- --backend nccl", None),
    ] {
        let question = QUESTION.replace("-o cal", &format!("-o {folder_name}"));
        let line = format!("{question} {flags} --suite-only {words}");
        commgauge(folder.path(), &line).ended_with(0);
        let suite = std::fs::read_to_string(folder.path().join(folder_name).join("suite.toml")).unwrap();
        let (_, table) = suite.split_once("[[compute]]").unwrap_or_default();
        let Some(expected) = expected else {
            assert_eq!(table, "", "{line}");
            continue;
        };
        let all = [&["preset = \"llama-3-8b\"", "tp = [1, 2, 4, 8]"], expected.as_slice()].concat();
        assert!(all.iter().all(|part| table.contains(part)), "{line}: {table}");
    }
}

/// Two ranks cannot measure what groups of three take.
#[test]
fn where_no_layout_has_a_price_what_was_measured_is_kept_and_planned_on_with_published_rates() {
    let folder = tempfile::tempdir().unwrap();
    let question = "--model gpt2 --gpus 3 --ranks-per-node 3 --gpu-memory 16GB --global-batch 3 --sequence 1024";
    let line = format!("calibrate measure {question} -o cal -- -n 2 --backend simulated --machine h100-nvswitch-ndr");
    let calibrated = commgauge(folder.path(), &line).ended_with(2);
    for expected in ["plans on it without measuring again", "all_reduce of 3 ranks at 1n/1g/s1 was not measured"] {
        assert!(calibrated.stderr.contains(expected), "{expected}:\n{}", calibrated.stderr);
    }
    let line = format!("plan --fit cal/fit.json --machine h100-nvswitch-ndr {question}");
    let planned = commgauge(folder.path(), &line).ended_with(0);
    assert!(
        planned.stdout.contains("for calls that it lacks published rates of h100-nvswitch-ndr"),
        "{}",
        planned.stdout
    );
}
