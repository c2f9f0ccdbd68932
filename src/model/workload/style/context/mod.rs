//! Context parallelism: how attention obtains the keys and values of tokens on other ranks.
//!
//! Gradients of the parameters are not part of this style: `data` reduces them over dp and cp together.

#[cfg(test)]
mod tests;
mod width;

use crate::config::step::{ContextStyle, Recompute};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use width::Width;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if step.layout.degrees.cp < 2 {
        return Ok(Vec::new());
    }
    let context = Context { step, stage };
    Ok(match step.training.context.style {
        ContextStyle::Ring => context.ring(Axis::Cp),
        ContextStyle::AllGather => context.all_gather(),
        ContextStyle::AllToAll => context.all_to_all(Axis::Cp),
        ContextStyle::PyTorch => context.gathered_with_ring(),
        ContextStyle::Hybrid => [context.all_to_all(Axis::CpInner), context.ring(Axis::CpOuter)].concat(),
    })
}

struct Context<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
}

impl Context<'_> {
    /// Forward, and once more where the core attention is computed again: its communications are inside of it.
    fn forward_passes(&self) -> Vec<Pass> {
        match self.step.training.tensor.recompute {
            Recompute::None => vec![Pass::Forward],
            Recompute::Selective | Recompute::Full => vec![Pass::Forward, Pass::Recompute],
        }
    }

    /// Keys and values travel round the ring: c-1 blocks forward, c-1 backward, and c-1 blocks of their gradients,
    /// because the backward pass starts with the block that arrived last and ends with the rank's own.
    fn ring(&self, axis: Axis) -> Vec<Op> {
        let ranks = u64::from(self.step.layout.group_size(axis));
        // After an exchange over the inner ranks a rank has their tokens and its share of the heads: as many elements.
        let exchanging = if axis == Axis::CpOuter { self.step.layout.group_size(Axis::CpInner) } else { 1 };
        let width = Width::of(self.step, exchanging);
        let (activation, gradient) = (self.step.activation(), self.step.training.context.gradient_element_type);
        let block = |element: ElementType, pass, what: &str| {
            let source =
                "arXiv 2310.01889 section 3; TransformerEngine attention/dot_product_attention/context_parallel.py";
            let (bytes, formula) = self.bytes("K", element, 1, width.keys_and_values(), &width.formula());
            Op {
                when: self.step.in_layers(self.stage, pass, LayerKind::Any, ranks.saturating_sub(1)),
                overlap: Overlap::Attention,
                why: format!("{formula}: {what}, c-1 = {} times ({source})", ranks.saturating_sub(1)),
                ..Op::new(Style::Context, axis, Collective::SendRecv, element, bytes)
            }
        };
        let mut ops: Vec<Op> = Vec::new();
        for pass in self.forward_passes() {
            ops.push(block(activation, pass, "keys and values to the next rank of the ring"));
        }
        ops.push(block(activation, Pass::Backward, "keys and values again, in the backward pass"));
        ops.push(block(gradient, Pass::Backward, "gradients of keys and values, on their way to their own rank"));
        ops
    }

    /// PyTorch: all keys and values to all ranks, again backward, and c blocks of their gradients round the ring, because the
    /// last one brings each rank its own.
    fn gathered_with_ring(&self) -> Vec<Op> {
        let width = Width::of(self.step, 1);
        let c = u64::from(self.step.layout.degrees.cp);
        let mut ops = self.all_gather();
        ops.retain(|op| op.collective == Collective::AllGather);
        let gradient = self.step.training.context.gradient_element_type;
        let (bytes, formula) = self.bytes("K", gradient, 1, width.keys_and_values(), &width.formula());
        let source = "torch/distributed/tensor/experimental/_context_parallel/_attention.py \
                      _templated_ring_attention_backward; arXiv 2310.01889 section 3";
        ops.push(Op {
            when: self.step.in_layers(self.stage, Pass::Backward, LayerKind::Any, c),
            overlap: Overlap::Attention,
            why: format!(
                "{formula}: gradients of keys and values to the next rank of the ring, c = {c} times ({source})"
            ),
            ..Op::new(Style::Context, Axis::Cp, Collective::SendRecv, gradient, bytes)
        });
        ops
    }

    /// All keys and values to all ranks, and the sums of their gradients back.
    fn all_gather(&self) -> Vec<Op> {
        let c = u64::from(self.step.layout.degrees.cp);
        let width = Width::of(self.step, 1);
        let op = |collective, element: ElementType, pass, what: &str| {
            let source = "arXiv 2407.21783 section 3.3.2; TransformerEngine cp_comm_type all_gather";
            let (bytes, formula) = self.bytes("c*K", element, c, width.keys_and_values(), &width.formula());
            Op {
                when: self.step.in_layers(self.stage, pass, LayerKind::Any, 1),
                why: format!("{formula}: {what} ({source})"),
                ..Op::new(Style::Context, Axis::Cp, collective, element, bytes)
            }
        };
        let activation = self.step.activation();
        let gather = |pass| op(Collective::AllGather, activation, pass, "keys and values of the whole sequence");
        let mut ops: Vec<Op> = self.forward_passes().into_iter().map(gather).collect();
        ops.push(gather(Pass::Backward));
        let gradient = self.step.training.context.gradient_element_type;
        let what = "gradients of keys and values, each summed at the rank of its token";
        ops.push(op(Collective::ReduceScatter, gradient, Pass::Backward, what));
        ops
    }

    /// Exchanges heads for tokens: before attention every rank receives all tokens of some heads, after it the
    /// reverse.
    fn all_to_all(&self, axis: Axis) -> Vec<Op> {
        let width = Width::of(self.step, self.step.layout.group_size(axis));
        let op = |pass, elements: u64, formula: &str, calls: u64, what: &str| {
            let (bytes, formula) = self.bytes("S", self.step.activation(), 1, elements, formula);
            let source = "arXiv 2309.14509 section 3.2; TransformerEngine cp_comm_type a2a";
            Op {
                when: self.step.in_layers(self.stage, pass, LayerKind::Any, calls),
                why: format!("{formula}: {what} ({source})"),
                ..Op::new(Style::Context, axis, Collective::AllToAll, self.step.activation(), bytes)
            }
        };
        let passes =
            self.forward_passes().into_iter().map(|pass| (pass, "")).chain([(Pass::Backward, "gradients of ")]);
        passes
            .flat_map(|(pass, of)| width.tensors().into_iter().map(move |tensor| (pass, of, tensor)))
            .map(|(pass, of, tensor)| {
                op(pass, tensor.elements, &tensor.formula, tensor.calls, &format!("{of}{}", tensor.name))
            })
            .collect()
    }

    /// `times` E b (s/c) `elements`, and the formula with its numbers.
    fn bytes(&self, symbol: &str, element: ElementType, times: u64, elements: u64, formula: &str) -> (u64, String) {
        let (b, s, c) = (self.step.training.micro_batch, self.step.training.sequence, self.step.layout.degrees.cp);
        let bytes = element.size() * times * self.step.tokens_per_micro_batch() * elements;
        let factor = if times > 1 { format!("{times}*") } else { String::new() };
        let size = element.size();
        (
            bytes,
            format!("{symbol} = {factor}E*b*(s/c)*{formula} = {factor}{size} B*{b}*({s}/{c})*{elements} = {bytes} B"),
        )
    }
}
