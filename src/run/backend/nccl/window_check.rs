//! Whether NCCL creates symmetric windows for the ranks of a group. If it cannot, it uses plain or registered buffers instead without an
//! error; so this is tested once, with a small window that is deregistered again.

use super::communicator::Communicator;
use super::communicator::Members;
use super::communicator::{NO_WINDOWS, TRIED_BYTES};
use super::driver;
use super::driver::Arena;
use super::library::Version;
use super::open::NcclBackend;
use crate::backend::Binding;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Buffers;
use std::ffi::c_void;
use std::ptr::null_mut;

/// The first version that reuses window space.
const REUSES_SPACE_FROM: Version = Version(2, 28, 0);
/// From this version on the handle is null if no window was created; 2.28 returns the handle of a registered buffer,
/// 2.27 a handle of its own.
const NULL_HANDLE_FROM: Version = Version(2, 29, 0);

impl NcclBackend {
    /// Why a case on symmetric buffers cannot run; none if it can, or if it uses other buffers. Called by all ranks,
    /// with the same case.
    pub(super) fn window_skip_reason(&self, binding: &Binding) -> Option<String> {
        let call = &self.maker.library.call;
        let asks = binding.variant.buffers == Buffers::Symmetric && binding.op.collective != Collective::Barrier;
        if !asks || call.window_register.is_none() || call.memory_allocate.is_none() {
            return None;
        }
        let number = binding.groups_number;
        let known = self.buffers.windows.are_made.borrow().get(&number).copied();
        let are_made = known.unwrap_or_else(|| {
            // An error here occurs again where the case is bound, and is reported there.
            let found = self.try_window(binding).unwrap_or(true);
            self.buffers.windows.are_made.borrow_mut().insert(number, found);
            found
        });
        if !are_made {
            return Some(NO_WINDOWS.to_owned());
        }
        self.window_space_skip_reason(binding)
    }

    /// Before 2.28 the window space of a communicator is as large as the memory of a device and is never reused
    /// (`src/group.cc`, `ncclCommGroupRegisterSymmetric`); behind its end the space of another rank begins.
    fn window_space_skip_reason(&self, binding: &Binding) -> Option<String> {
        let view = binding.view(self.world.rank()).ok()?;
        let (_, whole) = driver::memory().ok()?;
        let key = (binding.groups_number, binding.variant.max_ctas);
        let end = self.buffers.windows.end_of_two(key, self.rotation(binding, &view).bytes());
        (self.maker.library.version < REUSES_SPACE_FROM && end > whole).then(|| {
            format!(
                "NCCL before 2.28 does not take back the space of windows, and this case would end at {} of {}",
                Bytes(end),
                Bytes(whole)
            )
        })
    }

    /// Creates a window and deregisters it; true on ranks that are in no group.
    fn try_window(&self, binding: &Binding) -> Result<bool> {
        self.connect_pairs(binding)?;
        let place = binding.groups.place_of(self.world.rank());
        let mut memory = Arena::default();
        let taken = match place {
            Some(_) => memory.take_from(Some(self.maker.library)).and_then(|()| memory.reserve(TRIED_BYTES)),
            None => Ok(()),
        };
        let all_have_memory = self.all_succeeded(taken.is_ok())?;
        let Some(place) = place.filter(|_| all_have_memory) else { return memory.release().map(|()| true) };
        let communicator = self.communicator(Members::Groups(binding.groups_number), binding.groups.axis, None)?;
        // SAFETY: the memory is freed after the window.
        let window = unsafe { self.maker.register_window(&communicator, memory.address(), TRIED_BYTES as usize)? };
        let mut is_made = window.is_some();
        if let Some(window) = window {
            self.buffers.windows.use_two((binding.groups_number, None), TRIED_BYTES);
            is_made = match self.maker.library.version {
                version if version >= NULL_HANDLE_FROM => true,
                version if version >= REUSES_SPACE_FROM => !self.is_registration(&communicator, &memory, window)?,
                _ => self.is_on_one_host(&binding.groups.groups[place.group]) && !is_switched_off(),
            };
            self.maker.deregister_window(&communicator, window)?;
        }
        memory.release()?;
        Ok(is_made)
    }

    /// Whether a window is only the handle of registered memory: for the same memory NCCL then returns the same handle
    /// again.
    fn is_registration(&self, communicator: &Communicator, memory: &Arena, window: *mut c_void) -> Result<bool> {
        let library = self.maker.library;
        let register = library.newer(library.call.register, "ncclCommRegister")?;
        let deregister = library.newer(library.call.deregister, "ncclCommDeregister")?;
        let (raw, address, mut handle) = (communicator.raw(), memory.address() as *mut c_void, null_mut());
        // SAFETY: the communicator and the memory live, the handle is ours and not used again.
        unsafe {
            library.check(register(raw, address, TRIED_BYTES as usize, &mut handle), "ncclCommRegister")?;
            library.check(deregister(raw, handle), "ncclCommDeregister")?;
        }
        Ok(handle == window)
    }

    fn is_on_one_host(&self, group: &[u32]) -> bool {
        let host = |rank: &u32| self.ranks.hosts.get(*rank as usize);
        group.iter().all(|rank| host(rank) == group.first().and_then(host))
    }
}

fn is_switched_off() -> bool {
    std::env::var("NCCL_WIN_ENABLE").is_ok_and(|value| value.trim() == "0")
}
