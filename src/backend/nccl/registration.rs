//! Buffers that NCCL was told of before they are used: registered, or as symmetric windows of all ranks.
//!
//! They are memory of NCCL's own. Of other memory it registers nothing for use between GPUs, and says nothing of that (NCCL user guide,
//! "User Buffer Registration"): times would be those of plain buffers under another name.

use super::communicator::{Communicator, Maker};
use super::library::Library;
use super::memory::Arena;
use super::windows::NO_WINDOWS;
use crate::error::{Error, Result};
use crate::variant::Buffers;
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
    /// Registers the first bytes of some memory. Called by all ranks of the communicator, with windows for the same bytes of memory that
    /// is as long on all of them.
    ///
    /// # Errors
    /// Also where NCCL takes the memory and makes nothing of it.
    pub fn begin(
        maker: &Maker,
        communicator: Rc<Communicator>,
        buffers: Buffers,
        arenas: [&Arena; 2],
        bytes: u64,
    ) -> Result<Registration> {
        let mut registration = Registration { library: maker.library, communicator, buffers, handles: Vec::new() };
        for arena in arenas.into_iter().filter(|arena| arena.len() >= bytes) {
            match registration.one(maker, arena.address(), bytes as usize) {
                Ok(handle) => registration.handles.extend(handle),
                Err(error) => {
                    // The first error tells more than what follows from it.
                    let _ = registration.end();
                    return Err(error);
                }
            }
        }
        Ok(registration)
    }

    fn one(&self, maker: &Maker, address: u64, bytes: usize) -> Result<Option<*mut c_void>> {
        match self.buffers {
            Buffers::Plain => Ok(None),
            Buffers::Registered => {
                let register = self.library.newer(self.library.call.register, "ncclCommRegister")?;
                let mut handle = null_mut();
                // SAFETY: the memory is the arena's, which is kept until this ends; the handle is ours.
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

    /// Takes everything back. Called before the memory or the communicator goes.
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
