//! What `commgauge ops` and `commgauge-step` share: a model, a layout and a step, given by flags; and what `commgauge-step`
//! measures of it.

mod arguments;
mod flags;

pub use arguments::StepArguments;
pub use flags::StepFlags;

use crate::workload::Style;

/// Reads the name of a style of a model's step.
pub(super) fn parse_style(text: &str) -> std::result::Result<Style, String> {
    Style::OF_A_STEP.into_iter().find(|style| style.name() == text).ok_or_else(|| {
        let names: Vec<_> = Style::OF_A_STEP.iter().map(|style| style.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}
