//! Context parallelism: how attention gets the keys and values of tokens on other ranks.
//!
//! Gradients of the parameters are not part of this style: `data` reduces them over dp and cp together.

use crate::config::step::{ContextStyle, Recompute, RecomputeModule};
use crate::layout::Axis;
use crate::workload::op::{LayerKind, Overlap, Pass};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

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
    /// Forward, and again if the core attention is recomputed: its communication is part of it.
    fn forward_passes(&self) -> Vec<Pass> {
        let tensor = &self.step.training.tensor;
        match tensor.recompute == Recompute::Full || tensor.repeats(RecomputeModule::CoreAttention) {
            false => vec![Pass::Forward],
            true => vec![Pass::Forward, Pass::Recompute],
        }
    }

    /// Keys and values pass round the ring: c-1 blocks forward, c-1 backward, and c-1 blocks of their gradients, because the backward pass
    /// starts with the block that arrived last and ends with the rank's own.
    fn ring(&self, axis: Axis) -> Vec<Op> {
        let ranks = u64::from(self.step.layout.group_size(axis));
        // After an exchange over the inner ranks a rank has their tokens and its share of the heads: equally many elements.
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
        ops.push(block(gradient, Pass::Backward, "gradients of keys and values, towards their own rank"));
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

// Elements of one token's queries, keys, values and attention output on a rank, as context parallelism exchanges
// them.
//
// With latent attention these are the keys and values of every head after the up-projection, as used by attention
// (Megatron-LM core/transformer/multi_latent_attention.py).

/// Widths of one token on one rank of tp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    /// Query heads.
    heads: u64,
    /// Key and value heads, with the copies that an all_to_all needs.
    kv_heads: u64,
    /// Key and value heads without those copies.
    kv_heads_per_rank: u64,
    /// Elements of a head's query or key.
    key: u64,
    /// Elements of a head's value.
    value: u64,
}

/// Tensors of equal width that are exchanged one after the other.
struct Exchanged {
    pub name: &'static str,
    pub elements: u64,
    pub formula: String,
    pub calls: u64,
}

impl Width {
    /// Heads are exchanged for tokens over `exchanging` ranks; 1 without an exchange.
    pub fn of(step: &TrainingStep, exchanging: u32) -> Width {
        let (model, t) = (step.model, u64::from(step.layout.degrees.tp));
        let heads = model.attention.heads / t;
        let (kv_heads_per_rank, value) = match &model.attention.latent {
            Some(latent) => (heads, latent.value_dimension),
            // If there are fewer heads than ranks, each rank has a copy of one.
            None => (model.kv_heads_per_rank(t), model.attention.head_dimension),
        };
        let kv_heads = kv_heads_per_rank.max(u64::from(exchanging));
        Width { heads, kv_heads, kv_heads_per_rank, key: model.attention.head_dimension, value }
    }

    /// Keys and values together.
    pub fn keys_and_values(&self) -> u64 {
        self.kv_heads * (self.key + self.value)
    }

    /// Formula of the numbers of elements.
    pub fn formula(&self) -> String {
        if self.key == self.value {
            return format!("2*{} kv heads*{}{}", self.kv_heads, self.key, self.copies());
        }
        format!("{} heads*({} + {})", self.kv_heads, self.key, self.value)
    }

    /// Queries, keys, values and output, grouped by equal width.
    pub fn tensors(&self) -> Vec<Exchanged> {
        let exchanged = |name, heads: u64, width: u64, calls| Exchanged {
            name,
            elements: heads * width,
            formula: format!("{heads} heads*{width}"),
            calls,
        };
        let copied = |mut exchanged: Exchanged| {
            exchanged.formula += &self.copies();
            exchanged
        };
        if self.key == self.value {
            return vec![
                exchanged("queries, and the attention's output", self.heads, self.key, 2),
                copied(exchanged("keys, and values", self.kv_heads, self.key, 2)),
            ];
        }
        vec![
            exchanged("queries", self.heads, self.key, 1),
            exchanged("keys", self.kv_heads, self.key, 1),
            exchanged("values, and the attention's output", self.heads, self.value, 2),
        ]
    }

    fn copies(&self) -> String {
        match self.kv_heads == self.kv_heads_per_rank {
            true => String::new(),
            false => format!(" ({} kv heads copied, one for each rank)", self.kv_heads_per_rank),
        }
    }
}

#[cfg(test)]
mod tests {
    // Bytes moved by context parallelism: every row of the styles' table, and uneven divisions.
    use crate::config::Suite;
    use crate::layout::Axis;
    use crate::workload::op::Pass;
    use crate::workload::op::When::Layer;
    use crate::workload::step::Step;
    use crate::workload::{Op, Style};
    use commgauge_base::collective::Collective;
    use commgauge_base::error::Result;
    use std::path::Path;

    /// The ops of the style on a rank of the first stage, with the ranks of each op's groups.
    fn ops(model: &str, layout: &str, training: &str, ranks: u32) -> Result<Vec<(Op, u32)>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let layout = layout.replace(' ', "\n").replace('=', " = ");
        let text = format!("[model]\npreset = '{model}'\n[training]\n{training}\n[layout]\n{layout}\n");
        let suite = Suite::parse(&path, &text)?;
        let steps = Step::all_of(&suite.layouts[0], ranks)?;
        let ops = steps[0].ops_of_stage(0)?.into_iter().filter(|op| op.style == Style::Context);
        Ok(ops.map(|op| (op.clone(), steps[0].group_size(op.axis))).collect())
    }

    /// Bytes sent in one layer and micro-batch.
    fn wire_per_layer((op, ranks): &(Op, u32)) -> u64 {
        op.wire_bytes(*ranks, op.when.count_per_layer().unwrap()).unwrap()
    }

    fn pass(op: &Op) -> Pass {
        let Layer { pass, .. } = op.when else { unreachable!("every call is in a layer") };
        pass
    }

    #[test]
    fn each_style_moves_what_its_formula_says() {
        // Llama 3 8B, tp 2, cp 4, 8192 tokens: K = 2 B * 2048 tokens * 2 * 4 kv heads * 128; queries as wide as 16 heads. Sources:
        // TransformerEngine context_parallel.py; arXiv 2407.21783 section 3.3.2; arXiv 2309.14509 section 3.2.
        let (k, c) = (2 * 2048 * 2 * 4 * 128, 4);
        let ulysses = |c: u64| 2 * 2048 * (2 * 16 + 2 * 4) * 128 * (c - 1) / c;
        for (training, expected) in [
            ("", 3 * (c - 1) * k),
            ("context_style = 'ring'", 3 * (c - 1) * k),
            ("context_style = 'ring'\ncontext_gradient_element_type = 'fp32'", 4 * (c - 1) * k),
            ("context_style = 'ring'\nrecompute = 'full'", 4 * (c - 1) * k),
            ("context_style = 'ring'\nrecompute = 'selective'", 4 * (c - 1) * k),
            ("context_style = 'all_gather'", 3 * (c - 1) * k),
            ("context_style = 'all_gather'\nrecompute = 'full'", 4 * (c - 1) * k),
            // 2 (c-1) K gathered, and c blocks of gradients of 4 B (torch experimental/_context_parallel/_attention.py).
            ("context_style = 'pytorch'", 2 * (c - 1) * k + c * 2 * k),
            ("context_style = 'pytorch'\ncontext_gradient_element_type = 'bf16'", 2 * (c - 1) * k + c * k),
            ("framework = 'fsdp2'", 2 * (c - 1) * k + c * 2 * k),
            ("context_style = 'all_to_all'", 2 * ulysses(c)),
            ("context_style = 'all_to_all'\nrecompute = 'full'", 3 * ulysses(c)),
            ("context_style = 'hybrid'\ncontext_inner = 2", 2 * ulysses(2) + 3 * k),
        ] {
            let training = format!("sequence = 8192\nmicro_batches = 8\n{training}");
            let ops = ops("llama-3-8b", "tp=2 cp=4", &training, 8).unwrap();
            assert_eq!(ops.iter().map(wire_per_layer).sum::<u64>(), expected, "{training}");
            for (op, _) in &ops {
                assert!(op.why.contains(&op.bytes_total.0.to_string()), "{}", op.why);
                assert_eq!(op.when.count_per_step(8).unwrap() % (32 * 8), 0, "32 layers, 8 micro-batches");
            }
        }
    }

    #[test]
    fn the_calls_of_each_style_are_those_of_its_code() {
        use Collective::{AllGather, AllToAll, ReduceScatter, SendRecv};
        use Pass::{Backward, Forward};
        for (style, expected) in [
            ("'ring'", vec![(SendRecv, Forward, 3), (SendRecv, Backward, 3), (SendRecv, Backward, 3)]),
            ("'all_gather'", vec![(AllGather, Forward, 1), (AllGather, Backward, 1), (ReduceScatter, Backward, 1)]),
            (
                "'all_to_all'",
                vec![(AllToAll, Forward, 2), (AllToAll, Forward, 2), (AllToAll, Backward, 2), (AllToAll, Backward, 2)],
            ),
        ] {
            let training = format!("sequence = 8192\nmicro_batches = 8\ncontext_style = {style}");
            let ops = ops("llama-3-8b", "cp=4", &training, 4).unwrap();
            let calls: Vec<_> =
                ops.iter().map(|(op, _)| (op.collective, pass(op), op.when.count_per_layer().unwrap())).collect();
            assert_eq!(calls, expected, "{style}");
            assert!(ops.iter().all(|(op, _)| op.overlap.is_exposed() == (style != "'ring'")), "{style}");
        }
    }

    #[test]
    fn the_long_context_stage_of_llama_3_405b_sends_23_8_gigabytes_around_its_ring() {
        // arXiv 2407.21783 table 4: 131,072 tokens, tp 8, cp 16, pp 16, dp 8, 16 M tokens in a batch; 3(c-1)K in every layer and
        // micro-batch, on average over the stages.
        let training = "sequence = 131072\nglobal_batch = 128";
        let ops = ops("llama-3.1-405b", "tp=8 cp=16 pp=16 dp=8", training, 16_384).unwrap();
        let of_stage = |op: &(Op, u32)| op.0.wire_bytes(op.1, op.0.when.count_per_step(16).unwrap()).unwrap();
        let first_stage = ops.iter().map(of_stage).sum::<u64>() as f64;
        // The first stage has 7 of the 126 layers.
        let gigabytes = first_stage / 7.0 * 126.0 / 16.0 * 1e-9;
        assert_eq!(format!("{gigabytes:.1}"), "23.8");
    }

    #[test]
    fn few_key_and_value_heads_are_copied() {
        // tp 16 over 8 kv heads: every rank has a copy of one, as much as with tp 8.
        let ring =
            |tp: u32| ops("llama-3-8b", &format!("tp={tp} cp=2"), "sequence = 8192\nmicro_batches = 8", 32).unwrap();
        assert_eq!(ring(16)[0].0.bytes_total, ring(8)[0].0.bytes_total);
        // cp 4 over the 2 kv heads left by tp 4: two copies of each are exchanged.
        let training = "sequence = 8192\nmicro_batches = 8\ncontext_style = 'all_to_all'";
        let ulysses = ops("llama-3-8b", "tp=4 cp=4", training, 16).unwrap();
        let keys = ulysses.iter().find(|(op, _)| op.why.contains("keys, and values")).unwrap();
        assert_eq!(keys.0.bytes_total.0, 2 * 2048 * 4 * 128);
        assert!(keys.0.why.contains("2 kv heads copied"), "{}", keys.0.why);
    }

    #[test]
    fn latent_attention_exchanges_keys_and_values_of_every_head() {
        // DeepSeek-V3: 128 heads, keys of 192 and values of 128.
        let ring =
            ops("deepseek-v3", "tp=2 cp=2", "sequence = 4096\nmicro_batches = 8\nsequence_parallel = true", 4).unwrap();
        assert_eq!(ring[0].0.bytes_total.0, 2 * 2048 * 64 * (192 + 128));
        let training = "sequence = 4096\nmicro_batches = 8\nsequence_parallel = true\ncontext_style = 'all_to_all'";
        let ulysses = ops("deepseek-v3", "tp=2 cp=2", training, 4).unwrap();
        let forward = ulysses.iter().filter(|(op, _)| pass(op) == Pass::Forward);
        assert_eq!(forward.map(wire_per_layer).sum::<u64>(), 2048 * 64 * (2 * 192 + 2 * 128));
    }

    #[test]
    fn hybrid_runs_in_two_kinds_of_groups() {
        let training = "sequence = 8192\nmicro_batches = 8\ncontext_style = 'hybrid'\ncontext_inner = 4";
        let ops = ops("llama-3-8b", "cp=8", training, 8).unwrap();
        for (axis, collective, ranks) in
            [(Axis::CpInner, Collective::AllToAll, 4), (Axis::CpOuter, Collective::SendRecv, 2)]
        {
            let of_axis: Vec<_> = ops.iter().filter(|(op, _)| op.axis == axis).collect();
            assert!(!of_axis.is_empty() && of_axis.iter().all(|(op, n)| op.collective == collective && *n == ranks));
        }
    }

    #[test]
    fn one_rank_exchanges_nothing() {
        assert!(ops("llama-3-8b", "tp=2", "sequence = 8191\nmicro_batches = 8", 2).unwrap().is_empty());
    }

    #[test]
    fn uneven_divisions_are_refused_with_the_nearest_even_one() {
        for (layout, training, expected) in [
            ("cp=4", "sequence = 8188", "a sequence of 8188 is not a multiple of 2*cp = 8: every rank has two chunks"),
            ("cp=4", "sequence = 8188", "nearest: 8184, 8192"),
            ("cp=4", "sequence = 8188\ncontext_style = 'all_gather'", "nearest: 8184, 8192"),
            ("cp=4", "sequence = 8190\ncontext_style = 'all_to_all'", "not a multiple of cp = 4; nearest: 8188, 8192"),
            ("cp=8", "sequence = 12", "nearest: 16"),
            (
                "cp=16 tp=4",
                "sequence = 8192\ncontext_style = 'all_to_all'",
                "cp = 16 does not divide the 8 query heads of a rank of tp of llama-3-8b (num_attention_heads / tp); nearest that do: 8",
            ),
            (
                "cp=4",
                "sequence = 8192\ncontext_style = 'hybrid'",
                "hybrid with context_inner = 1 of cp = 4; accepted: 2",
            ),
            (
                "cp=4",
                "sequence = 8192\ncontext_style = 'hybrid'\ncontext_inner = 3",
                "inner groups of 3 ranks do not divide cp = 4",
            ),
            (
                "cp=4",
                "sequence = 8192\ncontext_inner = 2",
                "context_inner = 2 needs context_style = hybrid; found context_style = ring",
            ),
            ("cp=4", "sequence = 8192\ncontext_style = 'star'", "accepted: ring, all_gather, all_to_all, hybrid"),
        ] {
            let error = ops("llama-3-8b", layout, &format!("{training}\nmicro_batches = 8"), 64).unwrap_err();
            assert!(error.to_string().contains(expected), "{layout} {training}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        let training = "sequence = 1024\nmicro_batches = 8\ncontext_style = 'all_to_all'";
        let error = ops("qwen2.5-14b", "cp=5", training.replace("1024", "1280").as_str(), 5).unwrap_err();
        assert!(error.to_string().contains("cp = 5 neither divides the 8 key and value heads of a rank"), "{error}");
    }
}
