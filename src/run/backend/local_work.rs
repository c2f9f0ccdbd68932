//! Work that a rank does by itself, with nobody to wait for: a matrix product, a copy.

use super::Mismatch;
use commgauge_base::error::Result;

/// Bound work with its buffers, filled with known data.
pub trait LocalWork {
    /// Carries it out once and returns its time in nanoseconds on the clock of the device that does it. Allocates nothing.
    fn run(&mut self) -> Result<u64>;

    /// Compares what the last run left, or a part of it, with what is expected. The first wrong element, if any.
    fn check(&self) -> Result<Option<Mismatch>>;
}
