//! The ground: bytes, seconds and rates, errors, element types, collectives and their traffic per rank, statistics, test patterns.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod collective;
pub mod digest;
pub mod element;
pub mod embedded;
pub mod error;
pub mod geometry;
pub mod host;
pub mod nccl_conf;
pub mod output_file;
pub mod pattern;
pub mod progress;
pub mod random;
pub mod sample;
pub mod stats;
pub mod units;
pub mod variant;
pub mod visible;
pub mod writing;

#[cfg(any(test, feature = "test-support"))]
#[path = "../../tests/common/distributions.rs"]
pub mod testing;
