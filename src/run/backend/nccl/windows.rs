//! What is known of the symmetric windows of a replicate: whether there are any, and how far their space is used.

use super::members::{self, Members};
use std::cell::RefCell;
use std::collections::HashMap;

/// One unit of the virtual memory of a device.
pub(super) const TRIED_BYTES: u64 = 2 << 20;

/// The reason if there are no windows.
pub(super) const NO_WINDOWS: &str = "NCCL makes no symmetric windows for these ranks: it needs virtual memory of the driver \
     (NCCL_CUMEM_ENABLE), direct access between the GPUs of a host, for several hosts NCCL 2.28 and adapters that GPUs can drive, and \
     NCCL_WIN_ENABLE not 0";

/// Known facts about windows in this replicate.
#[derive(Default)]
pub(super) struct Windows {
    /// By number of the groups: whether there are any.
    pub(super) are_made: RefCell<HashMap<usize, bool>>,
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

    /// The communicator of a key goes, and its window space with it.
    pub fn forget_one(&self, key: members::Key) {
        if let (Members::Groups(number), limit) = key {
            self.used.borrow_mut().remove(&(number, limit));
        }
    }

    /// End of two further windows in the window space of a communicator: NCCL 2.27 aligns long ones to whole pages of
    /// 512 MiB (`src/register/register.cc`, `ncclCommWindowRegister`).
    pub fn end_of_two(&self, key: Key, bytes: u64) -> u64 {
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
