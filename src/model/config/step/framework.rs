//! Frameworks whose defaults a step may take: a choice that the user leaves open is made as the framework makes it, and one
//! that the framework has no use for is refused.
//!
//! What each framework does is data: `suites/frameworks/NAME.toml`, read once.

use super::choices::{Choice, choices};
use crate::config::document::Table;
use crate::config::shipped::embedded_tables;
use commgauge_base::error::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

choices! {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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

/// A file of `suites/frameworks`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    /// The version that was read or run.
    version: String,
    work: Work,
    axes: Vec<String>,
    /// Keys that it has no use for.
    unused: Vec<String>,
    #[serde(default, rename = "limit")]
    limits: Vec<Limit>,
    /// In their order: a later one may depend on an earlier one.
    #[serde(rename = "default")]
    defaults: Vec<Default>,
}

/// The only values of a key that it offers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    key: String,
    accepted: Vec<String>,
    /// Where the limit does not hold.
    #[serde(default)]
    unless: With,
    #[serde(rename = "source")]
    _source: Option<String>,
}

/// A choice that it makes where the user makes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Default {
    key: String,
    /// As the flag of the key takes it.
    value: String,
    /// File, and function or setting.
    source: String,
    #[serde(default)]
    only_with: With,
}

/// Other keys, each with the values that it must have one of.
type With = BTreeMap<String, Vec<String>>;

/// The facts of every framework, in the order of [`Framework::ALL`].
static FACTS: LazyLock<Vec<Facts>> = LazyLock::new(|| {
    let mut tables: BTreeMap<&str, Facts> = embedded_tables("frameworks");
    let facts = |framework: &Framework| tables.remove(&*format!("{framework}.toml")).expect("each has a file");
    Framework::ALL.iter().map(facts).collect()
});

impl Framework {
    /// What it does.
    pub fn work(self) -> Work {
        self.facts().work
    }

    /// The axes that it divides a model by, named as in `[[layout]]`; another axis would have the calls of another program.
    pub fn axes(self) -> &'static [String] {
        &self.facts().axes
    }

    /// Whether it has this value of a key.
    pub fn offers(self, key: &str, value: &str) -> bool {
        let facts = self.facts();
        let limit = facts.limits.iter().find(|limit| limit.key == key);
        !facts.unused.iter().any(|unused| unused == key)
            && limit.is_none_or(|limit| limit.accepted.iter().any(|accepted| accepted == value))
    }

    fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }
}

impl Work {
    /// The frameworks that do it, as a list for messages.
    pub(super) fn frameworks(self) -> String {
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
    let Some(item) = table.peek("framework") else { return Ok(None) };
    let framework: Framework = item.parsed(str::parse)?;
    let place = item.place.clone();
    let facts = framework.facts();
    if facts.work != work {
        return Err(item.wrong(format!(
            "{framework} {}, and this model {work}; accepted: {}",
            facts.work,
            work.frameworks()
        )));
    }
    if let Some((key, written)) = facts.unused.iter().find_map(|key| Some((key, table.peek(key)?))) {
        let problem = format!("{framework} does not use {key}; leave it out, or leave out the framework");
        return Err(written.wrong(problem));
    }
    for limit in facts.limits.iter().filter(|limit| limit.unless.is_empty() || !holds(table, &limit.unless)) {
        let refused = table.peek(&limit.key).filter(|item| !limit.accepted.iter().any(|value| item.is_text(value)));
        if let Some(written) = refused {
            let accepted = limit.accepted.join(", ");
            return Err(written.wrong(format!("{framework} offers no other {} than {accepted}", limit.key)));
        }
    }
    let mut defaults = Vec::new();
    for Default { key, value, source, only_with } in &facts.defaults {
        if holds(table, only_with) && table.default_to(key, value, &place) {
            let [key, value, source] = [key, value, source].map(|text| Cow::Borrowed(text.as_str()));
            defaults.push(FrameworkDefault { key, value, source });
        }
    }
    Ok(Some(FrameworkChoices { framework, version: facts.version.as_str().into(), defaults }))
}

/// Whether each key has one of its values.
fn holds(table: &Table, with: &With) -> bool {
    with.iter().all(|(key, values)| table.peek(key).is_some_and(|item| values.iter().any(|value| item.is_text(value))))
}

#[cfg(test)]
mod tests {
    // What is known of frameworks is consistent, and refused where it does not fit.
    use super::*;
    use crate::config::step::{DataStyle, ServingDispatcher, TensorStyle, UnitRule, keys_of};
    use crate::config::{Serving, Training};

    type Flag = (&'static str, &'static str);

    fn table(flags: &[Flag]) -> Table {
        Table::of_flags(flags.iter().map(|(key, value)| (*key, *key, (*value).to_owned())))
    }

    fn training(framework: &'static str, flags: &[Flag]) -> Result<Training> {
        trained(&[&[("framework", framework)], flags].concat())
    }

    fn serving(framework: &'static str, flags: &[Flag]) -> Result<Serving> {
        served(&[&[("framework", framework)], flags].concat())
    }

    fn trained(flags: &[Flag]) -> Result<Training> {
        Training::read(table(&[&[("sequence", "4096"), ("micro_batches", "8")], flags].concat()))
    }

    fn served(flags: &[Flag]) -> Result<Serving> {
        Serving::read(table(&[&[("batch", "16")], flags].concat()))
    }

    #[test]
    fn every_fact_of_a_framework_names_keys_and_values_that_are_and_its_source() {
        for framework in Framework::ALL {
            let facts = framework.facts();
            assert!(!facts.version.is_empty() && !facts.axes.is_empty() && !facts.defaults.is_empty(), "{framework}");
            let known: Vec<&str> = keys_of(facts.work).collect();
            let conditions = facts.limits.iter().map(|limit| &limit.unless);
            let conditions: Vec<_> =
                conditions.chain(facts.defaults.iter().map(|default| &default.only_with)).flatten().collect();
            let keys = facts.unused.iter().chain(facts.limits.iter().map(|limit| &limit.key));
            let keys = keys.chain(facts.defaults.iter().map(|default| &default.key));
            for key in keys.chain(conditions.iter().map(|(key, _)| *key)) {
                assert!(known.contains(&key.as_str()), "{framework}: {key}");
            }
            let values = facts.limits.iter().flat_map(|limit| limit.accepted.iter().map(|value| (&limit.key, value)));
            let values =
                values.chain(conditions.iter().flat_map(|(key, values)| values.iter().map(|value| (*key, value))));
            for (key, value) in values.chain(facts.defaults.iter().map(|default| (&default.key, &default.value))) {
                let flags = [(key.as_str(), value.as_str())];
                let read = match facts.work {
                    Work::Training => trained(&flags).err(),
                    Work::Serving => served(&flags).err(),
                };
                // Values that are, but need another key, are refused for that.
                let problem = read.map(|error| error.to_string()).filter(|problem| !problem.contains(" needs "));
                assert_eq!(problem, None, "{framework}");
            }
            assert!(facts.defaults.iter().all(|default| default.source.len() > 5), "{framework}");
        }
    }

    #[test]
    fn every_framework_reads_with_its_own_defaults() {
        for framework in Framework::ALL {
            let choices = match framework.work() {
                Work::Training => training(framework.name(), &[]).map(|training| training.framework_choices),
                Work::Serving => serving(framework.name(), &[]).map(|serving| serving.framework_choices),
            };
            let choices = choices.unwrap_or_else(|error| panic!("{framework}: {error}")).unwrap();
            assert!(choices.framework == *framework && !choices.defaults.is_empty(), "{framework}");
        }
    }

    #[test]
    fn every_data_style_that_a_framework_offers_reads() {
        for framework in Framework::ALL.iter().filter(|framework| framework.work() == Work::Training) {
            let limits = framework.facts().limits.iter().filter(|limit| limit.key == "data_style");
            for style in limits.flat_map(|limit| &limit.accepted) {
                training(framework.name(), &[("data_style", style)])
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
        let choices = own.framework_choices.unwrap();
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
