//! Device memory that grows and is reused between cases.

use super::abi::SUCCESS;
use super::driver::{self, CUdeviceptr};
use super::library::Library;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;

/// Plain device memory, never from a pool and never managed, or NCCL's own; given back when it must grow, and by the driver when the
/// process ends.
///
/// Memory on which a graph captured calls is kept until the communicators are gone ([`Arena::release_kept`]): NCCL registers it by its
/// address for the graph, and withdraws that only at some later group of calls (every eleventh looks for graphs that are gone:
/// `GROUP_MAX_RECLAIM_STEPS` in its `src/group.cc`). Until then it takes whatever is allocated at that address for the memory that was
/// there, and reads and writes the other ranks' old memory: seen with NCCL 2.30.7 as sums that lack a rank.
#[derive(Default)]
pub(super) struct Arena {
    memory: Memory,
    is_captured: bool,
    kept: Vec<Memory>,
    /// NCCL, if it allocates further memory instead of the driver, as required for registered buffers and symmetric windows.
    from_nccl: Option<&'static Library>,
}

/// One allocation; none where the address is 0.
#[derive(Clone, Copy, Default)]
struct Memory {
    address: CUdeviceptr,
    bytes: usize,
    /// NCCL, if it is from there.
    from_nccl: Option<&'static Library>,
}

impl Arena {
    /// Where further memory is allocated: by the driver, or by NCCL. Memory allocated by the other one is given back.
    pub fn take_from(&mut self, nccl: Option<&'static Library>) -> Result<()> {
        self.from_nccl = nccl;
        if self.memory.is_from(nccl) { Ok(()) } else { self.release() }
    }

    /// At least `bytes` bytes. Their content is left over from earlier use.
    ///
    /// # Errors
    /// If the device has not enough memory; the previous memory is then freed all the same.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.reserve_where(bytes, |length, wanted| length >= wanted)
    }

    /// Exactly this many bytes, the same as on the other ranks.
    pub fn reserve_exactly(&mut self, bytes: u64) -> Result<()> {
        self.reserve_where(bytes, |length, wanted| length == wanted)
    }

    fn reserve_where(&mut self, bytes: u64, fits: impl Fn(usize, usize) -> bool) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        if fits(self.memory.bytes, bytes) {
            return Ok(());
        }
        self.release()?;
        let known = self.kept.iter().position(|kept| kept.is_from(self.from_nccl) && fits(kept.bytes, bytes));
        (self.memory, self.is_captured) = match known {
            Some(index) => (self.kept.swap_remove(index), true),
            None => (Memory::allocate(bytes, self.from_nccl)?, false),
        };
        Ok(())
    }

    /// A graph captures calls on this memory.
    pub fn note_capture(&mut self) {
        self.is_captured = true;
    }

    /// Gives the memory back, or keeps it where a graph captured calls on it.
    pub fn release(&mut self) -> Result<()> {
        let memory = std::mem::take(&mut self.memory);
        if std::mem::take(&mut self.is_captured) && memory.address != 0 {
            self.kept.push(memory);
            return Ok(());
        }
        memory.free()
    }

    /// Frees what was kept; the communicators that captured calls on it are gone.
    pub fn release_kept(&mut self) -> Result<()> {
        self.is_captured = false;
        std::mem::take(&mut self.kept).into_iter().try_for_each(Memory::free)
    }

    /// How many of `bytes` bytes there are without any more free memory of the device: what would be used again, or be freed.
    pub fn available(&self, bytes: u64, from_nccl: Option<&'static Library>) -> u64 {
        let fits = |memory: &&Memory| memory.is_from(from_nccl) && memory.bytes as u64 >= bytes;
        let reused = if self.kept.iter().chain([&self.memory]).any(|memory| fits(&memory)) { bytes } else { 0 };
        reused.max(self.releasable())
    }

    /// Bytes that releasing it would free.
    pub fn releasable(&self) -> u64 {
        if self.is_captured { 0 } else { self.memory.bytes as u64 }
    }

    /// Start address; 0 before anything was reserved.
    #[inline(always)]
    pub fn address(&self) -> CUdeviceptr {
        self.memory.address
    }
}

impl Memory {
    fn allocate(bytes: usize, from_nccl: Option<&'static Library>) -> Result<Memory> {
        let address = match from_nccl {
            None => driver::allocate(bytes),
            Some(library) => allocate_by_nccl(bytes, library),
        };
        let address = address.map_err(|cause| {
            let free = driver::memory().map_or_else(|_| "unknown".to_owned(), |(free, _)| Bytes(free).to_string());
            Error::environment(format!(
                "{} of device memory are not to be had, {free} are free: {cause}",
                Bytes(bytes as u64)
            ))
        })?;
        Ok(Memory { address, bytes, from_nccl })
    }

    /// Whether it was allocated by NCCL, or by the driver where that is none.
    fn is_from(&self, nccl: Option<&'static Library>) -> bool {
        self.from_nccl.is_some() == nccl.is_some()
    }

    fn free(self) -> Result<()> {
        if self.address == 0 {
            return Ok(());
        }
        if let Some(library) = self.from_nccl {
            let free = library.newer(library.call.memory_free, "ncclMemFree")?;
            // SAFETY: the address is from `ncclMemAlloc`, forgotten here, and nothing is registered on it any more.
            let code = unsafe { free(self.address as *mut std::ffi::c_void) };
            return if code == SUCCESS { Ok(()) } else { Err(library.failure(code, "ncclMemFree")) };
        }
        // SAFETY: the address is from `allocate` and forgotten here; freeing waits for the device (CUDA driver API, 6.13).
        unsafe { driver::free(self.address) }
    }
}

fn allocate_by_nccl(bytes: usize, library: &'static Library) -> Result<CUdeviceptr> {
    let allocate = library.newer(library.call.memory_allocate, "ncclMemAlloc")?;
    let mut address = std::ptr::null_mut();
    // SAFETY: the address is ours.
    library.check(unsafe { allocate(&mut address, bytes) }, "ncclMemAlloc")?;
    Ok(address as CUdeviceptr)
}
