//! The flags that say what is planned: a model, GPUs, a batch, and choices of the training.

use super::training::{self, TrainingChoice};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::{Batch, Model, Table, Training};
use commgauge_model::layout::MOST_RANKS;

/// A model, GPUs and a batch.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct QuestionFlags {
    /// Model: a config.json, its folder, or a name, such as llama-3-8b (`commgauge list models`)
    #[arg(long, value_name = "MODEL")]
    pub model: String,

    /// All GPUs; `plan --pareto` takes several numbers with commas
    #[arg(long, visible_alias = "ranks", value_name = "N", required = true, value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    pub gpus: Vec<u32>,

    /// GPUs of each node, neighbours in world rank [default: those of the machine file]
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,

    /// What one GPU holds, such as 80GB; leave out what the CUDA context and NCCL take
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub gpu_memory: Bytes,

    /// Samples of a step over all replicas
    #[arg(long, value_name = "N")]
    pub global_batch: String,

    /// Tokens of one sample
    #[arg(long, visible_alias = "seq", value_name = "TOKENS")]
    pub sequence: String,
}

/// Choices of the training.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct TrainingFlags {
    /// Type of parameters and activations, and so of the matrix products [default: bfloat16]
    #[arg(long, value_name = "TYPE")]
    pub element_type: Option<String>,

    /// Choices of the training that the planner does not make, such as sequence_parallel=false or
    /// gradient_element_type=bfloat16: any other key of [training]; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = training::choice)]
    pub training: Vec<TrainingChoice>,
}

fn bytes(text: &str) -> std::result::Result<Bytes, String> {
    match Bytes::parse_memory(text)? {
        Bytes(0) => Err("found no memory; accepted: such as 80GB".to_owned()),
        bytes => Ok(bytes),
    }
}

impl QuestionFlags {
    /// The training that they describe, with the samples of a step over all replicas.
    ///
    /// # Errors
    /// Values that cannot be, and a sequence that the model does not allow.
    pub fn training(&self, model: &Model, choices: &TrainingFlags) -> Result<PlannedTraining> {
        let base = self.base(model, choices)?;
        match base.batch {
            Batch::Global(global_batch, _) => Ok(PlannedTraining { base, global_batch }),
            Batch::MicroBatches(_) => Err(Error::usage("--global-batch is missing")),
        }
    }

    fn base(&self, model: &Model, choices: &TrainingFlags) -> Result<Training> {
        let mut flags = vec![
            ("--sequence", "sequence", self.sequence.clone()),
            ("--global-batch", "global_batch", self.global_batch.clone()),
        ];
        if !choices.training.iter().any(|choice| choice.key == "sequence_parallel") {
            flags.push(("--training", "sequence_parallel", "true".to_owned()));
        }
        flags.extend(choices.training.iter().map(|choice| ("--training", choice.key, choice.value.clone())));
        if let Some(element) = &choices.element_type {
            flags.push(("--element-type", "activation_element_type", element.clone()));
            flags.push(("--element-type", "parameter_element_type", element.clone()));
        }
        let training = Training::read(Table::of_flags(flags))?;
        if training.sequence > model.maximum_positions {
            return Err(training.sequence_place.wrong(format!(
                "found {}; {} allows up to {} (max_position_embeddings)",
                training.sequence, model.name, model.maximum_positions
            )));
        }
        Ok(training)
    }
}

/// What is trained, before the planner's own choices.
pub(in crate::cli) struct PlannedTraining {
    /// The choices.
    pub base: Training,
    /// Samples of a step over all replicas.
    pub global_batch: u64,
}
