//! Steps whose model, choices and layout were checked against each other.

use super::check;
use super::check_serving;
use super::messages::Messages;
use super::serving::{PassTokens, Phase, ServingStep};
use super::stages::Stages;
use super::training::TrainingStep;
use crate::config::step::{
    Batch, PipelineChoices, ScheduleKind, Serving, ServingDispatcher, Training, ranks_of_ep_on_a_node,
};
use crate::config::{Model, Place};
use crate::layout::{Axis, Division, Layout};
use commgauge_base::error::Result;

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
    /// its messages are counted as those of 1F1B.
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
        let layout = data
            .shards
            .groups(layout.group_size(Axis::DpCp))
            .and_then(|groups| layout.divided(Division::ReplicasOfShards, groups))
            .and_then(|layout| layout.divided(Division::InnerShards, data.shards.gather_inner.unwrap_or(1)))
            .map_err(|problem| data.shards.place.wrong(problem))?;
        let context = &training.context;
        let layout =
            layout.divided(Division::InnerContext, context.inner).map_err(|problem| context.place.wrong(problem))?;
        let expert = &training.expert;
        let layout = match expert.dispatcher.goes_by_node() {
            true => {
                let inner = ranks_of_ep_on_a_node(expert.inner, layout.degrees.ep);
                layout.divided(Division::InnerExperts, inner).map_err(|problem| expert.place.wrong(problem))?
            }
            false => layout,
        };
        let stages = Stages::share_out(model.layers, layout.degrees.pp, &training.pipeline)
            .map_err(|problem| place.wrong(format!("{}: {problem}", model.name)))?
            .with_prediction_layers(training.prediction_layers);
        let micro_batches = micro_batches(training, layout.degrees.dp)?;
        Messages::check(&training.pipeline, &stages, micro_batches)
            .map_err(|problem| training.pipeline.place.wrong(problem))?;
        let messages = Messages::of_each_micro_batch(&stages, micro_batches);
        let step = TrainingStep { model, training, layout, stages, micro_batches, messages };
        check::training(&step, place)?;
        Ok(step)
    }
}

impl<'a> ServingStep<'a> {
    /// `place` is the place of the layout.
    ///
    /// # Errors
    /// The violated rule, with the numbers and what would satisfy it.
    pub fn new(
        model: &'a Model,
        serving: &'a Serving,
        phase: Phase,
        layout: Layout,
        place: &Place,
    ) -> Result<ServingStep<'a>> {
        let choices = PipelineChoices {
            schedule: ScheduleKind::GPipe,
            virtual_stages: 1,
            place: place.clone(),
            stage_layers: None,
            scatter_gather: false,
        };
        let layout = match serving.expert.dispatcher {
            ServingDispatcher::DeepEp => {
                let inner = ranks_of_ep_on_a_node(serving.expert.inner, layout.degrees.ep);
                layout.divided(Division::InnerExperts, inner).map_err(|problem| serving.place.wrong(problem))?
            }
            _ => layout,
        };
        let layout = layout
            .divided(Division::DecodeContext, serving.decode_context.ranks)
            .map_err(|problem| serving.place.wrong(problem))?;
        let stages = Stages::share_out(model.layers, layout.degrees.pp, &choices)
            .map_err(|problem| place.wrong(format!("{}: {problem}", model.name)))?;
        let tokens = PassTokens::of_phase(serving, phase, layout.degrees.cp);
        let step = ServingStep { model, serving, phase, layout, stages, tokens };
        check_serving::serving(&step, place)?;
        Ok(step)
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
