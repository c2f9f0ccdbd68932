//! The calls of one layer in one pass, in order, and how each is hidden.

use crate::workload::Op;
use crate::workload::when::{LayerKind, Overlap, Pass, When};

/// The calls of a layer in a pass: indices of ops.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerCalls {
    /// Fetched while the layer before is at work.
    pub ahead: Vec<usize>,
    /// Within the layer, with stretches of computing between them; true where the next stretch hides it.
    pub within: Vec<(usize, bool)>,
    /// Started when the layer is done, waited for when the next one is.
    pub behind: Vec<usize>,
}

impl LayerCalls {
    /// The calls of `pass` in a layer. If gradients of weights are computed separately, they cannot hide a call of the
    /// pass for inputs.
    pub(super) fn of(ops: &[Op], pass: Pass, has_experts: bool, weights_apart: bool) -> LayerCalls {
        let mut calls = LayerCalls::default();
        // Calls of one op are evenly spread over the layer: call i of n at (2i + 1) / 2n of it, ops in the order of the list.
        let mut within: Vec<(u64, u64, usize, bool)> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let When::Layer { pass: when, kind, calls_per_layer, .. } = op.when else { continue };
            let here = match kind {
                LayerKind::Any => true,
                LayerKind::Dense => !has_experts,
                LayerKind::Experts => has_experts,
            };
            if when != pass || !here {
                continue;
            }
            let repeated = std::iter::repeat_n(index, calls_per_layer as usize);
            match op.overlap {
                Overlap::Exposed => within.extend(evenly(index, calls_per_layer, false)),
                Overlap::WeightGradient => within.extend(evenly(index, calls_per_layer, !weights_apart)),
                Overlap::InputGradient | Overlap::Attention => within.extend(evenly(index, calls_per_layer, true)),
                Overlap::Prefetch | Overlap::FirstForward => calls.ahead.extend(repeated),
                Overlap::Backward | Overlap::LastBackward | Overlap::SteadyState => calls.behind.extend(repeated),
            }
        }
        within.sort_by(|a, b| (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1))));
        calls.within = within.into_iter().map(|(_, _, index, hidden)| (index, hidden)).collect();
        calls
    }
}

/// Numerator, denominator, op, hidden.
fn evenly(index: usize, calls: u64, hidden: bool) -> impl Iterator<Item = (u64, u64, usize, bool)> {
    (0..calls).map(move |call| (2 * call + 1, 2 * calls, index, hidden))
}
