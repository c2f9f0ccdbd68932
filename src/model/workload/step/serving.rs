//! One forward pass of a model that serves requests: the prompts of a batch, or one further token of every request.
//!
//! `context_tokens` is part of the step for computing memory and attention; no message of a pass depends on it.

use super::stages::{Stages, must_divide};
use super::{TrainingStep, training};
use crate::config::step::{
    ContextStyle, DataStyle, ExpertTokens, FeedForwardRanks, Framework, GatherRecipe, Linears, Needs, ProductOverlap,
    Serving, ServingDispatcher, TensorStyle, VocabularyStyle,
};
use crate::config::{Blocks, Model, Place, QueryKeyNorm};
use crate::layout::{Axis, Degrees, Layout};
use commgauge_base::error::Result;

/// The phase of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// All tokens of the prompts.
    Prefill,
    /// One token of every request.
    Decode,
}

impl Phase {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A model, its requests and the layout that divides it, checked against each other.
#[derive(Clone, Debug)]
pub struct ServingStep<'a> {
    /// The model.
    pub model: &'a Model,
    /// The requests.
    pub serving: &'a Serving,
    pub phase: Phase,
    pub layout: Layout,
    /// The layers of every stage.
    pub stages: Stages,
    /// The tokens of a pass.
    pub tokens: PassTokens,
}

/// Tokens of one request in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTokens {
    /// Tokens that pass through the layers.
    pub worked_on: u64,
    /// Tokens whose successor is predicted.
    pub predicted_from: u64,
}

impl PassTokens {
    pub const ONE: PassTokens = PassTokens { worked_on: 1, predicted_from: 1 };

    /// Tokens of the model itself. Drafts are verified in the pass of the previous token; only the last token of a prompt is predicted
    /// from. The ranks of cp shard a prompt.
    pub fn of_phase(serving: &Serving, phase: Phase, cp: u32) -> PassTokens {
        match phase {
            Phase::Prefill => PassTokens { worked_on: serving.prompt_tokens / u64::from(cp), predicted_from: 1 },
            Phase::Decode => {
                let verified = 1 + serving.drafts.tokens;
                PassTokens { worked_on: verified, predicted_from: verified }
            }
        }
    }
}

impl ServingStep<'_> {
    /// Words of the vocabulary with their padding.
    pub fn padded_vocabulary(&self) -> u64 {
        let degrees = &self.layout.degrees;
        let ranks = if self.joins_replicas() { degrees.tp * degrees.dp } else { degrees.tp };
        self.serving.vocabulary_padding.padded(self.model.embedding.vocabulary, u64::from(ranks))
    }

    /// Whether ranks compute their experts on tokens that all of them have, so that only the sum over tp is sent: if tp divides the
    /// experts, or no other replica has tokens (vLLM fused_moe/config.py `use_all2all_kernels`).
    pub fn experts_are_reduced_on_tp(&self) -> bool {
        let degrees = &self.layout.degrees;
        let alone = self.replicas_together() == 1
            && degrees.cp == 1
            && self.serving.expert.dispatcher == ServingDispatcher::AllGather;
        degrees.ep == 1 || alone || self.serving.expert.dispatcher == ServingDispatcher::AllReduce
    }

    /// Whether each rank of tp gives all of its tokens to the experts, and the results are summed over tp.
    pub fn experts_take_whole_tokens(&self) -> bool {
        let by_vllm = self.serving.framework == Some(Framework::Vllm);
        let tokens = self.serving.expert.tokens.unwrap_or(match by_vllm && !self.model.family.parts_tokens_in_vllm {
            true => ExpertTokens::Whole,
            false => ExpertTokens::Parts,
        });
        tokens == ExpertTokens::Whole
            && self.serving.expert.dispatcher == ServingDispatcher::AllGather
            && self.layout.degrees.tp > 1
            && !self.experts_are_reduced_on_tp()
    }

    /// Whether everything but attention is divided among the ranks of all replicas of a stage.
    pub fn joins_replicas(&self) -> bool {
        self.serving.expert.feed_forward_ranks == FeedForwardRanks::Stage && self.layout.degrees.dp > 1
    }

    /// Replicas that work at the same time: half of them if one half prefills for the other.
    pub fn replicas_together(&self) -> u32 {
        let dp = self.layout.degrees.dp;
        if self.serving.kv.transfer { dp / self.layout.group_size(Axis::PrefillDecode) } else { dp }
    }

    /// Tokens of one micro-batch that a rank processes.
    pub fn tokens_per_micro_batch(&self) -> u64 {
        self.requests() * self.tokens.worked_on
    }

    /// Requests of a micro-batch.
    pub fn requests(&self) -> u64 {
        self.serving.batch / self.serving.micro_batches
    }
}

// Whether a layout fits a model: each violated rule is reported with the numbers and the nearest valid ones.

/// A model with more parameters, or a micro-batch with more bytes, could exceed 64 bits somewhere.
const MOST_ACTIVATION_BYTES: u128 = 1 << 56;

pub(super) fn check_training(step: &TrainingStep, place: &Place) -> Result<()> {
    heads_and_experts(step.model, &step.layout.degrees).map_err(|problem| place.wrong(problem))?;
    let training = step.training;
    training.check_conditions(|needs| has(step, needs))?;
    training::choices(step)?;
    widest(step.model, u128::from(training.micro_batch) * u128::from(training.sequence))
        .map_err(|problem| training.at("sequence").wrong(problem))?;
    let tokens = u128::from(training.micro_batch) * u128::from(training.sequence) * u128::from(step.micro_batches);
    if u64::try_from(tokens).is_err() {
        return Err(training
            .at("sequence")
            .wrong(format!("{tokens} tokens of a replica in a step do not fit 64 bits; use a smaller batch")));
    }
    check_context(step)?;
    step.check_data_style()?;
    let heads_and_sequence = framework(step)
        .and_then(|()| check_hybrid_training(step))
        .and_then(|()| tensor(step))
        .and_then(|()| sequence_parallel(step))
        .and_then(|()| gathers(step));
    heads_and_sequence.map_err(|(place, problem)| place.wrong(problem))
}

/// Whether the layout and the model have what keys are about.
fn has(step: &TrainingStep, needs: Needs) -> bool {
    let degrees = &step.layout.degrees;
    match needs {
        Needs::Nothing => true,
        Needs::TensorParallelism => degrees.tp > 1,
        Needs::PipelineParallelism => degrees.pp > 1,
        Needs::ContextParallelism => degrees.cp > 1,
        Needs::Experts => step.model.mixture.is_some(),
    }
}

/// A problem, and the place of its cause.
type Misplaced<'a> = std::result::Result<(), (&'a Place, String)>;

/// Checks that a framework supports the axes of the layout.
fn framework<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let (training, degrees) = (step.training, &step.layout.degrees);
    let Some(framework) = training.framework else { return Ok(()) };
    match undivided_axis(framework, degrees) {
        None => Ok(()),
        Some(axis) => Err((
            training.at("framework"),
            format!(
                "framework = {framework} divides a model only by {}, found {axis}; accepted: 1, or another framework, such as megatron",
                framework.axes().join(", ")
            ),
        )),
    }
}

/// An axis of the layout that the framework lacks, with its degree, such as `pp 2`.
pub fn undivided_axis(framework: Framework, degrees: &Degrees) -> Option<String> {
    let axes = [("tp", degrees.tp), ("cp", degrees.cp), ("ep", degrees.ep), ("pp", degrees.pp), ("dp", degrees.dp)];
    let undivided =
        axes.into_iter().find(|(axis, degree)| *degree > 1 && !framework.axes().iter().any(|own| own == axis));
    undivided.map(|(axis, degree)| format!("{axis} {degree}"))
}

/// Checks the division of linears.
fn tensor<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let (model, training, t) = (step.model, step.training, u64::from(step.layout.degrees.tp));
    let tensor = &training.tensor;
    if t == 1 || tensor.linears == Linears::Pair {
        return Ok(());
    }
    let linears = tensor.linears;
    if !model.hidden.is_multiple_of(t) {
        let problem = must_divide("tp", t, model.hidden, "hidden width", "hidden_size", &model.name);
        return Err((training.at("linears"), format!("linears = {linears}: {problem}")));
    }
    Ok(())
}

/// Checks the effect of Transformer Engine and of products in pieces on the calls of sequence parallelism.
fn gathers<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let training = step.training;
    let tensor = &training.tensor;
    let (recipe, overlap) = (tensor.gather_recipe, tensor.product_overlap);
    // A tensor that MXFP8 cannot divide into blocks is gathered unquantized (MXFP8Quantizer.is_quantizable).
    let of_a_rank = step.tokens_per_micro_batch() / u64::from(step.layout.degrees.tp);
    // Its user buffers require scales without padding (fill_userbuffers_buffer_for_all_gather).
    let (tokens, with, multiples) = match overlap {
        ProductOverlap::None => (32, "", "of 32"),
        ProductOverlap::Pieces => (128, " with product_overlap = pieces", "of 128 and 32"),
    };
    if recipe == GatherRecipe::Mxfp8 && !(of_a_rank.is_multiple_of(tokens) && step.model.hidden.is_multiple_of(32)) {
        return Err((
            training.at("sequence"),
            format!(
                "gather_recipe = mxfp8{with} needs {of_a_rank} tokens of a rank and {} elements of a token in multiples {multiples}; accepted: a longer \
                 sequence, or gather_recipe = fp8_current",
                step.model.hidden
            ),
        ));
    }
    Ok(())
}

/// Checks whether the sequence is divided between linears, and whether it must be.
fn sequence_parallel<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let (model, training, degrees) = (step.model, step.training, &step.layout.degrees);
    let (s, c, t) = (training.sequence, u64::from(degrees.cp), u64::from(degrees.tp));
    if training.tensor.sequence_parallel && !(s / c).is_multiple_of(t) {
        let even = c * t;
        let (below, above) = (s / even * even, s.next_multiple_of(even));
        let nearest = if below == 0 { above.to_string() } else { format!("{below}, {above}") };
        return Err((
            training.at("sequence"),
            format!(
                "sequence parallelism divides {s} / cp {c} = {} tokens by tp = {t}, which leaves a remainder; nearest sequences that do not: {nearest}",
                s / c
            ),
        ));
    }
    // Megatron-LM core/transformer/moe/moe_layer.py refuses to train without it.
    if t > 1 && !training.tensor.sequence_parallel && (0..model.layers).any(|layer| model.has_experts_in(layer)) {
        return Err((
            training.at("sequence_parallel"),
            format!(
                "tp = {t} with the experts of {} needs sequence parallelism, or every rank of tp would send the same tokens; \
                 accepted: sequence_parallel = true, or tp = 1",
                model.name
            ),
        ));
    }
    Ok(())
}

/// Whether a buffer can hold this many tokens of the model.
pub(super) fn widest(model: &Model, tokens: u128) -> std::result::Result<(), String> {
    match tokens * u128::from(model.hidden) {
        0..MOST_ACTIVATION_BYTES => Ok(()),
        _ => Err("micro_batch x sequence x hidden is more than any buffer can hold".to_owned()),
    }
}

/// Whether the degrees divide heads, feed-forward and experts.
pub(super) fn heads_and_experts(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    if let Some(problem) = model.steps_refused() {
        return Err(problem);
    }
    let (t, k) = (u64::from(degrees.tp), model.attention.kv_heads);
    // If every layer has experts, no rank has a part of a dense feed-forward.
    let inner = if model.has_dense_layers() { model.feed_forward } else { t };
    for (what, field, number) in
        [("query heads", "num_attention_heads", model.attention.heads), ("inner width", "intermediate_size", inner)]
    {
        if !number.is_multiple_of(t) {
            return Err(must_divide("tp", t, number, what, field, &model.name));
        }
    }
    if let Some(mixture) = model.mixture.as_ref().filter(|mixture| mixture.shared_experts > 0) {
        let shared = mixture.shared_feed_forward;
        if !shared.is_multiple_of(t) {
            let what = "inner width of the shared experts";
            return Err(must_divide("tp", t, shared, what, "shared_expert_intermediate_size", &model.name));
        }
    }
    if !k.is_multiple_of(t) && !t.is_multiple_of(k) {
        return Err(format!(
            "tp = {t} neither divides the {k} key and value heads of {} (num_key_value_heads) nor is a multiple of them",
            model.name
        ));
    }
    undivided_attention(model, degrees)?;
    axes(model, degrees)?;
    training::shape(model, degrees)
}

/// Axes whose calls are not modelled.
fn undivided_attention(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    if degrees.tp > 1 && model.attention.query_key_norm == QueryKeyNorm::AllHeads {
        return Err(format!(
            "the norms of queries and keys of {} span all heads, and with tp = {} their sums cross the ranks, which frameworks do in different ways and is not modelled; accepted: tp = 1",
            model.name, degrees.tp
        ));
    }
    if degrees.cp > 1 && model.attention.indexer.is_some() {
        return Err(format!(
            "the sparse attention of {} reads tokens that an indexer selects among all, whose traffic with cp = {} is not modelled; accepted: cp = 1",
            model.name, degrees.cp
        ));
    }
    Ok(())
}

// Whether context parallelism divides evenly: tokens over ranks, and heads if heads are exchanged.

/// If a rule is violated, with the nearest valid numbers.
pub(super) fn check_context(step: &TrainingStep) -> Result<()> {
    let (training, degrees) = (step.training, &step.layout.degrees);
    let (s, c, style) = (training.sequence, u64::from(degrees.cp), training.context.style);
    if c == 1 {
        return Ok(());
    }
    check_inner(step)?;
    // Every rank has a chunk of the front half and its mirror image, so that causal attention is balanced (TransformerEngine
    // context_parallel.py; arXiv 2407.21783 section 3.3.2).
    let (chunks, why) = match style {
        ContextStyle::AllToAll => (c, format!("cp = {c}")),
        _ => (2 * c, format!("2*cp = {}: every rank has two chunks, one of each half (zigzag)", 2 * c)),
    };
    if !s.is_multiple_of(chunks) {
        let (down, up) = (s / chunks * chunks, s.next_multiple_of(chunks));
        let nearest = if down == 0 { up.to_string() } else { format!("{down}, {up}") };
        return Err(training
            .at("sequence")
            .wrong(format!("a sequence of {s} is not a multiple of {why}; nearest: {nearest}")));
    }
    let exchanging = match style {
        ContextStyle::AllToAll => c,
        ContextStyle::Hybrid => u64::from(training.context.inner),
        ContextStyle::Ring | ContextStyle::AllGather | ContextStyle::PyTorch => return Ok(()),
    };
    check_heads(step, exchanging)
}

fn check_inner(step: &TrainingStep) -> Result<()> {
    let (context, c) = (&step.training.context, step.layout.degrees.cp);
    let inner = context.inner;
    match context.style {
        ContextStyle::Hybrid if inner < 2 || inner == c => {
            let accepted: Vec<_> =
                (2..c).filter(|inner| c.is_multiple_of(*inner)).map(|inner| inner.to_string()).collect();
            let accepted = if accepted.is_empty() { "none".to_owned() } else { accepted.join(", ") };
            Err(step.training.at("context_inner").wrong(format!(
                "hybrid with context_inner = {inner} of cp = {c}; accepted: {accepted} (or ring, which equals 1, or all_to_all, \
                 which equals cp)"
            )))
        }
        _ => Ok(()),
    }
}

/// Each rank needs whole query heads, and whole key and value heads or copies of one.
fn check_heads(step: &TrainingStep, exchanging: u64) -> Result<()> {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    let place = step.training.at("context_style");
    let heads = model.attention.heads / t;
    let axis = if step.training.context.style == ContextStyle::Hybrid { "context_inner" } else { "cp" };
    if !heads.is_multiple_of(exchanging) {
        let what = "query heads of a rank of tp";
        return Err(place.wrong(must_divide(axis, exchanging, heads, what, "num_attention_heads / tp", &model.name)));
    }
    let kv_heads = model.kv_heads_per_rank(t);
    if model.attention.latent.is_none() && !kv_heads.is_multiple_of(exchanging) && !exchanging.is_multiple_of(kv_heads)
    {
        return Err(place.wrong(format!(
            "{axis} = {exchanging} neither divides the {kv_heads} key and value heads of a rank of {} (num_key_value_heads / tp) nor is \
             a multiple of them",
            model.name
        )));
    }
    Ok(())
}

// Whether a layout fits the layers of hybrid models: heads of linear attention, and calls that are not modelled.

/// Checks of the axes. Heads of keys and of values are both divided (Megatron-LM core/transformer/transformer_config.py,
/// `linear_num_key_heads` and `linear_num_value_heads`; core/ssm/mamba_mixer.py, `nheads` and `ngroups`).
pub(super) fn axes(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    let t = u64::from(degrees.tp);
    let shares_none = model.mixture.as_ref().is_some_and(|mixture| mixture.shared_experts == 0);
    if t > 1 && shares_none && matches!(model.blocks, Blocks::Single { .. }) {
        return Err(format!(
            "layers of {} are routed experts alone, whose calls with tp = {t} are not modelled; accepted: tp = 1",
            model.name
        ));
    }
    let Some(linear) = model.linear_attention_in_use() else { return Ok(()) };
    for (what, field, heads) in [
        ("key heads of linear attention", linear.rule.key_heads_field(), linear.key_heads),
        ("value heads of linear attention", linear.rule.value_heads_field(), linear.value_heads),
    ] {
        if !heads.is_multiple_of(t) {
            return Err(must_divide("tp", t, heads, what, field, &model.name));
        }
    }
    if degrees.cp > 1 {
        return Err(format!(
            "layers of {} have linear attention ({}), whose state passes from token to token; with cp = {} it crosses the ranks, which frameworks do in different ways and is not modelled; accepted: cp = 1",
            model.name,
            linear.rule.name(),
            degrees.cp
        ));
    }
    Ok(())
}

/// Checks of the division of the linears of a model with linear attention in training.
pub(super) fn check_hybrid_training<'a>(step: &TrainingStep<'a>) -> std::result::Result<(), (&'a Place, String)> {
    let (training, t) = (step.training, step.layout.degrees.tp);
    let Some(linear) = step.model.linear_attention_in_use().filter(|_| t > 1) else { return Ok(()) };
    let (written, accepted) = match (training.tensor.style, training.tensor.linears) {
        (TensorStyle::Megatron, Linears::Pair) => return Ok(()),
        // transformers/models/qwen3_next/configuration_qwen3_next.py base_model_tp_plan gathers the outputs of the projections.
        (style @ TensorStyle::DTensor, _) => (format!("tensor_style = {style}"), "tensor_style = megatron"),
        (_, linears) => (format!("linears = {linears}"), "linears = pair"),
    };
    let problem = format!(
        "{written} with tp = {t}: its division of the linear attention ({}) of {} is not modelled; accepted: {accepted}, or tp = 1",
        linear.rule.name(),
        step.model.name
    );
    Err((training.at("tensor_style"), problem))
}

/// Checks of data-parallel attention, whose replicas join between the two blocks of a layer.
pub(super) fn joined(step: &ServingStep) -> std::result::Result<(), String> {
    match step.model.blocks {
        Blocks::Single { .. } if step.joins_replicas() => Err(format!(
            "feed_forward_ranks = stage joins the replicas between the mixer and the feed-forward of a layer, but each layer of {} has only one of them; accepted: feed_forward_ranks = replica",
            step.model.name
        )),
        _ => Ok(()),
    }
}

// Whether layers that predict further tokens are compatible with the other choices.

/// The first incompatible choice.
pub(super) fn check_prediction(step: &TrainingStep) -> Result<()> {
    let training = step.training;
    let layers = training.prediction_layers;
    if layers == 0 {
        return Ok(());
    }
    let data = training.data.style;
    let problem = if matches!(step.model.blocks, Blocks::Single { .. }) {
        format!(
            "layers that are only a mixer or a feed-forward, as in {}, whose prediction layers are not modelled; accepted: models whose \
             layers have both",
            step.model.name
        )
    } else if step.layout.degrees.cp > 1 {
        format!("cp = {}, whose exchange of single tokens is not modelled; accepted: cp = 1", step.layout.degrees.cp)
    } else if step.stages.mirrored {
        format!("schedule {}, which has two last stages; accepted: dualpipe-v", training.pipeline.schedule)
    } else if matches!(data, DataStyle::Zero3 | DataStyle::Fsdp | DataStyle::Hsdp) {
        format!("data_style {data}, whose units of such a layer are not modelled; accepted: ddp, zero1, zero2")
    } else if training.tensor.style != TensorStyle::Megatron || training.tensor.linears != Linears::Pair {
        "linears that are not divided as in Megatron-LM; accepted: tensor_style megatron and linears pair".to_owned()
    } else if training.vocabulary.style != VocabularyStyle::Parallel {
        "gathered logits; accepted: vocabulary_style parallel".to_owned()
    } else {
        return Ok(());
    };
    Err(training
        .at("prediction_layers")
        .wrong(format!("prediction_layers = {layers} with {problem}, or prediction_layers = 0")))
}
