//! Embedding, output projection and loss of a vocabulary that the ranks of tp divide among them.

use super::calls::{activations, counted, one_in};
use crate::config::step::TensorStyle;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Each rank looks up the words of its part of the vocabulary; the sum of all is the embedding.
pub(super) fn embedding(step: &TrainingStep, end: End) -> Vec<Op> {
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
pub(super) fn output_projection(step: &TrainingStep) -> Vec<Op> {
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
pub(super) fn cross_entropy(step: &TrainingStep) -> Result<Vec<Op>> {
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
