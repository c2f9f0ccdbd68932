//! Checks that need several fields of a model: uneven divisions, and counts that would not fit 64 bits.

use super::{LinearAttention, Model};

/// Most layers of a model; checked while reading, before anything is listed by layer.
pub(super) const MOST_LAYERS: u32 = 100_000;
/// No model may have more parameters than this: the bytes of a whole training state, 18 for each parameter, summed over
/// a hundred replicas then still fit 64 bits.
const MOST_PARAMETERS: f64 = 1e15;
/// No state of linear attention in a layer may have more numbers than this.
const MOST_STATE: f64 = 1e15;

/// The first field that cannot be, and why.
pub(super) fn check(model: &Model) -> Result<(), (&'static str, String)> {
    let roughly = rough_parameters(model);
    if roughly > MOST_PARAMETERS {
        let problem = format!(
            "come to about {roughly:.0e} parameters; accepted: up to {MOST_PARAMETERS:.0e}, so that every count of \
             parameters and bytes fits 64 bits"
        );
        return Err(("the sizes", problem));
    }
    if !model.attention.heads.is_multiple_of(model.attention.kv_heads) {
        let problem = format!(
            "found {}, which does not divide the {} query heads",
            model.attention.kv_heads, model.attention.heads
        );
        return Err(("num_key_value_heads", problem));
    }
    if let Some(linear) = &model.attention.linear {
        linear_attention(linear)?;
    }
    let Some(mixture) = &model.mixture else { return Ok(()) };
    if mixture.experts_per_token > mixture.experts {
        let problem = format!("found {}; there are {} experts", mixture.experts_per_token, mixture.experts);
        return Err(("num_experts_per_tok", problem));
    }
    match mixture.router_groups {
        Some((groups, _)) if !mixture.experts.is_multiple_of(groups) => {
            Err(("n_group", format!("found {groups}, which does not divide the {} experts", mixture.experts)))
        }
        Some((groups, chosen)) if chosen > groups => {
            Err(("topk_group", format!("found {chosen}; there are {groups} groups of experts")))
        }
        _ => Ok(()),
    }
}

/// Heads of values share those of keys evenly, and a state fits as many bits as all else.
fn linear_attention(linear: &LinearAttention) -> Result<(), (&'static str, String)> {
    let (keys, values) = (linear.key_heads, linear.value_heads);
    if !values.is_multiple_of(keys) {
        let problem = format!("found {keys}, which does not divide the {values} heads of values");
        return Err((linear.rule.key_heads_field(), problem));
    }
    let numbers = values as f64 * linear.key_dimension as f64 * linear.value_dimension as f64;
    if numbers > MOST_STATE {
        let problem = format!("come to a state of about {numbers:.0e} numbers; accepted: up to {MOST_STATE:.0e}");
        return Err(("the sizes of linear attention", problem));
    }
    Ok(())
}

/// An upper bound of the number of parameters that cannot overflow.
fn rough_parameters(model: &Model) -> f64 {
    let (hidden, heads) = (model.hidden as f64, model.attention.heads as f64);
    let ranks = model.attention.latent.as_ref().map_or(0.0, |latent| {
        latent.query_rank.unwrap_or(0) as f64
            + latent.kv_rank as f64
            + latent.plain_dimension as f64
            + latent.rotary_dimension as f64
            + latent.value_dimension as f64
    });
    let attention = 5.0 * (heads * (model.attention.head_dimension as f64 + ranks) + ranks) * (hidden + ranks + 2.0);
    let experts = model.mixture.as_ref().map_or(0.0, |mixture| {
        let widths = mixture.experts as f64 * (mixture.expert_feed_forward as f64 + 4.0);
        3.0 * (hidden + 2.0) * (widths + mixture.shared_feed_forward as f64 + 4.0)
    });
    let linear = model.attention.linear.as_ref().map_or(0.0, |linear| {
        let values = linear.value_heads as f64 * (linear.value_dimension as f64 + 2.0);
        let widths = linear.key_heads as f64 * linear.key_dimension as f64 + values;
        3.0 * (widths + 1.0) * (hidden + linear.convolution_tokens as f64 + 2.0)
    });
    let layer = attention + linear + experts + 3.0 * (hidden + 2.0) * (model.feed_forward as f64 + 4.0);
    let layers = f64::from(model.layers) + f64::from(model.prediction_layers);
    layers * (layer + 2.0 * hidden * hidden)
        + 2.0 * (hidden + 1.0) * (model.embedding.vocabulary as f64 + model.embedding.maximum_positions as f64)
}
