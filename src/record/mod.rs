//! The results file of a run: an append-only journal of JSON lines, raw enough to redo every statistic.
//!
//! [`line`] holds the format's own types, apart from the inner types of the program and versioned.

pub mod line;
pub mod provenance;

pub use line::{FORMAT, Line, VERSION};
