//! Standalone linears: each has a complete input and a complete output, without the savings of a column-row pair.
//!
//! A column-parallel linear alone gathers its output (`gather_output=True`), a row-parallel linear alone splits its
//! complete input itself (`input_is_parallel=False`) and reduces its output. The difference to these is what the
//! Megatron pair saves.

use crate::config::Model;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::style::product::product;
use crate::workload::style::recompute::repeats_forward;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;

/// A linear of a layer: its name, and how wide its input and output are.
struct Linear {
    name: &'static str,
    input: u64,
    output: u64,
    output_formula: &'static str,
}

/// The linears of a dense layer, with this many key and value heads.
fn linears(model: &Model, kv_heads: u64, qkv_formula: &'static str) -> [Linear; 4] {
    let (h, f, heads) = (model.hidden, model.feed_forward, model.attention.heads * model.attention.head_dimension);
    let (gates, fc1) = if model.family.gated() { (2, "2f (up and gate)") } else { (1, "f") };
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
pub(super) fn column(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
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
        if repeats_forward(step) {
            ops.push(gather.op(step, stage, Pass::Recompute, &format!("{what}, again"))?);
        }
        let (collective, overlap) = (Collective::AllReduce, Overlap::WeightGradient);
        let reduce = Call { collective, overlap, width: linear.input, source };
        ops.push(reduce.op(step, stage, Pass::Backward, &format!("input gradient of {}", linear.name))?);
    }
    Ok(ops)
}

/// Row-parallel linears: outputs are reduced forward, input gradients gathered backward.
pub(super) fn row(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let source = "input_is_parallel=False: Megatron-LM core/tensor_parallel/layers.py RowParallelLinear, mappings.py";
    let mut ops = Vec::new();
    for linear in linears(step.model, step.model.attention.kv_heads, "hd(a + 2k)") {
        let (collective, overlap) = (Collective::AllReduce, Overlap::Exposed);
        let reduce = Call { collective, overlap, width: linear.output, source };
        let what = format!("output of {}, width {}", linear.name, linear.output_formula);
        ops.push(reduce.op(step, stage, Pass::Forward, &what)?);
        if repeats_forward(step) {
            ops.push(reduce.op(step, stage, Pass::Recompute, &format!("{what}, again"))?);
        }
        let gather = Call { collective: Collective::AllGather, overlap, width: linear.input, source };
        let what = format!("input gradient of {}, whose input was cut", linear.name);
        ops.push(gather.op(step, stage, Pass::Backward, &what)?);
    }
    Ok(ops)
}

/// A call on a buffer as wide as a linear's input or output.
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
