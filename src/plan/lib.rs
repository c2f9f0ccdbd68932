//! Which layout is fastest and fits into memory, and how far predictions agree with published runs.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod planner;
