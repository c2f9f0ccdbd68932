//! Whether NCCL makes symmetric windows for the ranks of a group. Where it cannot, it says nothing and carries calls as on plain or
//! registered buffers: so it is asked once, with a small window that is taken back.

use super::NcclBackend;
use super::communicator::Communicator;
use super::driver;
use super::library::Version;
use super::memory::Arena;
use crate::backend::Binding;
use crate::collective::Collective;
use crate::error::Result;
use crate::units::Bytes;
use crate::variant::Buffers;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;

/// One unit of the virtual memory of a device.
const TRIED_BYTES: u64 = 2 << 20;

/// The first version that lays windows where others were before.
const REUSES_SPACE_FROM: Version = Version(2, 28, 0);
/// The first version that gives no window where it makes none; 2.28 gives the handle of a registered buffer, 2.27 something of its own.
const GIVES_NOTHING_FROM: Version = Version(2, 29, 0);

/// What is said where there are none.
pub(super) const NO_WINDOWS: &str = "NCCL makes no symmetric windows for these ranks: it needs virtual memory of the driver \
     (NCCL_CUMEM_ENABLE), direct access between the GPUs of a host, for several hosts NCCL 2.28 and adapters that GPUs can drive, and \
     NCCL_WIN_ENABLE not 0";

/// What is known of windows in this replicate.
#[derive(Default)]
pub(super) struct Windows {
    /// By number of the groups: whether there are any.
    are_made: RefCell<HashMap<usize, bool>>,
    /// By communicator: how far its space is used, where it is never given back.
    used: RefCell<HashMap<Key, u64>>,
}

/// Number of the groups, and limit to thread blocks.
type Key = (usize, Option<u32>);

impl Windows {
    /// For a new replicate, with communicators of its own.
    pub fn forget(&self) {
        self.are_made.borrow_mut().clear();
        self.used.borrow_mut().clear();
    }

    /// Where in the space of a communicator two further windows would end: NCCL 2.27 lays long ones at whole pages of 512 MiB
    /// (`src/register/register.cc`, `ncclCommWindowRegister`).
    fn end_of_two(&self, key: Key, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(TRIED_BYTES);
        let page = if bytes >= 72 * TRIED_BYTES { 512 << 20 } else { TRIED_BYTES };
        let begin = self.used.borrow().get(&key).copied().unwrap_or(0);
        (0..2).fold(begin, |end, _| end.next_multiple_of(page) + bytes)
    }

    /// Two windows were made.
    pub fn use_two(&self, key: Key, bytes: u64) {
        let end = self.end_of_two(key, bytes);
        self.used.borrow_mut().insert(key, end);
    }
}

impl NcclBackend {
    /// Why a case on symmetric buffers cannot be; none where it can, or where it has others. Called by all ranks, with the same case.
    pub(super) fn against_windows(&self, binding: &Binding) -> Option<String> {
        let call = &self.maker.library.call;
        let asks = binding.variant.buffers == Buffers::Symmetric && binding.op.collective != Collective::Barrier;
        if !asks || call.window_register.is_none() || call.memory_allocate.is_none() {
            return None;
        }
        let number = binding.groups_number;
        let known = self.windows.are_made.borrow().get(&number).copied();
        let are_made = known.unwrap_or_else(|| {
            // What goes wrong here goes wrong again where the case is bound, and is told there.
            let found = self.try_window(binding).unwrap_or(true);
            self.windows.are_made.borrow_mut().insert(number, found);
            found
        });
        if !are_made {
            return Some(NO_WINDOWS.to_owned());
        }
        self.against_used_space(binding)
    }

    /// Before 2.28 a communicator has as much space for windows as a device has memory, and takes none back (`src/group.cc`,
    /// `ncclCommGroupRegisterSymmetric`); behind its end another rank's begins.
    fn against_used_space(&self, binding: &Binding) -> Option<String> {
        let view = binding.view(self.world.rank()).ok()?;
        let (_, whole) = driver::memory().ok()?;
        let key = (binding.groups_number, binding.variant.max_ctas);
        let end = self.windows.end_of_two(key, self.rotation(binding, &view).bytes());
        (self.maker.library.version < REUSES_SPACE_FROM && end > whole).then(|| {
            format!(
                "NCCL before 2.28 does not take back the space of windows, and this case would end at {} of {}",
                Bytes(end),
                Bytes(whole)
            )
        })
    }

    /// Makes a window and takes it back; true on ranks that are in no group.
    fn try_window(&self, binding: &Binding) -> Result<bool> {
        let place = binding.groups.place_of(self.world.rank());
        let mut memory = Arena::default();
        let taken = match place {
            Some(_) => memory.take_from(Some(self.maker.library)).and_then(|()| memory.reserve(TRIED_BYTES)),
            None => Ok(()),
        };
        let all_have_memory = self.all_succeeded(taken.is_ok())?;
        let Some((group, _)) = place.filter(|_| all_have_memory) else { return memory.give_back().map(|()| true) };
        let communicator = self.communicator(binding.groups_number, binding.groups.axis, None)?;
        // SAFETY: the memory is given back after the window.
        let window = unsafe { self.maker.register_window(&communicator, memory.address(), TRIED_BYTES as usize)? };
        let mut is_made = window.is_some();
        if let Some(window) = window {
            self.windows.use_two((binding.groups_number, None), TRIED_BYTES);
            is_made = match self.maker.library.version {
                version if version >= GIVES_NOTHING_FROM => true,
                version if version >= REUSES_SPACE_FROM => !self.is_registration(&communicator, &memory, window)?,
                _ => self.is_on_one_host(&binding.groups.groups[group]) && !is_switched_off(),
            };
            self.maker.deregister_window(&communicator, window)?;
        }
        memory.give_back()?;
        Ok(is_made)
    }

    /// Whether a window is nothing but what NCCL gives for registered memory: of the same memory it gives the same again.
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
        let host = |rank: &u32| self.hosts.get(*rank as usize);
        group.iter().all(|rank| host(rank) == group.first().and_then(host))
    }
}

fn is_switched_off() -> bool {
    std::env::var("NCCL_WIN_ENABLE").is_ok_and(|value| value.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_laid_behind_one_another_and_long_ones_at_whole_pages() {
        let windows = Windows::default();
        let key = (1, None);
        windows.use_two(key, 1);
        assert_eq!(windows.end_of_two(key, 3 << 20), 12 << 20);
        assert_eq!(windows.end_of_two(key, 144 << 20), (2 * 512 + 144) << 20);
        assert_eq!(windows.end_of_two((1, Some(4)), 1), 4 << 20, "another communicator");
        windows.forget();
        assert_eq!(windows.end_of_two(key, 1), 4 << 20);
    }
}
