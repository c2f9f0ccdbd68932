//! The definition of every program's command line, of which help, completions, man pages and lists are made.

use super::commgauge::Commgauge;
use super::name::ProgramName;
use super::pairs::PairsRun;
use super::step::StepRun;
use super::suite::SuiteRun;
use super::sweep::Sweep;
use crate::cli::help;
use clap::{CommandFactory, ValueEnum};

impl ProgramName {
    /// The definition of its command line.
    pub fn definition(self) -> clap::Command {
        help::finished(match self {
            ProgramName::Commgauge => Commgauge::command(),
            ProgramName::CommgaugeSuite => SuiteRun::command(),
            ProgramName::CommgaugeSweep => Sweep::command(),
            ProgramName::CommgaugeStep => StepRun::command(),
            ProgramName::CommgaugePairs => PairsRun::command(),
        })
    }
}

/// The definitions of all programs.
pub fn definitions() -> Vec<clap::Command> {
    ProgramName::value_variants().iter().map(|program| program.definition()).collect()
}
