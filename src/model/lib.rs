//! What is asked and what was measured, as data: suites, models and machine files; layouts; the ops and cases of every style; records.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod config;
pub mod layout;
pub mod record;
pub mod workload;
