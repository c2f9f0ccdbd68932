//! What the layers of a stage call and carry in a forward pass over requests.

use crate::workload::step::{Phase, ServingStep};
use crate::workload::style::product::product;
use crate::workload::when::{LayerKind, Pass, When};
use commgauge_base::error::Result;

/// Calls in every layer of a kind of a stage, in one forward pass of every micro-batch.
pub(super) fn in_layers(step: &ServingStep, stage: u32, kind: LayerKind, calls_per_layer: u64) -> When {
    let is_of_kind = |layer: &u32| match kind {
        LayerKind::Any => true,
        LayerKind::Dense => !step.model.has_experts_in(*layer),
        LayerKind::Experts => step.model.has_experts_in(*layer),
    };
    let layers = step.stages.layers_passed(stage).filter(is_of_kind).count() as u64;
    When::Layer { pass: Pass::Forward, kind, calls_per_layer, layers }
}

/// Bytes of the activations of a micro-batch, E tokens h, and the formula with its numbers.
pub(super) fn activations(step: &ServingStep) -> Result<(u64, String)> {
    let (element, tokens, h) =
        (step.serving.activation_element_type.size(), step.tokens_per_micro_batch(), step.model.hidden);
    let bytes = product("activations", &[element, tokens, h])?;
    Ok((bytes, format!("E*tokens*h = {element} B*{}*{h} = {bytes} B", tokens_formula(step))))
}

/// Formula of the tokens of a micro-batch, with numbers.
fn tokens_formula(step: &ServingStep) -> String {
    match step.phase {
        Phase::Prefill => format!("({} requests*{} tokens)", requests(step), step.serving.prompt_tokens),
        Phase::Decode => format!("({} requests*1 token)", requests(step)),
    }
}

/// Requests of a micro-batch: r.
pub(super) fn requests(step: &ServingStep) -> u64 {
    step.serving.batch / step.serving.micro_batches
}
