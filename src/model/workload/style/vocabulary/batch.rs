//! What ranks of tensor parallelism get of each micro-batch from the one that reads it: tokens, labels, loss mask, positions, and the mask
//! of attention. Without tensor parallelism every rank reads its own.
//!
//! A pipeline's stages get what they need alone: the first one tokens and positions, the last one labels and loss mask. With context
//! parallelism every rank gets whole sequences, and cuts its part out of them.

#[cfg(test)]
mod tests;

use super::calls::{counted, one_in};
use crate::config::step::BatchBroadcast;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

const SOURCE: &str = "Megatron-LM core/utils.py get_batch_on_this_tp_rank, pretrain_gpt.py get_batch";

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if step.training.tensor.batch_broadcast == BatchBroadcast::None || step.layout.degrees.tp == 1 {
        return Ok(Vec::new());
    }
    let mut ops = Vec::new();
    for end in [End::Input, End::BeforeOutput] {
        for tensor in tensors(step, stage, end) {
            ops.push(broadcast(step, end, tensor)?);
        }
    }
    Ok(ops)
}

/// Tensors of one type that a stage gets together.
struct Tensors {
    element: ElementType,
    count: u64,
    /// Elements of each token, as a number and in words.
    per_token: (u64, &'static str),
    what: &'static str,
}

/// What a stage gets at an end of the model that it holds.
fn tensors(step: &TrainingStep, stage: u32, end: End) -> Vec<Tensors> {
    let one_stage = step.layout.degrees.pp == 1;
    let (is_here, words, has_labels) = match end {
        End::Input if one_stage => (true, (3, "tokens, labels and positions"), true),
        End::Input => (step.stages.has_input(stage), (2, "tokens and positions"), false),
        // Layers that predict further tokens embed them.
        _ if step.training.prediction_layers > 0 => {
            (step.stages.has_output(stage) && !one_stage, (3, "tokens, labels and positions"), true)
        }
        _ => (step.stages.has_output(stage) && !one_stage, (1, "labels"), true),
    };
    if !is_here {
        return Vec::new();
    }
    let (count, what) = words;
    let of_tokens = (1, "");
    let mut tensors = vec![Tensors { element: ElementType::Int64, count, per_token: of_tokens, what }];
    if has_labels {
        tensors.push(Tensors {
            element: ElementType::Float32,
            count: 1,
            per_token: of_tokens,
            what: "mask of the loss",
        });
    }
    if step.training.tensor.batch_broadcast == BatchBroadcast::FieldsAndMask {
        let per_token = (step.training.sequence, "*s");
        tensors.push(Tensors { element: ElementType::Uint8, count: 1, per_token, what: "mask of attention" });
    }
    tensors
}

fn broadcast(step: &TrainingStep, end: End, tensors: Tensors) -> Result<Op> {
    let Tensors { element, count, per_token: (elements, formula), what } = tensors;
    let (b, s) = (step.training.micro_batch, step.training.sequence);
    let bytes = product(what, &[element.size(), b, s, elements])?;
    let numbers = if elements == 1 { String::new() } else { format!("*{elements}") };
    Ok(Op {
        when: When::MicroBatch { pass: Pass::Forward, end, calls: count, one_in: one_in(step) },
        overlap: Overlap::Exposed,
        why: format!(
            "{} B*b*s{formula} = {} B*{b}*{s}{numbers} = {bytes} B: {what} of a micro-batch, from the rank of tp that read it{} ({SOURCE})",
            element.size(),
            element.size(),
            counted(step)
        ),
        ..Op::new(Style::Vocabulary, Axis::Tp, Collective::Broadcast, element, bytes)
    })
}
