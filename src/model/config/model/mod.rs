//! The shape of a language model, as described by its config.json.
//!
//! `find` locates and reads the file, `fields` looks up its fields, `facts` has what its family says, `weights` formulas of families, and
//! `parameters` counts the parameters.

mod facts;
mod fields;
pub(super) mod find;
mod layers;
mod parameters;
mod weights;

#[cfg(test)]
mod read_tests;

pub use facts::{Family, QueryKeyNorm};
pub use layers::{
    Blocks, FeedForward, LayerParts, LinearAttention, LinearAttentionParameters, LinearRule, Mixer, Mixture,
};
pub use weights::Counted;

use commgauge_base::element::ElementType;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// The shape of a decoder-only transformer, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the preset or of the file's folder.
    pub name: String,
    /// What was read, and what was changed or assumed.
    pub source: ModelSource,
    /// Which architecture the fields describe.
    pub family: Arc<Family>,
    /// Transformer layers in use; see `source.overrides` if the file has another number.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Inner width of a dense feed-forward layer.
    pub feed_forward: u64,
    /// How tokens look at each other.
    pub attention: Attention,
    /// Parts before and after the layers.
    pub embedding: Embedding,
    /// Which projections have a bias.
    pub biases: Biases,
    /// Attention and feed-forward read the same input and are added together, so that tensor parallelism may reduce both
    /// at once (GPT-J's form of a layer).
    pub parallel_residual: bool,
    /// Name of the activation function, if the file has one. Whether the feed-forward is gated follows from the
    /// family.
    pub activation: Option<String>,
    /// Type of the published weights, if the file has one.
    pub element: Option<ElementType>,
    /// How mixers of tokens and feed-forwards are put together to layers.
    pub blocks: Blocks,
    /// Experts, where the feed-forward layers have them.
    pub mixture: Option<Mixture>,
    /// Further layers that predict tokens beyond the next one (`num_nextn_predict_layers`); not among `layers`.
    pub prediction_layers: u32,
    /// Parameters of layers that only formulas of the family describe.
    pub counted: Option<Counted>,
}

/// Where a model was read, and what a suite changed or the reader assumed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSource {
    /// The file that was read.
    pub file: PathBuf,
    /// What a suite changed, such as `num_hidden_layers 2 of 32`; part of the name that is shown.
    pub overrides: Vec<String>,
    /// Fields missing in the file, and the defaults used for them.
    pub inferred: Vec<Inferred>,
}

/// How tokens look at each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of one query or key head (with latent attention: without and with rotation together).
    pub head_dimension: u64,
    /// Norms of queries and keys.
    pub query_key_norm: QueryKeyNorm,
    /// A gate as wide as the queries, from the same projection, weighs what attention gives.
    pub gate: bool,
    /// Layers that attend to a window only.
    pub sliding_window: Option<SlidingWindow>,
    /// Linear attention in place of attention, in the layers that have it.
    pub linear: Option<LinearAttention>,
    /// Low-rank attention, where the model has it.
    pub latent: Option<LatentAttention>,
    /// Which tokens latent attention looks at is chosen by an indexer, where the model has one.
    pub indexer: Option<Indexer>,
}

/// Parts before and after the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// Entries of the vocabulary, not padded.
    pub vocabulary: u64,
    /// Longest sequence that the file allows, if it says so.
    pub maximum_positions: Option<u64>,
    /// Positions are scaled, so that longer sequences than that may be intended.
    pub scales_positions: bool,
    /// Whether the output projection shares the word embedding.
    pub tied: bool,
}

/// Which projections have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// To queries, keys and values.
    pub query_key_value: bool,
    /// Of the attention's output.
    pub attention_output: bool,
    /// Of the feed-forward, those of experts too.
    pub feed_forward: bool,
    /// To the vocabulary.
    pub output_projection: bool,
}

/// Attention to the nearest tokens only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Tokens that a token sees, itself included.
    pub tokens: u64,
    /// The layers, counted from 0, in order; all others attend to everything.
    pub layers: Vec<u32>,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LatentAttention {
    /// Rank of the query's compression; `None` where queries are not compressed.
    pub query_rank: Option<u64>,
    /// Rank of the compression of keys and values.
    pub kv_rank: u64,
    /// Width of a head's part without rotation.
    pub plain_dimension: u64,
    /// Width of a head's rotated part.
    pub rotary_dimension: u64,
    /// Width of a value head.
    pub value_dimension: u64,
}

/// Chooses the tokens of sparse attention (DeepSeek-V3.2-Exp; transformers, `models/deepseek_v32`, `DeepseekV32Indexer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Indexer {
    /// Its heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dimension: u64,
    /// Tokens that it keeps.
    pub tokens: u64,
}

/// A field that the file leaves out, or whose part of the model is not counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Inferred {
    /// Its name in config.json.
    pub field: String,
    /// What it was taken as: a number, a truth value, a text, or null for "not said".
    pub value: serde_json::Value,
    /// The rule that gave the value.
    pub why: String,
}

impl Model {
    /// The name with everything that a suite changed: `llama-3-8b (num_hidden_layers 2 of 32)`.
    pub fn shown_name(&self) -> String {
        match self.source.overrides.as_slice() {
            [] => self.name.clone(),
            overrides => format!("{} ({})", self.name, overrides.join(", ")),
        }
    }

    /// Uses only the first `layers` layers, and adds that to the name.
    ///
    /// # Errors
    /// What would be accepted, if the model has fewer.
    pub fn keep_layers(&mut self, layers: u32) -> Result<(), String> {
        if layers > self.layers {
            return Err(format!("found {layers}; accepted: 1 to {}, the layers of {}", self.layers, self.name));
        }
        if layers < self.layers {
            self.source.overrides.push(format!("num_hidden_layers {layers} of {}", self.layers));
            self.layers = layers;
        }
        Ok(())
    }

    /// Whether a layer, counted from 0, attends to a window only.
    pub fn has_sliding_window_in(&self, layer: u32) -> bool {
        let layer = layer.min(self.layers.saturating_sub(1));
        self.attention.sliding_window.as_ref().is_some_and(|window| window.layers.binary_search(&layer).is_ok())
    }
}

#[cfg(test)]
mod preset_tests {
    // The shipped models against the numbers of parameters that their makers published.
    use super::Model;
    use super::facts::Families;
    use crate::config::Shipped;
    use std::path::Path;

    fn shipped(name: &str) -> Model {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/models").join(name).join("config.json");
        Model::read(&file, name, &std::fs::read_to_string(&file).unwrap()).unwrap()
    }

    /// Billions with as many decimals as the expected text has.
    fn billions(parameters: u64, expected: &str) -> String {
        let decimals = expected.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        format!("{:.decimals$}", parameters as f64 * 1e-9)
    }

    /// Totals in billions. Llama 2: arXiv 2307.09288; Llama 3: arXiv 2407.21783; Qwen2.5: 2412.15115; Qwen3: 2505.09388;
    /// Mixtral: 2401.04088; DeepSeek-V3: 2412.19437, without its prediction layer; GPT and Megatron: 2005.14165, 2104.04473
    /// (table 1) and 2205.05198 (table 3), with V = 51200, s = 2048; gpt-oss: its model card, arXiv 2508.10925 (table 1);
    /// GPT-NeoX-20B: 2204.06745 (20,554,567,680). The digits beyond the published ones are those of the weights.
    const TOTALS: [(&str, &str); 43] = [
        ("codegeex-13b", "12.863"),
        ("deepseek-v3", "671.026"),
        ("gpt-180b", "179.350419456"),
        ("gpt-7.5b", "7.5"),
        ("gpt-neox-20b", "20.554567680"),
        ("gpt-oss-120b", "116.829156672"),
        ("gpt-oss-20b", "20.914757184"),
        ("gpt2", "0.124439808"),
        ("gpt3-175b", "174.616"),
        ("llama-2-13b", "13.016"),
        ("llama-2-70b", "68.977"),
        ("llama-2-7b", "6.738"),
        ("llama-3-405b", "405.853"),
        ("llama-3-70b", "70.554"),
        ("llama-3-8b", "8.030261248"),
        ("llama-3.1-405b", "405.853"),
        ("megatron-1.7b", "1.7"),
        ("megatron-145b", "145.622"),
        ("megatron-18.4b", "18.4"),
        ("megatron-1t", "1008.039"),
        ("megatron-22b", "22.07"),
        ("megatron-3.6b", "3.6"),
        ("megatron-310b", "310.1"),
        ("megatron-39.1b", "39.1"),
        ("megatron-76.1b", "76.1"),
        ("mixtral-8x7b", "46.703"),
        ("mt-nlg-530b", "529.601"),
        ("qwen1.5-moe-a2.7b", "14.315784192"),
        ("qwen2.5-0.5b", "0.494"),
        ("qwen2.5-1.5b", "1.544"),
        ("qwen2.5-14b", "14.770"),
        ("qwen2.5-32b", "32.764"),
        ("qwen2.5-3b", "3.086"),
        ("qwen2.5-72b", "72.706"),
        ("qwen2.5-7b", "7.616"),
        ("qwen3-0.6b", "0.596"),
        ("qwen3-1.7b", "1.721"),
        ("qwen3-14b", "14.768"),
        ("qwen3-235b-a22b", "235.094"),
        ("qwen3-30b-a3b", "30.532"),
        ("qwen3-32b", "32.762"),
        ("qwen3-4b", "4.022"),
        ("qwen3-8b", "8.191"),
    ];

    #[test]
    fn every_shipped_model_has_its_published_number_of_parameters() {
        let models = Shipped::Model.embedded_names();
        assert_eq!(models, TOTALS.map(|(name, _)| name), "every model has a row, and every row a model");
        for (name, expected) in TOTALS {
            assert_eq!(billions(shipped(name).parameters(), expected), expected, "{name}");
        }
    }

    /// What is counted in the number of active parameters that a maker publishes.
    enum Counted {
        /// Embedding and output projection both.
        All,
        /// All but the embedding, of which a token reads one row.
        WithoutEmbedding,
    }

    #[test]
    fn the_parameters_that_a_token_uses_are_those_that_are_published() {
        use Counted::{All, WithoutEmbedding};
        for (name, active, without_embedding, published, unit, counted) in [
            // arXiv 2401.04088, section 3: "13B active parameters"; 12.88 counts everything.
            ("mixtral-8x7b", "12.88", "12.75", 13.0, 1.0, All),
            // arXiv 2412.19437, abstract: "37B activated"; README_WEIGHTS of the release: 36.7.
            ("deepseek-v3", "37.55", "36.63", 36.7, 0.1, WithoutEmbedding),
            // Model cards, which round down: 3.3 and 22.
            ("qwen3-30b-a3b", "3.35", "3.04", 3.3, 0.1, All),
            ("qwen3-235b-a22b", "22.19", "21.57", 22.0, 1.0, All),
            // arXiv 2508.10925, table 1.
            ("gpt-oss-120b", "5.71", "5.13", 5.13, 0.01, WithoutEmbedding),
            ("gpt-oss-20b", "4.19", "3.61", 3.61, 0.01, WithoutEmbedding),
            // Model card: 2.7.
            ("qwen1.5-moe-a2.7b", "2.69", "2.38", 2.7, 0.1, All),
        ] {
            let model = shipped(name);
            let all = model.parameters_active();
            let rest = all - model.embedding_parameters();
            assert_eq!(billions(all, active), active, "{name}");
            assert_eq!(billions(rest, without_embedding), without_embedding, "{name}");
            let ours = match counted {
                All => all,
                WithoutEmbedding => rest,
            };
            // Makers round and cut as they like: within one of their last digit.
            assert!((ours as f64 * 1e-9 - published).abs() < unit, "{name}: {ours} against {published}");
        }
        let dense = shipped("llama-3-70b");
        assert_eq!(dense.parameters_active(), dense.parameters());
    }

    #[test]
    fn the_parts_of_a_layer_add_up_and_are_those_worked_out_by_hand() {
        // Mixtral: h 4096, 32 heads and 8 of keys and values, each 128 wide, experts of 14336.
        let mixtral = shipped("mixtral-8x7b");
        assert_eq!(mixtral.attention_parameters(1), 4096 * 128 * (2 * 32 + 2 * 8));
        assert_eq!((mixtral.router_parameters(), mixtral.one_expert_parameters(1)), (4096 * 8, 3 * 4096 * 14336));
        assert_eq!((mixtral.shared_expert_parameters(1), mixtral.norm_parameters()), (0, 4096));
        assert_eq!(mixtral.one_expert_parameters(2) * 2, mixtral.one_expert_parameters(1));
        // gpt-oss-20b: biases on all projections and the router, and a sink for each of 64 heads.
        let oss = shipped("gpt-oss-20b");
        assert_eq!(oss.attention_parameters(1), 2880 * 64 * (2 * 64 + 2 * 8) + 64 * (64 + 2 * 8) + 2880 + 64);
        assert_eq!(oss.router_parameters(), 32 * 2880 + 32);
        assert_eq!(oss.one_expert_parameters(1), 3 * 2880 * 2880 + 2 * 2880 + 2880);
        assert_eq!(
            oss.attention.sliding_window.as_ref().map(|window| (window.tokens, window.layers.len())),
            Some((128, 12))
        );
        assert!(oss.has_sliding_window_in(0) && !oss.has_sliding_window_in(1));
        // DeepSeek-V3: three dense layers of 18432, one shared expert of 2048; 187,107,328 in the attention of a layer.
        let deepseek = shipped("deepseek-v3");
        assert_eq!(deepseek.attention_parameters(1), 187_107_328);
        assert_eq!(deepseek.dense_feed_forward_parameters(1), 3 * 7168 * 18432);
        assert_eq!(deepseek.shared_expert_parameters(1), 3 * 7168 * 2048);
        for (model, layer) in [(&mixtral, 0), (&oss, 3), (&deepseek, 3)] {
            let experts = model.mixture.as_ref().unwrap().experts * model.one_expert_parameters(1);
            let parts = model.attention_parameters(1)
                + model.router_parameters()
                + experts
                + model.shared_expert_parameters(1)
                + 2 * model.norm_parameters();
            assert_eq!(model.layer_parameters(layer, 1), parts, "{}", model.name);
        }
        let dense = deepseek.attention_parameters(1) + deepseek.dense_feed_forward_parameters(1) + 2 * 7168;
        assert_eq!((deepseek.layer_parameters(2, 1), deepseek.layer_parameters_active(2)), (dense, dense));
        // Qwen1.5-MoE: a gate as wide as the residual stream before the shared expert.
        assert_eq!(shipped("qwen1.5-moe-a2.7b").shared_expert_parameters(1), 3 * 2048 * 5632 + 2048);
    }

    fn of_class(model_type: &str, change: impl FnOnce(&mut serde_json::Value)) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers").join(model_type);
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap().replace("Infinity", "null");
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        change(&mut document);
        Model::read(Path::new("config.json"), model_type, &document.to_string()).unwrap()
    }

    #[test]
    fn hybrid_models_have_the_parameters_of_their_weights_and_the_active_ones_of_their_makers() {
        // The defaults of the class are Qwen3-Next-80B-A3B: "80B" and "3B activated" by its card, which leaves out the embedding and the head.
        let qwen = of_class("qwen3_next", |_| ());
        let ends = qwen.embedding_parameters() + qwen.output_projection_parameters();
        assert_eq!((qwen.parameters(), qwen.parameters_active()), (79_674_391_296, 3_874_929_408));
        assert_eq!(billions(qwen.parameters_active() - ends, "3.25"), "3.25");
        // Nemotron-H-8B and -47B (arXiv 2504.03624, table 1), as transformers counts them.
        let small = of_class("nemotron_h", |_| ());
        assert_eq!((small.parameters(), small.parameters_active()), (8_100_852_736, 8_100_852_736));
        let large = of_class("nemotron_h", |document| {
            document.as_object_mut().unwrap().remove("layers_block_type");
            let pattern =
                "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M";
            document["hybrid_override_pattern"] = pattern.into();
            for (field, value) in [
                ("hidden_size", 8192),
                ("intermediate_size", 30_720),
                ("num_attention_heads", 64),
                ("mamba_num_heads", 256),
                ("ssm_state_size", 256),
            ] {
                document[field] = value.into();
            }
        });
        assert_eq!((large.layers, large.parameters()), (97, 46_288_230_144));
    }

    #[test]
    fn linear_attention_is_divided_by_heads_and_the_norm_of_each_head_is_not() {
        // Qwen3-Next: h 2048, 16 key heads and 32 value heads of 128, a convolution of 4 tokens.
        let qwen = of_class("qwen3_next", |_| ());
        let whole = qwen.linear_attention_parameters(1);
        assert_eq!((whole.input, whole.convolution), ([2048 * (4 * 2048 + 2 * 2048 + 64), 0], [4 * 8192, 0]));
        assert_eq!((whole.of_heads, whole.norm, whole.output), ([32, 32, 0], 128, [4096 * 2048, 0]));
        assert_eq!(4 * qwen.linear_attention_parameters(4).total() - whole.total(), 3 * 128);
        // A gate in addition to the queries: 16 heads of 256 twice, and 2 heads of keys and of values, of which four ranks have copies.
        assert_eq!(qwen.attention_parameters(1), 2048 * (3 * 4096 + 2 * 512) + 2 * 256);
        assert_eq!(4 * qwen.attention_parameters(4) - qwen.attention_parameters(1), 2048 * 2 * 512 + 3 * 2 * 256);
        // Nemotron-H-8B: 8 groups of 128, 128 heads of 64; the norm spans all heads.
        let nemotron = of_class("nemotron_h", |_| ());
        assert_eq!(nemotron.linear_attention_parameters(1).norm, 128 * 64);
        assert_eq!(
            8 * nemotron.linear_attention_parameters(8).total(),
            nemotron.linear_attention_parameters(1).total()
        );
        // The state of a request in one layer: 32 x 128 x 128 and 3 tokens of 8192; 128 x 64 x 128 and 3 tokens of 10240.
        let states = |model: &Model| [1, 2].map(|t| model.attention.linear.as_ref().unwrap().state_elements(t));
        assert_eq!(states(&qwen), [32 * 128 * 128 + 3 * 8192, 16 * 128 * 128 + 3 * 4096]);
        assert_eq!(states(&nemotron), [128 * 64 * 128 + 3 * 10_240, 64 * 64 * 128 + 3 * 5120]);
    }

    #[test]
    fn the_prediction_layer_of_a_hybrid_model_has_attention_however_few_layers_are_used() {
        let mut model = of_class("qwen3_next", |document| document["num_nextn_predict_layers"] = 1.into());
        let whole = model.prediction_layer_parameters();
        assert_eq!(whole, model.layer_parameters(47, 1) + 2 * 2048 * 2048 + 3 * 2048);
        model.keep_layers(1).unwrap();
        assert_eq!(model.prediction_layer_parameters(), whole);
    }

    #[test]
    fn the_prediction_layer_of_deepseek_v3_is_counted_separately() {
        // README_WEIGHTS of deepseek-ai/DeepSeek-V3 cuts it to 11.5 B of its own. One layer with experts, 2 h x h, three norms.
        let model = shipped("deepseek-v3");
        assert_eq!(model.prediction_layers, 1);
        assert_eq!(model.prediction_layer_parameters(), model.layer_parameters(60, 1) + 2 * 7168 * 7168 + 3 * 7168);
        assert_eq!(billions(model.prediction_layer_parameters(), "11.610"), "11.610");
        assert_eq!(shipped("mixtral-8x7b").prediction_layer_parameters(), 0);
    }

    #[test]
    fn ranks_have_their_share_and_a_copy_of_the_norms() {
        let model = shipped("llama-3-8b");
        let norms = (2 * 32 + 1) * 4096;
        assert_eq!(model.first_stage_parameters(1, 1), model.parameters());
        assert_eq!(2 * model.first_stage_parameters(2, 1) - model.parameters(), norms);
        // Half the layers and the word embedding, but not the output projection nor the last norm.
        assert_eq!(
            model.first_stage_parameters(1, 2),
            (model.parameters() - 2 * 128_256 * 4096 - 4096) / 2 + 128_256 * 4096
        );
        // 16 ranks share 8 key and value heads: each stores a whole one, as much as each of 8 ranks does.
        let copied = 2 * 4096 + 2 * 128 * 4096;
        assert_eq!(2 * model.layer_parameters(0, 16) - model.layer_parameters(0, 8), copied);
        // Eight ranks store 8 of the 64 sinks each, and the output's bias and the router completely.
        let oss = shipped("gpt-oss-20b");
        assert_eq!(8 * oss.attention_parameters(8) - oss.attention_parameters(1), 7 * 2880);
    }

    #[test]
    fn the_vocabulary_is_padded_as_megatron_pads_it() {
        let model = shipped("gpt2");
        assert_eq!((model.padded_vocabulary(1), model.padded_vocabulary(8)), (50_304, 51_200));
        assert_eq!(shipped("llama-3-8b").padded_vocabulary(8), 129_024);
    }

    #[test]
    fn every_shipped_model_is_in_the_list_with_its_source() {
        let list = include_str!("../../../../suites/models/README.md");
        for (name, _) in TOTALS {
            let row = list.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).expect(name);
            let total = shipped(name).parameters() as f64 * 1e-9;
            assert!(row.contains(&format!("| {total:.3} |")), "{row}: {total:.3}");
        }
    }

    #[test]
    fn the_defaults_of_every_class_of_transformers_have_as_many_parameters_as_it_counts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/transformers");
        let counts: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("parameters.json")).unwrap()).unwrap();
        let counts = counts["parameters"].as_object().unwrap();
        for (name, expected) in counts {
            let file = folder.join(name).join("config.json");
            let model = Model::read(&file, name, &std::fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(Some(model.parameters()), expected.as_u64(), "{name}");
        }
        let files: Vec<_> = counts.keys().map(|name| folder.join(name).join("config.json")).collect();
        let of_files: Vec<String> = files
            .iter()
            .map(|file| {
                Model::read(file, "test", &std::fs::read_to_string(file).unwrap()).unwrap().family.model_type.clone()
            })
            .collect();
        let families = Families::near(Path::new("config.json")).unwrap();
        let is_refused = |name: &str| families.find(name).unwrap().unwrap().refused.is_some();
        let mut missing = families.names();
        missing.retain(|name| !is_refused(name) && !of_files.iter().any(|known| known == name));
        // DeepSeek's inference files and Kimi-K2 have the layers of DeepSeek-V3; the last one has no class in transformers.
        assert_eq!(missing, ["config_671B", "kimi_k2", "nemotron-nas"]);
    }
}
