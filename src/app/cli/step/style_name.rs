//! Reads the name of a style of a step.

use commgauge_model::workload::Style;

/// Parses the name of a style of a model's step.
pub fn parse_style(text: &str) -> std::result::Result<Style, String> {
    Style::OF_A_STEP.into_iter().find(|style| style.name() == text).ok_or_else(|| {
        let names: Vec<_> = Style::OF_A_STEP.iter().map(|style| style.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}
