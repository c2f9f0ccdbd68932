//! The command line: parses flags, runs commands and returns exit codes.

mod backend_name;
pub mod calibrate;
pub mod computing;
pub mod degrees;
pub mod doctor;
pub mod expect;
pub mod export;
pub mod fit;
mod help;
pub mod history;
pub mod import;
pub mod judge;
mod launched_arguments;
pub mod layout;
mod like;
pub mod list;
pub mod manual;
pub mod model;
pub mod ops;
pub mod output;
mod pairs;
pub mod plan;
pub mod programs;
mod published;
pub mod rank;
pub mod report;
pub mod run;
pub mod show;
pub mod simulate;
pub mod step;
mod suite;
mod sweep;
pub mod trace;
pub mod validate;

#[cfg(feature = "mpi")]
pub mod launched;

pub use launched_arguments::LaunchedArguments;
pub use output::{
    AnswerArguments, AnswerFormat, AnswerOutput, OutputArguments, TableOrJson, TextOutput, VerdictOutput,
};
pub use pairs::PairsArguments;
pub use suite::suite_work;
pub use sweep::{Chosen, SweepArguments};
