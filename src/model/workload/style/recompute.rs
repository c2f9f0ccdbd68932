//! What recomputation of activations means for the calls of a style.

use crate::config::step::Recompute;
use crate::workload::step::TrainingStep;

/// Full recomputation repeats what a layer sends on the way forward. Selective recomputation repeats the core attention,
/// which sends nothing.
pub(super) fn repeats_forward(step: &TrainingStep) -> bool {
    step.training.tensor.recompute == Recompute::Full
}
