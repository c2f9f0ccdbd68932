//! Device memory that grows and is kept between cases.

use super::abi::SUCCESS;
use super::driver::{self, CUdeviceptr};
use super::library::Library;
use crate::error::{Error, Result};
use crate::units::Bytes;

/// A stretch of plain device memory, never from a pool and never managed, or of NCCL's own; given back when it must grow, and by the
/// driver when the process ends.
#[derive(Default)]
pub(super) struct Arena {
    address: CUdeviceptr,
    bytes: usize,
    /// Where NCCL allocates it instead of the driver, which it needs to make use of registered buffers and of symmetric windows.
    from_nccl: Option<&'static Library>,
}

impl Arena {
    /// Where further memory comes from: the driver, or NCCL. What was held of the other is given back.
    pub fn take_from(&mut self, nccl: Option<&'static Library>) -> Result<()> {
        if self.from_nccl.is_some() != nccl.is_some() {
            self.give_back()?;
        }
        self.from_nccl = nccl;
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> Result<CUdeviceptr> {
        let Some(library) = self.from_nccl else { return driver::allocate(bytes) };
        let allocate = library.newer(library.call.memory_allocate, "ncclMemAlloc")?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the address is ours.
        library.check(unsafe { allocate(&mut address, bytes) }, "ncclMemAlloc")?;
        Ok(address as CUdeviceptr)
    }

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
        self.address = self.allocate(bytes).map_err(|cause| {
            let free = driver::memory().map_or_else(|_| "unknown".to_owned(), |(free, _)| Bytes(free).to_string());
            Error::environment(format!(
                "{} of device memory are not to be had, {free} are free: {cause}",
                Bytes(bytes as u64)
            ))
        })?;
        self.bytes = bytes;
        Ok(())
    }

    /// So many bytes, and no more: as many as other ranks have.
    pub fn reserve_exactly(&mut self, bytes: u64) -> Result<()> {
        if self.len() != bytes {
            self.give_back()?;
        }
        self.reserve(bytes)
    }

    /// Gives everything back.
    pub fn give_back(&mut self) -> Result<()> {
        let address = std::mem::take(&mut self.address);
        self.bytes = 0;
        if address == 0 {
            return Ok(());
        }
        if let Some(library) = self.from_nccl {
            let free = library.newer(library.call.memory_free, "ncclMemFree")?;
            // SAFETY: the address is from `ncclMemAlloc`, forgotten here, and no window is registered on it any more.
            let code = unsafe { free(address as *mut std::ffi::c_void) };
            return if code == SUCCESS { Ok(()) } else { Err(library.failure(code, "ncclMemFree")) };
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
