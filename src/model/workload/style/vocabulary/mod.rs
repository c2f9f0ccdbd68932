//! The ends of the model, divided by vocabulary: embedding, output projection, loss, and the gradient of a word
//! embedding that two stages share.
//!
//! Learned positions need no calls: only the first stage of a decoder has them, so that their group has one rank.

mod calls;
mod gathered;
mod predicted;
#[cfg(test)]
mod tests;

use super::product::product;
use crate::config::step::{TensorStyle, VocabularyStyle};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use calls::{activations, counted, one_in};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.extend(embedding(step, End::Input));
        }
        match step.training.vocabulary.style {
            _ if !step.stages.has_output(stage) => {}
            VocabularyStyle::Parallel => {
                ops.extend(output_projection(step));
                ops.extend(cross_entropy(step)?);
                ops.extend(predicted::ops(step)?);
            }
            VocabularyStyle::Gathered => ops.extend(gathered::ops(step)?),
        }
    }
    ops.extend(shared_embedding(step, stage)?);
    Ok(ops)
}

/// Each rank looks up the words of its part of the vocabulary; the sum of all is the embedding.
fn embedding(step: &TrainingStep, end: End) -> Vec<Op> {
    use Collective::{AllGather, AllReduce, ReduceScatter};
    let source = "Megatron-LM core/models/common/embeddings/language_model_embedding.py";
    let call = |collective, pass, what: &str| activations(step, collective, pass, end, Overlap::Exposed, what, source);
    if !step.training.tensor.sequence_parallel {
        return vec![call(
            AllReduce,
            Pass::Forward,
            "vocabulary-parallel embedding; backward each rank keeps its own words",
        )];
    }
    // Learned positions are added to whole sequences, which are cut without communication only then.
    let forward = if step.model.family.has_learned_positions() {
        call(AllReduce, Pass::Forward, "vocabulary-parallel embedding, whole because learned positions are added to it")
    } else {
        call(ReduceScatter, Pass::Forward, "vocabulary-parallel embedding, each rank its part of the sequence")
    };
    vec![forward, call(AllGather, Pass::Backward, "gradient of the embedding from all parts of the sequence")]
}

/// A column-parallel linear whose output stays divided by vocabulary.
fn output_projection(step: &TrainingStep) -> Vec<Op> {
    use Collective::{AllGather, AllReduce, ReduceScatter};
    let source = "Megatron-LM core/models/gpt/gpt_model.py output_layer, core/tensor_parallel/layers.py";
    let call =
        |collective, pass, overlap, what: &str| activations(step, collective, pass, End::Output, overlap, what, source);
    let gradient = "input gradient of the output projection, beside its weight gradient";
    if !step.training.tensor.sequence_parallel {
        return vec![call(AllReduce, Pass::Backward, Overlap::WeightGradient, gradient)];
    }
    let again = "input of the output projection, stored in parts and gathered again beside the input gradient";
    let mut ops = vec![call(AllGather, Pass::Forward, Overlap::Exposed, "input of the output projection")];
    if step.training.tensor.style == TensorStyle::Megatron {
        ops.push(call(AllGather, Pass::Backward, Overlap::InputGradient, again));
    }
    ops.push(call(ReduceScatter, Pass::Backward, Overlap::WeightGradient, gradient));
    ops
}

/// Each rank has the logits of its part of the vocabulary: the largest, the predicted one and the sum of exponentials are
/// found together, in float32. Backward needs nothing from others.
fn cross_entropy(step: &TrainingStep) -> Result<Vec<Op>> {
    let (plain, fused) = ("core/tensor_parallel/cross_entropy.py", "core/fusions/fused_cross_entropy.py");
    let calls: &[(u64, ReduceOp, &str, &str)] = if step.training.tensor.fused_cross_entropy {
        &[
            (1, ReduceOp::Max, "largest logit", fused),
            (2, ReduceOp::Sum, "predicted logit and sum of exponentials in one", fused),
        ]
    } else {
        &[
            (1, ReduceOp::Max, "largest logit", plain),
            (1, ReduceOp::Sum, "predicted logit", plain),
            (1, ReduceOp::Sum, "sum of exponentials", plain),
        ]
    };
    let (b, s, c) = (step.training.micro_batch, step.training.sequence, step.layout.degrees.cp);
    let (element, tokens) = (ElementType::Float32, step.tokens_per_micro_batch());
    let op = |(numbers, reduce_op, what, source): &(u64, ReduceOp, &str, &str)| {
        let bytes = product(what, &[element.size(), *numbers, tokens])?;
        Ok(Op {
            when: When::MicroBatch { pass: Pass::Forward, end: End::Output, calls: 1, one_in: one_in(step) },
            reduce_op: Some(*reduce_op),
            why: format!(
                "{}*b*(s/c) = {} B*{b}*({s}/{c}) = {bytes} B: {what} of every token, vocabulary-parallel cross entropy{} \
                 (Megatron-LM {source})",
                numbers * element.size(),
                numbers * element.size(),
                counted(step)
            ),
            ..Op::new(Style::Vocabulary, Axis::Tp, Collective::AllReduce, element, bytes)
        })
    };
    calls.iter().map(op).collect()
}

/// First and last stage have the same word embedding and add up their gradients, after those of data parallelism.
///
/// V-shaped schedules have both ends on one stage; nothing is shared there. With mirrored stages both stages have both
/// ends, and the two copies are added up.
fn shared_embedding(step: &TrainingStep, stage: u32) -> Result<Option<Op>> {
    let ends = [step.stages.has_input(stage), step.stages.has_output(stage)];
    let shares = match ends {
        [false, false] => false,
        [true, true] => step.stages.mirrored(),
        _ => true,
    };
    // Layers that predict further tokens embed them with the words of the first stage.
    let embeds_again = step.training.prediction_layers > 0;
    if !(step.model.tied_embeddings || embeds_again) || step.layout.degrees.pp == 1 || !shares {
        return Ok(None);
    }
    let (t, h, element) =
        (u64::from(step.layout.degrees.tp), step.model.hidden, step.training.data.gradient_element_type);
    let padded = step.padded_vocabulary();
    let bytes = product("gradient of the word embedding", &[element.size(), padded / t, h])?;
    Ok(Some(Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        overlap: Overlap::Exposed,
        why: format!(
            "Eg*V*h/t = {} B*{padded}*{h}/{t} = {bytes} B: gradient of the word embedding that the first and the last stage \
             share, vocabulary padded from {} (Megatron-LM core/distributed/finalize_model_grads.py \
             _allreduce_word_embedding_grads)",
            element.size(),
            step.model.vocabulary
        ),
        ..Op::new(Style::Vocabulary, Axis::Embedding, Collective::AllReduce, element, bytes)
    }))
}
