//! Flags in, exit code out: the command line, reports, the doctor, and the launch command.

#![forbid(unsafe_code)]

pub mod chart;
pub mod cli;
pub mod doctor;
pub mod launch;
pub mod report;
pub mod store;
