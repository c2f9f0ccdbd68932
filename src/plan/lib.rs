//! The fastest layout that fits into memory, and the agreement of predictions with published runs.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod planner;
