//! The shape of a language model, as described by its config.json.
//!
//! `find` locates the file, `read` reads its fields, `family` has their meaning by family, and `parameters` counts the
//! parameters.

mod check;
mod facts;
mod family;
mod fields;
pub(in crate::config) mod find;
mod layer;
mod layer_parts;
mod linear_attention;
mod mixture;
mod parameters;
#[cfg(test)]
mod preset_tests;
mod read;
mod read_experts;
mod read_hybrid;
#[cfg(test)]
mod read_tests;
mod read_windows;
mod unique_json;

pub use family::Family;
pub use layer::{Blocks, FeedForward, LayerParts, Mixer};
pub use linear_attention::{LinearAttention, LinearAttentionParameters, LinearRule};
pub use mixture::Mixture;

use commgauge_base::element::ElementType;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// The shape of a decoder-only transformer, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the preset or of the file's folder.
    pub name: String,
    /// What was read, and what was changed or assumed.
    pub source: ModelSource,
    /// Which architecture the fields describe.
    pub family: Family,
    /// Transformer layers in use; see `source.overrides` if the file has another number.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Inner width of a dense feed-forward layer.
    pub feed_forward: u64,
    /// How tokens look at each other.
    pub attention: Attention,
    /// What stands before and behind the layers.
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

/// What stands before and behind the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// Entries of the vocabulary, not padded.
    pub vocabulary: u64,
    /// Longest sequence that the file allows.
    pub maximum_positions: u64,
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

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryKeyNorm {
    /// There are none.
    None,
    /// As wide as a head, the same for all heads.
    EachHead,
    /// As wide as all heads together.
    AllHeads,
}

/// A field that the file leaves out.
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
