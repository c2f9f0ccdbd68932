//! Flags in, exit code out: what the programs share.

pub mod compare;
mod degrees;
pub mod fit;
mod fit_query;
pub mod gate;
pub mod import;
#[cfg(feature = "mpi")]
pub mod launched;
mod launched_arguments;
pub mod layout;
pub mod locate;
pub mod model;
mod model_document;
mod model_table;
pub mod ops;
mod output;
mod pairs;
mod places;
pub mod predict;
pub mod report;
pub mod run;
mod sampling;
pub mod schema;
pub mod simulate;
pub mod step;
mod suite;
mod sweep;
mod sweep_plan;
mod table_or_json;
mod verdict_output;

use crate::report::plain_table;
pub use launched_arguments::LaunchedArguments;
pub use output::OutputArguments;
pub use pairs::PairsArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
pub use table_or_json::{AnswerArguments, TableOrJson};
pub use verdict_output::VerdictOutput;
