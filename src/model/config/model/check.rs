//! Checks that need several fields of a model: uneven divisions, and counts that would not fit 64 bits.

use super::Model;

/// Most layers of a model; checked while reading, before anything is listed by layer.
pub(super) const MOST_LAYERS: u32 = 100_000;
/// No model may have more parameters than this: the bytes of a whole training state, 18 for each parameter, summed over
/// a hundred replicas then still fit 64 bits.
const MOST_PARAMETERS: f64 = 1e15;

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
    if !model.heads.is_multiple_of(model.kv_heads) {
        let problem = format!("found {}, which does not divide the {} query heads", model.kv_heads, model.heads);
        return Err(("num_key_value_heads", problem));
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

/// An upper bound of the number of parameters that cannot overflow.
fn rough_parameters(model: &Model) -> f64 {
    let (hidden, heads) = (model.hidden as f64, model.heads as f64);
    let ranks = model.latent_attention.as_ref().map_or(0.0, |latent| {
        latent.query_rank.unwrap_or(0) as f64
            + latent.kv_rank as f64
            + latent.plain_dimension as f64
            + latent.rotary_dimension as f64
            + latent.value_dimension as f64
    });
    let attention = 4.0 * (heads * (model.head_dimension as f64 + ranks) + ranks) * (hidden + ranks + 2.0);
    let experts = model.mixture.as_ref().map_or(0.0, |mixture| {
        let widths = mixture.experts as f64 * (mixture.expert_feed_forward as f64 + 4.0);
        3.0 * (hidden + 2.0) * (widths + mixture.shared_feed_forward as f64 + 4.0)
    });
    let layer = attention + experts + 3.0 * (hidden + 2.0) * (model.feed_forward as f64 + 4.0);
    let layers = f64::from(model.layers) + f64::from(model.prediction_layers);
    layers * (layer + 2.0 * hidden * hidden)
        + 2.0 * (hidden + 1.0) * (model.vocabulary as f64 + model.maximum_positions as f64)
}
