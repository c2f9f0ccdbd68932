//! Flags in, exit code out: what the programs share.

pub mod compare;
mod degrees;
pub mod doctor;
pub mod expect;
pub mod export;
pub mod fit;
mod fit_plots;
mod fit_query;
mod fit_table;
pub mod gate;
pub mod history;
pub mod import;
mod launch_table;
#[cfg(feature = "mpi")]
pub mod launched;
mod launched_arguments;
#[cfg(feature = "mpi")]
mod launched_check;
pub mod layout;
pub mod list;
pub mod locate;
pub mod manual;
pub mod model;
mod model_document;
mod model_table;
mod nccl_arguments;
pub mod ops;
mod output;
mod pairs;
mod places;
pub mod plan;
pub mod predict;
pub mod programs;
pub mod rank;
pub mod rates;
pub mod report;
pub mod run;
mod sampling;
pub mod schema;
pub mod selftest;
pub mod simulate;
pub mod step;
mod suite;
mod sweep;
mod sweep_plan;
mod table_or_json;
pub mod validate;
mod verdict_output;

use crate::report::plain_table;
pub use launched_arguments::LaunchedArguments;
pub use output::OutputArguments;
pub use pairs::PairsArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
pub use table_or_json::{AnswerArguments, TableOrJson};
pub use verdict_output::VerdictOutput;
