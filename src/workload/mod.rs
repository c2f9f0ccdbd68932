//! What to run, as plain data: the ops of sweeps and of the parallel styles of a model, and the cases made of them.

mod case;
mod op;
mod plan;

pub use case::Case;
pub use op::{Op, Style};
pub use plan::WorkPlan;
