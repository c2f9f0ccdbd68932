//! `commgauge show model`: the parameters and the shape of a model, and the values inferred from its file.

use super::template::prose;
use commgauge_base::element::ElementType;
use commgauge_base::visible::visible_lines;
use commgauge_base::writing::grouped;
use commgauge_model::config::{
    FeedForward, Indexer, Inferred, LatentAttention, LayerParts, LinearAttention, Mixer, Mixture, Model, QueryKeyNorm,
};
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

/// The complete text for a terminal of this width.
pub fn text(document: &ModelDocument, width: u16) -> String {
    let linear_rule = document.shape.linear_attention.as_ref().map(|linear| linear.rule.name());
    let context = context! { width, linear_rule, has_parts => document.has_parts(), ..Serde(document) };
    visible_lines(&prose("model.txt", include_str!("templates/model.txt"), context)).into_owned()
}

// The document.

/// Name of the format.
pub const FORMAT: &str = "commgauge-model";

/// Incremented when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// A model: its parameters, its shape, and what was inferred.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelDocument {
    /// Always `commgauge-model`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Name of the preset, or of the file's folder.
    pub name: String,
    /// The file that was read.
    pub file: String,
    /// `model_type` of the file, without the ending `_text` of multimodal files.
    pub model_type: String,
    /// All parameters, without prediction layers.
    pub parameters_total: u64,
    /// Parameters that take part in the computation of one token: all but the routed experts that it is not sent to.
    /// Embedding and output projection count whole.
    pub parameters_active: u64,
    /// Parameters of one layer, of the kind that most layers are of.
    pub parameters_per_layer: u64,
    /// Parameters of the embedding of words and, where they are learned, of positions.
    pub parameters_embedding: u64,
    /// Parameters of the output projection; 0 where it shares the word embedding.
    pub parameters_output_projection: u64,
    /// Parameters of the norm behind the last layer.
    pub parameters_final_norm: u64,
    /// Parameters of the layers that predict further tokens; not part of the total.
    pub parameters_prediction_layers: u64,
    /// The kinds of layers, in the order in which they first appear.
    pub layers: Vec<LayerKind>,
    /// The shape.
    pub shape: Shape,
    /// Why no step of the model has a list of calls; then the parts of its layers are not known, and are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_refused: Option<String>,
    /// Fields that the file leaves out, and what they were taken as; parts of the model that are not counted.
    pub inferred: Vec<Inferred>,
}

/// Which feed-forward a layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One feed-forward for every token.
    Dense,
    /// Experts.
    Experts,
    /// None: the layer only mixes tokens.
    None,
}

/// Layers that are alike.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LayerKind {
    /// Which feed-forward they have.
    pub kind: Kind,
    /// What mixes their tokens; null where nothing does.
    pub mixer: Option<Mixer>,
    /// How many there are.
    pub count: u32,
    /// First and last layer of each unbroken row of them, counted from 0.
    pub ranges: Vec<[u32; 2]>,
    /// Parameters of one such layer: what mixes tokens, feed-forward and norms.
    pub parameters: u64,
    /// Those that take part in the computation of one token.
    pub parameters_active: u64,
    /// Those of the attention, or of the linear attention; 0 where nothing mixes tokens.
    pub parameters_attention: u64,
    /// Those of the feed-forward: router and experts, where there are any.
    pub parameters_feed_forward: u64,
    /// Those of the norms as wide as the residual stream.
    pub parameters_norms: u64,
    /// Those of the router; part of the feed-forward.
    pub parameters_router: u64,
    /// Those of one routed expert; part of the feed-forward.
    pub parameters_one_expert: u64,
    /// Those of all shared experts together; part of the feed-forward.
    pub parameters_shared_experts: u64,
}

/// The shape of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Shape {
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Inner width of a dense feed-forward.
    pub feed_forward: u64,
    /// Three feed-forward matrices (gate, up, down) instead of two.
    pub gated: bool,
    /// Name of the activation function, where the file says it.
    pub activation: Option<String>,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of one head of queries and keys.
    pub head_dimension: u64,
    /// Entries of the vocabulary, not padded.
    pub vocabulary: u64,
    /// Longest sequence that the file allows; null where it does not say.
    pub maximum_positions: Option<u64>,
    /// Whether the output projection shares the word embedding.
    pub tied_embeddings: bool,
    /// Whether positions are a learned table.
    pub learned_positions: bool,
    /// Bias on queries, keys and values.
    pub query_key_value_bias: bool,
    /// Bias on the attention's output.
    pub attention_output_bias: bool,
    /// Bias on the feed-forward.
    pub feed_forward_bias: bool,
    /// Attention and feed-forward read the same input and are added together.
    pub parallel_residual: bool,
    /// Type of the published weights, where the file says it.
    pub element_type: Option<ElementType>,
    /// Tokens that a layer with a sliding window sees.
    pub sliding_window: Option<u64>,
    /// How many layers have that window.
    pub sliding_window_layers: u32,
    /// Layers that predict further tokens; not part of `layers`.
    pub prediction_layers: u32,
    /// Experts.
    pub experts: Option<Mixture>,
    /// Multi-head latent attention.
    pub latent_attention: Option<LatentAttention>,
    /// Norms of queries and keys.
    pub query_key_norm: QueryKeyNorm,
    /// A gate as wide as the queries weighs what attention gives.
    pub attention_gate: bool,
    /// Linear attention, and the layers that have it in place of attention.
    pub linear_attention: Option<LinearAttention>,
    /// Numbers of the state that linear attention keeps of one request in one of its layers, however long its context.
    pub linear_attention_state: Option<u64>,
    /// Bias on the output projection to the vocabulary.
    pub output_projection_bias: bool,
    /// What chooses the tokens of sparse attention.
    pub indexer: Option<Indexer>,
}

impl ModelDocument {
    /// Whether it is known what the parameters of layers are of.
    fn has_parts(&self) -> bool {
        self.layers.iter().all(LayerKind::has_parts)
    }

    /// Counts everything once.
    pub fn new(model: &Model) -> ModelDocument {
        let layers = kinds(model);
        ModelDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            name: model.shown_name(),
            file: model.source.file.display().to_string(),
            model_type: model.family.model_type.clone(),
            parameters_total: model.parameters(),
            parameters_active: model.parameters_active(),
            parameters_per_layer: most_common(&layers),
            parameters_embedding: model.embedding_parameters(),
            parameters_output_projection: model.output_projection_parameters(),
            parameters_final_norm: model.norm_parameters(),
            parameters_prediction_layers: model.prediction_layer_parameters(),
            layers,
            shape: Shape::of(model),
            steps_refused: model.steps_refused(),
            inferred: model.source.inferred.clone(),
        }
    }
}

impl LayerKind {
    /// Whether it is known what the parameters are of.
    fn has_parts(&self) -> bool {
        self.parameters_attention + self.parameters_feed_forward > 0
    }
}

impl Shape {
    fn of(model: &Model) -> Shape {
        let mut linear = model.linear_attention_in_use().cloned();
        if let Some(linear) = &mut linear {
            linear.layers.retain(|layer| *layer < model.layers);
        }
        let state = linear.as_ref().map(|linear| linear.state_elements(1));
        let windowed = (0..model.layers).filter(|layer| model.has_sliding_window_in(*layer)).count();
        Shape {
            layers: model.layers,
            hidden: model.hidden,
            feed_forward: model.feed_forward,
            gated: model.family.gated,
            activation: model.activation.clone(),
            heads: model.attention.heads,
            kv_heads: model.attention.kv_heads,
            head_dimension: model.attention.head_dimension,
            vocabulary: model.embedding.vocabulary,
            maximum_positions: model.embedding.maximum_positions,
            tied_embeddings: model.embedding.tied,
            learned_positions: model.family.learned_positions,
            query_key_value_bias: model.biases.query_key_value,
            attention_output_bias: model.biases.attention_output,
            feed_forward_bias: model.biases.feed_forward,
            parallel_residual: model.parallel_residual,
            element_type: model.element,
            sliding_window: model.attention.sliding_window.as_ref().map(|window| window.tokens),
            sliding_window_layers: windowed as u32,
            prediction_layers: model.prediction_layers,
            experts: model.mixture.clone(),
            latent_attention: model.attention.latent.clone(),
            query_key_norm: model.attention.query_key_norm,
            attention_gate: model.attention.gate,
            linear_attention: linear,
            linear_attention_state: state,
            output_projection_bias: model.biases.output_projection,
            indexer: model.attention.indexer,
        }
    }
}

/// Parameters of the most common kind of layer; of two equally common kinds, the larger.
fn most_common(kinds: &[LayerKind]) -> u64 {
    kinds.iter().map(|kind| (kind.count, kind.parameters)).max().map_or(0, |(_, parameters)| parameters)
}

fn kinds(model: &Model) -> Vec<LayerKind> {
    let ranges = |layers: &[u32]| layers.chunk_by(|a, b| a + 1 == *b).map(|run| [run[0], run[run.len() - 1]]).collect();
    let layers = (0..model.layers).map(|layer| ((model.parts_of(layer), model.layer_parameters(layer, 1)), layer));
    grouped(layers).into_iter().map(|((parts, _), layers)| layer_kind(model, parts, ranges(&layers))).collect()
}

fn layer_kind(model: &Model, parts: LayerParts, ranges: Vec<[u32; 2]>) -> LayerKind {
    let first = ranges.first().map_or(0, |range| range[0]);
    let kind = match parts.feed_forward {
        Some(FeedForward::Dense) => Kind::Dense,
        Some(FeedForward::Experts) => Kind::Experts,
        None => Kind::None,
    };
    let has_parts = model.counted.is_none();
    let of_parts = |parameters: u64| if has_parts { parameters } else { 0 };
    let (attention, norms) =
        (of_parts(model.mixer_parameters(parts.mixer, 1)), of_parts(model.layer_norm_parameters()));
    let parameters = model.layer_parameters(first, 1);
    let of_experts = |parameters: u64| if kind == Kind::Experts { parameters } else { 0 };
    LayerKind {
        kind,
        mixer: parts.mixer,
        count: ranges.iter().map(|[first, last]| last - first + 1).sum(),
        ranges,
        parameters,
        parameters_active: model.layer_parameters_active(first),
        parameters_attention: attention,
        parameters_feed_forward: of_parts(parameters - attention - norms),
        parameters_norms: norms,
        parameters_router: of_experts(model.router_parameters()),
        parameters_one_expert: of_experts(model.one_expert_parameters(1)),
        parameters_shared_experts: of_experts(model.shared_expert_parameters(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema_of;
    use commgauge_model::config::Model;
    use serde_json::json;

    fn shown(name: &str, width: u16) -> String {
        text(&ModelDocument::new(&Model::load(name).unwrap()), width)
    }

    #[test]
    fn a_table_is_fit_for_eighty_columns_and_for_forty() {
        for (name, width) in [("llama-3-8b", 80), ("deepseek-v3", 80), ("gpt-oss-20b", 80), ("gpt2", 80), ("gpt2", 40)]
        {
            let text = shown(name, width);
            let longest = text.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= usize::from(width), "{name}: {longest}\n{text}");
        }
    }

    #[test]
    fn the_tables_are_as_they_were() {
        commgauge_base::testing::enter_checkout();
        insta::assert_snapshot!("model_table_llama", shown("llama-3-8b", 80));
        insta::assert_snapshot!("model_table_deepseek", shown("deepseek-v3", 80));
        insta::assert_snapshot!("model_table_gpt2", shown("gpt2", 80));
        insta::assert_snapshot!("model_table_qwen3_next", shown("tests/data/transformers/qwen3_next", 80));
        insta::assert_snapshot!("model_table_nemotron_h", shown("tests/data/transformers/nemotron_h", 80));
    }

    #[test]
    fn a_name_from_a_file_cannot_steer_the_terminal() {
        let mut model = Model::load("gpt2").unwrap();
        model.activation = Some("\u{1b}[31mred".to_owned());
        let text = text(&ModelDocument::new(&model), 80);
        assert!(!text.contains('\u{1b}') && text.contains("[31mred"), "{text}");
    }

    fn document(name: &str) -> ModelDocument {
        ModelDocument::new(&Model::load(name).unwrap())
    }

    #[test]
    fn every_shipped_model_fits_the_published_schema() {
        commgauge_base::testing::enter_checkout();
        let validator = jsonschema::validator_for(&schema_of::<ModelDocument>(FORMAT, VERSION, "")).unwrap();
        let folders = std::fs::read_dir("suites/models").unwrap().flatten().filter(|entry| entry.path().is_dir());
        let mut seen = 0;
        for entry in folders {
            let document = serde_json::to_value(document(&entry.path().display().to_string())).unwrap();
            let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", entry.path().display());
            seen += 1;
        }
        assert!(seen > 40, "{seen}");
        let good = serde_json::to_value(document("llama-3-8b")).unwrap();
        for (field, value) in [("version", json!(2)), ("format", json!("poem")), ("parameters_total", json!("many"))] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(!validator.is_valid(&bad), "{field}");
        }
        let mut lacking = good;
        lacking.as_object_mut().unwrap().remove("parameters_active");
        assert!(!validator.is_valid(&lacking));
    }

    #[test]
    fn the_parts_of_a_document_add_up_to_its_total() {
        for name in ["llama-3-8b", "gpt3-175b", "deepseek-v3", "gpt-oss-120b", "qwen1.5-moe-a2.7b"] {
            let document = document(name);
            let layers: u64 = document.layers.iter().map(|kind| u64::from(kind.count) * kind.parameters).sum();
            let rest =
                document.parameters_embedding + document.parameters_output_projection + document.parameters_final_norm;
            assert_eq!(layers + rest, document.parameters_total, "{name}");
            let idle: u64 = document
                .layers
                .iter()
                .map(|kind| u64::from(kind.count) * (kind.parameters - kind.parameters_active))
                .sum();
            assert_eq!(document.parameters_total - idle, document.parameters_active, "{name}");
        }
    }

    #[test]
    fn layers_of_hybrid_models_are_listed_by_what_mixes_their_tokens() {
        commgauge_base::testing::enter_checkout();
        let listed = |name: &str| {
            let document = document(&format!("tests/data/transformers/{name}"));
            let layers: u64 = document.layers.iter().map(|kind| u64::from(kind.count) * kind.parameters).sum();
            let rest =
                document.parameters_embedding + document.parameters_output_projection + document.parameters_final_norm;
            assert_eq!(layers + rest, document.parameters_total, "{name}");
            let value = serde_json::to_value(&document).unwrap();
            assert!(
                jsonschema::validator_for(&schema_of::<ModelDocument>(FORMAT, VERSION, "")).unwrap().is_valid(&value),
                "{name}"
            );
            let row =
                |kind: &LayerKind| (kind.kind, kind.mixer, kind.count, kind.ranges[0], kind.parameters_attention > 0);
            (document.layers.iter().map(row).collect::<Vec<_>>(), document.shape.linear_attention_state)
        };
        let (linear, full) = (Some(Mixer::Linear), Some(Mixer::Attention));
        let (layers, state) = listed("qwen3_next");
        assert_eq!(
            layers,
            [(Kind::Experts, linear, 36, [0, 2], true), (Kind::Experts, full, 12, [3, 3], true)],
            "qwen3_next"
        );
        assert_eq!(state, Some(32 * 128 * 128 + 3 * 8192));
        let (layers, _) = listed("nemotron_h");
        let expected = [
            (Kind::None, linear, 24, [0, 0], true),
            (Kind::Dense, None, 24, [1, 1], false),
            (Kind::None, full, 4, [7, 7], true),
        ];
        assert_eq!(layers, expected, "nemotron_h");
    }

    #[test]
    fn different_layers_are_listed_separately() {
        let deepseek = document("deepseek-v3");
        let kinds: Vec<_> =
            deepseek.layers.iter().map(|kind| (kind.kind, kind.count, kind.ranges.as_slice())).collect();
        assert_eq!(kinds, [(Kind::Dense, 3, &[[0, 2]][..]), (Kind::Experts, 58, &[[3, 60]])]);
        assert_eq!(deepseek.parameters_per_layer, deepseek.layers[1].parameters);
        let mut alternating = Model::load("qwen3-30b-a3b").unwrap();
        let mixture = alternating.mixture.as_mut().unwrap();
        (mixture.layer_step, mixture.layer_offset) = (2, 1);
        let layers = ModelDocument::new(&alternating).layers;
        assert_eq!((layers[0].kind, layers[0].count, layers[0].ranges[1]), (Kind::Dense, 24, [2, 2]));
        assert_eq!(layers[0].parameters_router, 0);
    }
}
