//! Flags in, exit code out: what the programs share.

#[cfg(feature = "mpi")]
pub mod launched;
pub mod layout;
mod output;
mod places;
pub mod report;
pub mod run;
pub mod schema;
mod suite;
mod sweep;
mod sweep_plan;

pub use output::OutputArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
