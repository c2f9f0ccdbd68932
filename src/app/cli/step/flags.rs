//! The flags for a model, a layout and a step. They correspond to the keys of a suite's tables and are parsed by the
//! same code, so that both have the same checks.

use crate::cli::degrees::DegreeFlags;
use clap::Args;
use commgauge_base::error::Result;
use commgauge_model::config::step::{ModelWork, Work};
use commgauge_model::config::{LayoutTable, Model, Place, Serving, Table, Training};
use commgauge_model::workload::step::ranks_of;
use std::sync::Arc;

/// A model, a layout and a step.
#[derive(Clone, Debug, Default, Args)]
pub struct StepFlags {
    /// Model: a config.json, its folder, or a name, such as llama-3-8b (`commgauge list models`)
    #[arg(long, value_name = "MODEL", required = true)]
    pub model: Option<String>,
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
    /// Take the defaults of a framework, each still to be set by its own flag: megatron, deepspeed, fsdp1, fsdp2, torchtitan, hf or
    /// ddp; to serve vllm, sglang or trt-llm
    #[arg(long, value_name = "NAME", help_heading = "Step")]
    pub framework: Option<String>,
    /// Layers behind the last one that predict a further token each [default: 0]
    #[arg(long, value_name = "N", help_heading = "Step")]
    pub prediction_layers: Option<String>,
    /// Small calls around the optimizer, a list with commas, or none: tokens, batch_tokens, overflow, overflow_byte, norm,
    /// norm_double, norm_tensors, status, loss [default: tokens, overflow, norm, status, loss]
    #[arg(long, value_name = "LIST", help_heading = "Step")]
    pub small_calls: Option<String>,

    /// Megatron-LM's sequence parallelism
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Tensor parallelism")]
    pub sequence_parallel: Option<String>,
    /// What the backward pass computes again: none, selective, full
    #[arg(long, value_name = "WHAT", help_heading = "Tensor parallelism")]
    pub recompute: Option<String>,
    /// How linear layers are divided: pair (column then row), column, row
    #[arg(long, value_name = "HOW", help_heading = "Tensor parallelism")]
    pub linears: Option<String>,
    /// One all_reduce for both sums of the loss
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Tensor parallelism")]
    pub fused_cross_entropy: Option<String>,
    /// Calls of the backward pass wait for the gradient products of their layer, instead of running beside them
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Tensor parallelism")]
    pub no_overlap_tensor: Option<String>,
    /// Who divides the linears: megatron (default; q, k and v are one), dtensor (each alone; with sequence parallelism inputs are
    /// stored whole)
    #[arg(long, value_name = "STYLE", help_heading = "Tensor parallelism")]
    pub tensor_style: Option<String>,
    /// How inputs and output gradients of linears are gathered (sequence parallelism): plain (default), fp8_current, mxfp8
    #[arg(long, value_name = "RECIPE", help_heading = "Tensor parallelism")]
    pub gather_recipe: Option<String>,
    /// What hides the calls that products wait for, or that wait for them (sequence parallelism): none (default), pieces
    #[arg(long, value_name = "WHAT", help_heading = "Tensor parallelism")]
    pub product_overlap: Option<String>,
    /// How embedding and output projection are divided: parallel (default), gathered (the logits are)
    #[arg(long, value_name = "STYLE", help_heading = "Tensor parallelism")]
    pub vocabulary_style: Option<String>,
    /// What the vocabulary is padded to: megatron (default, 128 x tp), vllm (64), even
    #[arg(long, value_name = "RULE", help_heading = "Tensor parallelism")]
    pub vocabulary_padding: Option<String>,

    /// What is shared out: ddp, zero1, zero2, zero3, fsdp, hsdp
    #[arg(long, value_name = "STYLE", help_heading = "Data parallelism")]
    pub data_style: Option<String>,
    /// Type of gradients on the wire: fp32 (default), bf16, fp16
    #[arg(long, value_name = "TYPE", help_heading = "Data parallelism")]
    pub grad_type: Option<String>,
    /// Type of gathered parameters: bf16 (default), fp16, fp32, fp8_e4m3
    #[arg(long, value_name = "TYPE", help_heading = "Data parallelism")]
    pub param_type: Option<String>,
    /// How gradients are cut: megatron (default), pytorch, deepspeed
    #[arg(long, value_name = "RULE", help_heading = "Data parallelism")]
    pub bucket_rule: Option<String>,
    /// Parameters in a bucket, instead of a rule
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub bucket_parameters: Option<String>,
    /// Reduce gradients in one go after the last backward pass
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Data parallelism")]
    pub no_overlap_gradients: Option<String>,
    /// FSDP keeps parameters between forward and backward
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Data parallelism")]
    pub no_reshard_after_forward: Option<String>,
    /// What FSDP kept after forward is released after the backward pass of every micro-batch, and gathered for the next
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Data parallelism")]
    pub reshard_after_backward: Option<String>,
    /// What is gathered together (zero3, fsdp, hsdp): layers (default), root_kept, ends_apart, modules (zero3)
    #[arg(long, value_name = "RULE", help_heading = "Data parallelism")]
    pub unit_rule: Option<String>,
    /// How gradients of micro-batches are added up (fsdp, hsdp): sharded (default), a reduction in each; unsharded, one at the end;
    /// whole_stages, one at the end where there are stages
    #[arg(long, value_name = "HOW", help_heading = "Data parallelism")]
    pub gradient_accumulation: Option<String>,
    /// How zero1 and zero2 reduce gradients: reduce_scatter (default), all_reduce
    #[arg(long, value_name = "HOW", help_heading = "Data parallelism")]
    pub gradient_reduction: Option<String>,
    /// How often groups of shards add up their gradients (hsdp): step (default), micro_batch
    #[arg(long, value_name = "WHEN", help_heading = "Data parallelism")]
    pub replica_reduction: Option<String>,
    /// Tensors of fewer parameters stay on every rank (unit rule modules) [default: 100000]
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub persistent_parameters: Option<String>,
    /// Parameters gathered ahead at each module (unit rule modules) [default: 50000000]
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub prefetch_bucket: Option<String>,
    /// No parameters are gathered ahead where so many are there (unit rule modules) [default: 1000000000]
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub live_parameters: Option<String>,
    /// Parameters used again within so many are not released (unit rule modules) [default: 1000000000]
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub reuse_distance: Option<String>,
    /// How updated parameters reach every rank (zero1): all_gather (default), each_optimizer, broadcast, broadcast_shares,
    /// gather_shares
    #[arg(long, value_name = "HOW", help_heading = "Data parallelism")]
    pub parameter_return: Option<String>,
    /// Buffers that the first replica gives to the others before a step: none (default), rotary
    #[arg(long, value_name = "WHAT", help_heading = "Data parallelism")]
    pub broadcast_buffers: Option<String>,
    /// Parameters are gathered when they are needed, not while the unit before computes (zero3, fsdp, hsdp)
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Data parallelism")]
    pub no_prefetch_parameters: Option<String>,
    /// Ranks that share out the parameters between forward and backward pass, such as those of a node (zero3, fsdp)
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub secondary_shards: Option<String>,
    /// Groups of shards that hold the same (HSDP, or distributed-optimizer instances)
    #[arg(long, value_name = "N", help_heading = "Data parallelism")]
    pub replicas_of_shards: Option<String>,

    /// naive, gpipe, 1f1b (default), interleaved, zb-h1, zb-1p, zb-2p, zb-v, v-half, v-min, dualpipe, dualpipe-v,
    /// interleaved-zb
    #[arg(long, value_name = "SCHEDULE", help_heading = "Pipeline parallelism")]
    pub schedule: Option<String>,
    /// Model chunks on each rank (interleaved, interleaved-zb)
    #[arg(long, value_name = "N", help_heading = "Pipeline parallelism")]
    pub virtual_stages: Option<String>,
    /// Layers of each stage (or chunk), a list with commas
    #[arg(long, value_name = "LIST", help_heading = "Pipeline parallelism")]
    pub stage_layers: Option<String>,
    /// Each rank of tp sends its part only, and the receivers gather; also to serve
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Pipeline parallelism")]
    pub scatter_gather: Option<String>,

    /// How keys and values travel: ring (default), all_gather, all_to_all, hybrid, pytorch
    #[arg(long, value_name = "STYLE", help_heading = "Context parallelism")]
    pub context_style: Option<String>,
    /// Ranks of the inner all_to_all of the hybrid form
    #[arg(long, value_name = "N", help_heading = "Context parallelism")]
    pub context_inner: Option<String>,
    /// Type of the gradients of keys and values [default: that of activations]
    #[arg(long, value_name = "TYPE", help_heading = "Context parallelism")]
    pub context_grad_type: Option<String>,

    /// How tokens reach their experts: all_to_all (default), all_gather, deepep, hybrid_ep; to serve all_to_all, all_gather, all_reduce,
    /// deepep, deepep_low_latency
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
    /// Ranks of ep on a node, or in a domain of NVLink (deepep, hybrid_ep) [default: 8, or ep where that is less]
    #[arg(long, value_name = "RANKS", help_heading = "Expert parallelism")]
    pub expert_inner: Option<String>,
    /// Type of the probabilities of choices, and of sums over the parts of an expert: fp32 (default), bf16, fp16, activations
    #[arg(long, value_name = "TYPE", help_heading = "Expert parallelism")]
    pub router_type: Option<String>,

    /// Over which tokens the counts of a loss that balances experts are added up: none (default), micro_batch (tp and cp), global
    #[arg(long, value_name = "TOKENS", help_heading = "Expert parallelism")]
    pub balance_loss: Option<String>,
    /// A bias that balances experts is updated after each step
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Expert parallelism")]
    pub expert_bias_update: Option<String>,

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
    /// Tokens drafted ahead of each request's next one, all verified in one pass
    #[arg(long, value_name = "N", help_heading = "Serving")]
    pub drafted_tokens: Option<String>,
    /// What drafts them: ngram (no message), eagle (a dense layer), mtp (a prediction layer of the model)
    #[arg(long, value_name = "WHAT", help_heading = "Serving")]
    pub drafter: Option<String>,
    /// Among which ranks everything but attention is divided: replica (default, those of tp), stage (tp and dp together)
    #[arg(long, value_name = "RANKS", help_heading = "Serving")]
    pub feed_forward_ranks: Option<String>,
    /// How the tokens of replicas come together where those are the ranks of a stage: all_gather (default), all_reduce
    #[arg(long, value_name = "HOW", help_heading = "Serving")]
    pub token_exchange: Option<String>,
    /// Half of dp prefills and sends keys and values to the half that decodes: layer (of each request as a layer is done), request (all
    /// layers of a request at once)
    #[arg(long, value_name = "PIECES", help_heading = "Serving")]
    pub kv_transfer: Option<String>,
    /// Type of keys and values on their way [default: that of activations]
    #[arg(long, value_name = "TYPE", help_heading = "Serving")]
    pub kv_type: Option<String>,
    /// Ranks of tp that share out the tokens of the same keys and values while they decode [default: 1]
    #[arg(long, value_name = "RANKS", help_heading = "Serving")]
    pub decode_context: Option<String>,
    /// Bits of the numbers that sums over tp are sent in: 4, 6, 8 [default: the type of activations]
    #[arg(long, value_name = "BITS", help_heading = "Serving")]
    pub reduction_bits: Option<String>,
    /// Replicas agree on the size of a batch before each pass
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Serving")]
    pub batch_agreement: Option<String>,
    /// Tensors from stage to stage: 1 (default), 2 where the residual is apart
    #[arg(long, value_name = "N", help_heading = "Serving")]
    pub boundary_tensors: Option<String>,
}

impl StepFlags {
    /// The layout on that many ranks with its work, as a suite would define it.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn table(&self, world: u32) -> Result<LayoutTable> {
        let mut table = self.degrees.table_on(world)?;
        let (training, serving) = match &self.serve {
            None => (Some(Training::read(Table::of_flags(self.given(Work::Training)?))?), None),
            Some(_) => (None, Some(Serving::read(Table::of_flags(self.given(Work::Serving)?))?)),
        };
        let path = self.model.as_deref().ok_or_else(|| Place::flag("--model").wrong("is missing"))?;
        let mut model = Model::load(path)?;
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
}
