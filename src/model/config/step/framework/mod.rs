//! Frameworks whose defaults a step may take: a choice that the user leaves open is made as the framework makes it, and one
//! that the framework has no use for is refused.
//!
//! What each framework does is data (`training`, `serving`), with the version and the file in which it was read or the run that
//! showed it.

mod facts;
mod serving;
mod training;

use super::choices::choice;
use crate::config::document::Table;
use commgauge_base::error::Result;
use facts::{Facts, With};
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
            Framework::Vllm => &serving::VLLM,
            Framework::Sglang => &serving::SGLANG,
            Framework::TensorRtLlm => &serving::TENSORRT_LLM,
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

#[cfg(test)]
mod tests;
