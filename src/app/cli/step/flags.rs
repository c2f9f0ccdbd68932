//! The flags for a model, a layout and a step. They correspond to the keys of a suite's tables and are parsed by the
//! same code, so that both have the same checks.

use crate::cli::degrees::DegreeFlags;
use clap::Args;
use commgauge_base::error::Result;
use commgauge_model::config::step::ModelWork;
use commgauge_model::config::{LayoutTable, Model, Place, Serving, Table, Training};
use commgauge_model::workload::step::ranks_of;
use std::sync::Arc;

/// A model, a layout and a step.
#[derive(Clone, Debug, Default, Args)]
pub struct StepFlags {
    /// Model: a config.json, its folder, or a name, such as llama-3-8b (`commgauge list models`)
    #[arg(long, value_name = "MODEL")]
    pub model: String,
    /// Use only so many layers of it
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: Option<String>,

    /// How the model is divided.
    #[command(flatten)]
    pub degrees: DegreeFlags,

    /// Tokens of one sample
    #[arg(long, visible_alias = "seq", value_name = "TOKENS", help_heading = "Step")]
    pub sequence: Option<String>,
    /// Samples of a micro-batch [default: 1]
    #[arg(long, value_name = "N", help_heading = "Step")]
    pub micro_batch: Option<String>,
    /// Samples of a step over all replicas
    #[arg(long, value_name = "N", help_heading = "Step")]
    pub global_batch: Option<String>,
    /// Micro-batches of a replica in a step, instead of --global-batch
    #[arg(long, value_name = "N", help_heading = "Step")]
    pub micro_batches: Option<String>,
    /// Type of activations on the wire: bf16 (default), fp16, fp32
    #[arg(long, value_name = "TYPE", help_heading = "Step")]
    pub activation_type: Option<String>,

    /// Megatron-LM's sequence parallelism
    #[arg(long, help_heading = "Tensor parallelism")]
    pub sequence_parallel: bool,
    /// What the backward pass computes again: none, selective, full
    #[arg(long, value_name = "WHAT", help_heading = "Tensor parallelism")]
    pub recompute: Option<String>,
    /// How linear layers are divided: pair (column then row), column, row
    #[arg(long, value_name = "HOW", help_heading = "Tensor parallelism")]
    pub linears: Option<String>,
    /// One all_reduce for both sums of the loss
    #[arg(long, help_heading = "Tensor parallelism")]
    pub fused_cross_entropy: bool,
    /// Calls of the backward pass wait for the gradient products of their layer, instead of running beside them
    #[arg(long, help_heading = "Tensor parallelism")]
    pub no_overlap_tensor: bool,

    /// What is shared out: ddp, zero1, zero2, zero3, fsdp, hsdp
    #[arg(long, value_name = "STYLE", help_heading = "Data parallelism")]
    pub data_style: Option<String>,
    /// Type of gradients on the wire: fp32 (default), bf16, fp16
    #[arg(long, value_name = "TYPE", help_heading = "Data parallelism")]
    pub grad_type: Option<String>,
    /// Type of gathered parameters: bf16 (default), fp16, fp32, fp8_e4m3
    #[arg(long, value_name = "TYPE", help_heading = "Data parallelism")]
    pub param_type: Option<String>,
    /// How gradients are cut: megatron (default), pytorch
    #[arg(long, value_name = "RULE", help_heading = "Data parallelism")]
    pub bucket_rule: Option<String>,
    /// Parameters in a bucket, instead of a rule
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub bucket_parameters: Option<String>,
    /// Reduce gradients in one go after the last backward pass
    #[arg(long, help_heading = "Data parallelism")]
    pub no_overlap_gradients: bool,
    /// FSDP keeps parameters between forward and backward
    #[arg(long, help_heading = "Data parallelism")]
    pub no_reshard_after_forward: bool,
    /// Parameters are gathered when they are needed, not while the unit before computes (zero3, fsdp, hsdp)
    #[arg(long, help_heading = "Data parallelism")]
    pub no_prefetch_parameters: bool,
    /// Groups of shards that hold the same (HSDP, or distributed-optimizer instances)
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub replicas_of_shards: Option<String>,

    /// naive, gpipe, 1f1b (default), interleaved, zb-h1, zb-1p, zb-2p, zb-v, v-half, v-min, dualpipe, dualpipe-v
    #[arg(long, value_name = "SCHEDULE", help_heading = "Pipeline parallelism")]
    pub schedule: Option<String>,
    /// Model chunks on each rank (interleaved)
    #[arg(long, value_name = "N", help_heading = "Pipeline parallelism")]
    pub virtual_stages: Option<String>,
    /// Layers of each stage (or chunk), a list with commas
    #[arg(long, value_name = "LIST", help_heading = "Pipeline parallelism")]
    pub stage_layers: Option<String>,
    /// Each rank of tp sends its part only, and the receivers gather
    #[arg(long, help_heading = "Pipeline parallelism")]
    pub scatter_gather: bool,

    /// How keys and values travel: ring (default), all_gather, all_to_all, hybrid
    #[arg(long, value_name = "STYLE", help_heading = "Context parallelism")]
    pub context_style: Option<String>,
    /// Ranks of the inner all_to_all of the hybrid form
    #[arg(long, value_name = "N", help_heading = "Context parallelism")]
    pub context_inner: Option<String>,
    /// Type of the gradients of keys and values [default: that of activations]
    #[arg(long, value_name = "TYPE", help_heading = "Context parallelism")]
    pub context_grad_type: Option<String>,

    /// How tokens reach their experts: all_to_all (default), all_gather
    #[arg(long, value_name = "HOW", help_heading = "Expert parallelism")]
    pub dispatcher: Option<String>,
    /// How tokens choose experts: uniform (default), random, zipf:EXPONENT, hot:SHARE
    #[arg(long, value_name = "HOW", help_heading = "Expert parallelism")]
    pub routing: Option<String>,
    /// Seed of random choices
    #[arg(long, value_name = "N", help_heading = "Expert parallelism")]
    pub routing_seed: Option<String>,
    /// Most tokens that an expert takes, as a multiple of the mean
    #[arg(long, value_name = "FACTOR", help_heading = "Expert parallelism")]
    pub capacity_factor: Option<String>,
    /// Type of tokens on their way to the experts, such as fp8_e4m3 [default: that of activations]
    #[arg(long, value_name = "TYPE", help_heading = "Expert parallelism")]
    pub dispatch_type: Option<String>,

    /// Serve requests instead of training: prefill, decode, or both with a comma
    #[arg(long, value_name = "PHASES", help_heading = "Serving")]
    pub serve: Option<String>,
    /// Requests that are worked on together
    #[arg(long, value_name = "N", help_heading = "Serving")]
    pub batch: Option<String>,
    /// Tokens of a prompt [default: 1024]
    #[arg(long, value_name = "TOKENS", help_heading = "Serving")]
    pub prompt_tokens: Option<String>,
    /// Tokens that are there when a further one is decoded [default: those of the prompt]
    #[arg(long, value_name = "TOKENS", help_heading = "Serving")]
    pub context_tokens: Option<String>,
}

/// A flag, the corresponding key of a suite, and the given value.
type Given<'a> = (&'static str, &'static str, &'a Option<String>);

impl StepFlags {
    /// The layout on that many ranks with its work, as a suite would define it.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn table(&self, world: u32) -> Result<LayoutTable> {
        let mut table = self.degrees.table_on(world)?;
        let (training, serving) = match &self.serve {
            None => (Some(self.training()?), None),
            Some(_) => (None, Some(self.serving()?)),
        };
        let mut model = Model::load(&self.model)?;
        if let Some(layers) = &self.layers {
            let place = Place::flag("--layers");
            let layers =
                layers.parse().map_err(|_| place.wrong(format!("found `{layers}`; accepted: a whole number")))?;
            model.keep_layers(layers).map_err(|problem| place.wrong(problem))?;
        }
        if let Some(training) = training.as_ref().filter(|training| training.sequence > model.maximum_positions) {
            return Err(training.sequence_place.wrong(format!(
                "found {}; {} allows up to {} (max_position_embeddings)",
                training.sequence, model.name, model.maximum_positions
            )));
        }
        table.work = Some(Arc::new(ModelWork { model, training, serving }));
        Ok(table)
    }

    /// Ranks that the degrees need; dp is 1 if it is left out.
    ///
    /// # Errors
    /// If there are more ranks than on any machine.
    pub fn ranks(&self) -> Result<u32> {
        let mut table = self.degrees.table()?;
        table.dp = table.dp.or(Some(1));
        ranks_of(&table).map(|ranks| ranks.unwrap_or(1))
    }

    fn training(&self) -> Result<Training> {
        let given: [Given; 26] = [
            ("--sequence", "sequence", &self.sequence),
            ("--micro-batch", "micro_batch", &self.micro_batch),
            ("--global-batch", "global_batch", &self.global_batch),
            ("--micro-batches", "micro_batches", &self.micro_batches),
            ("--activation-type", "activation_element_type", &self.activation_type),
            ("--recompute", "recompute", &self.recompute),
            ("--linears", "linears", &self.linears),
            ("--data-style", "data_style", &self.data_style),
            ("--grad-type", "gradient_element_type", &self.grad_type),
            ("--param-type", "parameter_element_type", &self.param_type),
            ("--bucket-rule", "bucket_rule", &self.bucket_rule),
            ("--bucket-parameters", "bucket_parameters", &self.bucket_parameters),
            ("--replicas-of-shards", "replicas_of_shards", &self.replicas_of_shards),
            ("--schedule", "schedule", &self.schedule),
            ("--virtual-stages", "virtual_stages", &self.virtual_stages),
            ("--stage-layers", "stage_layers", &self.stage_layers),
            ("--context-style", "context_style", &self.context_style),
            ("--context-inner", "context_inner", &self.context_inner),
            ("--context-grad-type", "context_gradient_element_type", &self.context_grad_type),
            ("--dispatcher", "dispatcher", &self.dispatcher),
            ("--routing", "routing", &self.routing),
            ("--routing-seed", "routing_seed", &self.routing_seed),
            ("--capacity-factor", "capacity_factor", &self.capacity_factor),
            ("--dispatch-type", "dispatch_element_type", &self.dispatch_type),
            ("--sequence-parallel", "sequence_parallel", &truth(self.sequence_parallel, true)),
            ("--fused-cross-entropy", "fused_cross_entropy", &truth(self.fused_cross_entropy, true)),
        ];
        let switches: [Given; 5] = [
            ("--scatter-gather", "scatter_gather", &truth(self.scatter_gather, true)),
            ("--no-overlap-tensor", "overlap_tensor", &truth(self.no_overlap_tensor, false)),
            ("--no-overlap-gradients", "overlap_gradients", &truth(self.no_overlap_gradients, false)),
            ("--no-prefetch-parameters", "prefetch_parameters", &truth(self.no_prefetch_parameters, false)),
            ("--no-reshard-after-forward", "reshard_after_forward", &truth(self.no_reshard_after_forward, false)),
        ];
        Training::read(Table::of_flags(present(&given).chain(present(&switches))))
    }

    fn serving(&self) -> Result<Serving> {
        let given: [Given; 6] = [
            ("--serve", "phases", &self.serve),
            ("--batch", "batch", &self.batch),
            ("--prompt-tokens", "prompt_tokens", &self.prompt_tokens),
            ("--context-tokens", "context_tokens", &self.context_tokens),
            ("--micro-batches", "micro_batches", &self.micro_batches),
            ("--activation-type", "activation_element_type", &self.activation_type),
        ];
        Serving::read(Table::of_flags(present(&given)))
    }
}

/// The flags that were given.
fn present<'a>(given: &'a [Given]) -> impl Iterator<Item = (&'static str, &'static str, String)> + 'a {
    given.iter().filter_map(|(flag, key, text)| Some((*flag, *key, (*text).clone()?)))
}

fn truth(given: bool, meaning: bool) -> Option<String> {
    given.then(|| meaning.to_string())
}
