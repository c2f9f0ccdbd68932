//! The kernels of `kernels/`, loaded from the embedded PTX: fill, produce, verify, occupy, hold.

use super::device::Device;
use super::driver::{self, CUdeviceptr, CUfunction, CUstream, Grid};
use commgauge_base::error::{Error, Result};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

const PTX: &str = include_str!("../../../../kernels/commgauge.ptx");
/// Producers that let their dependents start early, and the first GPUs that do so.
const PRODUCERS: &str = include_str!("../../../../kernels/producers-90.ptx");
const STARTS_EARLY: (u32, u32) = (9, 0);
/// How long a producer then waits before it writes: longer than ranks start apart and a kernel takes to its first reads.
const LATER_NANOSECONDS: u64 = 100_000;
/// Threads of each block that walks over elements.
const THREADS: u32 = 256;
/// Maximum time for which a multiprocessor is occupied in one turn, about that of a tile of a large matrix product. A
/// call waits at most this long for multiprocessors, and the step between turns, a microsecond, is a hundredth of it.
const TURN_NANOSECONDS: u64 = 100_000;
const WIDTHS: [u64; 4] = [1, 2, 4, 8];

/// The loaded kernels, as handles of a module that stays loaded. Those that walk over elements are there for each width of an element.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    fill: Walkers,
    produce: Walkers,
    /// The last parameter of the producers.
    produces_later: u64,
    verify: Walkers,
    occupy: CUfunction,
    hold_for_flag: CUfunction,
    multiprocessors: u32,
    /// Dynamic shared memory by which no two occupying blocks share a multiprocessor.
    occupying_bytes: u32,
}

/// The kernels that walk over elements for one purpose, by kind of content and width of an element.
#[derive(Clone, Copy)]
struct Walkers {
    moved: [CUfunction; 4],
    column: [CUfunction; 4],
}

const ONE_THREAD: Grid = Grid { blocks: 1, threads: 1, shared_bytes: 0 };

/// Content of a stretch of elements, to be written or verified.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// Data of a world rank, from an element on.
    Moved { rank: u32, first: u64 },
    /// A choice among the numbers of a column in device memory.
    Column { address: CUdeviceptr, length: u32, first: u64 },
}

/// A stretch of elements in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub address: CUdeviceptr,
    pub elements: u64,
    pub element_bytes: u64,
}

/// Which copies of a buffer a launch walks over, in the order of calls; see `kernels/pattern.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Walk {
    /// Elements from one copy to the next.
    pub stride: u64,
    pub copies: u64,
    /// The copy of the first call, and the step to that of the next.
    pub copy: u64,
    pub step: u64,
    pub calls: u64,
}

impl Walk {
    /// The buffer where it is.
    pub const ONE: Walk = Walk { stride: 0, copies: 1, copy: 0, step: 0, calls: 1 };
}

/// The memory of the occupying kernel: when launches began, and what they read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Two words, both 0 before the first launch.
    pub begins: CUdeviceptr,
    /// The one of the next launch.
    pub which: u64,
    /// Finite floats.
    pub data: CUdeviceptr,
    /// Loads of 16 bytes in it.
    pub quads: u64,
    /// Those of them that the cache is to keep.
    pub near: u64,
}

/// How the bits of a pattern are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    AsTheyAre,
    /// All of them, which poisons a buffer: no data of the pattern is like that.
    TurnedOver,
}

impl Kernels {
    /// Loads them for the current device, which compiles them for it.
    pub fn load(device: &Device) -> Result<Kernels> {
        let broken = |_| Error::environment("the kernels inside this program are broken: a zero in their text");
        let loaded = |ptx: &str| driver::load_module(&CString::new(ptx).map_err(broken)?);
        let named = |module, name: &str| driver::kernel(module, &CString::new(name).map_err(broken)?);
        let each = |module, name: &str| -> Result<[CUfunction; 4]> {
            let mut functions = [null_mut(); 4];
            for (function, width) in functions.iter_mut().zip(WIDTHS) {
                *function = named(module, &format!("{name}_{width}"))?;
            }
            Ok(functions)
        };
        let walkers = |module, name: &str| -> Result<Walkers> {
            Ok(Walkers {
                moved: each(module, &format!("{name}_moved"))?,
                column: each(module, &format!("{name}_column"))?,
            })
        };
        let module = loaded(PTX)?;
        let fill = walkers(module, "fill")?;
        let starts_early = device.capability >= STARTS_EARLY;
        let kernels = Kernels {
            fill,
            // Without a delay that last parameter is that of `fill`, for data as they are.
            produce: if starts_early { walkers(loaded(PRODUCERS)?, "produce")? } else { fill },
            produces_later: if starts_early { LATER_NANOSECONDS } else { 0 },
            verify: walkers(module, "verify")?,
            occupy: named(module, "occupy")?,
            hold_for_flag: named(module, "hold_for_flag")?,
            multiprocessors: device.multiprocessors,
            occupying_bytes: device.shared_bytes_per_block,
        };
        driver::allow_shared_bytes(kernels.occupy, kernels.occupying_bytes as c_int)?;
        Ok(kernels)
    }

    /// Fills elements.
    ///
    /// # Safety
    /// The stretch is device memory, in all copies of the walk, and so is the column, until the stream has passed this.
    pub unsafe fn fill(
        &self,
        stretch: Stretch,
        seed: u64,
        content: Content,
        bits: Bits,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.fill_all(stretch, Walk::ONE, seed, content, bits, stream) }
    }

    /// Fills elements in all copies of a walk.
    ///
    /// # Safety
    /// As [`Kernels::fill`].
    pub unsafe fn fill_all(
        &self,
        stretch: Stretch,
        walk: Walk,
        seed: u64,
        content: Content,
        bits: Bits,
        stream: CUstream,
    ) -> Result<()> {
        let complement = match bits {
            Bits::AsTheyAre => 0,
            Bits::TurnedOver => u64::MAX,
        };
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.fill, self.multiprocessors * 8, stretch, walk, seed, content, complement, stream) }
    }

    /// Fills elements as a kernel of a job that overlaps with the next one does: that one may start before anything is written, and has to
    /// wait for it.
    ///
    /// # Safety
    /// As [`Kernels::fill`].
    pub unsafe fn produce(&self, stretch: Stretch, seed: u64, content: Content, stream: CUstream) -> Result<()> {
        // All blocks must have begun, and leave room for the next kernel, for that to start.
        let (most_blocks, later) = (self.multiprocessors, self.produces_later);
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.produce, most_blocks, stretch, Walk::ONE, seed, content, later, stream) }
    }

    /// Compares elements; `found` is two numbers in device memory, 0 and all ones before: wrong ones, and the first of them in the walk.
    ///
    /// # Safety
    /// As [`Kernels::fill`], and `found` too.
    pub unsafe fn verify(
        &self,
        stretch: Stretch,
        walk: Walk,
        seed: u64,
        content: Content,
        found: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.verify, self.multiprocessors * 8, stretch, walk, seed, content, found, stream) }
    }

    /// # Safety
    /// As [`Kernels::fill`]; `last` is the last parameter of the kernel, eight bytes.
    #[allow(clippy::too_many_arguments, reason = "those of the kernels")]
    unsafe fn walk(
        &self,
        walkers: &Walkers,
        most_blocks: u32,
        stretch: Stretch,
        mut walk: Walk,
        mut seed: u64,
        content: Content,
        mut last: u64,
        stream: CUstream,
    ) -> Result<()> {
        let Stretch { mut address, mut elements, element_bytes } = stretch;
        let in_all = elements.saturating_mul(walk.calls);
        if in_all == 0 {
            return Ok(());
        }
        let width = WIDTHS.iter().position(|width| *width == element_bytes).unwrap_or(0);
        let blocks = in_all.div_ceil(u64::from(THREADS)).min(u64::from(most_blocks)) as u32;
        let grid = Grid { blocks, threads: THREADS, shared_bytes: 0 };
        let (address, elements, seed) = (&raw mut address as P, &raw mut elements as P, &raw mut seed as P);
        let (walk, last) = (&raw mut walk as P, &raw mut last as P);
        // SAFETY: parameters as in kernels/README.md, alive until the launch returns; the memory is promised by the caller.
        unsafe {
            match content {
                Content::Moved { mut rank, mut first } => {
                    let (rank, first) = (&raw mut rank as P, &raw mut first as P);
                    let mut parameters = [address, elements, seed, rank, first, walk, last];
                    driver::launch(walkers.moved[width], grid, stream, &mut parameters)
                }
                Content::Column { address: mut numbers, mut length, mut first } => {
                    let (numbers, length) = (&raw mut numbers as P, &raw mut length as P);
                    let first = &raw mut first as P;
                    let mut parameters = [address, elements, seed, numbers, length, first, walk, last];
                    driver::launch(walkers.column[width], grid, stream, &mut parameters)
                }
            }
        }
    }

    /// Occupies every multiprocessor for a time, as computing does; if other kernels use some of them, the rest take
    /// longer.
    ///
    /// # Safety
    /// The memory of the pressure outlives the run, and is used by launches of this stream alone.
    pub unsafe fn occupy(&self, nanoseconds: u64, pressure: &mut Pressure, stream: CUstream) -> Result<()> {
        let (turns, mut nanoseconds) = turns(nanoseconds, self.multiprocessors);
        let (mut side_by_side, mut sink) = (u64::from(self.multiprocessors) * u64::from(THREADS), 0u64);
        let Pressure { mut begins, mut which, mut data, mut quads, mut near } = *pressure;
        pressure.which = 1 - which;
        let (nanoseconds, side_by_side) = (&raw mut nanoseconds as P, &raw mut side_by_side as P);
        let (begins, which, data) = (&raw mut begins as P, &raw mut which as P, &raw mut data as P);
        let (quads, near, sink) = (&raw mut quads as P, &raw mut near as P, &raw mut sink as P);
        let mut parameters = [nanoseconds, side_by_side, begins, which, data, quads, near, sink];
        let blocks = turns * self.multiprocessors;
        let grid = Grid { blocks, threads: THREADS, shared_bytes: self.occupying_bytes };
        // SAFETY: parameters as in kernels/README.md; the sink may be null, the rest is promised by the caller.
        unsafe { driver::launch(self.occupy, grid, stream, &mut parameters) }
    }

    /// Blocks a stream until `flag` has a value, for a limited time.
    ///
    /// # Safety
    /// `flag` is memory shared by host and device, `late` device memory, both four bytes that outlive the wait.
    pub unsafe fn hold_for_flag(
        &self,
        mut flag: CUdeviceptr,
        mut late: CUdeviceptr,
        mut value: u32,
        mut most_nanoseconds: u64,
        stream: CUstream,
    ) -> Result<()> {
        let most = &raw mut most_nanoseconds as P;
        let mut parameters = [&raw mut flag as P, &raw mut value as P, most, &raw mut late as P];
        // SAFETY: promised by the caller.
        unsafe { driver::launch(self.hold_for_flag, ONE_THREAD, stream, &mut parameters) }
    }
}

/// Number of turns of a time, and their length.
fn turns(nanoseconds: u64, multiprocessors: u32) -> (u32, u64) {
    // Blocks of a grid are counted by an int; turns of a time beyond that are longer.
    let most = i32::MAX as u64 / u64::from(multiprocessors.max(1));
    let turns = nanoseconds.div_ceil(TURN_NANOSECONDS).clamp(1, most.max(1));
    (turns as u32, nanoseconds / turns)
}

type P = *mut c_void;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_busy_time_is_split_into_turns_that_add_up_to_it() {
        for (nanoseconds, turns_of_it) in [(0, 1), (99_999, 1), (100_000, 1), (100_001, 2), (5_000_000, 50)] {
            let (turns, each) = turns(nanoseconds, 132);
            assert_eq!(turns, turns_of_it);
            assert!(each <= TURN_NANOSECONDS && nanoseconds - each * u64::from(turns) < u64::from(turns));
        }
        let (most, each) = turns(u64::MAX, 132);
        assert!(most * 132 <= i32::MAX as u32 && each > TURN_NANOSECONDS);
    }
}
