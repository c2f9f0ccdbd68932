//! Number of parameters on one rank of a stage: its layers and its share of embedding and head, dense parameters and
//! experts separately, because different groups reduce their gradients.
//!
//! The splits are those of `config::Model`; `stages` assigns layers to stages.

use super::TrainingStep;

/// Parameters on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankParameters {
    /// Parameters that tensor parallelism divides or copies: attention, dense feed-forward, norms, routers, shared
    /// experts, embedding and head.
    pub dense: u64,
    /// Parameters of routed experts, which expert parallelism divides.
    pub experts: u64,
}

impl RankParameters {
    /// Both together.
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

    /// Parameters of one layer on a rank.
    pub fn parameters_of_layer(&self, layer: u32) -> RankParameters {
        let (model, t) = (self.model, u64::from(self.layout.degrees.tp));
        let predicts_further = layer >= model.layers;
        let beside =
            if predicts_further { self.prediction_projection_parameters() + 3 * model.norm_parameters() } else { 0 };
        if !model.has_experts_in(layer) {
            return RankParameters { dense: model.layer_parameters(layer, t) + beside, experts: 0 };
        }
        let dense = beside
            + model.mixer_parameters(model.parts_of(layer).mixer, t)
            + model.layer_norm_parameters()
            + model.router_parameters()
            + model.shared_expert_parameters(t);
        let one = model.one_expert_parameters(u64::from(self.layout.degrees.etp));
        RankParameters { dense, experts: self.experts_per_rank() * one }
    }

    /// Parameters before the first layer and behind the last one, on the stages that have them.
    pub fn rank_end_parameters(&self, stage: u32) -> RankParameters {
        let output = self.stages.has_output(stage).then(|| self.head_parameters(stage) + self.model.norm_parameters());
        RankParameters { dense: self.input_parameters(stage).dense + output.unwrap_or(0), experts: 0 }
    }

    /// The projection of a layer that predicts a further token: hidden state and embedding side by side, to the hidden width
    /// (arXiv 2412.19437 section 2.2).
    pub fn prediction_projection_parameters(&self) -> u64 {
        2 * self.model.hidden * self.model.hidden / u64::from(self.layout.degrees.tp)
    }

    /// Those before the first layer. Layers that predict further tokens embed them too, on the last stage.
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

    /// The rank's share of the output projection. If it is tied to the word embedding, it is a separate copy when the
    /// embedding is on another stage.
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

#[cfg(test)]
mod tests {
    use crate::config::Suite;
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
}
