//! For tests of the planner: the text of a suite's tables -> a training step.

use commgauge_model::config::Suite;
use commgauge_model::workload::step::{Step, TrainingStep};
use std::path::Path;

/// The defaults of transformers' classes, of which hybrid models have no preset.
pub(crate) const QWEN3_NEXT: &str = "../tests/data/transformers/qwen3_next/config.json";
pub(crate) const NEMOTRON_H: &str = "../tests/data/transformers/nemotron_h/config.json";

/// Calls `check` with the step of a shipped model, or of a config.json. `training` are lines of `[training]`, to which a sequence of 2048
/// and one micro-batch are added unless they are set.
pub(crate) fn with_step<T>(
    preset: &str,
    training: &str,
    layout: &str,
    ranks: u32,
    check: impl FnOnce(&TrainingStep) -> T,
) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    let default = |key: &str, line: &str| if training.contains(key) { String::new() } else { format!("{line}\n") };
    let key = if preset.ends_with(".json") { "config" } else { "preset" };
    let text = format!(
        "[model]\n{key} = '{preset}'\n[training]\n{}{}{training}\n[layout]\n{layout}\n",
        default("sequence =", "sequence = 2048"),
        default("micro_batches", "micro_batches = 1"),
    );
    let suite = Suite::parse(&path, &text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let steps = Step::all_of(&suite.layouts[0], ranks).unwrap_or_else(|error| panic!("{text}\n{error}"));
    match steps.as_slice() {
        [Step::Training(step)] => check(step),
        _ => panic!("{text}\nis not one training step"),
    }
}
