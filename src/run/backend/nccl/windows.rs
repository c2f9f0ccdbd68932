//! Whether NCCL creates symmetric windows for the ranks of a group. If it cannot, it gives no error and uses plain or
//! registered buffers instead; so this is tested once, with a small window that is deregistered again.

use super::NcclBackend;
use super::communicator::Communicator;
use super::driver;
use super::library::Version;
use super::memory::Arena;
use crate::backend::Binding;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Buffers;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;

/// One unit of the virtual memory of a device.
const TRIED_BYTES: u64 = 2 << 20;

/// The first version that lays windows where others were before.
const REUSES_SPACE_FROM: Version = Version(2, 28, 0);
/// From this version on the handle is null if no window was created; 2.28 returns the handle of a registered buffer,
/// 2.27 a handle of its own.
const NULL_HANDLE_FROM: Version = Version(2, 29, 0);

/// The reason if there are no windows.
pub(super) const NO_WINDOWS: &str = "NCCL makes no symmetric windows for these ranks: it needs virtual memory of the driver \
     (NCCL_CUMEM_ENABLE), direct access between the GPUs of a host, for several hosts NCCL 2.28 and adapters that GPUs can drive, and \
     NCCL_WIN_ENABLE not 0";

/// Known facts about windows in this replicate.
#[derive(Default)]
pub(super) struct Windows {
    /// By number of the groups: whether there are any.
    are_made: RefCell<HashMap<usize, bool>>,
    /// By communicator: the end of its used window space, if space is never reused.
    used: RefCell<HashMap<Key, u64>>,
}

/// Number of the groups, and limit to thread blocks.
type Key = (usize, Option<u32>);

impl Windows {
    /// Resets the state for a new replicate, which has new communicators.
    pub fn forget(&self) {
        self.are_made.borrow_mut().clear();
        self.used.borrow_mut().clear();
    }

    /// End of two further windows in the window space of a communicator: NCCL 2.27 aligns long ones to whole pages of
    /// 512 MiB (`src/register/register.cc`, `ncclCommWindowRegister`).
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
    /// Why a case on symmetric buffers cannot run; none if it can, or if it uses other buffers. Called by all ranks,
    /// with the same case.
    pub(super) fn window_skip_reason(&self, binding: &Binding) -> Option<String> {
        let call = &self.maker.library.call;
        let asks = binding.variant.buffers == Buffers::Symmetric && binding.op.collective != Collective::Barrier;
        if !asks || call.window_register.is_none() || call.memory_allocate.is_none() {
            return None;
        }
        let number = binding.groups_number;
        let known = self.windows.are_made.borrow().get(&number).copied();
        let are_made = known.unwrap_or_else(|| {
            // An error here occurs again where the case is bound, and is reported there.
            let found = self.try_window(binding).unwrap_or(true);
            self.windows.are_made.borrow_mut().insert(number, found);
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
        let end = self.windows.end_of_two(key, self.rotation(binding, &view).bytes());
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
        let place = binding.groups.place_of(self.world.rank());
        let mut memory = Arena::default();
        let taken = match place {
            Some(_) => memory.take_from(Some(self.maker.library)).and_then(|()| memory.reserve(TRIED_BYTES)),
            None => Ok(()),
        };
        let all_have_memory = self.all_succeeded(taken.is_ok())?;
        let Some((group, _)) = place.filter(|_| all_have_memory) else { return memory.release().map(|()| true) };
        let communicator = self.communicator(binding.groups_number, binding.groups.axis, None)?;
        // SAFETY: the memory is given back after the window.
        let window = unsafe { self.maker.register_window(&communicator, memory.address(), TRIED_BYTES as usize)? };
        let mut is_made = window.is_some();
        if let Some(window) = window {
            self.windows.use_two((binding.groups_number, None), TRIED_BYTES);
            is_made = match self.maker.library.version {
                version if version >= NULL_HANDLE_FROM => true,
                version if version >= REUSES_SPACE_FROM => !self.is_registration(&communicator, &memory, window)?,
                _ => self.is_on_one_host(&binding.groups.groups[group]) && !is_switched_off(),
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
