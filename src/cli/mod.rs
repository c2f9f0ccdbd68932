//! Flags in, exit code out: what the programs share.

mod sweep;
mod sweep_plan;

pub use sweep::{Chosen, SweepArguments};
pub mod report;
pub mod schema;
pub mod run;
