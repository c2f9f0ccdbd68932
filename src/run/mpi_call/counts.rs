//! Numbers of elements in the form of the C interface, whose whole numbers have 32 bits.

use super::communicator::int;
use commgauge_base::error::{Error, Result};
use std::ffi::c_int;

/// Element counts and displacements in the form of the C interface.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) counts: Vec<c_int>,
    pub(super) displacements: Vec<c_int>,
}

impl Counts {
    /// Those of contiguous blocks.
    pub(super) fn end_to_end(blocks: &[u64]) -> Result<Counts> {
        let mut next = 0u64;
        let mut counts = Vec::with_capacity(blocks.len());
        let mut displacements = Vec::with_capacity(blocks.len());
        for block in blocks {
            counts.push(count(*block)?);
            displacements.push(count(next)?);
            next += block;
        }
        Ok(Counts { counts, displacements })
    }
}

/// A number of elements.
///
/// # Errors
/// If it exceeds the range of the C interface.
pub(super) fn count(elements: u64) -> Result<c_int> {
    usize::try_from(elements)
        .map_err(|_| Error::usage("more elements than this machine can address"))
        .and_then(|e| int(e, "elements"))
}
