//! What `commgauge ops` and `commgauge-step` share: a model, a layout and a step, given by flags.

mod flags;

pub use flags::StepFlags;
