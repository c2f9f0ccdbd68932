//! The modules of a stage, in the order in which they work on a micro-batch: that of transformers' Llama, or of its Mixtral, whose experts
//! DeepSpeed takes for one module; of other families every tensor counts as a module of its own.

use super::coordinator::Module;
use super::tensor::{Order, Tensor};
use super::tensors::{of_ends, of_layer_alone};
use crate::config::Family;
use crate::config::step::Recompute;
use crate::workload::step::TrainingStep;
use crate::workload::when::Pass;

/// Tensors of a layer of transformers' Llama: a norm, q, k, v, o, a norm, gate, up, down.
const LLAMA_TENSORS: usize = 9;
/// Where in them modules without tensors of their own begin: attention, feed-forward, and the activation behind the gate.
const LLAMA_MODULES: [usize; 3] = [1, 6, 7];

/// The tensors of a stage, and its modules in the order in which they work on a micro-batch.
pub(super) struct Traced {
    /// The tensors, in the order of the model.
    pub tensors: Vec<Tensor>,
    /// The modules of a micro-batch, in the order in which they work.
    pub trace: Vec<Module>,
}

impl Traced {
    /// Those of a stage.
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
        // Norm and head are the last two; the whole model's own hook comes between them.
        work(Pass::Backward, std::iter::once(vec![]).chain(output.last().map(alone)).collect());
        work(Pass::Backward, std::iter::once(vec![]).chain(output.iter().rev().skip(1).map(alone)).collect());
        for layer in layers.iter().rev() {
            if step.training.tensor.recompute == Recompute::Full {
                work(Pass::Recompute, order.forward(layer, &tensors));
            }
            work(Pass::Backward, order.backward(layer, &tensors));
        }
        work(Pass::Backward, input.iter().rev().map(alone).collect());
        traced
    }

    /// Tensors in the order in which their gradients are complete: one that two modules have, behind the second.
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

/// The order in which the modules of a layer work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ModuleOrder {
    /// That of transformers' Llama, with modules that have no tensors of their own.
    Llama,
    /// The same with router and experts in one module (runtime/zero/leaf_module_config.py DEFAULT_LEAF_MODULE_CLASSES).
    Mixtral,
    /// The layer, and every tensor.
    Tensors,
}

impl ModuleOrder {
    fn of(step: &TrainingStep) -> ModuleOrder {
        match step.model.family {
            Family::Mixtral | Family::Qwen2Moe | Family::Qwen3Moe => ModuleOrder::Mixtral,
            family if step.model.mixture.is_none() && family.gated() => ModuleOrder::Llama,
            _ => ModuleOrder::Tensors,
        }
    }

    /// The modules of a layer on the way forward, the layer itself first.
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

    /// The same on the way back: the layer, its feed-forward, down, up, the activation, gate, norm, attention, o, v, k, q, norm.
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

    /// What a layer has before its experts, both norms among it, and the experts with their router, which stands before them.
    fn apart<'a>(self, layer: &'a [usize], tensors: &[Tensor]) -> Option<(&'a [usize], &'a [usize])> {
        let first =
            layer.iter().position(|tensor| tensors[*tensor].is_expert()).filter(|_| self == ModuleOrder::Mixtral)?;
        Some(layer.split_at(first.checked_sub(1)?))
    }
}
