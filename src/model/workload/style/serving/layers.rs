//! What the layers of a stage call and carry in a forward pass over requests.

use crate::config::{Mixer, Model};
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use crate::workload::when::{LayerKind, Pass, When};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Calls in every layer of a kind of a stage, in one forward pass of every micro-batch.
pub(super) fn in_layers(step: &ServingStep, stage: u32, kind: LayerKind, calls_per_layer: u64) -> When {
    When::Layer { pass: Pass::Forward, kind, calls_per_layer, layers: layers_of(step, stage, kind) }
}

/// Layers of a kind of a stage.
pub(super) fn layers_of(step: &ServingStep, stage: u32, kind: LayerKind) -> u64 {
    step.stages.layers_passed(stage).filter(|layer| kind.has(step.model.parts_of(*layer))).count() as u64
}

/// Kinds of layers of a stage that mix tokens, and what does.
pub(super) fn mixers_of(step: &ServingStep, stage: u32) -> Vec<(LayerKind, Mixer)> {
    let kinds = match &step.model.attention.linear {
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

/// Bytes of what a rank keeps of so many tokens, of which `symbol` stands for the number, in a layer with attention, and the formula with
/// its numbers: its heads of keys and values where `t` ranks share them out, or what low-rank attention keeps in their place, whole on every
/// rank.
pub(super) fn keys_and_values(
    model: &Model,
    t: u64,
    element: ElementType,
    tokens: u64,
    symbol: &str,
) -> Result<(u64, String)> {
    let size = element.size();
    if let Some(latent) = &model.attention.latent {
        let (rank, rotary) = (latent.kv_rank, latent.rotary_dimension);
        let bytes = product("latent keys and values", &[size, tokens, rank + rotary])?;
        let formula = format!("E*{symbol}*(kv_lora_rank + rope) = {size} B*{tokens}*({rank} + {rotary}) = {bytes} B");
        return Ok((bytes, formula));
    }
    let (heads, width) = (model.kv_heads_per_rank(t), model.attention.head_dimension);
    let bytes = product("keys and values", &[2, size, tokens, heads, width])?;
    Ok((bytes, format!("2*E*{symbol}*max(1, k/t)*hd = 2*{size} B*{tokens}*{heads}*{width} = {bytes} B")))
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
