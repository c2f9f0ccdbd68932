//! Device memory that grows and is reused between cases.

use super::abi::SUCCESS;
use super::driver::{self, CUdeviceptr};
use super::library::Library;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;

/// A stretch of plain device memory, never from a pool and never managed, or of NCCL's own; given back when it must grow, and by the
/// driver when the process ends.
#[derive(Default)]
pub(super) struct Arena {
    address: CUdeviceptr,
    bytes: usize,
    /// NCCL, if it allocates the memory instead of the driver, as required for registered buffers and symmetric
    /// windows.
    from_nccl: Option<&'static Library>,
}

impl Arena {
    /// Where further memory is allocated: by the driver, or by NCCL. Memory allocated by the other one is freed.
    pub fn take_from(&mut self, nccl: Option<&'static Library>) -> Result<()> {
        if self.from_nccl.is_some() != nccl.is_some() {
            self.release()?;
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

    /// At least `bytes` bytes. Their content is left over from earlier use.
    ///
    /// # Errors
    /// If the device has not enough memory; the previous memory is then freed all the same.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        if self.bytes >= bytes {
            return Ok(());
        }
        self.release()?;
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

    /// Exactly this many bytes, the same as on the other ranks.
    pub fn reserve_exactly(&mut self, bytes: u64) -> Result<()> {
        if self.len() != bytes {
            self.release()?;
        }
        self.reserve(bytes)
    }

    /// Frees all memory.
    pub fn release(&mut self) -> Result<()> {
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

    /// Start address; 0 before anything was reserved.
    #[inline(always)]
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes as u64
    }
}
