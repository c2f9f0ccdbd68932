//! The calls of one layer in one pass, in order, and how each is hidden.

use crate::config::LayerParts;
use crate::workload::Op;
use crate::workload::when::{Exposure, Overlap, Pass, When};

/// The calls of a layer in a pass: indices of ops.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerCalls {
    /// Fetched while the layer before is at work.
    pub ahead: Vec<usize>,
    /// Within the layer, with stretches of computing between them, of which the next one may hide the call.
    pub within: Vec<CallWithin>,
    /// Started when the layer is done, waited for when the next one is.
    pub behind: Vec<usize>,
}

/// A call between two stretches of a layer's computing.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallWithin {
    /// Index of its op.
    pub op: usize,
    pub exposure: Exposure,
}

/// A call within a layer, and which part of the layer's computing comes before it: `numerator` of `denominator`.
#[derive(Clone, Copy)]
struct Placed {
    numerator: u64,
    denominator: u64,
    call: CallWithin,
}

impl LayerCalls {
    /// The calls of `pass` in a layer of these parts. `beside_weights`: whether gradients of weights hide a call of the pass for inputs,
    /// which they cannot where they are computed separately.
    pub(super) fn of(ops: &[Op], pass: Pass, layer: LayerParts, beside_weights: Exposure) -> LayerCalls {
        let mut calls = LayerCalls::default();
        // Calls of one op are evenly spread over the layer: call i of n at (2i + 1) / 2n of it, ops in the order of the list.
        let mut within: Vec<Placed> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let When::Layer { pass: when, kind, calls_per_layer, .. } = op.when else { continue };
            if when != pass || !kind.has(layer) {
                continue;
            }
            let repeated = std::iter::repeat_n(index, calls_per_layer as usize);
            match op.overlap {
                Overlap::Exposed => within.extend(evenly(index, calls_per_layer, Exposure::Exposed)),
                Overlap::WeightGradient => within.extend(evenly(index, calls_per_layer, beside_weights)),
                Overlap::InputGradient | Overlap::Attention | Overlap::Pieces => {
                    within.extend(evenly(index, calls_per_layer, Exposure::Hidden));
                }
                Overlap::Prefetch | Overlap::FirstForward => calls.ahead.extend(repeated),
                Overlap::Backward | Overlap::LastBackward | Overlap::SteadyState | Overlap::NextLayers => {
                    calls.behind.extend(repeated);
                }
            }
        }
        let across = |one: &Placed, other: &Placed| u128::from(one.numerator) * u128::from(other.denominator);
        within.sort_by(|one, other| across(one, other).cmp(&across(other, one)));
        calls.within = within.into_iter().map(|placed| placed.call).collect();
        calls
    }
}

/// The calls of an op, spread over a layer.
fn evenly(op: usize, calls: u64, exposure: Exposure) -> impl Iterator<Item = Placed> {
    let call = CallWithin { op, exposure };
    (0..calls).map(move |number| Placed { numerator: 2 * number + 1, denominator: 2 * calls, call })
}
