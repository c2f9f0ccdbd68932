//! What a rank computes for the linear attention of a layer: its projections, and chunk by chunk the products of its rule.
//!
//! Within a chunk of C tokens all are compared with all; between chunks a state of d_k x d_v is passed on. Symbols as in
//! `config::LinearAttention`. The delta rule also solves C equations for each chunk and head, C^3/3 operations, which are left out.

use super::product::Product;
use commgauge_model::config::{LinearAttention, LinearRule};
use commgauge_model::workload::step::TrainingStep;

/// Forward pass of a micro-batch through linear attention.
pub(super) struct LinearWork {
    pub products: Vec<Product>,
    /// Bytes that kernels without products read and write.
    pub moved_bytes: f64,
}

/// The forward pass of a micro-batch.
pub(super) fn of(step: &TrainingStep, linear: &LinearAttention) -> LinearWork {
    let (h, t, n) = (step.model.hidden, u64::from(step.layout.degrees.tp), step.tokens_per_micro_batch());
    let chunk = linear.chunk_tokens.min(step.training.sequence);
    let chunks = (step.training.micro_batch * step.training.sequence.div_ceil(chunk)) as f64;
    let mut products =
        vec![Product::of_block(n, linear.input_width(t), h), Product::of_block(n, h, linear.value_width(t))];
    products.extend(of_rule(linear, t, chunk, chunks));
    let (element, tokens) = (step.activation().size() as f64, n as f64);
    let values = linear.value_width(t) as f64;
    // The convolution reads and writes; each chunk writes the state that the next one reads; the norm behind reads its input and the gate,
    // and writes.
    let convolution = 2.0 * tokens * linear.convolution_width(t) as f64;
    let states = 2.0 * chunks * values * linear.key_dimension as f64;
    LinearWork { products, moved_bytes: element * (convolution + states + 3.0 * tokens * values) }
}

/// The products of all chunks of all heads.
fn of_rule(linear: &LinearAttention, t: u64, chunk: u64, chunks: f64) -> Vec<Product> {
    let LinearAttention { key_heads, key_dimension: d_k, value_heads, value_dimension: d_v, .. } = *linear;
    let (of_keys, of_values) = (chunks * (key_heads / t) as f64, chunks * (value_heads / t) as f64);
    let product = |m, n, k, count| Product { count, has_weights: false, ..Product::linear(m, n, k) };
    match linear.rule {
        // arXiv 2405.21060 section 6: queries with keys, which the heads of a group share; those with values; the state of a chunk; what
        // queries find in the state before it.
        LinearRule::StateSpace => vec![
            product(chunk, chunk, d_k, of_keys),
            product(chunk, d_v, chunk, of_values),
            product(d_k, d_v, chunk, of_values),
            product(chunk, d_v, d_k, of_values),
        ],
        // arXiv 2412.06464 section 3.3 and 2406.06484 section 3.2: keys with keys, and queries with keys; the solved equations with keys, and
        // with values; what keys, and queries, find in the state before the chunk; queries with keys, with the new values; the state.
        LinearRule::GatedDelta => vec![
            product(chunk, chunk, d_k, 2.0 * of_values),
            product(chunk, d_k, chunk, of_values),
            product(chunk, d_v, chunk, 2.0 * of_values),
            product(chunk, d_v, d_k, 2.0 * of_values),
            product(d_k, d_v, chunk, of_values),
        ],
    }
}
