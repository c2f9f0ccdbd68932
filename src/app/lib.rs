//! Flags in, exit code out: the command line, reports, the doctor, and the launch command.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod chart;
pub mod cli;
pub mod doctor;
pub mod launch;
pub mod report;
pub mod store;
