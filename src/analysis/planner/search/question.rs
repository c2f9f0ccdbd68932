//! Input of the planner: a model, GPUs, a batch, and the parts of the layout that are fixed.

use super::bases::Bases;
use super::choices::Choices;
use super::only::{Only, accepts};
use super::planned::Planned;
use crate::planner::compute::{Compute, Product};
use crate::planner::rates::Rates;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{PipelineChoices, ScheduleKind, parse_order};
use commgauge_model::config::{Model, Training};
use commgauge_model::layout::{Axis, Degrees, Layout};
use commgauge_model::workload::step::TrainingStep;

/// A question to the planner.
#[derive(Clone)]
pub struct Question<'a> {
    /// The model.
    pub model: &'a Model,
    /// The training, whose micro-batch, recomputation, ZeRO stage and virtual stages are the planner's to choose.
    pub bases: Bases,
    /// Samples of a step over all replicas.
    pub global_batch: u64,
    /// All GPUs.
    pub gpus: u32,
    /// GPUs of a node, neighbours in world rank.
    pub ranks_per_node: u32,
    /// Memory of one GPU.
    pub gpu_memory: Bytes,
    /// Computing speed of one GPU.
    pub compute: &'a Compute,
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// The fixed parts of the layout.
    pub only: Only,
    /// Number of layouts to return.
    pub wanted: usize,
    /// Whether curves with a held-out error over 10 % may be used.
    pub allow_untrusted: bool,
}

impl Question<'_> {
    /// Calls `with` with the step of a layout; without the messages between stages one by one.
    ///
    /// # Errors
    /// If the layout does not fit the question; those of `with`.
    pub fn with_step<T>(&self, planned: &Planned, with: impl FnOnce(&TrainingStep) -> Result<T>) -> Result<T> {
        let training = self.training(Choices {
            zero_stage: planned.zero_stage,
            virtual_stages: planned.virtual_stages,
            micro_batch: planned.micro_batch,
            recompute: planned.recompute,
            sequence_parallel: self.sequence_parallel(&planned.degrees),
        });
        let order = parse_order(&planned.order).map_err(Error::usage)?;
        let order: Vec<Axis> = order.into_iter().filter_map(Axis::named).collect();
        let layout = Layout::new(planned.degrees, &order)?;
        with(&TrainingStep::without_messages(self.model, &training, layout, &training.place)?)
    }

    /// The matrix products of a layout: those of a forward pass of a micro-batch through every layer and the end of the model.
    ///
    /// # Errors
    /// A layout that does not fit the question.
    pub fn products(&self, planned: &Planned) -> Result<Vec<Product>> {
        self.with_step(planned, |step| Ok(self.compute.products(step)))
    }

    /// Sequence parallelism wherever it divides evenly, unless the training does without: it never needs more memory, and
    /// experts require it.
    pub(super) fn sequence_parallel(&self, degrees: &Degrees) -> bool {
        if !self.bases.first.tensor.sequence_parallel {
            return false;
        }
        let (tp, cp) = (u64::from(degrees.tp), u64::from(degrees.cp));
        let s = self.bases.first.sequence;
        tp > 1 && s.is_multiple_of(cp) && (s / cp).is_multiple_of(tp)
    }

    /// Chunks on each rank that the layers could be cut into.
    pub(super) fn virtual_stages(&self, pp: u32) -> Vec<u32> {
        let most = if pp == 1 { 1 } else { self.model.layers / pp.max(1) };
        (1..=most).filter(|v| accepts(&self.only.virtual_stages, v)).collect()
    }

    /// The pipeline with this many chunks on each rank.
    pub(super) fn pipeline(&self, virtual_stages: u32) -> PipelineChoices {
        let schedule = if virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        PipelineChoices { schedule, virtual_stages, ..self.bases.first.pipeline.clone() }
    }

    /// The training with these choices.
    pub(super) fn training(&self, choices: Choices) -> Training {
        let mut training = self.bases.stage(choices.zero_stage).unwrap_or(&self.bases.first).clone();
        training.micro_batch = choices.micro_batch;
        training.tensor.recompute = choices.recompute;
        training.tensor.sequence_parallel = choices.sequence_parallel;
        training.pipeline = self.pipeline(choices.virtual_stages);
        training
    }
}
