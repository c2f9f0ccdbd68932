//! Tensor parallelism with Megatron-LM's sequence parallelism: between the linears every rank has its part of the sequence, so all_gathers
//! and reduce_scatters replace the all_reduces of plain tensor parallelism.
//!
//! Six all_gathers and four reduce_scatters in a dense layer move 25 % more than four all_reduces do: backward, the
//! stored part of the input is gathered a second time. Routed experts are in `expert`.

use super::product::{feed_forwards_repeated, product, repeats_forward};
use super::replicated;
use crate::config::Model;
use crate::config::step::{GatherRecipe, ProductOverlap, TensorStyle};
use crate::layout::Axis;
use crate::workload::op::{LayerKind, Overlap, Pass};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

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
    for kind in feed_forwards_repeated(step) {
        let (width, recipe) = (step.model.hidden, step.training.tensor.gather_recipe);
        let linears = Linears { step, stage, kind, calls: 1, width, source: SOURCE, recipe };
        let (input, output) = ("input of a feed-forward that is repeated", "its output");
        ops.extend(linears.gathered(Pass::Recompute, linears.overlap_with_product(), input, Usage::INPUT)?);
        ops.push(linears.op(Collective::ReduceScatter, Pass::Recompute, linears.overlap_with_product(), output)?);
    }
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

/// The blocks that begin with a column-parallel linear and end with a row-parallel one, including linear attention (Megatron-LM
/// core/ssm/gated_delta_net/common.py, core/ssm/mamba_mixer.py, `in_proj`, `out_proj`).
fn blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "attention and feed-forward",
        Some(_) => "attention, linear attention and feed-forward",
    }
}

/// Pairs of linears whose buffers have the width of the residual stream.
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
    // Gathered outside linears, unquantized (core/tensor_parallel/mappings.py).
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
        // Frozen weights need no gradient, and so no input.
        let is_frozen = self.step.training.data.trained.lora_rank.is_some();
        if self.step.training.tensor.style == TensorStyle::Megatron && !is_frozen {
            let again = format!("{input}, stored in parts and gathered again during the input gradient");
            ops.extend(self.gathered(Pass::Backward, Overlap::InputGradient, &again, Usage::AGAIN)?);
        }
        let gradient =
            format!("input gradient of the column-parallel linears, {which}, overlapping with the weight gradient");
        ops.push(self.op(ReduceScatter, Pass::Backward, Overlap::WeightGradient, &gradient)?);
        Ok(ops)
    }

    /// The output of a row-parallel linear: partial sums of the whole sequence.
    fn row(&self, which: &str) -> Result<Vec<Op>> {
        let output = format!("output of the row-parallel linears, {which}");
        let mut ops = self.forward(Collective::ReduceScatter, &output)?;
        let gradient = format!("output gradient of the row-parallel linears, {which}");
        ops.extend(self.gathered(Pass::Backward, self.overlap_with_product(), &gradient, Usage::GRADIENT)?);
        Ok(ops)
    }

    /// The work that hides a call that a product waits for, or that waits for a product.
    fn overlap_with_product(&self) -> Overlap {
        match self.step.training.tensor.product_overlap {
            ProductOverlap::None => Overlap::Exposed,
            ProductOverlap::Pieces => Overlap::Pieces,
        }
    }

    /// The input of a linear, and again with full recomputation.
    fn gathered_forward(&self, what: &str) -> Result<Vec<Op>> {
        let mut ops = self.gathered(Pass::Forward, self.overlap_with_product(), what, Usage::INPUT)?;
        if repeats_forward(self.step) {
            let again = format!("{what}, again for the backward pass (full recomputation)");
            ops.extend(self.gathered(Pass::Recompute, self.overlap_with_product(), &again, Usage::INPUT)?);
        }
        Ok(ops)
    }

    /// A gather for a linear, in the form of the recipe.
    fn gathered(&self, pass: Pass, overlap: Overlap, what: &str, usage: Usage) -> Result<Vec<Op>> {
        if self.recipe == GatherRecipe::Plain {
            return Ok(vec![self.op(Collective::AllGather, pass, overlap, what)?]);
        }
        let tensor = Gathered { recipe: self.recipe, tokens: self.step.tokens_per_micro_batch(), width: self.width };
        let op = |part: Part| Op {
            when: self.step.in_layers(self.stage, pass, self.kind, self.calls),
            overlap: part.carried.hidden_by(overlap, self.step.training.tensor.product_overlap),
            why: format!("{}: {what} ({})", part.why, GATHERED_SOURCE),
            reduce_op: part.reduce_op,
            ..Op::new(Style::Sequence, Axis::Tp, part.collective, part.element, part.bytes)
        };
        Ok(tensor.parts(usage)?.into_iter().map(op).collect())
    }

    /// The rotated part of the keys is not an input of a linear: a plain reduce_scatter reverses its gather.
    fn rotated_keys(&self) -> Result<Vec<Op>> {
        let mut ops = self.forward(Collective::AllGather, "rotated part of the keys")?;
        let gradient = "gradient of the rotated part of the keys";
        ops.push(self.op(Collective::ReduceScatter, Pass::Backward, Overlap::Exposed, gradient)?);
        Ok(ops)
    }

    /// Forward, and again with full recomputation. PyTorch stops before the last sum of the layer, which no gradient needs
    /// (torch/utils/checkpoint.py, early stop).
    fn forward(&self, collective: Collective, what: &str) -> Result<Vec<Op>> {
        let is_sum = collective == Collective::ReduceScatter;
        let overlap = if is_sum { self.overlap_with_product() } else { Overlap::Exposed };
        let mut ops = vec![self.op(collective, Pass::Forward, overlap, what)?];
        let stops = is_sum && self.step.training.tensor.style == TensorStyle::DTensor;
        let (calls, how) = if stops { (self.calls - 1, ", except the last of the layer") } else { (self.calls, "") };
        if repeats_forward(self.step) && calls > 0 {
            let again = format!("{what}, again for the backward pass{how} (full recomputation)");
            ops.push(Linears { calls, ..*self }.op(collective, Pass::Recompute, overlap, &again)?);
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

// Traffic of a gather of sequence parallelism if Transformer Engine gathers in 8 bits (transformer_engine/pytorch/distributed.py,
// module/linear.py; 2.20).
//
// Products use MXFP8 along one dimension only, so tensors that both gradients need are gathered twice: the gradient of an output then moves
// more than in 16 bits. With one scale per tensor one gather serves both, and the largest element is found over all ranks first.

const GATHERED_SOURCE: &str =
    "Transformer Engine 2.20 pytorch/distributed.py gather_along_first_dim, pytorch/module/linear.py";

/// Elements that share a scale in MXFP8 (OCP Microscaling Formats 1.0).
const MXFP8_BLOCK: u64 = 32;

/// Scales of a row, and of a column, are padded to multiples of these (pytorch/tensor/mxfp8_tensor.py get_scale_shape); the padding of
/// rows is not gathered.
const SCALES_OF_A_ROW: u64 = 4;

const SCALES_OF_COLUMNS: u64 = 128;

/// The dimensions along which products use the tensor, and whether it has its scale already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    is_of_rows: bool,
    is_of_columns: bool,
    is_quantized_here: bool,
}

impl Usage {
    /// The input of a linear, forward.
    const INPUT: Usage = Usage { is_of_rows: true, is_of_columns: false, is_quantized_here: true };
    /// As an input of the gradient of its weights; it was stored in 8 bits.
    const AGAIN: Usage = Usage { is_of_rows: false, is_of_columns: true, is_quantized_here: false };
    /// The gradient of an output, for the gradients of inputs and of weights.
    const GRADIENT: Usage = Usage { is_of_rows: true, is_of_columns: true, is_quantized_here: true };
}

/// A tensor of all ranks' tokens.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    pub recipe: GatherRecipe,
    pub tokens: u64,
    pub width: u64,
}

/// Content of a call of a gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// The largest element of all ranks, which determines the scale.
    Largest,
    /// Scales of blocks.
    Scales,
    /// The elements.
    Data,
    /// The elements in blocks along columns, in addition to those along rows.
    DataAgain,
}

impl Carried {
    /// The work that hides it; `usual` hides a gather.
    fn hidden_by(self, usual: Overlap, pieces: ProductOverlap) -> Overlap {
        match (self, pieces) {
            (Carried::Largest, _) => Overlap::Exposed,
            // User buffers send the data, an earlier NCCL call its scales (fill_userbuffers_buffer_for_all_gather), and the second gather
            // of a gradient overlaps with the product of the first (bulk_overlap_ag_with_external_gemm).
            (Carried::Scales, ProductOverlap::Pieces) => Overlap::Exposed,
            (Carried::DataAgain, ProductOverlap::Pieces) => Overlap::InputGradient,
            _ => usual,
        }
    }
}

/// One call of a gather.
struct Part {
    pub carried: Carried,
    pub collective: Collective,
    pub element: ElementType,
    pub reduce_op: Option<ReduceOp>,
    pub bytes: u64,
    pub why: String,
}

impl Gathered {
    /// The calls of a gather in 8 bits.
    fn parts(&self, usage: Usage) -> Result<Vec<Part>> {
        let Gathered { recipe, tokens, width } = *self;
        let gather = |carried, bytes, why| Part {
            carried,
            collective: Collective::AllGather,
            element: ElementType::Uint8,
            reduce_op: None,
            bytes,
            why,
        };
        let data = |carried, along: &str| -> Result<Part> {
            let bytes = product("activations in 8 bits", &[tokens, width])?;
            Ok(gather(carried, bytes, format!("b*(s/c)*h = {tokens}*{width} = {bytes} B in 8 bits{along}")))
        };
        if recipe == GatherRecipe::Fp8Current {
            let largest = Part {
                carried: Carried::Largest,
                collective: Collective::AllReduce,
                element: ElementType::Float32,
                reduce_op: Some(ReduceOp::Max),
                bytes: 4,
                why: "one float32 = 4 B, the largest element of all ranks, which determines the scale".to_owned(),
            };
            let quantized = usage.is_quantized_here.then_some(largest);
            return Ok(quantized.into_iter().chain([data(Carried::Data, "")?]).collect());
        }
        let mut parts = Vec::new();
        if usage.is_of_rows {
            let of_a_row = width.div_ceil(MXFP8_BLOCK).next_multiple_of(SCALES_OF_A_ROW);
            let scales = product("scales", &[tokens, of_a_row])?;
            parts.push(gather(
                Carried::Scales,
                scales,
                format!("{tokens}*ceil(h/32) = {scales} B of scales along rows"),
            ));
            parts.push(data(Carried::Data, " along rows")?);
        }
        if usage.is_of_columns {
            let (rows, padded) = (tokens / MXFP8_BLOCK, width.next_multiple_of(SCALES_OF_COLUMNS));
            let scales = product("scales", &[rows, padded])?;
            parts.push(gather(Carried::Scales, scales, format!("{tokens}/32*h = {scales} B of scales along columns")));
            let carried = if usage.is_of_rows { Carried::DataAgain } else { Carried::Data };
            parts.push(data(carried, " along columns")?);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    // Known answers: arXiv 2205.05198 section 4.2.2 and Megatron-LM's linears (six all_gathers and four reduce_scatters in a
    // dense layer), and parameters of published models.
    use crate::layout::Axis;
    use crate::workload::Style;
    use crate::workload::op::{Overlap, Pass};
    use crate::workload::style::testing::{calls_of, refusal, rows, suite_of, training, wire, with_steps};
    use commgauge_base::collective::Collective::{AllGather, AllReduce, ReduceScatter};
    use serde_json::json;

    const PARALLEL: &str = "sequence = 8192\nmicro_batches = 3\nsequence_parallel = true";
    /// E b s h of llama-3-8b: 2 x 8192 x 4096.
    const HIDDEN: u64 = 67_108_864;

    #[test]
    fn a_sequence_that_does_not_come_out_even_is_refused_with_the_nearest_that_do() {
        let written = "sequence = 4100\nmicro_batches = 1\nsequence_parallel = true";
        let message = refusal(&training("llama-3-8b", written, "tp = 8\ncp = 2"), 16);
        assert!(message.contains("4100 / cp 2 = 2050 tokens by tp = 8"), "{message}");
        assert!(message.contains("nearest sequences that do not: 4096, 4112"), "{message}");
    }

    #[test]
    fn six_gathers_and_four_reduce_scatters_in_every_layer_of_which_four_are_hidden() {
        let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
        for (recompute, expected) in [
            (
                "selective",
                vec![
                    (AllGather, forward, HIDDEN, 2, Overlap::Exposed),
                    (AllGather, backward, HIDDEN, 2, Overlap::InputGradient),
                    (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
                    (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
                    (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
                ],
            ),
            (
                "full",
                vec![
                    (AllGather, forward, HIDDEN, 2, Overlap::Exposed),
                    (AllGather, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
                    (AllGather, backward, HIDDEN, 2, Overlap::InputGradient),
                    (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
                    (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
                    (ReduceScatter, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
                    (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
                ],
            ),
        ] {
            let suite = training("llama-3-8b", &format!("{PARALLEL}\nrecompute = '{recompute}'"), "tp = 8");
            with_steps(&suite, 8, |step| {
                let rows = rows(step, 0, Style::Sequence);
                let (in_layers, once): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.pass.is_some());
                assert_eq!(in_layers.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{recompute}");
                assert!(in_layers.iter().all(|row| row.calls_per_step == 2 * 32 * 3));
                // Two norms in each of 32 layers and one behind them, 4096 wide, gradients of 4 B.
                assert_eq!(once.iter().map(|row| (row.bytes, row.calls)).collect::<Vec<_>>(), [(65 * 4096 * 4, 1)]);
                assert!(super::super::testing::rows(step, 0, Style::Tensor).is_empty());
            });
        }
    }

    #[test]
    fn a_quarter_more_bytes_than_without_and_the_same_exposed() {
        let layers = |written: &str, style| {
            let mut found = (0, 0);
            with_steps(&training("llama-3-8b", written, "tp = 8\npp = 4"), 32, |step| {
                // The coalesced all_reduce of a middle stage: 8 layers of two norms, 2 (t-1)/t of their bytes.
                let norms = if style == Style::Sequence { 2 * 7 * (8 * 2 * 4096 * 4) / 8 } else { 0 };
                let (all, exposed) = wire(step, 1, style, Axis::Tp);
                found = (all - norms, exposed - norms);
            });
            found
        };
        let plain = layers("sequence = 8192\nmicro_batches = 3", Style::Tensor);
        let divided = layers(PARALLEL, Style::Sequence);
        let one = 8192 * 4096 * 7 / 8 * 8 * 3;
        assert_eq!(plain, (16 * one, 8 * one));
        assert_eq!(divided, (20 * one, 12 * one));
        // Forward alone: a gather and a reduce_scatter equal an all_reduce.
        assert_eq!(divided.0 * 4, plain.0 * 5);
    }

    #[test]
    fn gradients_of_replicated_parameters_are_reduced_once_in_a_step() {
        let gpt = "sequence = 2048\nmicro_batches = 1\nsequence_parallel = true";
        let half = format!("{gpt}\ngradient_element_type = 'bfloat16'");
        // GPT-3: two norms with bias and two biases of row-parallel linears in each of 8 layers, 12288 wide.
        let in_layers = 8 * 6 * 12_288;
        for (written, stage, bytes) in
            [(gpt, 0, in_layers * 4), (gpt, 11, (in_layers + 2 * 12_288) * 4), (half.as_str(), 5, in_layers * 2)]
        {
            with_steps(&training("gpt3-175b", written, "tp = 8\npp = 12"), 96, |step| {
                let rows = rows(step, stage, Style::Sequence);
                let once: Vec<_> = rows.iter().filter(|row| row.pass.is_none()).map(|row| row.short()).collect();
                assert_eq!(once, [(AllReduce, None, bytes, 1, Overlap::Exposed)], "{written} {stage}");
            });
        }
    }

    #[test]
    fn one_rank_sends_nothing() {
        with_steps(&training("llama-3-8b", PARALLEL, "dp = 2"), 2, |step| {
            assert!(rows(step, 0, Style::Sequence).is_empty());
        });
    }

    #[test]
    fn layers_of_routed_experts_have_the_linears_of_attention_only() {
        let written = "sequence = 4096\nmicro_batches = 1\nsequence_parallel = true";
        with_steps(&training("mixtral-8x7b", written, "tp = 2"), 2, |step| {
            let rows = rows(step, 0, Style::Sequence);
            assert_eq!(calls_of(&rows), [1, 3, 2]);
            // Two norms and a router of 8 experts in each of 32 layers, and the last norm.
            let once = rows.iter().find(|row| row.pass.is_none()).unwrap();
            assert_eq!(once.bytes, (32 * (2 + 8) + 1) * 4096 * 4);
        });
    }

    /// Layers with and without shared experts, and dense ones, of one model.
    #[test]
    fn dense_layers_and_shared_experts_are_divided_routed_experts_are_not() {
        let config = |shared: u64| {
            json!({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
        "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": shared, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": false})
        };
        let text = "[training]\nsequence = 4096\nmicro_batches = 1\nsequence_parallel = true\n[layout]\ntp = 8";
        let hidden = 2 * 4096 * 7168;
        for (shared, expected) in [(1, (2 * 61, 2 * 61, 61)), (0, (61 + 3, 61 + 3, 3))] {
            with_steps(&suite_of(&config(shared), text), 8, |step| {
                let rows = rows(step, 0, Style::Sequence);
                let calls = |collective, pass| -> u64 {
                    let of = |row: &&super::super::testing::Row| {
                        row.bytes == hidden && (row.collective, row.pass) == (collective, Some(pass))
                    };
                    rows.iter()
                        .filter(of)
                        .filter(|row| row.overlap == Overlap::Exposed)
                        .map(|row| row.calls_per_step)
                        .sum()
                };
                let found = (
                    calls(ReduceScatter, Pass::Forward),
                    calls(AllGather, Pass::Backward),
                    calls(AllGather, Pass::Forward),
                );
                assert_eq!(found, expected, "{shared} shared experts");
            });
        }
        with_steps(&suite_of(&config(1), text), 8, |step| {
            let rows = rows(step, 0, Style::Sequence);
            // Instead of the hidden state: 1536 of queries, 512 of keys and values, 64 rotated.
            for (width, expected) in [(1536, [0, 2, 1]), (512, [0, 2, 1]), (64, [0, 1, 1])] {
                let of_width: Vec<_> = rows.iter().filter(|row| row.bytes == 2 * 4096 * width).cloned().collect();
                assert_eq!(calls_of(&of_width), expected, "width {width}");
            }
            // Norms, both projections to the compressed width with their norms; routers of 58 layers; the last norm.
            let each = 2 * 7168 + (7168 * 1536 + 1536) + (7168 * (512 + 64) + 512);
            let once = rows.iter().find(|row| row.pass.is_none()).unwrap();
            assert_eq!(once.bytes, (61 * each + 58 * 7168 * 256 + 7168) * 4);
        });
    }

    #[test]
    fn inputs_that_are_stored_whole_need_four_gathers_and_four_reduce_scatters() {
        let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
        let gathered = (AllGather, forward, HIDDEN, 2, Overlap::Exposed);
        let scattered = (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed);
        let back = [
            (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
            (AllGather, backward, HIDDEN, 2, Overlap::Exposed),
        ];
        // Checkpointing gathers both inputs again, and stops before the last sum (torch/utils/checkpoint.py).
        let again = [
            (AllGather, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed),
            (ReduceScatter, Some(Pass::Recompute), HIDDEN, 1, Overlap::Exposed),
        ];
        for (recompute, expected) in [
            ("none", vec![gathered, back[0], scattered, back[1]]),
            ("full", vec![gathered, again[0], back[0], scattered, again[1], back[1]]),
        ] {
            let written =
                format!("sequence = 8192\nmicro_batches = 3\nframework = 'torchtitan'\nrecompute = '{recompute}'");
            with_steps(&training("llama-3-8b", &written, "tp = 8"), 8, |step| {
                let found: Vec<_> = rows(step, 0, Style::Sequence).iter().map(|row| row.short()).collect();
                assert_eq!(found[..expected.len()], expected, "{recompute}");
            });
        }
    }

    /// Calls of a layer of llama-3-8b, tp 8: collective, pass, bytes, calls, and the work that hides them.
    fn in_layers(written: &str) -> Vec<(commgauge_base::collective::Collective, Option<Pass>, u64, u64, Overlap)> {
        let mut found = Vec::new();
        with_steps(&training("llama-3-8b", &format!("{PARALLEL}\n{written}"), "tp = 8"), 8, |step| {
            let rows = rows(step, 0, Style::Sequence);
            found = rows.iter().filter(|row| row.pass.is_some()).map(|row| row.short()).collect();
        });
        found
    }

    #[test]
    fn transformer_engine_gathers_in_8_bits_and_reduces_in_16() {
        let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
        // 8192 x 4096 bytes, and their scales: one per 32.
        let (data, scales) = (HIDDEN / 2, HIDDEN / 2 / 32);
        let current = [
            (AllReduce, forward, 4, 2, Overlap::Exposed),
            (AllGather, forward, data, 2, Overlap::Exposed),
            (AllGather, backward, data, 2, Overlap::InputGradient),
            (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
            (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
            (AllReduce, backward, 4, 2, Overlap::Exposed),
            (AllGather, backward, data, 2, Overlap::Exposed),
        ];
        assert_eq!(in_layers("gather_recipe = 'fp8_current'"), current);
        let blocks = [
            (AllGather, forward, scales, 2, Overlap::Exposed),
            (AllGather, forward, data, 2, Overlap::Exposed),
            (AllGather, backward, scales, 2, Overlap::InputGradient),
            (AllGather, backward, data, 2, Overlap::InputGradient),
            (ReduceScatter, backward, HIDDEN, 2, Overlap::WeightGradient),
            (ReduceScatter, forward, HIDDEN, 2, Overlap::Exposed),
            // Rows for the gradient of the input and columns for that of the weights: more than in 16 bits.
            (AllGather, backward, scales, 2, Overlap::Exposed),
            (AllGather, backward, data, 2, Overlap::Exposed),
            (AllGather, backward, scales, 2, Overlap::Exposed),
            (AllGather, backward, data, 2, Overlap::Exposed),
        ];
        assert_eq!(in_layers("gather_recipe = 'mxfp8'"), blocks);
        assert!(2 * (data + scales) > HIDDEN);
    }

    #[test]
    fn products_in_pieces_hide_all_calls_of_the_linears_but_move_the_same() {
        let plain = in_layers("");
        let pieces = in_layers("product_overlap = 'pieces'");
        let moved = |calls: &[(commgauge_base::collective::Collective, Option<Pass>, u64, u64, Overlap)]| {
            calls.iter().map(|call| (call.0, call.1, call.2, call.3)).collect::<Vec<_>>()
        };
        assert_eq!(moved(&plain), moved(&pieces));
        let hidden: Vec<Overlap> = pieces.iter().map(|call| call.4).collect();
        use Overlap::{InputGradient, Pieces, WeightGradient};
        assert_eq!(hidden, [Pieces, InputGradient, WeightGradient, Pieces, Pieces]);
        // The largest element is known before the gather begins.
        assert_eq!(in_layers("product_overlap = 'pieces'\ngather_recipe = 'fp8_current'")[0].4, Overlap::Exposed);
        // Scales are sent separately before, and the second gather of a gradient overlaps with the product of the first.
        let blocks = in_layers("product_overlap = 'pieces'\ngather_recipe = 'mxfp8'");
        assert_eq!(moved(&in_layers("gather_recipe = 'mxfp8'")), moved(&blocks));
        let hidden: Vec<Overlap> = blocks.iter().map(|call| call.4).collect();
        use Overlap::Exposed;
        let (forward, again) = ([Exposed, Pieces], [Exposed, InputGradient]);
        let scattered = [WeightGradient, Pieces];
        assert_eq!(hidden, [&forward[..], &again, &scattered, &forward, &again].concat());
        assert!(
            in_layers("product_overlap = 'pieces'\noverlap_tensor = false")
                .iter()
                .all(|call| call.4 == Overlap::Exposed)
        );
    }

    #[test]
    fn recipes_and_pieces_are_refused_where_nothing_is_gathered_so() {
        for (written, expected) in [
            (
                "sequence = 8192\nmicro_batches = 1\ngather_recipe = 'mxfp8'",
                "gather_recipe = mxfp8 needs sequence_parallel = true; found",
            ),
            (
                "sequence = 8192\nmicro_batches = 1\nproduct_overlap = 'pieces'",
                "product_overlap = pieces needs sequence_parallel = true; found",
            ),
            (
                "sequence = 8192\nmicro_batches = 1\nsequence_parallel = true\ntensor_style = 'dtensor'\ngather_recipe = 'fp8_current'",
                "gather_recipe = fp8_current needs tensor_style = megatron; found",
            ),
            (
                "sequence = 64\nmicro_batches = 1\nsequence_parallel = true\ngather_recipe = 'mxfp8'",
                "needs 8 tokens of a rank",
            ),
            (
                "sequence = 512\nmicro_batches = 1\nsequence_parallel = true\ngather_recipe = 'mxfp8'\nproduct_overlap = 'pieces'",
                "with product_overlap = pieces needs 64 tokens of a rank and 4096 elements of a token in multiples of 128 and 32",
            ),
        ] {
            let message = refusal(&training("llama-3-8b", written, "tp = 8"), 8);
            assert!(message.contains(expected), "{written}: {message}");
        }
    }
}
