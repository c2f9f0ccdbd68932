//! Pipeline parallelism: what crosses the boundary between neighbouring stages.
//!
//! All boundaries of a group are crossed at once, as in the steady state of 1F1B. Forward and backward messages are equally
//! large and are one op. The reduction of tied embeddings between first and last stage is not generated.

use super::op::{Op, Style};
use super::training_step::TrainingStep;
use crate::collective::Collective;
use crate::geometry::Splits;
use crate::layout::Axis;

/// The calls of the groups of pp in one optimizer step.
pub(super) fn ops(step: &TrainingStep) -> Vec<Op> {
    let (bytes_total, formula) = step.activation_bytes();
    let m = step.micro_batches;
    let count = 2 * m;
    let why = format!(
        "{}: {formula}; m forward + m backward = {m} + {m} = {count} crossings of every boundary, GPipe and 1F1B alike \
         (arXiv 2104.04473 section 2.2; Megatron-LM core/pipeline_parallel/schedules.py, get_tensor_shapes)",
        step.layout
    );
    vec![Op {
        style: Style::Pipeline,
        axis: Axis::Pp,
        collective: Collective::SendRecvChain,
        element: step.activation_element_type(),
        reduce_op: None,
        root: 0,
        bytes_total,
        splits: Splits::Equal,
        count_per_step: Some(count),
        why,
    }]
}
