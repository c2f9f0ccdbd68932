//! Buffers that NCCL was told of before they are used: registered, or as symmetric windows of all ranks.

use super::communicator::Communicator;
use super::library::Library;
use super::memory::Arena;
use crate::error::Result;
use crate::variant::Buffers;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

/// `NCCL_WIN_COLL_SYMMETRIC`.
const SYMMETRIC: c_int = 1;

/// Buffers that are registered with a communicator, until [`Registration::end`].
pub(super) struct Registration {
    library: &'static Library,
    communicator: Rc<Communicator>,
    buffers: Buffers,
    handles: Vec<*mut c_void>,
}

impl Registration {
    /// Registers the first bytes of some memory. Called by all ranks of the communicator, with windows for the same bytes.
    pub fn begin(
        library: &'static Library,
        communicator: Rc<Communicator>,
        buffers: Buffers,
        arenas: [&Arena; 2],
        bytes: u64,
    ) -> Result<Registration> {
        let mut registration = Registration { library, communicator, buffers, handles: Vec::new() };
        let raw = registration.communicator.raw();
        for arena in arenas.into_iter().filter(|arena| arena.len() >= bytes) {
            let (address, mut handle) = (arena.address() as *mut c_void, null_mut());
            match buffers {
                Buffers::Plain => continue,
                Buffers::Registered => {
                    let register = library.newer(library.call.register, "ncclCommRegister")?;
                    // SAFETY: the memory is the arena's, which is kept until this ends; the handle is ours.
                    let code = unsafe { register(raw, address, bytes as usize, &mut handle) };
                    library.check(code, "ncclCommRegister")?;
                }
                Buffers::Symmetric => {
                    let register = library.newer(library.call.window_register, "ncclCommWindowRegister")?;
                    // SAFETY: as above.
                    let code = unsafe { register(raw, address, bytes as usize, &mut handle, SYMMETRIC) };
                    library.check(code, "ncclCommWindowRegister")?;
                }
            }
            registration.handles.push(handle);
        }
        Ok(registration)
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
