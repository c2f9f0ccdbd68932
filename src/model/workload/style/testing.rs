//! Test helpers of styles: a suite's text -> the ops of a stage as rows of a table, with their source and bytes from
//! `why`.

use crate::config::Suite;
use crate::layout::Axis;
use crate::workload::step::Step;
use crate::workload::when::{Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective::{self, AllGather, AllReduce, ReduceScatter};
use std::path::Path;

/// Reads a suite in the folder of the shipped ones, so that it finds their models.
pub(super) fn suite(text: &str) -> Suite {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    Suite::parse(&path, text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// A suite that names the one model whose config.json is given.
pub(super) fn suite_of(config: &serde_json::Value, text: &str) -> Suite {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let text = format!("[model]\nconfig = 'config.json'\n{text}");
    Suite::parse(&folder.path().join("test.toml"), &text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// A suite that names the defaults of a class of transformers.
pub(super) fn suite_of_class(model_type: &str, text: &str) -> Suite {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers").join(model_type);
    suite(&format!("[model]\nconfig = {:?}\n{text}", folder.join("config.json").display()))
}

/// A suite of one training step.
pub(super) fn training(preset: &str, training: &str, layout: &str) -> Suite {
    suite(&format!("[model]\npreset = '{preset}'\n[training]\n{training}\n[layout]\n{layout}\n"))
}

/// A suite of a prefill and a decode.
pub(super) fn serving(preset: &str, serving: &str, layout: &str) -> Suite {
    suite(&format!("[model]\npreset = '{preset}'\n[serving]\n{serving}\n[layout]\n{layout}\n"))
}

/// Calls `check` with every step of the suite's layout, which must be valid.
pub(super) fn with_steps(suite: &Suite, ranks: u32, mut check: impl FnMut(&Step)) {
    let steps = Step::all_of(&suite.layouts[0], ranks).unwrap_or_else(|error| panic!("{error}"));
    assert!(!steps.is_empty());
    steps.iter().for_each(&mut check);
}

/// Why the suite's layout is refused.
pub(super) fn refusal(suite: &Suite, ranks: u32) -> String {
    let error = Step::all_of(&suite.layouts[0], ranks).map(|steps| steps.len()).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

/// The ops of a style on a stage, each as a row; counts are by layer (by micro-batch outside of layers) and by step.
pub(super) fn rows(step: &Step, stage: u32, style: Style) -> Vec<Row> {
    let ops = step.ops_of_stage(stage).unwrap_or_else(|error| panic!("{error}"));
    let m = step.micro_batches();
    ops.iter().filter(|op| op.style == style).map(|op| Row::of(op, m)).collect()
}

/// The columns of an op in tables of communications.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub axis: Axis,
    pub collective: Collective,
    pub pass: Option<Pass>,
    pub bytes: u64,
    /// Calls in a layer, in a micro-batch outside of layers, or in a step.
    pub calls: u64,
    pub calls_per_step: u64,
    pub overlap: Overlap,
}

impl Row {
    fn of(op: &Op, micro_batches: u64) -> Row {
        let (pass, calls) = match op.when {
            When::Layer { pass, calls_per_layer, .. } => (Some(pass), calls_per_layer),
            When::MicroBatch { pass, calls, .. } => (Some(pass), calls),
            When::Boundary { pass, sends_per_step } => (Some(pass), sends_per_step),
            When::Step { calls, .. } => (None, calls),
            When::Outside => panic!("an op of a step stands outside of it: {op:?}"),
        };
        let sources = [
            "Megatron-LM ",
            "torchtitan ",
            "vLLM ",
            "vLLM-Ascend ",
            "SGLang ",
            "arXiv ",
            "Transformer Engine ",
            "DeepEP ",
        ];
        let sourced = sources.iter().any(|source| op.why.contains(source));
        assert!(sourced && op.why.contains(&format!("= {} B", op.bytes_total.0)), "{}", op.why);
        Row {
            axis: op.axis,
            collective: op.collective,
            pass,
            bytes: op.bytes_total.0,
            calls,
            calls_per_step: op.when.count_per_step(micro_batches).unwrap(),
            overlap: op.overlap,
        }
    }

    /// Collective, pass, bytes, calls and overlap, for comparison with a table's row.
    pub fn short(&self) -> (Collective, Option<Pass>, u64, u64, Overlap) {
        (self.collective, self.pass, self.bytes, self.calls, self.overlap)
    }
}

/// Wire bytes of a style on an axis in a step, all and exposed.
pub(super) fn wire(step: &Step, stage: u32, style: Style, axis: Axis) -> (u64, u64) {
    let of =
        |op: &Op| op.wire_bytes(step.group_size(axis), op.when.count_per_step(step.micro_batches()).unwrap()).unwrap();
    let ops = step.ops_of_stage(stage).unwrap();
    let ops: Vec<&Op> = ops.iter().filter(|op| op.style == style && op.axis == axis).collect();
    let exposed = ops.iter().filter(|op| op.overlap.is_exposed()).map(|op| of(op)).sum();
    (ops.iter().map(|op| of(op)).sum(), exposed)
}

/// How many calls of each of the three collectives of tensor parallelism.
pub(super) fn calls_of(rows: &[Row]) -> [u64; 3] {
    let of = |collective| rows.iter().filter(|row| row.collective == collective).map(|row| row.calls).sum();
    [of(AllReduce), of(AllGather), of(ReduceScatter)]
}
