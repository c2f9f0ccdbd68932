//! The kernels of `kernels/`, loaded from the embedded PTX: fill, verify, occupy, hold, flush.

use super::device::Device;
use super::driver::{self, CUdeviceptr, CUfunction, CUstream, Grid};
use commgauge_base::error::{Error, Result};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

const PTX: &str = include_str!("../../../../kernels/commgauge.ptx");
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
        let module = driver::load_module(&CString::new(PTX).map_err(broken)?)?;
        let named = |name: String| driver::kernel(module, &CString::new(name).map_err(broken)?);
        let each = |name: &str| -> Result<[CUfunction; 4]> {
            let mut functions = [null_mut(); 4];
            for (function, width) in functions.iter_mut().zip(WIDTHS) {
                *function = named(format!("{name}_{width}"))?;
            }
            Ok(functions)
        };
        let kernels = Kernels {
            fill: Walkers { moved: each("fill_moved")?, column: each("fill_column")? },
            verify: Walkers { moved: each("verify_moved")?, column: each("verify_column")? },
            occupy: named("occupy".to_owned())?,
            hold_for_flag: named("hold_for_flag".to_owned())?,
            multiprocessors: device.multiprocessors,
            occupying_bytes: device.shared_bytes_per_block,
        };
        driver::allow_shared_bytes(kernels.occupy, kernels.occupying_bytes as c_int)?;
        Ok(kernels)
    }

    /// Fills elements.
    ///
    /// # Safety
    /// The stretch is device memory, and so is the column, until the stream has passed this.
    pub unsafe fn fill(
        &self,
        stretch: Stretch,
        seed: u64,
        content: Content,
        bits: Bits,
        stream: CUstream,
    ) -> Result<()> {
        let mut complement = match bits {
            Bits::AsTheyAre => 0,
            Bits::TurnedOver => u64::MAX,
        };
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.fill, stretch, seed, content, &raw mut complement as P, stream) }
    }

    /// Compares elements; `found` is two numbers in device memory, 0 and all ones before: wrong ones, and the first of them.
    ///
    /// # Safety
    /// As [`Kernels::fill`], and `found` too.
    pub unsafe fn verify(
        &self,
        stretch: Stretch,
        seed: u64,
        content: Content,
        mut found: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.verify, stretch, seed, content, &raw mut found as P, stream) }
    }

    /// # Safety
    /// As [`Kernels::fill`]; `last` points to the last parameter of the kernel, eight bytes.
    unsafe fn walk(
        &self,
        walkers: &Walkers,
        stretch: Stretch,
        mut seed: u64,
        content: Content,
        last: P,
        stream: CUstream,
    ) -> Result<()> {
        let Stretch { mut address, mut elements, element_bytes } = stretch;
        if elements == 0 {
            return Ok(());
        }
        let width = WIDTHS.iter().position(|width| *width == element_bytes).unwrap_or(0);
        let blocks = elements.div_ceil(u64::from(THREADS)).min(u64::from(self.multiprocessors) * 8) as u32;
        let grid = Grid { blocks, threads: THREADS, shared_bytes: 0 };
        let (address, elements, seed) = (&raw mut address as P, &raw mut elements as P, &raw mut seed as P);
        // SAFETY: parameters as in kernels/README.md, alive until the launch returns; the memory is promised by the caller.
        unsafe {
            match content {
                Content::Moved { mut rank, mut first } => {
                    let (rank, first) = (&raw mut rank as P, &raw mut first as P);
                    driver::launch(
                        walkers.moved[width],
                        grid,
                        stream,
                        &mut [address, elements, seed, rank, first, last],
                    )
                }
                Content::Column { address: mut numbers, mut length, mut first } => {
                    let (numbers, length) = (&raw mut numbers as P, &raw mut length as P);
                    let first = &raw mut first as P;
                    let mut parameters = [address, elements, seed, numbers, length, first, last];
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
