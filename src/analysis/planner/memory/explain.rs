//! Explanations of the parts of a rank's memory: the formula with its numbers, for readers.

use super::parts::{MemoryChoices, MemoryUse, bytes};
use super::state::ParameterKind;
use super::{in_flight, state};
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{DataStyle, Recompute};
use commgauge_model::workload::step::TrainingStep;

/// A part of the memory of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Its name, as in [`MemoryUse::parts`].
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
    /// The formula, with the numbers.
    pub why: String,
}

impl MemoryChoices {
    /// The parts that are not nothing, each with its reason; none for a stage that is not there.
    pub fn explain(&self, step: &TrainingStep, stage: u32) -> Vec<MemoryPart> {
        let used = self.memory(step, stage);
        let parts = used.parts().into_iter().filter(|(_, bytes)| bytes.0 > 0);
        parts.map(|(name, bytes)| MemoryPart { name, bytes, why: self.reason(step, stage, name, &used) }).collect()
    }

    fn reason(&self, step: &TrainingStep, stage: u32, part: &str, used: &MemoryUse) -> String {
        let data = &step.training.data;
        let style = data.style;
        let gathers = matches!(style, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp);
        let tokens = step.tokens_per_micro_batch();
        match part {
            "parameters" => {
                parameter_bytes(step, stage, state::parameter_bytes_per_parameter(step), gathers.then_some(1))
            }
            "gradients" => {
                let each = state::gradient_bytes_per_parameter(step);
                let own = match state::reduces_in_turn(step) {
                    true => "those of one chunk whole, as chunks are reduced one after another".to_owned(),
                    false => parameter_bytes(step, stage, each, state::shares_gradients(step).then_some(1)),
                };
                match (state::holds_buckets(step), state::reduces_into_other_memory(step)) {
                    (true, _) => own + ", half of it buckets in which they are reduced",
                    (_, true) => own + ", and their shards, which another stream allocates",
                    _ => own,
                }
            }
            "optimizer" => {
                let each = state::optimizer_bytes_per_parameter(step, self.optimizer_gradient_copy);
                parameter_bytes(step, stage, each, state::groups_of_optimizer(step))
            }
            "unsharded" if !gathers => "copies of weights in the type of products, until the backward pass".to_owned(),
            "unsharded" if step.reshards_after_forward() => {
                let whole =
                    "root unit, the layer at work and the next, and gradients of layers before they are scattered";
                match data.shards.secondary {
                    None => whole.to_owned(),
                    Some(shards) => format!("{whole}; all parameters in {shards} shards between the passes"),
                }
            }
            "unsharded" => {
                "everything whole until the optimizer, and gradients of layers before they are scattered".to_owned()
            }
            "activations" => self.in_layers(step, stage, used.activations),
            "recomputation" if step.training.tensor.recompute == Recompute::Selective => {
                "attention of one layer, computed again".to_owned()
            }
            "recomputation" => "one layer, computed again".to_owned(),
            "backward" => "gradients inside one layer, while its backward pass runs".to_owned(),
            "ends" => "tokens and embedding, or last norm and the head's input".to_owned(),
            "logits" => {
                let t = u64::from(step.layout.degrees.tp);
                let each = super::activations::logit_bytes(step);
                let held = match super::activations::held_logit_bytes(step) {
                    0 => String::new(),
                    held => format!(", and {held} B of each of {} micro-batches", step.micro_batches),
                };
                format!("{each} B x {tokens} tokens x {}/{t} words{held}", step.model.padded_vocabulary(t))
            }
            _ => match state::reduction_buffer(step) {
                0 => "messages from neighbouring stages, and a gathered sequence".to_owned(),
                buffer => format!("{} in which gradients are gathered to be reduced, and messages", bytes(buffer)),
            },
        }
    }

    fn in_layers(&self, step: &TrainingStep, stage: u32, activations: Bytes) -> String {
        let (chunks, layers) = (u64::from(step.stages.chunks()), step.stages.layers_stored(stage).count() as u64);
        let in_flight = in_flight::chunks(step, stage);
        let stored_layers = (in_flight * layers).max(1);
        let each = Bytes(
            u64::try_from(u128::from(activations.0) * u128::from(chunks) / u128::from(stored_layers)).unwrap_or(0),
        );
        let schedule = step.training.pipeline.schedule;
        let flight = match (step.stages.count(), chunks) {
            (1, _) => "1 micro-batch".to_owned(),
            (_, 1) => format!("{in_flight} micro-batches in flight ({schedule})"),
            _ => format!("{in_flight} chunks of {chunks} on the rank in flight ({schedule})"),
        };
        let attention = if self.kernels.fused_attention { "fused attention" } else { "attention with its matrices" };
        let elementwise = if self.kernels.fused_elementwise { "" } else { ", norms and gates kernel after kernel" };
        let recompute = step.training.tensor.recompute;
        format!("{layers} layers, {flight}, {each} a layer: {attention}{elementwise}, recompute {recompute}")
    }
}

/// Bytes for each parameter on a rank, or a share of it among so many groups of shards, in words.
fn parameter_bytes(step: &TrainingStep, stage: u32, each: u64, groups: Option<u64>) -> String {
    let parameters = step.rank_parameters(stage);
    let share = |count: u64, kind: ParameterKind| match groups.map_or(1, |groups| groups * state::shards(step, kind)) {
        1 => count.to_string(),
        shares => format!("{count}/{shares}"),
    };
    if parameters.experts == 0 {
        return format!("{each} B x {} parameters", share(parameters.dense, ParameterKind::Dense));
    }
    let (dense, experts) =
        (share(parameters.dense, ParameterKind::Dense), share(parameters.experts, ParameterKind::Experts));
    format!("{each} B x ({dense} dense + {experts} of experts)")
}
