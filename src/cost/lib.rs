//! Seconds from bytes: from the links of a machine file, and from a cost model fitted to records.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod cost;
pub mod machine_time;
