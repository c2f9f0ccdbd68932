//! The queue of a communicator's work to its kernels, of 1 MiB: whoever calls what it has no room for waits, at the end of the group, until
//! kernels have taken out what is before it (`waitWorkFifoAvailable` in NCCL's src/enqueue.cc). Behind a kernel that waits for the calling
//! thread it blocks forever. Graphs have memory of their own for it.

use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Duration;

/// Its length.
static BYTES: LazyLock<usize> = LazyLock::new(|| {
    let set = std::env::var("NCCL_WORK_FIFO_BYTES").ok().and_then(|text| text.trim().parse::<usize>().ok());
    set.filter(|bytes| bytes.is_power_of_two()).unwrap_or(1 << 20)
});
/// What goes along with the launch itself, as arguments of the kernel (`ncclMaxKernelArgsSize` in its src/include/device.h).
const IN_ARGUMENTS: usize = 4 << 10;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct Fifo {
    used: Mutex<usize>,
    changed: Condvar,
}

impl Fifo {
    /// Bytes in the queue for a launch with this many bytes of work.
    pub fn queued(bytes: usize) -> usize {
        if bytes <= IN_ARGUMENTS { 0 } else { bytes }
    }

    /// Puts work in, and waits until the rest of it has room.
    pub fn put(&self, bytes: usize) {
        *self.used.lock().unwrap() += bytes;
    }

    /// Waits until all that was put in has room, or is given up.
    pub fn wait_for_room(&self, is_given_up: impl Fn() -> bool) {
        let mut used = self.used.lock().unwrap();
        while *used > *BYTES && !is_given_up() {
            used = self.changed.wait_timeout(used, LOOK_AGAIN).unwrap().0;
        }
    }

    /// Kernels took work out.
    pub fn take(&self, bytes: usize) {
        *self.used.lock().unwrap() -= bytes;
        self.changed.notify_all();
    }
}
