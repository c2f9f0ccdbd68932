//! The command line: parses flags, runs commands and returns exit codes.

pub mod calibrate;
pub mod computing;
pub mod doctor;
pub mod expect;
mod help;
pub mod interop;
pub mod judge;
mod launched_arguments;
pub mod layout;
mod like;
pub mod output;
pub mod plan;
pub mod programs;
pub mod rank;
pub mod report;
pub mod run;
pub mod show;
pub mod simulate;
pub mod step;
mod suite;
mod sweep;
pub mod trace;
mod validate;
pub mod work;

#[cfg(feature = "mpi")]
pub mod launched;

pub use launched_arguments::LaunchedArguments;
pub use output::{
    AnswerArguments, AnswerFormat, AnswerOutput, OutputArguments, TableOrJson, TextOutput, VerdictOutput,
};
pub use suite::suite_work;
pub use sweep::{PairsArguments, SweepArguments};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

/// A command that has parts: `plan` searches for layouts, and `plan validate` is another thing to do.
#[derive(Clone, Debug)]
pub enum WithParts<C, P> {
    /// The command itself.
    Itself(C),
    /// One of its parts.
    Part(P),
}

impl<C: Args, P: Subcommand> Args for WithParts<C, P> {
    fn augment_args(command: Command) -> Command {
        C::augment_args(P::augment_subcommands(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .disable_help_subcommand(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Args, P: Subcommand> FromArgMatches for WithParts<C, P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => P::from_arg_matches(matches).map(WithParts::Part),
            None => C::from_arg_matches(matches).map(WithParts::Itself),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
