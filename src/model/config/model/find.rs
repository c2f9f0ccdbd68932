//! Locates a model's config.json: by path, by folder, or by the name of a preset. Reads it.

use super::super::shipped::{CONFIG, Shipped, is_embedded, read_text};
use super::facts::{Families, Family, QueryKeyNorm};
use super::fields::{Fields, ListedLayers, MOST_LAYERS, check, text_part};
use super::{Attention, Biases, Embedding, Indexer, LatentAttention, Mixture, Model, ModelSource};
use crate::config::document::Place;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use serde::de::{Deserialize, Deserializer, Error as DeError, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Model {
    /// Reads a model: the path of its config.json, that of the file's folder, or a name, as [`Shipped::find`] finds it.
    ///
    /// # Errors
    /// Usage errors: nothing there (with the nearest names), and all those of [`Model::read`].
    pub fn load(path_or_name: &str) -> Result<Model> {
        let requested = Path::new(path_or_name);
        let Some(file) = Shipped::Model.find(requested) else {
            let problem = match requested.is_dir() {
                true => format!("the folder {path_or_name} holds no {CONFIG}"),
                false => Shipped::Model.unknown(requested),
            };
            return Err(Error::usage(format!("MODEL: {problem}")));
        };
        Model::read(&file, &name_of(&file), &read_text(&file, &Place::flag("MODEL"))?)
    }
}

/// The folder's name where the file is called config.json, else the file's own.
pub(in crate::config) fn name_of(file: &Path) -> String {
    let folder = file.parent().filter(|_| file.file_name().is_some_and(|name| name == CONFIG));
    // `.` and `..` have no name of their own.
    let whole = folder.filter(|folder| folder.file_name().is_none()).and_then(|folder| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        folder.canonicalize().ok()
    });
    let named = whole.as_deref().or(folder);
    let stem = named.map_or(file.file_stem(), Path::file_name);
    stem.or(file.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

/// The model that a suite names: in `models/` next to the suite, unless the suite is embedded, else as found by name.
pub(in crate::config) fn preset_file(suite: &Path, name: &str) -> std::result::Result<PathBuf, String> {
    let folder = suite.parent().unwrap_or(Path::new("")).join("models");
    let next_to_suite = Some(Shipped::Model.file_in(&folder, name)).filter(|file| file.is_file());
    let elsewhere = || Shipped::Model.find(Path::new(name));
    next_to_suite.or_else(elsewhere).ok_or_else(|| {
        let unknown = Shipped::Model.unknown(Path::new(name));
        if is_embedded(&folder.to_string_lossy()) {
            unknown
        } else {
            format!("{unknown} Nor is it in {}", folder.shown())
        }
    })
}

// JSON in which no object has a key twice: with two values of one key, the intended one is unknown.
//
// Python writes infinite numbers as `Infinity`, which JSON does not have (`time_step_limit` of Mamba-2); they are read as null.

/// Parses a text.
///
/// # Errors
/// Where it is not JSON, or an object has a key twice: with line and column, and without the name of the file.
pub(in crate::config) fn parse(text: &str) -> std::result::Result<Value, String> {
    serde_json::from_str::<Unique>(&without_python_constants(text)).map(|unique| unique.0).map_err(|cause| {
        let problem = cause.to_string();
        let (line, column) = (cause.line(), cause.column());
        match problem.split_once(TWICE) {
            Some((key, _)) => format!("{line}: {key}{TWICE}; leave one of them"),
            None => format!("{line}:{column}: not JSON: {problem}"),
        }
    })
}

/// The text with null in place of Python's infinities outside of strings: lines and columns stay what they were.
fn without_python_constants(text: &str) -> Cow<'_, str> {
    if !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest, mut in_string) = (String::with_capacity(text.len()), text, false);
    while let Some(first) = rest.chars().next() {
        let infinity = INFINITIES.iter().find(|(written, _)| !in_string && rest.starts_with(written));
        let length = match (infinity, first) {
            (Some((written, _)), _) => written.len(),
            (None, '\\') if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, _) => first.len_utf8(),
        };
        in_string ^= first == '"';
        out.push_str(infinity.map_or(&rest[..length], |(_, replaced)| replaced));
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// What Python's json module writes, and as long a text that is read as nothing.
const INFINITIES: [(&str, &str); 2] = [("-Infinity", "     null"), ("Infinity", "    null")];

const TWICE: &str = ": occurs twice in one object";

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Values).map(Unique)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if all.contains_key(&key) {
                return Err(A::Error::custom(format!("{key}{TWICE}")));
            }
            let Unique(value) = fields.next_value()?;
            all.insert(key, value);
        }
        Ok(all.into())
    }
}

// Reads a Hugging Face config.json unchanged: the names of every field, and the meaning of an absent one.
//
// Experts are in `parameters`, windows of attention and hybrid layers in `fields`.

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
    /// Text that is not JSON (with line and column), a key that occurs twice (with its line), a `model_type` that is not supported (with
    /// those that are), a missing field (with every name it may have) and values that cannot be.
    pub fn read(file: &Path, name: &str, text: &str) -> Result<Model> {
        let document = parse(text).map_err(|problem| Error::usage(format!("{}:{problem}", file.shown())))?;
        let Value::Object(root) = &document else {
            return Err(Error::config(file, "the file", "found no JSON object; accepted: a Hugging Face config.json"));
        };
        let family = family(file, root)?;
        let fields = Fields::new(file, root, &family);
        let mut model = fields.model(name, &family)?;
        check(&model).map_err(|(field, problem)| fields.wrong(field, problem))?;
        for part in PARTS.into_iter().filter(|part| root.get(*part).is_some_and(Value::is_object)) {
            fields.infer(part, Value::Null, "not counted: the total is that of the language model");
        }
        fields.note_in(&mut model);
        if model.counted.is_some() {
            // No parameter of these follows from them.
            model
                .source
                .inferred
                .retain(|one| !["num_key_value_heads", "head_dim", "attention_bias"].contains(&one.field.as_str()));
        }
        Ok(model)
    }
}

/// Parts of a multimodal model that are not its language model.
const PARTS: [&str; 3] = ["vision_config", "audio_config", "speech_config"];

/// What `architectures` and the fields of a part of a model say, which drafts tokens for a whole one.
const DRAFTERS: [&str; 4] = ["eagle", "dflash", "medusa", "draft_vocab_size"];

/// The family of a file, by its `model_type`, or by its fields.
fn family(file: &Path, root: &Map<String, Value>) -> Result<Arc<Family>> {
    let families = Families::near(file)?;
    let architectures =
        root.get("architectures").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in architectures.chain(root.keys().map(String::as_str)) {
        if DRAFTERS.iter().any(|drafter| name.to_lowercase().contains(drafter)) {
            let problem = "a drafter of tokens, which is no whole model; accepted: the config.json of the model that it drafts for";
            return Err(Error::config(file, "architectures", format!("`{name}` names {problem}")));
        }
    }
    let text = text_part(root);
    // A whole file may be refused though its text part is named as that of another family.
    if let Some(Some(found)) = root.get("model_type").map(Value::as_str)
        && let Some(Family { refused: Some(why), .. }) = families.find(found)?.as_deref()
    {
        return Err(Error::config(file, "model_type", format!("found `{found}`: {why}")));
    }
    let stated = text.get("model_type").or_else(|| root.get("model_type")).and_then(Value::as_str);
    let Some(found) = stated.or_else(|| families.recognised(root)) else {
        let whole = file.with_file_name("config.json");
        let problem = match whole != file && whole.is_file() {
            true => format!("is missing; the model is in {}", whole.display()),
            false => format!("is missing; supported: {}", families.names().join(", ")),
        };
        return Err(Error::config(file, "model_type", problem));
    };
    match families.find(found)? {
        Some(family) => match &family.refused {
            Some(why) => Err(Error::config(file, "model_type", format!("found `{found}`: {why}"))),
            None => Ok(family),
        },
        None => Err(Error::config(file, "model_type", unknown(found, &families))),
    }
}

/// Names the families that a file of another may be like, and how to say so.
fn unknown(found: &str, families: &Families) -> String {
    let plain = found.strip_suffix("_text").unwrap_or(found);
    match families.nearest(plain).as_slice() {
        [] => format!("found `{found}`; supported: {}", families.names().join(", ")),
        near => format!(
            "found `{found}`, which no family has; nearest: {}. If its modelling code has the same layers, write a families.toml next to \
             the file with [{plain}], like = \"{}\" and source, and compare the total with the published one",
            near.join(", "),
            near[0]
        ),
    }
}

impl Fields<'_> {
    fn model(&self, name: &str, family: &Arc<Family>) -> Result<Model> {
        let hidden = self.need(HIDDEN)?;
        if family.weights.is_none() {
            self.need(HEADS)?;
        }
        let listed = self.listed_layers_of()?;
        let layers = self.layers(listed.as_ref())?;
        let plan = self.layer_plan(layers, listed)?;
        let value = |name: &str| self.value(name);
        let counted = family.weights.as_ref().map_or(Ok(None), |weights| weights.count(&value, layers));
        let counted = counted.map_err(|wrong| self.wrong(&wrong.formula, wrong.problem))?;
        let heads = if counted.is_some() { self.optional(HEADS)?.unwrap_or(1) } else { self.need(HEADS)? };
        let mixture = self.mixture(layers, &plan)?;
        let latent = self.latent_attention()?;
        let feed_forward = self.feed_forward(hidden, layers, mixture.as_ref())?;
        let kv_heads = self.kv_heads(heads)?;
        let head_dimension = self.head_dimension(latent.as_ref(), hidden, heads)?;
        // In this order, as what is inferred is listed in it.
        let (query_key_value, attention_output) = self.attention_bias()?;
        let embedding = Embedding {
            vocabulary: self.need(&["vocab_size"])?,
            maximum_positions: self.maximum_positions()?,
            scales_positions: self.scales_positions(),
            tied: self.tied_embeddings()?,
        };
        Ok(Model {
            name: name.to_owned(),
            source: ModelSource { file: self.file().to_owned(), overrides: Vec::new(), inferred: Vec::new() },
            family: Arc::clone(family),
            layers,
            hidden,
            feed_forward,
            attention: Attention {
                heads,
                kv_heads,
                head_dimension,
                query_key_norm: self.query_key_norm()?,
                gate: family.attention_gate,
                sliding_window: self.sliding_window(layers)?,
                linear: plan.linear_attention,
                latent,
                indexer: self.indexer()?,
            },
            embedding,
            biases: Biases {
                query_key_value,
                attention_output,
                feed_forward: self.truth(&["mlp_bias"])?.unwrap_or(family.feed_forward_bias),
                output_projection: self.truth(&["lm_head_bias"])?.unwrap_or(false),
            },
            parallel_residual: self.truth(&["use_parallel_residual"])?.unwrap_or(family.parallel_residual),
            activation: self.activation()?,
            element: self.element()?,
            blocks: plan.blocks,
            mixture,
            prediction_layers: self.prediction_layers()?,
            counted,
        })
    }

    /// The longest sequence, which only a table of positions needs.
    fn maximum_positions(&self) -> Result<Option<u64>> {
        let stated = self.optional(POSITIONS)?;
        match stated {
            None if self.family.learned_positions => Err(self.missing(POSITIONS)),
            None => {
                self.infer(POSITIONS[0], Value::Null, "not said; sequences of any length are accepted");
                Ok(None)
            }
            Some(_) => Ok(stated),
        }
    }

    /// Whether the file scales the angles of rotation, by `rope_scaling` or, in newer files, `rope_parameters`.
    fn scales_positions(&self) -> bool {
        let scaling = self.outermost(&["rope_scaling", "rope_parameters"]).and_then(|(_, value)| value.as_object());
        let kind = scaling.and_then(|scaling| scaling.get("rope_type").or_else(|| scaling.get("type")));
        kind.and_then(Value::as_str).is_some_and(|kind| kind != "default")
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

    /// The width of a dense feed-forward; 0 where no layer has one and no field says it.
    fn feed_forward(&self, hidden: u64, layers: u32, mixture: Option<&Mixture>) -> Result<u64> {
        match (self.optional(FEED_FORWARD)?, self.family.widens) {
            (Some(width), _) => Ok(width),
            (None, Some(times)) => {
                let why = format!("{times} x n_embd {hidden}, the rule of {}", self.family.model_type);
                Ok(self.infer("n_inner", times * hidden, why))
            }
            (None, None) if mixture.is_some_and(|mixture| (0..layers).all(|layer| mixture.is_in(layer))) => Ok(0),
            (None, None) if self.family.weights.is_some() => Ok(0),
            (None, None) => Err(self.missing(FEED_FORWARD)),
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

    fn head_dimension(&self, latent: Option<&LatentAttention>, hidden: u64, heads: u64) -> Result<u64> {
        if let Some(latent) = latent {
            return Ok(latent.plain_dimension + latent.rotary_dimension);
        }
        match self.optional(&["head_dim", "attention_head_dim"])? {
            Some(dimension) => Ok(dimension),
            None if hidden.is_multiple_of(heads) => {
                Ok(self.infer("head_dim", hidden / heads, format!("= hidden size {hidden} / {heads} heads")))
            }
            None => {
                let problem = format!("is missing, and hidden size {hidden} is not a multiple of {heads} heads");
                Err(self.wrong("head_dim", problem))
            }
        }
    }

    fn tied_embeddings(&self) -> Result<bool> {
        let name = "tie_word_embeddings";
        match self.outermost(&[name]) {
            Some((_, value)) => self.truth_of(name, value),
            None => Ok(self.infer(name, false, format!("the default of {}", self.family.model_type))),
        }
    }

    /// Biases on queries, keys and values, and on the output.
    fn attention_bias(&self) -> Result<(bool, bool)> {
        let taken = &self.family.attention_bias;
        let names = ["attention_bias", "qkv_bias"];
        if let Some(stated) = self.truth(&names)?.filter(|_| !taken.never_stated) {
            // GPT-2's output projection has its bias in any case: its files have no such field.
            let follows = || taken.output_always || (stated && taken.output_follows);
            return Ok((stated, self.truth(&["attention_out_bias"])?.unwrap_or_else(follows)));
        }
        let why = taken.why.clone().unwrap_or_else(|| format!("the default of {}", self.family.model_type));
        let field = self.own_names(&names).next().unwrap_or(names[0]);
        Ok((self.infer(field, taken.query_key_value, why), taken.output))
    }

    fn query_key_norm(&self) -> Result<QueryKeyNorm> {
        Ok(match (self.family.query_key_norm, self.truth(&["use_qk_norm"])?) {
            (_, Some(true)) if self.family.states_norms => QueryKeyNorm::EachHead,
            (of_family, _) => of_family,
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
        let Some((name, value)) =
            self.first(&["torch_dtype", "dtype"]).or_else(|| self.outermost(&["torch_dtype", "dtype"]))
        else {
            self.infer("torch_dtype", Value::Null, "not said; nothing is counted with it");
            return Ok(None);
        };
        let Some(text) = value.as_str() else {
            return Err(self.wrong(name, format!("found {value}; accepted: a text such as \"bfloat16\"")));
        };
        // DeepSeek's inference/model.py takes "fp8" as `float8_e4m3fn`.
        let text = if text == "fp8" { "fp8_e4m3" } else { text.trim_start_matches("torch.") };
        text.parse().map(Some).map_err(|problem| self.wrong(name, problem))
    }

    fn latent_attention(&self) -> Result<Option<LatentAttention>> {
        if !self.family.latent_attention {
            return Ok(None);
        }
        let query_rank = self.optional(&["q_lora_rank"])?;
        if query_rank.is_none() {
            self.infer("q_lora_rank", Value::Null, "null: queries are not compressed");
        }
        Ok(Some(LatentAttention {
            query_rank,
            kv_rank: self.need(&["kv_lora_rank"])?,
            plain_dimension: self.need(&["qk_nope_head_dim"])?,
            rotary_dimension: self.need(&["qk_rope_head_dim"])?,
            value_dimension: self.need(&["v_head_dim"])?,
        }))
    }

    fn indexer(&self) -> Result<Option<Indexer>> {
        if !self.family.indexer {
            return Ok(None);
        }
        Ok(Some(Indexer {
            heads: self.need(&["index_n_heads"])?,
            head_dimension: self.need(&["index_head_dim"])?,
            tokens: self.need(&["index_topk"])?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

    #[test]
    fn missing_models_are_refused_with_what_would_be_accepted() {
        let folder = tempfile::tempdir().unwrap();
        for (requested, expected) in [
            (
                "llama3-8b",
                "MODEL: there is no model `llama3-8b`: no llama3-8b/config.json, no suites/models/llama3-8b/config.json here",
            ),
            ("llama3-8b", "did you mean llama-3-8b or "),
            ("zzz", "`commgauge show models` names all 43"),
            ("no/config.json", "there is no file `no/config.json`; accepted: a path, or the name of a model"),
            (folder.path().to_str().unwrap(), "holds no config.json"),
            ("", "there is no file ``; accepted"),
        ] {
            let error = Model::load(requested).expect_err(requested);
            assert!(error.to_string().contains(expected), "{requested}\n  gave     {error}\n  expected {expected}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn a_model_is_found_by_file_by_folder_and_by_name() {
        commgauge_base::testing::enter_checkout();
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("mine");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(CONFIG), TINY).unwrap();
        fs::write(folder.path().join("other.json"), TINY).unwrap();
        for (requested, name) in [
            (own.display().to_string(), "mine"),
            (format!("{}/", own.display()), "mine"),
            (own.join(CONFIG).display().to_string(), "mine"),
            (own.join("../mine/.").display().to_string(), "mine"),
            (folder.path().join("other.json").display().to_string(), "other"),
            ("llama-3-8b".to_owned(), "llama-3-8b"),
            ("qwen2.5-0.5b".to_owned(), "qwen2.5-0.5b"),
            ("suites/models/gpt2".to_owned(), "gpt2"),
            ("embedded:suites/models/gpt2/config.json".to_owned(), "gpt2"),
        ] {
            assert_eq!(Model::load(&requested).expect(&requested).name, name, "{requested}");
        }
    }

    #[test]
    fn a_preset_is_found_in_the_folder_of_the_suite() {
        commgauge_base::testing::enter_checkout();
        for suite in ["/nowhere/s.toml", "embedded:suites/quick.toml"] {
            let file = preset_file(Path::new(suite), "gpt2").unwrap();
            assert_eq!(file, Path::new("suites/models/gpt2/config.json"), "{suite}");
        }
        let problem = preset_file(Path::new("/nowhere/s.toml"), "gpt").unwrap_err();
        assert!(problem.contains("did you mean gpt2") && problem.ends_with("/nowhere/models"), "{problem}");
    }

    #[test]
    fn a_repeated_key_is_named_with_its_line_and_everything_else_reads_as_before() {
        let twice = "{\n \"a\": 1,\n \"b\": {\"c\": [2]},\n \"a\": 3\n}";
        assert_eq!(parse(twice).unwrap_err(), "4: a: occurs twice in one object; leave one of them");
        let nested = "{\"a\": [{\"x\": 1,\n\"x\": 1}]}";
        assert_eq!(parse(nested).unwrap_err(), "2: x: occurs twice in one object; leave one of them");
        let text = r#"{"a": [1, -2, 2.5e3, true, null, "é"], "b": {"a": {}}, "c": 18446744073709551615}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert!(parse("{\n\"a\": ").unwrap_err().starts_with("2:5: not JSON: EOF"));
    }

    #[test]
    fn infinite_numbers_as_python_writes_them_are_read_as_null_and_left_alone_in_texts() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": "Infinity \" é \\", "d": {"Infinity": "\\"}, "e": Infinity}"#;
        let read = parse(text).unwrap();
        assert_eq!(read["a"], serde_json::json!([0.0, null]));
        assert_eq!((&read["b"], &read["e"]), (&Value::Null, &Value::Null));
        assert_eq!((read["c"].as_str(), read["d"]["Infinity"].as_str()), (Some("Infinity \" é \\"), Some("\\")));
        assert!(parse("{\"a\": Infinity, \"b\": }").unwrap_err().starts_with("1:22: not JSON"));
        assert!(parse("\"\\").is_err() && parse("Infinity\"\\").is_err());
    }
}
