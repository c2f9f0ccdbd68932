//! The keys of a suite's `[training]` and `[serving]` that the flags of a step stand for, and which of the two takes them.
//!
//! A flag that the work at hand does not take is refused: it would change nothing.

use super::StepFlags;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::step::Work;

/// A flag, the corresponding key, the given text, and the work that takes it.
struct Row<'a> {
    flag: &'static str,
    key: &'static str,
    text: &'a Option<String>,
    takes: &'static [Work],
}

const TRAINING: &[Work] = &[Work::Training];
const SERVING: &[Work] = &[Work::Serving];
const BOTH: &[Work] = &[Work::Training, Work::Serving];

impl StepFlags {
    /// The given flags with their keys and values.
    ///
    /// # Errors
    /// Flags that this work does not take, all of them named.
    pub(super) fn given(&self, work: Work) -> Result<Vec<(&'static str, &'static str, String)>> {
        let rows = self.rows();
        let unused: Vec<&str> =
            rows.iter().filter(|row| row.text.is_some() && !row.takes.contains(&work)).map(|row| row.flag).collect();
        match (unused.is_empty(), work) {
            (true, _) => {}
            (false, Work::Serving) => {
                let list = unused.join(", ");
                return Err(Error::usage(format!("--serve: a model that serves takes no {list}; leave that out")));
            }
            (false, Work::Training) => {
                let list = unused.join(", ");
                return Err(Error::usage(format!("{list}: for a model that serves; accepted: with --serve")));
            }
        }
        Ok(rows.iter().filter_map(|row| Some((row.flag, row.key, value(row.flag, row.text.clone()?)))).collect())
    }

    /// The given flags of a model and its step; those of the layout are not among them.
    pub(super) fn given_of_model(&self) -> Vec<&'static str> {
        let of_model = [("--model", &self.model), ("--layers", &self.layers)];
        let of_model = of_model.into_iter().filter(|(_, text)| text.is_some()).map(|(flag, _)| flag);
        of_model.chain(self.rows().iter().filter(|row| row.text.is_some()).map(|row| row.flag)).collect()
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let row = |flag, key, text, takes| Row { flag, key, text, takes };
        vec![
            row("--sequence", "sequence", &self.sequence, TRAINING),
            row("--micro-batch", "micro_batch", &self.micro_batch, TRAINING),
            row("--global-batch", "global_batch", &self.global_batch, TRAINING),
            row("--micro-batches", "micro_batches", &self.micro_batches, BOTH),
            row("--activation-type", "activation_element_type", &self.activation_type, BOTH),
            row("--framework", "framework", &self.framework, BOTH),
            row("--prediction-layers", "prediction_layers", &self.prediction_layers, TRAINING),
            row("--small-calls", "small_calls", &self.small_calls, TRAINING),
            row("--sequence-parallel", "sequence_parallel", &self.sequence_parallel, TRAINING),
            row("--recompute", "recompute", &self.recompute, TRAINING),
            row("--linears", "linears", &self.linears, TRAINING),
            row("--fused-cross-entropy", "fused_cross_entropy", &self.fused_cross_entropy, TRAINING),
            row("--no-overlap-tensor", "overlap_tensor", &self.no_overlap_tensor, TRAINING),
            row("--tensor-style", "tensor_style", &self.tensor_style, TRAINING),
            row("--gather-recipe", "gather_recipe", &self.gather_recipe, TRAINING),
            row("--product-overlap", "product_overlap", &self.product_overlap, TRAINING),
            row("--vocabulary-style", "vocabulary_style", &self.vocabulary_style, TRAINING),
            row("--vocabulary-padding", "vocabulary_padding", &self.vocabulary_padding, BOTH),
            row("--data-style", "data_style", &self.data_style, TRAINING),
            row("--grad-type", "gradient_element_type", &self.grad_type, TRAINING),
            row("--param-type", "parameter_element_type", &self.param_type, TRAINING),
            row("--bucket-rule", "bucket_rule", &self.bucket_rule, TRAINING),
            row("--bucket-parameters", "bucket_parameters", &self.bucket_parameters, TRAINING),
            row("--no-overlap-gradients", "overlap_gradients", &self.no_overlap_gradients, TRAINING),
            row("--no-reshard-after-forward", "reshard_after_forward", &self.no_reshard_after_forward, TRAINING),
            row("--reshard-after-backward", "reshard_after_backward", &self.reshard_after_backward, TRAINING),
            row("--unit-rule", "unit_rule", &self.unit_rule, TRAINING),
            row("--gradient-accumulation", "gradient_accumulation", &self.gradient_accumulation, TRAINING),
            row("--gradient-reduction", "gradient_reduction", &self.gradient_reduction, TRAINING),
            row("--replica-reduction", "replica_reduction", &self.replica_reduction, TRAINING),
            row("--persistent-parameters", "persistent_parameters", &self.persistent_parameters, TRAINING),
            row("--prefetch-bucket", "prefetch_bucket", &self.prefetch_bucket, TRAINING),
            row("--live-parameters", "live_parameters", &self.live_parameters, TRAINING),
            row("--reuse-distance", "reuse_distance", &self.reuse_distance, TRAINING),
            row("--parameter-return", "parameter_return", &self.parameter_return, TRAINING),
            row("--broadcast-buffers", "broadcast_buffers", &self.broadcast_buffers, TRAINING),
            row("--no-prefetch-parameters", "prefetch_parameters", &self.no_prefetch_parameters, TRAINING),
            row("--secondary-shards", "secondary_shards", &self.secondary_shards, TRAINING),
            row("--replicas-of-shards", "replicas_of_shards", &self.replicas_of_shards, TRAINING),
            row("--schedule", "schedule", &self.schedule, TRAINING),
            row("--virtual-stages", "virtual_stages", &self.virtual_stages, TRAINING),
            row("--stage-layers", "stage_layers", &self.stage_layers, TRAINING),
            row("--scatter-gather", "scatter_gather", &self.scatter_gather, BOTH),
            row("--context-style", "context_style", &self.context_style, TRAINING),
            row("--context-inner", "context_inner", &self.context_inner, TRAINING),
            row("--context-grad-type", "context_gradient_element_type", &self.context_grad_type, TRAINING),
            row("--dispatcher", "dispatcher", &self.dispatcher, BOTH),
            row("--routing", "routing", &self.routing, TRAINING),
            row("--routing-seed", "routing_seed", &self.routing_seed, TRAINING),
            row("--capacity-factor", "capacity_factor", &self.capacity_factor, TRAINING),
            row("--dispatch-type", "dispatch_element_type", &self.dispatch_type, BOTH),
            row("--expert-inner", "expert_inner", &self.expert_inner, BOTH),
            row("--router-type", "router_element_type", &self.router_type, TRAINING),
            row("--balance-loss", "balance_loss", &self.balance_loss, TRAINING),
            row("--expert-bias-update", "expert_bias_update", &self.expert_bias_update, TRAINING),
            row("--serve", "phases", &self.serve, SERVING),
            row("--batch", "batch", &self.batch, SERVING),
            row("--prompt-tokens", "prompt_tokens", &self.prompt_tokens, SERVING),
            row("--context-tokens", "context_tokens", &self.context_tokens, SERVING),
            row("--feed-forward-ranks", "feed_forward_ranks", &self.feed_forward_ranks, SERVING),
            row("--token-exchange", "token_exchange", &self.token_exchange, SERVING),
            row("--kv-transfer", "kv_transfer", &self.kv_transfer, SERVING),
            row("--kv-type", "kv_element_type", &self.kv_type, SERVING),
            row("--decode-context", "decode_context", &self.decode_context, SERVING),
            row("--reduction-bits", "reduction_bits", &self.reduction_bits, SERVING),
            row("--batch-agreement", "batch_agreement", &self.batch_agreement, SERVING),
            row("--drafted-tokens", "drafted_tokens", &self.drafted_tokens, SERVING),
            row("--drafter", "drafter", &self.drafter, SERVING),
            row("--boundary-tensors", "boundary_tensors", &self.boundary_tensors, SERVING),
        ]
    }
}

/// A flag that begins with `no` says the opposite of its key.
fn value(flag: &str, text: String) -> String {
    match (flag.starts_with("--no-"), text.as_str()) {
        (true, "true") => "false".to_owned(),
        (true, "false") => "true".to_owned(),
        _ => text,
    }
}
