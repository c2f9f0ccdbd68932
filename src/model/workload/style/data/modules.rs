//! ZeRO-3 as DeepSpeed runs it: gathers by module, tensors that stay on every rank, and gradients in buckets.
//!
//! Which modules there are and in which order they work is that of transformers' Llama; of other families every tensor counts as a
//! module of its own. Source: DeepSpeed runtime/zero/stage3.py, partitioned_param_coordinator.py.

use super::coordinator::{self, Module, Parameter, Urgency};
use super::parts::{Part, parts};
use super::tensors::{Order, Tensor, of_ends, of_layer_alone};
use crate::config::step::{Recompute, ShardBuffers};
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Moment, Overlap, Pass, When};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use std::collections::BTreeMap;

/// `reduce_bucket_size` of DeepSpeed's runtime/zero/config.py.
const BUCKET_PARAMETERS: u64 = 500_000_000;
/// Copies of each rank's part of a tensor where parts are gathered into a list: from the buffer of the call into the list (PyTorch
/// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp `allgather`), and from there into the tensor (DeepSpeed of 2021,
/// runtime/zero/partition_parameters.py `_allgather_params`).
const GATHER_COPIES: u64 = 2;
/// The same where a list is scattered: into the buffer of the call (`reduce_scatter`; `_reduce_scatter_gradient`).
const SCATTER_COPIES: u64 = 1;
/// Tensors of a layer of transformers' Llama: a norm, q, k, v, o, a norm, gate, up, down.
const LLAMA_TENSORS: usize = 9;
/// Where in them modules without tensors of their own begin: attention, feed-forward, and the activation behind the gate.
const LLAMA_MODULES: [usize; 3] = [1, 6, 7];

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Vec<Op> {
    let model = Traced::of(step, stage);
    let sharded = parts(step);
    let mut ops = Vec::new();
    for part in &sharded {
        let calls = Calls { step, stage, part: *part, model: &model };
        ops.extend(calls.gathers());
        ops.extend(calls.reductions());
        ops.extend(calls.returns());
    }
    ops
}

/// The tensors of a stage, and its modules in the order in which they work on a micro-batch.
struct Traced {
    tensors: Vec<Tensor>,
    trace: Vec<Module>,
}

impl Traced {
    fn of(step: &TrainingStep, stage: u32) -> Traced {
        let mut traced = Traced { tensors: Vec::new(), trace: Vec::new() };
        let [input, output] = of_ends(step, stage);
        let input: Vec<usize> = input.into_iter().map(|tensor| traced.add(tensor)).collect();
        let layers = step.stages.layers_passed(stage);
        let layers: Vec<Vec<usize>> = layers
            .map(|layer| {
                of_layer_alone(step, layer, Order::PyTorch).into_iter().map(|tensor| traced.add(tensor)).collect()
            })
            .collect();
        let mut output: Vec<usize> = output.into_iter().map(|tensor| traced.add(tensor)).collect();
        let tied = step.model.tied_embeddings && step.stages.has_output(stage);
        output.extend(input.first().filter(|_| tied));
        let order = ModuleOrder::of(step);
        let each = |layer: &Vec<usize>| order.forward(layer);
        let alone = |tensor: &usize| vec![*tensor];
        let mut forward = vec![vec![], vec![]];
        forward.extend(input.iter().map(alone));
        forward.push(vec![]);
        forward.extend(layers.iter().flat_map(each));
        forward.extend(output.iter().map(alone));
        let mut work = |pass: Pass, modules: Vec<Vec<usize>>| {
            traced.trace.extend(modules.into_iter().map(|parameters| Module { pass, parameters }));
        };
        work(Pass::Forward, forward);
        // Norm and head are the last two; the whole model's own hook comes between them.
        work(Pass::Backward, std::iter::once(vec![]).chain(output.last().map(alone)).collect());
        work(Pass::Backward, std::iter::once(vec![]).chain(output.iter().rev().skip(1).map(alone)).collect());
        for layer in layers.iter().rev() {
            if step.training.tensor.recompute == Recompute::Full {
                work(Pass::Recompute, order.forward(layer));
            }
            work(Pass::Backward, order.backward(layer));
        }
        work(Pass::Backward, input.iter().rev().map(alone).collect());
        traced
    }

    /// Tensors in the order in which their gradients are complete: one that two modules have, behind the second.
    fn gradients(&self) -> Vec<usize> {
        let backward = self.trace.iter().filter(|module| module.pass == Pass::Backward);
        let mut from_the_end: Vec<usize> = Vec::new();
        for tensor in backward.rev().flat_map(|module| module.parameters.iter().copied()) {
            if !from_the_end.contains(&tensor) {
                from_the_end.push(tensor);
            }
        }
        from_the_end.into_iter().rev().collect()
    }

    fn add(&mut self, tensor: Tensor) -> usize {
        self.tensors.push(tensor);
        self.tensors.len() - 1
    }
}

/// The order in which the modules of a layer work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ModuleOrder {
    /// That of transformers' Llama, with modules that have no tensors of their own.
    Llama,
    /// The layer, and every tensor.
    Tensors,
}

impl ModuleOrder {
    fn of(step: &TrainingStep) -> ModuleOrder {
        match step.model.mixture {
            None if step.model.family.gated() => ModuleOrder::Llama,
            _ => ModuleOrder::Tensors,
        }
    }

    /// The modules of a layer on the way forward, the layer itself first.
    fn forward(self, layer: &[usize]) -> Vec<Vec<usize>> {
        let mut modules = vec![vec![]];
        for (index, tensor) in layer.iter().enumerate() {
            if self == ModuleOrder::Llama && layer.len() == LLAMA_TENSORS && LLAMA_MODULES.contains(&index) {
                modules.push(vec![]);
            }
            modules.push(vec![*tensor]);
        }
        modules
    }

    /// The same on the way back: the layer, its feed-forward, down, up, the activation, gate, norm, attention, o, v, k, q, norm.
    fn backward(self, layer: &[usize]) -> Vec<Vec<usize>> {
        let [norm, q, k, v, o, second, gate, up, down] = match <[usize; LLAMA_TENSORS]>::try_from(layer) {
            Ok(tensors) if self == ModuleOrder::Llama => tensors,
            _ => return std::iter::once(vec![]).chain(layer.iter().rev().map(|tensor| vec![*tensor])).collect(),
        };
        let of_feed_forward = [vec![], vec![], vec![down], vec![up], vec![], vec![gate], vec![second]];
        let of_attention = [vec![], vec![o], vec![v], vec![k], vec![q], vec![norm]];
        of_feed_forward.into_iter().chain(of_attention).collect()
    }
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
        if self.model.tensors[tensor].expert { self.part.experts } else { self.part.dense }
    }

    /// Elements of tensors in one call, each rounded up so that its shards are equal.
    fn elements(&self, tensors: &[usize]) -> u64 {
        let of_part = tensors.iter().filter(|tensor| self.is_here(**tensor));
        of_part.map(|tensor| self.model.tensors[*tensor].elements.next_multiple_of(self.part.ranks)).sum()
    }

    fn is_persistent(&self, tensor: &Tensor) -> bool {
        tensor.elements < self.step.training.data.modules.persistent_parameters
    }

    /// What a call with these tensors carries, of which each rank's part is copied so often.
    fn carried(&self, tensors: &[usize], copies_of_part: u64) -> Carried {
        let tensors: Vec<usize> = tensors.iter().copied().filter(|tensor| self.is_here(*tensor)).collect();
        let copies = match self.step.training.data.shard_buffers {
            ShardBuffers::Flat => 0,
            ShardBuffers::Listed => copies_of_part * tensors.len() as u64 * self.part.ranks,
        };
        Carried { elements: self.elements(&tensors), copies }
    }

    /// What modules need and what comes next, in every micro-batch.
    fn gathers(&self) -> Vec<Op> {
        let tensors = self.model.tensors.iter();
        let parameters: Vec<Parameter> = tensors
            .map(|tensor| Parameter { elements: tensor.elements, persistent: self.is_persistent(tensor) })
            .collect();
        let (choices, micro_batches) = (self.step.training.data.modules, self.step.micro_batches);
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
            let op = Op { when, overlap, ..self.op(Collective::AllGather, self.parameter(), carried, "Ep", what) };
            self.part.in_pass(self.step, pass, op)
        };
        equal.into_iter().map(op).collect()
    }

    /// Gradients in the order in which they come, in every micro-batch; a bucket closes before the tensor that would pass its size.
    fn reductions(&self) -> Vec<Op> {
        let limit = self.step.training.data.bucket_parameters.unwrap_or(BUCKET_PARAMETERS);
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
        let data = &self.step.training.data;
        let overlap = if data.overlap_gradients { Overlap::Backward } else { Overlap::Exposed };
        let what = format!("gradients in a bucket of up to {limit} parameters, in every micro-batch");
        let op = |(carried, calls): (Carried, u64)| Op {
            when: When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls, one_in: 1 },
            overlap,
            ..self.op(Collective::ReduceScatter, data.gradient_element_type, carried, "Eg", &what)
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
        let below = self.step.training.data.modules.persistent_parameters;
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
