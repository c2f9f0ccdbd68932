//! One optimizer step of a model in a layout: the common data of all styles.

use super::messages::Messages;
use super::stages::Stages;
use crate::config::Model;
use crate::config::step::{GradientAccumulation, Training};
use crate::layout::Layout;
use crate::workload::when::{LayerKind, Pass, When};
use commgauge_base::element::ElementType;

/// A model, its training and the layout that divides it, checked against each other.
#[derive(Clone, Debug)]
pub struct TrainingStep<'a> {
    /// The model.
    pub model: &'a Model,
    /// The training.
    pub training: &'a Training,
    /// The layout.
    pub layout: Layout,
    /// The layers of every stage.
    pub stages: Stages,
    /// Micro-batches of one replica in a step: m.
    pub micro_batches: u64,
    /// Messages of each stage to its neighbours.
    pub messages: Vec<Messages>,
}

impl<'a> TrainingStep<'a> {
    /// A step of parts that the caller checked before, for creating thousands of them: see
    /// [`TrainingStep::without_messages`].
    pub fn of_checked_parts(
        model: &'a Model,
        training: &'a Training,
        layout: Layout,
        stages: Stages,
        micro_batches: u64,
    ) -> TrainingStep<'a> {
        let messages = Messages::of_each_micro_batch(&stages, micro_batches);
        TrainingStep { model, training, layout, stages, micro_batches, messages }
    }

    /// t, p, d, c, e: tensor, pipeline, data, context and expert parallel degrees.
    pub fn degrees(&self) -> [u64; 5] {
        let d = &self.layout.degrees;
        [d.tp, d.pp, d.dp, d.cp, d.ep].map(u64::from)
    }

    /// Tokens of a replica in a step: T_d = m b s.
    pub fn tokens_per_replica(&self) -> u64 {
        self.micro_batches * self.training.micro_batch * self.training.sequence
    }

    /// Tokens of a micro-batch that one rank of cp works on: b s / c.
    pub fn tokens_per_micro_batch(&self) -> u64 {
        self.training.micro_batch * (self.training.sequence / u64::from(self.layout.degrees.cp))
    }

    /// Whether each stage keeps its parameters gathered during the step, and reduces its gradients once.
    pub fn keeps_stages_whole(&self) -> bool {
        self.training.data.gradient_accumulation == GradientAccumulation::WholeStages && self.layout.degrees.pp > 1
    }

    /// Whether parameters are released after a forward pass.
    pub fn reshards_after_forward(&self) -> bool {
        self.training.data.units.reshard_after_forward && !self.keeps_stages_whole()
    }

    /// Whether parameters that stayed are released after the backward pass of each micro-batch.
    pub fn reshards_after_backward(&self) -> bool {
        self.training.data.units.reshard_after_backward && !self.keeps_stages_whole()
    }

    /// Whether gradients of micro-batches are added up whole, and reduced once.
    pub fn adds_up_whole_gradients(&self) -> bool {
        self.training.data.gradient_accumulation == GradientAccumulation::Unsharded || self.keeps_stages_whole()
    }

    /// Words of the vocabulary with their padding.
    pub fn padded_vocabulary(&self) -> u64 {
        self.training.vocabulary.padding.padded(self.model.embedding.vocabulary, u64::from(self.layout.degrees.tp))
    }

    /// Type of activations on the wire.
    pub fn activation(&self) -> ElementType {
        self.training.activation_element_type
    }

    /// Bytes of the activations of a micro-batch at a layer's boundary, E b (s/c) h, and the formula with its numbers.
    pub fn activation_bytes(&self) -> (u64, String) {
        let element = self.activation().size();
        let (b, s, h, c) =
            (self.training.micro_batch, self.training.sequence, self.model.hidden, self.layout.degrees.cp);
        let bytes = element * self.tokens_per_micro_batch() * h;
        (bytes, format!("E*b*(s/c)*h = {element} B*{b}*({s}/{c})*{h} = {bytes} B"))
    }

    /// Calls in every layer of a stage, in one pass of every micro-batch.
    pub fn in_layers(&self, stage: u32, pass: Pass, kind: LayerKind, calls_per_layer: u64) -> When {
        When::Layer { pass, kind, calls_per_layer, layers: self.layers_passed(stage, kind) }
    }

    /// Layers of a kind that a micro-batch passes on a stage.
    pub fn layers_passed(&self, stage: u32, kind: LayerKind) -> u64 {
        self.stages.layers_passed(stage).filter(|layer| self.is_of_kind(*layer, kind)).count() as u64
    }

    /// Whether a layer is of a kind.
    pub fn is_of_kind(&self, layer: u32, kind: LayerKind) -> bool {
        kind.has(self.model.parts_of(layer))
    }
}
