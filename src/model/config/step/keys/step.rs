//! Keys of a step as a whole, and of a model that serves.

use super::step_key::{BOTH, Needs, SERVING, StepKey, TRAINING};

/// Of every step.
pub(super) const STEP: &[StepKey] = &[
    StepKey::text("sequence", "--sequence", "TOKENS", TRAINING, "Tokens of one sample").alias("seq"),
    StepKey::text("micro_batch", "--micro-batch", "N", TRAINING, "Samples of a micro-batch [default: 1]"),
    StepKey::text("global_batch", "--global-batch", "N", TRAINING, "Samples of a step over all replicas"),
    StepKey::text(
        "micro_batches",
        "--micro-batches",
        "N",
        BOTH,
        "Micro-batches of a replica in a step, instead of --global-batch",
    ),
    StepKey::text(
        "activation_element_type",
        "--activation-type",
        "TYPE",
        BOTH,
        "Type of activations on the wire: bf16 (default), fp16, fp32",
    ),
    StepKey::text(
        "framework",
        "--framework",
        "NAME",
        BOTH,
        "Take the defaults of a framework, each still to be set by its own flag: megatron, deepspeed, fsdp1, fsdp2, \
             torchtitan, hf or ddp; to serve vllm, sglang or trt-llm",
    ),
    StepKey::text(
        "prediction_layers",
        "--prediction-layers",
        "N",
        TRAINING,
        "Layers behind the last one that predict a further token each [default: 0]",
    ),
    StepKey::text(
        "small_calls",
        "--small-calls",
        "LIST",
        TRAINING,
        "Small calls around the optimizer, a list with commas, or none: tokens, batch_tokens, overflow, \
             overflow_byte, norm, norm_double, norm_tensors, status, loss [default: tokens, overflow, norm, status, loss]",
    ),
];

/// Of a model that serves.
pub(super) const SERVED: &[StepKey] = &[
    StepKey::text(
        "phases",
        "--serve",
        "PHASES",
        SERVING,
        "Serve requests instead of training: prefill, decode, or both with a comma",
    ),
    StepKey::text("batch", "--batch", "N", SERVING, "Requests that are worked on together"),
    StepKey::text("prompt_tokens", "--prompt-tokens", "TOKENS", SERVING, "Tokens of a prompt [default: 1024]"),
    StepKey::text(
        "context_tokens",
        "--context-tokens",
        "TOKENS",
        SERVING,
        "Tokens that are there when a further one is decoded [default: those of the prompt]",
    ),
    StepKey::text(
        "drafted_tokens",
        "--drafted-tokens",
        "N",
        SERVING,
        "Tokens drafted ahead of each request's next one, all verified in one pass",
    ),
    StepKey::text(
        "drafter",
        "--drafter",
        "WHAT",
        SERVING,
        "What drafts them: ngram (no message), eagle (a dense layer), mtp (a prediction layer of the model)",
    ),
    StepKey::text(
        "expert_tokens",
        "--expert-tokens",
        "WHICH",
        SERVING,
        "Which tokens a rank of tp gives to experts of other replicas, with dispatcher all_gather: parts (default), whole \
             (vLLM for some models)",
    ),
    StepKey::text(
        "feed_forward_ranks",
        "--feed-forward-ranks",
        "RANKS",
        SERVING,
        "Among which ranks everything but attention is divided: replica (default, those of tp), stage (tp and dp \
             together)",
    ),
    StepKey::text(
        "token_exchange",
        "--token-exchange",
        "HOW",
        SERVING,
        "How the tokens of replicas come together where those are the ranks of a stage: all_gather (default), \
             all_reduce",
    ),
    StepKey::text(
        "kv_transfer",
        "--kv-transfer",
        "PIECES",
        SERVING,
        "Half of dp prefills and sends keys and values to the half that decodes: layer (of each request as a layer is \
             done), request (all layers of a request at once)",
    ),
    StepKey::text(
        "kv_element_type",
        "--kv-type",
        "TYPE",
        SERVING,
        "Type of keys and values on their way [default: that of activations]",
    ),
    StepKey::text(
        "kv_decode_tp",
        "--kv-decode-tp",
        "DEGREE",
        SERVING,
        "Degree of tp of the half that decodes, of a prefill alone [default: that of the half that prefills]",
    ),
    StepKey::text(
        "decode_context",
        "--decode-context",
        "RANKS",
        SERVING,
        "Ranks of tp that share out the tokens of the same keys and values while they decode [default: 1]",
    ),
    StepKey::text(
        "decode_context_exchange",
        "--decode-context-exchange",
        "HOW",
        SERVING,
        "How the outputs over parts of a context are put together: reduce_scatter (default), all_to_all, packed, \
             head_sums",
    ),
    StepKey::text(
        "reduction_bits",
        "--reduction-bits",
        "BITS",
        SERVING,
        "Bits of the numbers that sums over tp are sent in: 4, 6, 8 [default: the type of activations]",
    ),
    StepKey::truth(
        "batch_agreement",
        "--batch-agreement",
        SERVING,
        "Replicas agree on the size of a batch before each pass",
    ),
    StepKey::text(
        "boundary_tensors",
        "--boundary-tensors",
        "N",
        SERVING,
        "Tensors from stage to stage: 1 (default), 2 where the residual is apart",
    )
    .needs(Needs::PipelineParallelism),
    StepKey::text(
        "sampled_tokens",
        "--sampled-tokens",
        "HOW",
        SERVING,
        "How sampled tokens come from the last stage to the others: broadcast (default), ring",
    )
    .needs(Needs::PipelineParallelism),
];
