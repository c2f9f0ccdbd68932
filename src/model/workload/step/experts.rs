//! Whether experts fit the layout and the choices of their style; the other rules are in `check`.

use super::TrainingStep;
use super::divisibility::must_divide;
use crate::config::step::{Dispatcher, Routing};
use crate::config::{Mixture, Model, Training};
use crate::layout::Degrees;
use commgauge_base::error::Result;
use commgauge_base::geometry::Routed;

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
            "{}: each token goes to {k} experts (num_experts_per_tok), of which there are {experts} (num_experts); accepted: 1 to {experts}",
            model.name
        ));
    }
    Ok(())
}

/// Checks of the choices of expert parallelism.
pub(super) fn choices(step: &TrainingStep) -> Result<()> {
    let Some(mixture) = &step.model.mixture else { return Ok(()) };
    let choices = &step.training.expert;
    let place = &choices.place;
    if choices.dispatcher == Dispatcher::AllGather {
        let useless = if choices.capacity_factor.is_some() {
            Some("capacity_factor")
        } else if choices.routing != Routing::Uniform {
            Some("routing")
        } else if choices.dispatch_element_type != step.activation() {
            Some("dispatch_element_type")
        } else {
            None
        };
        return match useless {
            Some(key) => Err(place.wrong(format!(
                "{key} changes nothing with dispatcher all_gather, where every rank gathers all tokens as they are; leave it out, or \
                 choose dispatcher all_to_all"
            ))),
            None => Ok(()),
        };
    }
    let routed = routed(step.training, mixture, 1, false);
    routed.check(step.layout.degrees.ep).map_err(|problem| place.wrong(problem))
}

/// The exchange of a training's tokens, of this many elements each, to the experts or back.
pub fn routed(training: &Training, mixture: &Mixture, elements_per_token: u64, back: bool) -> Routed {
    let choices = &training.expert;
    Routed {
        experts: mixture.experts,
        experts_per_token: mixture.experts_per_token,
        elements_per_token,
        routing: choices.routing,
        capacity_factor: choices.capacity_factor,
        seed: choices.routing_seed,
        back,
    }
}
