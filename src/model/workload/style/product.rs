//! Products of a user's numbers that fit 64 bits, or an error that names the excessive one.
//!
//! Quantities that a step's checks already bound, such as activations at a layer's boundary, do not need this.

use crate::config::step::{BatchBroadcast, Recompute, RecomputeModule, TensorStyle, VocabularyStyle};
use crate::layout::Axis;
use crate::workload::op::{End, LayerKind, Moment, Overlap, Pass, When};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use Collective::{AllGather, AllReduce, ReduceScatter};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};

/// The product of all factors; the error names `what` if it exceeds 64 bits.
pub(super) fn product(what: &str, factors: &[u64]) -> Result<u64> {
    factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor)).ok_or_else(|| {
        let factors: Vec<_> = factors.iter().map(u64::to_string).collect();
        Error::usage(format!("{what}: {} does not fit 64 bits; use a smaller batch or sequence", factors.join(" x ")))
    })
}

// The ends of the model, divided by vocabulary: embedding, output projection, loss, the gradient of a word embedding shared by two stages,
// and the broadcast of the batch.
//
// Learned positions need no calls: only the first stage of a decoder has them, so their group has one rank.

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn vocabulary_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let mut ops = batch_ops(step, stage)?;
    if step.layout.degrees.tp > 1 {
        if step.stages.has_input(stage) {
            ops.extend(embedding(step, End::Input));
        }
        match step.training.vocabulary.style {
            _ if !step.stages.has_output(stage) => {}
            VocabularyStyle::Parallel => {
                ops.extend(output_projection(step));
                ops.extend(cross_entropy(step)?);
                ops.extend(predicted_ops(step)?);
            }
            VocabularyStyle::Gathered => ops.extend(gathered_ops(step)?),
        }
    }
    ops.extend(shared_embedding(step, stage)?);
    Ok(ops)
}

/// First and last stage share the word embedding and sum its gradients, after those of data parallelism.
///
/// V-shaped schedules have both ends on one stage; nothing is shared there. With mirrored stages both stages have both ends, and the two
/// copies are summed.
fn shared_embedding(step: &TrainingStep, stage: u32) -> Result<Option<Op>> {
    let ends = [step.stages.has_input(stage), step.stages.has_output(stage)];
    let shares = match ends {
        [false, false] => false,
        [true, true] => step.stages.mirrored,
        _ => true,
    };
    // Layers that predict further tokens embed them with the words of the first stage.
    let embeds_again = step.training.prediction_layers > 0;
    let is_frozen = step.training.data.trained.is_part();
    if !(step.model.embedding.tied || embeds_again) || step.layout.degrees.pp == 1 || !shares || is_frozen {
        return Ok(None);
    }
    let (t, h, element) =
        (u64::from(step.layout.degrees.tp), step.model.hidden, step.training.data.gradient_element_type);
    let padded = step.padded_vocabulary();
    let bytes = product("gradient of the word embedding", &[element.size(), padded / t, h])?;
    Ok(Some(Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        why: format!(
            "Eg*V*h/t = {} B*{padded}*{h}/{t} = {bytes} B: gradient of the word embedding that the first and the last stage \
             share, vocabulary padded from {} (Megatron-LM core/distributed/finalize_model_grads.py \
             _allreduce_word_embedding_grads)",
            element.size(),
            step.model.embedding.vocabulary
        ),
        ..Op::new(Style::Vocabulary, Axis::Embedding, Collective::AllReduce, element, bytes)
    }))
}

// The data that ranks of tensor parallelism receive per micro-batch from the rank that reads it: tokens, labels, loss mask, positions, and
// attention mask. Without tensor parallelism every rank reads its own.
//
// A pipeline's stages receive only what they need: the first one tokens and positions, the last one labels and loss mask. With context
// parallelism every rank receives whole sequences, and cuts out its part.

const BATCH_SOURCE: &str = "Megatron-LM core/utils.py get_batch_on_this_tp_rank, pretrain_gpt.py get_batch";

/// The calls of one rank of a stage in an optimizer step.
fn batch_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
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

/// Tensors of one type that a stage receives together.
struct Tensors {
    element: ElementType,
    count: u64,
    /// Elements of each token, as a number and in words.
    per_token: (u64, &'static str),
    what: &'static str,
}

/// The data of a stage for its end of the model.
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
        why: format!(
            "{} B*b*s{formula} = {} B*{b}*{s}{numbers} = {bytes} B: {what} of a micro-batch, from the rank of tp that read it{} ({BATCH_SOURCE})",
            element.size(),
            element.size(),
            counted(step)
        ),
        ..Op::new(Style::Vocabulary, Axis::Tp, Collective::Broadcast, element, bytes)
    })
}

// Output projections that divide the vocabulary and gather the logits, so that every rank has the whole loss.
//
// Hugging Face transformers `_tp_plan`: `lm_head` is `colwise_gather_output`.

/// The calls on the stage that has the output projection.
fn gathered_ops(step: &TrainingStep) -> Result<Vec<Op>> {
    let (element, tokens, padded) = (step.activation(), step.tokens_per_micro_batch(), step.padded_vocabulary());
    let bytes = product("logits", &[element.size(), tokens, padded])?;
    let source = "transformers distributed/tensor_parallel.py, arXiv 1909.08053 section 3";
    let logits = Op {
        when: When::MicroBatch { pass: Pass::Forward, end: End::Output, calls: 1, one_in: one_in(step) },
        why: format!(
            "E*b*(s/c)*V = {} B*{tokens}*{padded} = {bytes} B: logits of every token, gathered; backward each rank keeps its own words ({source})",
            element.size()
        ),
        ..Op::new(Style::Vocabulary, Axis::Tp, Collective::AllGather, element, bytes)
    };
    let what = "input gradient of the output projection";
    let gradient =
        activations(step, Collective::AllReduce, Pass::Backward, End::Output, Overlap::Exposed, what, source);
    Ok(vec![logits, gradient])
}

// Layers that predict further tokens (multi-token prediction), on the stage with the output projection: each embeds the tokens,
// concatenates them with the hidden state, and has its own logits and loss. Their transformer layers belong to the stage's layers.
//
// Megatron-LM core/transformer/multi_token_prediction.py; arXiv 2412.19437 section 2.2. Nothing is sent where tp is 1.

/// Source of the calls.
const PREDICTED_SOURCE: &str = "Megatron-LM core/transformer/multi_token_prediction.py";

/// The calls of all such layers.
fn predicted_ops(step: &TrainingStep) -> Result<Vec<Op>> {
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

/// Concatenated hidden state and embedding, to the hidden width: a column-parallel linear whose output is gathered, and cut by sequence
/// again if the layers' inputs are.
fn projection(step: &TrainingStep) -> Result<Vec<Op>> {
    let parts = step.training.tensor.sequence_parallel;
    let again: &[Pass] = if repeats_forward(step) { &[Pass::Recompute] } else { &[] };
    let forward = || std::iter::once(Pass::Forward).chain(again.iter().copied());
    let op = |collective, pass, widths: u64, what: &str| -> Result<Op> {
        let (element, tokens, h) = (step.activation(), step.tokens_per_micro_batch(), step.model.hidden);
        let bytes = product(what, &[element.size(), tokens, widths, h])?;
        Ok(Op {
            when: When::MicroBatch { pass, end: End::Output, calls: 1, one_in: 1 },
            why: format!(
                "E*b*(s/c)*{widths}*h = {} B*{tokens}*{widths}*{h} = {bytes} B: {what} ({PREDICTED_SOURCE} _concat_embeddings)",
                element.size()
            ),
            ..Op::new(Style::Vocabulary, Axis::Tp, collective, element, bytes)
        })
    };
    let (input, gradient) =
        ("concatenated hidden state and embedding", "gradient of concatenated hidden state and embedding");
    let output = "their projection, with some columns on each rank";
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

/// Largest logit of each token and its word from every rank, to log the share of right predictions.
fn accepted(step: &TrainingStep) -> Result<[Op; 2]> {
    let (t, tokens) = (u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let op = |element: ElementType, what: &str| -> Result<Op> {
        let bytes = product(what, &[element.size(), t, tokens])?;
        Ok(Op {
            when: When::MicroBatch { pass: Pass::Forward, end: End::Output, calls: 1, one_in: 1 },
            why: format!(
                "{} B*t*b*(s/c) = {} B*{t}*{tokens} = {bytes} B: {what} ({PREDICTED_SOURCE} _vocab_parallel_argmax)",
                element.size(),
                element.size()
            ),
            ..Op::new(Style::Vocabulary, Axis::Tp, AllGather, element, bytes)
        })
    };
    Ok([
        op(step.activation(), "largest logit of each token on every rank, for the log of right predictions")?,
        op(ElementType::Int64, "its word, for the log of right predictions")?,
    ])
}

// Embedding, output projection and loss of a vocabulary that the ranks of tp divide among them.

/// Each rank looks up the words of its part of the vocabulary; the embedding is the sum over ranks.
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
    // Learned positions are added to whole sequences; only without them are sequences cut without communication.
    let forward = if step.model.family.learned_positions {
        call(AllReduce, Pass::Forward, "vocabulary-parallel embedding, whole because learned positions are added to it")
    } else {
        call(ReduceScatter, Pass::Forward, "vocabulary-parallel embedding, each rank its part of the sequence")
    };
    let gradient = call(AllGather, Pass::Backward, "gradient of the embedding from all parts of the sequence");
    let is_trained = !step.training.data.trained.is_part();
    std::iter::once(forward).chain(is_trained.then_some(gradient)).collect()
}

/// A column-parallel linear whose output stays divided by vocabulary.
fn output_projection(step: &TrainingStep) -> Vec<Op> {
    use Collective::{AllGather, AllReduce, ReduceScatter};
    let source = "Megatron-LM core/models/gpt/gpt_model.py output_layer, core/tensor_parallel/layers.py";
    let call =
        |collective, pass, overlap, what: &str| activations(step, collective, pass, End::Output, overlap, what, source);
    let gradient = "input gradient of the output projection, overlapping with its weight gradient";
    if !step.training.tensor.sequence_parallel {
        return vec![call(AllReduce, Pass::Backward, Overlap::WeightGradient, gradient)];
    }
    let again = "input of the output projection, stored in parts and gathered again during the input gradient";
    let mut ops = vec![call(AllGather, Pass::Forward, Overlap::Exposed, "input of the output projection")];
    if step.training.tensor.style == TensorStyle::Megatron && !step.training.data.trained.is_part() {
        ops.push(call(AllGather, Pass::Backward, Overlap::InputGradient, again));
    }
    ops.push(call(ReduceScatter, Pass::Backward, Overlap::WeightGradient, gradient));
    ops
}

/// Each rank has the logits of its part of the vocabulary: the largest, the predicted one and the sum of exponentials are combined, in
/// float32. The backward pass needs no communication.
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

// A call on the activations at an end of the model, and its number.

/// A call on the activations of a micro-batch.
fn activations(
    step: &TrainingStep,
    collective: Collective,
    pass: Pass,
    end: End,
    overlap: Overlap,
    what: &str,
    source: &str,
) -> Op {
    let (bytes, formula) = step.activation_bytes();
    Op {
        when: When::MicroBatch { pass, end, calls: 1, one_in: one_in(step) },
        overlap,
        why: format!("{formula}: {what}{} ({source})", counted(step)),
        ..Op::new(Style::Vocabulary, Axis::Tp, collective, step.activation(), bytes)
    }
}

/// With mirrored stages every second micro-batch enters at the other end.
fn one_in(step: &TrainingStep) -> u64 {
    if step.stages.mirrored { 2 } else { 1 }
}

fn counted(step: &TrainingStep) -> &'static str {
    if step.stages.mirrored { "; every second micro-batch goes through the other end" } else { "" }
}

// The effect of activation recomputation on the calls of a style.

/// Full recomputation repeats a layer's calls of the forward pass. Selective recomputation repeats the core attention, which sends nothing.
pub(super) fn repeats_forward(step: &TrainingStep) -> bool {
    step.training.tensor.recompute == Recompute::Full
}

/// The kinds of layers whose feed-forward, or shared experts, selective recomputation repeats with the calls of their linears.
pub(super) fn feed_forwards_repeated(step: &TrainingStep) -> Vec<LayerKind> {
    let repeats = |module| step.training.tensor.repeats(module);
    let shared = step.model.mixture.as_ref().is_some_and(|mixture| mixture.shared_experts > 0);
    let shared = (LayerKind::Experts, shared && repeats(RecomputeModule::SharedExperts));
    let kinds = [(LayerKind::Dense, repeats(RecomputeModule::FeedForward)), shared];
    kinds.into_iter().filter(|(_, repeated)| *repeated).map(|(kind, _)| kind).collect()
}

#[cfg(test)]
mod product_tests {

    use super::*;

    #[test]
    fn a_product_past_64_bits_is_refused_with_its_factors() {
        let message = product("logits", &[2, 1 << 32, 1 << 32]).unwrap_err().to_string();
        assert!(message.contains("logits: 2 x 4294967296 x 4294967296 does not fit 64 bits"), "{message}");
        assert_eq!(product("logits", &[2, 3, 5]).unwrap(), 30);
    }
}

#[cfg(test)]
mod batch_tests {
    // Known answers: the broadcasts of Megatron-LM's get_batch_on_this_tp_rank, counted by hand.
    use crate::layout::Axis;
    use crate::workload::Style;
    use crate::workload::style::testing::{Row, rows, training, with_steps};
    use commgauge_base::collective::Collective::Broadcast;

    const STEP: &str = "sequence = 8192\nmicro_batches = 8\nmicro_batch = 2\nbatch_broadcast";
    /// Two samples of 8192 words of 8 bytes, of numbers of 4, and of a byte for each pair of positions.
    const WORDS: u64 = 131_072;
    const NUMBERS: u64 = 65_536;
    const PAIRS: u64 = 134_217_728;

    fn broadcasts(written: &str, layout: &str, stage: u32) -> Vec<Row> {
        let mut found = Vec::new();
        with_steps(&training("llama-3-8b", &format!("{STEP} = {written}"), layout), 8, |step| {
            found = rows(step, stage, Style::Vocabulary);
            found.retain(|row| row.collective == Broadcast);
            assert!(found.iter().all(|row| row.axis == Axis::Tp && row.overlap.is_exposed()), "{found:?}");
        });
        found
    }

    /// Bytes and calls of a micro-batch on a stage.
    fn of(written: &str, layout: &str, stage: u32) -> Vec<(u64, u64)> {
        let rows = broadcasts(written, layout, stage);
        assert!(rows.iter().all(|row| row.calls_per_step == 8 * row.calls), "{rows:?}");
        rows.iter().map(|row| (row.bytes, row.calls)).collect()
    }

    #[test]
    fn one_stage_gets_all_fields_and_the_mask_of_attention() {
        let fields = [(WORDS, 3), (NUMBERS, 1)];
        assert_eq!(of("'none'", "tp = 8", 0), []);
        assert_eq!(of("'fields'", "dp = 8", 0), []);
        assert_eq!(of("'fields'", "tp = 8", 0), fields);
        assert_eq!(of("'fields_and_mask'", "tp = 8", 0), [&fields[..], &[(PAIRS, 1)]].concat());
        // Each rank of cp cuts out its part of the whole sequences.
        assert_eq!(of("'fields'", "tp = 2\ncp = 4", 0), fields);
    }

    #[test]
    fn of_a_pipeline_the_first_stage_gets_what_goes_in_and_the_last_what_is_compared() {
        let layout = "tp = 2\npp = 4";
        let stages = |written: &str| (0..4).map(|stage| of(written, layout, stage)).collect::<Vec<_>>();
        let last = vec![(WORDS, 1), (NUMBERS, 1)];
        assert_eq!(stages("'fields'"), [vec![(WORDS, 2)], vec![], vec![], last]);
        let [first, last] = [vec![(WORDS, 2), (PAIRS, 1)], vec![(WORDS, 1), (NUMBERS, 1), (PAIRS, 1)]];
        assert_eq!(stages("'fields_and_mask'"), [first, vec![], vec![], last]);
        // Layers that predict further tokens embed them on the last stage.
        let last = vec![(WORDS, 3), (NUMBERS, 1)];
        assert_eq!(stages("'fields'\nprediction_layers = 1"), [vec![(WORDS, 2)], vec![], vec![], last]);
    }

    #[test]
    fn chunks_change_nothing_and_mirrored_stages_get_every_second_micro_batch() {
        let chunks = of("'fields'\nvirtual_stages = 2", "tp = 2\npp = 4", 0);
        assert_eq!(chunks, [(WORDS, 2)]);
        let mirrored = broadcasts("'fields'\nschedule = 'dualpipe'", "tp = 2\npp = 4", 0);
        let found: Vec<_> = mirrored.iter().map(|row| (row.bytes, row.calls_per_step)).collect();
        assert_eq!(found, [(WORDS, 2 * 4), (WORDS, 4), (NUMBERS, 4)]);
    }
}

#[cfg(test)]
mod vocabulary_tests {
    // Known answers: Megatron-LM's vocabulary-parallel embedding, output layer and cross entropy, shapes of published models.
    use crate::layout::Axis;
    use crate::workload::Style;
    use crate::workload::op::{Overlap, Pass};
    use crate::workload::style::testing::{Row, refusal, rows, training, with_steps};
    use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
    use commgauge_base::collective::ReduceOp;

    const PLAIN: &str = "sequence = 8192\nmicro_batches = 3";
    /// E b s h of llama-3-8b: 2 x 8192 x 4096.
    const HIDDEN: u64 = 67_108_864;
    const FORWARD: Option<Pass> = Some(Pass::Forward);
    const BACKWARD: Option<Pass> = Some(Pass::Backward);

    #[test]
    fn the_ends_of_the_model_lie_on_their_stages() {
        let loss = (AllReduce, FORWARD, 4 * 8192, 1, Overlap::Exposed);
        let head = (AllReduce, BACKWARD, HIDDEN, 1, Overlap::WeightGradient);
        let embedding = (AllReduce, FORWARD, HIDDEN, 1, Overlap::Exposed);
        let parallel = format!("{PLAIN}\nsequence_parallel = true");
        let fused = format!("{PLAIN}\nfused_cross_entropy = true");
        let gathered = (AllGather, FORWARD, HIDDEN, 1, Overlap::Exposed);
        let again = (AllGather, BACKWARD, HIDDEN, 1, Overlap::InputGradient);
        let scattered = (ReduceScatter, BACKWARD, HIDDEN, 1, Overlap::WeightGradient);
        for (written, stage, expected) in [
            (PLAIN, 0, vec![embedding]),
            (PLAIN, 1, vec![]),
            (PLAIN, 3, vec![head, loss, loss, loss]),
            (&fused, 3, vec![head, loss, (AllReduce, FORWARD, 8 * 8192, 1, Overlap::Exposed)]),
            (
                &parallel,
                0,
                vec![
                    (ReduceScatter, FORWARD, HIDDEN, 1, Overlap::Exposed),
                    (AllGather, BACKWARD, HIDDEN, 1, Overlap::Exposed),
                ],
            ),
            (&parallel, 3, vec![gathered, again, scattered, loss, loss, loss]),
        ] {
            with_steps(&training("llama-3-8b", written, "tp = 8\npp = 4"), 32, |step| {
                let rows = rows(step, stage, Style::Vocabulary);
                assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{written} {stage}");
                assert!(rows.iter().all(|row| row.axis == Axis::Tp && row.calls_per_step == 3), "{rows:?}");
            });
        }
    }

    #[test]
    fn the_largest_logit_is_a_maximum_and_the_others_are_sums() {
        with_steps(&training("llama-3-8b", PLAIN, "tp = 8"), 8, |step| {
            let ops = step.ops_of_stage(0).unwrap();
            let reductions: Vec<_> = ops
                .iter()
                .filter(|op| op.style == Style::Vocabulary && op.bytes_total.0 == 4 * 8192)
                .map(|op| op.reduce_op)
                .collect();
            assert_eq!(reductions, [Some(ReduceOp::Max), Some(ReduceOp::Sum), Some(ReduceOp::Sum)]);
        });
    }

    #[test]
    fn context_parallelism_divides_the_tokens_of_the_loss() {
        with_steps(&training("llama-3-8b", PLAIN, "tp = 2\ncp = 4"), 8, |step| {
            let bytes: Vec<_> = rows(step, 0, Style::Vocabulary).iter().map(|row| row.bytes).collect();
            assert_eq!(bytes, [HIDDEN / 4, HIDDEN / 4, 8192, 8192, 8192]);
        });
    }

    #[test]
    fn learned_positions_are_added_to_whole_sequences() {
        let written = "sequence = 2048\nmicro_batches = 1\nsequence_parallel = true";
        with_steps(&training("gpt3-175b", written, "tp = 8\npp = 12"), 96, |step| {
            let rows = rows(step, 0, Style::Vocabulary);
            let on_tp: Vec<_> = rows.iter().filter(|row| row.axis == Axis::Tp).map(|row| row.short()).collect();
            let hidden = 2 * 2048 * 12_288;
            let forward = (AllReduce, FORWARD, hidden, 1, Overlap::Exposed);
            assert_eq!(on_tp, [forward, (AllGather, BACKWARD, hidden, 1, Overlap::Exposed)]);
        });
    }

    #[test]
    fn a_word_embedding_of_two_stages_is_reduced_once_in_a_step() {
        let gpt = "sequence = 1024\nmicro_batches = 4";
        let half = format!("{gpt}\ngradient_element_type = 'bfloat16'");
        let schedule = |name: &str| format!("{gpt}\nschedule = '{name}'");
        let (v_shaped, mirrored) = (schedule("zb-v"), schedule("dualpipe"));
        // GPT-2's 50257 words, padded to 50304 for one rank of tp and to 50432 for two.
        let whole = 4 * 50_304 * 768;
        for (preset, written, layout, ranks, stage, expected) in [
            ("gpt2", gpt, "pp = 2", 2, 0, Some(whole)),
            ("gpt2", gpt, "pp = 2", 2, 1, Some(whole)),
            ("gpt2", gpt, "pp = 3", 3, 1, None),
            ("gpt2", gpt, "tp = 2\npp = 2", 4, 0, Some(4 * 50_432 / 2 * 768)),
            ("gpt2", half.as_str(), "pp = 2", 2, 1, Some(whole / 2)),
            ("gpt2", gpt, "tp = 2", 2, 0, None),
            ("gpt2", v_shaped.as_str(), "pp = 2", 2, 0, None),
            ("gpt2", mirrored.as_str(), "pp = 2", 2, 0, Some(whole)),
            ("llama-3-8b", gpt, "pp = 2", 2, 0, None),
            // 51200 words x 12288 / 8 ranks x 4 B.
            ("gpt3-175b", gpt, "tp = 8\npp = 12", 96, 11, Some(314_572_800)),
        ] {
            with_steps(&training(preset, written, layout), ranks, |step| {
                let rows = rows(step, stage, Style::Vocabulary);
                let shared: Vec<_> =
                    rows.iter().filter(|row| row.axis == Axis::Embedding).map(|row| row.short()).collect();
                let expected: Vec<_> =
                    expected.iter().map(|bytes| (AllReduce, None, *bytes, 1, Overlap::Exposed)).collect();
                assert_eq!(shared, expected, "{preset} {written} {layout} {stage}");
            });
        }
    }

    #[test]
    fn gathered_logits_leave_no_sums_to_the_loss() {
        // Hugging Face: 2 B x 8192 tokens x 128,256 words, and sums of 2 B x 8192 x 4096 of the embedding and of the input gradient.
        let written = "sequence = 8192\nmicro_batches = 3\nframework = 'hf'";
        with_steps(&training("llama-3-8b", written, "tp = 8"), 8, |step| {
            let found: Vec<_> =
                rows(step, 0, Style::Vocabulary).iter().map(|row| (row.collective, row.bytes, row.calls)).collect();
            let hidden = (AllReduce, 2 * 8192 * 4096, 1);
            assert_eq!(found, [hidden, (AllGather, 2 * 8192 * 128_256, 1), hidden]);
        });
    }

    #[test]
    fn layers_that_predict_further_tokens_have_an_embedding_a_projection_and_a_loss_on_the_last_stage() {
        let of_stage = |further: &str, stage| {
            let mut found = Vec::new();
            let written = format!("{PLAIN}\n{further}");
            with_steps(&training("llama-3-8b", &written, "tp = 8\npp = 4"), 32, |step| {
                found = rows(step, stage, Style::Vocabulary)
            });
            found
        };
        let further = "prediction_layers = 2";
        let on_tp =
            |rows: &[Row]| rows.iter().filter(|row| row.axis == Axis::Tp).map(|row| row.calls_per_step).sum::<u64>();
        // Embedding, projection and its input gradient, head, three sums of the loss and two for the log, in 3 micro-batches.
        assert_eq!(on_tp(&of_stage(further, 3)) - on_tp(&of_stage("", 3)), 2 * 3 * (1 + 2 + 1 + 3 + 2));
        for stage in [0, 3] {
            let shared: Vec<_> =
                of_stage(further, stage).into_iter().filter(|row| row.axis == Axis::Embedding).collect();
            assert_eq!(
                shared.iter().map(|row| row.bytes).collect::<Vec<_>>(),
                [4 * 129_024 / 8 * 4096],
                "stage {stage}"
            );
        }
        assert!(of_stage("", 0).iter().all(|row| row.axis != Axis::Embedding), "words are not shared without them");
    }

    #[test]
    fn layers_that_predict_further_tokens_are_refused_where_no_layout_lists_them() {
        for (written, layout, expected) in [
            ("", "cp = 2", "prediction_layers = 1 with cp = 2"),
            ("data_style = 'fsdp'", "dp = 2", "prediction_layers = 1 with data_style fsdp"),
            ("tensor_style = 'dtensor'", "tp = 2", "linears that are not divided as in Megatron-LM"),
            ("vocabulary_style = 'gathered'", "tp = 2", "prediction_layers = 1 with gathered logits"),
        ] {
            let suite = training("llama-3-8b", &format!("{PLAIN}\nprediction_layers = 1\n{written}"), layout);
            let message = refusal(&suite, 2);
            assert!(message.contains(expected), "{message}");
        }
    }
}
