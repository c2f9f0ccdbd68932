//! The flags that say what is planned: a model, GPUs, a batch, and choices of the training.

use super::training::{self, TrainingChoice};
use commgauge_analysis::planner::search::{Bases, Only};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{DataStyle, Framework};
use commgauge_model::config::{Batch, Model, Table, Training};
use commgauge_model::layout::MOST_RANKS;

/// Less is a size in another unit.
const LEAST_MEMORY: Bytes = Bytes(64 << 20);

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

    /// Defaults of a framework that trains: its ZeRO stages and axes, and every choice that no other flag makes
    #[arg(long, value_name = "NAME", value_parser = training::framework)]
    pub framework: Option<Framework>,

    /// Choices of the training that the planner does not make, such as sequence_parallel=false or
    /// gradient_element_type=bfloat16: any other key of [training]; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = training::choice)]
    pub training: Vec<TrainingChoice>,
}

fn bytes(text: &str) -> std::result::Result<Bytes, String> {
    let memory = Bytes::parse_memory(text)?;
    // Whoever leaves the unit out means GB.
    match memory < LEAST_MEMORY {
        true => {
            Err(format!("found {memory}, and a GPU has at least {LEAST_MEMORY}; accepted: with its unit, such as 80GB"))
        }
        false => Ok(memory),
    }
}

impl QuestionFlags {
    /// The training that they describe, with the samples of a step over all replicas.
    ///
    /// # Errors
    /// Values that cannot be, a sequence that the model does not allow, and ZeRO stages that the framework does not have.
    pub fn training(&self, model: &Model, choices: &TrainingFlags, only: &[&Only]) -> Result<PlannedTraining> {
        let bases = match choices.framework {
            None => Bases::of(&self.read(model, choices, None)?),
            Some(framework) => {
                let sharded = choices.of("data_style").map(|_| DataStyle::Zero3);
                if sharded.is_some_and(|style| !framework.offers("data_style", style.name())) {
                    return Err(Error::usage(format!("--training: {framework} has no data_style zero3; leave it out")));
                }
                Bases::of_framework(framework, sharded, |style| self.read(model, choices, Some(style)))?
            }
        };
        let has = |stage: &u8| bases.stage(*stage).is_some();
        if let Some(stage) = only.iter().flat_map(|only| &only.zero_stage).find(|stage| !has(stage)) {
            let accepted = (0..4).filter(has).map(|stage| stage.to_string()).collect::<Vec<_>>().join(", ");
            return Err(Error::usage(format!("zero_stage: found {stage}; the framework has {accepted}")));
        }
        match bases.first.batch.clone() {
            Batch::Global(global_batch, _) => Ok(PlannedTraining { bases, global_batch }),
            Batch::MicroBatches(_) => Err(Error::usage("--global-batch is missing")),
        }
    }

    fn read(&self, model: &Model, choices: &TrainingFlags, data_style: Option<DataStyle>) -> Result<Training> {
        let mut flags = vec![
            ("--sequence", "sequence", self.sequence.clone()),
            ("--global-batch", "global_batch", self.global_batch.clone()),
        ];
        match choices.framework {
            Some(framework) => flags.push(("--framework", "framework", framework.name().to_owned())),
            None if choices.of("sequence_parallel").is_none() => {
                flags.push(("--training", "sequence_parallel", "true".to_owned()));
            }
            None => {}
        }
        let written = choices.training.iter().filter(|choice| data_style.is_none() || choice.key != "data_style");
        flags.extend(written.map(|choice| ("--training", choice.key, choice.value.clone())));
        flags.extend(data_style.map(|style| ("--only zero_stage", "data_style", style.name().to_owned())));
        if let Some(element) = &choices.element_type {
            flags.push(("--element-type", "activation_element_type", element.clone()));
            flags.push(("--element-type", "parameter_element_type", element.clone()));
        }
        let training = Training::read(Table::of_flags(flags))?;
        if training.sequence > model.embedding.maximum_positions {
            return Err(training.sequence_place.wrong(format!(
                "found {}; {} allows up to {} (max_position_embeddings)",
                training.sequence, model.name, model.embedding.maximum_positions
            )));
        }
        Ok(training)
    }
}

impl TrainingFlags {
    /// What was given, as keys of `[training]` with their values.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let types = ["activation_element_type", "parameter_element_type"];
        let types = types.into_iter().filter_map(|key| Some((key, self.element_type.clone()?)));
        let framework = self.framework.map(|framework| ("framework", framework.name().to_owned()));
        let choices = self.training.iter().map(|choice| (choice.key, choice.value.clone()));
        types.chain(framework).chain(choices)
    }

    fn of(&self, key: &str) -> Option<&str> {
        self.training.iter().find(|choice| choice.key == key).map(|choice| choice.value.as_str())
    }
}

/// What is trained, before the planner's own choices.
pub(in crate::cli) struct PlannedTraining {
    /// The choices.
    pub bases: Bases,
    /// Samples of a step over all replicas.
    pub global_batch: u64,
}
