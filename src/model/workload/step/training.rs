//! One optimizer step of a model in a layout: the common data of all styles.

use super::stages::{Messages, Stages, must_divide};
use crate::config::step::{GradientAccumulation, Recompute, Training};
use crate::config::{Mixture, Model};
use crate::layout::{Axis, Degrees, Layout};
use crate::workload::op::{LayerKind, Pass, When};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Routed;

/// A model, its training and the layout that divides it, checked against each other.
#[derive(Clone, Debug)]
pub struct TrainingStep<'a> {
    /// The model.
    pub model: &'a Model,
    pub training: &'a Training,
    pub layout: Layout,
    /// The layers of every stage.
    pub stages: Stages,
    /// Micro-batches of one replica in a step: m.
    pub micro_batches: u64,
    /// Messages of each stage to its neighbours.
    pub messages: Vec<Messages>,
}

impl<'a> TrainingStep<'a> {
    /// A step of already checked parts, for creating thousands of them: see [`TrainingStep::without_messages`].
    pub fn of_checked_parts(
        model: &'a Model,
        training: &'a Training,
        layout: Layout,
        stages: Stages,
        micro_batches: u64,
    ) -> TrainingStep<'a> {
        let messages = Messages::of_each_micro_batch(&stages, micro_batches);
        TrainingStep { model, training, layout, stages, micro_batches, messages }
    }

    /// t, p, d, c, e: tensor, pipeline, data, context and expert parallel degrees.
    pub fn degrees(&self) -> [u64; 5] {
        let d = &self.layout.degrees;
        [d.tp, d.pp, d.dp, d.cp, d.ep].map(u64::from)
    }

    /// Tokens of a replica in a step: T_d = m b s.
    pub fn tokens_per_replica(&self) -> u64 {
        self.micro_batches * self.training.micro_batch * self.training.sequence
    }

    /// Tokens of a micro-batch that one rank of cp processes: b s / c.
    pub fn tokens_per_micro_batch(&self) -> u64 {
        self.training.micro_batch * (self.training.sequence / u64::from(self.layout.degrees.cp))
    }

    /// Whether each stage keeps its parameters gathered during the step, and reduces its gradients once.
    pub fn keeps_stages_whole(&self) -> bool {
        self.training.data.gradient_accumulation == GradientAccumulation::WholeStages && self.layout.degrees.pp > 1
    }

    /// Whether parameters are released after a forward pass.
    pub fn reshards_after_forward(&self) -> bool {
        self.training.data.units.reshard_after_forward && !self.keeps_stages_whole()
    }

    /// Whether retained parameters are released after the backward pass of each micro-batch.
    pub fn reshards_after_backward(&self) -> bool {
        self.training.data.units.reshard_after_backward && !self.keeps_stages_whole()
    }

    /// Whether gradients of micro-batches are accumulated whole, and reduced once.
    pub fn adds_up_whole_gradients(&self) -> bool {
        self.training.data.gradient_accumulation == GradientAccumulation::Unsharded || self.keeps_stages_whole()
    }

    /// Words of the vocabulary with their padding.
    pub fn padded_vocabulary(&self) -> u64 {
        self.training.vocabulary.padding.padded(self.model.embedding.vocabulary, u64::from(self.layout.degrees.tp))
    }

    /// Type of activations on the wire.
    pub fn activation(&self) -> ElementType {
        self.training.activation_element_type
    }

    /// Bytes of the activations of a micro-batch at a layer's boundary, E b (s/c) h, and the formula with its numbers.
    pub fn activation_bytes(&self) -> (u64, String) {
        let element = self.activation().size();
        let (b, s, h, c) =
            (self.training.micro_batch, self.training.sequence, self.model.hidden, self.layout.degrees.cp);
        let bytes = element * self.tokens_per_micro_batch() * h;
        (bytes, format!("E*b*(s/c)*h = {element} B*{b}*({s}/{c})*{h} = {bytes} B"))
    }

    /// Calls in every layer of a stage, in one pass of every micro-batch.
    pub fn in_layers(&self, stage: u32, pass: Pass, kind: LayerKind, calls_per_layer: u64) -> When {
        let chunks = self.stages.chunks_passed(stage).iter();
        let of_chunk = |layers: &Vec<u32>| {
            self.layers_in_pass(pass, layers).iter().filter(|layer| self.is_of_kind(**layer, kind)).count()
        };
        When::Layer { pass, kind, calls_per_layer, layers: chunks.map(of_chunk).sum::<usize>() as u64 }
    }

    /// Those of the layers of a chunk that a pass computes: nothing goes back through frozen ones, and recomputation may repeat the first
    /// ones only.
    pub fn layers_in_pass<'l>(&self, pass: Pass, layers: &'l [u32]) -> &'l [u32] {
        let frozen = layers.iter().take_while(|layer| pass != Pass::Forward && !self.trains(**layer)).count();
        match (pass, self.training.tensor.recompute) {
            (Pass::Recompute, Recompute::Full) => {
                &layers[frozen..self.training.tensor.layers_repeated(layers.len()).max(frozen)]
            }
            _ => &layers[frozen..],
        }
    }

    /// Whether a layer has trained parameters.
    pub fn trains(&self, layer: u32) -> bool {
        self.training.data.trained.trains(layer, self.model.layers)
    }

    /// Layers of a kind that a pass of a micro-batch computes on a stage.
    pub fn layers_of_kind(&self, stage: u32, pass: Pass, kind: LayerKind) -> u64 {
        self.in_layers(stage, pass, kind, 1).count_per_step(1).unwrap_or(0)
    }

    /// Whether a layer has a kind.
    pub fn is_of_kind(&self, layer: u32, kind: LayerKind) -> bool {
        kind.has(self.model.parts_of(layer))
    }
}

// Number of parameters on one rank of a stage: its layers and its share of embedding and head, dense parameters and
// experts separately, because different groups reduce their gradients.
//
// The splits are those of `config::Model`; `stages` assigns layers to stages.

/// Number of parameters on one rank, by how they are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankParameters {
    /// Parameters that tensor parallelism divides or copies: attention, dense feed-forward, norms, routers, shared
    /// experts, embedding and head.
    pub dense: u64,
    /// Parameters of routed experts, which expert parallelism divides.
    pub experts: u64,
}

impl RankParameters {
    pub fn total(self) -> u64 {
        self.dense + self.experts
    }

    fn and(self, other: RankParameters) -> RankParameters {
        RankParameters { dense: self.dense + other.dense, experts: self.experts + other.experts }
    }
}

impl TrainingStep<'_> {
    /// All parameters on a rank of a stage: P_r.
    pub fn rank_parameters(&self, stage: u32) -> RankParameters {
        self.rank_layer_parameters(stage).and(self.rank_end_parameters(stage))
    }

    /// Parameters of the layers of a stage, doubled if every layer is stored twice.
    pub fn rank_layer_parameters(&self, stage: u32) -> RankParameters {
        self.stages
            .layers_stored(stage)
            .fold(RankParameters::default(), |sum, layer| sum.and(self.parameters_of_layer(layer)))
    }

    pub fn parameters_of_layer(&self, layer: u32) -> RankParameters {
        let (model, t) = (self.model, u64::from(self.layout.degrees.tp));
        let predicts_further = layer >= model.layers;
        let prediction =
            if predicts_further { self.prediction_projection_parameters() + 3 * model.norm_parameters() } else { 0 };
        if !model.has_experts_in(layer) {
            return RankParameters { dense: model.layer_parameters(layer, t) + prediction, experts: 0 };
        }
        let dense = prediction
            + model.mixer_parameters(model.parts_of(layer).mixer, t)
            + model.layer_norm_parameters()
            + model.router_parameters()
            + model.shared_expert_parameters(t);
        let one = model.one_expert_parameters(u64::from(self.layout.degrees.etp));
        RankParameters { dense, experts: self.experts_per_rank() * one }
    }

    /// Parameters before the first layer and after the last one, on the stages that have them.
    pub fn rank_end_parameters(&self, stage: u32) -> RankParameters {
        let output = self.stages.has_output(stage).then(|| self.head_parameters(stage) + self.model.norm_parameters());
        RankParameters { dense: self.input_parameters(stage).dense + output.unwrap_or(0), experts: 0 }
    }

    /// The projection of a layer that predicts a further token: concatenated hidden state and embedding, to the hidden width (arXiv
    /// 2412.19437 section 2.2).
    pub fn prediction_projection_parameters(&self) -> u64 {
        2 * self.model.hidden * self.model.hidden / u64::from(self.layout.degrees.tp)
    }

    /// Parameters before the first layer. Layers that predict further tokens embed them too, on the last stage.
    pub fn input_parameters(&self, stage: u32) -> RankParameters {
        let again = self.training.prediction_layers > 0 && self.stages.has_output(stage) && !self.model.embedding.tied;
        let dense = match (self.stages.has_input(stage), again) {
            (true, _) => self.word_embedding_parameters() + self.position_embedding_parameters(),
            (false, true) => self.word_embedding_parameters(),
            (false, false) => 0,
        };
        RankParameters { dense, experts: 0 }
    }

    /// Routed experts of one layer on a rank.
    pub fn experts_per_rank(&self) -> u64 {
        self.model.mixture.as_ref().map_or(0, |mixture| mixture.experts / u64::from(self.layout.degrees.ep))
    }

    /// The rank's share of the word embedding, its vocabulary padded.
    pub fn word_embedding_parameters(&self) -> u64 {
        let t = u64::from(self.layout.degrees.tp);
        self.padded_vocabulary() / t * self.model.hidden
    }

    /// Learned positions, whole on every rank.
    pub fn position_embedding_parameters(&self) -> u64 {
        self.model.embedding_parameters() - self.model.embedding.vocabulary * self.model.hidden
    }

    /// The rank's share of the output projection. If it is tied to the word embedding, it is a separate copy if the embedding is on another
    /// stage.
    pub fn head_parameters(&self, stage: u32) -> u64 {
        if self.model.embedding.tied && self.stages.has_input(stage) { 0 } else { self.word_embedding_parameters() }
    }

    /// Formula of the parameters on a rank of a stage, with numbers.
    pub fn rank_parameters_formula(&self, stage: u32) -> String {
        let (layers, ends) = (self.rank_layer_parameters(stage), self.rank_end_parameters(stage));
        let [t, p, _, _, e] = self.degrees();
        let (words, padded) = (self.model.embedding.vocabulary, self.padded_vocabulary());
        let mut text = format!("P_r = {} of {} layers", layers.dense, self.stages.layers_stored(stage).count());
        if ends.dense > 0 {
            text += &format!(" + {} of embedding, head and last norm", ends.dense);
        }
        if layers.experts > 0 {
            text += &format!(" (experts {} apart, e = {e}, etp = {})", layers.experts, self.layout.degrees.etp);
        }
        text += &format!(", t = {t}, p = {p}, stage {stage}");
        if ends.dense > 0 && padded != words {
            text += &format!(", vocabulary padded from {words} to {padded}");
        }
        text
    }
}

// Whether experts fit the layout and the choices of their style.

/// Checks of the experts of a model, training or serving: ep divides them, etp divides each, and a token has no more
/// choices than there are experts.
pub(super) fn shape(model: &Model, degrees: &Degrees) -> std::result::Result<(), String> {
    let (e, etp) = (u64::from(degrees.ep), u64::from(degrees.etp));
    let Some(mixture) = &model.mixture else {
        return match e {
            1 => Ok(()),
            _ => Err(format!("ep = {e}, but {} has no experts; accepted: 1", model.name)),
        };
    };
    let (experts, k, width) = (mixture.experts, mixture.experts_per_token, mixture.expert_feed_forward);
    if !experts.is_multiple_of(e) {
        return Err(must_divide("ep", e, experts, "experts", "num_experts", &model.name));
    }
    if !width.is_multiple_of(etp) {
        return Err(must_divide("etp", etp, width, "inner width of an expert", "moe_intermediate_size", &model.name));
    }
    if k == 0 || k > experts {
        return Err(format!(
            "{}: each token goes to {k} experts (num_experts_per_tok), but there are {experts} (num_experts); accepted: 1 to {experts}",
            model.name
        ));
    }
    Ok(())
}

/// Checks of the choices of expert parallelism.
pub(super) fn choices(step: &TrainingStep) -> Result<()> {
    let Some(mixture) = &step.model.mixture else { return Ok(()) };
    let choices = &step.training.expert;
    if choices.dispatcher.goes_by_node() {
        return by_node(step, mixture).map_err(|problem| step.training.at("dispatcher").wrong(problem));
    }
    let routed = routed(step.training, mixture, 1);
    routed.check(step.layout.degrees.ep).map_err(|problem| step.training.at("routing").wrong(problem))
}

/// Checks of exchanges that send each token once to a node: their bytes are only known for uniform choices.
fn by_node(step: &TrainingStep, mixture: &Mixture) -> std::result::Result<(), String> {
    let choices = &step.training.expert;
    let dispatcher = choices.dispatcher;
    if step.layout.degrees.etp > 1 {
        return Err(format!(
            "etp = {} with dispatcher {dispatcher}: each rank has whole experts here; accepted: etp = 1",
            step.layout.degrees.etp
        ));
    }
    nodes_of_experts(&step.layout, mixture)
}

/// Checks that the bytes of tokens through nodes are known.
pub(super) fn nodes_of_experts(layout: &Layout, mixture: &Mixture) -> std::result::Result<(), String> {
    let (nodes, ranks) = (layout.group_size(Axis::EpOuter), layout.group_size(Axis::EpInner));
    match problem(mixture, u64::from(nodes), u64::from(ranks)) {
        None => Ok(()),
        Some(problem) => Err(format!("{nodes} nodes of {ranks} ranks (expert_inner): {problem}")),
    }
}

/// The exchange of a training's tokens, of this many elements each, to the experts.
pub fn routed(training: &Training, mixture: &Mixture, elements_per_token: u64) -> Routed {
    let choices = &training.expert;
    Routed {
        experts: mixture.experts,
        experts_per_token: mixture.experts_per_token,
        elements_per_token,
        routing: choices.routing,
        capacity_factor: choices.capacity_factor,
        seed: choices.routing_seed,
        back: false,
    }
}

// Tokens that have an expert on a rank or a node, if every token selects experts uniformly.

/// Why the expected bytes on such nodes are unknown; `None` if they are known.
pub(super) fn problem(mixture: &Mixture, nodes: u64, ranks: u64) -> Option<String> {
    let per_node = mixture.experts / nodes;
    [per_node, per_node / ranks].into_iter().find_map(|block| share_of_tokens(mixture, block).err())
}

/// The share of tokens with at least one of `block` experts among their K, if each selects K different ones of its groups uniformly: one
/// minus the probability to miss, which is hypergeometric.
///
/// # Errors
/// Position of the groups of experts across such blocks.
pub fn share_of_tokens(mixture: &Mixture, block: u64) -> std::result::Result<f64, String> {
    let (experts, k) = (mixture.experts, mixture.experts_per_token);
    let Some((groups, chosen)) = mixture.router_groups.filter(|(groups, chosen)| chosen < groups) else {
        return Ok(1.0 - miss(experts, block, k));
    };
    let in_group = experts / groups;
    if in_group.is_multiple_of(block) {
        // A part of one group: reached only if that group is kept.
        let kept = chosen as f64 / groups as f64;
        return Ok(kept * (1.0 - miss(chosen * in_group, block, k)));
    }
    if !block.is_multiple_of(in_group) {
        return Err(format!(
            "{block} experts of a rank or node are neither a whole number of the router's {groups} groups of {in_group} experts nor a part of one"
        ));
    }
    // Whole groups, of which `here` are kept.
    let of_block = block / in_group;
    let all = binomial(groups, chosen);
    let missed = (0..=of_block.min(chosen)).map(|here| {
        let ways = binomial(of_block, here) * binomial(groups - of_block, chosen - here) / all;
        ways * miss(chosen * in_group, here * in_group, k)
    });
    Ok(1.0 - missed.sum::<f64>())
}

/// The probability that K different ones of `all` contain none of `block`.
fn miss(all: u64, block: u64, k: u64) -> f64 {
    (0..k).map(|drawn| all.saturating_sub(block + drawn) as f64 / all.saturating_sub(drawn).max(1) as f64).product()
}

fn binomial(n: u64, k: u64) -> f64 {
    if k > n { 0.0 } else { (0..k).map(|at| (n - at) as f64 / (at + 1) as f64).product() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Model, Suite};
    use crate::workload::step::Step;
    use std::path::Path;

    /// Dense and expert parameters of every stage.
    fn parameters_of(model: &str, layout: &str, ranks: u32) -> Vec<(u64, u64)> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = format!(
            "[model]\npreset = '{model}'\n[training]\nsequence = 512\nmicro_batches = 8\nsequence_parallel = true\n{}\n[layout]\n{}\n",
            layout.split_once('|').map_or("", |(_, training)| training),
            layout.split('|').next().unwrap_or_default(),
        );
        let suite = Suite::parse(&path, &text).unwrap();
        let steps = Step::all_of(&suite.layouts[0], ranks).unwrap();
        let Step::Training(step) = &steps[0] else { unreachable!() };
        (0..step.stages.count())
            .map(|stage| step.rank_parameters(stage))
            .map(|parameters_of| (parameters_of.dense, parameters_of.experts))
            .collect()
    }

    #[test]
    fn the_parameters_of_all_stages_add_up_to_the_model() {
        // Totals of layout-free counting: Hugging Face model cards; Llama 3 8B has 8,030,261,248 parameters.
        assert_eq!(parameters_of("llama-3-8b", "tp = 1", 2), [(8_030_261_248, 0)]);
        let stages = parameters_of("llama-3-8b", "pp = 2", 2);
        assert_eq!(stages[0].0 + stages[1].0, 8_030_261_248);
        assert_eq!(stages[1].0 - stages[0].0, 4096, "the last norm");
    }

    #[test]
    fn a_tied_head_is_a_copy_on_a_last_stage_of_its_own() {
        let words = 50_304 * 768;
        let one = parameters_of("gpt2", "tp = 1", 2)[0].0;
        let two = parameters_of("gpt2", "pp = 2", 2);
        assert_eq!(two[0].0 + two[1].0, one + words);
        // In a V the first stage has both ends, and stores one copy.
        let v = parameters_of("gpt2", "pp = 2 | schedule = 'zb-v'", 2);
        assert_eq!(v[0].0 + v[1].0, one);
    }

    #[test]
    fn dualpipe_stores_every_layer_twice() {
        let one = parameters_of("llama-3-8b", "tp = 1", 2)[0].0;
        let both: u64 =
            parameters_of("llama-3-8b", "pp = 2 | schedule = 'dualpipe'", 2).iter().map(|(dense, _)| dense).sum();
        assert_eq!(both, 2 * one);
    }

    #[test]
    fn experts_are_divided_by_ep_and_etp_and_the_rest_is_not() {
        // Mixtral 8x7B: 32 layers of 8 experts of 3 x 4096 x 14336.
        let experts: u64 = 32 * 8 * 3 * 4096 * 14336;
        let whole = parameters_of("mixtral-8x7b", "tp = 1", 8)[0];
        assert_eq!(whole.1, experts);
        assert_eq!(parameters_of("mixtral-8x7b", "ep = 4", 8)[0], (whole.0, experts / 4));
        assert_eq!(parameters_of("mixtral-8x7b", "ep = 4\ntp = 2\netp = 1", 8)[0].1, experts / 4);
        assert_eq!(parameters_of("mixtral-8x7b", "ep = 4\ntp = 2", 8)[0].1, experts / 8);
    }

    fn mixture(preset: &str) -> Mixture {
        Model::load(preset).unwrap().mixture.unwrap()
    }

    #[test]
    fn a_token_of_deepseek_v3_goes_to_less_than_four_of_eight_nodes() {
        let mixture = mixture("deepseek-v3");
        // Half of the 8 groups are kept, each of them a node: 1 - 96/128 x 95/127 x ... x 89/121 of the tokens that may select one do.
        let missed: f64 = (0..8).map(|drawn| f64::from(96 - drawn) / f64::from(128 - drawn)).product();
        let share = share_of_tokens(&mixture, 32).unwrap();
        assert!((share - 0.5 * (1.0 - missed)).abs() < 1e-12, "{share}");
        assert!((8.0 * share - 3.629).abs() < 1e-3, "nodes of a token: {}", 8.0 * share);
        // Without groups 1 - 224/256 x ... x 217/249 of all have one of 32 of 256.
        let free = Mixture { router_groups: None, ..mixture.clone() };
        let missed: f64 = (0..8).map(|drawn| f64::from(224 - drawn) / f64::from(256 - drawn)).product();
        assert!((share_of_tokens(&free, 32).unwrap() - (1.0 - missed)).abs() < 1e-12);
        // All experts are on one node, and all tokens go there.
        assert!((share_of_tokens(&mixture, 256).unwrap() - 1.0).abs() < 1e-12);
        let error = share_of_tokens(&mixture, 48).unwrap_err();
        assert!(error.contains("neither a whole number of the router's 8 groups of 32 experts"), "{error}");
        assert!(problem(&mixture, 8, 8).is_none() && problem(&Mixture { experts: 240, ..mixture }, 5, 8).is_some());
    }

    #[test]
    fn shares_are_those_of_all_choices_counted_one_by_one() {
        // 16 experts in 4 groups of which 2 are kept, 3 per token; blocks of half a group, a group, and two groups.
        let mixture =
            Mixture { experts: 16, experts_per_token: 3, router_groups: Some((4, 2)), ..mixture("mixtral-8x7b") };
        for block in [2_u32, 4, 8, 16] {
            let (mut hits, mut all) = (0, 0);
            for groups in (0_u32..16).filter(|groups| groups.count_ones() == 2) {
                // The experts of the kept groups, as bits.
                let may: u32 = (0..16).filter(|expert| groups >> (expert / 4) & 1 == 1).map(|expert| 1 << expert).sum();
                for chosen in (0_u32..1 << 16).filter(|chosen| chosen & may == *chosen && chosen.count_ones() == 3) {
                    all += 1;
                    hits += u32::from(chosen & ((1_u32 << block) - 1) != 0);
                }
            }
            assert_eq!(all, 6 * 56);
            let share = share_of_tokens(&mixture, u64::from(block)).unwrap();
            assert!((share - f64::from(hits) / f64::from(all)).abs() < 1e-12, "{block}: {share}, {hits} of {all}");
        }
    }
}
