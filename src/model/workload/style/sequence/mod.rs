//! Tensor parallelism with Megatron-LM's sequence parallelism: between the linears every rank has its part of the
//! sequence, so that all_gathers and reduce_scatters replace the all_reduces of tensor parallelism alone.
//!
//! Six all_gathers and four reduce_scatters in a dense layer move 25 % more than four all_reduces do: backward, the
//! stored part of the input is gathered a second time. Routed experts are in `expert`.

mod gathered;
#[cfg(test)]
mod tests;

use super::product::product;
use super::recompute::repeats_forward;
use super::replicated;
use crate::config::Model;
use crate::config::step::{GatherRecipe, ProductOverlap, TensorStyle};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use gathered::{Gathered, Usage};

/// Source of the linears' communications.
const SOURCE: &str = "arXiv 2205.05198 section 4.2.2; Megatron-LM core/tensor_parallel/layers.py \
                      LinearWithGradAccumulationAndAsyncCommunication, mappings.py";
/// Source for gathering the compressed widths of latent attention.
const LATENT_SOURCE: &str = "Megatron-LM core/transformer/multi_latent_attention.py";

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if !step.training.tensor.sequence_parallel || step.layout.degrees.tp == 1 {
        return Ok(Vec::new());
    }
    let mut ops = match &step.model.attention.latent {
        None => {
            let (everywhere, elsewhere) = linears_by_layer(step);
            let mut ops = hidden_wide(step, stage, LayerKind::Any, everywhere, blocks(step.model))?;
            if elsewhere > 0 {
                ops.extend(hidden_wide(step, stage, LayerKind::Dense, elsewhere, "feed-forward of dense layers")?);
            }
            ops
        }
        Some(_) => latent_attention(step, stage)?,
    };
    ops.extend(replicated::ops(step, stage, Style::Sequence));
    Ok(ops)
}

/// Number of pairs of a column- and a row-parallel linear in every layer, and of further pairs in layers without
/// experts. Shared experts are divided like a dense feed-forward.
fn linears_by_layer(step: &TrainingStep) -> (u64, u64) {
    match &step.model.mixture {
        Some(mixture) if mixture.shared_experts == 0 => (1, 1),
        _ => (step.model.blocks_per_layer(), 0),
    }
}

/// The blocks that begin with a column-parallel linear and end with a row-parallel one. Linear attention is among them, as attention is
/// (Megatron-LM core/ssm/gated_delta_net/common.py, core/ssm/mamba_mixer.py, `in_proj`, `out_proj`).
fn blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "attention and feed-forward",
        Some(_) => "attention, linear attention and feed-forward",
    }
}

/// Pairs of linears whose buffers are as wide as the residual stream.
fn hidden_wide(step: &TrainingStep, stage: u32, kind: LayerKind, calls: u64, which: &str) -> Result<Vec<Op>> {
    let recipe = step.training.tensor.gather_recipe;
    let linears = Linears { step, stage, kind, calls, width: step.model.hidden, source: SOURCE, recipe };
    let mut ops = linears.column(which)?;
    ops.extend(linears.row(which)?);
    Ok(ops)
}

/// With latent attention every rank compresses its own tokens, and the compressed queries, keys and values are gathered, with
/// the rotated part of the keys, instead of the hidden state.
fn latent_attention(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let Some(latent) = &step.model.attention.latent else { return Ok(Vec::new()) };
    let linears = |kind, calls, width, source, recipe| Linears { step, stage, kind, calls, width, source, recipe };
    // Gathered outside of linears, as they are (core/tensor_parallel/mappings.py).
    let wide = |width| linears(LayerKind::Any, 1, width, LATENT_SOURCE, GatherRecipe::Plain);
    let recipe = step.training.tensor.gather_recipe;
    let hidden = |kind, calls| linears(kind, calls, step.model.hidden, SOURCE, recipe);
    let mut ops = match latent.query_rank {
        Some(rank) => wide(rank).column("compressed queries before their up-projection")?,
        None => hidden(LayerKind::Any, 1).column("queries")?,
    };
    ops.extend(wide(latent.kv_rank).column("compressed keys and values before their up-projection")?);
    ops.extend(wide(latent.rotary_dimension).rotated_keys()?);
    let (everywhere, elsewhere) = linears_by_layer(step);
    ops.extend(hidden(LayerKind::Any, everywhere).row("attention and feed-forward")?);
    if everywhere > 1 {
        ops.extend(hidden(LayerKind::Any, everywhere - 1).column("feed-forward")?);
    }
    if elsewhere > 0 {
        ops.extend(hidden_wide(step, stage, LayerKind::Dense, elsewhere, "feed-forward of dense layers")?);
    }
    Ok(ops)
}

/// Linears of a kind of layer whose gathered buffers have the same width.
struct Linears<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    kind: LayerKind,
    calls: u64,
    width: u64,
    source: &'static str,
    recipe: GatherRecipe,
}

impl Linears<'_> {
    /// A column-parallel linear needs the whole sequence as its input.
    fn column(&self, which: &str) -> Result<Vec<Op>> {
        use Collective::ReduceScatter;
        let input = format!("input of the column-parallel linears, {which}");
        let mut ops = self.gathered_forward(&input)?;
        if self.step.training.tensor.style == TensorStyle::Megatron {
            let again = format!("{input}, stored in parts and gathered again beside the input gradient");
            ops.extend(self.gathered(Pass::Backward, Overlap::InputGradient, &again, Usage::AGAIN)?);
        }
        let gradient = format!("input gradient of the column-parallel linears, {which}, beside the weight gradient");
        ops.push(self.op(ReduceScatter, Pass::Backward, Overlap::WeightGradient, &gradient)?);
        Ok(ops)
    }

    /// The output of a row-parallel linear: partial sums of the whole sequence.
    fn row(&self, which: &str) -> Result<Vec<Op>> {
        use Collective::ReduceScatter;
        let output = format!("output of the row-parallel linears, {which}");
        let mut ops = match self.step.training.tensor.style {
            TensorStyle::Megatron => self.forward(ReduceScatter, &output)?,
            TensorStyle::DTensor => self.forward_until_needed(&output)?,
        };
        let gradient = format!("output gradient of the row-parallel linears, {which}");
        ops.extend(self.gathered(Pass::Backward, self.beside_product(), &gradient, Usage::GRADIENT)?);
        Ok(ops)
    }

    /// What hides a call that a product waits for, or that waits for one.
    fn beside_product(&self) -> Overlap {
        match self.step.training.tensor.product_overlap {
            ProductOverlap::None => Overlap::Exposed,
            ProductOverlap::Pieces => Overlap::Pieces,
        }
    }

    /// The input of a linear, and again under full recomputation.
    fn gathered_forward(&self, what: &str) -> Result<Vec<Op>> {
        let mut ops = self.gathered(Pass::Forward, self.beside_product(), what, Usage::INPUT)?;
        if repeats_forward(self.step) {
            let again = format!("{what}, again for the backward pass (full recomputation)");
            ops.extend(self.gathered(Pass::Recompute, self.beside_product(), &again, Usage::INPUT)?);
        }
        Ok(ops)
    }

    /// A gather for a linear, in the form that the recipe gives it.
    fn gathered(&self, pass: Pass, overlap: Overlap, what: &str, usage: Usage) -> Result<Vec<Op>> {
        if self.recipe == GatherRecipe::Plain {
            return Ok(vec![self.op(Collective::AllGather, pass, overlap, what)?]);
        }
        let tensor = Gathered { recipe: self.recipe, tokens: self.step.tokens_per_micro_batch(), width: self.width };
        let op = |part: gathered::Part| Op {
            when: self.step.in_layers(self.stage, pass, self.kind, self.calls),
            overlap: part.carried.hidden_by(overlap, self.step.training.tensor.product_overlap),
            why: format!("{}: {what} ({})", part.why, gathered::SOURCE),
            reduce_op: part.reduce_op,
            ..Op::new(Style::Sequence, Axis::Tp, part.collective, part.element, part.bytes)
        };
        Ok(tensor.parts(usage)?.into_iter().map(op).collect())
    }

    /// The rotated part of the keys is no input of a linear: its gather is undone by a plain reduce_scatter.
    fn rotated_keys(&self) -> Result<Vec<Op>> {
        let mut ops = self.forward(Collective::AllGather, "rotated part of the keys")?;
        let gradient = "gradient of the rotated part of the keys";
        ops.push(self.op(Collective::ReduceScatter, Pass::Backward, Overlap::Exposed, gradient)?);
        Ok(ops)
    }

    /// Forward, and again under full recomputation.
    fn forward(&self, collective: Collective, what: &str) -> Result<Vec<Op>> {
        let overlap = if collective == Collective::ReduceScatter { self.beside_product() } else { Overlap::Exposed };
        let mut ops = vec![self.op(collective, Pass::Forward, overlap, what)?];
        if repeats_forward(self.step) {
            let again = format!("{what}, again for the backward pass (full recomputation)");
            ops.push(self.op(collective, Pass::Recompute, overlap, &again)?);
        }
        Ok(ops)
    }

    /// Forward, and again under full recomputation but for the last sum of the layer, which no gradient needs: PyTorch stops
    /// before it (torch/utils/checkpoint.py, early stop).
    fn forward_until_needed(&self, what: &str) -> Result<Vec<Op>> {
        let overlap = self.beside_product();
        let mut ops = vec![self.op(Collective::ReduceScatter, Pass::Forward, overlap, what)?];
        if repeats_forward(self.step) && self.calls > 1 {
            let again = format!("{what}, again for the backward pass, but for the last of the layer");
            let fewer = Linears { calls: self.calls - 1, ..*self };
            ops.push(fewer.op(Collective::ReduceScatter, Pass::Recompute, overlap, &again)?);
        }
        Ok(ops)
    }

    fn op(&self, collective: Collective, pass: Pass, overlap: Overlap, what: &str) -> Result<Op> {
        let step = self.step;
        let (b, s, c) = (step.training.micro_batch, step.training.sequence, step.layout.degrees.cp);
        let element = step.activation();
        let bytes = product(what, &[element.size(), step.tokens_per_micro_batch(), self.width])?;
        let width = if self.width == step.model.hidden { "h" } else { "width" };
        Ok(Op {
            when: step.in_layers(self.stage, pass, self.kind, self.calls),
            overlap,
            why: format!(
                "E*b*(s/c)*{width} = {} B*{b}*({s}/{c})*{} = {bytes} B, of which each of {} ranks holds one part: {what} ({})",
                element.size(),
                self.width,
                step.layout.degrees.tp,
                self.source
            ),
            ..Op::new(Style::Sequence, Axis::Tp, collective, element, bytes)
        })
    }
}
