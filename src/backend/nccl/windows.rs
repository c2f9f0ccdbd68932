//! Whether NCCL makes symmetric windows for the ranks of a group. Where it cannot, it says nothing and carries calls as on plain
//! buffers: so it is asked once, with a small window that is taken back.

use super::NcclBackend;
use super::memory::Arena;
use crate::backend::Binding;
use crate::collective::Collective;
use crate::error::Result;
use crate::variant::Buffers;

/// One unit of the virtual memory of a device.
const TRIED_BYTES: u64 = 2 << 20;

/// What is said where there are none.
pub(super) const NO_WINDOWS: &str = "NCCL makes no symmetric windows for these ranks: it needs virtual memory of the driver \
     (NCCL_CUMEM_ENABLE), direct access between their GPUs, before 2.28 on one host, and NCCL_WIN_ENABLE not 0";

impl NcclBackend {
    /// Why a case on symmetric buffers cannot be; none where it can, or where it has others. Called by all ranks, with the same case.
    pub(super) fn against_windows(&self, binding: &Binding) -> Option<String> {
        let call = &self.maker.library.call;
        let asks = binding.variant.buffers == Buffers::Symmetric && binding.op.collective != Collective::Barrier;
        if !asks || call.window_register.is_none() || call.memory_allocate.is_none() {
            return None;
        }
        let known = self.windows.borrow().get(&binding.groups_number).copied();
        let has_windows = known.unwrap_or_else(|| {
            // What goes wrong here goes wrong again where the case is bound, and is told there.
            let found = self.try_window(binding).unwrap_or(true);
            self.windows.borrow_mut().insert(binding.groups_number, found);
            found
        });
        (!has_windows).then(|| NO_WINDOWS.to_owned())
    }

    /// Makes a window and takes it back; true on ranks that are in no group.
    fn try_window(&self, binding: &Binding) -> Result<bool> {
        let is_in_group = binding.groups.place_of(self.world.rank()).is_some();
        let mut memory = Arena::default();
        let taken = match is_in_group {
            true => memory.take_from(Some(self.maker.library)).and_then(|()| memory.reserve(TRIED_BYTES)),
            false => Ok(()),
        };
        if !self.all_succeeded(taken.is_ok())? || !is_in_group {
            return memory.give_back().map(|()| true);
        }
        let communicator = self.communicator(binding.groups_number, binding.groups.axis, None)?;
        // SAFETY: the memory is given back after the window.
        let window = unsafe { self.maker.register_window(&communicator, memory.address(), TRIED_BYTES as usize)? };
        if let Some(window) = window {
            self.maker.deregister_window(&communicator, window)?;
        }
        memory.give_back()?;
        Ok(window.is_some())
    }
}
