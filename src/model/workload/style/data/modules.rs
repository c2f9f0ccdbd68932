//! ZeRO-3 as in DeepSpeed: gathers by module, tensors that stay on every rank, and gradients in buckets.
//!
//! Source: DeepSpeed runtime/zero/stage3.py, partitioned_param_coordinator.py.

use super::fsdp::{self, ReducingRanks, Reduction};
use super::tensors::{Order, Part, Tensor, of_ends, of_layer_alone, parts};
use crate::config::step::{DEEPSPEED_BUCKET_PARAMETERS, ModuleChoices, ShardBuffers};
use crate::workload::op::{End, Moment, Overlap, Pass, When};
use crate::workload::step::TrainingStep;
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::writing::grouped;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Copies of each rank's part of a tensor if parts are gathered into a list: from the buffer of the call into the list (PyTorch
/// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp `allgather`), and from there into the tensor (DeepSpeed of 2021,
/// runtime/zero/partition_parameters.py `_allgather_params`).
const GATHER_COPIES: u64 = 2;

/// If a list is scattered: into the buffer of the call (`reduce_scatter`; `_reduce_scatter_gradient`).
const SCATTER_COPIES: u64 = 1;

/// The calls of one rank of a stage in an optimizer step.
///
/// # Errors
/// If the ranks do not divide the blocks of quantised parameters or gradients.
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

/// Content of a call.
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

    /// The content of a call with these tensors; each rank's part is copied this many times.
    fn carried(&self, tensors: &[usize], copies_of_part: u64) -> Carried {
        let tensors: Vec<usize> = tensors.iter().copied().filter(|tensor| self.is_here(*tensor)).collect();
        let copies = match self.step.training.data.units.shard_buffers {
            ShardBuffers::Flat => 0,
            ShardBuffers::Listed => copies_of_part * tensors.len() as u64 * self.part.ranks,
        };
        Carried { elements: self.elements(&tensors), copies }
    }

    /// Gathers for the active module and the next ones, in every micro-batch.
    fn gathers(&self) -> Result<Vec<Op>> {
        let tensors = self.model.tensors.iter();
        let parameters: Vec<Parameter> = tensors
            .map(|tensor| Parameter { elements: tensor.elements, persistent: self.is_persistent(tensor) })
            .collect();
        let (choices, micro_batches) = (self.step.training.data.units.modules, self.step.micro_batches);
        let gathers = gathers(&parameters, &self.model.trace, choices, micro_batches);
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
                Urgency::Needed => (Overlap::Exposed, "for the active module"),
                Urgency::Ahead => (Overlap::Prefetch, "for the next modules"),
            };
            let when = When::MicroBatch { pass, end, calls, one_in: 1 };
            let element = if choices.quantised { ElementType::Int8 } else { self.parameter() };
            let op = Op { when, overlap, ..self.op(Collective::AllGather, element, carried, "Ep", what) };
            let op = self.part.in_pass(self.step, pass, op);
            if !choices.quantised {
                return Ok(vec![op]);
            }
            let ranks = u64::from(self.step.layout.group_size(op.axis));
            fsdp::gathers(&op, carried.elements, ranks)
                .map(Vec::from)
                .map_err(|problem| self.step.training.places.table().wrong(problem))
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

    /// Tensor by tensor, with equal calls grouped.
    fn quantised_reductions(&self, node: u64) -> Result<Vec<Op>> {
        let data = &self.step.training.data;
        let Part { axis, ranks, .. } = self.part;
        let among = ReducingRanks { axis, ranks, node, element: data.gradient_element_type };
        let mut calls = Vec::new();
        for tensor in self.model.gradients().into_iter().filter(|tensor| self.is_here(*tensor)) {
            let of_tensor = fsdp::reductions(&self.model.tensors[tensor], among);
            calls.extend(of_tensor.map_err(|problem| self.step.training.places.table().wrong(problem))?);
        }
        let equal = grouped(calls.into_iter().map(|call| (call, ())));
        let op = |(call, equal): (Reduction, Vec<()>)| Op {
            when: When::MicroBatch { pass: Pass::Backward, end: End::Whole, calls: equal.len() as u64, one_in: 1 },
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

    /// Gradients in the order in which they are produced, in every micro-batch; a bucket closes before the tensor that would exceed its
    /// size.
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

    /// Tensors that stay on every rank, each in a separate call after the optimizer.
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

// The modules of a stage, in the order of their work on a micro-batch: those of transformers' Llama, or of its Mixtral, whose experts
// DeepSpeed treats as one module; for other families every tensor counts as a separate module.

/// Tensors of a layer of transformers' Llama: a norm, q, k, v, o, a norm, gate, up, down.
const LLAMA_TENSORS: usize = 9;

/// The indices at which modules without tensors of their own begin: attention, feed-forward, and the activation after the gate.
const LLAMA_MODULES: [usize; 3] = [1, 6, 7];

/// The tensors of a stage, and its modules in the order of their work on a micro-batch.
pub(super) struct Traced {
    /// The tensors, in model order.
    pub tensors: Vec<Tensor>,
    /// The modules of a micro-batch, in work order.
    pub trace: Vec<Module>,
}

impl Traced {
    pub fn of(step: &TrainingStep, stage: u32) -> Traced {
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
        let tied = step.model.embedding.tied && step.stages.has_output(stage);
        output.extend(input.first().filter(|_| tied));
        let order = ModuleOrder::of(step);
        let tensors = traced.tensors.clone();
        let each = |layer: &Vec<usize>| order.forward(layer, &tensors);
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
        // Norm and head are the last two; the hook of the whole model is between them.
        work(Pass::Backward, std::iter::once(vec![]).chain(output.last().map(alone)).collect());
        work(Pass::Backward, std::iter::once(vec![]).chain(output.iter().rev().skip(1).map(alone)).collect());
        let repeated = step.training.tensor.layers_repeated(layers.len());
        for (index, layer) in layers.iter().enumerate().rev() {
            if index < repeated {
                work(Pass::Recompute, order.forward(layer, &tensors));
            }
            work(Pass::Backward, order.backward(layer, &tensors));
        }
        work(Pass::Backward, input.iter().rev().map(alone).collect());
        traced
    }

    /// Tensors in the order in which their gradients complete: one shared by two modules follows the second.
    pub fn gradients(&self) -> Vec<usize> {
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

/// The order of the modules of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ModuleOrder {
    /// The order of transformers' Llama, with modules that have no tensors of their own.
    Llama,
    /// With router and experts in one module (runtime/zero/leaf_module_config.py DEFAULT_LEAF_MODULE_CLASSES).
    Mixtral,
    /// The layer, and every tensor.
    Tensors,
}

impl ModuleOrder {
    fn of(step: &TrainingStep) -> ModuleOrder {
        match &step.model.family {
            family if family.transformers.one_module_of_experts => ModuleOrder::Mixtral,
            family if step.model.mixture.is_none() && family.gated => ModuleOrder::Llama,
            _ => ModuleOrder::Tensors,
        }
    }

    /// The modules of a layer in the forward pass, the layer itself first.
    fn forward(self, layer: &[usize], tensors: &[Tensor]) -> Vec<Vec<usize>> {
        if let Some((attention, experts)) = self.apart(layer, tensors) {
            let [norm, projections @ .., second] = attention else { return vec![layer.to_vec()] };
            let alone = projections.iter().map(|tensor| vec![*tensor]);
            return [vec![], vec![*norm], vec![]]
                .into_iter()
                .chain(alone)
                .chain([vec![*second], experts.to_vec()])
                .collect();
        }
        let mut modules = vec![vec![]];
        for (index, tensor) in layer.iter().enumerate() {
            if self == ModuleOrder::Llama && layer.len() == LLAMA_TENSORS && LLAMA_MODULES.contains(&index) {
                modules.push(vec![]);
            }
            modules.push(vec![*tensor]);
        }
        modules
    }

    /// The modules in the backward pass: the layer, its feed-forward, down, up, the activation, gate, norm, attention, o, v, k, q, norm.
    fn backward(self, layer: &[usize], tensors: &[Tensor]) -> Vec<Vec<usize>> {
        if let Some((attention, experts)) = self.apart(layer, tensors) {
            let [norm, projections @ .., second] = attention else { return vec![layer.to_vec()] };
            let alone = projections.iter().rev().map(|tensor| vec![*tensor]);
            return [vec![], experts.to_vec(), vec![*second], vec![]]
                .into_iter()
                .chain(alone)
                .chain([vec![*norm]])
                .collect();
        }
        let [norm, q, k, v, o, second, gate, up, down] = match <[usize; LLAMA_TENSORS]>::try_from(layer) {
            Ok(tensors) if self == ModuleOrder::Llama => tensors,
            _ => return std::iter::once(vec![]).chain(layer.iter().rev().map(|tensor| vec![*tensor])).collect(),
        };
        let of_feed_forward = [vec![], vec![], vec![down], vec![up], vec![], vec![gate], vec![second]];
        let of_attention = [vec![], vec![o], vec![v], vec![k], vec![q], vec![norm]];
        of_feed_forward.into_iter().chain(of_attention).collect()
    }

    /// A layer's tensors before its experts, including both norms, and the experts with their router, which precedes them.
    fn apart<'a>(self, layer: &'a [usize], tensors: &[Tensor]) -> Option<(&'a [usize], &'a [usize])> {
        let first =
            layer.iter().position(|tensor| tensors[*tensor].is_expert()).filter(|_| self == ModuleOrder::Mixtral)?;
        Some(layer.split_at(first.checked_sub(1)?))
    }
}

// Which parameters DeepSpeed's ZeRO-3 gathers, and at which module: it learns the modules of a micro-batch from earlier ones, fetches what
// the active module lacks, prefetches, and releases parameters that are not used again soon.
//
// DeepSpeed runtime/zero/partitioned_param_coordinator.py fetch_sub_module, release_sub_module.

/// A tensor of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub elements: u64,
    /// Whether it stays on every rank.
    pub persistent: bool,
}

/// An active module: the parameters it reads, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub pass: Pass,
    pub parameters: Vec<usize>,
}

/// Parameters that are gathered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gather {
    pub pass: Pass,
    pub urgency: Urgency,
    pub parameters: Vec<usize>,
}

/// Whether a module waits for the gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// The active module does.
    Needed,
    /// A later one will.
    Ahead,
}

/// Whether the persistent tensors are complete when a micro-batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistent {
    /// Yes: an optimizer step has gathered them.
    Here,
    /// No: no optimizer step has ended.
    NotYet,
}

/// The gathers of one of several micro-batches of a step, whose modules run in this order.
///
/// A module's releases are decided in the first micro-batch in which all modules are known, the second of all, and kept. With several
/// micro-batches per step, that is before the first optimizer step.
pub(super) fn gathers(
    parameters: &[Parameter],
    trace: &[Module],
    choices: ModuleChoices,
    micro_batches: u64,
) -> Vec<Gather> {
    let new = |persistent| Coordinator::new(parameters, trace, choices, persistent);
    let mut later = new(Persistent::Here);
    if micro_batches > 1 {
        let mut first = new(Persistent::NotYet);
        first.work();
        later.known = Some(first.decided);
    }
    later.work();
    later.gathers
}

struct Coordinator<'a> {
    parameters: &'a [Parameter],
    trace: &'a [Module],
    choices: ModuleChoices,
    here: Vec<bool>,
    /// Gathered elements not yet released.
    elements_here: i128,
    /// Every unprocessed use of a parameter, with its module.
    uses: VecDeque<(usize, usize)>,
    /// The last processed use of each parameter.
    looked_at: Vec<Option<usize>>,
    gathers: Vec<Gather>,
    /// The releases of each processed module, and the known ones if they were decided before.
    decided: Vec<Vec<usize>>,
    known: Option<Vec<Vec<usize>>>,
}

impl<'a> Coordinator<'a> {
    fn new(
        parameters: &'a [Parameter],
        trace: &'a [Module],
        choices: ModuleChoices,
        persistent: Persistent,
    ) -> Coordinator<'a> {
        let uses = trace.iter().enumerate().flat_map(|(index, module)| {
            let each: BTreeSet<usize> = module.parameters.iter().copied().collect();
            each.into_iter().map(move |parameter| (parameter, index))
        });
        Coordinator {
            parameters,
            trace,
            choices,
            here: parameters.iter().map(|each| each.persistent && persistent == Persistent::Here).collect(),
            elements_here: 0,
            uses: uses.collect(),
            looked_at: vec![None; parameters.len()],
            gathers: Vec::new(),
            decided: Vec::new(),
            known: None,
        }
    }

    fn work(&mut self) {
        for index in 0..self.trace.len() {
            self.fetch(index);
            self.fetch_ahead(index);
            self.release(index);
        }
    }

    /// Parameters that the module needs and lacks.
    fn fetch(&mut self, index: usize) {
        let needed = self.trace[index].parameters.iter().copied();
        let missing = needed.filter(|parameter| !self.here[*parameter]).collect();
        self.gather(index, Urgency::Needed, missing);
    }

    /// Parameters of the next modules, up to a number and a limit of gathered ones.
    fn fetch_ahead(&mut self, index: usize) {
        let own = &self.trace[index].parameters;
        let unseen = own.iter().filter(|parameter| self.looked_at[**parameter].is_none_or(|last| last < index)).count();
        let mut taken = BTreeSet::new();
        while taken.len() < unseen {
            let Some((parameter, at)) = self.uses.pop_front() else { break };
            self.looked_at[parameter] = Some(at);
            taken.insert(parameter);
        }
        let room = i128::from(self.choices.live_parameters) - self.elements_here;
        let most = room.min(i128::from(self.choices.prefetch_bucket));
        let mut ahead = Vec::new();
        let mut elements = 0;
        while elements < most {
            let Some((parameter, at)) = self.uses.pop_front() else { break };
            self.looked_at[parameter] = self.looked_at[parameter].max(Some(at));
            if !self.here[parameter] && !ahead.contains(&parameter) {
                ahead.push(parameter);
                elements += i128::from(self.parameters[parameter].elements);
            }
        }
        self.gather(index, Urgency::Ahead, ahead);
    }

    fn gather(&mut self, index: usize, urgency: Urgency, parameters: Vec<usize>) {
        if parameters.is_empty() {
            return;
        }
        for parameter in &parameters {
            self.here[*parameter] = true;
            self.elements_here += i128::from(self.parameters[*parameter].elements);
        }
        self.gathers.push(Gather { pass: self.trace[index].pass, urgency, parameters });
    }

    fn release(&mut self, index: usize) {
        let released = match &self.known {
            Some(known) => known[index].clone(),
            None => self.releasable(index),
        };
        for parameter in released.iter().copied() {
            if std::mem::take(&mut self.here[parameter]) {
                self.elements_here -= i128::from(self.parameters[parameter].elements);
            }
        }
        self.decided.push(released);
    }

    /// Parameters read by the module, unless they stay, were prefetched for a later module, or are used again soon.
    fn releasable(&self, index: usize) -> Vec<usize> {
        let next = index + 1;
        let soon = self.used_soon(next);
        let goes = |parameter: &usize| {
            let fetched_for_later = self.looked_at[*parameter].is_some_and(|last| last > next);
            !self.parameters[*parameter].persistent && !fetched_for_later && !soon.contains(parameter)
        };
        self.trace[index].parameters.iter().copied().filter(goes).collect()
    }

    /// The parameters of the next modules, up to the distance within which nothing is released.
    fn used_soon(&self, next: usize) -> BTreeSet<usize> {
        let mut soon = BTreeSet::new();
        let mut passed = 0;
        for module in &self.trace[next..] {
            if passed >= self.choices.reuse_distance {
                break;
            }
            soon.extend(module.parameters.iter().copied());
            passed += module.parameters.iter().map(|parameter| self.parameters[*parameter].elements).sum::<u64>();
        }
        soon
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Two layers of 10 parameters each, forward and backward.
    fn gathered(choices: ModuleChoices) -> Vec<(Pass, Urgency, Vec<usize>)> {
        let parameters = [Parameter { elements: 10, persistent: false }; 2];
        let module = |pass, parameter| Module { pass, parameters: vec![parameter] };
        let trace = [(Pass::Forward, 0), (Pass::Forward, 1), (Pass::Backward, 1), (Pass::Backward, 0)]
            .map(|(p, i)| module(p, i));
        gathers(&parameters, &trace, choices, 1).into_iter().map(|g| (g.pass, g.urgency, g.parameters)).collect()
    }

    #[test]
    fn parameters_come_when_they_are_needed_or_ahead_and_stay_where_they_are_used_soon() {
        use Pass::{Backward, Forward};
        use Urgency::{Ahead, Needed};
        let nothing = ModuleChoices {
            persistent_parameters: 0,
            prefetch_bucket: 0,
            live_parameters: 100,
            reuse_distance: 0,
            quantised: false,
        };
        let alone = [(Forward, 0), (Forward, 1), (Backward, 1), (Backward, 0)].map(|(p, i)| (p, Needed, vec![i]));
        assert_eq!(gathered(nothing), alone);
        let kept = ModuleChoices { reuse_distance: 10, ..nothing };
        assert_eq!(gathered(kept), [&alone[..2], &alone[3..]].concat());
        let ahead = ModuleChoices { prefetch_bucket: 10, ..nothing };
        let expected = [(Forward, Ahead, vec![1]), (Forward, Ahead, vec![0])];
        let expected = [&alone[..1], &expected, &alone[2..3]].concat();
        assert_eq!(gathered(ahead), expected);
        let full = ModuleChoices { live_parameters: 10, ..ahead };
        assert_eq!(gathered(full), alone, "no room to prefetch");
    }
}
