//! Whether a layout and its choices fit a model: each violated rule is reported with valid values.

use super::serving::{PassTokens, Phase, heads_and_experts, widest};
use super::stages::{Messages, Stages, must_divide};
use super::{ServingStep, TrainingStep, serving, training};
use crate::config::step::{
    BucketRule, DataStyle, Drafter, MuonTensorMode, ParameterReturn, RecomputeModule, SampledTokens, Serving,
    ServingDispatcher, TokenExchange, Training, UnitRule, divisors_among, ranks_of_ep_on_a_node,
};
use crate::config::{Model, Place};
use crate::layout::{Axis, Degrees, Division, Layout};
use commgauge_base::error::Result;

/// Checks of a model that serves.
pub(super) fn serving(step: &ServingStep, place: &Place) -> Result<()> {
    heads_and_experts(step.model, &step.layout.degrees).map_err(|problem| place.wrong(problem))?;
    division_of_serving(step).map_err(|problem| place.wrong(problem))?;
    widest(step.model, u128::from(step.serving.batch) * u128::from(step.serving.prompt_tokens))
        .map_err(|problem| step.serving.places.table().wrong(problem))
}

/// Checks of the division of a model that serves.
fn division_of_serving(step: &ServingStep) -> std::result::Result<(), String> {
    let d = &step.layout.degrees;
    if d.cp > 1 {
        shared_prompts(step)?;
    }
    if step.serving.decode_context.ranks > 1 {
        shared_contexts(step)?;
    }
    joined_replicas(step)?;
    if step.serving.expert.dispatcher == ServingDispatcher::AllReduce && d.ep > d.tp && !step.joins_replicas() {
        return Err(format!(
            "dispatcher all_reduce with ep = {} and tp = {}: only the ranks of tp have the same tokens; accepted: ep up to tp, or \
             dispatcher all_gather or all_to_all",
            d.ep, d.tp
        ));
    }
    if let Some(bits) = step.serving.reduction_bits.filter(|_| d.tp == 1 || step.joins_replicas()) {
        return Err(format!(
            "reduction_bits = {bits} has no effect without sums over the ranks of a replica; accepted: with tp above 1, and \
             feed_forward_ranks = replica"
        ));
    }
    deep_ep(step)?;
    whole_tokens(step)?;
    drafts(step)?;
    kv_transfer(step)?;
    let etp = if d.ep == 1 { d.tp } else { 1 };
    // One sum over all these ranks ends both divisions (sglang/srt/layers/moe/utils.py _post_experts_sum).
    let ranks = if step.joins_replicas() { d.tp * d.dp } else { d.tp };
    let is_summed = step.serving.expert.dispatcher == ServingDispatcher::AllReduce && d.ep * d.etp == ranks;
    if step.model.mixture.is_some() && d.etp != etp && !is_summed {
        return Err(format!(
            "etp = {} with tp = {} and ep = {}: serving divides experts by tp if ep = 1, and keeps them whole on the ranks of ep otherwise; accepted: etp = {etp}, or \
             with dispatcher all_reduce ep x etp = {ranks}",
            d.etp, d.tp, d.ep
        ));
    }
    Ok(())
}

/// Checks of prompts sharded over the ranks of cp.
fn shared_prompts(step: &ServingStep) -> std::result::Result<(), String> {
    let (serving, cp) = (step.serving, step.layout.degrees.cp);
    if serving.phases.decode {
        return Err(format!(
            "cp = {cp} with a decode, which keeps the keys and values of a request on the ranks of its heads; accepted: cp = 1, or phases = prefill; decode_context shards the context of a decode"
        ));
    }
    if step.joins_replicas() || serving.kv.transfer || serving.drafts.drafter.is_some() {
        return Err(format!(
            "cp = {cp} with feed_forward_ranks = stage, kv_transfer or a drafter is not modelled; accepted: cp = 1, \
             or without them"
        ));
    }
    let pieces = 2 * u64::from(cp);
    if !serving.prompt_tokens.is_multiple_of(pieces) {
        let up = serving.prompt_tokens.next_multiple_of(pieces);
        return Err(format!(
            "cp = {cp} with prompts of {} tokens, of which each rank processes a piece from the front and one from the back; accepted: a \
             multiple of 2 x cp = {pieces}, such as {up}",
            serving.prompt_tokens
        ));
    }
    Ok(())
}

/// Checks of contexts sharded over ranks of tp: only ranks with the same keys and values can.
fn shared_contexts(step: &ServingStep) -> std::result::Result<(), String> {
    let (model, serving, tp) = (step.model, step.serving, u64::from(step.layout.degrees.tp));
    let ranks = u64::from(serving.decode_context.ranks);
    if step.joins_replicas() || serving.kv.transfer || model.attention.indexer.is_some() {
        return Err(format!(
            "decode_context = {ranks} with feed_forward_ranks = stage, kv_transfer or an indexer is not modelled; \
             accepted: decode_context = 1, or without them"
        ));
    }
    // Latent attention stores the same on every rank; heads are replicated if they are fewer than the ranks.
    let same = if model.attention.latent.is_some() { tp } else { tp / model.attention.kv_heads.min(tp) };
    if !same.is_multiple_of(ranks) {
        return Err(format!(
            "decode_context = {ranks} with tp = {tp}, which hold the same keys and values of {} on {same} of them; accepted: a divisor of {same}",
            model.name
        ));
    }
    Ok(())
}

/// Checks of speculative decoding.
fn drafts(step: &ServingStep) -> std::result::Result<(), String> {
    let (model, drafter) = (step.model, step.serving.drafts.drafter);
    if drafter == Some(Drafter::Mtp) && model.prediction_layers == 0 {
        return Err(format!(
            "drafter = mtp, and {} has no prediction layer (num_nextn_predict_layers); accepted: drafter = eagle or ngram",
            model.name
        ));
    }
    if let Some(drafter) =
        drafter.filter(|_| step.layout.degrees.pp > 1 && step.serving.boundary.sampled == SampledTokens::Ring)
    {
        return Err(format!(
            "drafter = {drafter} with sampled_tokens = ring and pp = {}: messages of drafts between stages are not modelled; accepted: no drafter, \
             pp = 1, or sampled_tokens = broadcast",
            step.layout.degrees.pp
        ));
    }
    Ok(())
}

/// Checks of replicas of which one half prefills for the other: everything else that replicas do together stays within a half.
fn kv_transfer(step: &ServingStep) -> std::result::Result<(), String> {
    let (serving, d) = (step.serving, &step.layout.degrees);
    if !serving.kv.transfer {
        return Ok(());
    }
    if !d.dp.is_multiple_of(2) {
        return Err(format!(
            "kv_transfer with dp = {}: one half of the replicas prefills for the other; accepted: an even dp",
            d.dp
        ));
    }
    let ranks = d.tp * step.replicas_together();
    if let Some(decoding) = serving.kv.decode_tp {
        other_degree(step, decoding, ranks)?;
    }
    if d.ep > 1 && (d.ep > ranks || !ranks.is_multiple_of(d.ep)) {
        return Err(format!(
            "ep = {} reaches over the replicas that prefill and those that decode, which have tp x dp / 2 = {ranks} ranks each; accepted:              a divisor of {ranks}",
            d.ep
        ));
    }
    if step.joins_replicas() || serving.batch_agreement {
        let (key, value, other) = match step.joins_replicas() {
            true => ("feed_forward_ranks", "stage", "replica"),
            false => ("batch_agreement", "true", "false"),
        };
        return Err(format!(
            "{key} = {value} joins replicas of which one half prefills for the other; accepted: {other} with kv_transfer"
        ));
    }
    Ok(())
}

/// Checks of a half that decodes with another degree of tp.
fn other_degree(step: &ServingStep, decoding: u32, ranks: u32) -> std::result::Result<(), String> {
    let (model, tp) = (step.model, step.layout.degrees.tp);
    let (larger, smaller) = (decoding.max(tp), decoding.min(tp));
    if !larger.is_multiple_of(smaller) || !ranks.is_multiple_of(decoding) {
        return Err(format!(
            "kv_decode_tp = {decoding} with tp = {tp} and {ranks} ranks in each half; accepted: a divisor or a multiple of {tp} that divides {ranks}"
        ));
    }
    let (t, k) = (u64::from(decoding), model.attention.kv_heads);
    if !model.attention.heads.is_multiple_of(t) {
        return Err(must_divide(
            "kv_decode_tp",
            t,
            model.attention.heads,
            "query heads",
            "num_attention_heads",
            &model.name,
        ));
    }
    if !k.is_multiple_of(t) && !t.is_multiple_of(k) {
        return Err(format!(
            "kv_decode_tp = {t} neither divides the {k} key and value heads of {} (num_key_value_heads) nor is a multiple of them",
            model.name
        ));
    }
    serving::axes(model, &Degrees { tp: decoding, ..step.layout.degrees })
}

/// Checks of data-parallel attention.
fn joined_replicas(step: &ServingStep) -> std::result::Result<(), String> {
    let (model, serving, d) = (step.model, step.serving, &step.layout.degrees);
    if !step.joins_replicas() {
        let unused = serving.expert.token_exchange != TokenExchange::AllGather;
        let problem = format!(
            "token_exchange = {} has no effect unless replicas join; accepted: with feed_forward_ranks = stage and dp above 1",
            serving.expert.token_exchange
        );
        return if unused { Err(problem) } else { Ok(()) };
    }
    let ranks = u64::from(d.tp) * u64::from(d.dp);
    serving::joined(step)?;
    if model.has_dense_layers() && !model.feed_forward.is_multiple_of(ranks) {
        return Err(must_divide("tp x dp", ranks, model.feed_forward, "inner width", "intermediate_size", &model.name));
    }
    if d.ep > 1 && serving.expert.dispatcher != ServingDispatcher::AllReduce {
        return Err(format!(
            "dispatcher {} with feed_forward_ranks = stage, where all ranks of a stage have all tokens already; accepted: all_reduce",
            serving.expert.dispatcher
        ));
    }
    Ok(())
}

/// Checks of ranks of tp that give all of their tokens to experts.
fn whole_tokens(step: &ServingStep) -> std::result::Result<(), String> {
    let (expert, d) = (&step.serving.expert, &step.layout.degrees);
    if let Some(tokens) = expert.tokens
        && (d.tp == 1
            || step.model.mixture.is_none()
            || step.experts_are_reduced_on_tp()
            || expert.dispatcher != ServingDispatcher::AllGather)
    {
        return Err(format!(
            "expert_tokens = {tokens} has no effect if ranks of tp gather no tokens of other replicas; accepted: with experts, tp and \
             dp above 1, ep above 1, and dispatcher all_gather"
        ));
    }
    if step.model.mixture.is_some() && step.experts_take_whole_tokens() && d.ep != d.tp * d.dp {
        return Err(format!(
            "ep = {} with tp = {} and dp = {}, with all tokens of ranks of tp given to experts ({}); accepted: ep = tp x dp = {}, or \
             expert_tokens = parts",
            d.ep,
            d.tp,
            d.dp,
            if expert.tokens.is_some() { "expert_tokens = whole" } else { "vLLM's choice for this model" },
            d.tp * d.dp
        ));
    }
    Ok(())
}

/// Checks of the nodes of DeepEP.
fn deep_ep(step: &ServingStep) -> std::result::Result<(), String> {
    match &step.model.mixture {
        Some(mixture) if step.serving.expert.dispatcher == ServingDispatcher::DeepEp => {
            training::nodes_of_experts(&step.layout, mixture)
        }
        _ => Ok(()),
    }
}

// Steps whose model, choices and layout were checked against each other.

impl<'a> TrainingStep<'a> {
    /// `place` is the place of the layout.
    ///
    /// # Errors
    /// If a rule is violated, with the numbers and valid ones, at the place of the layout, the batch or the choice.
    pub fn new(model: &'a Model, training: &'a Training, layout: Layout, place: &Place) -> Result<TrainingStep<'a>> {
        let mut step = TrainingStep::without_messages(model, training, layout, place)?;
        step.messages = Messages::of_stages(&training.pipeline, &step.stages, step.micro_batches)
            .map_err(|problem| training.schedule_place().wrong(problem))?;
        Ok(step)
    }

    /// As [`TrainingStep::new`], for callers that run the schedule anyway: the rules of the schedule are checked, but messages are counted
    /// as in 1F1B.
    ///
    /// # Errors
    /// As [`TrainingStep::new`].
    pub fn without_messages(
        model: &'a Model,
        training: &'a Training,
        layout: Layout,
        place: &Place,
    ) -> Result<TrainingStep<'a>> {
        let layout = TrainingStep::divided(layout, training)?;
        let stages = Stages::divide(model.layers, layout.degrees.pp, &training.pipeline)
            .map_err(|problem| place.wrong(format!("{}: {problem}", model.name)))?
            .with_prediction_layers(training.prediction_layers);
        let micro_batches = micro_batches(training, layout.degrees.dp)?;
        Messages::check(&training.pipeline, &stages, micro_batches)
            .map_err(|problem| training.schedule_place().wrong(problem))?;
        let messages = Messages::of_each_micro_batch(&stages, micro_batches);
        let step = TrainingStep { model, training, layout, stages, micro_batches, messages };
        serving::check_training(&step, place)?;
        Ok(step)
    }
}

impl<'a> ServingStep<'a> {
    /// `place` is the place of the layout.
    ///
    /// # Errors
    /// If a rule is violated, with the numbers and valid ones.
    pub fn new(
        model: &'a Model,
        serving: &'a Serving,
        phase: Phase,
        layout: Layout,
        place: &Place,
    ) -> Result<ServingStep<'a>> {
        let layout = match serving.expert.dispatcher {
            ServingDispatcher::DeepEp => {
                let inner = ranks_of_ep_on_a_node(serving.expert.inner, layout.degrees.ep);
                layout
                    .divided(Division::InnerExperts, inner)
                    .map_err(|problem| serving.places.table().wrong(problem))?
            }
            _ => layout,
        };
        let layout = layout
            .divided(Division::DecodeContext, serving.decode_context.ranks)
            .map_err(|problem| serving.places.table().wrong(problem))?;
        let stages = Stages::of_server(model.layers, layout.degrees.pp, serving.framework)
            .map_err(|problem| place.wrong(format!("{}: {problem}", model.name)))?;
        let tokens = PassTokens::of_phase(serving, phase, layout.degrees.cp);
        let step = ServingStep { model, serving, phase, layout, stages, tokens };
        self::serving(&step, place)?;
        Ok(step)
    }
}

impl TrainingStep<'_> {
    /// A layout with its groups divided as a training says: those of shards, of hybrid context parallelism, and of experts.
    ///
    /// # Errors
    /// A choice that does not divide its groups, with what would.
    pub fn divided(layout: Layout, training: &Training) -> Result<Layout> {
        let groups = training.data.shards.groups(layout.group_size(Axis::DpCp));
        let groups = groups.map_err(|(key, problem)| training.at(key).wrong(problem))?;
        let layout = layout
            .divided(Division::ReplicasOfShards, groups)
            .map_err(|problem| training.at("replicas_of_shards").wrong(problem))?;
        TrainingStep::divided_within_stage(layout, training)
    }

    /// The same without the groups of shards, which only data parallelism uses.
    ///
    /// # Errors
    /// As [`TrainingStep::divided`].
    pub fn divided_within_stage(layout: Layout, training: &Training) -> Result<Layout> {
        let (context, expert) = (&training.context, &training.expert);
        let layout = layout
            .divided(Division::InnerContext, context.inner)
            .map_err(|problem| training.at("context_inner").wrong(problem))?;
        if !expert.dispatcher.goes_by_node() {
            return Ok(layout);
        }
        let inner = ranks_of_ep_on_a_node(expert.inner, layout.degrees.ep);
        layout.divided(Division::InnerExperts, inner).map_err(|problem| training.at("expert_inner").wrong(problem))
    }
}

/// m = global batch / (micro-batch x replicas).
fn micro_batches(training: &Training, replicas: u32) -> Result<u64> {
    let Some(global) = training.global_batch else { return Ok(training.micro_batches.unwrap_or(1)) };
    let (b, d) = (training.micro_batch, u64::from(replicas));
    let together = b * d;
    if global.is_multiple_of(together) {
        return Ok(global / together);
    }
    let up = global.next_multiple_of(together);
    let down = up.saturating_sub(together);
    let nearest = if down == 0 { up.to_string() } else { format!("{down}, {up}") };
    Err(training.at("global_batch").wrong(format!(
        "{global} samples are not a multiple of micro-batch {b} x {d} replicas = {together}; nearest: {nearest}"
    )))
}

// Whether the choices of data parallelism are consistent with each other and with the layout.

impl TrainingStep<'_> {
    /// Checks that the choices of data parallelism are consistent with each other, with the layout, the schedule and layers that predict
    /// further tokens.
    ///
    /// # Errors
    /// If a rule is violated, with valid values.
    pub fn check_data_style(&self) -> Result<()> {
        check_data(self)?;
        serving::check_prediction(self)
    }
}

/// If a rule is violated, with valid values.
fn check_data(step: &TrainingStep) -> Result<()> {
    let (training, data, degrees) = (step.training, &step.training.data, &step.layout.degrees);
    let (style, replicas) = (data.style, data.shards.replicas);
    if style == DataStyle::Hsdp && replicas < 2 {
        let ranks = step.layout.group_size(Axis::DpCp);
        let accepted = divisors_among(2..=ranks, ranks);
        return Err(training.at("replicas_of_shards").wrong(format!(
            "data_style hsdp replicates its shards, but replicas_of_shards is {replicas}; accepted: {accepted} (the divisors \
             of dp x cp = {ranks}), or data_style fsdp"
        )));
    }
    trainable_layers(step)?;
    recomputed_modules(step)?;
    secondary_shards(step)?;
    quantised_gradients(step)?;
    if data.bucket_rule == BucketRule::LayerWise && step.model.biases.feed_forward && step.model.mixture.is_some() {
        return Err(training.at("bucket_rule").wrong(format!(
            "bucket_rule = layer_wise with {}, whose experts have biases that no other optimizer updates (Megatron-LM \
             core/optimizer/__init__.py _get_megatron_emerging_optimizer); accepted: experts without biases, or parameter_return = \
             gather_shares",
            step.model.name
        )));
    }
    orthogonalised(step)?;
    bucket_units(step)?;
    if replicas > 1 && step.model.mixture.is_some() && degrees.divides_experts() {
        return Err(training
            .at("replicas_of_shards")
            .wrong(format!("replicas_of_shards = {replicas} {}, or replicas_of_shards = 1", groups_of_experts(step))));
    }
    let every_micro_batch = !matches!(style, DataStyle::Ddp | DataStyle::Zero1);
    if step.stages.mirrored && every_micro_batch {
        let schedule = training.pipeline.schedule;
        return Err(training.at("schedule").wrong(format!(
            "schedule {schedule} stores every layer twice and passes each micro-batch through one of them, which data_style {style} \
             does not support; accepted: data_style ddp or zero1, or schedule dualpipe-v"
        )));
    }
    Ok(())
}

/// Whether the model has the layers that are trained, and no stage is without any.
fn trainable_layers(step: &TrainingStep) -> Result<()> {
    let (layers, pp) = (step.model.layers, step.layout.degrees.pp);
    let Some(last) = step.training.data.trained.trainable_layers else { return Ok(()) };
    let problem = match pp {
        1 if last <= layers => return Ok(()),
        1 => format!("{last} of the {layers} layers of {}; accepted: 1 to {layers}", step.model.name),
        _ => format!("{last} with pp = {pp}: stages without a backward pass are not modelled; accepted: pp = 1"),
    };
    Err(step.training.at("trainable_layers").wrong(format!("trainable_layers = {problem}")))
}

/// Checks that the model has the parts of layers that are recomputed.
fn recomputed_modules(step: &TrainingStep) -> Result<()> {
    let mixture = step.model.mixture.as_ref();
    let lacks = |module: &&RecomputeModule| match module {
        RecomputeModule::LatentUp => step.model.attention.latent.is_none(),
        RecomputeModule::Experts | RecomputeModule::ExpertActivation => mixture.is_none(),
        RecomputeModule::SharedExperts => mixture.is_none_or(|mixture| mixture.shared_experts == 0),
        RecomputeModule::FeedForward => !step.model.has_dense_layers(),
        RecomputeModule::CoreAttention | RecomputeModule::Norms => false,
    };
    let Some(module) = step.training.tensor.recompute_modules.iter().flatten().find(lacks) else { return Ok(()) };
    let problem = format!("{module} has no effect: {} has none; accepted: the parts that it has", step.model.name);
    Err(step.training.at("recompute_modules").wrong(problem))
}

/// Why divided experts do not fit parts of the groups of ranks.
fn groups_of_experts(step: &TrainingStep) -> String {
    let degrees = &step.layout.degrees;
    format!(
        "with ep = {} and etp = {}: experts would need separate groups; accepted: ep = 1 and etp = tp = {}",
        degrees.ep, degrees.etp, degrees.tp
    )
}

/// Whether secondary shards have parameters and groups.
fn secondary_shards(step: &TrainingStep) -> Result<()> {
    let data = &step.training.data;
    let Some(shards) = data.shards.secondary else { return Ok(()) };
    let refused = |problem: &str| {
        Err(step.training.at("secondary_shards").wrong(format!("secondary_shards = {shards} {problem}")))
    };
    if !step.reshards_after_forward() {
        return refused(
            "where parameters stay whole after the forward pass; accepted: with reshard_after_forward = true",
        );
    }
    if data.style == DataStyle::Zero3 && step.micro_batches > 1 {
        return refused(&format!(
            "with data_style zero3 and {} micro-batches: DeepSpeed keeps secondary shards until the optimizer, and later forward passes \
             gather from them as well (runtime/zero/stage3.py invalidate_secondary_tensor), which is not modelled; accepted: \
             1 micro-batch, or data_style fsdp",
            step.micro_batches
        ));
    }
    if step.model.mixture.is_some() && step.layout.degrees.divides_experts() {
        return refused(&groups_of_experts(step));
    }
    Ok(())
}

/// Whether gradients are those of modules, and their groups those of all ranks.
fn quantised_gradients(step: &TrainingStep) -> Result<()> {
    let d = &step.layout.degrees;
    let Some(node) = step.training.data.shards.quantised_gradients else { return Ok(()) };
    let place = step.training.at("quantised_gradients");
    let refused = |problem: String| Err(place.wrong(format!("quantised_gradients = {node} {problem}")));
    if d.tp * d.cp * d.pp > 1 {
        return refused(format!(
            "with tp = {}, cp = {} and pp = {}: DeepSpeed goes through the nodes of all ranks (utils/groups.py \
             _get_local_all_to_all_group); accepted: only dp",
            d.tp, d.cp, d.pp
        ));
    }
    if step.model.mixture.is_some() && d.divides_experts() {
        return refused(format!(
            "with ep = {} and etp = {}: DeepSpeed's ZeRO-3 has no groups of experts (runtime/engine.py has_moe_layers); accepted: ep = 1, \
             every rank with a part of each expert",
            d.ep, d.etp
        ));
    }
    Ok(())
}

/// Whether Muon has whole matrices, and tensor parallelism divides them.
fn orthogonalised(step: &TrainingStep) -> Result<()> {
    let (data, d, mode) = (&step.training.data, &step.layout.degrees, step.training.tensor.muon_tp_mode);
    if mode == MuonTensorMode::Blockwise {
        return Ok(());
    }
    let refused =
        |problem: String| Err(step.training.at("muon_tp_mode").wrong(format!("muon_tp_mode = {mode} {problem}")));
    let whole = match data.style {
        DataStyle::Ddp => true,
        DataStyle::Zero1 => {
            data.bucket_rule == BucketRule::LayerWise || data.parameter_return == ParameterReturn::GatherShares
        }
        _ => false,
    };
    if !whole {
        return refused(format!(
            "with data_style {}, whose ranks have parts of matrices; accepted: ddp, or zero1 with bucket_rule = layer_wise or \
             parameter_return = gather_shares",
            data.style
        ));
    }
    if d.tp == 1 && d.etp == 1 {
        return refused("has no effect with tp = 1; accepted: tp above 1".to_owned());
    }
    let (heads, tp) = (step.model.attention.kv_heads, u64::from(d.tp));
    if tp > heads && step.model.attention.latent.is_none() {
        return refused(format!(
            "with tp = {tp} and {heads} key and value heads, which ranks replicate; accepted: tp up to {heads}"
        ));
    }
    Ok(())
}

/// Megatron-FSDP only wraps layers of the model itself.
fn bucket_units(step: &TrainingStep) -> Result<()> {
    let (training, data) = (step.training, &step.training.data);
    if data.units.rule != UnitRule::Buckets {
        return Ok(());
    }
    let refused = |problem: String| Err(training.at("unit_rule").wrong(format!("unit_rule = buckets {problem}")));
    if step.adds_up_whole_gradients() {
        return refused(format!(
            "with gradient_accumulation {}; accepted: sharded, a reduction in every micro-batch",
            data.gradient_accumulation
        ));
    }
    Ok(())
}
