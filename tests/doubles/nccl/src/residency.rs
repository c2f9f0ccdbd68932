//! Thread blocks of the device: a kernel of NCCL keeps its own until all ranks have done their part, and kernels for which there are none
//! wait. Those of several communicators start in any order, so that ranks may keep blocks for kernels that wait for each other, unless
//! `NCCL_LAUNCH_ORDER_IMPLICIT` gives them the order of the calls.

use settings::SETTINGS;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Duration;

/// From NCCL 2.26 on.
static IS_ORDERED: LazyLock<bool> = LazyLock::new(|| {
    cfg!(since_2_26) && std::env::var("NCCL_LAUNCH_ORDER_IMPLICIT").is_ok_and(|value| value.trim() == "1")
});
static NEXT: AtomicU64 = AtomicU64::new(1);
static DEVICE: LazyLock<(Mutex<Blocks>, Condvar)> = LazyLock::new(Default::default);

/// How long a kernel waits for others that could start before it, where their order follows from a seed.
const ALL_COME: Duration = Duration::from_millis(3);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Blocks of a collective's kernel unless its communicator limits them, and of one that carries messages.
pub const OF_A_COLLECTIVE: u64 = 8;
pub const OF_MESSAGES: u64 = 1;

#[derive(Default)]
struct Blocks {
    used: u64,
    /// Launched and not started yet, in the order of the calls.
    launched: BTreeSet<u64>,
    /// Those of them whose streams have come to them, in the order in which they start.
    ready: BTreeSet<(u64, u64)>,
}

/// A kernel that was launched, in the order of the calls of this process.
pub struct Launched {
    number: u64,
    blocks: u64,
    is_ordered: bool,
}

impl Launched {
    pub fn new(blocks: u64) -> Launched {
        let launched = Launched { is_ordered: *IS_ORDERED, ..Launched::of_graph(blocks) };
        if launched.is_ordered {
            DEVICE.0.lock().unwrap().launched.insert(launched.number);
        }
        launched
    }

    /// One that a graph launches, which has its place among the others by its stream alone.
    pub fn of_graph(blocks: u64) -> Launched {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        Launched { number, blocks: blocks.min(SETTINGS.blocks), is_ordered: false }
    }

    /// What decides who starts first.
    fn order(&self) -> u64 {
        let Some(seed) = SETTINGS.order_seed.filter(|_| !self.is_ordered) else { return self.number };
        mixed(mixed(seed ^ u64::from(SETTINGS.process_rank.unwrap_or(0)) << 32) ^ self.number)
    }

    /// Runs the kernel once it has its blocks, unless it is given up before.
    pub fn run(self, is_given_up: impl Fn() -> bool, kernel: impl FnOnce()) {
        let (device, changed) = &*DEVICE;
        let place = (self.order(), self.number);
        device.lock().unwrap().ready.insert(place);
        if SETTINGS.order_seed.is_some() {
            std::thread::sleep(ALL_COME);
        }
        let mut blocks = device.lock().unwrap();
        let may_start = |blocks: &Blocks| {
            let is_next = match self.is_ordered {
                true => blocks.launched.first() == Some(&self.number),
                // Of those that have no order; the others keep their own.
                false => *IS_ORDERED || blocks.ready.first() == Some(&place),
            };
            is_next && blocks.used + self.blocks <= SETTINGS.blocks
        };
        while !may_start(&blocks) && !is_given_up() {
            blocks = changed.wait_timeout(blocks, LOOK_AGAIN).unwrap().0;
        }
        blocks.used += self.blocks;
        drop(blocks);
        let used = self.blocks;
        self.forget(place);
        kernel();
        device.lock().unwrap().used -= used;
        changed.notify_all();
    }

    /// A kernel that starts, or never will.
    fn forget(&self, place: (u64, u64)) {
        let (device, changed) = &*DEVICE;
        let mut blocks = device.lock().unwrap();
        blocks.launched.remove(&self.number);
        blocks.ready.remove(&place);
        changed.notify_all();
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.forget((self.order(), self.number));
    }
}

/// A number that looks random, the same for the same number everywhere (SplitMix64; Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
