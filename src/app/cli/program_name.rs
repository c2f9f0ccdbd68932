//! The names of the programs.

/// A program of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgramName {
    /// The one that people start; links no MPI
    #[default]
    Commgauge,
    /// Runs a suite file in one launch
    CommgaugeSuite,
    /// Collectives over sizes, with the flags of nccl-tests
    CommgaugeSweep,
    /// The traffic of a model's step
    CommgaugeStep,
    /// Every two ranks
    CommgaugePairs,
}
