//! The ground: bytes, seconds and rates, errors, element types, collectives and their traffic per rank, statistics, test patterns.

// Messages go through `message::eprintln`, which does not panic where standard error is closed.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod collective;
pub mod digest;
pub mod element;
pub mod error;
pub mod geometry;
pub mod host;
pub mod output_file;
pub mod pattern;
pub mod progress;
pub mod quote;
pub mod random;
pub mod sample;
pub mod stats;
pub mod units;
pub mod variant;
pub mod visible;
pub mod writing;

#[cfg(feature = "test-support")]
pub mod checkout;

/// Reads the name of a plain enum; the error says which names there are.
pub fn named<T: strum::VariantArray + Copy + std::fmt::Display>(text: &str) -> Result<T, String> {
    let found = T::VARIANTS.iter().copied().find(|one| one.to_string() == text);
    let names = || T::VARIANTS.iter().map(T::to_string).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("found `{text}`; accepted: {}", names()))
}
