//! What the frameworks that serve do by default.
//!
//! None was run. Of SGLang all that is said here was read, of vLLM and TensorRT-LLM the communication of experts; the rest is as their files
//! are known to be at about these commits, and is to be checked before it is relied on.

use super::facts::{Default, EVERY_AXIS, Facts, Limit};

pub(super) const VLLM: Facts = Facts {
    version: "main, commit e04bcc7",
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
    limits: &[],
    unused: &[],
};

pub(super) const SGLANG: Facts = Facts {
    version: "main, commits 008af3a (models) and 0005973 (distributed)",
    axes: EVERY_AXIS,
    defaults: &[
        Default::new(
            "dispatcher",
            "all_reduce",
            "python/sglang/srt/models/qwen3_moe.py forward_normal moe_expert_parallel_all_reduce, with moe_a2a_backend none",
        ),
        Default::new(
            "scatter_gather",
            "true",
            "python/sglang/srt/managers/scheduler_pp_mixin.py send_tensor_dict, all_gather_group",
        ),
        Default::new(
            "boundary_tensors",
            "2",
            "python/sglang/srt/models/llama.py PPProxyTensors hidden_states, residual",
        ),
        Default::new(
            "vocabulary_padding",
            "vllm",
            "python/sglang/srt/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE",
        ),
    ],
    limits: &[],
    unused: &[],
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
    limits: &[Limit { key: "dispatcher", accepted: &["all_gather", "all_to_all"] }],
    unused: &[],
};
