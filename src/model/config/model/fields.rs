//! The fields of one config.json: looked up by all their names, read by type, noted if absent. `find` has the meaning
//! of each field.

use super::facts::Family;
use super::layers::LinearRule;
use super::weights::{Counted, MOST_PARAMETERS};
use super::{Blocks, FeedForward, Inferred, LayerParts, LinearAttention, Mixer, Model, SlidingWindow};
use commgauge_base::error::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::path::Path;

/// No number in a config.json may be this large; no published one is close to it.
const LARGEST: u64 = 1 << 32;

/// The JSON object with the language model's fields.
pub(super) struct Fields<'a> {
    file: &'a Path,
    object: &'a Map<String, Value>,
    root: &'a Map<String, Value>,
    /// What the fields do not state.
    pub family: &'a Family,
    /// Every field that was requested and is absent, with the default that was used.
    inferred: RefCell<Vec<Inferred>>,
}

impl<'a> Fields<'a> {
    /// The fields of a file of this family.
    pub fn new(file: &'a Path, root: &'a Map<String, Value>, family: &'a Family) -> Self {
        Fields { file, object: text_part(root), root, family, inferred: RefCell::new(Vec::new()) }
    }

    /// The file that the fields are of.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// Moves what was inferred into the model.
    pub fn note_in(self, model: &mut Model) {
        model.source.inferred = self.inferred.into_inner();
    }

    /// The first of the alternative names that is there and not null, or the default of the family's class if none is there.
    pub fn first(&self, names: &[&'static str]) -> Option<(&'a str, &'a Value)> {
        self.stated(names).or_else(|| {
            if self.own_names(names).any(|name| self.object.contains_key(name)) {
                return None;
            }
            let (name, value) = names.iter().find_map(|name| self.family.defaults.get_key_value(*name))?;
            self.infer(name, value.clone(), format!("the default of {}", self.family.model_type));
            Some((name, value))
        })
    }

    /// The first of the alternative names that the file has and that is not null.
    fn stated(&self, names: &[&'static str]) -> Option<(&'a str, &'a Value)> {
        self.own_names(names).find_map(|name| Some((name, self.object.get(name).filter(|value| !value.is_null())?)))
    }

    /// The names under which a file of the family may have a field, the family's own first.
    pub fn own_names(&self, names: &[&'static str]) -> impl Iterator<Item = &'a str> {
        let own: Vec<&str> = names.iter().filter_map(|name| self.family.names.get(*name).map(String::as_str)).collect();
        own.into_iter().chain(names.to_vec())
    }

    /// A field by the name that the family or most others have for it, or its default; for formulas.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        let own = self.family.names.get(name).and_then(|own| self.object.get(own));
        own.or_else(|| self.object.get(name)).or_else(|| self.family.defaults.get(name))
    }

    /// A field that a multimodal file may have outside of `text_config`, which wins.
    pub fn outermost(&self, names: &[&'static str]) -> Option<(&'a str, &'a Value)> {
        let outer = names.iter().find_map(|name| Some((*name, self.root.get(*name).filter(|value| !value.is_null())?)));
        outer.or_else(|| self.first(names))
    }

    /// A whole number from 1, where the file has it.
    pub fn optional(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 1)
    }

    /// A whole number from 0, where the file has it.
    pub fn optional_from_zero(&self, names: &[&'static str]) -> Result<Option<u64>> {
        self.number(names, 0)
    }

    /// A whole number from 1 that must be there.
    pub fn need(&self, names: &[&'static str]) -> Result<u64> {
        self.optional(names)?.ok_or_else(|| self.missing(names))
    }

    /// The error of a field that is not there, with every name that it may have.
    pub fn missing(&self, names: &[&'static str]) -> Error {
        let absent = match names.iter().any(|name| self.object.contains_key(*name)) {
            true => "is null",
            false if self.object.contains_key("vision_config") => {
                "is missing, and so is text_config, which files with vision_config have"
            }
            false => "is missing",
        };
        match names {
            [only] => self.wrong(only, absent),
            [first, others @ ..] => self.wrong(first, format!("{absent}; also accepted: {}", others.join(", "))),
            [] => self.wrong("the file", "a field without a name is missing"),
        }
    }

    /// A boolean, if the file has the field.
    pub fn truth(&self, names: &[&'static str]) -> Result<Option<bool>> {
        self.first(names).map(|(name, value)| self.truth_of(name, value)).transpose()
    }

    /// The truth value of a field that was found.
    pub fn truth_of(&self, name: &str, value: &Value) -> Result<bool> {
        value.as_bool().ok_or_else(|| self.wrong(name, format!("found {value}; accepted: true or false")))
    }

    /// Notes that a field is absent, and returns the default.
    pub fn infer<T: Clone + Into<Value>>(&self, field: &str, value: T, why: impl Into<String>) -> T {
        let noted = Inferred { field: field.to_owned(), value: value.clone().into(), why: why.into() };
        let mut inferred = self.inferred.borrow_mut();
        if !inferred.contains(&noted) {
            inferred.push(noted);
        }
        value
    }

    /// A usage error that names file and field.
    pub fn wrong(&self, key: &str, problem: impl std::fmt::Display) -> Error {
        Error::config(self.file, key, problem)
    }

    fn number(&self, names: &[&'static str], least: u64) -> Result<Option<u64>> {
        let Some((name, value)) = self.first(names) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if (least..LARGEST).contains(&number) => Ok(Some(number)),
            Some(number) if number >= LARGEST => {
                Err(self.wrong(name, format!("found {number}; accepted: whole numbers below 2^32 = {LARGEST}")))
            }
            _ => Err(self.wrong(name, format!("found {value}; accepted: a whole number from {least}"))),
        }
    }
}

/// The language model's fields, which multimodal files nest one level down.
pub(super) fn text_part(root: &Map<String, Value>) -> &Map<String, Value> {
    let nested = ["text_config", "llm_config", "language_config"].iter().find_map(|name| root.get(*name)?.as_object());
    nested.unwrap_or(root)
}

// Which layers attend to a window of the nearest tokens only.

/// Llama 4's chunks count as windows: a token sees at most this many.
const WINDOW: &[&str] = &["sliding_window", "attention_chunk_size"];

impl Fields<'_> {
    pub(super) fn sliding_window(&self, layers: u32) -> Result<Option<SlidingWindow>> {
        // The `layer_types` of hybrid families, and of those that formulas describe, say something else.
        if self.family.linear_attention.is_some() || self.family.weights.is_some() {
            return Ok(None);
        }
        // Qwen files contain a width even if it is not in use.
        let in_use = ["use_sliding_window"];
        if self.stated(&in_use).is_some_and(|(_, value)| value == false) {
            return Ok(None);
        }
        let Some(tokens) = self.optional(WINDOW)? else { return Ok(None) };
        if self.truth(&in_use)? == Some(false) {
            return Ok(None);
        }
        let windowed: Vec<u32> = match (self.first(&["layer_types"]), self.full_attention_step()?) {
            (Some((name, value)), _) => self.listed_windows(name, value, layers)?,
            (None, Some(step)) => {
                let why =
                    format!("one layer of {step} attends to everything: the default of {}", self.family.model_type);
                self.infer("layer_types", Value::Null, why);
                (0..layers).filter(|layer| !(layer + 1).is_multiple_of(step)).collect()
            }
            // Qwen's own rule: the first `max_window_layers` attend to everything.
            (None, None) => (self.optional_from_zero(&["max_window_layers"])?.unwrap_or(0) as u32..layers).collect(),
        };
        Ok(Some(SlidingWindow { tokens, layers: windowed }).filter(|window| !window.layers.is_empty()))
    }

    fn full_attention_step(&self) -> Result<Option<u32>> {
        let Some(default) = self.family.full_attention_step else { return Ok(None) };
        let stated = self.optional(&["sliding_window_pattern", "no_rope_layer_interval"])?;
        Ok(Some(stated.map_or(default, |step| step as u32)))
    }

    fn listed_windows(&self, name: &str, value: &Value, layers: u32) -> Result<Vec<u32>> {
        let accepted = "accepted: a list of \"sliding_attention\", \"chunked_attention\" and \"full_attention\"";
        let listed = value.as_array().ok_or_else(|| self.wrong(name, format!("found {value}; {accepted}")))?;
        if listed.len() as u64 != u64::from(layers) {
            let problem = format!("names {} layers, num_hidden_layers is {layers}; they must agree", listed.len());
            return Err(self.wrong(name, problem));
        }
        let mut windowed = Vec::new();
        for (layer, kind) in (0..layers).zip(listed) {
            match kind.as_str() {
                Some("sliding_attention" | "chunked_attention") => windowed.push(layer),
                Some("full_attention") => {}
                _ => return Err(self.wrong(name, format!("found {kind} for layer {layer}; {accepted}"))),
            }
        }
        Ok(windowed)
    }
}

// Checks that need several fields of a model: uneven divisions, and counts that would not fit 64 bits.

/// Most layers of a model; checked while reading, before anything is listed by layer.
pub(super) const MOST_LAYERS: u32 = 100_000;

/// No state of linear attention in a layer may have more numbers than this.
const MOST_STATE: f64 = 1e15;

/// The first field that cannot be, and why.
pub(super) fn check(model: &Model) -> std::result::Result<(), (&'static str, String)> {
    let roughly = rough_parameters(model);
    if roughly > MOST_PARAMETERS {
        let problem = format!(
            "come to about {roughly:.0e} parameters; accepted: up to {MOST_PARAMETERS:.0e}, so that every count of \
             parameters and bytes fits 64 bits"
        );
        return Err(("the sizes", problem));
    }
    if !model.attention.heads.is_multiple_of(model.attention.kv_heads) {
        let problem = format!(
            "found {}, which does not divide the {} query heads",
            model.attention.kv_heads, model.attention.heads
        );
        return Err(("num_key_value_heads", problem));
    }
    if let Some(linear) = &model.attention.linear {
        linear_attention(linear)?;
    }
    let Some(mixture) = &model.mixture else { return Ok(()) };
    if mixture.experts_per_token > mixture.experts {
        let problem = format!("found {}; there are {} experts", mixture.experts_per_token, mixture.experts);
        return Err(("num_experts_per_tok", problem));
    }
    match mixture.router_groups {
        Some((groups, _)) if !mixture.experts.is_multiple_of(groups) => {
            Err(("n_group", format!("found {groups}, which does not divide the {} experts", mixture.experts)))
        }
        Some((groups, chosen)) if chosen > groups => {
            Err(("topk_group", format!("found {chosen}; there are {groups} groups of experts")))
        }
        _ => Ok(()),
    }
}

/// Heads of values share those of keys evenly, and a state fits as many bits as all else.
fn linear_attention(linear: &LinearAttention) -> std::result::Result<(), (&'static str, String)> {
    let (keys, values) = (linear.key_heads, linear.value_heads);
    if !values.is_multiple_of(keys) {
        let problem = format!("found {keys}, which does not divide the {values} heads of values");
        return Err((linear.rule.key_heads_field(), problem));
    }
    let numbers = values as f64 * linear.key_dimension as f64 * linear.value_dimension as f64;
    if numbers > MOST_STATE {
        let problem = format!("come to a state of about {numbers:.0e} numbers; accepted: up to {MOST_STATE:.0e}");
        return Err(("the sizes of linear attention", problem));
    }
    Ok(())
}

/// An upper bound of the number of parameters that cannot overflow.
fn rough_parameters(model: &Model) -> f64 {
    let (hidden, heads) = (model.hidden as f64, model.attention.heads as f64);
    let ranks = model.attention.latent.as_ref().map_or(0.0, |latent| {
        latent.query_rank.unwrap_or(0) as f64
            + latent.kv_rank as f64
            + latent.plain_dimension as f64
            + latent.rotary_dimension as f64
            + latent.value_dimension as f64
    });
    let attention = 5.0 * (heads * (model.attention.head_dimension as f64 + ranks) + ranks) * (hidden + ranks + 2.0);
    let experts = model.mixture.as_ref().map_or(0.0, |mixture| {
        let widths = mixture.experts as f64 * (mixture.expert_feed_forward as f64 + 4.0);
        3.0 * (hidden + 2.0) * (widths + mixture.shared_feed_forward as f64 + 4.0)
    });
    let linear = model.attention.linear.as_ref().map_or(0.0, |linear| {
        let values = linear.value_heads as f64 * (linear.value_dimension as f64 + 2.0);
        let widths = linear.key_heads as f64 * linear.key_dimension as f64 + values;
        3.0 * (widths + 1.0) * (hidden + linear.convolution_tokens as f64 + 2.0)
    });
    let layer = attention + linear + experts + 3.0 * (hidden + 2.0) * (model.feed_forward as f64 + 4.0);
    let layers = f64::from(model.layers) + f64::from(model.prediction_layers);
    let by_formulas =
        |counted: &Counted| counted.layers.iter().map(|[all, _]| *all as f64).sum::<f64>() + counted.outside as f64;
    model.counted.as_ref().map_or(layers * (layer + 2.0 * hidden * hidden), by_formulas)
        + 2.0
            * (hidden + 1.0)
            * (model.embedding.vocabulary as f64 + model.embedding.maximum_positions.unwrap_or(0) as f64)
}

// Which parts each layer of a model has. Layers of hybrid models differ in what mixes their tokens.

impl Model {
    /// The parts of a layer, counted from 0. Layers behind the last one, which predict further tokens, have attention and the
    /// feed-forward of the last one.
    pub fn parts_of(&self, layer: u32) -> LayerParts {
        let is_feed_forward = match &self.blocks {
            Blocks::Pairs => return LayerParts { mixer: Some(self.mixer_in(layer)), ..self.feed_forward_alone(layer) },
            Blocks::Single { feed_forward_layers } => feed_forward_layers.binary_search(&layer).is_ok(),
        };
        match is_feed_forward {
            true => self.feed_forward_alone(layer),
            false => LayerParts { mixer: Some(self.mixer_in(layer)), feed_forward: None },
        }
    }

    fn feed_forward_alone(&self, layer: u32) -> LayerParts {
        let last = self.layers.saturating_sub(1);
        let has_experts = self.mixture.as_ref().is_some_and(|mixture| mixture.is_in(layer.min(last)));
        let feed_forward = if has_experts { FeedForward::Experts } else { FeedForward::Dense };
        LayerParts { mixer: None, feed_forward: Some(feed_forward) }
    }

    fn mixer_in(&self, layer: u32) -> Mixer {
        let is_linear = |layers: &[u32]| layer < self.layers && layers.binary_search(&layer).is_ok();
        match &self.attention.linear {
            Some(linear) if is_linear(&linear.layers) => Mixer::Linear,
            _ => Mixer::Attention,
        }
    }

    /// Whether a layer, counted from 0, has experts. Layers behind the last one, which predict further tokens, are as that.
    pub fn has_experts_in(&self, layer: u32) -> bool {
        self.parts_of(layer).feed_forward == Some(FeedForward::Experts)
    }

    /// Whether a layer of the model has a feed-forward without experts.
    pub fn has_dense_layers(&self) -> bool {
        (0..self.layers).any(|layer| self.parts_of(layer).feed_forward == Some(FeedForward::Dense))
    }

    /// The linear attention that layers of the model in use have, if any has.
    pub fn linear_attention_in_use(&self) -> Option<&LinearAttention> {
        self.attention.linear.as_ref().filter(|linear| linear.layers.first().is_some_and(|first| *first < self.layers))
    }

    /// Mixers and feed-forwards in each layer: 2, or 1 where every layer is only one of them.
    pub fn blocks_per_layer(&self) -> u64 {
        match self.blocks {
            Blocks::Pairs => 2,
            Blocks::Single { .. } => 1,
        }
    }
}

// Reads which layers of a hybrid model have linear attention, and its shape; the fields of every model are read in `find`.

const LISTS: &[&str] = &["layers_block_type", "layer_types"];

const PATTERN: &str = "hybrid_override_pattern";

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
    field: String,
    layers: Vec<Listed>,
}

/// How the layers of a model are made, of mixers and feed-forwards.
pub(super) struct LayerPlan {
    pub blocks: Blocks,
    /// The layers that are experts and nothing else.
    pub expert_layers: Vec<u32>,
    pub linear_attention: Option<LinearAttention>,
}

impl Fields<'_> {
    /// The layers that a field of a hybrid family lists, if it has one.
    pub(super) fn listed_layers_of(&self) -> Result<Option<ListedLayers>> {
        if self.family.linear_attention.is_none() {
            return Ok(None);
        }
        let is_single = self.family.single_blocks;
        // The list has precedence where both are there, as in transformers' class.
        if let Some((field, value)) = self.first(LISTS) {
            let accepted = match is_single {
                true => "accepted: a list of \"linear_attention\", \"full_attention\", \"mlp\" and \"moe\"",
                false => "accepted: a list of \"linear_attention\" and \"full_attention\"",
            };
            let items = value.as_array().ok_or_else(|| self.wrong(field, format!("found {value}; {accepted}")))?;
            return self.listed(field, items, accepted, |item| named(item, is_single)).map(Some);
        }
        let Some((field, value)) = self.first(&[PATTERN]).filter(|_| is_single) else { return Ok(None) };
        let accepted = "accepted: a text of M (Mamba-2), * (attention), - (feed-forward) and E (experts)";
        let text = value.as_str().ok_or_else(|| self.wrong(field, format!("found {value}; {accepted}")))?;
        let items: Vec<Value> = text.chars().map(|letter| letter.to_string().into()).collect();
        self.listed(field, &items, accepted, lettered).map(Some)
    }

    fn listed(
        &self,
        field: &str,
        items: &[Value],
        accepted: &str,
        meaning: impl Fn(&Value) -> Option<Listed>,
    ) -> Result<ListedLayers> {
        if items.is_empty() || items.len() > MOST_LAYERS as usize {
            return Err(self.wrong(field, format!("names {} layers; accepted: 1 to {MOST_LAYERS}", items.len())));
        }
        let layer = |(layer, item): (usize, &Value)| match meaning(item) {
            Some(listed) => Ok(listed),
            None => Err(self.wrong(field, format!("found {item} for layer {layer}; {accepted}"))),
        };
        Ok(ListedLayers {
            field: field.to_owned(),
            layers: items.iter().enumerate().map(layer).collect::<Result<_>>()?,
        })
    }

    /// As many layers as the list has, where nothing else says it.
    pub(super) fn layers_of_list(&self, listed: Option<&ListedLayers>) -> Option<u32> {
        let ListedLayers { field, layers } = listed?;
        Some(self.infer("num_hidden_layers", layers.len() as u32, format!("as many as {field} lists")))
    }

    /// How the layers are made. Families without linear attention have attention and a feed-forward in each.
    pub(super) fn layer_plan(&self, layers: u32, listed: Option<ListedLayers>) -> Result<LayerPlan> {
        let Some(rule) = self.family.linear_attention else {
            return Ok(LayerPlan { blocks: Blocks::Pairs, expert_layers: Vec::new(), linear_attention: None });
        };
        let kinds = match listed {
            Some(ListedLayers { field, layers: kinds }) if kinds.len() as u64 != u64::from(layers) => {
                let problem = format!("names {} layers, num_hidden_layers is {layers}; they must agree", kinds.len());
                return Err(self.wrong(&field, problem));
            }
            Some(listed) => listed.layers,
            None if self.family.single_blocks => return Err(self.missing(&[PATTERN, "layers_block_type"])),
            None => self.by_interval(layers)?,
        };
        let of = |wanted: Listed| -> Vec<u32> {
            (0..layers).zip(&kinds).filter(|(_, kind)| **kind == wanted).map(|(layer, _)| layer).collect()
        };
        let expert_layers = of(Listed::Experts);
        let mut feed_forward_layers = [of(Listed::FeedForward), expert_layers.clone()].concat();
        feed_forward_layers.sort_unstable();
        let blocks = match self.family.single_blocks {
            true => Blocks::Single { feed_forward_layers },
            false => Blocks::Pairs,
        };
        let linear = of(Listed::Mixer(Mixer::Linear));
        let linear_attention = if linear.is_empty() { None } else { Some(self.linear_attention(rule, linear)?) };
        Ok(LayerPlan { blocks, expert_layers, linear_attention })
    }

    /// Every layer of this interval, counted from 1, attends to everything.
    fn by_interval(&self, layers: u32) -> Result<Vec<Listed>> {
        let interval = self.need(&["full_attention_interval"])?;
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
                convolution_bias: self.truth(&["use_conv_bias", "mamba_conv_bias"])?.unwrap_or(true),
                projection_bias: self.truth(&["use_bias"])?.unwrap_or(false),
                chunk_tokens: self.need(&["chunk_size", "mamba_chunk_size"])?,
                layers,
            },
        })
    }

    /// Layers behind the last one, where they are as the last.
    pub(super) fn prediction_layers(&self) -> Result<u32> {
        let name = "num_nextn_predict_layers";
        let layers = self.optional_from_zero(&[name])?.unwrap_or(0);
        if layers > 0 && (self.family.single_blocks || self.family.weights.is_some()) {
            let why = format!(
                "{layers}, made otherwise than the other layers of {}, are not counted",
                self.family.model_type
            );
            return Ok(self.infer(name, 0, why));
        }
        Ok(layers as u32)
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
