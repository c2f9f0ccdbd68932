//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`.

mod arguments;
mod flags;

pub use arguments::StepArguments;
pub use flags::StepFlags;

use commgauge_model::workload::Style;

/// Parses the name of a style of a model's step.
pub(super) fn parse_style(text: &str) -> std::result::Result<Style, String> {
    Style::OF_A_STEP.into_iter().find(|style| style.name() == text).ok_or_else(|| {
        let names: Vec<_> = Style::OF_A_STEP.iter().map(|style| style.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}
