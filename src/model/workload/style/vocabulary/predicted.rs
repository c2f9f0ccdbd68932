//! Layers that predict further tokens (multi-token prediction), on the stage with the output projection: each embeds the tokens, joins
//! them with the hidden state, and has its logits and its loss. Their transformer layers are among those of the stage.
//!
//! Megatron-LM core/transformer/multi_token_prediction.py; arXiv 2412.19437 section 2.2. Nothing is sent where tp is 1.

use super::divided::{cross_entropy, embedding, output_projection};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::style::recompute::repeats_forward;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Where the calls are made.
const SOURCE: &str = "Megatron-LM core/transformer/multi_token_prediction.py";

/// The calls of all such layers.
pub(super) fn ops(step: &TrainingStep) -> Result<Vec<Op>> {
    let layers = u64::from(step.training.prediction_layers);
    if layers == 0 {
        return Ok(Vec::new());
    }
    let mut ops = embedding(step, End::Output);
    ops.extend(projection(step)?);
    ops.extend(output_projection(step));
    ops.extend(cross_entropy(step)?);
    ops.extend(accepted(step)?);
    let each = |op: Op| Op {
        when: When::MicroBatch {
            pass: op.when.pass().unwrap_or(Pass::Forward),
            end: End::Output,
            calls: layers * op.when.count_per_micro_batch().unwrap_or(1),
            one_in: 1,
        },
        why: format!("{}; in each of {layers} layers that predict a further token", op.why),
        ..op
    };
    Ok(ops.into_iter().map(each).collect())
}

/// Hidden state and embedding side by side, to the hidden width: a column-parallel linear whose output is gathered, and cut by sequence
/// again where the layers are.
fn projection(step: &TrainingStep) -> Result<Vec<Op>> {
    let parts = step.training.tensor.sequence_parallel;
    let again: &[Pass] = if repeats_forward(step) { &[Pass::Recompute] } else { &[] };
    let forward = || std::iter::once(Pass::Forward).chain(again.iter().copied());
    let op = |collective, pass, widths: u64, what: &str| -> Result<Op> {
        let (element, tokens, h) = (step.activation(), step.tokens_per_micro_batch(), step.model.hidden);
        let bytes = product(what, &[element.size(), tokens, widths, h])?;
        Ok(Op {
            when: When::MicroBatch { pass, end: End::Output, calls: 1, one_in: 1 },
            overlap: Overlap::Exposed,
            why: format!(
                "E*b*(s/c)*{widths}*h = {} B*{tokens}*{widths}*{h} = {bytes} B: {what} ({SOURCE} _concat_embeddings)",
                element.size()
            ),
            ..Op::new(Style::Vocabulary, Axis::Tp, collective, element, bytes)
        })
    };
    let (input, gradient) =
        ("hidden state and embedding side by side", "gradient of hidden state and embedding side by side");
    let output = "their projection, of which each rank has some columns";
    let mut ops = Vec::new();
    for pass in forward().filter(|_| parts) {
        ops.push(op(AllGather, pass, 2, input)?);
    }
    for pass in forward() {
        ops.push(op(AllGather, pass, 1, output)?);
    }
    if parts {
        ops.push(op(AllGather, Pass::Backward, 2, input)?);
        ops.push(op(AllGather, Pass::Backward, 1, "gradient of the projection from all parts of the sequence")?);
        ops.push(op(ReduceScatter, Pass::Backward, 2, gradient)?);
    } else {
        ops.push(op(AllReduce, Pass::Backward, 2, gradient)?);
    }
    Ok(ops)
}

/// Largest logit of each token and its word from every rank, to log how often the prediction is right.
fn accepted(step: &TrainingStep) -> Result<[Op; 2]> {
    let (t, tokens) = (u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let op = |element: ElementType, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), t, tokens])?;
        Ok(Op {
            when: When::MicroBatch { pass: Pass::Forward, end: End::Output, calls: 1, one_in: 1 },
            overlap: Overlap::Exposed,
            why: format!(
                "{} B*t*b*(s/c) = {} B*{t}*{tokens} = {bytes} B: {what} ({SOURCE} _vocab_parallel_argmax)",
                element.size(),
                element.size()
            ),
            ..Op::new(Style::Vocabulary, Axis::Tp, AllGather, element, bytes)
        })
    };
    Ok([
        op(step.activation(), "largest logit of each token of every rank, for the log of right predictions")?,
        op(ElementType::Int64, "its word, for the log of right predictions")?,
    ])
}
