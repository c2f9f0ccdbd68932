//! Memory of the first stage against figure 1 of arXiv 2205.05198.
//!
//! The figure leaves out embedding, biases and norms, which are in ours: what differs is that.

use super::runs::MeasuredRun;
use super::score::error_percent;
use super::sets::{SetName, published_memory};
use crate::cost::PredictionPair;
use crate::planner::kernels::Kernels;
use crate::planner::memory::{MemoryChoices, MemoryUse};
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The runs with sequence parallelism and selective recomputation.
const SPARING: &str = "sp + selective";

const GIBIBYTE: f64 = (1u64 << 30) as f64;

/// Memory of a rank of the first stage, in GiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryResult {
    /// The model.
    pub model: String,
    /// What is recomputed.
    pub variant: String,
    /// Parameters, gradients and optimizer, as predicted.
    pub state_gibibytes: f64,
    /// As published.
    pub published_state_gibibytes: f64,
    /// Percent by which the prediction is too large.
    pub state_error_percent: f64,
    /// Activations of the layers, as predicted.
    pub activations_gibibytes: f64,
    /// As published.
    pub published_activations_gibibytes: f64,
    /// Percent by which the prediction is too large.
    pub activations_error_percent: f64,
    /// Everything, with logits, buffers and what is computed again.
    pub total_gibibytes: f64,
}

/// Both columns of the figure, model by model.
pub(super) fn results() -> Result<Vec<MemoryResult>> {
    let all = SetName::MegatronSpTable5.runs()?;
    let plain: Vec<MeasuredRun> = all.iter().map(MeasuredRun::without_recomputation).collect();
    let mut results = Vec::new();
    for published in published_memory()? {
        let of = |runs: &[MeasuredRun], variant: &str, activations: f64| -> Result<MemoryResult> {
            let run = runs.iter().find(|run| run.model.name == published.model && run.variant == SPARING);
            let run = run.ok_or_else(|| {
                Error::usage(format!("suites/published: figure 1 names {}, table 5 does not", published.model))
            })?;
            let used = used(run)?;
            Ok(compare(&published.model, variant, &used, published.state_gibibytes, activations))
        };
        results.push(of(&plain, "", published.activations_gibibytes)?);
        results.push(of(&all, SPARING, published.activations_sparing_gibibytes)?);
    }
    Ok(results)
}

/// The first stage, with attention as it was, and 18 bytes for each parameter as the figure has it.
fn used(run: &MeasuredRun) -> Result<MemoryUse> {
    let choices = MemoryChoices::with(Kernels::WITH_ATTENTION_MATRICES);
    let mut used = choices.memory(&run.step()?, 0);
    // fp32 gradients, where the wire has fp16 ones.
    used.gradients.0 = used.gradients.0.saturating_mul(2);
    Ok(used)
}

fn compare(model: &str, variant: &str, used: &MemoryUse, state: f64, activations: f64) -> MemoryResult {
    let gibibytes = |bytes: u64| bytes as f64 / GIBIBYTE;
    let (own_state, own_activations) = (gibibytes(used.state().0), gibibytes(used.activations.0));
    MemoryResult {
        model: model.to_owned(),
        variant: if variant.is_empty() { "nothing recomputed" } else { variant }.to_owned(),
        state_gibibytes: own_state,
        published_state_gibibytes: state,
        state_error_percent: error_percent(PredictionPair { predicted: own_state, measured: state }),
        activations_gibibytes: own_activations,
        published_activations_gibibytes: activations,
        activations_error_percent: error_percent(PredictionPair { predicted: own_activations, measured: activations }),
        total_gibibytes: gibibytes(used.total().0),
    }
}
