//! Flags in, exit code out: what the programs share.

pub mod fit;
mod fit_query;
pub mod import;
#[cfg(feature = "mpi")]
pub mod launched;
pub mod model;
mod model_document;
mod model_table;
pub mod ops;
mod output;
mod places;
mod plain_table;
pub mod predict;
pub mod report;
pub mod run;
pub mod schema;
pub mod step;
mod suite;
mod sweep;
mod sweep_plan;
mod table_or_json;

pub use output::OutputArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
pub use table_or_json::{AnswerArguments, TableOrJson};
