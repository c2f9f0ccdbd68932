//! Output projections that divide the vocabulary and gather the logits, so that every rank has the whole loss.
//!
//! Hugging Face transformers `_tp_plan`: `lm_head` is `colwise_gather_output`.

use super::calls::{activations, one_in};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::when::{End, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// The calls on the stage that has the output projection.
pub(super) fn ops(step: &TrainingStep) -> Result<Vec<Op>> {
    let (element, tokens, padded) = (step.activation(), step.tokens_per_micro_batch(), step.padded_vocabulary());
    let bytes = product("logits", &[element.size(), tokens, padded])?;
    let source = "transformers distributed/tensor_parallel.py, arXiv 1909.08053 section 3";
    let logits = Op {
        when: When::MicroBatch { pass: Pass::Forward, end: End::Output, calls: 1, one_in: one_in(step) },
        why: format!(
            "E*b*(s/c)*V = {} B*{tokens}*{padded} = {bytes} B: logits of every token, gathered; backward each rank keeps its own \
             words ({source})",
            element.size()
        ),
        ..Op::new(Style::Vocabulary, Axis::Tp, Collective::AllGather, element, bytes)
    };
    let what = "input gradient of the output projection";
    let gradient =
        activations(step, Collective::AllReduce, Pass::Backward, End::Output, Overlap::Exposed, what, source);
    Ok(vec![logits, gradient])
}
