//! What follows from records and machine files: predicted times, plans, verdicts, and other tools' files.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod cost;
pub mod interop;
pub mod machine_time;
pub mod planner;
pub mod trace;
pub mod verdict;
