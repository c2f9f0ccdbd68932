//! Buffers that are registered with NCCL before they are used: as plain registrations, or as symmetric windows of all
//! ranks.
//!
//! They are allocated by NCCL. Other memory it does not register for use between GPUs, and does not report that (NCCL
//! user guide, "User Buffer Registration"): times would be those of plain buffers under another name.

use super::communicator::{Communicator, Maker};
use super::library::Library;
use super::memory::Arena;
use super::windows::NO_WINDOWS;
use commgauge_base::error::{Error, Result};
use commgauge_base::variant::Buffers;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

/// Buffers that are registered with a communicator, until [`Registration::end`].
pub(super) struct Registration {
    library: &'static Library,
    communicator: Rc<Communicator>,
    buffers: Buffers,
    handles: Vec<*mut c_void>,
}

impl Registration {
    /// Registers the first bytes of some memory. Called by all ranks of the communicator with the same number of bytes, which every
    /// arena has; for windows, of memory that has the same length on all of them.
    ///
    /// # Errors
    /// Also if NCCL accepts the memory but does not register it.
    pub fn begin(
        maker: &Maker,
        communicator: Rc<Communicator>,
        buffers: Buffers,
        arenas: [&Arena; 2],
        bytes: u64,
    ) -> Result<Registration> {
        let mut registration = Registration { library: maker.library, communicator, buffers, handles: Vec::new() };
        for arena in arenas {
            match registration.one(maker, arena.address(), bytes as usize) {
                Ok(handle) => registration.handles.extend(handle),
                Err(error) => {
                    // The first error is the most informative one.
                    let _ = registration.end();
                    return Err(error);
                }
            }
        }
        Ok(registration)
    }

    fn one(&self, maker: &Maker, address: u64, bytes: usize) -> Result<Option<*mut c_void>> {
        match self.buffers {
            Buffers::Plain | Buffers::Allocated => Ok(None),
            Buffers::Registered => {
                let register = self.library.newer(self.library.call.register, "ncclCommRegister")?;
                let mut handle = null_mut();
                // SAFETY: the memory belongs to the arena, which outlives this registration; the handle is ours.
                let code = unsafe { register(self.communicator.raw(), address as *mut c_void, bytes, &mut handle) };
                self.library.check(code, "ncclCommRegister")?;
                made(
                    handle,
                    "ncclCommRegister registers nothing here: NCCL_LOCAL_REGISTER=0 or copies by the driver are set",
                )
            }
            Buffers::Symmetric => {
                // SAFETY: as above.
                let window = unsafe { maker.register_window(&self.communicator, address, bytes)? };
                made(window.unwrap_or(null_mut()), NO_WINDOWS)
            }
        }
    }

    /// Ends all registrations. Called before the memory or the communicator is released.
    pub fn end(self) -> Result<()> {
        let (library, raw) = (self.library, self.communicator.raw());
        if raw.is_null() {
            // Given up, and its registrations with it.
            return Ok(());
        }
        for handle in self.handles {
            if self.buffers == Buffers::Symmetric {
                let deregister = library.newer(library.call.window_deregister, "ncclCommWindowDeregister")?;
                // SAFETY: the handle is from `ncclCommWindowRegister` and not used again.
                library.check(unsafe { deregister(raw, handle) }, "ncclCommWindowDeregister")?;
            } else {
                let deregister = library.newer(library.call.deregister, "ncclCommDeregister")?;
                // SAFETY: the handle is from `ncclCommRegister` and not used again.
                library.check(unsafe { deregister(raw, handle) }, "ncclCommDeregister")?;
            }
        }
        Ok(())
    }
}

/// A handle; none is a success to NCCL, and the buffers then stay plain ones.
fn made(handle: *mut c_void, otherwise: &str) -> Result<Option<*mut c_void>> {
    if handle.is_null() { Err(Error::environment(otherwise)) } else { Ok(Some(handle)) }
}
