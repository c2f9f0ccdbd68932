//! The curves of a fit, ready to answer many queries.

use crate::cost::Labels;
use crate::cost::contention::Contention;
use crate::cost::curve::Curve;
use crate::cost::document::FamilyFit;
use crate::cost::margin::Margin;

pub(super) const NOT_A_CALL: &str = "a call needs at least 2 ranks and 1 byte";

/// A fit, ready to answer many queries.
#[derive(Clone, Debug)]
pub struct Predictor<'a> {
    pub(super) families: Vec<Family<'a>>,
    pub(super) contention: &'a [Contention],
    pub(super) labels: Labels,
}

#[derive(Clone, Debug)]
pub(super) struct Family<'a> {
    pub(super) fit: &'a FamilyFit,
    pub(super) ranks: Vec<u32>,
    pub(super) curves: Vec<Curve>,
    pub(super) margins: &'a [Margin],
}
