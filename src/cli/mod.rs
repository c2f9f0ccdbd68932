//! Flags in, exit code out: what the programs share.

#[cfg(feature = "mpi")]
pub mod launched;
pub mod model;
mod model_document;
mod model_table;
mod output;
mod places;
pub mod report;
pub mod run;
pub mod schema;
mod suite;
mod sweep;
mod sweep_plan;
mod table_or_json;

pub use output::OutputArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
pub use table_or_json::{AnswerArguments, TableOrJson};
