//! How a call on the activations at an end of the model is made, and how often it comes.

use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;

/// A call on the activations of a micro-batch.
pub(super) fn activations(
    step: &TrainingStep,
    collective: Collective,
    pass: Pass,
    end: End,
    overlap: Overlap,
    what: &str,
    source: &str,
) -> Op {
    let (bytes, formula) = step.activation_bytes();
    Op {
        when: When::MicroBatch { pass, end, calls: 1, one_in: one_in(step) },
        overlap,
        why: format!("{formula}: {what}{} ({source})", counted(step)),
        ..Op::new(Style::Vocabulary, Axis::Tp, collective, step.activation(), bytes)
    }
}

/// With mirrored stages every second micro-batch enters at the other end.
pub(super) fn one_in(step: &TrainingStep) -> u64 {
    if step.stages.mirrored() { 2 } else { 1 }
}

pub(super) fn counted(step: &TrainingStep) -> &'static str {
    if step.stages.mirrored() { "; every second micro-batch goes through the other end" } else { "" }
}
