//! The contract of matrix products that a rank computes by itself.
//!
//! On a GPU the three matrices are in device memory, `run` enqueues the library's product between two events on the
//! rank's stream and waits for the second, and `check` copies the few elements that it compares to the host.

#[cfg(feature = "mpi")]
pub(super) mod host;

use super::Mismatch;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_model::workload::ProductShape;

/// A product with its matrices, filled with known data.
pub trait Product {
    /// Computes the product once and returns its time in nanoseconds on the clock of the computing device. Allocates
    /// nothing.
    fn run(&mut self) -> Result<u64>;

    /// Compares a few elements of the last result with independent sums. The first wrong one, if any.
    fn check(&self) -> Result<Option<Mismatch>>;
}

/// Bytes of the three matrices.
pub fn product_bytes(shape: &ProductShape) -> Bytes {
    let elements = [(shape.m, shape.n), (shape.m, shape.k), (shape.n, shape.k)].map(|(a, b)| a.saturating_mul(b));
    let all = elements.iter().fold(0u64, |sum, elements| sum.saturating_add(*elements));
    Bytes(all.saturating_mul(shape.element.size()))
}
