//! The effect of activation recomputation on the calls of a style.

use crate::config::step::Recompute;
use crate::workload::step::TrainingStep;

/// Full recomputation repeats a layer's calls of the forward pass. Selective recomputation repeats the core attention, which sends nothing.
pub(super) fn repeats_forward(step: &TrainingStep) -> bool {
    step.training.tensor.recompute == Recompute::Full
}
