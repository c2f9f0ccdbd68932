//! Device memory that grows and is kept between cases.

use super::driver::{self, CUdeviceptr};
use crate::error::{Error, Result};
use crate::units::Bytes;

/// A stretch of plain device memory. Never from a pool and never managed, so that NCCL may register it; given back when it must grow,
/// and by the driver when the process ends.
#[derive(Debug, Default)]
pub(super) struct Arena {
    address: CUdeviceptr,
    bytes: usize,
}

impl Arena {
    /// At least `bytes` bytes. What they hold is left over.
    ///
    /// # Errors
    /// Where the device has not so much left; what was held is then given back all the same.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        if self.bytes >= bytes {
            return Ok(());
        }
        self.give_back()?;
        self.address = driver::allocate(bytes).map_err(|cause| {
            let free = driver::memory().map_or_else(|_| "unknown".to_owned(), |(free, _)| Bytes(free).to_string());
            Error::environment(format!(
                "{} of device memory are not to be had, {free} are free: {cause}",
                Bytes(bytes as u64)
            ))
        })?;
        self.bytes = bytes;
        Ok(())
    }

    /// Gives everything back.
    pub fn give_back(&mut self) -> Result<()> {
        let address = std::mem::take(&mut self.address);
        self.bytes = 0;
        if address == 0 {
            return Ok(());
        }
        // SAFETY: the address is from `allocate` and forgotten here; freeing waits for the device (CUDA driver API, 6.13).
        unsafe { driver::free(address) }
    }

    /// Where it begins; 0 before anything was reserved.
    #[inline(always)]
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// How long it is.
    pub fn len(&self) -> u64 {
        self.bytes as u64
    }
}
