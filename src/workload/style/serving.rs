//! The communications of a model that serves requests.

use crate::error::Result;
use crate::workload::Op;
use crate::workload::step::ServingStep;

/// The calls of one rank of a stage in a forward pass.
pub(super) fn ops(_step: &ServingStep, _stage: u32) -> Result<Vec<Op>> {
    Ok(Vec::new())
}
