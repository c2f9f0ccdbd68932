//! Parameters that every rank of a tensor-parallel group stores completely while each computes a part of their gradient: the list of a
//! stage, and the one coalesced all_reduce of their gradients per step.
//!
//! Megatron-LM marks them `sequence_parallel`: norms, the biases of row-parallel linears, routers, and with latent attention the
//! projections to the compressed width. Without sequence parallelism every rank has the whole gradient of all of these except the norms of
//! queries and keys, which only see the rank's own heads.

use super::product::{feed_forwards_repeated, repeats_forward};
use crate::config::step::{Linears, TensorStyle, UnitRule};
use crate::config::{FeedForward, LinearAttention, Mixer, Model, QueryKeyNorm};
use crate::layout::Axis;
use crate::workload::op::{End, LayerKind, Moment, Overlap, Pass, When};
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// The calls on tp for these gradients.
pub(super) fn ops(step: &TrainingStep, stage: u32, style: Style) -> Vec<Op> {
    match step.training.tensor.style {
        _ if step.training.data.trained.lora_rank.is_some() => Vec::new(),
        TensorStyle::DTensor if step.training.tensor.sequence_parallel => one_by_one(step, stage, style),
        _ => together(step, stage, style).into_iter().collect(),
    }
}

/// PyTorch's DTensor: the gradient of every norm separately, in every micro-batch.
fn one_by_one(step: &TrainingStep, stage: u32, style: Style) -> Vec<Op> {
    let (model, element) = (step.model, step.activation());
    let (norm, norms) = (model.norm_parameters(), model.norms_per_layer());
    let bytes = element.size() * norm;
    let op = |when, which: &str| Op {
        when,
        why: format!(
            "E*h = {} B*{norm} = {bytes} B: gradient of {which}, for which each rank has seen its part of the sequence (torch \
             distributed/fsdp/_fully_shard/_fsdp_param.py; arXiv 2205.05198 section 4.2.2)",
            element.size()
        ),
        ..Op::new(style, Axis::Tp, Collective::AllReduce, element, bytes)
    };
    let mut ops = vec![op(step.in_layers(stage, Pass::Backward, LayerKind::Any, norms), "each norm of a layer")];
    if trains_last_norm(step, stage) {
        let when = When::MicroBatch { pass: Pass::Backward, end: End::Output, calls: 1, one_in: 1 };
        ops.push(op(when, "the last norm"));
    }
    ops
}

/// The all_reduce once per step after all gradients are complete; `None` if there is nothing to reduce.
fn together(step: &TrainingStep, stage: u32, style: Style) -> Option<Op> {
    let (model, element, shards) = (step.model, element_of_sums(step), shards(step));
    let layers: Vec<u32> = step.stages.layers_stored(stage).filter(|layer| step.trains(*layer)).collect();
    let (parameters, what) = if step.training.tensor.sequence_parallel {
        let norm = model.norm_parameters();
        // Layers that predict a further token have norms of both inputs, and one after the layer.
        let further = |layer: &u32| if *layer >= model.layers { 3 * norm } else { 0 };
        let in_layers: u64 = layers
            .iter()
            .map(|layer| model.layer_norm_parameters() + other_parameters(model, *layer) + further(layer))
            .sum();
        let behind = if trains_last_norm(step, stage) { norm } else { 0 };
        let what =
            format!("{in_layers} in {} layers, {behind} after the last: norms{}", layers.len(), others_named(model));
        (in_layers + behind, what)
    } else {
        let of_each = query_key_norms(model);
        let attending = layers.iter().filter(|layer| model.parts_of(**layer).mixer == Some(Mixer::Attention)).count();
        (of_each * attending as u64, format!("{of_each} in each of {attending} layers: norms of queries and keys"))
    };
    let bytes = element.size() * parameters;
    (parameters > 0).then(|| Op {
        when: When::Step { moment: Moment::AfterBackward, calls: 1 },
        why: format!(
            "Eg*parameters = {} B*{parameters} = {bytes} B: gradients of parameters that every rank of tp stores whole and computes in part, {what}{shards} (Megatron-LM core/distributed/finalize_model_grads.py _allreduce_non_tensor_model_parallel_grads)",
            element.size()
        ),
        ..Op::new(style, Axis::Tp, Collective::AllReduce, element, bytes)
    })
}

fn trains_last_norm(step: &TrainingStep, stage: u32) -> bool {
    step.stages.has_output(stage) && !step.training.data.trained.is_part()
}

/// Gradients are accumulated in the type of their reduction; those of Megatron-FSDP once converted to the type of the optimizer.
fn element_of_sums(step: &TrainingStep) -> ElementType {
    match step.training.data.units.rule {
        UnitRule::Buckets => ElementType::Float32,
        _ => step.training.data.gradient_element_type,
    }
}

/// Megatron-FSDP places the norms of a unit after its matrices (param_and_grad_buffer.py build_data_parallel_buffer_index).
fn shards(step: &TrainingStep) -> &'static str {
    match step.training.data.units.rule {
        UnitRule::Buckets => ", as seen by the rank whose shards have the norms; others have few or none of them",
        _ => "",
    }
}

/// Parameters of one layer, apart from its norms, that are marked `sequence_parallel`.
fn other_parameters(model: &Model, layer: u32) -> u64 {
    let (h, parts) = (model.hidden, model.parts_of(layer));
    let mixer = match parts.mixer {
        Some(Mixer::Attention) => other_parameters_of_attention(model),
        Some(Mixer::Linear) => {
            model.attention.linear.as_ref().map_or(0, |linear| other_parameters_of_linear(linear, h))
        }
        None => 0,
    };
    let feed_forward = match (parts.feed_forward, &model.mixture) {
        (Some(FeedForward::Experts), Some(mixture)) => {
            model.router_parameters() + if mixture.shared_expert_gate { h } else { 0 }
        }
        (Some(_), _) if model.biases.feed_forward => h,
        _ => 0,
    };
    mixer + feed_forward
}

fn other_parameters_of_attention(model: &Model) -> u64 {
    let h = model.hidden;
    let attention = match &model.attention.latent {
        Some(latent) => {
            let queries = latent.query_rank.map_or(0, |rank| h * rank + rank);
            let indexer = model.indexer_parameters();
            queries + h * (latent.kv_rank + latent.rotary_dimension) + latent.kv_rank + indexer
        }
        None => query_key_norms(model),
    };
    attention + if model.biases.attention_output { h } else { 0 }
}

/// The norm after the state, if all heads share it, and the bias of the output projection (Megatron-LM core/ssm/gated_delta_net/common.py
/// `out_norm`, `out_proj`). Without sequence parallelism no call carries that norm's gradient.
fn other_parameters_of_linear(linear: &LinearAttention, h: u64) -> u64 {
    linear.replicated_norm_parameters() + if linear.projection_bias { h } else { 0 }
}

/// Names of the parameters apart from norms.
fn others_named(model: &Model) -> String {
    [
        (model.biases.attention_output || model.biases.feed_forward, ", biases of row-parallel linears"),
        (model.attention.latent.is_some(), ", projections to the compressed width"),
        (model.mixture.is_some(), ", routers"),
    ]
    .into_iter()
    .filter_map(|(there, name)| there.then_some(name))
    .collect()
}

/// Norms over all heads are divided, as are the heads.
fn query_key_norms(model: &Model) -> u64 {
    match model.attention.query_key_norm {
        QueryKeyNorm::EachHead => 2 * model.attention.head_dimension,
        QueryKeyNorm::None | QueryKeyNorm::AllHeads => 0,
    }
}

// Tensor parallelism without sequence parallelism: the all_reduces of Megatron-LM's operators f and g in every layer.
//
// Attention is divided by heads and the feed-forward by its inner width, so that a column-parallel linear feeds a row-parallel one and
// nothing is gathered between them. Linear attention is divided by heads in the same way. Standalone linears are below. Layers with experts
// require sequence parallelism (see `sequence`); their routed experts are in `expert`.

/// Source of the operators.
const SOURCE: &str = "arXiv 1909.08053 section 3; Megatron-LM core/tensor_parallel/mappings.py, layers.py";

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn tensor_ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    if step.training.tensor.sequence_parallel || step.layout.degrees.tp == 1 {
        return Ok(Vec::new());
    }
    let mut ops = match step.training.tensor.linears {
        Linears::Pair => pair(step, stage),
        Linears::Column => column(step, stage)?,
        Linears::Row => row(step, stage)?,
    };
    ops.extend(self::ops(step, stage, Style::Tensor));
    Ok(ops)
}

/// g reduces the outputs of the row-parallel linears in the forward pass, f the input gradients of the column-parallel ones in the backward
/// pass.
fn pair(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let (bytes, formula) = step.activation_bytes();
    let op = |pass, calls, overlap, what: &str| Op {
        when: step.in_layers(stage, pass, LayerKind::Any, calls),
        overlap,
        why: format!("{formula}: {what} ({SOURCE})"),
        ..Op::new(Style::Tensor, Axis::Tp, Collective::AllReduce, step.activation(), bytes)
    };
    // Attention and feed-forward with the same input are summed before they are reduced (GPT-NeoX gpt_j_residual).
    let (reductions, outputs) = match step.model.parallel_residual {
        true => (
            1,
            "sum of the outputs of the row-parallel linears (EleutherAI/gpt-neox megatron/model/transformer.py)"
                .to_owned(),
        ),
        false => {
            let which = format!("outputs of the row-parallel linears ({})", outputs_of_blocks(step.model));
            (step.model.blocks_per_layer(), which)
        }
    };
    let mut ops = vec![op(Pass::Forward, reductions, Overlap::Exposed, &format!("{outputs}, forward"))];
    if repeats_forward(step) {
        let again = format!("{outputs}, forward again for the backward pass (full recomputation, arXiv 2205.05198)");
        ops.push(op(Pass::Recompute, reductions, Overlap::Exposed, &again));
    }
    for kind in feed_forwards_repeated(step) {
        let again = op(Pass::Recompute, 1, Overlap::Exposed, "output of a feed-forward that is repeated");
        ops.push(Op { when: step.in_layers(stage, Pass::Recompute, kind, 1), ..again });
    }
    let (gradients, calls) = input_gradients(step);
    ops.push(op(Pass::Backward, calls, Overlap::WeightGradient, &gradients));
    ops
}

/// The linears that reduce their input gradients, and their number per layer.
fn input_gradients(step: &TrainingStep) -> (String, u64) {
    match step.training.tensor.style {
        TensorStyle::Megatron => {
            let which = inputs_of_blocks(step.model);
            let gradients = format!(
                "input gradients of the column-parallel linears ({which}), backward, overlapping with the weight gradients"
            );
            (gradients, step.model.blocks_per_layer())
        }
        TensorStyle::DTensor => {
            let feed_forward = if step.model.family.gated { 2 } else { 1 };
            let which = "input gradients of the column-parallel linears, each alone (q, k, v, gate, up), backward (torch \
                         distributed/tensor/parallel/style.py ColwiseParallel)";
            (which.to_owned(), 3 + feed_forward)
        }
    }
}

/// The row-parallel linears that end the blocks of a model. Linear attention ends with one as attention does (Megatron-LM
/// core/ssm/gated_delta_net/common.py, core/ssm/mamba_mixer.py, `out_proj`).
fn outputs_of_blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "attention projection, fc2",
        Some(_) => "projections of attention and linear attention, fc2",
    }
}

/// The column-parallel linears that begin them (in the same files, `in_proj`).
fn inputs_of_blocks(model: &Model) -> &'static str {
    match model.attention.linear {
        None => "QKV, fc1",
        Some(_) => "QKV of attention, in_proj of linear attention, fc1",
    }
}

// Standalone linears: each has a complete input and a complete output, without the savings of a column-row pair.
//
// A column-parallel linear alone gathers its output (`gather_output=True`), a row-parallel linear alone splits its complete input itself
// (`input_is_parallel=False`) and reduces its output. The Megatron pair saves the difference.

/// A linear of a layer: its name, and the widths of its input and output.
struct Linear {
    name: &'static str,
    input: u64,
    output: u64,
    output_formula: &'static str,
}

/// The linears of a dense layer, with this many key and value heads.
fn linears(model: &Model, kv_heads: u64, qkv_formula: &'static str) -> [Linear; 4] {
    let (h, f, heads) = (model.hidden, model.feed_forward, model.attention.heads * model.attention.head_dimension);
    let (gates, fc1) = if model.family.gated { (2, "2f (up and gate)") } else { (1, "f") };
    [
        Linear {
            name: "QKV",
            input: h,
            output: heads + 2 * kv_heads * model.attention.head_dimension,
            output_formula: qkv_formula,
        },
        Linear { name: "attention projection", input: heads, output: h, output_formula: "h" },
        Linear { name: "fc1", input: h, output: gates * f, output_formula: fc1 },
        Linear { name: "fc2", input: f, output: h, output_formula: "h" },
    ]
}

/// Column-parallel linears: outputs are gathered forward, input gradients reduced backward.
fn column(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
    // Ranks that share a key and value head all compute it, and all copies are gathered.
    let replicated = model.attention.kv_heads < t;
    let formula = if replicated { "hd(a + 2t), key and value heads held more than once" } else { "hd(a + 2k)" };
    let source = "gather_output=True: Megatron-LM core/tensor_parallel/layers.py ColumnParallelLinear, mappings.py";
    let mut ops = Vec::new();
    for linear in linears(model, model.attention.kv_heads.max(t), formula) {
        let gather =
            Call { collective: Collective::AllGather, overlap: Overlap::Exposed, width: linear.output, source };
        let what = format!("output of {}, width {}", linear.name, linear.output_formula);
        ops.push(gather.op(step, stage, Pass::Forward, &what)?);
        if repeats(step, &linear) {
            ops.push(gather.op(step, stage, Pass::Recompute, &format!("{what}, again"))?);
        }
        let (collective, overlap) = (Collective::AllReduce, Overlap::WeightGradient);
        let reduce = Call { collective, overlap, width: linear.input, source };
        ops.push(reduce.op(step, stage, Pass::Backward, &format!("input gradient of {}", linear.name))?);
    }
    Ok(ops)
}

/// Whether the forward calls of a linear are repeated for the backward pass.
fn repeats(step: &TrainingStep, linear: &Linear) -> bool {
    repeats_forward(step) || linear.name.starts_with("fc") && !feed_forwards_repeated(step).is_empty()
}

/// Row-parallel linears: outputs are reduced forward, input gradients gathered backward.
fn row(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let source = "input_is_parallel=False: Megatron-LM core/tensor_parallel/layers.py RowParallelLinear, mappings.py";
    let mut ops = Vec::new();
    for linear in linears(step.model, step.model.attention.kv_heads, "hd(a + 2k)") {
        let (collective, overlap) = (Collective::AllReduce, Overlap::Exposed);
        let reduce = Call { collective, overlap, width: linear.output, source };
        let what = format!("output of {}, width {}", linear.name, linear.output_formula);
        ops.push(reduce.op(step, stage, Pass::Forward, &what)?);
        if repeats(step, &linear) {
            ops.push(reduce.op(step, stage, Pass::Recompute, &format!("{what}, again"))?);
        }
        let gather = Call { collective: Collective::AllGather, overlap, width: linear.input, source };
        let what = format!("input gradient of {}, whose input was split", linear.name);
        ops.push(gather.op(step, stage, Pass::Backward, &what)?);
    }
    Ok(ops)
}

/// A call on a buffer of the width of a linear's input or output.
struct Call {
    collective: Collective,
    overlap: Overlap,
    width: u64,
    source: &'static str,
}

impl Call {
    fn op(&self, step: &TrainingStep, stage: u32, pass: Pass, what: &str) -> Result<Op> {
        let (element, tokens) = (step.activation(), step.tokens_per_micro_batch());
        let bytes = product(what, &[element.size(), tokens, self.width])?;
        Ok(Op {
            when: step.in_layers(stage, pass, LayerKind::Any, 1),
            overlap: self.overlap,
            why: format!(
                "E*b*(s/c)*width = {} B*{tokens} tokens*{} = {bytes} B: {what} ({})",
                element.size(),
                self.width,
                self.source
            ),
            ..Op::new(Style::Tensor, Axis::Tp, self.collective, element, bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    // Known answers: table 1 of the communications of arXiv 1909.08053 (two all_reduces forward, two backward in every
    // layer), and bytes per step computed for published runs.
    use crate::layout::Axis;
    use crate::workload::Style;
    use crate::workload::op::{Overlap, Pass};
    use crate::workload::style::testing::{refusal, rows, suite_of, training, wire, with_steps};
    use commgauge_base::collective::Collective::{AllGather, AllReduce};
    use serde_json::json;

    const EIGHT_B: &str = "sequence = 8192\nmicro_batches = 3";
    /// E b s h of llama-3-8b: 2 x 8192 x 4096.
    const HIDDEN: u64 = 67_108_864;

    #[test]
    fn indivisible_layers_are_refused() {
        let mixtral = "sequence = 4096\nmicro_batches = 1";
        let alone = format!("{EIGHT_B}\nlinears = 'column'");
        let with_sequence = format!("{alone}\nsequence_parallel = true");
        for (preset, written, layout, ranks, expected) in [
            (
                "mixtral-8x7b",
                mixtral,
                "tp = 2",
                2,
                "tp = 2 with the experts of mixtral-8x7b needs sequence parallelism",
            ),
            (
                "llama-3-8b",
                with_sequence.as_str(),
                "tp = 2",
                2,
                "linears = column needs sequence_parallel = false; found",
            ),
            ("llama-3-8b", EIGHT_B, "tp = 5", 5, "tp = 5 does not divide the 32 query heads of llama-3-8b"),
            ("llama-3-8b", EIGHT_B, "tp = 64", 64, "tp = 64 does not divide the 32 query heads of llama-3-8b"),
            ("qwen2.5-0.5b", EIGHT_B, "tp = 7", 7, "tp = 7 does not divide the 4864 inner width of qwen2.5-0.5b"),
        ] {
            let message = refusal(&training(preset, written, layout), ranks);
            assert!(message.contains(expected), "{preset} {layout}: {message}");
        }
    }

    #[test]
    fn heads_that_neither_divide_nor_are_divided_are_refused() {
        let config = json!({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 12, "num_key_value_heads": 3,
        "num_hidden_layers": 2, "head_dim": 16, "intermediate_size": 144, "vocab_size": 256, "max_position_embeddings": 512});
        let text = |linears: &str| {
            format!("[training]\nsequence = 128\nmicro_batches = 1\nlinears = '{linears}'\n[layout]\ntp = 2")
        };
        let message = refusal(&suite_of(&config, &text("pair")), 2);
        assert!(message.contains("tp = 2 neither divides the 3 key and value heads"), "{message}");
        let message = refusal(&suite_of(&config, &text("row").replace("tp = 2", "tp = 3")), 3);
        assert!(message.contains("linears = row: tp = 3 does not divide the 64 hidden width"), "{message}");
    }

    #[test]
    fn the_pair_reduces_twice_forward_and_twice_backward_in_every_layer() {
        let forward = (AllReduce, Some(Pass::Forward), HIDDEN, 2, Overlap::Exposed);
        let again = (AllReduce, Some(Pass::Recompute), HIDDEN, 2, Overlap::Exposed);
        let backward = (AllReduce, Some(Pass::Backward), HIDDEN, 2, Overlap::WeightGradient);
        for (recompute, expected) in [
            ("none", vec![forward, backward]),
            ("selective", vec![forward, backward]),
            ("full", vec![forward, again, backward]),
        ] {
            let suite = training("llama-3-8b", &format!("{EIGHT_B}\nrecompute = '{recompute}'"), "tp = 8\npp = 2");
            with_steps(&suite, 16, |step| {
                let rows = rows(step, 1, Style::Tensor);
                assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{recompute}");
                // Sixteen layers of the stage, three micro-batches.
                assert!(rows.iter().all(|row| row.axis == Axis::Tp && row.calls_per_step == 2 * 16 * 3), "{rows:?}");
            });
        }
    }

    #[test]
    fn context_parallelism_and_larger_micro_batches_change_the_bytes() {
        for (written, layout, ranks, expected) in [
            ("sequence = 8192\nmicro_batches = 1", "tp = 2\ncp = 4", 8, HIDDEN / 4),
            ("sequence = 8192\nmicro_batches = 1\nmicro_batch = 3", "tp = 2", 2, HIDDEN * 3),
            ("sequence = 8192\nmicro_batches = 1\nactivation_element_type = 'float32'", "tp = 2", 2, HIDDEN * 2),
        ] {
            with_steps(&training("llama-3-8b", written, layout), ranks, |step| {
                assert!(rows(step, 0, Style::Tensor).iter().all(|row| row.bytes == expected), "{written} {layout}");
            });
        }
    }

    #[test]
    fn published_runs_have_their_published_bytes_per_step() {
        // GB that one rank sends: 16 (t-1)/t T_d h L/p in bfloat16, half as much again if every layer is recomputed.
        for (preset, written, layout, ranks, expected) in [
            // arXiv 2104.04473 table 2: GPT-3 175B on 1536 A100.
            (
                "gpt3-175b",
                "sequence = 2048\nglobal_batch = 1536\nrecompute = 'full'",
                "tp = 8\npp = 12\ndp = 16",
                1536,
                "405.9",
            ),
            ("llama-3-70b", "sequence = 2048\nglobal_batch = 8", "tp = 8\ndp = 8", 64, "18.8"),
            ("llama-3-70b", "sequence = 8192\nglobal_batch = 64", "tp = 8\ndp = 8", 64, "601.3"),
            ("llama-2-7b", "sequence = 4096\nglobal_batch = 1024", "tp = 2\ndp = 512", 1024, "8.6"),
            ("llama-2-7b", "sequence = 4096\nglobal_batch = 1024", "tp = 2\ndp = 64", 128, "68.7"),
        ] {
            with_steps(&training(preset, written, layout), ranks, |step| {
                let stage = step.stages().count() / 2;
                let (all, exposed) = wire(step, stage, Style::Tensor, Axis::Tp);
                assert_eq!(format!("{:.1}", all as f64 * 1e-9), expected, "{preset} {layout}");
                // Forward, and again in a recomputation.
                let hidden = if written.contains("full") { 3 } else { 2 };
                assert_eq!(exposed * hidden, all * (hidden - 1), "{preset} {layout}");
            });
        }
    }

    #[test]
    fn linears_alone_gather_or_reduce_their_own_output() {
        // 2 B x 8192 tokens, times widths of llama-3-8b: QKV 128 (32 + 2 x 8), both inputs of the gated feed-forward 2 x 14336.
        let (qkv, fc1, inner) = (16_384 * 6144, 16_384 * 28_672, 16_384 * 14_336);
        let (forward, backward) = (Some(Pass::Forward), Some(Pass::Backward));
        let (exposed, overlapped) = (Overlap::Exposed, Overlap::WeightGradient);
        for (linears, expected) in [
            (
                "column",
                vec![
                    (AllGather, forward, qkv, 1, exposed),
                    (AllReduce, backward, HIDDEN, 1, overlapped),
                    (AllGather, forward, HIDDEN, 1, exposed),
                    (AllReduce, backward, HIDDEN, 1, overlapped),
                    (AllGather, forward, fc1, 1, exposed),
                    (AllReduce, backward, HIDDEN, 1, overlapped),
                    (AllGather, forward, HIDDEN, 1, exposed),
                    (AllReduce, backward, inner, 1, overlapped),
                ],
            ),
            (
                "row",
                vec![
                    (AllReduce, forward, qkv, 1, exposed),
                    (AllGather, backward, HIDDEN, 1, exposed),
                    (AllReduce, forward, HIDDEN, 1, exposed),
                    (AllGather, backward, HIDDEN, 1, exposed),
                    (AllReduce, forward, fc1, 1, exposed),
                    (AllGather, backward, HIDDEN, 1, exposed),
                    (AllReduce, forward, HIDDEN, 1, exposed),
                    (AllGather, backward, inner, 1, exposed),
                ],
            ),
        ] {
            let suite = training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'"), "tp = 8");
            with_steps(&suite, 8, |step| {
                let rows = rows(step, 0, Style::Tensor);
                assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), expected, "{linears}");
            });
        }
    }

    #[test]
    fn linears_alone_repeat_their_forward_calls_under_full_recomputation() {
        for linears in ["column", "row"] {
            let suite =
                training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'\nrecompute = 'full'"), "tp = 8");
            with_steps(&suite, 8, |step| {
                let rows = rows(step, 0, Style::Tensor);
                let of = |pass| -> Vec<u64> {
                    rows.iter().filter(|row| row.pass == Some(pass)).map(|row| row.bytes).collect()
                };
                assert_eq!((of(Pass::Forward), rows.len()), (of(Pass::Recompute), 12), "{linears}");
            });
        }
    }

    #[test]
    fn replicated_key_and_value_heads_widen_the_gathered_output() {
        // 8 key and value heads: 16 ranks gather 16, of which 8 are copies. Row-parallel weights are cut elsewhere.
        for (linears, tp, width) in [("column", 8, 6144), ("column", 16, 8192), ("row", 16, 6144)] {
            let suite = training("llama-3-8b", &format!("{EIGHT_B}\nlinears = '{linears}'"), &format!("tp = {tp}"));
            with_steps(&suite, tp, |step| {
                assert_eq!(rows(step, 0, Style::Tensor)[0].bytes, 16_384 * width, "{linears} {tp}");
            });
        }
    }

    #[test]
    fn norms_of_queries_and_keys_are_reduced_once_in_a_step() {
        // Qwen3-0.6B: 28 layers, two norms as wide as a head of 128, gradients of 4 B.
        let config = json!({"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024, "head_dim": 128,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
        "tie_word_embeddings": true, "attention_bias": false, "max_position_embeddings": 40960});
        let suite = suite_of(&config, "[training]\nsequence = 4096\nmicro_batches = 5\n[layout]\ntp = 2");
        with_steps(&suite, 2, |step| {
            let rows = rows(step, 0, Style::Tensor);
            let norms = rows.iter().find(|row| row.pass.is_none()).unwrap();
            assert_eq!((norms.bytes, norms.calls_per_step, norms.overlap), (28 * 256 * 4, 1, Overlap::Exposed));
        });
    }

    #[test]
    fn a_parallel_residual_is_reduced_once_forward() {
        let suite = training("gpt-neox-20b", "sequence = 2048\nmicro_batches = 1", "tp = 2");
        with_steps(&suite, 2, |step| {
            let rows = rows(step, 0, Style::Tensor);
            let calls: Vec<_> = rows.iter().map(|row| (row.pass, row.calls)).collect();
            assert_eq!(calls, [(Some(Pass::Forward), 1), (Some(Pass::Backward), 2)]);
        });
    }

    #[test]
    fn linears_that_are_divided_alone_reduce_their_input_gradients_alone() {
        // q, k, v, gate and up: five sums backward where Megatron-LM has two (transformers base_model_tp_plan).
        let forward = (AllReduce, Some(Pass::Forward), HIDDEN, 2, Overlap::Exposed);
        let backward = (AllReduce, Some(Pass::Backward), HIDDEN, 5, Overlap::WeightGradient);
        for written in ["tensor_style = 'dtensor'", "framework = 'hf'"] {
            let suite = training("llama-3-8b", &format!("{EIGHT_B}\n{written}"), "tp = 8");
            with_steps(&suite, 8, |step| {
                let rows = rows(step, 0, Style::Tensor);
                assert_eq!(rows.iter().map(|row| row.short()).collect::<Vec<_>>(), [forward, backward], "{written}");
            });
        }
    }
}
