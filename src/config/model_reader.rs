//! Reads a Hugging Face config.json as it is: the field names of every supported family, and what an absent field means.

use super::model::{Family, LatentAttention, Mixture, Model};
use crate::element::ElementType;
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// No number in a config.json may be this large; no published one comes near it.
const LARGEST: u64 = 1 << 32;
/// No model may have more layers than this.
const MOST_LAYERS: u32 = 100_000;
/// No model may have more parameters than this, so that all that is computed from a model fits 64 bits.
const MOST_PARAMETERS: f64 = 1e15;

impl Model {
    /// Reads the text of a config.json; `file` is named in errors, `name` in tables.
    ///
    /// # Errors
    /// Text that is not JSON (with line and column), a `model_type` that is not supported (with those that are), a missing
    /// field (with every name it may have) and values that cannot be.
    pub fn read(file: &Path, name: &str, text: &str) -> Result<Model> {
        let document: Value = serde_json::from_str(text).map_err(|cause| {
            Error::usage(format!("{}:{}:{}: not JSON: {cause}", file.display(), cause.line(), cause.column()))
        })?;
        let Value::Object(root) = &document else {
            return Err(Error::config(file, "the file", "found no JSON object; accepted: a Hugging Face config.json"));
        };
        // Multimodal models keep the language model's fields one level down.
        let object = root.get("text_config").and_then(Value::as_object).unwrap_or(root);
        let fields = Fields { file, object };
        let family = fields.family(root)?;
        let model = fields.model(name, family)?;
        fields.check(&model)?;
        Ok(model)
    }
}

struct Fields<'a> {
    file: &'a Path,
    object: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn family(&self, root: &Map<String, Value>) -> Result<Family> {
        let supported = Family::ALL.map(Family::model_type).join(", ");
        let found = self.object.get("model_type").or_else(|| root.get("model_type")).and_then(Value::as_str);
        let Some(found) = found else {
            return Err(self.wrong("model_type", format!("is missing; supported: {supported}")));
        };
        // The nested form of a multimodal file is called `llama_text` or the like.
        let plain = found.strip_suffix("_text").unwrap_or(found);
        Family::ALL
            .into_iter()
            .find(|family| family.model_type() == plain)
            .ok_or_else(|| self.wrong("model_type", format!("found `{found}`; supported: {supported}")))
    }

    fn model(&self, name: &str, family: Family) -> Result<Model> {
        let hidden = self.need(&["hidden_size", "n_embd", "d_model"])?;
        let heads = self.need(&["num_attention_heads", "n_head"])?;
        let latent_attention = self.latent_attention(family)?;
        let feed_forward_names = &["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"];
        // GPT-2's own rule: an inner width that is null or absent is four times the hidden width.
        let feed_forward = match self.optional(feed_forward_names)? {
            Some(width) => width,
            None if family == Family::Gpt2 => 4 * hidden,
            None => self.need(feed_forward_names)?,
        };
        let head_dimension = match (&latent_attention, self.optional(&["head_dim"])?) {
            (Some(latent), _) => latent.plain_dimension + latent.rotary_dimension,
            (None, Some(dimension)) => dimension,
            (None, None) if hidden.is_multiple_of(heads) => hidden / heads,
            (None, None) => {
                let problem = format!("is missing, and hidden size {hidden} is no multiple of {heads} heads");
                return Err(self.wrong("head_dim", problem));
            }
        };
        let layers = self.need(&["num_hidden_layers", "n_layer", "num_layers"])? as u32;
        let attention_bias = self.truth(&["attention_bias", "qkv_bias"])?;
        Ok(Model {
            name: name.to_owned(),
            family,
            layers,
            hidden,
            feed_forward,
            heads,
            kv_heads: self.kv_heads()?.unwrap_or(heads),
            head_dimension,
            vocabulary: self.need(&["vocab_size"])?,
            maximum_positions: self.need(&["max_position_embeddings", "n_positions", "seq_length"])?,
            tied_embeddings: self.truth(&["tie_word_embeddings"])?.unwrap_or(family.ties_embeddings_by_default()),
            query_key_value_bias: attention_bias.unwrap_or(matches!(family, Family::Gpt2 | Family::Qwen2)),
            attention_output_bias: match family {
                Family::Gpt2 => true,
                Family::Qwen2 => false,
                _ => attention_bias.unwrap_or(false),
            },
            feed_forward_bias: self.truth(&["mlp_bias"])?.unwrap_or(family == Family::Gpt2),
            element: self.element()?,
            mixture: if family.has_experts() { Some(self.mixture(feed_forward)?) } else { None },
            latent_attention,
            overrides: Vec::new(),
        })
    }

    fn mixture(&self, feed_forward: u64) -> Result<Mixture> {
        let groups = self.optional(&["n_group"])?;
        let groups_kept = self.optional(&["topk_group"])?;
        let dense_layers = match self.object.get("mlp_only_layers") {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| self.wrong("mlp_only_layers", format!("found {value}; accepted: a list of layers")))?,
        };
        Ok(Mixture {
            experts: self.need(&["num_local_experts", "num_experts", "n_routed_experts"])?,
            experts_per_token: self.need(&["num_experts_per_tok"])?,
            expert_feed_forward: self.optional(&["moe_intermediate_size"])?.unwrap_or(feed_forward),
            shared_experts: self.optional_from_zero(&["n_shared_experts"])?.unwrap_or(0),
            first_dense_layers: self.optional_from_zero(&["first_k_dense_replace"])?.unwrap_or(0) as u32,
            layer_step: self.optional(&["moe_layer_freq", "decoder_sparse_step"])?.unwrap_or(1) as u32,
            dense_layers,
            router_groups: groups.zip(groups_kept),
        })
    }

    fn latent_attention(&self, family: Family) -> Result<Option<LatentAttention>> {
        if family != Family::DeepseekV3 {
            return Ok(None);
        }
        Ok(Some(LatentAttention {
            query_rank: self.optional(&["q_lora_rank"])?,
            kv_rank: self.need(&["kv_lora_rank"])?,
            plain_dimension: self.need(&["qk_nope_head_dim"])?,
            rotary_dimension: self.need(&["qk_rope_head_dim"])?,
            value_dimension: self.need(&["v_head_dim"])?,
        }))
    }

    fn kv_heads(&self) -> Result<Option<u64>> {
        if self.truth(&["multi_query"])? == Some(true) {
            return Ok(Some(self.optional(&["multi_query_group_num"])?.unwrap_or(1)));
        }
        self.optional(&["num_key_value_heads", "num_kv_heads"])
    }

    fn element(&self) -> Result<Option<ElementType>> {
        let Some((key, value)) = self.first(&["torch_dtype", "dtype"]) else { return Ok(None) };
        let text = value.as_str().unwrap_or_default();
        text.trim_start_matches("torch.").parse().map(Some).map_err(|problem| self.wrong(key, problem))
    }

    fn check(&self, model: &Model) -> Result<()> {
        if !model.heads.is_multiple_of(model.kv_heads) {
            let problem = format!("found {}, which does not divide the {} query heads", model.kv_heads, model.heads);
            return Err(self.wrong("num_key_value_heads", problem));
        }
        let roughly = rough_parameters(model);
        if roughly > MOST_PARAMETERS {
            return Err(
                self.wrong("the sizes", format!("come to about {roughly:.0e} parameters; accepted: up to 1e15"))
            );
        }
        if model.layers > MOST_LAYERS {
            return Err(
                self.wrong("num_hidden_layers", format!("found {}; accepted: up to {MOST_LAYERS}", model.layers))
            );
        }
        if let Some(mixture) = &model.mixture
            && mixture.experts_per_token > mixture.experts
        {
            let problem = format!("found {}; there are {} experts", mixture.experts_per_token, mixture.experts);
            return Err(self.wrong("num_experts_per_tok", problem));
        }
        Ok(())
    }

    /// The first of the alternative names that is there and not null.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        names.iter().find_map(|name| Some((*name, self.object.get(*name).filter(|value| !value.is_null())?)))
    }

    fn optional(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 1)
    }

    fn optional_from_zero(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 0)
    }

    fn number(&self, names: &[&'static str], least: u64) -> Result<Option<u64>> {
        let Some((name, value)) = self.first(names) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if (least..LARGEST).contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(name, format!("found {value}; accepted: a whole number from {least}"))),
        }
    }

    fn need(&self, names: &[&'static str]) -> Result<u64> {
        self.optional(names)?.ok_or_else(|| match names {
            [only] => self.wrong(only, "is missing"),
            [first, others @ ..] => self.wrong(first, format!("is missing; also accepted: {}", others.join(", "))),
            [] => self.wrong("the file", "a field without a name is missing"),
        })
    }

    fn truth(&self, names: &[&'static str]) -> Result<Option<bool>> {
        let Some((name, value)) = self.first(names) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, format!("found {value}; accepted: true or false")))
    }

    fn wrong(&self, key: &str, problem: impl std::fmt::Display) -> Error {
        Error::config(self.file, key, problem)
    }
}

/// An upper bound of the number of parameters that cannot overflow.
fn rough_parameters(model: &Model) -> f64 {
    let (hidden, heads) = (model.hidden as f64, model.heads as f64);
    let ranks = model.latent_attention.as_ref().map_or(0, |latent| {
        latent.query_rank.unwrap_or(0) + latent.kv_rank + latent.plain_dimension + latent.value_dimension
    });
    let attention = 4.0 * heads * (model.head_dimension + ranks) as f64 * (hidden + ranks as f64);
    let experts = model.mixture.as_ref().map_or(0.0, |mixture| {
        (mixture.experts + mixture.shared_experts) as f64 * 3.0 * hidden * (mixture.expert_feed_forward + 2) as f64
    });
    let layer = attention + experts + 3.0 * hidden * (model.feed_forward + 4) as f64;
    f64::from(model.layers) * layer + 2.0 * hidden * (model.vocabulary + model.maximum_positions) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn llama() -> Value {
        json!({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
            "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu",
            "max_position_embeddings": 8192, "torch_dtype": "bfloat16"})
    }

    fn read(value: &Value) -> Result<Model> {
        Model::read(Path::new("config.json"), "test", &value.to_string())
    }

    #[test]
    fn a_bad_file_names_file_field_and_what_would_be_accepted() {
        for (field, value, expected) in [
            ("hidden_size", Value::Null, "config.json: hidden_size: is missing; also accepted: n_embd, d_model"),
            ("vocab_size", Value::Null, "config.json: vocab_size: is missing"),
            ("vocab_size", json!(-3), "config.json: vocab_size: found -3; accepted: a whole number from 1"),
            ("vocab_size", json!("many"), "config.json: vocab_size: found \"many\"; accepted"),
            ("intermediate_size", Value::Null, "config.json: intermediate_size: is missing; also accepted: n_inner"),
            ("num_key_value_heads", json!(7), "found 7, which does not divide the 32 query heads"),
            ("num_attention_heads", json!(24), "head_dim: is missing, and hidden size 4096 is no multiple of 24"),
            ("model_type", json!("mamba"), "config.json: model_type: found `mamba`; supported: llama, mistral"),
            ("model_type", Value::Null, "config.json: model_type: is missing; supported: llama"),
            ("torch_dtype", json!("float17"), "config.json: torch_dtype: found element type `float17`; accepted"),
            ("num_hidden_layers", json!(4_000_000_000u64), "the sizes: come to about 1e18 parameters; accepted"),
            ("tie_word_embeddings", json!(1), "tie_word_embeddings: found 1; accepted: true or false"),
        ] {
            let mut document = llama();
            document[field] = value;
            let message = read(&document).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_refused_with_line_and_column() {
        let message = Model::read(Path::new("config.json"), "test", "{\n  \"a\": ,\n}").unwrap_err().to_string();
        assert!(message.starts_with("config.json:2:8: not JSON: "), "{message}");
        assert!(
            Model::read(Path::new("config.json"), "test", "[1]").unwrap_err().to_string().contains("no JSON object")
        );
    }

    #[test]
    fn absent_fields_mean_what_the_family_says() {
        let mut document = llama();
        document.as_object_mut().unwrap().remove("num_key_value_heads");
        let model = read(&document).unwrap();
        assert_eq!((model.kv_heads, model.head_dimension, model.tied_embeddings), (32, 128, false));
        let gpt = json!({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "vocab_size": 50257, "n_inner": null});
        let model = read(&gpt).unwrap();
        assert_eq!((model.feed_forward, model.tied_embeddings, model.query_key_value_bias), (3072, true, true));
    }

    #[test]
    fn a_language_model_nested_in_a_multimodal_file_is_found() {
        let mut text = llama();
        text["model_type"] = json!("llama_text");
        let model = read(&json!({"model_type": "llava", "text_config": text})).unwrap();
        assert_eq!((model.family, model.hidden), (Family::Llama, 4096));
    }
}
