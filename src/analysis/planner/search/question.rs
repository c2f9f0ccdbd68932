//! Input of the planner: a model, GPUs, a batch, and the parts of the layout that are fixed.

use super::bases::Bases;
use super::choices::{Choices, PipelineCut};
use super::only::{Only, accepts};
use super::planned::Planned;
use crate::planner::compute::{Compute, Product};
use crate::planner::memory::MemoryChoices;
use crate::planner::rates::Rates;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{PipelineChoices, ScheduleKind, parse_order};
use commgauge_model::config::{Model, Training};
use commgauge_model::layout::{Axis, Degrees, Layout};
use commgauge_model::workload::step::{Stages, TrainingStep};

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
}

impl Question<'_> {
    /// Calls `with` with the step of a layout; without the messages between stages one by one.
    ///
    /// # Errors
    /// If the layout does not fit the question; those of `with`.
    pub fn with_step<T>(&self, planned: &Planned, with: impl FnOnce(&TrainingStep) -> Result<T>) -> Result<T> {
        let mut training = self.training(Choices {
            zero_stage: planned.zero_stage,
            schedule: planned.schedule,
            virtual_stages: planned.virtual_stages,
            micro_batch: planned.micro_batch,
            recompute: planned.recompute,
            sequence_parallel: self.sequence_parallel(&planned.degrees),
        });
        let Planned { schedule, virtual_stages, .. } = *planned;
        training.pipeline = self.pipeline(PipelineCut { pp: planned.degrees.pp, schedule, virtual_stages });
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

    /// What a rank holds depends on the kernels that its layers are priced with.
    pub(in crate::planner) fn memory_choices(&self) -> MemoryChoices {
        MemoryChoices::with(self.compute.kernels)
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

    /// The pipelines that the layers could be cut into over so many stages.
    pub(super) fn cuts(&self, pp: u32) -> Vec<PipelineCut> {
        const USUAL: [ScheduleKind; 2] = [ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved];
        let cut = |schedule, virtual_stages| PipelineCut { pp, schedule, virtual_stages };
        let cuts: Vec<PipelineCut> = match (pp, self.only.schedule.as_slice()) {
            // One stage is no pipeline.
            (1, _) => vec![cut(ScheduleKind::OneForwardOneBackward, 1)],
            (_, given) => {
                let schedules = if given.is_empty() { USUAL.as_slice() } else { given };
                let of = |schedule: ScheduleKind| -> Vec<PipelineCut> {
                    if schedule.goes_round() {
                        return self.interleaved(pp).into_iter().map(|chunks| cut(schedule, chunks)).collect();
                    }
                    vec![cut(schedule, 1)]
                };
                schedules.iter().copied().flat_map(of).collect()
            }
        };
        cuts.into_iter().filter(|cut| accepts(&self.only.virtual_stages, &cut.virtual_stages)).collect()
    }

    /// Chunks on each rank of an interleaved pipeline: all that share out the layers evenly, and of the others the fewest for each
    /// number of layers of the largest chunk, since more chunks of the same layers only send more messages.
    fn interleaved(&self, pp: u32) -> Vec<u32> {
        let layers = self.model.layers;
        let largest = |v: u32| layers.div_ceil(pp * v);
        let is_even = |v: u32| {
            let choices = self.pipeline(PipelineCut { pp, schedule: ScheduleKind::Interleaved, virtual_stages: v });
            choices.stage_layers == self.bases.first.pipeline.stage_layers
        };
        (2..=layers / pp).filter(|v| is_even(*v) || largest(*v) < largest(*v - 1)).collect()
    }

    /// The pipeline of a cut, its layers as even as can be.
    pub(super) fn pipeline(&self, cut: PipelineCut) -> PipelineChoices {
        let PipelineCut { pp, schedule, virtual_stages } = cut;
        let base = self.bases.first.pipeline.clone();
        let even = PipelineChoices { schedule, virtual_stages, ..base };
        match Stages::uneven(self.model.layers, pp, &even) {
            None => even,
            uneven => PipelineChoices { stage_layers: uneven, ..even },
        }
    }

    /// The training with these choices.
    pub(super) fn training(&self, choices: Choices) -> Training {
        let mut training = self.bases.stage(choices.zero_stage).unwrap_or(&self.bases.first).clone();
        training.micro_batch = choices.micro_batch;
        training.tensor.recompute = choices.recompute;
        training.tensor.sequence_parallel = choices.sequence_parallel;
        let Choices { schedule, virtual_stages, .. } = choices;
        training.pipeline = PipelineChoices { schedule, virtual_stages, ..training.pipeline };
        training
    }
}
