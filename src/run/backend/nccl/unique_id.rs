//! Unique ids of communicators, as they travel over MPI.

use super::abi::UniqueId;
use commgauge_base::error::{Error, Result};

/// Bytes of an id.
pub(super) const UNIQUE_ID_BYTES: usize = 128;

/// Decodes an id received over MPI.
pub(super) fn read_id(bytes: &[u8]) -> Result<UniqueId> {
    let broken = |_| Error::environment(format!("a unique id of NCCL came with {} bytes instead of 128", bytes.len()));
    bytes.try_into().map(UniqueId).map_err(broken)
}
