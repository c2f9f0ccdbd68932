//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`.

mod arguments;
mod flags;
mod given;
pub(super) mod style_name;

pub use arguments::StepArguments;
pub use flags::StepFlags;
