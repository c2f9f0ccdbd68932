//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`.

mod arguments;
mod flags;

pub use arguments::StepArguments;
pub use flags::StepFlags;

use commgauge_model::workload::Style;
use commgauge_model::workload::replay::ReplayOptions;
use commgauge_model::workload::step::Step;
use commgauge_run::session::ReplayRequest;

/// Replay requests for every step of a layout.
pub(crate) fn replays_of<'a>(steps: &'a [Step<'a>], options: ReplayOptions) -> Vec<ReplayRequest<'a>> {
    (0..).zip(steps).map(|(step_index, step)| ReplayRequest { step, step_index, options }).collect()
}

/// Parses the name of a style of a model's step.
pub(super) fn parse_style(text: &str) -> std::result::Result<Style, String> {
    Style::OF_A_STEP.into_iter().find(|style| style.name() == text).ok_or_else(|| {
        let names: Vec<_> = Style::OF_A_STEP.iter().map(|style| style.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}
