//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`.

mod arguments;
mod flags;
pub(super) mod style_name;

pub use arguments::StepArguments;
pub use flags::StepFlags;

use crate::session::ReplayRequest;
use crate::workload::replay::ReplayOptions;
use crate::workload::step::Step;

/// Replay requests for every step of a layout.
pub(crate) fn replays_of<'a>(steps: &'a [Step<'a>], options: ReplayOptions) -> Vec<ReplayRequest<'a>> {
    (0..).zip(steps).map(|(step_index, step)| ReplayRequest { step, step_index, options }).collect()
}
