//! The matrix products of a model's linear layers, as one rank of a tensor-parallel group computes them for one micro-batch.
//!
//! Symbols: b samples of s tokens, h hidden width, f feed-forward width, a query heads and k key-value heads of width d, V padded
//! vocabulary, t tensor-parallel degree. Column-parallel layers are cut by their output, row-parallel ones by their input (arXiv 1909.08053
//! section 3). The backward pass has two products with as many operations each (arXiv 2104.04473, appendix).

use crate::config::{ComputeTable, LatentAttention, Mixer, Model};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is multiplied, m x k by k x n, and where a model does so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProductFacts")]
pub struct ProductShape {
    /// Rows of the result: tokens.
    pub m: u64,
    /// Columns of the result: the rank's part of the layer's output.
    pub n: u64,
    /// Terms of each sum: the rank's part of the layer's input.
    pub k: u64,
    pub element_type: ElementType,
    /// Linear layers that compute it, such as `llama-3-8b qkv, tp 2, micro-batch 1`.
    pub uses: Vec<String>,
}

impl ProductShape {
    /// Its name among the rows of a verdict, such as `product/bfloat16/8192x4096x1024`: m, n and k.
    pub fn row_name(&self) -> String {
        format!("product/{}/{}x{}x{}", self.element_type, self.m, self.n, self.k)
    }

    /// Floating-point operations: a multiplication and an addition for each term of each sum.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }
}

/// The products of all tables, each shape once.
pub(super) fn of(tables: &[ComputeTable]) -> Result<Vec<ProductShape>> {
    let mut shapes: Vec<ProductShape> = Vec::new();
    for table in tables {
        if let Some(problem) = table.model.steps_refused() {
            return Err(Error::usage(problem));
        }
        for (element, tp, micro_batch) in choices(table) {
            let tokens = micro_batch.checked_mul(table.sequence).ok_or_else(|| too_large(&table.model))?;
            for (layer, m, n, k) in linears(&table.model, tp, tokens) {
                // Callers that compute the size of the matrices multiply these.
                let elements = [(m, n), (n, k), (m, k)].map(|(a, b)| a.checked_mul(b)?.checked_mul(8));
                if elements.contains(&None) {
                    return Err(too_large(&table.model));
                }
                let used = format!("{} {layer}, tp {tp}, micro-batch {micro_batch}", table.model.name);
                let same =
                    |shape: &&mut ProductShape| (shape.m, shape.n, shape.k, shape.element_type) == (m, n, k, element);
                match shapes.iter_mut().find(same) {
                    Some(shape) => shape.uses.push(used),
                    None => shapes.push(ProductShape { m, n, k, element_type: element, uses: vec![used] }),
                }
            }
        }
    }
    Ok(shapes)
}

fn choices(table: &ComputeTable) -> impl Iterator<Item = (ElementType, u64, u64)> {
    let batches = |tp: u64| table.micro_batch.iter().map(move |batch| (tp, *batch));
    let degrees = move || table.tp.iter().flat_map(move |tp| batches(*tp));
    table.element_types.iter().flat_map(move |element| degrees().map(|(tp, batch)| (*element, tp, batch)))
}

fn too_large(model: &Model) -> Error {
    Error::usage(format!("{}: the matrices of a micro-batch do not fit 64 bits; use a smaller micro-batch", model.name))
}

/// Layer, m, n and k.
fn linears(model: &Model, t: u64, tokens: u64) -> Vec<(&'static str, u64, u64, u64)> {
    let h = model.hidden;
    let mut linears = Vec::new();
    // Layers of a kind are equal; the first of each kind represents them.
    let has = |mixer| (0..model.layers).any(|layer| model.parts_of(layer).mixer == Some(mixer));
    if has(Mixer::Attention) {
        linears.extend(attention_linears(model, t, tokens));
    }
    if let Some(linear) = model.attention.linear.as_ref().filter(|_| has(Mixer::Linear)) {
        linears.push(("linear attention input", tokens, linear.input_width(t), h));
        linears.push(("linear attention output", tokens, h, linear.value_width(t)));
    }
    let gate_and_up = if model.family.gated { 2 } else { 1 };
    if model.has_dense_layers() {
        linears.push(("mlp up", tokens, gate_and_up * model.feed_forward / t, h));
        linears.push(("mlp down", tokens, h, model.feed_forward / t));
    }
    if let Some(mixture) = &model.mixture {
        // With even routing over all experts, as on ranks with one expert each.
        let each = (tokens * mixture.experts_per_token).div_ceil(mixture.experts);
        let width = (mixture.expert_feed_forward / t).max(1);
        linears.push(("expert up", each, gate_and_up * width, h));
        linears.push(("expert down", each, h, width));
    }
    linears.push(("vocabulary", tokens, model.padded_vocabulary(t) / t, h));
    linears
}

/// The linear layers of attention on each of `t` ranks that divide it: layer, m, n and k of its product for this many tokens.
pub fn attention_linears(model: &Model, t: u64, tokens: u64) -> Vec<(&'static str, u64, u64, u64)> {
    let (h, heads) = (model.hidden, model.attention.heads / t);
    match &model.attention.latent {
        None => {
            // A rank has at least one head of keys and values: if there are fewer heads than ranks, several ranks have
            // copies.
            let keys_and_values = 2 * model.kv_heads_per_rank(t) * model.attention.head_dimension;
            vec![
                ("qkv", tokens, model.projected_queries(t) + keys_and_values, h),
                ("attention output", tokens, h, heads * model.attention.head_dimension),
            ]
        }
        Some(latent) => latent_linears(latent, h, heads, model.attention.head_dimension, tokens),
    }
}

/// DeepSeek-V2, arXiv 2405.04434 section 2.1: compressions are not divided, decompressions are.
fn latent_linears(
    latent: &LatentAttention,
    h: u64,
    heads: u64,
    head: u64,
    tokens: u64,
) -> Vec<(&'static str, u64, u64, u64)> {
    let LatentAttention { query_rank, kv_rank, plain_dimension, rotary_dimension, value_dimension } = latent;
    let mut linears = match query_rank {
        Some(rank) => vec![("query down", tokens, *rank, h), ("query up", tokens, heads * head, *rank)],
        None => vec![("query", tokens, heads * head, h)],
    };
    linears.extend([
        ("key-value down", tokens, kv_rank + rotary_dimension, h),
        ("key-value up", tokens, heads * (plain_dimension + value_dimension), *kv_rank),
        ("attention output", tokens, h, heads * value_dimension),
    ]);
    linears
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    fn products(text: &str) -> Vec<ProductShape> {
        of(&Suite::parse(Path::new("suites/test.toml"), text).unwrap().compute).unwrap()
    }

    #[test]
    fn llama_3_8b_under_tensor_parallelism_has_the_products_of_its_linear_layers() {
        // config.json of Meta-Llama-3-8B: h 4096, f 14336, 32 heads and 8 key-value heads of 128, vocabulary 128256.
        let found = products("[compute]\nmodel = { preset = 'llama-3-8b' }\nsequence = 2048\ntp = 2\n");
        let shapes: Vec<_> = found.iter().map(|shape| (shape.uses[0].as_str(), [shape.m, shape.n, shape.k])).collect();
        assert_eq!(
            shapes,
            [
                ("llama-3-8b qkv, tp 2, micro-batch 1", [2048, 2048 + 1024, 4096]),
                ("llama-3-8b attention output, tp 2, micro-batch 1", [2048, 4096, 2048]),
                ("llama-3-8b mlp up, tp 2, micro-batch 1", [2048, 14336, 4096]),
                ("llama-3-8b mlp down, tp 2, micro-batch 1", [2048, 4096, 7168]),
                ("llama-3-8b vocabulary, tp 2, micro-batch 1", [2048, 64128, 4096]),
            ]
        );
    }

    /// The defaults of transformers' classes.
    const TRANSFORMERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/transformers");

    #[test]
    fn hybrid_models_have_the_projections_of_both_kinds_of_layers() {
        let text = |tp: u32| {
            let config = format!("{TRANSFORMERS}/qwen3_next/config.json");
            format!("[compute]\nmodel = {{ config = '{config}' }}\nsequence = 1024\ntp = {tp}\n")
        };
        let found = products(&text(2));
        let shape = |layer: &str| {
            let product = found.iter().find(|shape| shape.uses.iter().any(|used| used.contains(layer))).expect(layer);
            [product.m, product.n, product.k]
        };
        // Queries and their gates, 8 heads of 256 each, one head of keys and one of values; 8 key heads and 16 value heads of 128.
        assert_eq!(shape(" qkv,"), [1024, 2 * 2048 + 2 * 256, 2048]);
        assert_eq!(shape(" linear attention input,"), [1024, 2 * 1024 + 2 * 2048 + 2 * 16, 2048]);
        assert_eq!(shape(" linear attention output,"), [1024, 2048, 2048]);
        let config = std::fs::read_to_string(format!("{TRANSFORMERS}/qwen3_next/config.json")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("config.json"),
            config.replace("\"linear_num_key_heads\": 16", "\"linear_num_key_heads\": 4"),
        )
        .unwrap();
        let text = "[compute]\nmodel = { config = 'config.json' }\nsequence = 1024\ntp = 8\n";
        let error = Suite::parse(&folder.path().join("test.toml"), text).unwrap_err();
        assert!(error.to_string().contains("the 4 key heads and 32 value heads of linear attention"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_shape_that_several_layers_have_is_measured_once() {
        let text = "[[compute]]\nmodel = { preset = 'llama-3-8b' }\nsequence = 1024\nmicro_batch = [1, 2]\n\
                    [[compute]]\nmodel = { preset = 'llama-3-8b' }\nsequence = 2048\n";
        let found = products(text);
        assert_eq!(found.len(), 10, "1024 and 2048 tokens of five layers each");
        assert!(found.iter().filter(|shape| shape.m == 2048).all(|shape| shape.uses.len() == 2), "{found:?}");
    }

    #[test]
    fn experts_get_the_tokens_of_an_even_routing() {
        let found = products("[compute]\nmodel = { preset = 'mixtral-8x7b' }\nsequence = 1024\n");
        let up = found.iter().find(|shape| shape.uses[0].contains("expert up")).unwrap();
        assert_eq!([up.m, up.n, up.k], [1024 * 2 / 8, 2 * 14336, 4096]);
        assert!(found.iter().all(|shape| !shape.uses[0].contains("mlp")), "every layer has experts");
    }
}
