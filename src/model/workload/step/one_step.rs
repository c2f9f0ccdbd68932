//! One step, of either kind: the ops of each of its stages, and their totals.

use super::layout_on;
use super::serving::{Phase, ServingStep};
use super::stages::Stages;
use super::training::TrainingStep;
use crate::config::step::FrameworkChoices;
use crate::config::{LayoutTable, Model};
use crate::layout::{Axis, Layout};
use crate::workload::op::Overlap;
use crate::workload::{Op, Style, style};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::writing::grouped;

/// One step, of either kind.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// An optimizer step.
    Training(TrainingStep<'a>),
    /// A forward pass over requests.
    Serving(ServingStep<'a>),
}

impl<'a> Step<'a> {
    /// All steps of a layout on this many ranks: training first, then prefill, then decode. Empty if it names no
    /// model.
    ///
    /// # Errors
    /// If settings are inconsistent, at their place.
    pub fn all_of(table: &'a LayoutTable, ranks: u32) -> Result<Vec<Step<'a>>> {
        let layout = layout_on(table, ranks)?;
        let Some(work) = &table.work else { return Ok(Vec::new()) };
        let mut steps = Vec::new();
        if let Some(training) = &work.training {
            let step = TrainingStep::new(&work.model, training, layout.clone(), &table.place)?;
            steps.push(Step::Training(step));
        }
        if let Some(serving) = &work.serving {
            for (wanted, phase) in [(serving.phases.prefill, Phase::Prefill), (serving.phases.decode, Phase::Decode)] {
                if wanted {
                    let step = ServingStep::new(&work.model, serving, phase, layout.clone(), &table.place)?;
                    steps.push(Step::Serving(step));
                }
            }
        }
        Ok(steps)
    }

    pub fn model(&self) -> &'a Model {
        match self {
            Step::Training(step) => step.model,
            Step::Serving(step) => step.model,
        }
    }

    pub fn layout(&self) -> &Layout {
        match self {
            Step::Training(step) => &step.layout,
            Step::Serving(step) => &step.layout,
        }
    }

    /// The layers of every stage.
    pub fn stages(&self) -> &Stages {
        match self {
            Step::Training(step) => &step.stages,
            Step::Serving(step) => &step.stages,
        }
    }

    /// `training`, `prefill` or `decode`.
    pub fn phase_name(&self) -> &'static str {
        match self {
            Step::Training(_) => "training",
            Step::Serving(step) => step.phase.name(),
        }
    }

    /// The framework whose defaults apply, and its decisions.
    pub fn framework(&self) -> Option<&'a FrameworkChoices> {
        match self {
            Step::Training(step) => step.training.framework_choices.as_ref(),
            Step::Serving(step) => step.serving.framework_choices.as_ref(),
        }
    }

    /// Micro-batches of one replica in a step: m.
    pub fn micro_batches(&self) -> u64 {
        match self {
            Step::Training(step) => step.micro_batches,
            Step::Serving(step) => step.serving.micro_batches,
        }
    }

    pub fn tokens_per_replica(&self) -> u64 {
        match self {
            Step::Training(step) => step.tokens_per_replica(),
            Step::Serving(step) => step.tokens_per_micro_batch() * step.serving.micro_batches,
        }
    }

    /// The calls of one rank of a stage in a step, style by style. Calls on groups of one rank do not exist.
    ///
    /// # Errors
    /// If ops cannot be generated, for example because counts exceed 64 bits.
    pub fn ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        let mut ops = match self {
            Step::Training(step) => return step.ops_of_stage(stage),
            Step::Serving(step) => style::serving::ops(step, stage)?,
        };
        ops.retain(|op| self.group_size(op.axis) > 1 && op.when.count_per_step(self.micro_batches()) != Some(0));
        Ok(ops)
    }

    /// The ops of the selected styles, each axis seen from its busiest rank, with their totals.
    ///
    /// # Errors
    /// As [`Step::ops_of_stage`], and totals that exceed 64 bits.
    pub fn ops(&self, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        StepOps::busiest(self, wanted)
    }

    /// Ranks in each group of an axis.
    pub fn group_size(&self, axis: Axis) -> u32 {
        self.layout().group_size(axis)
    }
}

impl TrainingStep<'_> {
    /// The calls of one rank of a stage, style by style. Calls on groups of one rank, and calls with a count of 0, are skipped.
    ///
    /// # Errors
    /// If calls cannot be generated, for example because counts exceed 64 bits.
    pub fn ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        Ok(self.performed(style::training_ops(self, stage)?))
    }

    /// The calls that carry activations: of tensor, sequence, context and expert parallelism, and of the vocabulary.
    ///
    /// # Errors
    /// As [`TrainingStep::ops_of_stage`].
    pub fn activation_ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        Ok(self.performed(style::activation_ops(self, stage)?))
    }

    fn performed(&self, mut ops: Vec<Op>) -> Vec<Op> {
        ops.retain(|op| self.layout.group_size(op.axis) > 1 && op.when.count_per_step(self.micro_batches) != Some(0));
        if !self.training.tensor.overlap_calls {
            let with_products =
                |op: &&mut Op| matches!(op.overlap, Overlap::WeightGradient | Overlap::InputGradient | Overlap::Pieces);
            ops.iter_mut().filter(with_products).for_each(|op| op.overlap = Overlap::Exposed);
        }
        ops
    }
}

// Payload and wire bytes of a step, axis by axis, on the busiest rank of each axis.

/// The ops of a step and their totals.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOps {
    /// Every op; the ops of one axis are those of a rank of its busiest stage.
    pub ops: Vec<Op>,
    /// The totals of every axis that has ops, in the order of the ops.
    pub axes: Vec<AxisTotals>,
}

/// Traffic of the groups of one axis per step, on the busiest rank of the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisTotals {
    pub axis: Axis,
    /// The stage of that rank; the first among equally loaded stages.
    pub stage: u32,
    /// Sum of the size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// Bytes that the rank sends.
    pub wire_bytes_per_step: Bytes,
    /// Exposed part of them.
    pub exposed_wire_bytes_per_step: Bytes,
}

impl StepOps {
    fn busiest(step: &Step, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        let mut best: Vec<AxisOps> = Vec::new();
        for stage in 0..step.stages().count() {
            for axis in by_axis(step, stage, &wanted)? {
                let totals = &axis.totals;
                match best.iter_mut().find(|known| known.totals.axis == totals.axis) {
                    None => best.push(axis),
                    Some(known) if totals.wire_bytes_per_step > known.totals.wire_bytes_per_step => *known = axis,
                    Some(_) => {}
                }
            }
        }
        Ok(StepOps::of(best))
    }

    /// The ops of the selected styles on a rank of one stage.
    ///
    /// # Errors
    /// A stage that does not exist, and as [`Step::ops`].
    pub fn of_stage(step: &Step, stage: u32, wanted: impl Fn(Style) -> bool) -> Result<StepOps> {
        let stages = step.stages().count();
        if stage >= stages {
            return Err(Error::usage(format!("--stage: found {stage}; accepted: 0 to {}", stages - 1)));
        }
        Ok(StepOps::of(by_axis(step, stage, &wanted)?))
    }

    fn of(by_axis: Vec<AxisOps>) -> StepOps {
        let (axes, ops): (Vec<_>, Vec<_>) = by_axis.into_iter().map(|axis| (axis.totals, axis.ops)).unzip();
        StepOps { ops: ops.concat(), axes }
    }
}

/// The ops of one axis with their totals.
struct AxisOps {
    totals: AxisTotals,
    ops: Vec<Op>,
}

/// The ops of a stage, axis by axis, with their totals.
fn by_axis(step: &Step, stage: u32, wanted: &impl Fn(Style) -> bool) -> Result<Vec<AxisOps>> {
    let ops = step.ops_of_stage(stage)?.into_iter().filter(|op| wanted(op.style));
    let axes = grouped(ops.map(|op| (op.axis, op)));
    axes.into_iter().map(|(axis, ops)| Ok(AxisOps { totals: AxisTotals::of(step, stage, axis, &ops)?, ops })).collect()
}

impl AxisTotals {
    /// The totals of ops of one axis.
    ///
    /// # Errors
    /// If a total exceeds 64 bits.
    pub fn of(step: &Step, stage: u32, axis: Axis, ops: &[Op]) -> Result<AxisTotals> {
        let sum = |of: &dyn Fn(&Op, u64) -> Option<u64>| -> Result<Bytes> {
            let mut total = 0u64;
            for op in ops {
                let bytes = op.when.count_per_step(step.micro_batches()).and_then(|count| of(op, count));
                total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or_else(|| {
                    Error::usage(format!(
                        "the bytes that {axis} moves in a step of {} do not fit 64 bits; use a smaller batch",
                        step.model().shown_name()
                    ))
                })?;
            }
            Ok(Bytes(total))
        };
        let ranks = step.group_size(axis);
        Ok(AxisTotals {
            axis,
            stage,
            payload_bytes_per_step: sum(&|op, count| op.bytes_total.0.checked_mul(count))?,
            wire_bytes_per_step: sum(&|op, count| op.wire_bytes(ranks, count))?,
            exposed_wire_bytes_per_step: sum(&|op, count| {
                if op.overlap.is_exposed() { op.wire_bytes(ranks, count) } else { Some(0) }
            })?,
        })
    }
}

// Traffic as counted in papers: only the transformer layers, averaged over the stages.
//
// Embedding, output projection, loss and the small calls are excluded, and a pipeline stage is counted with neighbours on both sides. Lists
// of ops contain everything; this is for comparison with published figures.

/// Bytes of an axis, or a share of them.
struct AxisSum {
    axis: Axis,
    bytes: f64,
}

/// Wire bytes of a step by axis: means over the stages; for pp the stage that sends most.
///
/// # Errors
/// As [`Step::ops_of_stage`], and totals that exceed 64 bits.
pub fn wire_bytes_of_layers(step: &Step) -> Result<Vec<(Axis, Bytes)>> {
    let stages = step.stages().count();
    let mut sums: Vec<AxisSum> = Vec::new();
    for stage in 0..stages {
        let mut of_stage: Vec<AxisSum> = Vec::new();
        for op in step.ops_of_stage(stage)? {
            let bytes = wire_bytes(step, &op)? * share_of_layers(step, stage, &op);
            add(&mut of_stage, op.axis, bytes);
        }
        for AxisSum { axis, bytes } in of_stage {
            match (axis, sums.iter_mut().find(|known| known.axis == axis)) {
                (Axis::Pp, Some(most)) => most.bytes = most.bytes.max(bytes),
                (Axis::Pp, None) => sums.push(AxisSum { axis, bytes }),
                _ => add(&mut sums, axis, bytes / f64::from(stages)),
            }
        }
    }
    Ok(sums.into_iter().filter(|sum| sum.bytes > 0.0).map(|sum| (sum.axis, Bytes(sum.bytes as u64))).collect())
}

fn add(sums: &mut Vec<AxisSum>, axis: Axis, bytes: f64) {
    match sums.iter_mut().find(|known| known.axis == axis) {
        Some(sum) => sum.bytes += bytes,
        None => sums.push(AxisSum { axis, bytes }),
    }
}

fn wire_bytes(step: &Step, op: &Op) -> Result<f64> {
    let count = op.when.count_per_step(step.micro_batches());
    let bytes = count.and_then(|count| op.wire_bytes(step.group_size(op.axis), count));
    let too_many = || Error::usage(format!("the bytes that {} moves in a step do not fit 64 bits", op.axis));
    bytes.map(|bytes| bytes as f64).ok_or_else(too_many)
}

/// The layers' part of an op: for gradients and parameters the share of the layers' parameters.
fn share_of_layers(step: &Step, stage: u32, op: &Op) -> f64 {
    match (op.style, step) {
        (Style::Vocabulary | Style::Control, _) => 0.0,
        (Style::Data, Step::Training(step)) if op.axis != Axis::Edp => share_of_dense_layers(step, stage),
        _ => 1.0,
    }
}

fn share_of_dense_layers(step: &TrainingStep, stage: u32) -> f64 {
    let (layers, all) = (step.rank_layer_parameters(stage).dense, step.rank_parameters(stage).dense);
    if all == 0 { 1.0 } else { layers as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    /// Model, layout, training, ranks, and GB by axis, the most first.
    type Row = (&'static str, &'static str, &'static str, u32, &'static [(&'static str, &'static str)]);

    /// Sources of the rows, and the bytes that a GPU sends in a step by axis, in GB: counter-examples to TP > DP > PP.
    ///
    /// Layouts: arXiv 2104.04473 table 2 and its run of 1 T parameters (gathered at the receivers, its section 4.1);
    /// arXiv 2407.21783 table 4; MLPerf Training v4.0, GPT-3 on 10,752 H100; vTrain (arXiv 2312.12391); Megatron-LM's
    /// 16-GPU example; the others are usual fine-tuning and pre-training layouts of Llama 2 and 3.
    const ROWS: [Row; 12] = [
        (
            "gpt3-175b",
            "tp = 8\npp = 12\ndp = 16",
            "sequence = 2048\nmicro_batches = 96\nrecompute = 'full'\nscatter_gather = true",
            1536,
            &[("tp", "405.9"), ("dp", "13.6"), ("pp", "1.2")],
        ),
        (
            "llama-3-405b",
            "tp = 8\npp = 16\ndp = 128",
            "sequence = 8192\nmicro_batches = 16\ndata_style = 'zero1'\nscatter_gather = true",
            16_384,
            &[("tp", "236.8"), ("dp", "18.7"), ("pp", "1.1")],
        ),
        (
            "gpt3-175b",
            "tp = 4\npp = 6\ndp = 448",
            "sequence = 2048\nmicro_batches = 6\ndata_style = 'zero1'\nvirtual_stages = 8\nscatter_gather = true",
            10_752,
            &[("dp", "43.4"), ("tp", "29.0"), ("pp", "1.2")],
        ),
        (
            "llama-2-7b",
            "tp = 2\ndp = 512",
            "sequence = 4096\nmicro_batches = 2\ndata_style = 'zero1'",
            1024,
            &[("dp", "19.4"), ("tp", "8.6")],
        ),
        (
            "llama-2-7b",
            "tp = 2\ndp = 64",
            "sequence = 4096\nmicro_batches = 16\ndata_style = 'zero1'",
            128,
            &[("tp", "68.7"), ("dp", "19.1")],
        ),
        (
            "llama-3-70b",
            "tp = 8\ndp = 8",
            "sequence = 2048\nmicro_batches = 1\ndata_style = 'zero1'",
            64,
            &[("dp", "44.9"), ("tp", "18.8")],
        ),
        (
            "llama-3-70b",
            "tp = 8\ndp = 8",
            "sequence = 8192\nmicro_batches = 8\ndata_style = 'zero1'",
            64,
            &[("tp", "601.3"), ("dp", "44.9")],
        ),
        (
            "gpt3-175b",
            "tp = 8\npp = 32\ndp = 2",
            "sequence = 2048\nmicro_batches = 768\nrecompute = 'full'\ngradient_element_type = 'float16'",
            512,
            &[("tp", "1217.6"), ("pp", "77.3"), ("dp", "1.4")],
        ),
        (
            "megatron-1t",
            "tp = 8\npp = 64\ndp = 6",
            "sequence = 2048\nmicro_batches = 512\nrecompute = 'full'\nscatter_gather = true",
            3072,
            &[("tp", "1127.4"), ("pp", "13.4"), ("dp", "13.1")],
        ),
        (
            "gpt-7.5b",
            "tp = 2\npp = 4\ndp = 2",
            "sequence = 2048\nglobal_batch = 512",
            16,
            &[("tp", "154.6"), ("pp", "8.6"), ("dp", "3.6")],
        ),
        (
            "gpt-7.5b",
            "tp = 2\npp = 4\ndp = 2",
            "sequence = 2048\nglobal_batch = 8",
            16,
            &[("dp", "3.6"), ("tp", "2.4"), ("pp", "0.1")],
        ),
        (
            "llama-3.1-405b",
            "tp = 8\ncp = 16\npp = 16\ndp = 8",
            "sequence = 131072\nmicro_batches = 16\ndata_style = 'zero1'\nscatter_gather = true",
            16_384,
            &[("tp", "236.8"), ("cp", "23.8"), ("dp_cp", "18.7"), ("pp", "1.1")],
        ),
    ];

    #[test]
    fn tensor_traffic_is_not_always_above_data_and_data_not_always_above_pipeline() {
        for (model, layout, training, ranks, expected) in ROWS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
            let text = format!("[model]\npreset = '{model}'\n[training]\n{training}\n[[layout]]\n{layout}\n");
            let suite = Suite::parse(&path, &text).unwrap();
            let step = Step::all_of(&suite.layouts[0], ranks).unwrap().remove(0);
            let mut found = wire_bytes_of_layers(&step).unwrap();
            // With scatter/gather the receivers gather over tp, which the published figures do not count.
            let gathered: f64 = gathered_over_tp(&step);
            found.iter_mut().filter(|(axis, _)| *axis == Axis::Tp).for_each(|(_, bytes)| bytes.0 -= gathered as u64);
            found.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            let found: Vec<_> =
                found.iter().map(|(axis, bytes)| (axis.name(), format!("{:.1}", bytes.0 as f64 * 1e-9))).collect();
            let found: Vec<_> = found.iter().map(|(axis, bytes)| (*axis, bytes.as_str())).collect();
            assert_eq!(found, expected, "{model} {layout} {training}");
        }
    }

    fn gathered_over_tp(step: &Step) -> f64 {
        let stages = step.stages().count();
        let of_stage = |stage: u32| -> f64 {
            let ops = step.ops_of_stage(stage).unwrap();
            let gathers = ops.iter().filter(|op| op.style == Style::Pipeline && op.axis == Axis::Tp);
            gathers.map(|op| wire_bytes(step, op).unwrap()).sum()
        };
        (0..stages).map(of_stage).sum::<f64>() / f64::from(stages)
    }
}
