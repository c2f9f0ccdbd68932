//! How many parameters a model has, and how many of them are on one rank under tensor and pipeline parallelism.
//!
//! The splits are Megatron-LM's (`megatron/core/tensor_parallel/layers.py`): column- and row-parallel weights and the
//! biases of column-parallel layers are divided by the degree; norms, routers and the biases of row-parallel layers
//! are on every rank. With a degree of 1 the counts are the model's published totals.
//!
//! Only parameters that training updates by gradients are counted. DeepSeek's `e_score_correction_bias`, one number
//! for each expert, is updated by a separate rule and not counted.

use super::facts::Experts;
use super::fields::{Fields, LayerPlan};
use super::{
    FeedForward, Indexer, LatentAttention, LayerParts, LinearAttentionParameters, Mixer, Mixture, Model, QueryKeyNorm,
};
use commgauge_base::error::Result;

impl Model {
    /// All parameters, without the layers that predict further tokens.
    pub fn parameters(&self) -> u64 {
        let layers: u64 = (0..self.layers).map(|layer| self.layer_parameters(layer, 1)).sum();
        let outside = self.counted.as_ref().map_or(0, |counted| counted.outside);
        self.embedding_parameters() + outside + layers + self.norm_parameters() + self.output_projection_parameters()
    }

    /// Parameters that take part in the computation of one token: all but the routed experts that it is not sent to.
    /// Both the embedding and the output projection count whole.
    pub fn parameters_active(&self) -> u64 {
        let idle: u64 =
            (0..self.layers).map(|layer| self.layer_parameters(layer, 1) - self.layer_parameters_active(layer)).sum();
        self.parameters() - idle
    }

    /// Parameters of the embedding of words and, where they are learned, of positions.
    pub fn embedding_parameters(&self) -> u64 {
        self.embedding.vocabulary * self.hidden + self.position_parameters()
    }

    /// Parameters of the output projection; 0 where it shares the word embedding.
    pub fn output_projection_parameters(&self) -> u64 {
        let bias = if self.biases.output_projection { self.embedding.vocabulary } else { 0 };
        bias + if self.embedding.tied { 0 } else { self.embedding.vocabulary * self.hidden }
    }

    /// Parameters of the layers that predict further tokens, which [`Model::parameters`] leaves out. Each is one more
    /// layer, the projection of two hidden states to one, and three norms; embedding and output projection are shared
    /// (DeepSeek-V3, arXiv 2412.19437, equation 21).
    pub fn prediction_layer_parameters(&self) -> u64 {
        let join = 2 * self.hidden * self.hidden + 3 * self.norm_parameters();
        // If a suite uses only a few layers, they are still like the last layers and not like the dense ones in front.
        let dense = self.mixture.as_ref().map_or(0, |mixture| mixture.first_dense_layers);
        let like = dense.max(self.layers.saturating_sub(1));
        let has_experts = self.mixture.as_ref().is_some_and(|mixture| mixture.is_in(like));
        let feed_forward = if has_experts { FeedForward::Experts } else { FeedForward::Dense };
        let parts = LayerParts { mixer: Some(Mixer::Attention), feed_forward: Some(feed_forward) };
        u64::from(self.prediction_layers) * (self.parameters_of_parts(parts, 1) + join)
    }

    /// The vocabulary padded as Megatron-LM pads it, to a multiple of 128 x `tensor_parallel`
    /// (`_vocab_size_with_padding`), so that every rank gets the same share.
    pub fn padded_vocabulary(&self, tensor_parallel: u64) -> u64 {
        self.embedding.vocabulary.next_multiple_of(128 * tensor_parallel)
    }

    /// Why no step of the model has a list of calls, if none has.
    pub fn steps_refused(&self) -> Option<String> {
        let latent = self.mixture.as_ref().and_then(|mixture| mixture.latent_width);
        let why = match (&self.counted, latent) {
            (Some(counted), _) => counted.steps_refused.clone(),
            (None, Some(width)) => {
                format!("its experts work in a width of {width} (moe_latent_size), whose traffic is not modelled")
            }
            (None, None) => return None,
        };
        Some(format!("{} ({}) has no list of calls: {why}", self.name, self.family.model_type))
    }

    /// Parameters of one layer on one of `tensor_parallel` ranks; experts are split by the same degree. Where formulas count them, the
    /// degree is 1.
    pub fn layer_parameters(&self, layer: u32, tensor_parallel: u64) -> u64 {
        if let Some(counted) = &self.counted {
            return counted.layers[layer as usize][0];
        }
        self.parameters_of_parts(self.parts_of(layer), tensor_parallel)
    }

    fn parameters_of_parts(&self, parts: LayerParts, tensor_parallel: u64) -> u64 {
        let feed_forward = match (parts.feed_forward, &self.mixture) {
            (Some(FeedForward::Experts), Some(mixture)) => {
                self.router_parameters()
                    + 2 * self.hidden * mixture.latent_width.unwrap_or(0)
                    + mixture.experts * self.one_expert_parameters(tensor_parallel)
                    + self.shared_expert_parameters(tensor_parallel)
            }
            (Some(_), _) => self.dense_feed_forward_parameters(tensor_parallel),
            (None, _) => 0,
        };
        self.mixer_parameters(parts.mixer, tensor_parallel) + feed_forward + self.layer_norm_parameters()
    }

    /// What mixes the tokens of a layer, on one of `tensor_parallel` ranks.
    pub fn mixer_parameters(&self, mixer: Option<Mixer>, tensor_parallel: u64) -> u64 {
        match mixer {
            Some(Mixer::Attention) => self.attention_parameters(tensor_parallel),
            Some(Mixer::Linear) => self.linear_attention_parameters(tensor_parallel).total(),
            None => 0,
        }
    }

    /// Parameters of one layer that take part in the computation of one token.
    pub fn layer_parameters_active(&self, layer: u32) -> u64 {
        if let Some(counted) = &self.counted {
            return counted.layers[layer as usize][1];
        }
        let idle = match &self.mixture {
            Some(mixture) if self.has_experts_in(layer) => {
                (mixture.experts - mixture.experts_per_token) * self.one_expert_parameters(1)
            }
            _ => 0,
        };
        self.layer_parameters(layer, 1) - idle
    }

    /// Parameters on a rank of the first of `pipeline_parallel` stages: its layers, its share of the word embedding,
    /// and everything behind the last layer too if there is only one stage.
    #[cfg(test)]
    pub fn first_stage_parameters(&self, tensor_parallel: u64, pipeline_parallel: u32) -> u64 {
        let layers = self.layers / pipeline_parallel;
        let of_layers: u64 = (0..layers).map(|layer| self.layer_parameters(layer, tensor_parallel)).sum();
        let words = self.padded_vocabulary(tensor_parallel) / tensor_parallel * self.hidden;
        let bias =
            if self.biases.output_projection { self.padded_vocabulary(tensor_parallel) / tensor_parallel } else { 0 };
        let behind = match (pipeline_parallel, self.embedding.tied) {
            (1, true) => self.norm_parameters() + bias,
            (1, false) => self.norm_parameters() + bias + words,
            _ => 0,
        };
        of_layers + words + self.position_parameters() + behind
    }

    /// One norm as wide as the residual stream: a weight, and in the GPT families a bias. One follows the last layer. Never
    /// divided.
    pub fn norm_parameters(&self) -> u64 {
        if self.norms_have_bias() { 2 * self.hidden } else { self.hidden }
    }

    /// Whether norms take away the mean and have a bias, as in the GPT families; others divide by the root mean square only.
    pub fn norms_have_bias(&self) -> bool {
        self.family.norm_bias
    }

    /// The norms of a layer as wide as the residual stream: two in most families. Never divided.
    pub fn layer_norm_parameters(&self) -> u64 {
        self.norms_per_layer() * self.norm_parameters()
    }

    /// Norms as wide as the residual stream in each layer.
    pub fn norms_per_layer(&self) -> u64 {
        self.family.norms_per_layer
    }

    /// The norms of queries and of keys of a layer on one of `tensor_parallel` ranks. A norm over all heads is divided as the heads are.
    pub fn query_key_norm_parameters(&self, tensor_parallel: u64) -> [u64; 2] {
        match self.attention.query_key_norm {
            QueryKeyNorm::None => [0; 2],
            QueryKeyNorm::EachHead => [self.attention.head_dimension; 2],
            QueryKeyNorm::AllHeads => [self.attention.heads / tensor_parallel, self.kv_heads_per_rank(tensor_parallel)]
                .map(|heads| heads * self.attention.head_dimension),
        }
    }

    /// The linear attention of a layer that has it on one of `tensor_parallel` ranks; zeros for a model without.
    pub fn linear_attention_parameters(&self, tensor_parallel: u64) -> LinearAttentionParameters {
        self.attention
            .linear
            .as_ref()
            .map_or_else(Default::default, |linear| linear.parameters(self.hidden, tensor_parallel))
    }

    /// Attention of a layer that has it on one of `tensor_parallel` ranks: projections, their biases, norms of queries and keys,
    /// sinks.
    pub fn attention_parameters(&self, tensor_parallel: u64) -> u64 {
        match &self.attention.latent {
            Some(latent) => self.latent_attention_parameters(latent, tensor_parallel),
            None => self.plain_attention_parameters(tensor_parallel),
        }
    }

    /// The feed-forward of a layer without experts on one of `tensor_parallel` ranks.
    pub fn dense_feed_forward_parameters(&self, tensor_parallel: u64) -> u64 {
        self.feed_forward_parameters(self.hidden, self.feed_forward, tensor_parallel)
    }

    /// The router of a layer with experts, complete on every rank; 0 for a model without experts.
    pub fn router_parameters(&self) -> u64 {
        self.mixture.as_ref().map_or(0, |mixture| {
            let bias = if mixture.router_bias { mixture.experts } else { 0 };
            self.hidden * mixture.experts + bias
        })
    }

    /// One routed expert on one of `expert_tensor_parallel` ranks; 0 for a model without experts.
    pub fn one_expert_parameters(&self, expert_tensor_parallel: u64) -> u64 {
        self.mixture.as_ref().map_or(0, |mixture| {
            let outer = mixture.latent_width.unwrap_or(self.hidden);
            self.feed_forward_parameters(outer, mixture.expert_feed_forward, expert_tensor_parallel)
        })
    }

    /// The shared experts of a layer, together, on one of `tensor_parallel` ranks, with their gate.
    pub fn shared_expert_parameters(&self, tensor_parallel: u64) -> u64 {
        self.mixture.as_ref().map_or(0, |mixture| match mixture {
            Mixture { shared_feed_forward: 0, .. } => 0,
            Mixture { shared_feed_forward, shared_expert_gate, .. } => {
                let gate = if *shared_expert_gate { self.hidden } else { 0 };
                self.feed_forward_parameters(self.hidden, *shared_feed_forward, tensor_parallel) + gate
            }
        })
    }

    fn position_parameters(&self) -> u64 {
        if self.family.learned_positions { self.embedding.maximum_positions.unwrap_or(0) * self.hidden } else { 0 }
    }

    fn plain_attention_parameters(&self, t: u64) -> u64 {
        let queries = self.attention.heads / t * self.attention.head_dimension;
        // If there are fewer key and value heads than ranks, each rank has a copy of one.
        let keys_and_values = 2 * self.kv_heads_per_rank(t) * self.attention.head_dimension;
        let input = self.projected_queries(t) + keys_and_values;
        let biases = if self.biases.query_key_value { input } else { 0 }
            + if self.biases.attention_output { self.hidden } else { 0 };
        let norms: u64 = self.query_key_norm_parameters(t).iter().sum();
        let sinks = if self.family.attention_sinks { self.attention.heads / t } else { 0 };
        self.hidden * (input + queries) + biases + norms + sinks
    }

    /// Heads of keys and values on one of `tensor_parallel` ranks: where there are fewer than ranks, several ranks have the same one.
    pub fn kv_heads_per_rank(&self, tensor_parallel: u64) -> u64 {
        (self.attention.kv_heads / tensor_parallel).max(1)
    }

    /// Output of the projection to queries on one of `tensor_parallel` ranks: twice as wide as they are where it has their gate too
    /// (transformers, `models/qwen3_next`, `Qwen3NextAttention`).
    pub fn projected_queries(&self, tensor_parallel: u64) -> u64 {
        let copies = if self.attention.gate { 2 } else { 1 };
        copies * (self.attention.heads / tensor_parallel) * self.attention.head_dimension
    }

    fn latent_attention_parameters(&self, latent: &LatentAttention, t: u64) -> u64 {
        let (h, heads) = (self.hidden, self.attention.heads / t);
        let query_width = heads * self.attention.head_dimension;
        let queries = match latent.query_rank {
            Some(rank) => h * rank + rank * query_width + rank,
            None => h * query_width,
        };
        let compressed_width = latent.kv_rank + latent.rotary_dimension;
        let compressed = h * compressed_width + latent.kv_rank;
        let expanded = latent.kv_rank * heads * (latent.plain_dimension + latent.value_dimension);
        // Only the projections down to the ranks have the bias, never those up from them.
        let biases = if self.biases.query_key_value { latent.query_rank.unwrap_or(0) + compressed_width } else { 0 }
            + if self.biases.attention_output { h } else { 0 };
        let indexer = self.indexer_parameters();
        queries + compressed + expanded + heads * latent.value_dimension * h + biases + indexer
    }

    /// The projections of the indexer of a layer, whole on every rank, and its norm of a weight and a bias; 0 without one.
    pub fn indexer_parameters(&self) -> u64 {
        let query_rank = self.attention.latent.as_ref().and_then(|latent| latent.query_rank).unwrap_or(0);
        self.attention.indexer.map_or(0, |Indexer { heads, head_dimension, .. }| {
            query_rank * heads * head_dimension + self.hidden * (head_dimension + heads) + 2 * head_dimension
        })
    }

    fn feed_forward_parameters(&self, outer: u64, width: u64, t: u64) -> u64 {
        let inputs = if self.family.gated { 2 } else { 1 };
        let biases = if self.biases.feed_forward { inputs * width / t + outer } else { 0 };
        (inputs + 1) * outer * width / t + biases
    }
}

// Reads the fields of a mixture of experts; the fields of every model are read in `find`.

const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];

const EXPERTS_PER_TOKEN: &[&str] = &["num_experts_per_tok", "experts_per_token"];

const EXPERT_FEED_FORWARD: &[&str] = &["moe_intermediate_size"];

const SHARED_WIDTH: &[&str] = &["shared_expert_intermediate_size"];

impl Fields<'_> {
    /// The experts of a family that has them.
    pub(super) fn mixture(&self, layers: u32, plan: &LayerPlan) -> Result<Option<Mixture>> {
        let is_single = self.family.single_blocks;
        let Some(facts) = self.family.experts.as_ref().filter(|_| !is_single || !plan.expert_layers.is_empty()) else {
            return Ok(None);
        };
        let groups = self.optional(&["n_group"])?.zip(self.optional(&["topk_group"])?);
        let expert_feed_forward = match self.optional(EXPERT_FEED_FORWARD)? {
            Some(width) => width,
            None if facts.of_feed_forward_width => self.need(&["intermediate_size"])?,
            None => return Err(self.missing(EXPERT_FEED_FORWARD)),
        };
        let (shared_experts, shared_feed_forward) = self.shared_experts(facts, expert_feed_forward)?;
        let (layer_step, layer_offset) = self.expert_layers()?;
        let (first_dense_layers, dense_layers) = match is_single {
            true => (0, (0..layers).filter(|layer| plan.expert_layers.binary_search(layer).is_err()).collect()),
            false => self.dense_layers(layers)?,
        };
        Ok(Some(Mixture {
            experts: self.need(EXPERTS)?,
            experts_per_token: self.need(EXPERTS_PER_TOKEN)?,
            expert_feed_forward,
            shared_experts,
            shared_feed_forward,
            shared_expert_gate: facts.shared_gate,
            router_bias: facts.router_bias,
            first_dense_layers,
            layer_step,
            layer_offset,
            dense_layers,
            latent_width: self.optional(&["moe_latent_size"])?,
            router_groups: groups,
        }))
    }

    /// How many shared experts, and how wide they are together.
    fn shared_experts(&self, facts: &Experts, expert_feed_forward: u64) -> Result<(u64, u64)> {
        if let Some(width) = self.optional_from_zero(SHARED_WIDTH)? {
            return Ok((u64::from(width > 0), width));
        }
        if facts.shared_gate {
            return Err(self.missing(SHARED_WIDTH));
        }
        let shared = self.or_none("n_shared_experts")?.max(facts.always_shared);
        Ok((shared, shared.saturating_mul(expert_feed_forward)))
    }

    /// A number that is 0 where it is null or absent; null is noted where the class has a default.
    fn or_none(&self, name: &'static str) -> Result<u64> {
        Ok(match self.optional_from_zero(&[name])? {
            Some(number) => number,
            None if self.family.defaults.contains_key(name) => self.infer(name, 0, "null: none"),
            None => 0,
        })
    }

    /// Every how many layers there are experts, and from which on. DeepSeek counts layers from 0, Qwen and Llama 4 from 1.
    fn expert_layers(&self) -> Result<(u32, u32)> {
        if let Some(step) = self.optional(&["decoder_sparse_step", "interleave_moe_layer_step"])? {
            return Ok((step as u32, step as u32 - 1));
        }
        Ok((self.optional(&["moe_layer_freq"])?.unwrap_or(1) as u32, 0))
    }

    /// How many layers at the front have no experts, and which others: listed, or not among the listed ones with experts.
    fn dense_layers(&self, layers: u32) -> Result<(u32, Vec<u32>)> {
        // Files of transformers 5 name the feed-forward of every layer.
        if let Some((name, value)) = self.first(&["mlp_layer_types"]) {
            let accepted = format!("accepted: a list of \"dense\" and \"sparse\", {layers} long");
            let kinds = value.as_array().filter(|kinds| kinds.len() as u64 == u64::from(layers));
            let kinds = kinds.ok_or_else(|| self.wrong(name, format!("found {value}; {accepted}")))?;
            if let Some(other) = kinds.iter().find(|kind| !["dense", "sparse"].contains(&kind.as_str().unwrap_or(""))) {
                return Err(self.wrong(name, format!("found {other}; {accepted}")));
            }
            let first = kinds.iter().take_while(|kind| *kind == "dense").count() as u32;
            return Ok((first, (first..layers).filter(|layer| kinds[*layer as usize] == "dense").collect()));
        }
        let first = self.or_none("first_k_dense_replace")? as u32;
        if let Some(with_experts) = self.listed_layers("moe_layers")? {
            return Ok((first, (0..layers).filter(|layer| with_experts.binary_search(layer).is_err()).collect()));
        }
        Ok((first, self.listed_layers("mlp_only_layers")?.unwrap_or_default()))
    }

    fn listed_layers(&self, name: &'static str) -> Result<Option<Vec<u32>>> {
        let Some((name, value)) = self.first(&[name]) else { return Ok(None) };
        let mut layers: Vec<u32> = serde_json::from_value(value.clone())
            .map_err(|_| self.wrong(name, format!("found {value}; accepted: a list of layers, counted from 0")))?;
        layers.sort_unstable();
        Ok(Some(layers))
    }
}
