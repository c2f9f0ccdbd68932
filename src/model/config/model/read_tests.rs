//! Reading: which files are refused and how, and the defaults of absent fields.

use super::facts::Families;
use super::{Blocks, FeedForward, Mixer, Model};
use commgauge_base::error::Result;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn llama() -> Value {
    json!({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu",
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16"})
}

fn shipped(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/models").join(name).join("config.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn read(value: &Value) -> Result<Model> {
    Model::read(Path::new("config.json"), "test", &value.to_string())
}

fn without(mut document: Value, fields: &[&str]) -> Value {
    for field in fields {
        document.as_object_mut().unwrap().remove(*field).expect(field);
    }
    document
}

fn with(mut document: Value, field: &str, value: Value) -> Value {
    document[field] = value;
    document
}

#[test]
fn an_invalid_file_is_refused_with_file_field_and_accepted_values() {
    for (field, value, expected) in [
        ("hidden_size", Value::Null, "config.json: hidden_size: is null; also accepted: n_embd, d_model"),
        ("vocab_size", Value::Null, "config.json: vocab_size: is null"),
        ("vocab_size", json!(-3), "config.json: vocab_size: found -3; accepted: a whole number from 1"),
        ("vocab_size", json!("many"), "config.json: vocab_size: found \"many\"; accepted"),
        ("vocab_size", json!(1u64 << 40), "vocab_size: found 1099511627776; accepted: whole numbers below 2^32"),
        ("num_key_value_heads", json!(7), "found 7, which does not divide the 32 query heads"),
        ("num_attention_heads", json!(24), "head_dim: is missing, and hidden size 4096 is not a multiple of 24"),
        ("model_type", json!("rwkv"), "config.json: model_type: found `rwkv`; supported: bloom, cohere2, config_671B"),
        ("model_type", json!("qwen9_moe"), "model_type: found `qwen9_moe`, which no family has; nearest: qwen"),
        ("model_type", json!("every"), "model_type: found `every`"),
        ("model_type", json!("kimi_k3"), "model_type: found `kimi_k3`: its experts work in a narrower width"),
        ("architectures", json!(["LlamaForCausalLMEagle3"]), "architectures: `LlamaForCausalLMEagle3` names a drafter"),
        (
            "dflash_config",
            json!({}),
            "architectures: `dflash_config` names a drafter of tokens, which is no whole model",
        ),
        ("model_type", Value::Null, "config.json: model_type: is missing; supported: bloom"),
        ("torch_dtype", json!("float17"), "config.json: torch_dtype: found element type `float17`; accepted"),
        ("torch_dtype", json!(16), "config.json: torch_dtype: found 16; accepted: a text such as \"bfloat16\""),
        ("hidden_act", json!(1), "config.json: hidden_act: found 1; accepted: a text"),
        ("num_hidden_layers", json!(4_000_000_000u64), "num_hidden_layers: found 4000000000; accepted: up to 100000"),
        ("hidden_size", json!(1u64 << 31), "accepted: up to 1e15, so that every count of parameters and bytes fits 64"),
        ("tie_word_embeddings", json!(1), "tie_word_embeddings: found 1; accepted: true or false"),
    ] {
        let message = read(&with(llama(), field, value)).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_missing_field_is_named_with_every_name_that_it_may_have() {
    for (model, field, others) in [
        ("llama-3-8b", "num_hidden_layers", "; also accepted: n_layer, num_layers"),
        ("llama-3-8b", "hidden_size", "; also accepted: n_embd, d_model"),
        ("llama-3-8b", "intermediate_size", "; also accepted: n_inner, ffn_dim, ffn_hidden_size"),
        ("llama-3-8b", "num_attention_heads", "; also accepted: n_head"),
        ("llama-3-8b", "vocab_size", ""),
        ("mixtral-8x7b", "num_local_experts", "; also accepted: num_experts, n_routed_experts"),
        ("mixtral-8x7b", "num_experts_per_tok", "; also accepted: experts_per_token"),
        ("qwen3-30b-a3b", "moe_intermediate_size", ""),
        ("qwen1.5-moe-a2.7b", "shared_expert_intermediate_size", ""),
        ("deepseek-v3", "kv_lora_rank", ""),
        ("deepseek-v3", "qk_nope_head_dim", ""),
        ("deepseek-v3", "qk_rope_head_dim", ""),
        ("deepseek-v3", "v_head_dim", ""),
    ] {
        let message = read(&without(shipped(model), &[field])).unwrap_err().to_string();
        assert_eq!(message, format!("config.json: {field}: is missing{others}"), "{model}");
    }
    // Only a table of positions needs their number.
    let message = read(&without(shipped("gpt2"), &["n_positions"])).unwrap_err().to_string();
    assert!(message.contains("max_position_embeddings: is missing; also accepted: n_positions"), "{message}");
    let positions = read(&without(llama(), &["max_position_embeddings"])).unwrap().embedding.maximum_positions;
    assert_eq!(positions, None);
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    for (model, field, value, expected) in [
        ("mixtral-8x7b", "num_experts_per_tok", json!(9), "num_experts_per_tok: found 9; there are 8 experts"),
        ("deepseek-v3", "n_group", json!(7), "n_group: found 7, which does not divide the 256 experts"),
        ("deepseek-v3", "topk_group", json!(9), "topk_group: found 9; there are 8 groups of experts"),
        ("deepseek-v3", "n_shared_experts", json!(4_000_000_000u64), "the sizes: come to about"),
        ("qwen3-30b-a3b", "mlp_only_layers", json!("none"), "mlp_only_layers: found \"none\"; accepted: a list"),
        ("gpt-oss-20b", "layer_types", json!([]), "layer_types: names 0 layers, num_hidden_layers is 24"),
        ("gpt-oss-20b", "layer_types", json!(vec!["linear"; 24]), "found \"linear\" for layer 0; accepted: a list of"),
    ] {
        let message = read(&with(shipped(model), field, value)).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn text_that_is_not_json_is_refused_with_line_and_column() {
    let message = Model::read(Path::new("config.json"), "test", "{\n  \"a\": ,\n}").unwrap_err().to_string();
    assert!(message.starts_with("config.json:2:8: not JSON: "), "{message}");
    assert!(Model::read(Path::new("config.json"), "test", "[1]").unwrap_err().to_string().contains("no JSON object"));
}

#[test]
fn inferred_fields_are_listed_with_the_reason() {
    let inferred = |document: &Value| -> Vec<String> {
        let model = read(document).unwrap();
        model.source.inferred.iter().map(|one| format!("{} {} {}", one.field, one.value, one.why)).collect()
    };
    let bare = without(llama(), &["num_key_value_heads", "torch_dtype"]);
    assert_eq!(
        inferred(&bare),
        [
            "num_key_value_heads 32 = num_attention_heads 32",
            "head_dim 128 = hidden size 4096 / 32 heads",
            "attention_bias false the default of llama",
            "tie_word_embeddings false the default of llama",
            "mlp_bias false the default of llama",
            "torch_dtype null not said; nothing is counted with it",
        ]
    );
    let gpt = json!({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "vocab_size": 50257, "n_inner": null, "torch_dtype": "float32"});
    assert_eq!(
        inferred(&gpt),
        [
            "n_inner 3072 4 x n_embd 768, the rule of gpt2",
            "num_key_value_heads 12 = num_attention_heads 12",
            "head_dim 64 = hidden size 768 / 12 heads",
            "attention_bias true gpt2 has biases everywhere; its files have no field for them",
            "tie_word_embeddings true the default of gpt2",
        ]
    );
    let whole = ["attention_bias", "tie_word_embeddings", "head_dim", "num_key_value_heads"];
    assert!(whole.iter().all(|field| shipped("qwen3-8b").get(field).is_some()));
    assert_eq!(inferred(&shipped("qwen3-8b")), Vec::<String>::new(), "a file that says everything");
    let deepseek = without(shipped("deepseek-v3"), &["n_shared_experts"]);
    let deepseek = with(with(deepseek, "q_lora_rank", Value::Null), "first_k_dense_replace", Value::Null);
    assert_eq!(
        inferred(&deepseek),
        [
            "n_shared_experts 1 the default of deepseek_v3",
            "first_k_dense_replace 0 null: none",
            "q_lora_rank null null: queries are not compressed",
        ]
    );
    let absent = ["q_lora_rank 1536 the default of deepseek_v3"];
    assert_eq!(inferred(&without(shipped("deepseek-v3"), &["q_lora_rank"])), absent);
}

#[test]
fn every_family_has_the_biases_and_ties_of_its_own_class() {
    // Queries, keys and values; the attention's output; the feed-forward; tied embeddings.
    for (model, fields, expected) in [
        ("llama-3-8b", &["attention_bias", "tie_word_embeddings"][..], (false, false, false, false)),
        ("mixtral-8x7b", &["tie_word_embeddings"], (false, false, false, false)),
        ("qwen2.5-0.5b", &["tie_word_embeddings"], (true, false, false, false)),
        ("qwen1.5-moe-a2.7b", &["tie_word_embeddings"], (true, false, false, false)),
        ("qwen3-8b", &["attention_bias", "tie_word_embeddings"], (false, false, false, false)),
        ("qwen3-30b-a3b", &["attention_bias", "tie_word_embeddings"], (false, false, false, false)),
        ("deepseek-v3", &["attention_bias", "tie_word_embeddings"], (false, false, false, false)),
        ("gpt2", &[], (true, true, true, true)),
        ("gpt-neox-20b", &["tie_word_embeddings"], (true, true, true, false)),
        ("gpt-oss-20b", &["attention_bias", "tie_word_embeddings"], (true, true, true, false)),
    ] {
        let read = read(&without(shipped(model), fields)).unwrap();
        let biases = (read.biases.query_key_value, read.biases.attention_output, read.biases.feed_forward);
        assert_eq!((biases.0, biases.1, biases.2, read.embedding.tied), expected, "{model}");
    }
}

#[test]
fn a_field_counts_by_each_of_its_names() {
    let plain = read(&llama()).unwrap();
    for (from, to) in [
        ("num_hidden_layers", "n_layer"),
        ("num_hidden_layers", "num_layers"),
        ("hidden_size", "d_model"),
        ("intermediate_size", "ffn_dim"),
        ("intermediate_size", "ffn_hidden_size"),
        ("num_attention_heads", "n_head"),
        ("num_key_value_heads", "num_kv_heads"),
        ("max_position_embeddings", "seq_length"),
        ("hidden_act", "activation_function"),
        ("torch_dtype", "dtype"),
    ] {
        let value = llama()[from].clone();
        assert_eq!(read(&with(without(llama(), &[from]), to, value)).unwrap(), plain, "{to}");
    }
    let grouped = with(without(llama(), &["num_key_value_heads"]), "multi_query", json!(true));
    assert_eq!(read(&grouped).unwrap().attention.kv_heads, 1);
    assert_eq!(read(&with(grouped, "multi_query_group_num", json!(2))).unwrap().attention.kv_heads, 2);
    let biased = read(&with(llama(), "qkv_bias", json!(true))).unwrap();
    assert!(biased.biases.query_key_value && biased.biases.attention_output);
}

#[test]
fn windows_are_those_of_the_fields_that_are_in_use() {
    let layers = |document: Value| read(&document).unwrap().attention.sliding_window.map(|window| window.layers);
    let every: Vec<u32> = (0..32).collect();
    assert_eq!(layers(with(with(llama(), "model_type", json!("mistral")), "sliding_window", json!(4096))), Some(every));
    let qwen = || with(shipped("qwen2.5-0.5b"), "max_window_layers", json!(20));
    assert_eq!(layers(qwen()), None);
    assert_eq!(layers(with(qwen(), "use_sliding_window", json!(true))), Some(vec![20, 21, 22, 23]));
    assert_eq!(layers(without(qwen(), &["use_sliding_window"])), None);
    let alternating = layers(without(shipped("gpt-oss-20b"), &["layer_types"]));
    assert_eq!(alternating, layers(shipped("gpt-oss-20b")));
}

#[test]
fn a_language_model_nested_in_a_multimodal_file_is_found() {
    let text = with(without(llama(), &["torch_dtype"]), "model_type", json!("llama_text"));
    let outer = json!({"model_type": "llava", "text_config": text, "torch_dtype": "float16",
        "tie_word_embeddings": true, "hidden_size": 1});
    let model = read(&outer).unwrap();
    assert_eq!((model.family.model_type.as_str(), model.hidden, model.embedding.tied), ("llama", 4096, true));
    assert_eq!(model.element, Some(commgauge_base::element::ElementType::Float16));
}

fn qwen3_next() -> Value {
    let mut document = json!({"model_type": "qwen3_next", "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512});
    for (field, value) in llama().as_object().unwrap() {
        document.as_object_mut().unwrap().entry(field).or_insert(value.clone());
    }
    document
}

fn nemotron_h(pattern: &str) -> Value {
    let shape = json!({"model_type": "nemotron_h", "hybrid_override_pattern": pattern, "attention_head_dim": 128, "n_groups": 8,
        "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "conv_kernel": 4, "chunk_size": 128,
        "use_conv_bias": true, "use_bias": false, "attention_bias": true});
    let mut document = without(llama(), &["num_hidden_layers"]);
    document.as_object_mut().unwrap().extend(shape.as_object().unwrap().clone());
    document
}

#[test]
fn hybrid_layers_are_those_of_the_list_or_of_the_interval() {
    let linear = |document: &Value| read(document).unwrap().attention.linear.map_or(Vec::new(), |linear| linear.layers);
    let plain = with(qwen3_next(), "num_hidden_layers", json!(6));
    assert_eq!(linear(&plain), [0, 1, 2, 4, 5]);
    assert_eq!(linear(&with(plain.clone(), "full_attention_interval", json!(2))), [0, 2, 4]);
    let listed = json!([
        "full_attention",
        "linear_attention",
        "linear_attention",
        "full_attention",
        "full_attention",
        "full_attention"
    ]);
    assert_eq!(linear(&with(plain.clone(), "layer_types", listed)), [1, 2]);
    let only = with(plain, "full_attention_interval", json!(1));
    assert_eq!((linear(&only), read(&only).unwrap().attention.sliding_window), (vec![], None));
    let pattern = read(&nemotron_h("M-*-MM")).unwrap();
    assert_eq!((pattern.layers, pattern.attention.head_dimension, pattern.biases.query_key_value), (6, 128, false));
    assert_eq!(pattern.blocks, Blocks::Single { feed_forward_layers: vec![1, 3] });
    let mixers: Vec<_> = (0..6).map(|layer| pattern.parts_of(layer).mixer).collect();
    let (linear, full) = (Some(Mixer::Linear), Some(Mixer::Attention));
    assert_eq!(mixers, [linear, None, full, None, linear, linear]);
    let names = json!(["mamba", "mlp", "attention", "mlp", "linear_attention", "linear_attention"]);
    let listed = read(&with(nemotron_h("M"), "layers_block_type", names)).unwrap();
    assert_eq!((&listed.blocks, &listed.attention.linear), (&pattern.blocks, &pattern.attention.linear));
}

#[test]
fn hybrid_layers_that_cannot_be_read_are_refused_with_what_would_be() {
    for (document, expected) in [
        (
            with(qwen3_next(), "layer_types", json!(["linear_attention"])),
            "layer_types: names 1 layers, num_hidden_layers is 32",
        ),
        (
            with(qwen3_next(), "layer_types", json!(vec!["mlp"; 32])),
            "found \"mlp\" for layer 0; accepted: a list of \"linear_attention\"",
        ),
        (with(qwen3_next(), "layer_types", json!("all")), "layer_types: found \"all\"; accepted: a list"),
        (
            with(qwen3_next(), "full_attention_interval", json!(0)),
            "full_attention_interval: found 0; accepted: a whole number from 1",
        ),
        (
            with(qwen3_next(), "linear_num_key_heads", json!(5)),
            "linear_num_key_heads: found 5, which does not divide the 32 heads",
        ),
        (with(qwen3_next(), "linear_key_head_dim", json!(1u64 << 31)), "accepted: up to 1e15"),
        (without(qwen3_next(), &["linear_num_value_heads"]), "linear_num_value_heads: is missing"),
        (
            nemotron_h("MX"),
            "found \"X\" for layer 1; accepted: a text of M (Mamba-2), * (attention), - (feed-forward) and E (experts)",
        ),
        (nemotron_h(""), "names 0 layers; accepted: 1 to 100000"),
        (
            with(nemotron_h("M"), "hybrid_override_pattern", json!(7)),
            "hybrid_override_pattern: found 7; accepted: a text",
        ),
        (
            with(nemotron_h("M-"), "num_hidden_layers", json!(3)),
            "names 2 layers, num_hidden_layers is 3; they must agree",
        ),
        (without(nemotron_h("M"), &["hybrid_override_pattern"]), "num_hidden_layers: is missing"),
        (
            without(with(nemotron_h("M"), "num_hidden_layers", json!(1)), &["hybrid_override_pattern"]),
            "hybrid_override_pattern: is missing; also accepted: layers_block_type",
        ),
        (
            with(nemotron_h("M"), "n_groups", json!(3)),
            "n_groups: found 3, which does not divide the 128 heads of values",
        ),
        (nemotron_h("ME"), "moe_intermediate_size: is missing"),
    ] {
        let message = read(&document).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

fn families() -> Vec<String> {
    Families::near(Path::new("config.json")).unwrap().names().into_iter().map(str::to_owned).collect()
}

/// Every number that a shape follows from.
const NUMBERS: [&str; 31] = [
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "num_nextn_predict_layers",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "full_attention_interval",
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "n_groups",
    "ssm_state_size",
    "mamba_num_heads",
    "mamba_head_dim",
];

#[test]
fn counts_by_formulas_are_bounded_over_all_layers_together() {
    let bloom = |hidden: u64, layers: u32| {
        read(&json!({"model_type": "bloom", "n_embed": hidden, "n_layer": layers, "n_head": 1, "vocab_size": 8}))
    };
    for (hidden, layers) in [(6_454_972, 3), (1 << 20, 100_000)] {
        let message = bloom(hidden, layers).expect_err("too large").to_string();
        assert!(message.contains("parameters; accepted: up to 1e15"), "{message}");
    }
    assert_eq!(bloom(14_336, 70).unwrap().parameters(), 172_650_770_432);
}

proptest! {
    #[test]
    fn no_numbers_make_a_count_overflow(
        family in proptest::sample::select(families()),
        pattern in proptest::collection::vec(
            proptest::sample::select(vec!["linear_attention", "full_attention", "mlp", "moe"]), 1..9),
        numbers in proptest::collection::vec(
            prop_oneof![8 => 1u64..9, 2 => 1u64 << 10..1 << 24, 1 => (1u64 << 31)..(1 << 32) + 2], NUMBERS.len()),
    ) {
        let mut document = json!({"model_type": family, "conv_kernel": 4, "chunk_size": 128,
            "layers_block_type": pattern});
        for (name, number) in NUMBERS.iter().zip(numbers) {
            document[*name] = json!(number);
        }
        if family == "nemotron_h" {
            for field in ["num_hidden_layers", "num_nextn_predict_layers"] {
                document.as_object_mut().unwrap().remove(field);
            }
        } else {
            document.as_object_mut().unwrap().remove("layers_block_type");
        }
        if let Ok(model) = read(&document) {
            let total = model.parameters();
            prop_assert!(model.parameters_active() <= total);
            prop_assert_eq!(model.first_stage_parameters(1, 1) >= total, true, "a padded vocabulary only adds");
            let linear = model.attention.linear.as_ref();
            prop_assert!(linear.is_none_or(|linear| linear.state_elements(1) < 1 << 51));
            prop_assert!(u128::from(total) + u128::from(model.prediction_layer_parameters()) <= 1_000_000_000_000_000);
        }
    }
}

fn read_file(file: &str) -> Model {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(file);
    Model::read(&file, "test", &std::fs::read_to_string(&file).unwrap()).unwrap()
}

#[test]
fn a_file_next_to_a_config_json_names_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let file = folder.path().join("hf_quant_config.json");
    let message = Model::read(&file, "mine", "{\"quantization\": {}}").unwrap_err().to_string();
    assert!(
        message.ends_with(&format!("the model is in {}", file.with_file_name("config.json").display())),
        "{message}"
    );
}

/// A folder with a llama's config.json under another `model_type`, and a file of families in the folder of that name.
fn with_families(model_type: &str, below: &str, families: &str) -> Result<Model> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine/config.json");
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join(below).join("families.toml"), families).unwrap();
    Model::read(&file, "mine", &with(llama(), "model_type", json!(model_type)).to_string())
}

#[test]
fn files_of_families_are_refused_by_the_key_that_is_wrong() {
    let formula = |text: &str| format!("[new.weights]\nsteps_refused = \"why\"\nlayer = {{ all = \"{text}\" }}");
    for (families, expected) in [
        ("[new]\nlike = \"llama\"\nguess = 1".to_owned(), "families.toml: new: unknown field `guess`"),
        ("[new]\nlike = 3".to_owned(), "families.toml: new: like: accepted: the name of another row"),
        ("[new]\nlike = \"new\"".to_owned(), "families.toml: new: `like` leads over more than 8 rows"),
        ("[new]\nlike = \"none\"".to_owned(), "families.toml: new: there is no row `none`"),
        ("[new]\ngated = 1".to_owned(), "families.toml: new: invalid type: integer `1`, expected a boolean"),
        ("[new".to_owned(), "families.toml: the file: "),
        (formula("hidden_size // 0"), "hidden_size // 0: divides by 0"),
        (formula("(hidden_size"), "(hidden_size: a parenthesis is not closed"),
        (formula("hidden_size)"), "hidden_size): `)` cannot be read here"),
        (formula("hidden_size *"), "hidden_size *: found `` where a name or a number belongs"),
        (formula("rank * 2"), "rank * 2: rank is missing"),
        (formula("hidden_act + 1"), "hidden_act + 1: \"silu\" is no number"),
        (formula("1 - hidden_size"), "1 - hidden_size: gives -4095; accepted: 0 to 1e15"),
        (formula("1 in hidden_size"), "1 in hidden_size: in needs a list behind it"),
        (formula(&"(".repeat(2000)), "is longer than 1000 bytes"),
        (format!("{}\nnamed = {{ one = \"one\" }}", formula("one")), "one: one names itself"),
    ] {
        let message = with_families("new", "mine", &families).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}\n  expected {expected}");
    }
}

#[test]
fn a_family_that_is_another_under_a_new_name_is_a_row_next_to_its_file_or_above() {
    let row = "[new]\nlike = \"qwen2\"\nnames = { intermediate_size = \"hidden_size\" }";
    for below in ["mine", ""] {
        let model = with_families("new", below, row).unwrap();
        assert!(model.biases.query_key_value && !model.biases.attention_output);
        assert_eq!((model.feed_forward, model.family.model_type.as_str()), (4096, "new"));
    }
    let replaced = with_families("llama", "mine", "[llama]\nnorms_per_layer = 4").unwrap();
    assert_eq!(replaced.norms_per_layer(), 4);
}

#[test]
fn formulas_give_the_parameters_of_layers_and_refuse_their_steps() {
    let text = "[new.weights]\nsteps_refused = \"why\"\noutside = \"7\"\nidle = \"layer\"\n\
                layer = { a = \"(layer % 2 == 1) * (none or 3) + 2 * 5 // 3\", b = \"(layer < 2) * hidden_size - 0\" }";
    let model = with_families("new", "mine", text).unwrap();
    let counted = model.counted.as_ref().unwrap();
    assert_eq!(counted.layers[..4], [[4099, 4099], [4102, 4101], [3, 1], [6, 3]]);
    assert_eq!(counted.outside, 7);
    assert_eq!(model.steps_refused().unwrap(), "mine (new) has no list of calls: why");
    // By the shapes of modeling_decilm.py; the card rounds to 49B. DeepSeek's own file of DeepSeek-V3: without the prediction layer.
    let nas = read_file("models/nemotron-super-49b/config.json");
    assert_eq!((nas.parameters(), nas.steps_refused().is_some()), (49_867_145_216, true));
    let deepseek = read_file("models/deepseek-inference/config_671B.json");
    assert_eq!((deepseek.parameters(), deepseek.steps_refused()), (671_026_404_352, None));
}

#[test]
fn files_of_other_forms_are_named_as_what_they_are() {
    let meta = json!({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "norm_eps": 1e-5,
        "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "rope_theta": 500000.0});
    let message = read(&meta).unwrap_err().to_string();
    assert!(
        message.contains("found `params`: Meta's params.json, whose feed-forward width depends on code"),
        "{message}"
    );
}

#[test]
fn the_whole_file_wins_over_its_text_part_and_what_is_not_counted_is_listed() {
    let text = with(with(llama(), "tie_word_embeddings", json!(true)), "model_type", json!("llama_text"));
    let outer = json!({"model_type": "llava", "text_config": text, "tie_word_embeddings": false, "vision_config": {"hidden_size": 1}});
    let model = read(&outer).unwrap();
    assert!(!model.embedding.tied);
    let last = model.source.inferred.last().unwrap();
    assert_eq!(
        (last.field.as_str(), last.why.as_str()),
        ("vision_config", "not counted: the total is that of the language model")
    );
}

#[test]
fn a_file_saved_as_differences_has_the_defaults_of_its_class() {
    // As transformers 5.23.0 counts the language model of Gemma3ForConditionalGeneration.
    let nested = json!({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}});
    let model = read(&nested).unwrap();
    assert_eq!((model.attention.heads, model.attention.kv_heads, model.embedding.vocabulary), (8, 4, 262_208));
    assert_eq!(model.parameters(), 3_880_263_168);
    let without =
        read(&json!({"model_type": "gemma3", "vision_config": {"hidden_size": 1152}})).unwrap_err().to_string();
    assert!(without.contains("is missing, and so is text_config, which files with vision_config have"), "{without}");
}

#[test]
fn layers_that_are_experts_alone_are_read_with_their_shared_and_narrow_experts() {
    let nano = read_file("transformers/nemotron-3-nano/config.json");
    let experts = nano.mixture.as_ref().unwrap();
    assert_eq!((experts.experts, experts.shared_feed_forward, experts.latent_width), (128, 3712, None));
    let parts: Vec<_> =
        (0..6).map(|layer| nano.parts_of(layer)).map(|parts| (parts.mixer, parts.feed_forward)).collect();
    let (linear, moe) = ((Some(Mixer::Linear), None), (None, Some(FeedForward::Experts)));
    assert_eq!(parts, [linear, moe, linear, moe, linear, (Some(Mixer::Attention), None)]);
    assert_eq!(nano.steps_refused(), None);
    let large = read_file("transformers/nemotron-3-super/config.json");
    assert!(large.steps_refused().unwrap().contains("work in a width of 1024 (moe_latent_size)"));
    assert_eq!(large.source.inferred.iter().filter(|one| one.field == "num_nextn_predict_layers").count(), 1);
}

#[test]
fn the_feed_forward_of_each_layer_is_that_of_the_list_of_newer_files() {
    let kinds = |names: [&str; 4]| {
        let glm = json!({"model_type": "glm4_moe_lite", "num_hidden_layers": 4, "mlp_layer_types": names, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "moe_intermediate_size": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
            "v_head_dim": 64});
        let mut document = llama();
        document.as_object_mut().unwrap().extend(glm.as_object().unwrap().clone());
        read(&document).map(|model| (0..4).map(|layer| model.has_experts_in(layer)).collect::<Vec<_>>())
    };
    assert_eq!(kinds(["dense", "dense", "sparse", "dense"]).unwrap(), [false, false, true, false]);
    let message = kinds(["dense", "dense", "hash", "dense"]).unwrap_err().to_string();
    assert!(
        message.contains("mlp_layer_types: found \"hash\"; accepted: a list of \"dense\" and \"sparse\", 4 long"),
        "{message}"
    );
}
