//! One step, of either kind, and the ops that each of its stages performs.

use super::place::layout_on;
use super::serving::{Phase, ServingStep};
use super::stages::Stages;
use super::training::TrainingStep;
use crate::config::step::FrameworkChoices;
use crate::config::{LayoutTable, Model};
use crate::layout::{Axis, Layout};
use crate::workload::when::Overlap;
use crate::workload::{Op, style};
use commgauge_base::error::Result;

/// One step, of either kind.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// An optimizer step.
    Training(TrainingStep<'a>),
    /// A forward pass over requests.
    Serving(ServingStep<'a>),
}

impl<'a> Step<'a> {
    /// All steps of a layout on this many ranks: training first, then prefill, then decode. Empty if it names no
    /// model.
    ///
    /// # Errors
    /// Inconsistent settings, at the place where they were written.
    pub fn all_of(table: &'a LayoutTable, ranks: u32) -> Result<Vec<Step<'a>>> {
        let layout = layout_on(table, ranks)?;
        let Some(work) = &table.work else { return Ok(Vec::new()) };
        let mut steps = Vec::new();
        if let Some(training) = &work.training {
            let step = TrainingStep::new(&work.model, training, layout.clone(), &table.place)?;
            steps.push(Step::Training(step));
        }
        if let Some(serving) = &work.serving {
            for (wanted, phase) in [(serving.phases.prefill, Phase::Prefill), (serving.phases.decode, Phase::Decode)] {
                if wanted {
                    let step = ServingStep::new(&work.model, serving, phase, layout.clone(), &table.place)?;
                    steps.push(Step::Serving(step));
                }
            }
        }
        Ok(steps)
    }

    /// The model.
    pub fn model(&self) -> &'a Model {
        match self {
            Step::Training(step) => step.model,
            Step::Serving(step) => step.model,
        }
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        match self {
            Step::Training(step) => &step.layout,
            Step::Serving(step) => &step.layout,
        }
    }

    /// The layers of every stage.
    pub fn stages(&self) -> &Stages {
        match self {
            Step::Training(step) => &step.stages,
            Step::Serving(step) => &step.stages,
        }
    }

    /// `training`, `prefill` or `decode`.
    pub fn phase_name(&self) -> &'static str {
        match self {
            Step::Training(_) => "training",
            Step::Serving(step) => step.phase.name(),
        }
    }

    /// The framework whose defaults hold, and what it decided.
    pub fn framework(&self) -> Option<&'a FrameworkChoices> {
        match self {
            Step::Training(step) => step.training.framework.as_ref(),
            Step::Serving(step) => step.serving.framework.as_ref(),
        }
    }

    /// Micro-batches of one replica in a step: m.
    pub fn micro_batches(&self) -> u64 {
        match self {
            Step::Training(step) => step.micro_batches,
            Step::Serving(step) => step.serving.micro_batches,
        }
    }

    /// Tokens of a replica in a step.
    pub fn tokens_per_replica(&self) -> u64 {
        match self {
            Step::Training(step) => step.tokens_per_replica(),
            Step::Serving(step) => step.tokens_per_micro_batch() * step.serving.micro_batches,
        }
    }

    /// The calls of one rank of a stage in a step, style by style. Calls on groups of one rank are none.
    ///
    /// # Errors
    /// What cannot be generated, such as counts that pass 64 bits.
    pub fn ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        let mut ops = match self {
            Step::Training(step) => return step.ops_of_stage(stage),
            Step::Serving(step) => style::serving_ops(step, stage)?,
        };
        ops.retain(|op| self.group_size(op.axis) > 1 && op.when.count_per_step(self.micro_batches()) != Some(0));
        Ok(ops)
    }

    /// Ranks in each group of an axis.
    pub fn group_size(&self, axis: Axis) -> u32 {
        self.layout().group_size(axis)
    }
}

impl TrainingStep<'_> {
    /// The calls of one rank of a stage, style by style. Calls on groups of one rank, and calls with a count of 0, are
    /// left out.
    ///
    /// # Errors
    /// Calls that cannot be generated, such as counts that pass 64 bits.
    pub fn ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        Ok(self.performed(style::training_ops(self, stage)?))
    }

    /// Those of them that carry activations: of tensor, sequence, context and expert parallelism, and of the vocabulary.
    ///
    /// # Errors
    /// As [`TrainingStep::ops_of_stage`].
    pub fn activation_ops_of_stage(&self, stage: u32) -> Result<Vec<Op>> {
        Ok(self.performed(style::activation_ops(self, stage)?))
    }

    fn performed(&self, mut ops: Vec<Op>) -> Vec<Op> {
        ops.retain(|op| self.layout.group_size(op.axis) > 1 && op.when.count_per_step(self.micro_batches) != Some(0));
        if !self.training.tensor.overlap_calls {
            let beside_products =
                |op: &&mut Op| matches!(op.overlap, Overlap::WeightGradient | Overlap::InputGradient | Overlap::Pieces);
            ops.iter_mut().filter(beside_products).for_each(|op| op.overlap = Overlap::Exposed);
        }
        ops
    }
}
