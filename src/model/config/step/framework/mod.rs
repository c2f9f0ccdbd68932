//! Frameworks whose defaults a step may take: a choice that the user leaves open is made as the framework makes it, and one
//! that the framework has no use for is refused.
//!
//! What each framework does is data (`training`, `serving`), with the version and the file in which it was read or the run that
//! showed it.

mod facts;
mod training;

use super::choices::choice;
use crate::config::document::Table;
use commgauge_base::error::Result;
use facts::{Default, EVERY_AXIS, Facts, Limit, With};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

choice! {
    /// A framework that trains or serves.
    Framework, "framework" {
        /// Megatron-LM, with Megatron-core.
        Megatron = "megatron",
        /// DeepSpeed's engine.
        DeepSpeed = "deepspeed",
        /// PyTorch's `FullyShardedDataParallel`.
        Fsdp1 = "fsdp1",
        /// PyTorch's `fully_shard`.
        Fsdp2 = "fsdp2",
        /// torchtitan.
        Torchtitan = "torchtitan",
        /// Hugging Face transformers with its own tensor-parallel plans.
        HuggingFace = "hf",
        /// PyTorch's `DistributedDataParallel`.
        Ddp = "ddp",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// TensorRT-LLM, its PyTorch backend.
        TensorRtLlm = "trt-llm",
    }
}

/// What a framework does with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It trains.
    Training,
    /// It serves requests.
    Serving,
}

/// A framework whose defaults hold, and what it decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameworkChoices {
    /// The framework.
    pub framework: Framework,
    /// The version that the defaults were read in.
    pub version: Cow<'static, str>,
    /// Keys that the user left to the framework.
    pub defaults: Vec<FrameworkDefault>,
}

impl FrameworkChoices {
    /// Whether the user left a key to the framework, and it decided.
    pub fn decides(&self, key: &str) -> bool {
        self.defaults.iter().any(|default| default.key == key)
    }
}

/// A choice that a framework makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameworkDefault {
    /// The key of `[training]` or `[serving]`.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: Cow<'static, str>,
    /// File, and function or setting, where the framework makes it.
    pub source: Cow<'static, str>,
}

impl Framework {
    /// What it does.
    pub fn work(self) -> Work {
        match self {
            Framework::Vllm | Framework::Sglang | Framework::TensorRtLlm => Work::Serving,
            _ => Work::Training,
        }
    }

    /// The axes that it divides a model by, named as in `[[layout]]`: the calls of another axis would be those of some other program.
    pub fn axes(self) -> &'static [&'static str] {
        self.facts().axes
    }

    /// Whether it has this value of a key.
    pub fn offers(self, key: &str, value: &str) -> bool {
        let facts = self.facts();
        !facts.leaves_unused(key) && facts.accepted(key).is_none_or(|accepted| accepted.contains(&value))
    }

    /// The version that its defaults were read in.
    pub fn version(self) -> &'static str {
        self.facts().version
    }

    fn facts(self) -> &'static Facts {
        match self {
            Framework::Megatron => &training::MEGATRON,
            Framework::DeepSpeed => &training::DEEPSPEED,
            Framework::Fsdp1 => &training::FSDP1,
            Framework::Fsdp2 => &training::FSDP2,
            Framework::Torchtitan => &training::TORCHTITAN,
            Framework::HuggingFace => &training::HUGGING_FACE,
            Framework::Ddp => &training::DDP,
            Framework::Vllm => &VLLM,
            Framework::Sglang => &SGLANG,
            Framework::TensorRtLlm => &TENSORRT_LLM,
        }
    }
}

impl Work {
    /// The frameworks that do it, as a list for messages.
    fn frameworks(self) -> String {
        let names = Framework::ALL.iter().filter(|framework| framework.work() == self);
        names.map(|framework| framework.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Training => "trains",
            Work::Serving => "serves",
        })
    }
}

/// Takes the key `framework` from the table, and gives the table the framework's choices where it has none of its own.
///
/// # Errors
/// A framework that does other work, and a key or a value that it has no use for, at the place where it was written.
pub(super) fn apply(table: &mut Table, work: Work) -> Result<Option<FrameworkChoices>> {
    let Some(item) = table.take("framework") else { return Ok(None) };
    let framework: Framework = item.parsed(str::parse)?;
    if framework.work() != work {
        return Err(item.wrong(format!(
            "{framework} {}, and this model {work}; accepted: {}",
            framework.work(),
            work.frameworks()
        )));
    }
    let facts = framework.facts();
    for key in facts.unused.iter().copied().flatten() {
        if let Some(written) = table.peek(key) {
            let problem = format!("{framework} does not use {key}; leave it out, or leave out the framework");
            return Err(written.wrong(problem));
        }
    }
    for limit in facts.limits.iter().filter(|limit| !limit.unless.is_some_and(|with| holds(table, with))) {
        let refused = table.peek(limit.key).filter(|item| !limit.accepted.iter().any(|value| item.is_text(value)));
        if let Some(written) = refused {
            let accepted = limit.accepted.join(", ");
            return Err(written.wrong(format!("{framework} offers no other {} than {accepted}", limit.key)));
        }
    }
    let mut defaults = Vec::new();
    for default in facts.defaults {
        let wanted = default.only_with.is_none_or(|with| holds(table, with));
        if wanted && table.default_to(default.key, default.value, &item.place) {
            defaults.push(FrameworkDefault {
                key: default.key.into(),
                value: default.value.into(),
                source: default.source.into(),
            });
        }
    }
    Ok(Some(FrameworkChoices { framework, version: facts.version.into(), defaults }))
}

/// Whether a key has one of the values.
fn holds(table: &Table, with: With) -> bool {
    table.peek(with.key).is_some_and(|item| with.values.iter().any(|value| item.is_text(value)))
}

// What the frameworks that serve do by default.
//
// vLLM and SGLang were run as far as dense models and stages go, the rest of them was read in these versions; of TensorRT-LLM the
// communication of experts was read, the rest is as its files are known to be, and is to be checked before it is relied on.

/// What only data-parallel attention has that divides the rest among all replicas.
const JOINED: &[&str] = &["feed_forward_ranks", "token_exchange"];

/// Keys and values of all layers leave together (sglang/srt/disaggregation/prefill.py send_kv_chunk; TensorRT-LLM
/// cpp/tensorrt_llm/batch_manager/cacheTransceiver.cpp).
const AFTER_THE_PASS: Limit = Limit::new("kv_transfer", &["request"]);

const VLLM: Facts = Facts {
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

const SGLANG: Facts = Facts {
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

const TENSORRT_LLM: Facts = Facts {
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

#[cfg(test)]
mod tests {
    // What is known of frameworks is consistent, and refused where it does not fit.
    use super::*;
    use crate::config::step::{DataStyle, ServingDispatcher, TensorStyle, UnitRule};
    use crate::config::{Serving, Training};

    type Flag = (&'static str, &'static str);

    fn table(flags: &[Flag]) -> Table {
        Table::of_flags(flags.iter().map(|(key, value)| (*key, *key, (*value).to_owned())))
    }

    fn training(framework: &'static str, flags: &[Flag]) -> Result<Training> {
        let step = [("framework", framework), ("sequence", "4096"), ("micro_batches", "8")];
        Training::read(table(&[&step[..], flags].concat()))
    }

    fn serving(framework: &'static str, flags: &[Flag]) -> Result<Serving> {
        let requests = [("framework", framework), ("batch", "16")];
        Serving::read(table(&[&requests[..], flags].concat()))
    }

    #[test]
    fn every_framework_reads_with_its_own_defaults_and_names_their_sources() {
        for framework in Framework::ALL {
            let choices = match framework.work() {
                Work::Training => training(framework.name(), &[]).map(|training| training.framework),
                Work::Serving => serving(framework.name(), &[]).map(|serving| serving.framework),
            };
            let choices = choices.unwrap_or_else(|error| panic!("{framework}: {error}")).unwrap();
            assert_eq!(choices.framework, *framework);
            assert!(!choices.version.is_empty() && !choices.defaults.is_empty(), "{framework}");
            assert!(choices.defaults.iter().all(|default| !default.source.is_empty()), "{framework}");
        }
    }

    #[test]
    fn every_data_style_that_a_framework_offers_reads() {
        for framework in Framework::ALL.iter().filter(|framework| framework.work() == Work::Training) {
            let limits = framework.facts().limits.iter().filter(|limit| limit.key == "data_style");
            for style in limits.flat_map(|limit| limit.accepted) {
                training(framework.name(), &[("data_style", *style)])
                    .unwrap_or_else(|error| panic!("{framework}: {error}"));
            }
        }
    }

    #[test]
    fn a_choice_of_the_users_own_stays_and_is_not_listed() {
        let free = training("torchtitan", &[]).unwrap();
        assert_eq!((free.data.units.rule, free.tensor.style), (UnitRule::EndsApart, TensorStyle::DTensor));
        assert!(free.tensor.sequence_parallel);
        let own = training("torchtitan", &[("unit_rule", "layers"), ("sequence_parallel", "false")]).unwrap();
        assert_eq!((own.data.units.rule, own.data.style), (UnitRule::Layers, DataStyle::Fsdp));
        assert!(!own.tensor.sequence_parallel);
        let choices = own.framework.unwrap();
        let listed: Vec<&str> = choices.defaults.iter().map(|default| default.key.as_ref()).collect();
        assert!(listed.contains(&"data_style") && !listed.contains(&"unit_rule"), "{listed:?}");
    }

    #[test]
    fn a_default_may_depend_on_another_choice() {
        let reduced = |style| training("deepspeed", &[("data_style", style)]).unwrap().data.gradient_reduction.name();
        assert_eq!(["zero1", "zero2", "zero3"].map(reduced), ["all_reduce", "all_reduce", "reduce_scatter"]);
    }

    #[test]
    fn what_a_framework_has_no_use_for_is_refused_by_name() {
        for (framework, flags, expected) in [
            ("vllm", vec![], "framework: vllm serves, and this model trains; accepted: megatron, deepspeed, fsdp1"),
            ("fsdp2", vec![("bucket_rule", "pytorch")], "bucket_rule: fsdp2 does not use bucket_rule"),
            ("megatron", vec![("unit_rule", "layers")], "unit_rule: megatron offers no other unit_rule than buckets"),
            ("megatron", vec![("secondary_shards", "2")], "secondary_shards: megatron does not use secondary_shards"),
            (
                "megatron",
                vec![("data_style", "zero2")],
                "data_style: megatron offers no other data_style than ddp, zero1, fsdp",
            ),
            (
                "megatron",
                vec![("gradient_reduction", "all_reduce")],
                "gradient_reduction: megatron offers no other gradient_reduction than reduce_scatter",
            ),
            ("ddp", vec![("replicas_of_shards", "2")], "replicas_of_shards: ddp does not use replicas_of_shards"),
            ("pytorch", vec![], "framework: found framework `pytorch`; accepted: megatron, deepspeed"),
        ] {
            let message = training(framework, &flags).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
        for (framework, key, value, expected) in [
            ("sglang", "kv_transfer", "layer", "kv_transfer: sglang offers no other kv_transfer than request"),
            ("trt-llm", "decode_context", "2", "decode_context: trt-llm does not use decode_context"),
            ("trt-llm", "reduction_bits", "8", "reduction_bits: trt-llm does not use reduction_bits"),
        ] {
            let message = serving(framework, &[(key, value)]).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
        let message = serving("megatron", &[]).unwrap_err().to_string();
        assert_eq!(message, "framework: megatron trains, and this model serves; accepted: vllm, sglang, trt-llm");
        assert_eq!(
            serving("vllm", &[("dispatcher", "all_to_all")]).unwrap().expert.dispatcher,
            ServingDispatcher::AllToAll
        );
    }
}
