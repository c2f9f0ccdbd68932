//! What the layers of a stage call and carry in a forward pass over requests.

use crate::config::Mixer;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::{LayerKind, Pass, When};
use commgauge_base::error::Result;

/// Calls in every layer of a kind of a stage, in one forward pass of every micro-batch.
pub(super) fn in_layers(step: &ServingStep, stage: u32, kind: LayerKind, calls_per_layer: u64) -> When {
    let is_of_kind = |layer: &u32| kind.has(step.model.parts_of(*layer));
    let layers = step.stages.layers_passed(stage).filter(is_of_kind).count() as u64;
    When::Layer { pass: Pass::Forward, kind, calls_per_layer, layers }
}

/// Kinds of layers of a stage that mix tokens, and what does.
pub(super) fn mixers_of(step: &ServingStep, stage: u32) -> Vec<(LayerKind, Mixer)> {
    let kinds = match &step.model.linear_attention {
        None => &[LayerKind::Any],
        Some(_) => LayerKind::of_equal_layers(step.model),
    };
    let of_stage = || step.stages.layers_passed(stage).map(|layer| step.model.parts_of(layer));
    let mixer = |kind: &LayerKind| Some((*kind, of_stage().find(|parts| kind.has(*parts))?.mixer?));
    kinds.iter().filter_map(mixer).collect()
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
    match step.tokens.worked_on {
        1 => format!("({} requests*1 token)", step.requests()),
        tokens => format!("({} requests*{tokens} tokens)", step.requests()),
    }
}

/// The tokens of a micro-batch of which the next one is predicted: r, or r (1 + K) where K were drafted.
///
/// # Errors
/// If they are more than any machine has.
pub(super) fn predicted_from(step: &ServingStep) -> Result<PredictedFrom> {
    let (requests, each) = (step.requests(), step.tokens.predicted_from);
    let rows = product("tokens to predict from", &[requests, each])?;
    Ok(match each {
        1 => PredictedFrom {
            rows,
            symbol: "r",
            numbers: format!("{requests} requests"),
            which: "last token of every request",
        },
        _ => PredictedFrom {
            rows,
            symbol: "r*(1+K)",
            numbers: format!("({requests} requests*{each} tokens)"),
            which: "last and drafted tokens of every request",
        },
    })
}

/// Tokens of which the next one is predicted, in numbers and words.
pub(super) struct PredictedFrom {
    pub rows: u64,
    pub symbol: &'static str,
    pub numbers: String,
    pub which: &'static str,
}
