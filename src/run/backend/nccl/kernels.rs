//! The kernels of `kernels/`, loaded from the embedded PTX: fill, produce, verify, copy, occupy, hold.

use super::device::Device;
use super::driver::{self, Arena, CUdeviceptr, CUevent, CUfunction, CUstream, Grid};
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_model::config::Mover;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

const PTX: &str = include_str!("../../../../kernels/commgauge.ptx");

/// The producer kernels for programmatic dependent launch, and the first GPUs with it.
const PRODUCERS: &str = include_str!("../../../../kernels/producers-90.ptx");

const STARTS_EARLY: (u32, u32) = (9, 0);

/// How long a producer then waits before it writes: longer than the skew of starting ranks plus the time to a kernel's first reads.
const LATER_NANOSECONDS: u64 = 100_000;

/// Threads per block of the kernels that walk over elements.
const THREADS: u32 = 256;

/// Maximum time for which a multiprocessor is occupied in one turn, about that of a tile of a large matrix product. A
/// call waits at most this long for multiprocessors, and the step between turns, a microsecond, is a hundredth of it.
const TURN_NANOSECONDS: u64 = 100_000;

/// Threads per block of copies, as nvbandwidth has them, one block for each multiprocessor.
const COPY_THREADS: u32 = 512;

const WIDTHS: [u64; 4] = [1, 2, 4, 8];

/// The loaded kernels, as handles of a module that stays loaded. Those that walk over elements exist for each element width.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    fill: Walkers,
    produce: Walkers,
    produces_later: u64,
    verify: Walkers,
    occupy: CUfunction,
    hold_for_flag: CUfunction,
    copy: CUfunction,
    follow: CUfunction,
    multiprocessors: u32,
    /// Dynamic shared memory that keeps two occupying blocks off one multiprocessor.
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

/// A stretch of elements in device memory, and the data meant for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub address: CUdeviceptr,
    pub elements: u64,
    pub element_bytes: u64,
    pub seed: u64,
    pub content: Content,
}

/// The copies of a buffer that a launch walks over, in call order; see `kernels/pattern.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Walk {
    /// Elements from one copy to the next.
    pub stride: u64,
    pub copies: u64,
    /// The copy of the first call, and the step to the copy of the next.
    pub copy: u64,
    pub step: u64,
    pub calls: u64,
}

impl Walk {
    /// A single copy, in place.
    pub const ONE: Walk = Walk { stride: 0, copies: 1, copy: 0, step: 0, calls: 1 };
}

/// The memory of the occupying kernel: when launches began, and what they read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Two words, both 0 before the first launch.
    pub begins: CUdeviceptr,
    /// The word of the next launch.
    pub which: u64,
    /// Finite floats.
    pub data: CUdeviceptr,
    /// 16-byte loads of this data.
    pub quads: u64,
    /// The loads that should stay in the cache.
    pub near: u64,
}

/// How the bits of a pattern are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Bits {
    AsTheyAre = 0,
    /// All bits set, which poisons a buffer: no pattern has such data.
    TurnedOver = u64::MAX,
}

impl Kernels {
    /// Loads them for the current device, whose driver compiles them.
    pub fn load(device: &Device) -> Result<Kernels> {
        let broken = |_| Error::environment("the embedded kernels are broken: null byte in the PTX");
        let loaded = |ptx: &str| driver::load_module(&CString::new(ptx).map_err(broken)?);
        let named = |module, name: &str| driver::kernel(module, &CString::new(name).map_err(broken)?);
        let each = |module, name: &str| -> Result<[CUfunction; 4]> {
            let [one, two, four, eight] = WIDTHS.map(|width| named(module, &format!("{name}_{width}")));
            Ok([one?, two?, four?, eight?])
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
            // Without a delay the last parameter is that of `fill`, for plain data.
            produce: if starts_early { walkers(loaded(PRODUCERS)?, "produce")? } else { fill },
            produces_later: if starts_early { LATER_NANOSECONDS } else { 0 },
            verify: walkers(module, "verify")?,
            occupy: named(module, "occupy")?,
            hold_for_flag: named(module, "hold_for_flag")?,
            copy: named(module, "copy_bytes")?,
            follow: named(module, "follow")?,
            multiprocessors: device.multiprocessors,
            occupying_bytes: device.shared_bytes_per_block,
        };
        driver::allow_shared_bytes(kernels.occupy, kernels.occupying_bytes as c_int)?;
        Ok(kernels)
    }

    /// Fills elements in all copies of a walk.
    ///
    /// # Safety
    /// The stretch is device memory, in all copies of the walk, and so is the column, until the stream has passed this.
    pub unsafe fn fill(&self, stretch: Stretch, walk: Walk, bits: Bits, stream: CUstream) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.fill, self.multiprocessors * 8, stretch, walk, bits as u64, stream) }
    }

    /// Fills elements like a job's kernel that overlaps with the next one: the next kernel may start before anything is written, and must
    /// wait for it.
    ///
    /// # Safety
    /// As [`Kernels::fill`].
    pub unsafe fn produce(&self, stretch: Stretch, stream: CUstream) -> Result<()> {
        // All blocks must have started, and leave room for the next kernel to start.
        let (most_blocks, later) = (self.multiprocessors, self.produces_later);
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.produce, most_blocks, stretch, Walk::ONE, later, stream) }
    }

    /// Compares elements; `found` is two numbers in device memory, initially 0 and all ones: the wrong elements, and the first of them in
    /// the walk.
    ///
    /// # Safety
    /// As [`Kernels::fill`], and `found` too.
    pub unsafe fn verify(&self, stretch: Stretch, walk: Walk, found: CUdeviceptr, stream: CUstream) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.walk(&self.verify, self.multiprocessors * 8, stretch, walk, found, stream) }
    }

    /// # Safety
    /// As [`Kernels::fill`]; `last` is the last parameter of the kernel, eight bytes.
    unsafe fn walk(
        &self,
        walkers: &Walkers,
        most_blocks: u32,
        stretch: Stretch,
        mut walk: Walk,
        mut last: u64,
        stream: CUstream,
    ) -> Result<()> {
        let Stretch { mut address, mut elements, element_bytes, mut seed, content } = stretch;
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

    /// Copies bytes by all multiprocessors; or for a latency has a thread follow a chain of addresses, and write the last word. `words` are the
    /// addresses of target and source, and the number of bytes or reads.
    ///
    /// # Safety
    /// Both are memory that this device reaches, aligned to 16 bytes and as long, until the stream has passed this; so are all addresses of
    /// the chain.
    pub unsafe fn transfer(&self, mover: Mover, mut words: [u64; 3], stream: CUstream) -> Result<()> {
        let wide = Grid { blocks: self.multiprocessors, threads: COPY_THREADS, shared_bytes: 0 };
        let (kernel, grid) = if mover == Mover::Reader { (self.follow, ONE_THREAD) } else { (self.copy, wide) };
        let mut parameters = words.each_mut().map(|word| &raw mut *word as P);
        // SAFETY: promised by the caller.
        unsafe { driver::launch(kernel, grid, stream, &mut parameters) }
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

/// Number and length of the turns of a time.
fn turns(nanoseconds: u64, multiprocessors: u32) -> (u32, u64) {
    // The grid size is an int; longer times take longer turns.
    let most = i32::MAX as u64 / u64::from(multiprocessors.max(1));
    let turns = nanoseconds.div_ceil(TURN_NANOSECONDS).clamp(1, most.max(1));
    (turns as u32, nanoseconds / turns)
}

type P = *mut c_void;

// The timeline of events, mapped to the host's clock.
//
// An event is recorded on an idle stream between two readings of the host's clock, so its time is between them. The closest of several
// attempts anchors all later events, and anchors far apart show the drift between the clocks.

/// Attempts per anchor; the closest counts.
const TRIES: usize = 6;

/// Documented resolution of `cuEventElapsedTime`.
pub(super) const EVENT_RESOLUTION_NANOSECONDS: u64 = 500;

/// Anchors closer together than this cannot determine the rate.
const SHORTEST_BASE_NANOSECONDS: f64 = 1e9;

/// An event whose time is known on both clocks.
#[derive(Clone, Copy)]
struct Anchor {
    event: CUevent,
    host_nanoseconds: u64,
    /// Half the time between the two readings: the maximum error of the event's time.
    error_nanoseconds: u64,
}

/// The device's clock as seen from the host.
pub(super) struct DeviceClock {
    events: [CUevent; TRIES + 2],
    first: Option<Anchor>,
    latest: Option<Anchor>,
    /// Host nanoseconds for each nanosecond of the device.
    rate: f64,
}

impl DeviceClock {
    pub fn new() -> Result<DeviceClock> {
        let mut events = [null_mut(); TRIES + 2];
        for event in &mut events {
            *event = driver::create_event()?;
        }
        Ok(DeviceClock { events, first: None, latest: None, rate: 1.0 })
    }

    /// Anchors the timeline again; the stream must be idle.
    pub fn anchor(&mut self, stream: CUstream) -> Result<()> {
        let mut best: Option<(usize, Anchor)> = None;
        // The slot of the very first anchor stays in use, and so does that of the closest anchor so far.
        let mut free: Vec<usize> = (usize::from(self.first.is_some())..self.events.len()).collect();
        for _ in 0..TRIES {
            let place = free.remove(0);
            let event = self.events[place];
            let before = host::now_nanoseconds();
            driver::record(event, stream)?;
            while !driver::is_recorded(event)? {
                std::thread::yield_now();
            }
            let error_nanoseconds = (host::now_nanoseconds() - before) / 2;
            let anchor = Anchor { event, host_nanoseconds: before + error_nanoseconds, error_nanoseconds };
            match best {
                Some((_, closest)) if closest.error_nanoseconds <= error_nanoseconds => free.push(place),
                Some((other, _)) => {
                    free.push(other);
                    best = Some((place, anchor));
                }
                None => best = Some((place, anchor)),
            }
        }
        let Some((place, anchor)) = best else { return Ok(()) };
        self.latest = Some(anchor);
        let Some(first) = self.first else {
            // The closest anchor keeps its event in the first slot, which no later attempt uses.
            self.events.swap(0, place);
            self.first = Some(anchor);
            return Ok(());
        };
        let on_device = driver::nanoseconds_between(first.event, anchor.event)?;
        if on_device >= SHORTEST_BASE_NANOSECONDS {
            self.rate = (anchor.host_nanoseconds - first.host_nanoseconds) as f64 / on_device;
        }
        Ok(())
    }

    /// The times of events in the order in which they were recorded, on the host's clock.
    ///
    /// Each time is computed from the previous event: the driver returns differences as 32-bit floats, which are too
    /// short for a whole batch.
    pub fn times(&self, events: &[CUevent], nanoseconds: &mut Vec<u64>) -> Result<()> {
        let Some(anchor) = self.latest else { return Ok(()) };
        let (mut before, mut since) = (anchor.event, 0.0);
        for event in events {
            since += driver::nanoseconds_between(before, *event)? * self.rate;
            before = *event;
            nanoseconds.push(anchor.host_nanoseconds.saturating_add_signed(since.round() as i64));
        }
        Ok(())
    }

    /// Maximum error of times since the latest anchor: its own, and the resolution of events.
    pub fn error_nanoseconds(&self) -> u64 {
        self.latest.map_or(0, |anchor| anchor.error_nanoseconds + EVENT_RESOLUTION_NANOSECONDS)
    }
}

// Blocking a stream until an agreed time, so that everything enqueued meanwhile starts then and the time to enqueue
// it is not measured.
//
// A kernel of one thread polls a word that host and device share. The host enqueues everything behind it, waits for
// the agreed time on its own clock, and writes the word. The stream continues when the device has seen the write,
// about a microsecond later on every rank, and the mark behind the hold kernel records when that was.

/// The kernel times out after this, so that it does not outlive a dead host.
const LONGEST_HOLD_NANOSECONDS: u64 = 30_000_000_000;

/// The last stretch before a start, which is spent spinning.
const SPUN_NANOSECONDS: u64 = 100_000;

/// The shared word, and the state of the blocked stream.
pub(super) struct Hold {
    word: *mut u32,
    word_on_device: CUdeviceptr,
    /// Written by a kernel that timed out before its release.
    late: *mut u32,
    late_on_device: CUdeviceptr,
    ticket: u32,
    /// The start time of the held stream, and when enqueueing behind the hold began.
    pending: Option<(u64, u64)>,
    /// Recent maximum of the time to enqueue behind a hold.
    enqueue_nanoseconds: u64,
    started_late: bool,
}

impl Hold {
    pub fn new() -> Result<Hold> {
        let ((word, word_on_device), (late, late_on_device)) = (shared_word()?, shared_word()?);
        Ok(Hold {
            word,
            word_on_device,
            late,
            late_on_device,
            ticket: 0,
            pending: None,
            enqueue_nanoseconds: 0,
            started_late: false,
        })
    }

    /// Blocks the stream until a time on the host's clock, or moves the time of a pending hold. False if that time is
    /// too near for enqueueing to finish before it.
    pub fn until(&mut self, start_nanoseconds: u64, kernels: &Kernels, stream: CUstream) -> Result<bool> {
        self.started_late = false;
        let now = host::now_nanoseconds();
        if let Some((start, _)) = &mut self.pending {
            *start = start_nanoseconds;
            return Ok(now < start_nanoseconds);
        }
        if now + self.enqueue_nanoseconds >= start_nanoseconds {
            // Forgotten gradually: one slow start must not make all later starts miss.
            self.enqueue_nanoseconds -= self.enqueue_nanoseconds / 16;
            return Ok(false);
        }
        self.block(kernels, stream)?;
        self.pending = Some((start_nanoseconds, now));
        Ok(true)
    }

    /// Blocks the stream until [`Hold::release_now`].
    pub fn until_released(&mut self, kernels: &Kernels, stream: CUstream) -> Result<()> {
        let now = host::now_nanoseconds();
        self.block(kernels, stream)?;
        self.pending = Some((now, now));
        Ok(())
    }

    fn block(&mut self, kernels: &Kernels, stream: CUstream) -> Result<()> {
        self.ticket = self.ticket.wrapping_add(1);
        // SAFETY: four bytes of ours; the kernel that wrote them last is done, as one hold is waited for before the next.
        unsafe { self.late.write_volatile(0) };
        let (word, late) = (self.word_on_device, self.late_on_device);
        // SAFETY: both words are this value's, which lives as long as the backend.
        unsafe { kernels.hold_for_flag(word, late, self.ticket, LONGEST_HOLD_NANOSECONDS, stream) }
    }

    /// Releases the stream at the agreed time, if it is blocked.
    pub fn release(&mut self) {
        let Some((start, begun)) = self.pending.take() else { return };
        let now = host::now_nanoseconds();
        self.enqueue_nanoseconds = (now - begun).max(self.enqueue_nanoseconds - self.enqueue_nanoseconds / 64);
        self.started_late = now > start;
        while let Some(left) = start.checked_sub(host::now_nanoseconds()) {
            // Other processes may need the processor; the last stretch is spent spinning, for a start on time.
            if left > SPUN_NANOSECONDS { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.write();
    }

    /// Releases the stream at once, if it is blocked.
    pub fn release_now(&mut self) {
        if self.pending.take().is_some() {
            self.write();
        }
    }

    fn write(&self) {
        // SAFETY: four bytes of ours that the device only reads.
        unsafe { self.word.write_volatile(self.ticket) };
    }

    /// Whether the last hold ended after its time because enqueueing took longer, or before it because its kernel timed out: the host was
    /// stopped, or waited for something behind the kernel. Valid when the stream is idle.
    pub fn started_late(&self) -> bool {
        self.started_late || self.gave_up()
    }

    /// Whether the kernel of the last hold timed out. Valid when the stream is idle.
    pub fn gave_up(&self) -> bool {
        // SAFETY: four bytes of ours; the kernel that writes them is done.
        unsafe { self.late.read_volatile() != 0 }
    }
}

/// A word shared by host and device, initially 0.
fn shared_word() -> Result<(*mut u32, CUdeviceptr)> {
    let (word, on_device) = driver::allocate_shared(4)?;
    let word: *mut u32 = word.cast();
    // SAFETY: four bytes of ours that no kernel reads yet.
    unsafe { word.write_volatile(0) };
    Ok((word, on_device))
}

// Computing concurrently with calls: a stream of the lowest priority, whose kernel keeps every multiprocessor busy for a time and reads
// memory meanwhile, as a matrix product does.

/// Memory read, as a multiple of the cache, and the fraction of the cache that stays resident.
const CACHES_READ: u64 = 2;

const NEAR_DIVISOR: u64 = 2;

const LEAST_BYTES: u64 = 1 << 20;

/// Numbers that look random, since power depends on them, and their seed.
const NUMBERS: usize = 4096;

const SEED: u64 = 29;

const QUAD_BYTES: u64 = 16;

/// The resources of computing, for the lifetime of the backend.
pub(super) struct Computing {
    pub stream: CUstream,
    /// Never read here; freed only after the stream is idle.
    _memory: [Arena; 3],
    pressure: Pressure,
}

impl Computing {
    /// Makes the stream, fills the memory, and launches the kernel once: the first launch loads its code and waits for everything running
    /// on the device (CUDA programming guide, "Lazy Loading"), so that ranks would wait for one another if calls were running.
    ///
    /// # Errors
    /// Errors of the driver, such as missing memory.
    pub fn new(kernels: &Kernels, cache_bytes: u64) -> Result<Computing> {
        let stream = driver::create_computing_stream()?;
        let mut memory: [Arena; 3] = Default::default();
        let bytes = bytes_read(cache_bytes);
        for (arena, bytes) in memory.iter_mut().zip([bytes, 8 * NUMBERS as u64, 16]) {
            arena.reserve(bytes)?;
        }
        let [data, column, begins] = [0, 1, 2].map(|index: usize| memory[index].address());
        let numbers: Vec<u8> = numbers().into_iter().flat_map(u64::to_le_bytes).collect();
        let content = Content::Column { address: column, length: NUMBERS as u32, first: 0 };
        let stretch = Stretch { address: data, elements: bytes / 4, element_bytes: 4, seed: SEED, content };
        // SAFETY: room was reserved for all of it.
        unsafe {
            driver::copy_to_device(column, &numbers, stream)?;
            driver::copy_to_device(begins, &[0; 16], stream)?;
            kernels.fill(stretch, Walk::ONE, Bits::AsTheyAre, stream)?;
        }
        let near = (cache_bytes / NEAR_DIVISOR).clamp(QUAD_BYTES, bytes) / QUAD_BYTES;
        let pressure = Pressure { begins, which: 0, data, quads: bytes / QUAD_BYTES, near };
        let mut computing = Computing { stream, _memory: memory, pressure };
        computing.occupy(0, kernels)?;
        driver::synchronize(stream)?;
        Ok(computing)
    }

    /// Bytes on the device.
    pub fn bytes(cache_bytes: u64) -> u64 {
        bytes_read(cache_bytes) + 8 * NUMBERS as u64 + 16
    }

    /// Occupies every multiprocessor for a time, as computing does; if other kernels use some of them, the rest take longer.
    pub fn occupy(&mut self, nanoseconds: u64, kernels: &Kernels) -> Result<()> {
        // SAFETY: the memory is this value's, filled, and no other stream uses it.
        unsafe { kernels.occupy(nanoseconds, &mut self.pressure, self.stream) }
    }
}

fn bytes_read(cache_bytes: u64) -> u64 {
    (CACHES_READ * cache_bytes).max(LEAST_BYTES).next_multiple_of(QUAD_BYTES)
}

/// Floats between -1 and 1, as the low halves of words.
fn numbers() -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    (0..NUMBERS).map(|_| u64::from(random.random_range(-1.0f32..1.0).to_bits())).collect()
}

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

    #[test]
    fn what_is_read_is_finite_and_looks_random() {
        let numbers: Vec<f32> = numbers().into_iter().map(|bits| f32::from_bits(bits as u32)).collect();
        assert!(numbers.iter().all(|number| number.abs() <= 1.0));
        let distinct: std::collections::HashSet<u32> = numbers.iter().map(|number| number.to_bits()).collect();
        assert!(distinct.len() > NUMBERS * 9 / 10);
    }
}
