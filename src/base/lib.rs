//! The ground: bytes, seconds and rates, errors, element types, collectives and what each rank sends and receives, statistics, test patterns.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

#[cfg(feature = "test-support")]
pub mod checkout;
pub mod collective;
pub mod comma_separated;
pub mod digest;
pub mod element;
pub mod error;
pub mod geometry;
pub mod host_clock;
pub mod input_file;
pub mod message;
pub mod output_file;
pub mod pattern;
pub mod process_stat;
pub mod progress;
pub mod quote;
pub mod random;
pub mod rank_list;
pub mod sample;
pub mod session_folder;
pub mod shared_memory;
pub mod stats;
pub mod stop_signal;
pub mod units;
pub mod variant;
pub mod visible;
