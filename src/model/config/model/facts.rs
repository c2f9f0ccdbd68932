//! Families of models: what is true of an architecture and stated by no field of its config.json.
//!
//! They are rows of `suites/models/families.toml`, each with its source. A file of that name in the folder of a config.json, or in the
//! folder above it, adds rows and replaces those of the same name.

use super::super::shipped::{embedded_file, nearest, read_text};
use super::LinearRule;
use super::weights::Weights;
use crate::config::document::Place;
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use toml::Table;

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryKeyNorm {
    /// No norms.
    None,
    /// As wide as a head, the same for all heads.
    EachHead,
    /// As wide as all heads together.
    AllHeads,
}

/// A row of the file of families; what a key means is told at its head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// The `model_type` of config.json; the text part of a multimodal model may have `_text` behind it.
    pub model_type: String,
    /// Where the row was read.
    pub source: String,
    /// Why files of the family are not read, and what to use instead.
    pub refused: Option<String>,
    /// Fields by which a file without `model_type` is recognised.
    #[serde(default)]
    pub(super) recognised_by: Vec<String>,
    /// The family's own name of a field.
    #[serde(default)]
    pub(super) names: BTreeMap<String, String>,
    /// What the family's class takes for fields that a file leaves out.
    #[serde(default)]
    pub(super) defaults: Map<String, Value>,
    /// Three feed-forward matrices (gate, up, down) instead of two. A property of the architecture: `hidden_act` only names the
    /// function, and a gpt2 with `silu` still has two matrices.
    pub gated: bool,
    /// Biases on all projections of the feed-forward, those of experts too.
    pub(super) feed_forward_bias: bool,
    /// An inner width that is null or absent is this many times the hidden width.
    pub(super) widens: Option<u64>,
    /// Positions as a learned table, as GPT-2 and GPT-3 have them.
    pub learned_positions: bool,
    /// Queries and keys are rotated by their position.
    pub rotary_positions: bool,
    /// Norms have a bias.
    pub(super) norm_bias: bool,
    /// Norms as wide as the residual stream in each layer.
    pub(super) norms_per_layer: u64,
    pub(super) query_key_norm: QueryKeyNorm,
    /// `use_qk_norm` says whether there are norms of each head.
    pub(super) states_norms: bool,
    /// A gate as wide as the queries weighs what attention gives.
    pub(super) attention_gate: bool,
    /// The rule of linear attention, in families whose layers have it in place of attention.
    pub(super) linear_attention: Option<LinearRule>,
    /// Each layer is either a mixer of tokens or a feed-forward.
    pub(super) single_blocks: bool,
    /// A learned number for each query head that takes attention away from all tokens.
    pub(super) attention_sinks: bool,
    /// Multi-head latent attention (arXiv 2405.04434).
    pub(super) latent_attention: bool,
    /// An indexer chooses the tokens of latent attention.
    pub(super) indexer: bool,
    pub(super) attention_bias: AttentionBias,
    pub(super) experts: Option<Experts>,
    /// Attention and feed-forward read the same input and are added together, unless a field says otherwise.
    pub(super) parallel_residual: bool,
    /// Every how many layers attend to everything, where the file has a window and no `layer_types`.
    pub(super) full_attention_step: Option<u32>,
    /// Parameters of layers that no other key describes; see [`Weights`].
    pub(super) weights: Option<Weights>,
    /// How transformers computes it.
    pub transformers: InTransformers,
    /// Whether vLLM's file of the model lets each rank of tp give a part of its tokens to experts of other replicas
    /// (`is_sequence_parallel` below model_executor/models); without it each gives all of them.
    pub parts_tokens_in_vllm: bool,
}

/// Biases of attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttentionBias {
    /// On queries, keys and values, if the file does not state it.
    pub query_key_value: bool,
    /// On the output, if the file does not state it.
    pub output: bool,
    /// Whether a bias requested by the file applies to the output projection too.
    pub output_follows: bool,
    /// The output has its bias whatever the file states of the others.
    pub output_always: bool,
    /// What the file states has no effect.
    pub never_stated: bool,
    /// Why; where nothing is said it is the default of the class.
    pub why: Option<String>,
}

/// Experts of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(super) struct Experts {
    /// The file's one inner width is that of the experts.
    pub of_feed_forward_width: bool,
    /// Shared experts where no field gives their number; each is as wide as a routed one.
    pub always_shared: u64,
    /// A gate that weighs what the shared expert gives.
    pub shared_gate: bool,
    /// Bias on the router.
    pub router_bias: bool,
}

/// How transformers computes a layer, from which the memory and the order of its tensors follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InTransformers {
    /// Dropout on attention and residuals, positions as a table, and GELU operation by operation (`GPT2Attention`).
    pub as_gpt2: bool,
    /// One product computes queries, keys and values.
    pub joins_products: bool,
    /// Only a part of each head is rotated.
    pub rotates_a_part: bool,
    /// Inputs of norms that are kept in fp32, in place of one in fp32 and one in the type of the activations.
    pub norm_inputs_in_full: Option<u8>,
    /// Routers copy their input to fp32 (`DeepseekV3TopkRouter`).
    pub routes_in_full: bool,
    /// DeepSpeed sees router and experts as one module (runtime/zero/leaf_module_config.py DEFAULT_LEAF_MODULE_CLASSES).
    pub one_module_of_experts: bool,
    /// The input projection of linear attention is several: queries with keys and values, their gate, and the numbers of each head.
    pub linear_inputs_apart: bool,
}

/// File name of families.
const FILE: &str = "families.toml";

/// Rows may be like others this many times over.
const MOST_STEPS: usize = 8;

static EMBEDDED: LazyLock<std::result::Result<Table, String>> = LazyLock::new(|| {
    let text = embedded_file(&format!("models/{FILE}")).map_err(|problem| problem.to_string())?;
    text.parse::<Table>().map_err(|problem| format!("{FILE}: {problem}"))
});

/// The rows that a config.json may name.
pub(super) struct Families {
    rows: Table,
    /// The user's own file, if there is one.
    own: Option<PathBuf>,
}

impl Families {
    /// The embedded rows, and those next to this config.json.
    ///
    /// # Errors
    /// A file of families that is not TOML, with its line.
    pub fn near(config: &Path) -> Result<Families> {
        let mut rows = EMBEDDED.clone().map_err(Error::environment)?;
        let folders = config.ancestors().skip(1).take(2);
        let own = folders.map(|folder| folder.join(FILE)).find(|file| file.is_file());
        if let Some(own) = &own {
            let text = read_text(own, &Place::flag("MODEL"))?;
            let added: Table = text.parse().map_err(|problem| Error::config(own, "the file", problem))?;
            rows.extend(added);
        }
        Ok(Families { rows, own })
    }

    /// Names of all rows, in order.
    pub fn names(&self) -> Vec<&str> {
        self.rows.iter().filter(|(name, row)| row.is_table() && *name != EVERY).map(|(name, _)| name.as_str()).collect()
    }

    /// The row of a `model_type`, which may have `_text` behind the name of the row.
    ///
    /// # Errors
    /// A key of the row that is unknown, missing or not of its type.
    pub fn find(&self, model_type: &str) -> Result<Option<Arc<Family>>> {
        let plain = model_type.strip_suffix("_text").unwrap_or(model_type);
        let Some(name) = [model_type, plain].into_iter().find(|name| *name != EVERY && self.rows.contains_key(*name))
        else {
            return Ok(None);
        };
        let wrong = |problem: String| {
            let file = self.own.as_deref().unwrap_or(Path::new("embedded:suites/models/families.toml"));
            Error::config(file, name, problem)
        };
        let mut row = self.merged(name, 0).map_err(wrong)?;
        row.insert("model_type".to_owned(), name.into());
        row.try_into().map(Arc::new).map(Some).map_err(|problem: toml::de::Error| wrong(problem.message().to_owned()))
    }

    /// The row that recognises a file without `model_type` by its fields.
    pub fn recognised(&self, root: &Map<String, Value>) -> Option<&str> {
        self.rows.iter().find_map(|(name, row)| {
            let fields = row.get("recognised_by")?.as_array()?;
            let has = |field: &toml::Value| field.as_str().is_some_and(|field| root.contains_key(field));
            (!fields.is_empty() && fields.iter().all(has)).then_some(name.as_str())
        })
    }

    /// The most similar names of rows.
    pub fn nearest(&self, model_type: &str) -> Vec<String> {
        nearest(model_type, &self.names().into_iter().map(str::to_owned).collect::<Vec<_>>())
    }

    /// A row over that which it is like.
    fn merged(&self, name: &str, steps: usize) -> std::result::Result<Table, String> {
        let row = self.rows.get(name).and_then(toml::Value::as_table).ok_or(format!("there is no row `{name}`"))?;
        if name == EVERY {
            return Ok(row.clone());
        }
        if steps == MOST_STEPS {
            return Err(format!("`like` leads over more than {MOST_STEPS} rows"));
        }
        let like = match row.get("like") {
            Some(like) => like.as_str().ok_or("like: accepted: the name of another row")?,
            None => EVERY,
        };
        let mut merged = self.merged(like, steps + 1)?;
        // What is true of the file of one family, and not of another like it.
        for own in ["refused", "recognised_by"] {
            merged.remove(own);
        }
        over(&mut merged, row.clone());
        merged.remove("like");
        Ok(merged)
    }
}

/// What a row says unless it says otherwise.
const EVERY: &str = "every";

/// Puts the keys of one table over those of another, table by table; an empty table takes one away.
fn over(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(_), toml::Value::Table(above)) if above.is_empty() => drop(below.remove(&key)),
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => over(below, above),
            (_, value) => drop(below.insert(key, value)),
        }
    }
}
