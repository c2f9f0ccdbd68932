//! What to run, as plain data: the ops of sweeps and of the parallel styles of a model, and the cases made of them.

mod build;
mod case;
mod data;
mod degrees;
mod estimate;
mod op;
mod pipeline;
mod plan;
pub mod schedule;
mod sweep;
mod tensor;
mod training_step;

pub use build::MOST_CASES;
pub use case::Case;
pub use op::{Op, Style};
pub use plan::WorkPlan;
