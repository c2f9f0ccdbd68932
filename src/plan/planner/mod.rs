//! Decisions from a model, a machine's rates and a layout: communication cost, memory, step time, and the choice of layout.
//!
//! Only plain data goes in and out: no launch, no files. `workload` describes the communication of a step, `cost` the
//! time of a call.

pub mod calibration_suite;
pub mod communication;
pub mod compute;
pub mod memory;
pub mod plan_document;
pub mod price;
pub mod rank;
pub mod rates;
pub mod search;
pub mod step_error;
pub mod validate;

use commgauge_model::config::Model;
use commgauge_model::config::step::Framework;

// Which parts of a layer are one kernel: this determines the bytes they move, and the activations they store.

/// The name of GELU by its formula, operation by operation.
const GELU_BY_OPERATIONS: &str = "gelu_new";

/// The kernels of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Several, which store scores and their dropout, as in arXiv 2205.05198.
    Separate,
    /// One that stores no matrix of tokens by tokens (arXiv 2205.14135), as in every current framework; it skips what a causal mask hides.
    Fused,
    /// The same made for Ampere, on a newer GPU: FlashAttention 1 and 2 do without Hopper's asynchronous instructions.
    FusedForAmpere,
}

/// How a layer is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    /// What attention is.
    pub attention: AttentionKernel,
    /// Norms, rotations and gates in one kernel each, as in Megatron; else separate PyTorch kernels.
    pub fused_elementwise: bool,
    /// CUDA graphs start the kernels, without the host's time for each.
    pub in_graphs: bool,
}

impl Kernels {
    /// The minimum number of kernels.
    pub const FUSED: Kernels = Kernels { attention: AttentionKernel::Fused, fused_elementwise: true, in_graphs: false };
    /// As in 2022: attention stores its matrices.
    pub const WITH_ATTENTION_MATRICES: Kernels = Kernels { attention: AttentionKernel::Separate, ..Kernels::FUSED };

    /// A framework's default: Hugging Face's models, unless compiled, use separate PyTorch kernels.
    pub fn usual_of(framework: Option<Framework>) -> Kernels {
        Kernels { fused_elementwise: framework != Some(Framework::HuggingFace), ..Kernels::FUSED }
    }

    /// How much longer attention takes than in kernels made for the GPU: FlashAttention-3 takes half to two thirds of the time of
    /// FlashAttention-2 on an H100 (arXiv 2407.08608, abstract).
    pub fn attention_slowdown(self) -> f64 {
        if self.attention == AttentionKernel::FusedForAmpere { 2.0 } else { 1.0 }
    }

    /// Whether attention stores no matrix of tokens by tokens.
    pub fn fuses_attention(self) -> bool {
        self.attention != AttentionKernel::Separate
    }

    /// Whether a norm is one kernel: PyTorch has one for norms that subtract the mean and have a bias.
    fn has_one_for_norms_of(self, model: &Model) -> bool {
        self.fused_elementwise || model.norms_have_bias()
    }

    /// Whether the activation function is one kernel, together with the gate if there is one.
    fn has_one_for_activations_of(self, model: &Model) -> bool {
        let by_operations = model.activation.as_deref() == Some(GELU_BY_OPERATIONS);
        self.fused_elementwise || !(model.family.gated || by_operations)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    // For tests of the planner: the text of a suite's tables -> a training step.
    use commgauge_model::config::Suite;
    use commgauge_model::workload::step::{Step, TrainingStep};
    use std::path::Path;

    /// The defaults of transformers' classes, for hybrid models without a preset.
    pub(crate) const QWEN3_NEXT: &str = "../tests/data/transformers/qwen3_next/config.json";
    pub(crate) const NEMOTRON_H: &str = "../tests/data/transformers/nemotron_h/config.json";

    /// Calls `check` with the step of a shipped model, or of a config.json. `training` holds lines of `[training]`; a sequence of 2048 and
    /// one micro-batch are added unless set.
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
}
