//! The two grids of a layout, in which the ranks of dense layers and of experts have their places.

use super::{Axis, Degrees};

/// Axis order of Megatron-LM.
pub const DEFAULT_ORDER: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];

/// Over which of the two grids groups are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// `tp x cp x dp x pp`.
    Dense,
    /// `etp x ep x edp x pp`, where the place of tp in the order is that of etp, and the place of dp that of edp.
    Experts,
}

impl Grid {
    /// The degree of one of the axes of an order in this grid; 1 if it has no such axis.
    pub(super) fn degree(self, d: &Degrees, axis: Axis) -> u32 {
        match (axis, self) {
            (Axis::Tp, Grid::Dense) => d.tp,
            (Axis::Tp, Grid::Experts) => d.etp,
            (Axis::Cp, Grid::Dense) => d.cp,
            (Axis::Ep, Grid::Experts) => d.ep,
            (Axis::Dp, Grid::Dense) => d.dp,
            (Axis::Dp, Grid::Experts) => d.edp().unwrap_or(1),
            (Axis::Pp, _) => d.pp,
            _ => 1,
        }
    }

    /// Distance between positions that are neighbours along an axis: the product of all degrees before it.
    pub(super) fn stride(self, degrees: &Degrees, order: &[Axis], axis: Axis) -> u32 {
        order.iter().take_while(|other| **other != axis).map(|axis| self.degree(degrees, *axis)).product()
    }
}
