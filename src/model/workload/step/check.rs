//! Whether a layout fits a model: each violated rule is reported with the numbers and the nearest valid ones.

use super::divisibility::must_divide;
use super::{TrainingStep, check_hybrid, experts};
use crate::config::step::{Framework, GatherRecipe, Linears, ProductOverlap, TensorStyle};
use crate::config::{Model, Place, QueryKeyNorm};
use crate::layout::Degrees;
use commgauge_base::error::Result;

/// A model of more parameters, or a micro-batch of more bytes, could pass 64 bits somewhere.
const MOST_ACTIVATION_BYTES: u128 = 1 << 56;

/// Checks of a training step.
pub(super) fn training(step: &TrainingStep, place: &Place) -> Result<()> {
    heads_and_experts(step.model, &step.layout.degrees).map_err(|problem| place.wrong(problem))?;
    let training = step.training;
    experts::choices(step)?;
    widest(step.model, u128::from(training.micro_batch) * u128::from(training.sequence))
        .map_err(|problem| training.sequence_place.wrong(problem))?;
    let tokens = u128::from(training.micro_batch) * u128::from(training.sequence) * u128::from(step.micro_batches);
    if u64::try_from(tokens).is_err() {
        return Err(training
            .sequence_place
            .wrong(format!("{tokens} tokens of a replica in a step do not fit 64 bits; take a smaller batch")));
    }
    super::check_context::check(step)?;
    step.check_data_style()?;
    super::check_prediction::check(step)?;
    let heads_and_sequence = framework(step)
        .and_then(|()| check_hybrid::training(step))
        .and_then(|()| tensor(step))
        .and_then(|()| sequence_parallel(step))
        .and_then(|()| gathers(step));
    heads_and_sequence.map_err(|(place, problem)| place.wrong(problem))
}

/// A problem, and where what causes it was written.
type Misplaced<'a> = std::result::Result<(), (&'a Place, String)>;

/// Checks that a framework has the axes of the layout.
fn framework<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let (training, degrees) = (step.training, &step.layout.degrees);
    let Some(framework) = training.named_framework() else { return Ok(()) };
    match undivided_axis(framework, degrees) {
        None => Ok(()),
        Some(axis) => Err((
            &training.place,
            format!(
                "framework = {framework} divides a model by {} alone, found {axis}; accepted: 1, or another framework, such as megatron",
                framework.axes().join(", ")
            ),
        )),
    }
}

/// An axis of the layout that the framework does not have, with its degree, such as `pp 2`.
pub fn undivided_axis(framework: Framework, degrees: &Degrees) -> Option<String> {
    let axes = [("tp", degrees.tp), ("cp", degrees.cp), ("ep", degrees.ep), ("pp", degrees.pp), ("dp", degrees.dp)];
    let undivided = axes.into_iter().find(|(axis, degree)| *degree > 1 && !framework.axes().contains(axis));
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
    if tensor.sequence_parallel {
        return Err((
            &training.place,
            format!(
                "linears = {linears} cannot be combined with sequence_parallel: linears that stand alone take and give whole \
                 sequences; accepted: linears = pair, or no sequence_parallel"
            ),
        ));
    }
    if !model.hidden.is_multiple_of(t) {
        let problem = must_divide("tp", t, model.hidden, "hidden width", "hidden_size", &model.name);
        return Err((&training.place, format!("linears = {linears}: {problem}")));
    }
    Ok(())
}

/// Checks of what Transformer Engine and products in pieces do with the calls of sequence parallelism.
fn gathers<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let training = step.training;
    let tensor = &training.tensor;
    let (recipe, overlap) = (tensor.gather_recipe, tensor.product_overlap);
    let plain = recipe == GatherRecipe::Plain;
    if plain && overlap == ProductOverlap::None {
        return Ok(());
    }
    let key = if plain { format!("product_overlap = {overlap}") } else { format!("gather_recipe = {recipe}") };
    if !tensor.sequence_parallel {
        let problem = format!("{key} is of the calls of sequence parallelism; accepted: with sequence_parallel = true");
        return Err((&training.place, problem));
    }
    if !plain && tensor.style != TensorStyle::Megatron {
        let problem = format!(
            "{key} with tensor_style = {}; accepted: tensor_style = megatron (Transformer Engine)",
            tensor.style
        );
        return Err((&training.place, problem));
    }
    // A tensor that MXFP8 cannot divide into blocks is gathered as it is (MXFP8Quantizer.is_quantizable).
    let of_a_rank = step.tokens_per_micro_batch() / u64::from(step.layout.degrees.tp);
    // Its user buffers take scales without padding alone (fill_userbuffers_buffer_for_all_gather).
    let (tokens, with, multiples) = match overlap {
        ProductOverlap::None => (32, "", "of 32"),
        ProductOverlap::Pieces => (128, " with product_overlap = pieces", "of 128 and 32"),
    };
    if recipe == GatherRecipe::Mxfp8 && !(of_a_rank.is_multiple_of(tokens) && step.model.hidden.is_multiple_of(32)) {
        return Err((
            &training.sequence_place,
            format!(
                "gather_recipe = mxfp8{with} needs {of_a_rank} tokens of a rank and {} elements of a token in multiples {multiples}; accepted: a longer \
                 sequence, or gather_recipe = fp8_current",
                step.model.hidden
            ),
        ));
    }
    Ok(())
}

/// Checks whether the sequence is divided between linears, and where it must be.
fn sequence_parallel<'a>(step: &TrainingStep<'a>) -> Misplaced<'a> {
    let (model, training, degrees) = (step.model, step.training, &step.layout.degrees);
    let (s, c, t) = (training.sequence, u64::from(degrees.cp), u64::from(degrees.tp));
    if training.tensor.sequence_parallel && !(s / c).is_multiple_of(t) {
        let even = c * t;
        let (below, above) = (s / even * even, s.next_multiple_of(even));
        let nearest = if below == 0 { above.to_string() } else { format!("{below}, {above}") };
        return Err((
            &training.sequence_place,
            format!(
                "sequence parallelism divides {s} / cp {c} = {} tokens by tp = {t}, which does not come out even; nearest \
                 sequences that do: {nearest}",
                s / c
            ),
        ));
    }
    // Megatron-LM core/transformer/moe/moe_layer.py refuses to train without.
    if t > 1 && !training.tensor.sequence_parallel && (0..model.layers).any(|layer| model.has_experts_in(layer)) {
        return Err((
            &training.place,
            format!(
                "tp = {t} with the experts of {} needs sequence parallelism, or every rank of tp would send the same tokens; \
                 accepted: sequence_parallel = true, or tp = 1",
                model.name
            ),
        ));
    }
    Ok(())
}

/// Whether so many tokens of the model fit a buffer.
pub(super) fn widest(model: &Model, tokens: u128) -> std::result::Result<(), String> {
    match tokens * u128::from(model.hidden) {
        0..MOST_ACTIVATION_BYTES => Ok(()),
        _ => Err("micro_batch x sequence x hidden is more than any buffer can hold".to_owned()),
    }
}

/// Whether the degrees divide heads, feed-forward and experts.
pub(super) fn heads_and_experts(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
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
    check_hybrid::axes(model, degrees)?;
    experts::shape(model, degrees)
}

/// Axes that would need calls which no list here has.
fn undivided_attention(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    if degrees.tp > 1 && model.attention.query_key_norm == QueryKeyNorm::AllHeads {
        return Err(format!(
            "the norms of queries and keys of {} span all heads, and with tp = {} their sums cross the ranks, which frameworks do in \
             different ways and no list here has; accepted: tp = 1",
            model.name, degrees.tp
        ));
    }
    if degrees.cp > 1 && model.attention.indexer.is_some() {
        return Err(format!(
            "the sparse attention of {} looks at tokens that an indexer chooses among all, and what cp = {} sends for that no list here \
             has; accepted: cp = 1",
            model.name, degrees.cp
        ));
    }
    Ok(())
}
