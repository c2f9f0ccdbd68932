//! One optimizer step of a model in a layout: what the styles have in common, and whether the layout fits the model.

use super::degrees::layout_name;
use super::sweep::refuse;
use crate::config::{Batch, Layout, Model, Training};
use crate::element::ElementType;
use crate::error::Result;
use crate::layout::Degrees;
use crate::units::Bytes;

/// A model, its training and the degrees that divide it, checked against each other.
pub(super) struct TrainingStep<'a> {
    /// The model.
    pub model: &'a Model,
    /// The training.
    pub training: &'a Training,
    /// The degrees.
    pub degrees: Degrees,
    /// The layout as shown, such as `tp 2 x dp 2`.
    pub layout: String,
    /// Micro-batches of one replica in a step: m.
    pub micro_batches: u64,
}

impl<'a> TrainingStep<'a> {
    /// # Errors
    /// Which rule is broken, with the numbers, at the layout's or the batch's place.
    pub fn new(model: &'a Model, training: &'a Training, layout: &Layout, degrees: Degrees) -> Result<Self> {
        let step = TrainingStep {
            model,
            training,
            degrees,
            layout: layout_name(&degrees),
            micro_batches: micro_batches(training, &degrees)?,
        };
        step.check().map_err(|problem| layout.place.wrong(problem))?;
        Ok(step)
    }

    /// Bytes of the activations of a micro-batch at a layer's boundary, E b (s/c) h, and the formula with its numbers.
    pub fn activation_bytes(&self) -> (Bytes, String) {
        let element = self.activation_element_type();
        let (b, s, h) = (self.training.micro_batch, self.training.sequence, self.model.hidden);
        let c = u64::from(self.degrees.cp);
        let bytes = element.size() * b * (s / c) * h;
        (Bytes(bytes), format!("E*b*(s/c)*h = {} B*{b}*({s}/{c})*{h} = {bytes} B", element.size()))
    }

    /// Type of activations on the wire.
    pub fn activation_element_type(&self) -> ElementType {
        self.training.activation_element_type
    }

    fn check(&self) -> std::result::Result<(), String> {
        let (model, degrees) = (self.model, &self.degrees);
        let (t, k) = (u64::from(degrees.tp), model.kv_heads);
        if degrees.cp > 1 {
            return Err(
                "the traffic of a model under context parallelism is not offered yet; accepted: cp = 1".to_owned()
            );
        }
        if t > 1 && model.mixture.is_some() {
            return Err("tensor parallelism of a model with experts is not offered yet; accepted: tp = 1".to_owned());
        }
        for (what, field, number) in [
            ("query heads", "num_attention_heads", model.heads),
            ("inner width", "intermediate_size", model.feed_forward),
        ] {
            if !number.is_multiple_of(t) {
                return Err(must_divide("tp", t, number, what, field, &model.name));
            }
        }
        if !k.is_multiple_of(t) && !t.is_multiple_of(k) {
            return Err(format!(
                "tp = {t} neither divides the {k} key and value heads of {} (num_key_value_heads) nor is a multiple of them",
                model.name
            ));
        }
        let (p, layers) = (u64::from(degrees.pp), u64::from(model.layers));
        if !layers.is_multiple_of(p) {
            return Err(must_divide("pp", p, layers, "layers", "num_hidden_layers", &model.name));
        }
        let widest = self.training.micro_batch as u128 * self.training.sequence as u128 * model.hidden as u128;
        if widest > 1 << 56 {
            return Err("micro_batch x sequence x hidden is more than any buffer can hold".to_owned());
        }
        Ok(())
    }
}

fn must_divide(axis: &str, degree: u64, number: u64, what: &str, field: &str, model: &str) -> String {
    let accepted: Vec<_> = (1..=number.min(1024))
        .filter(|degree| number.is_multiple_of(*degree))
        .map(|degree| degree.to_string())
        .collect();
    let shown = accepted.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
    let more = if accepted.len() > 12 { ", ..." } else { "" };
    format!("{axis} = {degree} does not divide the {number} {what} of {model} ({field}); those that do: {shown}{more}")
}

/// m = global batch / (micro-batch x replicas).
fn micro_batches(training: &Training, degrees: &Degrees) -> Result<u64> {
    match &training.batch {
        Batch::MicroBatches(count) => Ok(*count),
        Batch::Global(global, place) => {
            let (b, d) = (training.micro_batch, u64::from(degrees.dp));
            let together = b * d;
            refuse(!global.is_multiple_of(together), place, || {
                let up = global.next_multiple_of(together);
                let down = up.saturating_sub(together);
                let nearest = if down == 0 { up.to_string() } else { format!("{down}, {up}") };
                format!(
                    "{global} samples are no multiple of micro-batch {b} x {d} replicas = {together}; nearest: {nearest}"
                )
            })?;
            Ok(global / together)
        }
    }
}
