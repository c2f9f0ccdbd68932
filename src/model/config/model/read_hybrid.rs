//! Reads which layers of a hybrid model have linear attention, and its shape; the fields of every model are read in `read`.

use super::check::MOST_LAYERS;
use super::family::Family;
use super::fields::Fields;
use super::layer::{Blocks, Mixer};
use super::linear_attention::{LinearAttention, LinearRule};
use commgauge_base::error::{Error, Result};
use serde_json::Value;

const LISTS: &[&str] = &["layers_block_type", "layer_types"];
const PATTERN: &str = "hybrid_override_pattern";
/// Of transformers' class of qwen3_next.
const FULL_ATTENTION_INTERVAL: u64 = 4;
/// Tokens that kernels of the gated delta rule compute at once: transformers, `torch_chunk_gated_delta_rule`; vLLM's `FLA_CHUNK_SIZE`.
const DELTA_RULE_CHUNK: u64 = 64;

/// What a list of layers says of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Mixer(Mixer),
    FeedForward,
    /// Layers that are experts and nothing else.
    Experts,
}

/// The layers of a hybrid model, as a field lists them.
pub(super) struct ListedLayers {
    field: &'static str,
    layers: Vec<Listed>,
}

/// How the layers of a model are made, of mixers and feed-forwards.
pub(super) struct LayerPlan {
    pub blocks: Blocks,
    pub linear_attention: Option<LinearAttention>,
}

impl Fields<'_> {
    /// The layers that a field of a hybrid family lists, if it has one.
    pub(super) fn listed_layers_of(&self, family: Family) -> Result<Option<ListedLayers>> {
        if family.facts().linear_attention.is_none() {
            return Ok(None);
        }
        let is_single = family.facts().single_blocks;
        // The list has precedence where both are there, as in transformers' class.
        if let Some((field, value)) = self.first(LISTS) {
            let accepted = match is_single {
                true => "accepted: a list of \"linear_attention\", \"full_attention\" and \"mlp\"",
                false => "accepted: a list of \"linear_attention\" and \"full_attention\"",
            };
            let items = value.as_array().ok_or_else(|| self.wrong(field, format!("found {value}; {accepted}")))?;
            return self.listed(field, items, accepted, |item| named(item, is_single)).map(Some);
        }
        let Some((field, value)) = self.first(&[PATTERN]).filter(|_| is_single) else { return Ok(None) };
        let accepted = "accepted: a text of M (Mamba-2), * (attention) and - (feed-forward)";
        let text = value.as_str().ok_or_else(|| self.wrong(field, format!("found {value}; {accepted}")))?;
        let items: Vec<Value> = text.chars().map(|letter| letter.to_string().into()).collect();
        self.listed(field, &items, accepted, lettered).map(Some)
    }

    fn listed(
        &self,
        field: &'static str,
        items: &[Value],
        accepted: &str,
        meaning: impl Fn(&Value) -> Option<Listed>,
    ) -> Result<ListedLayers> {
        if items.is_empty() || items.len() > MOST_LAYERS as usize {
            return Err(self.wrong(field, format!("names {} layers; accepted: 1 to {MOST_LAYERS}", items.len())));
        }
        let layer = |(layer, item): (usize, &Value)| match meaning(item) {
            Some(Listed::Experts) => {
                let why = "layers that are experts alone have calls that no list here has";
                Err(self.wrong(field, format!("found {item} for layer {layer}: {why}; {accepted}")))
            }
            Some(listed) => Ok(listed),
            None => Err(self.wrong(field, format!("found {item} for layer {layer}; {accepted}"))),
        };
        Ok(ListedLayers { field, layers: items.iter().enumerate().map(layer).collect::<Result<_>>()? })
    }

    /// As many layers as the list has, where nothing else says it.
    pub(super) fn layers_of_list(&self, listed: Option<&ListedLayers>) -> Option<u32> {
        let ListedLayers { field, layers } = listed?;
        Some(self.infer("num_hidden_layers", layers.len() as u32, format!("as many as {field} lists")))
    }

    /// How the layers are made. Families without linear attention have attention and a feed-forward in each.
    pub(super) fn layer_plan(&self, family: Family, layers: u32, listed: Option<ListedLayers>) -> Result<LayerPlan> {
        let Some(rule) = family.facts().linear_attention else {
            return Ok(LayerPlan { blocks: Blocks::Pairs, linear_attention: None });
        };
        let kinds = match listed {
            Some(ListedLayers { field, layers: kinds }) if kinds.len() as u64 != u64::from(layers) => {
                let problem = format!("names {} layers, num_hidden_layers is {layers}; they must agree", kinds.len());
                return Err(self.wrong(field, problem));
            }
            Some(listed) => listed.layers,
            None if family.facts().single_blocks => return Err(self.missing(&[PATTERN, "layers_block_type"])),
            None => self.by_interval(family, layers)?,
        };
        let of = |wanted: Listed| -> Vec<u32> {
            (0..layers).zip(&kinds).filter(|(_, kind)| **kind == wanted).map(|(layer, _)| layer).collect()
        };
        let blocks = match family.facts().single_blocks {
            true => Blocks::Single { feed_forward_layers: of(Listed::FeedForward) },
            false => Blocks::Pairs,
        };
        let linear = of(Listed::Mixer(Mixer::Linear));
        let linear_attention = if linear.is_empty() { None } else { Some(self.linear_attention(rule, linear)?) };
        Ok(LayerPlan { blocks, linear_attention })
    }

    /// Every so many layers attend to everything, the last of them counted from 1.
    fn by_interval(&self, family: Family, layers: u32) -> Result<Vec<Listed>> {
        let interval = match self.optional(&["full_attention_interval"])? {
            Some(interval) => interval,
            None => {
                let why = format!("absent, as layer_types is: the default of {}", family.model_type());
                self.infer("full_attention_interval", FULL_ATTENTION_INTERVAL, why)
            }
        };
        let mixer = |layer: u64| match layer.is_multiple_of(interval) {
            true => Listed::Mixer(Mixer::Attention),
            false => Listed::Mixer(Mixer::Linear),
        };
        Ok((1..=u64::from(layers)).map(mixer).collect())
    }

    fn linear_attention(&self, rule: LinearRule, layers: Vec<u32>) -> Result<LinearAttention> {
        Ok(match rule {
            LinearRule::GatedDelta => LinearAttention {
                rule,
                key_heads: self.need(&["linear_num_key_heads"])?,
                key_dimension: self.need(&["linear_key_head_dim"])?,
                value_heads: self.need(&["linear_num_value_heads"])?,
                value_dimension: self.need(&["linear_value_head_dim"])?,
                convolution_tokens: self.need(&["linear_conv_kernel_dim"])?,
                convolution_bias: false,
                projection_bias: false,
                chunk_tokens: DELTA_RULE_CHUNK,
                layers,
            },
            LinearRule::StateSpace => LinearAttention {
                rule,
                key_heads: self.need(&["n_groups", "mamba_n_groups"])?,
                key_dimension: self.need(&["ssm_state_size"])?,
                value_heads: self.need(&["mamba_num_heads"])?,
                value_dimension: self.need(&["mamba_head_dim"])?,
                convolution_tokens: self.need(&["conv_kernel", "mamba_d_conv"])?,
                convolution_bias: self.truth_or("use_conv_bias", &["use_conv_bias", "mamba_conv_bias"], true)?,
                projection_bias: self.truth_or("use_bias", &["use_bias"], false)?,
                chunk_tokens: self.need(&["chunk_size", "mamba_chunk_size"])?,
                layers,
            },
        })
    }

    /// A boolean with the default of transformers' class.
    fn truth_or(&self, field: &str, names: &[&'static str], default: bool) -> Result<bool> {
        let stated = self.truth(names)?;
        Ok(stated.unwrap_or_else(|| self.infer(field, default, "the default of nemotron_h")))
    }

    /// Layers behind the last one, of a model whose layers are all alike there.
    pub(super) fn prediction_layers(&self, family: Family) -> Result<u32> {
        let name = "num_nextn_predict_layers";
        match self.optional_from_zero(&[name])?.unwrap_or(0) {
            layers if layers > 0 && family.facts().single_blocks => Err(self.single_prediction(name, layers)),
            layers => Ok(layers as u32),
        }
    }

    fn single_prediction(&self, name: &str, layers: u64) -> Error {
        let problem = "the layers of nemotron_h that predict further tokens are made otherwise than its others, and no list here has them";
        self.wrong(name, format!("found {layers}: {problem}; accepted: 0"))
    }
}

/// The words of transformers' classes, and those of files from before there was one word for all.
fn named(item: &Value, is_single: bool) -> Option<Listed> {
    match item.as_str()? {
        "linear_attention" => Some(Listed::Mixer(Mixer::Linear)),
        "mamba" if is_single => Some(Listed::Mixer(Mixer::Linear)),
        "full_attention" => Some(Listed::Mixer(Mixer::Attention)),
        "attention" if is_single => Some(Listed::Mixer(Mixer::Attention)),
        "mlp" if is_single => Some(Listed::FeedForward),
        "moe" if is_single => Some(Listed::Experts),
        _ => None,
    }
}

fn lettered(item: &Value) -> Option<Listed> {
    match item.as_str()? {
        "M" => Some(Listed::Mixer(Mixer::Linear)),
        "*" => Some(Listed::Mixer(Mixer::Attention)),
        "-" => Some(Listed::FeedForward),
        "E" => Some(Listed::Experts),
        _ => None,
    }
}
