//! Reads a Hugging Face config.json unchanged: the names of every field, and the meaning of an absent one.
//!
//! Experts are in `read_experts`, windows of attention in `read_windows`, hybrid layers in `read_hybrid`. `fields` looks up fields, `family` has the properties of a family that no field
//! states, `check` the invalid combinations of values.

use super::check::{MOST_LAYERS, check};
use super::family::Family;
use super::fields::Fields;
use super::read_hybrid::ListedLayers;
use super::{Attention, Biases, Embedding, Indexer, LatentAttention, Model, ModelSource, QueryKeyNorm, unique_json};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use serde_json::Value;
use std::path::Path;

const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers"];
const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model"];
const FEED_FORWARD: &[&str] = &["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"];
const HEADS: &[&str] = &["num_attention_heads", "n_head"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads"];
const POSITIONS: &[&str] = &["max_position_embeddings", "n_positions", "seq_length"];

impl Model {
    /// Reads the text of a config.json; `file` is named in errors, `name` in tables.
    ///
    /// # Errors
    /// Text that is not JSON (with line and column), a key that stands twice (with its line), a `model_type` that is not supported (with those that are), a missing
    /// field (with every name it may have) and values that cannot be.
    pub fn read(file: &Path, name: &str, text: &str) -> Result<Model> {
        let document =
            unique_json::parse(text).map_err(|problem| Error::usage(format!("{}:{problem}", file.shown())))?;
        let Value::Object(root) = &document else {
            return Err(Error::config(file, "the file", "found no JSON object; accepted: a Hugging Face config.json"));
        };
        let fields = Fields::new(file, root);
        let family = fields.family()?;
        let mut model = fields.model(name, family)?;
        check(&model).map_err(|(field, problem)| fields.wrong(field, problem))?;
        fields.note_in(&mut model);
        Ok(model)
    }
}

impl Fields<'_> {
    fn family(&self) -> Result<Family> {
        let supported = Family::ALL.map(Family::model_type).join(", ");
        let Some(found) = self.model_type() else {
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
        let hidden = self.need(HIDDEN)?;
        let heads = self.need(HEADS)?;
        let listed = self.listed_layers_of(family)?;
        let layers = self.layers(listed.as_ref())?;
        let plan = self.layer_plan(family, layers, listed)?;
        let latent = self.latent_attention(family)?;
        let feed_forward = self.feed_forward(family, hidden)?;
        let kv_heads = self.kv_heads(heads)?;
        let head_dimension = self.head_dimension(family, latent.as_ref(), hidden, heads)?;
        // In this order, as what is inferred is listed in it.
        let (query_key_value, attention_output) = self.attention_bias(family)?;
        let embedding = Embedding {
            vocabulary: self.need(&["vocab_size"])?,
            maximum_positions: self.need(POSITIONS)?,
            tied: self.tied_embeddings(family)?,
        };
        Ok(Model {
            name: name.to_owned(),
            source: ModelSource { file: self.file().to_owned(), overrides: Vec::new(), inferred: Vec::new() },
            family,
            layers,
            hidden,
            feed_forward,
            attention: Attention {
                heads,
                kv_heads,
                head_dimension,
                query_key_norm: self.query_key_norm(family)?,
                gate: family.facts().attention_gate,
                sliding_window: self.sliding_window(family, layers)?,
                linear: plan.linear_attention,
                latent,
                indexer: self.indexer(family)?,
            },
            embedding,
            biases: Biases {
                query_key_value,
                attention_output,
                feed_forward: self.feed_forward_bias(family)?,
                output_projection: self.truth(&["lm_head_bias"])?.unwrap_or(false),
            },
            parallel_residual: self.parallel_residual(family)?,
            activation: self.activation()?,
            element: self.element()?,
            blocks: plan.blocks,
            mixture: match family.facts().experts {
                Some(experts) => Some(self.mixture(family, experts, layers)?),
                None => None,
            },
            prediction_layers: self.prediction_layers(family)?,
        })
    }

    fn layers(&self, listed: Option<&ListedLayers>) -> Result<u32> {
        let Some(layers) = self.optional(LAYERS)? else {
            return self.layers_of_list(listed).ok_or_else(|| self.missing(LAYERS));
        };
        if layers > u64::from(MOST_LAYERS) {
            let name = self.first(LAYERS).map_or(LAYERS[0], |(name, _)| name);
            return Err(self.wrong(name, format!("found {layers}; accepted: up to {MOST_LAYERS}")));
        }
        Ok(layers as u32)
    }

    fn feed_forward(&self, family: Family, hidden: u64) -> Result<u64> {
        // Llama 4 has one width for its dense layers and another for its experts.
        let named = if family == Family::Llama4 { &["intermediate_size_mlp"] } else { FEED_FORWARD };
        match self.optional(named)? {
            Some(width) => Ok(width),
            None if family.facts().feed_forward.widens_four_times => {
                let why = format!("4 x n_embd {hidden}, the rule of {}", family.model_type());
                Ok(self.infer("n_inner", 4 * hidden, why))
            }
            None => Err(self.missing(named)),
        }
    }

    fn kv_heads(&self, heads: u64) -> Result<u64> {
        if self.truth(&["multi_query", "multi_query_attention"])? == Some(true) {
            return match self.optional(&["multi_query_group_num", "num_kv_heads", "num_key_value_heads"])? {
                Some(groups) => Ok(groups),
                None => Ok(self.infer("multi_query_group_num", 1, "multi_query is true: one head of keys and values")),
            };
        }
        Ok(match self.optional(KV_HEADS)? {
            Some(heads) => heads,
            None => self.infer(KV_HEADS[0], heads, format!("= num_attention_heads {heads}")),
        })
    }

    fn head_dimension(&self, family: Family, latent: Option<&LatentAttention>, hidden: u64, heads: u64) -> Result<u64> {
        if let Some(latent) = latent {
            return Ok(latent.plain_dimension + latent.rotary_dimension);
        }
        match (self.optional(&["head_dim", "attention_head_dim"])?, family.facts().head_dimension) {
            (Some(dimension), _) => Ok(dimension),
            (None, Some(fixed)) => Ok(self.infer("head_dim", fixed, format!("the default of {}", family.model_type()))),
            (None, None) if hidden.is_multiple_of(heads) => {
                Ok(self.infer("head_dim", hidden / heads, format!("= hidden size {hidden} / {heads} heads")))
            }
            (None, None) => {
                let problem = format!("is missing, and hidden size {hidden} is no multiple of {heads} heads");
                Err(self.wrong("head_dim", problem))
            }
        }
    }

    fn tied_embeddings(&self, family: Family) -> Result<bool> {
        let name = "tie_word_embeddings";
        match self.first_anywhere(&[name]) {
            Some((_, value)) => self.truth_of(name, value),
            None => {
                let default = family.facts().ties_embeddings;
                Ok(self.infer(name, default, format!("the default of {}", family.model_type())))
            }
        }
    }

    /// Biases on queries, keys and values, and on the output.
    fn attention_bias(&self, family: Family) -> Result<(bool, bool)> {
        let taken = family.facts().attention_bias;
        // The class of nemotron_h has the field and no bias.
        let stated = self.truth(&["attention_bias", "qkv_bias"])?.filter(|_| family != Family::NemotronH);
        if let Some(stated) = stated {
            // GPT-2's output projection has its bias in any case: its files have no such field.
            let output = match self.truth(&["attention_out_bias"])? {
                Some(output) => output,
                None => family == Family::Gpt2 || (stated && taken.output_follows),
            };
            return Ok((stated, output));
        }
        let field = if family == Family::Qwen2Moe { "qkv_bias" } else { "attention_bias" };
        let why = taken.why.map_or_else(|| format!("the default of {}", family.model_type()), str::to_owned);
        Ok((self.infer(field, taken.query_key_value, why), taken.output))
    }

    fn feed_forward_bias(&self, family: Family) -> Result<bool> {
        let stated = self.truth(&["mlp_bias"])?;
        Ok(match stated {
            Some(stated) => stated,
            None if family == Family::Llama => self.infer("mlp_bias", false, "the default of llama"),
            None => family.facts().feed_forward.bias,
        })
    }

    fn parallel_residual(&self, family: Family) -> Result<bool> {
        let name = "use_parallel_residual";
        Ok(match self.truth(&[name])? {
            Some(stated) => stated,
            None if family == Family::GptNeox => self.infer(name, true, "the default of gpt_neox"),
            None => family.facts().parallel_residual,
        })
    }

    fn query_key_norm(&self, family: Family) -> Result<QueryKeyNorm> {
        Ok(match (family, self.truth(&["use_qk_norm"])?) {
            // Its norm of queries and keys has no parameters.
            (Family::Llama4, _) => QueryKeyNorm::None,
            (Family::Glm4Moe, Some(true)) => QueryKeyNorm::EachHead,
            _ => family.facts().query_key_norm,
        })
    }

    fn activation(&self) -> Result<Option<String>> {
        let Some((name, value)) =
            self.first(&["hidden_act", "activation_function", "hidden_activation", "mlp_hidden_act"])
        else {
            return Ok(None);
        };
        match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.wrong(name, format!("found {value}; accepted: a text such as \"silu\""))),
        }
    }

    fn element(&self) -> Result<Option<ElementType>> {
        let Some((name, value)) = self.first_anywhere(&["torch_dtype", "dtype"]) else {
            self.infer("torch_dtype", Value::Null, "not said; nothing is counted with it");
            return Ok(None);
        };
        let Some(text) = value.as_str() else {
            return Err(self.wrong(name, format!("found {value}; accepted: a text such as \"bfloat16\"")));
        };
        text.trim_start_matches("torch.").parse().map(Some).map_err(|problem| self.wrong(name, problem))
    }

    fn latent_attention(&self, family: Family) -> Result<Option<LatentAttention>> {
        if !family.has_latent_attention() {
            return Ok(None);
        }
        let query_rank = match self.optional(&["q_lora_rank"])? {
            Some(rank) => Some(rank),
            None if self.is_absent("q_lora_rank") => {
                Some(self.infer("q_lora_rank", 1536, format!("absent: the default of {}", family.model_type())))
            }
            None => {
                self.infer("q_lora_rank", Value::Null, "null: queries are not compressed");
                None
            }
        };
        Ok(Some(LatentAttention {
            query_rank,
            kv_rank: self.need(&["kv_lora_rank"])?,
            plain_dimension: self.need(&["qk_nope_head_dim"])?,
            rotary_dimension: self.need(&["qk_rope_head_dim"])?,
            value_dimension: self.need(&["v_head_dim"])?,
        }))
    }

    fn indexer(&self, family: Family) -> Result<Option<Indexer>> {
        if family != Family::DeepseekV32 {
            return Ok(None);
        }
        Ok(Some(Indexer {
            heads: self.need(&["index_n_heads"])?,
            head_dimension: self.need(&["index_head_dim"])?,
            tokens: self.need(&["index_topk"])?,
        }))
    }
}
