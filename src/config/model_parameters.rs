//! How many parameters a model has, and how many of them one rank holds under tensor and pipeline parallelism.
//!
//! The splits are Megatron-LM's (`megatron/core/tensor_parallel/layers.py`): column- and row-parallel weights and
//! the biases of column-parallel layers are divided by the degree; norms and the biases of row-parallel layers are
//! on every rank. With a degree of 1 the counts are the model's published totals.

use super::model::{LatentAttention, Mixture, Model};

impl Model {
    /// All parameters.
    pub fn parameters(&self) -> u64 {
        let head = if self.tied_embeddings { 0 } else { self.vocabulary * self.hidden };
        let layers: u64 = (0..self.layers).map(|layer| self.layer_parameters(layer, 1)).sum();
        self.embedding_parameters() + layers + self.norm_parameters() + head
    }

    /// Parameters of the embedding of words and, where they are learned, of positions.
    pub fn embedding_parameters(&self) -> u64 {
        self.vocabulary * self.hidden + self.position_parameters()
    }

    /// The vocabulary padded as Megatron-LM pads it, to a multiple of 128 x `tensor_parallel`
    /// (`_vocab_size_with_padding`), so that every rank gets the same share.
    pub fn padded_vocabulary(&self, tensor_parallel: u64) -> u64 {
        self.vocabulary.next_multiple_of(128 * tensor_parallel)
    }

    /// Parameters of one layer that one of `tensor_parallel` ranks holds.
    pub fn layer_parameters(&self, layer: u32, tensor_parallel: u64) -> u64 {
        let attention = match &self.latent_attention {
            Some(latent) => self.latent_attention_parameters(latent, tensor_parallel),
            None => self.attention_parameters(tensor_parallel),
        };
        let feed_forward = match &self.mixture {
            Some(mixture) if self.has_experts_in(layer) => self.expert_parameters(mixture, tensor_parallel),
            _ => self.feed_forward_parameters(self.feed_forward, tensor_parallel),
        };
        attention + feed_forward + 2 * self.norm_parameters()
    }

    /// Parameters that a rank of the first of `pipeline_parallel` stages holds: its layers, its share of the word
    /// embedding, and everything behind the last layer too where there is only one stage.
    pub fn first_stage_parameters(&self, tensor_parallel: u64, pipeline_parallel: u32) -> u64 {
        let layers = self.layers / pipeline_parallel;
        let held: u64 = (0..layers).map(|layer| self.layer_parameters(layer, tensor_parallel)).sum();
        let words = self.padded_vocabulary(tensor_parallel) / tensor_parallel * self.hidden;
        let behind = match (pipeline_parallel, self.tied_embeddings) {
            (1, true) => self.norm_parameters(),
            (1, false) => self.norm_parameters() + words,
            _ => 0,
        };
        held + words + self.position_parameters() + behind
    }

    fn position_parameters(&self) -> u64 {
        if self.family.has_learned_positions() { self.maximum_positions * self.hidden } else { 0 }
    }

    /// One norm: a weight, and in the GPT family a bias.
    fn norm_parameters(&self) -> u64 {
        if self.family.has_learned_positions() { 2 * self.hidden } else { self.hidden }
    }

    fn attention_parameters(&self, t: u64) -> u64 {
        let queries = self.heads / t * self.head_dimension;
        // Where there are fewer key and value heads than ranks, each rank holds a copy of one.
        let keys_and_values = 2 * (self.kv_heads / t).max(1) * self.head_dimension;
        let biases = if self.query_key_value_bias { queries + keys_and_values } else { 0 }
            + if self.attention_output_bias { self.hidden } else { 0 };
        let norms = if self.family.has_query_key_norm() { 2 * self.head_dimension } else { 0 };
        self.hidden * (2 * queries + keys_and_values) + biases + norms
    }

    fn latent_attention_parameters(&self, latent: &LatentAttention, t: u64) -> u64 {
        let (h, heads) = (self.hidden, self.heads / t);
        let query_width = heads * self.head_dimension;
        let queries = match latent.query_rank {
            Some(rank) => h * rank + rank * query_width + rank,
            None => h * query_width,
        };
        let compressed = h * (latent.kv_rank + latent.rotary_dimension) + latent.kv_rank;
        let expanded = latent.kv_rank * heads * (latent.plain_dimension + latent.value_dimension);
        queries + compressed + expanded + heads * latent.value_dimension * h
    }

    fn feed_forward_parameters(&self, width: u64, t: u64) -> u64 {
        let inputs = if self.family.gated() { 2 } else { 1 };
        let biases = if self.feed_forward_bias { inputs * width / t + self.hidden } else { 0 };
        (inputs + 1) * self.hidden * width / t + biases
    }

    fn expert_parameters(&self, mixture: &Mixture, t: u64) -> u64 {
        let one = self.feed_forward_parameters(mixture.expert_feed_forward, t);
        (mixture.experts + mixture.shared_experts) * one + self.hidden * mixture.experts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn shipped(name: &str) -> Model {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/models").join(name).join("config.json");
        Model::read(&file, name, &std::fs::read_to_string(&file).unwrap()).unwrap()
    }

    fn billions(model: &Model) -> String {
        format!("{:.3}", model.parameters() as f64 * 1e-9)
    }

    #[test]
    fn the_shipped_models_have_their_published_numbers_of_parameters() {
        for (name, expected) in [
            ("llama-3-8b", "8.030"),
            ("llama-3-70b", "70.554"),
            ("llama-2-7b", "6.738"),
            ("qwen2.5-0.5b", "0.494"),
            ("mixtral-8x7b", "46.703"),
            ("gpt2", "0.124"),
            ("gpt3-175b", "174.616"),
        ] {
            assert_eq!(billions(&shipped(name)), expected, "{name}");
        }
        assert_eq!(shipped("llama-3-8b").parameters(), 8_030_261_248);
        assert_eq!(shipped("gpt2").parameters(), 124_439_808);
    }

    #[test]
    fn other_families_come_to_their_published_numbers_of_parameters() {
        let qwen3 = json!({"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024, "head_dim": 128,
            "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
            "tie_word_embeddings": true, "attention_bias": false, "max_position_embeddings": 40960});
        let qwen3_moe = json!({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
            "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
            "num_experts_per_tok": 8, "num_key_value_heads": 4, "vocab_size": 151936, "mlp_only_layers": [],
            "decoder_sparse_step": 1, "tie_word_embeddings": false, "max_position_embeddings": 40960});
        let deepseek = json!({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
            "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
            "moe_layer_freq": 1, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128});
        for (document, expected) in [(qwen3, "0.596"), (qwen3_moe, "30.532"), (deepseek, "671.026")] {
            let model = Model::read(Path::new("config.json"), "test", &document.to_string()).unwrap();
            assert_eq!(billions(&model), expected, "{document}");
        }
    }

    #[test]
    fn ranks_hold_their_share_and_a_copy_of_the_norms() {
        let model = shipped("llama-3-8b");
        let norms = (2 * 32 + 1) * 4096;
        assert_eq!(model.first_stage_parameters(1, 1), model.parameters());
        assert_eq!(2 * model.first_stage_parameters(2, 1) - model.parameters(), norms);
        // Half the layers and the word embedding, but not the output projection nor the last norm.
        assert_eq!(
            model.first_stage_parameters(1, 2),
            (model.parameters() - 2 * 128_256 * 4096 - 4096) / 2 + 128_256 * 4096
        );
        // 16 ranks share 8 key and value heads: each keeps a whole one, as much as each of 8 ranks does.
        let copied = 2 * 4096 + 2 * 128 * 4096;
        assert_eq!(2 * model.layer_parameters(0, 16) - model.layer_parameters(0, 8), copied);
    }

    #[test]
    fn the_vocabulary_is_padded_as_megatron_pads_it() {
        let model = shipped("gpt2");
        assert_eq!((model.padded_vocabulary(1), model.padded_vocabulary(8)), (50_304, 51_200));
        assert_eq!(shipped("llama-3-8b").padded_vocabulary(8), 129_024);
    }
}
