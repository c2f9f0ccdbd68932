//! The contract of matrix products that a rank computes by itself.
//!
//! On a GPU the three matrices are in device memory, `run` enqueues the library's product between two events on the
//! rank's stream and waits for the second, and `check` copies the few elements that it compares to the host.

#[cfg(feature = "mpi")]
pub(super) mod host;

use commgauge_base::units::Bytes;
use commgauge_model::workload::ProductShape;

/// Bytes of the three matrices.
pub fn product_bytes(shape: &ProductShape) -> Bytes {
    let elements = [(shape.m, shape.n), (shape.m, shape.k), (shape.n, shape.k)].map(|(a, b)| a.saturating_mul(b));
    let all = elements.iter().fold(0u64, |sum, elements| sum.saturating_add(*elements));
    Bytes(all.saturating_mul(shape.element_type.size()))
}
