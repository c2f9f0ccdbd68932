//! Files of other tools: traces of jobs, results of other benchmarks, exports to other planners.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod interop;
pub mod trace;
