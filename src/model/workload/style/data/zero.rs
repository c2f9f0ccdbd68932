//! DDP, ZeRO-1 and ZeRO-2: gradients in buckets, parameters whole on every rank while they are used.
//!
//! Sources: arXiv 2006.15704 (DDP), arXiv 1910.02054 (ZeRO), Megatron-LM core/distributed/param_and_grad_buffer.py,
//! DeepSpeed runtime/zero/stage_1_and_2.py.

use super::broadcasts;
use super::buckets::{self, Buckets};
use super::cut::Run;
use super::gathered_shares;
use super::layer_wise::Share;
use super::parts::{Part, parts};
use crate::config::step::{BucketRule, DataStyle, GradientReduction, ParameterReturn};
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let mut ops: Vec<Op> = broadcasts::of_buffers(step).into_iter().collect();
    for part in parts(step) {
        for buckets in buckets::of(step, stage, &part) {
            ops.extend(Bucketed { step, stage, part, buckets: &buckets }.ops());
        }
        if step.training.data.style == DataStyle::Zero1 {
            ops.extend(broadcasts::ops(step, stage, &part));
            ops.extend(gathered_shares::op(step, stage, &part));
        }
    }
    ops
}

/// What a bucket holds: the symbol of its element's size in formulas, and the type.
#[derive(Clone, Copy)]
struct Carried {
    symbol: &'static str,
    element: ElementType,
}

struct Bucketed<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    part: Part,
    buckets: &'a Buckets,
}

impl Bucketed<'_> {
    fn ops(&self) -> Vec<Op> {
        let data = &self.step.training.data;
        let separate = data.bucket_rule == BucketRule::DeepSpeed;
        let mut ops = Vec::new();
        for run in &self.buckets.runs {
            match data.style {
                DataStyle::Ddp => ops.push(self.reduce_all(run)),
                DataStyle::Zero2 => ops.push(self.reduce_every_micro_batch(run)),
                _ => {
                    ops.push(self.reduce_once(run));
                    ops.extend(self.reduce_replicas(run));
                }
            }
            if !separate {
                ops.extend(self.gather(run));
            }
        }
        if separate {
            ops.extend(self.buckets.gathered.iter().filter_map(|run| self.gather(run)));
        }
        ops
    }

    /// DDP: all gradients to all replicas.
    fn reduce_all(&self, run: &Run) -> Op {
        self.once(Collective::AllReduce, run, "arXiv 2006.15704 section 3.2")
    }

    /// ZeRO-1: each rank receives the gradients of its optimizer state.
    fn reduce_once(&self, run: &Run) -> Op {
        let source = match self.reduction() {
            Collective::AllReduce => {
                "all to every rank, which takes its part, DeepSpeed runtime/zero/stage_1_and_2.py average_tensor; arXiv 1910.02054 section 5"
            }
            _ => "arXiv 1910.02054 section 5; Megatron-LM docs/source/api-guide/dist_optimizer.md",
        };
        self.once(self.reduction(), run, source)
    }

    /// Parameters that the optimizer updated in parts.
    fn gather(&self, run: &Run) -> Option<Op> {
        match self.step.training.data.style {
            DataStyle::Ddp => None,
            DataStyle::Zero2 => Some(self.gather_at_end(run)),
            _ => match self.step.training.data.parameter_return {
                ParameterReturn::AllGather | ParameterReturn::EachOptimizer => Some(self.gather_for_first_forward(run)),
                ParameterReturn::Broadcast | ParameterReturn::BroadcastShares | ParameterReturn::GatherShares => None,
            },
        }
    }

    /// Optimizer instances: the shards of all instances are summed (`num_distributed_optimizer_instances`).
    fn reduce_replicas(&self, run: &Run) -> Option<Op> {
        let shard = Run { elements: run.elements / self.part.ranks, ..*run };
        let source = "the shard, over the instances of the optimizer; Megatron-LM num_distributed_optimizer_instances";
        let op = Op { axis: Axis::DpReplicate, ..self.once(Collective::AllReduce, &shard, source) };
        (self.part.replicas > 1).then_some(op)
    }

    /// Gradients once per step: behind the last backward pass, but for the bucket that closes when it ends.
    fn once(&self, collective: Collective, run: &Run, source: &str) -> Op {
        let (moment, overlap) = match run.last || !self.step.training.data.overlap_gradients {
            true => (Moment::AfterBackward, Overlap::Exposed),
            false => (Moment::LastBackward, Overlap::LastBackward),
        };
        self.op(collective, self.gradients(), run, When::Step { moment, calls: run.buckets }, overlap, source)
    }

    /// ZeRO-1: updated parameters, behind the next step's first forward pass, but for the bucket that it begins with.
    fn gather_for_first_forward(&self, run: &Run) -> Op {
        let (moment, overlap) = match (self.step.training.data.overlap_gradients, run.last) {
            (false, _) => (Moment::Optimizer, Overlap::Exposed),
            (true, true) => (Moment::FirstForward, Overlap::Exposed),
            (true, false) => (Moment::FirstForward, Overlap::FirstForward),
        };
        let source = match self.optimizers() {
            1 => "arXiv 1910.02054 section 5; Megatron-LM overlap_param_gather",
            _ => {
                "by each of two optimizers, that of dense parameters and that of experts; Megatron-LM core/optimizer/optimizer.py \
                 ChainedOptimizer, distrib_optimizer.py step_with_ready_grads"
            }
        };
        let when = When::Step { moment, calls: run.buckets * self.optimizers() };
        self.op(Collective::AllGather, self.parameters(), run, when, overlap, source)
    }

    /// How often parameters are gathered: where nothing overlaps, each distributed optimizer of Megatron-LM gathers those of all, but beside a
    /// layer-wise one there is only one (core/optimizer/__init__.py _get_megatron_emerging_optimizer).
    fn optimizers(&self) -> u64 {
        let data = &self.step.training.data;
        let each = data.parameter_return == ParameterReturn::EachOptimizer && !data.overlap_gradients;
        let held = self.step.rank_parameters(self.stage);
        let apart = parts(self.step)
            .into_iter()
            .filter(|part| (part.dense && held.dense > 0) || (part.experts && held.experts > 0));
        if each && self.buckets.share == Share::All { apart.count() as u64 } else { 1 }
    }

    /// ZeRO-2 stores no whole gradients between micro-batches, so that each is reduced at once.
    fn reduce_every_micro_batch(&self, run: &Run) -> Op {
        let exposed = run.last || !self.step.training.data.overlap_gradients;
        let overlap = if exposed { Overlap::Exposed } else { Overlap::Backward };
        let when = When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls: run.buckets, one_in: 1 };
        let source = "in every micro-batch, DeepSpeed runtime/zero/stage_1_and_2.py partition_gradients";
        self.op(self.reduction(), self.gradients(), run, when, overlap, source)
    }

    /// The call that brings each rank the gradients of its part.
    fn reduction(&self) -> Collective {
        match self.step.training.data.gradient_reduction {
            GradientReduction::ReduceScatter => Collective::ReduceScatter,
            GradientReduction::AllReduce => Collective::AllReduce,
        }
    }

    /// ZeRO-2: updated parameters, when the optimizer is done.
    fn gather_at_end(&self, run: &Run) -> Op {
        let when = When::Step { moment: Moment::Optimizer, calls: run.buckets };
        let source = "once per step, DeepSpeed runtime/zero/stage_1_and_2.py step";
        self.op(Collective::AllGather, self.parameters(), run, when, Overlap::Exposed, source)
    }

    fn gradients(&self) -> Carried {
        Carried { symbol: "Eg", element: self.step.training.data.gradient_element_type }
    }

    fn parameters(&self) -> Carried {
        Carried { symbol: "Ep", element: self.step.training.data.parameter_element_type }
    }

    fn op(
        &self,
        collective: Collective,
        carried: Carried,
        run: &Run,
        when: When,
        overlap: Overlap,
        source: &str,
    ) -> Op {
        let Carried { symbol, element } = carried;
        let bytes = element.size() * run.elements;
        let which = if run.last { "the last bucket".to_owned() } else { format!("{} of the buckets", run.buckets) };
        let why = format!(
            "{symbol}*bucket = {} B*{} = {bytes} B: {which} of {} {}{}; cut: {} ({}; {source})",
            element.size(),
            run.elements,
            self.buckets.parameters,
            self.buckets.share.words(),
            self.part.name(),
            self.buckets.rule,
            self.step.rank_parameters_formula(self.stage),
        );
        Op { when, overlap, why, ..Op::new(Style::Data, self.part.axis, collective, element, bytes) }
    }
}
