//! A call of a serving step, and when those at the ends of the model are made.

use crate::layout::Axis;
use crate::workload::step::ServingStep;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;

/// A call with the activations' type, exposed.
pub(super) fn op(step: &ServingStep, axis: Axis, collective: Collective, bytes: u64, when: When, why: String) -> Op {
    Op {
        when,
        overlap: Overlap::Exposed,
        why,
        ..Op::new(Style::Serving, axis, collective, step.serving.activation_element_type, bytes)
    }
}

/// Once in the forward pass of a micro-batch, at an end of the model.
pub(super) fn at_end(end: End) -> When {
    times_at_end(1, end)
}

/// So often in the forward pass of a micro-batch, at an end of the model.
pub(super) fn times_at_end(calls: u64, end: End) -> When {
    When::MicroBatch { pass: Pass::Forward, end, calls, one_in: 1 }
}
