//! The communications of the style: context.

use crate::error::Result;
use crate::workload::Op;
use crate::workload::step::TrainingStep;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(_step: &TrainingStep, _stage: u32) -> Result<Vec<Op>> {
    Ok(Vec::new())
}
