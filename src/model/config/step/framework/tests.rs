//! What is known of frameworks is consistent, and refused where it does not fit.

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
