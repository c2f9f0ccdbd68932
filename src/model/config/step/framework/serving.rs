//! What the frameworks that serve do by default.
//!
//! vLLM and SGLang were run as far as dense models and stages go, the rest of them was read in these versions; of TensorRT-LLM the
//! communication of experts was read, the rest is as its files are known to be, and is to be checked before it is relied on.

use super::facts::{Default, EVERY_AXIS, Facts, Limit};

/// What only data-parallel attention has that divides the rest among all replicas.
const JOINED: &[&str] = &["feed_forward_ranks", "token_exchange"];

/// Keys and values of all layers leave together (sglang/srt/disaggregation/prefill.py send_kv_chunk; TensorRT-LLM
/// cpp/tensorrt_llm/batch_manager/cacheTransceiver.cpp).
const AFTER_THE_PASS: Limit = Limit::new("kv_transfer", &["request"]);

pub(super) const VLLM: Facts = Facts {
    version: "0.33.0",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new("dispatcher", "all_gather", "vllm/config/parallel.py all2all_backend allgather_reducescatter"),
        Default::new("scatter_gather", "true", "vllm/distributed/parallel_state.py send_tensor_dict, all_gather_group"),
        Default::new(
            "boundary_tensors",
            "2",
            "vllm/model_executor/models/llama.py IntermediateTensors hidden_states, residual",
        ),
        Default::new(
            "vocabulary_padding",
            "vllm",
            "vllm/model_executor/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE",
        ),
    ],
    limits: &[Limit::new("decode_context_exchange", &["reduce_scatter", "packed"])],
    unused: &[JOINED],
};

pub(super) const SGLANG: Facts = Facts {
    version: "0.5.23",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new(
            "dispatcher",
            "all_reduce",
            "sglang/srt/layers/moe/utils.py _post_experts_sum, with moe_a2a_backend none",
        ),
        Default::new(
            "scatter_gather",
            "true",
            "sglang/srt/managers/scheduler_pp_mixin.py send_tensor_dict, all_gather_group",
        ),
        Default::new(
            "boundary_tensors",
            "2",
            "sglang/srt/models/llama.py PPProxyTensors hidden_states, residual",
        ),
        Default::new(
            "sampled_tokens",
            "ring",
            "sglang/srt/managers/scheduler_pp_mixin.py _pp_send_output_to_next_stage",
        ),
        Default::new(
            "vocabulary_padding",
            "vllm",
            "sglang/srt/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE",
        ),
        Default::new(
            "token_exchange",
            "all_reduce",
            "sglang/srt/layers/dp_attention.py get_dp_padding_mode SUM_LEN: in prefill, and where a decode fits the custom all-reduce",
        )
        .only_with("feed_forward_ranks", &["stage"]),
        Default::new(
            "decode_context_exchange",
            "head_sums",
            "sglang/srt/layers/dcp/comm.py cp_lse_ag_out_rs_mla, cp_lse_ag_out_rs_mha, with dcp_comm_backend ag_rs",
        ),
    ],
    limits: &[AFTER_THE_PASS, Limit::new("decode_context_exchange", &["head_sums", "packed"])],
    unused: &[&["batch_agreement", "expert_tokens"]],
};

pub(super) const TENSORRT_LLM: Facts = Facts {
    version: "main, commit 0f39b2d",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new(
            "dispatcher",
            "all_gather",
            "tensorrt_llm/_torch/modules/fused_moe/communication/communication_factory.py AllGatherReduceScatter",
        ),
        Default::new("vocabulary_padding", "even", "tensorrt_llm/_torch/modules/embedding.py padding_size"),
    ],
    limits: &[Limit::new("dispatcher", &["all_gather", "all_to_all"]), AFTER_THE_PASS],
    unused: &[
        JOINED,
        &["batch_agreement", "expert_tokens", "decode_context", "decode_context_exchange", "reduction_bits"],
    ],
};
