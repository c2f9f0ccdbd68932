//! Shared by `commgauge ops` and `commgauge-step`: a model, a layout and a step, given by flags; and the measurements
//! of `commgauge-step`, and the trace that it replays instead.

mod arguments;
mod flags;
mod given_keys;
pub(super) mod style_name;
mod trace_files;
pub(super) mod without_effect;

pub use arguments::StepArguments;
pub use flags::StepFlags;
pub use trace_files::without_trace;
