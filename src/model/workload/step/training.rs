//! One optimizer step of a model in a layout: the common data of all styles.

use super::check;
use super::messages::Messages;
use super::stages::Stages;
use crate::config::step::{Batch, Training};
use crate::config::{Model, Place};
use crate::layout::Layout;
use crate::workload::when::{LayerKind, Pass, When};
use crate::workload::{Op, style};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

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
    /// `place` is the place of the layout.
    ///
    /// # Errors
    /// The violated rule, with the numbers and what would satisfy it, at the place of the layout, the batch or the
    /// choice.
    pub fn new(model: &'a Model, training: &'a Training, layout: Layout, place: &Place) -> Result<TrainingStep<'a>> {
        let mut step = TrainingStep::without_messages(model, training, layout, place)?;
        step.messages = Messages::of_stages(&training.pipeline, &step.stages, step.micro_batches)
            .map_err(|problem| training.pipeline.place.wrong(problem))?;
        Ok(step)
    }

    /// As [`TrainingStep::new`], for callers that run the schedule anyway: the rules of the schedule are checked, but
    /// its messages are not counted; every stage has one each way.
    ///
    /// # Errors
    /// As there.
    pub fn without_messages(
        model: &'a Model,
        training: &'a Training,
        layout: Layout,
        place: &Place,
    ) -> Result<TrainingStep<'a>> {
        let data = &training.data;
        let layout = layout
            .with_replicas_of_shards(data.replicas_of_shards)
            .map_err(|problem| data.replicas_place.wrong(problem))?;
        let context = &training.context;
        let layout = layout.with_inner_context(context.inner).map_err(|problem| context.place.wrong(problem))?;
        let stages = Stages::share_out(model.layers, layout.degrees.pp, &training.pipeline)
            .map_err(|problem| place.wrong(format!("{}: {problem}", model.name)))?;
        let micro_batches = micro_batches(training, layout.degrees.dp)?;
        Messages::check(&training.pipeline, &stages, micro_batches)
            .map_err(|problem| training.pipeline.place.wrong(problem))?;
        let messages = vec![Messages::ONE_EACH; stages.count() as usize];
        let step = TrainingStep { model, training, layout, stages, micro_batches, messages };
        check::training(&step, place)?;
        Ok(step)
    }

    /// A step of parts that the caller checked before, for creating thousands of them: see
    /// [`TrainingStep::without_messages`].
    pub fn of_checked_parts(
        model: &'a Model,
        training: &'a Training,
        layout: Layout,
        stages: Stages,
        micro_batches: u64,
    ) -> TrainingStep<'a> {
        let messages = vec![Messages::ONE_EACH; stages.count() as usize];
        TrainingStep { model, training, layout, stages, micro_batches, messages }
    }

    /// The calls of one rank of a stage, style by style. Calls on groups of one rank, and calls with a count of 0, are
    /// left out.
    ///
    /// # Errors
    /// Calls that cannot be generated, such as counts that pass 64 bits.
    pub fn ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        let mut ops = style::training_ops(self, stage)?;
        ops.retain(|op| self.layout.group_size(op.axis) > 1 && op.when.count_per_step(self.micro_batches) != Some(0));
        Ok(ops)
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
        match kind {
            LayerKind::Any => true,
            LayerKind::Dense => !self.model.has_experts_in(layer),
            LayerKind::Experts => self.model.has_experts_in(layer),
        }
    }
}

/// m = global batch / (micro-batch x replicas).
fn micro_batches(training: &Training, replicas: u32) -> Result<u64> {
    match &training.batch {
        Batch::MicroBatches(count) => Ok(*count),
        Batch::Global(global, place) => {
            let (b, d) = (training.micro_batch, u64::from(replicas));
            let together = b * d;
            if global.is_multiple_of(together) {
                return Ok(global / together);
            }
            let up = global.next_multiple_of(together);
            let down = up.saturating_sub(together);
            let nearest = if down == 0 { up.to_string() } else { format!("{down}, {up}") };
            Err(place.wrong(format!(
                "{global} samples are no multiple of micro-batch {b} x {d} replicas = {together}; nearest: {nearest}"
            )))
        }
    }
}
