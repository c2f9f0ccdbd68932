//! The table of `commgauge model`: parameters, shape, and inferred values, fitted to a width.
//!
//! Nothing is counted here; all numbers come from the document.

use super::model_document::{Kind, LayerKind, ModelDocument, Shape};
use crate::report::document::GAP;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use commgauge_base::visible::visible_lines;
use commgauge_model::config::{LatentAttention, LinearAttention, Mixer, Mixture};
use serde_json::Value;
use std::fmt::Write;

/// A rule under the headings and nothing else, as all tables have. Texts are broken within their cells here.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-'));
/// Ranges of layers that are listed; the rest is only counted.
const MAX_RANGES: usize = 4;

/// The complete table.
pub(super) fn table(document: &ModelDocument, width: u16) -> String {
    let mut out = format!("{}  ({}, {})\n\n", document.name, document.model_type, document.file);
    out.push_str(&lines(parameters(document), &["parameters", "count", "billion"], &[1, 2], width));
    out.push('\n');
    out.push_str(&lines(shape(&document.shape), &["shape", ""], &[], width));
    out.push('\n');
    if document.inferred.is_empty() {
        out.push_str("Nothing was inferred: the file says it all.\n");
    } else {
        let rows = document.inferred.iter().map(|one| vec![one.field.clone(), taken_as(&one.value), one.why.clone()]);
        out.push_str(&lines(rows.collect(), &["absent field", "taken as", "why"], &[], width));
    }
    visible_lines(&out).into_owned()
}

fn lines(rows: Vec<Vec<String>>, headings: &[&str], right: &[usize], width: u16) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.force_no_tty();
    table.set_header(headings);
    for row in rows {
        table.add_row(row);
    }
    for index in 0..headings.len() {
        let Some(column) = table.column_mut(index) else { continue };
        column.set_padding((0, if index + 1 == headings.len() { 0 } else { GAP as u16 }));
        column.set_cell_alignment(if right.contains(&index) { CellAlignment::Right } else { CellAlignment::Left });
    }
    let text = table.to_string();
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{}", line.trim_end());
        out
    })
}

fn parameters(document: &ModelDocument) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |label: String, count: u64| {
        rows.push(vec![label, grouped(count), format!("{:.3}", count as f64 * 1e-9)]);
    };
    row("total".to_owned(), document.parameters_total);
    row("active per token".to_owned(), document.parameters_active);
    row("embedding".to_owned(), document.parameters_embedding);
    match document.shape.tied_embeddings {
        true => row("output projection (the embedding)".to_owned(), 0),
        false => row("output projection".to_owned(), document.parameters_output_projection),
    }
    row("final norm".to_owned(), document.parameters_final_norm);
    for kind in &document.layers {
        row(heading(kind, document), kind.parameters);
        match kind.mixer {
            Some(Mixer::Attention) => row("  attention".to_owned(), kind.parameters_attention),
            Some(Mixer::Linear) => row("  linear attention".to_owned(), kind.parameters_attention),
            None => {}
        }
        if kind.kind != Kind::None {
            row("  feed-forward".to_owned(), kind.parameters_feed_forward);
        }
        if let (Kind::Experts, Some(experts)) = (kind.kind, &document.shape.experts) {
            row("    router".to_owned(), kind.parameters_router);
            row(format!("    one of {} experts", experts.experts), kind.parameters_one_expert);
            if experts.shared_experts > 0 {
                row("    shared experts".to_owned(), kind.parameters_shared_experts);
            }
        }
        row("  norms".to_owned(), kind.parameters_norms);
        if kind.parameters_active != kind.parameters {
            row("  active per token".to_owned(), kind.parameters_active);
        }
    }
    if document.shape.prediction_layers > 0 {
        row("prediction layers, not in total".to_owned(), document.parameters_prediction_layers);
    }
    rows
}

fn heading(kind: &LayerKind, document: &ModelDocument) -> String {
    let is_hybrid = document.shape.linear_attention.is_some();
    let mixer = match kind.mixer {
        _ if !is_hybrid => "",
        Some(Mixer::Attention) => "attention ",
        Some(Mixer::Linear) => "linear-attention ",
        None => "",
    };
    let feed_forward = match kind.kind {
        Kind::Dense if is_hybrid && kind.mixer.is_none() => "feed-forward ",
        Kind::Dense => "dense ",
        Kind::Experts => "expert ",
        Kind::None => "",
    };
    let what = format!("{mixer}{feed_forward}layers");
    if document.layers.len() == 1 {
        return format!("each of {} {what}", kind.count);
    }
    let mut ranges: Vec<String> = kind
        .ranges
        .iter()
        .take(MAX_RANGES)
        .map(|[first, last]| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    if kind.ranges.len() > MAX_RANGES {
        ranges.push("...".to_owned());
    }
    format!("each of {} {what} ({})", kind.count, ranges.join(", "))
}

fn shape(shape: &Shape) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |label: &str, value: String| rows.push(vec![label.to_owned(), value]);
    row("layers", shape.layers.to_string());
    row("hidden size", shape.hidden.to_string());
    let gate = if shape.attention_gate { ", with a gate beside each" } else { "" };
    row("query heads", format!("{} of {}{gate}", shape.heads, shape.head_dimension));
    row("key and value heads", shape.kv_heads.to_string());
    if let Some(latent) = &shape.latent_attention {
        row("latent attention", latent_attention(latent));
    }
    if let Some(linear) = &shape.linear_attention {
        row("linear attention", linear_attention(linear, shape.linear_attention_state.unwrap_or(0)));
    }
    let matrices = if shape.gated { "gate, up and down" } else { "up and down" };
    let activation = shape.activation.as_deref().map_or(String::new(), |name| format!(", {name}"));
    row("feed-forward", format!("{} ({matrices}{activation})", shape.feed_forward));
    if let Some(experts) = &shape.experts {
        row("experts", experts_text(experts));
    }
    row("vocabulary", shape.vocabulary.to_string());
    let learned = if shape.learned_positions { " (a learned table)" } else { "" };
    row("longest sequence", format!("{}{learned}", shape.maximum_positions));
    if let Some(tokens) = shape.sliding_window {
        row("sliding window", format!("{tokens} tokens in {} layers", shape.sliding_window_layers));
    }
    if shape.prediction_layers > 0 {
        row("prediction layers", shape.prediction_layers.to_string());
    }
    row("tied embeddings", if shape.tied_embeddings { "yes" } else { "no" }.to_owned());
    row("biases", biases(shape));
    if shape.parallel_residual {
        row("parallel residual", "attention and feed-forward read the same input".to_owned());
    }
    row("published in", shape.element_type.map_or("not said", |element| element.name()).to_owned());
    rows
}

fn latent_attention(latent: &LatentAttention) -> String {
    let queries = latent.query_rank.map_or("none".to_owned(), |rank| rank.to_string());
    format!(
        "rank of queries {queries}, of keys and values {}; heads {} + {} rotated, values {}",
        latent.kv_rank, latent.plain_dimension, latent.rotary_dimension, latent.value_dimension
    )
}

fn linear_attention(linear: &LinearAttention, state: u64) -> String {
    format!(
        "{} in {} layers: {} key heads of {}, {} value heads of {}, a convolution of {} tokens, a state of {} numbers",
        linear.rule.name(),
        linear.layers.len(),
        linear.key_heads,
        linear.key_dimension,
        linear.value_heads,
        linear.value_dimension,
        linear.convolution_tokens,
        grouped(state)
    )
}

fn experts_text(experts: &Mixture) -> String {
    let mut text =
        format!("{} of {}, {} for each token", experts.experts, experts.expert_feed_forward, experts.experts_per_token);
    if let Some((groups, selected)) = experts.router_groups {
        let _ = write!(text, " out of {selected} of {groups} groups");
    }
    if experts.shared_experts > 0 {
        let _ = write!(text, "; {} shared, {} together", experts.shared_experts, experts.shared_feed_forward);
    }
    text
}

fn biases(shape: &Shape) -> String {
    let which = [
        (shape.query_key_value_bias, "queries, keys and values"),
        (shape.attention_output_bias, "attention output"),
        (shape.feed_forward_bias, "feed-forward"),
    ];
    let there: Vec<&str> = which.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect();
    if there.is_empty() { "none".to_owned() } else { there.join("; ") }
}

fn taken_as(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(truth) => if *truth { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

/// Formats 8030261248 as 8,030,261,248.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::config::Model;

    fn shown(name: &str, width: u16) -> String {
        table(&ModelDocument::new(&Model::load(name).unwrap()), width)
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
        commgauge_base::checkout::enter_checkout();
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
        let text = table(&ModelDocument::new(&model), 80);
        assert!(!text.contains('\u{1b}') && text.contains("[31mred"), "{text}");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (8_030_261_248, "8,030,261,248")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
