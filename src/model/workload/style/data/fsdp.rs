//! ZeRO-3, FSDP and HSDP: parameters sharded, gathered unit by unit for every use. A unit is one layer, or the root with
//! embedding, head and last norm, or as `unit_rule` says; `units` has them.
//!
//! Sources: arXiv 1910.02054 section 7.2 (ZeRO-3), 2306.10209 section 3.2 (secondary shards), 2304.11277 (FSDP; HSDP in section
//! 3.2.2), 2104.07857 section 4.1 (recomputation gathers once more).

use super::parts::{Part, parts};
use super::tensor::Order;
use super::tensors;
use super::units::{Unit, Wrapped, is_in_eight_bits, units};
use crate::config::step::{DataStyle, OuterSharding, Recompute, ReplicaReduction, UnitRule};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let mut ops = Vec::new();
    for part in parts(step) {
        for unit in units(step, stage, &part) {
            let sharded = Sharded { step, stage, part, unit };
            ops.extend(sharded.gathers().into_iter().flat_map(|op| sharded.in_steps(op)));
            ops.push(sharded.scatter_gradients());
            ops.extend(sharded.reduce_replicas());
            ops.extend(sharded.gather_replicas());
        }
        ops.extend(largest_elements(step, stage, &part));
    }
    ops
}

/// The largest element of each weight that Megatron-FSDP holds in 8 bits, from which the optimizer's ranks make its one scale.
fn largest_elements(step: &TrainingStep, stage: u32, part: &Part) -> Option<Op> {
    let data = &step.training.data;
    if data.units.rule != UnitRule::Buckets || !data.parameter_element_type.moves_only() {
        return None;
    }
    let of_part = tensors::of_part(step, stage, part, Order::Megatron);
    let weights = of_part.iter().filter(|tensor| is_in_eight_bits(tensor)).count() as u64;
    let axis = match data.outer_sharding {
        OuterSharding::NoShard => part.axis,
        OuterSharding::Optimizer => Axis::DpCp,
    };
    let element = ElementType::Float32;
    let bytes = element.size() * weights;
    let op = Op {
        when: When::Step { moment: Moment::Optimizer, calls: 1 },
        reduce_op: Some(ReduceOp::Max),
        why: format!(
            "4*weights = 4 B*{weights} = {bytes} B: the largest element of each weight in 8 bits, for its scale, {} (arXiv 2304.11277 section \
             3.2.1; Megatron-LM core/distributed/fsdp/src/megatron_fsdp/mixed_precision.py fp8_quantize; {})",
            part.name(),
            step.rank_parameters_formula(stage),
        ),
        ..Op::new(Style::Data, axis, Collective::AllReduce, element, bytes)
    };
    (weights > 0).then_some(op)
}

struct Sharded<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    part: Part,
    unit: Unit,
}

impl Sharded<'_> {
    /// The all_gathers of a unit: for the forward pass, for the backward pass unless the parameters stayed gathered,
    /// and for a recomputation that needs them again.
    fn gathers(&self) -> Vec<Op> {
        let training = self.step.training;
        let once = !self.step.reshards_after_forward() && !self.step.reshards_after_backward();
        if once || matches!(self.unit.what, Wrapped::Kept { .. }) {
            let (moment, overlap) = match self.unit.what {
                Wrapped::Root | Wrapped::Input | Wrapped::Kept { end: End::Input }
                    if self.step.stages.has_input(self.stage) =>
                {
                    (Moment::FirstForward, Overlap::Exposed)
                }
                _ => (Moment::FirstForward, Overlap::FirstForward),
            };
            let when = When::Step { moment, calls: self.calls() };
            return vec![self.gather(when, overlap, "once per step, and kept until the optimizer")];
        }
        // FSDP recomputes within the unit while the backward pass has it gathered; ZeRO-3 releases it in between.
        let again = training.data.style == DataStyle::Zero3 && training.tensor.recompute == Recompute::Full;
        let in_pass = |pass, what: &str| {
            let op = self.gather(self.when(pass), self.overlap_of_gather(pass), what);
            self.part.in_pass(self.step, pass, op)
        };
        if !self.step.reshards_after_forward() || self.stays_gathered() {
            return vec![in_pass(Pass::Forward, "for the forward pass, and kept until the backward pass")];
        }
        let mut ops = vec![in_pass(Pass::Forward, "for the forward pass")];
        if again && self.is_layer() {
            ops.push(in_pass(Pass::Recompute, "for recomputation (arXiv 2104.07857 section 4.1)"));
        }
        ops.push(in_pass(Pass::Backward, "again for the backward pass"));
        ops
    }

    fn is_layer(&self) -> bool {
        matches!(self.unit.what, Wrapped::Layers { .. })
    }

    /// PyTorch's root, and torchtitan's last unit, whose backward pass comes at once.
    fn stays_gathered(&self) -> bool {
        match self.unit.what {
            Wrapped::Root => self.step.training.data.units.rule == UnitRule::RootKept,
            Wrapped::Output => true,
            Wrapped::Layers { .. } | Wrapped::Input | Wrapped::Kept { .. } => false,
        }
    }

    fn gather(&self, when: When, overlap: Overlap, what: &str) -> Op {
        let element = self.unit.element;
        let bytes = element.size() * self.unit.padded;
        let why = self.why("Ep", element.size(), bytes, &format!("gathered {what}"));
        let op = Op::new(Style::Data, self.part.axis, Collective::AllGather, element, bytes);
        Op { when, overlap, why, ..op }
    }

    /// A gather as it is sent: at once, or first between nodes and then within each (DeepSpeed 0.16.9 runtime/zero/mics.py
    /// _hierarchical_all_gather_params).
    fn in_steps(&self, op: Op) -> Vec<Op> {
        let Some(inner) = self.step.training.data.shards.gather_inner else { return vec![op] };
        let (whole, between) = (op.bytes_total.0, op.bytes_total.0 / u64::from(inner));
        let source = "arXiv 2205.00119 section 3.3";
        vec![
            Op {
                axis: Axis::DpShardOuter,
                bytes_total: Bytes(between),
                why: format!(
                    "1/{inner} of {whole} B = {between} B: the first step, between nodes of {inner} ranks ({source}); {}",
                    op.why
                ),
                ..op.clone()
            },
            Op {
                axis: Axis::DpShardInner,
                why: format!("the second step, within a node ({source}); {}", op.why),
                ..op
            },
        ]
    }

    /// Gradients to the rank that has the shard.
    fn scatter_gradients(&self) -> Op {
        let data = &self.step.training.data;
        let element = data.gradient_element_type;
        let bytes = element.size() * self.unit.padded;
        let at_input = matches!(self.unit.what, Wrapped::Root | Wrapped::Input | Wrapped::Kept { end: End::Input });
        let first_of_model = at_input && self.step.stages.has_input(self.stage);
        let exposed = first_of_model || !data.overlap_gradients;
        let ((when, overlap), what) = match self.step.adds_up_whole_gradients() {
            false => (self.in_every_backward(exposed), "gradients in every micro-batch"),
            true => (self.in_last_backward(exposed), "gradients of all micro-batches"),
        };
        let why = self.why("Eg", element.size(), bytes, what);
        let op = Op::new(Style::Data, self.part.axis, Collective::ReduceScatter, element, bytes);
        Op { when, overlap, why, ..op }
    }

    fn in_every_backward(&self, exposed: bool) -> (When, Overlap) {
        (self.when_in_backward_end(), if exposed { Overlap::Exposed } else { Overlap::Backward })
    }

    /// Once in a step.
    fn in_last_backward(&self, exposed: bool) -> (When, Overlap) {
        let (moment, overlap) = match exposed {
            true => (Moment::AfterBackward, Overlap::Exposed),
            false => (Moment::LastBackward, Overlap::LastBackward),
        };
        (When::Step { moment, calls: self.calls() }, overlap)
    }

    /// HSDP: the shard's gradients over the groups with the same shard.
    fn reduce_replicas(&self) -> Option<Op> {
        let data = &self.step.training.data;
        let element = data.gradient_element_type;
        let bytes = element.size() * (self.unit.padded / self.part.ranks);
        let exposed = !self.is_layer() || !data.overlap_gradients;
        let what = format!("the shard of 1/{}, over {} groups of shards", self.part.ranks, self.part.replicas);
        let collective = match data.outer_sharding {
            OuterSharding::NoShard => Collective::AllReduce,
            OuterSharding::Optimizer => Collective::ReduceScatter,
        };
        let (when, overlap) = match data.replica_reduction {
            ReplicaReduction::MicroBatch if !self.step.adds_up_whole_gradients() => self.in_every_backward(exposed),
            _ => self.in_last_backward(exposed),
        };
        let op = Op {
            when,
            overlap,
            why: self.why("Eg", element.size(), bytes, &what),
            ..Op::new(Style::Data, Axis::DpReplicate, collective, element, bytes)
        };
        (self.part.replicas > 1).then_some(op)
    }

    /// Shards that the groups with the same ones updated in parts: for each gather of the first micro-batch (megatron_fsdp.py
    /// `outer_fsdp_group_param_gather`).
    fn gather_replicas(&self) -> Option<Op> {
        let (data, element) = (&self.step.training.data, self.unit.element);
        let bytes = element.size() * (self.unit.padded / self.part.ranks);
        let (passes, what) = if self.is_layer() { (2, "forward and backward") } else { (1, "forward") };
        let exposed = matches!(self.unit.what, Wrapped::Kept { end: End::Input }) || !data.units.prefetch;
        let what = format!("the updated shard of 1/{}, in the first {what} pass", self.part.ranks);
        let op = Op {
            when: When::Step { moment: Moment::FirstForward, calls: passes * self.calls() },
            overlap: if exposed { Overlap::Exposed } else { Overlap::FirstForward },
            why: self.why("Ep", element.size(), bytes, &what),
            ..Op::new(Style::Data, Axis::DpReplicate, Collective::AllGather, element, bytes)
        };
        (data.outer_sharding == OuterSharding::Optimizer).then_some(op)
    }

    /// Equal units.
    fn calls(&self) -> u64 {
        match self.unit.what {
            Wrapped::Layers { number, .. } => number,
            Wrapped::Root | Wrapped::Input | Wrapped::Output | Wrapped::Kept { .. } => 1,
        }
    }

    /// Before its use in a pass. The root is used first where the stage has that end of the model.
    fn when(&self, pass: Pass) -> When {
        let (input, output) = (self.step.stages.has_input(self.stage), self.step.stages.has_output(self.stage));
        let end = match (self.unit.what, pass) {
            (Wrapped::Input, _) => End::Input,
            (Wrapped::Output, _) => End::Output,
            (Wrapped::Kept { end }, _) => end,
            (_, Pass::Forward | Pass::Recompute) if input => End::Input,
            (_, Pass::Backward | Pass::WeightGradient) if !output => End::Input,
            _ => End::Output,
        };
        match self.unit.what {
            Wrapped::Layers { kind, .. } => self.step.in_layers(self.stage, pass, kind, 1),
            _ => When::MicroBatch { pass, end, calls: 1, one_in: 1 },
        }
    }

    /// After its last use in the backward pass.
    fn when_in_backward_end(&self) -> When {
        let at_output = matches!(self.unit.what, Wrapped::Output | Wrapped::Kept { end: End::Output });
        let at_input = self.step.stages.has_input(self.stage) && !at_output;
        let end = if at_input { End::Input } else { End::Output };
        match self.unit.what {
            Wrapped::Layers { .. } => self.when(Pass::Backward),
            _ => When::MicroBatch { pass: Pass::Backward, end, calls: 1, one_in: 1 },
        }
    }

    /// Units are prefetched; nothing overlaps with the first use of the root of the model.
    fn overlap_of_gather(&self, pass: Pass) -> Overlap {
        let stages = &self.step.stages;
        let first = match pass {
            Pass::Forward | Pass::Recompute => stages.has_input(self.stage),
            Pass::Backward | Pass::WeightGradient => stages.has_output(self.stage),
        };
        let waits = !self.is_layer() && first || !self.step.training.data.units.prefetch;
        if waits { Overlap::Exposed } else { Overlap::Prefetch }
    }

    fn why(&self, symbol: &str, element_bytes: u64, bytes: u64, what: &str) -> String {
        let unit = match self.unit.what {
            Wrapped::Layers { number, .. } => format!("each of {number} layers"),
            Wrapped::Root => "root unit".to_owned(),
            Wrapped::Input => "unit of the embedding".to_owned(),
            Wrapped::Output => "unit of last norm and head".to_owned(),
            Wrapped::Kept { .. } => "a bucket of what is no layer".to_owned(),
        };
        let data = &self.step.training.data;
        let source = match data.style {
            _ if data.units.rule == UnitRule::Buckets => {
                "arXiv 2304.11277 section 3.2.1; Megatron-LM core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py"
            }
            DataStyle::Zero3 => "arXiv 1910.02054 section 7.2; DeepSpeed runtime/zero/stage3.py",
            DataStyle::Hsdp => "arXiv 2304.11277 section 3.2.2",
            _ => "arXiv 2304.11277 section 3.2.1",
        };
        let (parameters, padded) = (self.unit.parameters, self.unit.padded);
        let rounded = if padded > parameters { format!(" of {parameters} parameters") } else { String::new() };
        let (per, shards) = match element_bytes * padded / bytes {
            1 => (String::new(), String::new()),
            shards => ("/shards".to_owned(), format!("/{shards}")),
        };
        format!(
            "{symbol}*P_unit{per} = {element_bytes} B*{padded}{shards} = {bytes} B{rounded}: {what}; {unit}, {} ({}; {source})",
            self.part.name(),
            self.step.rank_parameters_formula(self.stage),
        )
    }
}
