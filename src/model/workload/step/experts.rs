//! Whether experts fit the layout and the choices of their style; the other rules are in `check`.

use super::divisibility::must_divide;
use super::{TrainingStep, token_shares};
use crate::config::step::{Dispatcher, Routing};
use crate::config::{Mixture, Model, Training};
use crate::layout::{Axis, Degrees, Layout};
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
    if let Some(inner) = choices.inner.filter(|_| !choices.dispatcher.goes_by_node()) {
        let dispatcher = choices.dispatcher;
        return Err(place.wrong(format!(
            "expert_inner = {inner} changes nothing with dispatcher {dispatcher}; leave it out, or choose dispatcher deepep or hybrid_ep"
        )));
    }
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
    if choices.dispatcher.goes_by_node() {
        return by_node(step, mixture).map_err(|problem| place.wrong(problem));
    }
    let routed = routed(step.training, mixture, 1);
    routed.check(step.layout.degrees.ep).map_err(|problem| place.wrong(problem))
}

/// Checks of exchanges that send each token once to a node: their bytes are known for choices that are all alike.
fn by_node(step: &TrainingStep, mixture: &Mixture) -> std::result::Result<(), String> {
    let choices = &step.training.expert;
    let dispatcher = choices.dispatcher;
    if choices.routing != Routing::Uniform {
        return Err(format!(
            "routing {} with dispatcher {dispatcher}, whose bytes follow from which experts share a node; accepted: uniform",
            choices.routing
        ));
    }
    if choices.capacity_factor.is_some() {
        return Err(format!(
            "capacity_factor changes nothing with dispatcher {dispatcher} and routing uniform; leave it out"
        ));
    }
    if step.layout.degrees.etp > 1 {
        return Err(format!(
            "etp = {} with dispatcher {dispatcher}: each rank has whole experts here; accepted: etp = 1",
            step.layout.degrees.etp
        ));
    }
    nodes_of_experts(&step.layout, mixture)
}

/// Checks that the bytes of tokens by way of nodes are known.
pub(super) fn nodes_of_experts(layout: &Layout, mixture: &Mixture) -> std::result::Result<(), String> {
    let (nodes, ranks) = (layout.group_size(Axis::EpOuter), layout.group_size(Axis::EpInner));
    match token_shares::trouble(mixture, u64::from(nodes), u64::from(ranks)) {
        None => Ok(()),
        Some(problem) => Err(format!("{nodes} nodes of {ranks} ranks (expert_inner): {problem}")),
    }
}

/// The exchange of a training's tokens, of this many elements each, to the experts.
pub fn routed(training: &Training, mixture: &Mixture, elements_per_token: u64) -> Routed {
    let choices = &training.expert;
    Routed {
        experts: mixture.experts,
        experts_per_token: mixture.experts_per_token,
        elements_per_token,
        routing: choices.routing,
        capacity_factor: choices.capacity_factor,
        seed: choices.routing_seed,
        back: false,
    }
}
