//! ZeRO-3 as DeepSpeed runs it: gathers by module, tensors that stay on every rank, and gradients in buckets.
//!
//! `traced` has the modules, `coordinator` what is gathered when. Source: DeepSpeed runtime/zero/stage3.py, partitioned_param_coordinator.py.

use super::coordinator::{self, Parameter, Urgency};
use super::parts::{Part, parts};
use super::quantised::{self, ReducingRanks, Reduction};
use super::tensor::Tensor;
use super::traced::Traced;
use crate::config::step::{DEEPSPEED_BUCKET_PARAMETERS, ShardBuffers};
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use std::collections::BTreeMap;

/// Copies of each rank's part of a tensor where parts are gathered into a list: from the buffer of the call into the list (PyTorch
/// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp `allgather`), and from there into the tensor (DeepSpeed of 2021,
/// runtime/zero/partition_parameters.py `_allgather_params`).
const GATHER_COPIES: u64 = 2;
/// The same where a list is scattered: into the buffer of the call (`reduce_scatter`; `_reduce_scatter_gradient`).
const SCATTER_COPIES: u64 = 1;

/// The calls of one rank of a stage in an optimizer step.
///
/// # Errors
/// Quantised parameters or gradients whose blocks the ranks do not divide.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let model = Traced::of(step, stage);
    let sharded = parts(step);
    let mut ops = Vec::new();
    for part in &sharded {
        let calls = Calls { step, stage, part: *part, model: &model };
        ops.extend(calls.gathers()?);
        ops.extend(calls.reductions()?);
        ops.extend(calls.returns());
    }
    Ok(ops)
}

/// What a call carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Carried {
    elements: u64,
    /// Parts of tensors that the host copies one by one.
    copies: u64,
}

struct Calls<'a> {
    step: &'a TrainingStep<'a>,
    stage: u32,
    part: Part,
    model: &'a Traced,
}

impl Calls<'_> {
    fn is_here(&self, tensor: usize) -> bool {
        if self.model.tensors[tensor].is_expert() { self.part.experts } else { self.part.dense }
    }

    /// Elements of tensors in one call, each rounded up so that its shards are equal.
    fn elements(&self, tensors: &[usize]) -> u64 {
        let of_part = tensors.iter().filter(|tensor| self.is_here(**tensor));
        of_part.map(|tensor| self.model.tensors[*tensor].elements.next_multiple_of(self.part.ranks)).sum()
    }

    fn is_persistent(&self, tensor: &Tensor) -> bool {
        tensor.elements < self.step.training.data.units.modules.persistent_parameters
    }

    /// What a call with these tensors carries, of which each rank's part is copied so often.
    fn carried(&self, tensors: &[usize], copies_of_part: u64) -> Carried {
        let tensors: Vec<usize> = tensors.iter().copied().filter(|tensor| self.is_here(*tensor)).collect();
        let copies = match self.step.training.data.units.shard_buffers {
            ShardBuffers::Flat => 0,
            ShardBuffers::Listed => copies_of_part * tensors.len() as u64 * self.part.ranks,
        };
        Carried { elements: self.elements(&tensors), copies }
    }

    /// What modules need and what comes next, in every micro-batch.
    fn gathers(&self) -> Result<Vec<Op>> {
        let tensors = self.model.tensors.iter();
        let parameters: Vec<Parameter> = tensors
            .map(|tensor| Parameter { elements: tensor.elements, persistent: self.is_persistent(tensor) })
            .collect();
        let (choices, micro_batches) = (self.step.training.data.units.modules, self.step.micro_batches);
        let gathers = coordinator::gathers(&parameters, &self.model.trace, choices, micro_batches);
        let mut equal: BTreeMap<(Pass, Urgency, Carried), u64> = BTreeMap::new();
        for gather in gathers {
            let carried = self.carried(&gather.parameters, GATHER_COPIES);
            if carried.elements > 0 {
                *equal.entry((gather.pass, gather.urgency, carried)).or_default() += 1;
            }
        }
        let stages = &self.step.stages;
        let op = |((pass, urgency, carried), calls): ((Pass, Urgency, Carried), u64)| {
            let end = match pass {
                Pass::Forward if stages.has_input(self.stage) => End::Input,
                Pass::Backward if stages.has_output(self.stage) => End::Output,
                _ => End::Whole,
            };
            let (overlap, what) = match urgency {
                Urgency::Needed => (Overlap::Exposed, "what the module at work needs"),
                Urgency::Ahead => (Overlap::Prefetch, "what the next modules need"),
            };
            let when = When::MicroBatch { pass, end, calls, one_in: 1 };
            let element = if choices.quantised { ElementType::Int8 } else { self.parameter() };
            let op = Op { when, overlap, ..self.op(Collective::AllGather, element, carried, "Ep", what) };
            let op = self.part.in_pass(self.step, pass, op);
            if !choices.quantised {
                return Ok(vec![op]);
            }
            let ranks = u64::from(self.step.layout.group_size(op.axis));
            quantised::gathers(&op, carried.elements, ranks)
                .map(Vec::from)
                .map_err(|problem| self.step.training.place.wrong(problem))
        };
        let ops = equal.into_iter().map(op).collect::<Result<Vec<_>>>()?;
        Ok(ops.into_iter().flatten().collect())
    }

    /// Gradients, in every micro-batch.
    fn reductions(&self) -> Result<Vec<Op>> {
        match self.step.training.data.shards.quantised_gradients {
            Some(node) => self.quantised_reductions(u64::from(node)),
            None => Ok(self.reductions_of_buckets()),
        }
    }

    /// Tensor by tensor, with equal calls together.
    fn quantised_reductions(&self, node: u64) -> Result<Vec<Op>> {
        let data = &self.step.training.data;
        let Part { axis, ranks, .. } = self.part;
        let among = ReducingRanks { axis, ranks, node, element: data.gradient_element_type };
        let mut equal: Vec<(Reduction, u64)> = Vec::new();
        for tensor in self.model.gradients().into_iter().filter(|tensor| self.is_here(*tensor)) {
            let calls = quantised::reductions(&self.model.tensors[tensor], among)
                .map_err(|problem| self.step.training.place.wrong(problem))?;
            for call in calls {
                match equal.iter_mut().find(|(known, _)| *known == call) {
                    Some((_, times)) => *times += 1,
                    None => equal.push((call, 1)),
                }
            }
        }
        let op = |(call, calls): (Reduction, u64)| Op {
            when: When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls, one_in: 1 },
            overlap: self.overlap_of_gradients(),
            why: format!(
                "{}: {} ({}; DeepSpeed runtime/comm/coalesced_collectives.py all_to_all_quant_reduce; arXiv 2306.10209 section 3.3)",
                call.formula,
                call.what,
                self.step.rank_parameters_formula(self.stage),
            ),
            ..Op::new(Style::Data, call.axis, call.collective, call.element, call.bytes)
        };
        Ok(equal.into_iter().map(op).collect())
    }

    fn overlap_of_gradients(&self) -> Overlap {
        if self.step.training.data.overlap_gradients { Overlap::Backward } else { Overlap::Exposed }
    }

    /// Gradients in the order in which they come, in every micro-batch; a bucket closes before the tensor that would pass its size.
    fn reductions_of_buckets(&self) -> Vec<Op> {
        let limit = self.step.training.data.bucket_parameters.unwrap_or(DEEPSPEED_BUCKET_PARAMETERS);
        let (mut buckets, mut open, mut filled) = (Vec::new(), Vec::new(), 0);
        for tensor in self.model.gradients().into_iter().filter(|tensor| self.is_here(*tensor)) {
            let elements = self.model.tensors[tensor].elements;
            if filled > 0 && filled + elements > limit {
                buckets.push(self.carried(&std::mem::take(&mut open), SCATTER_COPIES));
                filled = 0;
            }
            open.push(tensor);
            filled += elements;
        }
        buckets.extend((filled > 0).then(|| self.carried(&open, SCATTER_COPIES)));
        let mut equal: BTreeMap<Carried, u64> = BTreeMap::new();
        buckets.into_iter().for_each(|carried| *equal.entry(carried).or_default() += 1);
        let element = self.step.training.data.gradient_element_type;
        let what = format!("gradients in a bucket of up to {limit} parameters, in every micro-batch");
        let op = |(carried, calls): (Carried, u64)| Op {
            when: When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls, one_in: 1 },
            overlap: self.overlap_of_gradients(),
            ..self.op(Collective::ReduceScatter, element, carried, "Eg", &what)
        };
        equal.into_iter().map(op).collect()
    }

    /// Tensors that stay on every rank, each in a call of its own when the optimizer is done.
    fn returns(&self) -> Vec<Op> {
        let mut equal: BTreeMap<Carried, u64> = BTreeMap::new();
        for (index, tensor) in self.model.tensors.iter().enumerate() {
            if self.is_here(index) && self.is_persistent(tensor) {
                *equal.entry(self.carried(&[index], GATHER_COPIES)).or_default() += 1;
            }
        }
        let below = self.step.training.data.units.modules.persistent_parameters;
        let what = format!("a tensor of less than {below} parameters, which stays on every rank, once per step");
        let op = |(carried, calls): (Carried, u64)| Op {
            when: When::Step { moment: Moment::Optimizer, calls },
            overlap: Overlap::Exposed,
            ..self.op(Collective::AllGather, self.parameter(), carried, "Ep", &what)
        };
        equal.into_iter().map(op).collect()
    }

    fn parameter(&self) -> ElementType {
        self.step.training.data.parameter_element_type
    }

    fn op(&self, collective: Collective, element: ElementType, carried: Carried, symbol: &str, what: &str) -> Op {
        let Carried { elements, copies } = carried;
        let bytes = element.size() * elements;
        let listed = if copies > 0 {
            format!("; a list with a part of each rank: {copies} copies by the host, partition_parameters.py")
        } else {
            String::new()
        };
        Op {
            copies_per_call: copies,
            why: format!(
                "{symbol}*elements = {} B*{elements} = {bytes} B: {what}, {} ({}; arXiv 1910.02054 section 7.2; DeepSpeed \
                 runtime/zero/partitioned_param_coordinator.py, stage3.py{listed})",
                element.size(),
                self.part.name(),
                self.step.rank_parameters_formula(self.stage),
            ),
            ..Op::new(Style::Data, self.part.axis, collective, element, bytes)
        }
    }
}
