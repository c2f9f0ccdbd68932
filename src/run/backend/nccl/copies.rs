//! Copies by a GPU's copy engines or by kernels: between its memory and the host's, within it, and to and from the GPUs of other ranks of the
//! host, as in nvbandwidth. Every byte at the target is compared.

use super::adapters::{self, SYSFS};
use super::device::{Device, visible_devices};
use super::driver::{CUdeviceptr, CUevent, CUstream};
use super::kernels::Kernels;
use super::product::{HeldStream, OwnWork};
use super::{device, driver};
use crate::backend::{LocalWork, Mismatch};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::{CopyDirection, HostMemory, Mover};
use commgauge_model::workload::CopyShape;
use std::ffi::c_void;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{ptr, slice};

/// Default time limit of the copies of a sample.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that a sample copies, and its maximum number of copies: enough that their launch is a small part of it.
const SAMPLE_BYTES: u64 = 64 << 20;

const MOST_COPIES: u64 = 16;

/// Bytes that are written or compared at a time: whole copies on the host would take longer than the timed part.
const AT_ONCE: usize = 4 << 20;

/// Words compared between two tests for a mismatch.
const RUN: usize = 512;

/// Reads of a sample of a latency, each of another line of memory: as few as take a millisecond.
const READS: usize = 4096;

/// Bytes from one of them to the next, as in nvbandwidth.
const LINE: usize = 128;

/// The number of copies per sample, or of reads of a latency.
pub(super) fn copies_per_sample(shape: &CopyShape) -> u32 {
    if shape.kind.is_latency() {
        return READS as u32;
    }
    (SAMPLE_BYTES / shape.bytes.0.max(1)).clamp(1, MOST_COPIES) as u32
}

/// One direction: from one buffer to another, on its own stream.
struct Way {
    source: Buffer,
    target: Buffer,
    stream: CUstream,
    end: CUevent,
    seed: u64,
    /// The other GPU if that one copies; stream, event and kernels are then of its context.
    by: Option<Rc<Peer>>,
    kernels: Kernels,
}

/// A copy with its buffers.
pub(super) struct DeviceCopy {
    ways: Vec<Way>,
    begin: CUevent,
    /// After all ways, on the stream of the first event: times of two devices cannot be compared.
    end: CUevent,
    shape: CopyShape,
    /// Whether the stream is held until all is enqueued; false if the driver itself waits for each copy, or for the device to load a kernel.
    is_held: bool,
    held: HeldStream,
}

impl DeviceCopy {
    /// Reserves and fills the buffers. `peers` are the other GPUs, where the copy has some.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(shape: &CopyShape, peers: &[Rc<Peer>], context: &OwnWork) -> Result<DeviceCopy> {
        let others = if peers.is_empty() { vec![None] } else { peers.iter().map(Some).collect() };
        let ends = others.iter().flat_map(|other| shape.kind.parts().directions.iter().map(move |to| (*other, *to)));
        let new = |(index, (other, to))| Way::new(shape, to, other, index, context);
        let ways = || ends.enumerate().map(new).collect::<Result<Vec<Way>>>();
        let ways = match shape.host_memory.is_some_and(HostMemory::is_far) {
            true => on_far_node(context.pci, |node| ways().and_then(|ways| entirely_on(node, shape.bytes.0, ways)))??,
            false => ways()?,
        };
        Ok(DeviceCopy {
            ways,
            begin: driver::create_event()?,
            end: driver::create_event()?,
            shape: *shape,
            is_held: false,
            held: HeldStream::new(context, &shape.name(), DEFAULT_TIMEOUT),
        })
    }

    /// The nanoseconds of one copy: from a common start to the end of the last direction.
    fn run_once(&mut self) -> Result<f64> {
        let streams: Vec<CUstream> = self.ways.iter().map(|way| way.stream).chain([self.held.stream]).collect();
        self.held.run(self.is_held, &streams, || self.enqueue())?;
        self.is_held = self.shape.host_memory.is_none_or(HostMemory::is_pinned);
        Ok(driver::nanoseconds_between(self.begin, self.end)? / f64::from(copies_per_sample(&self.shape)))
    }

    fn enqueue(&self) -> Result<()> {
        let first = self.held.stream;
        driver::record(self.begin, first)?;
        let others = || self.ways.iter().filter(|way| way.stream != first);
        others().try_for_each(|way| driver::wait_for(way.stream, self.begin))?;
        // In turn, so that no direction starts ahead.
        for _ in 0..if self.shape.kind.is_latency() { 1 } else { copies_per_sample(&self.shape) } {
            self.ways.iter().try_for_each(|way| self.carry_out(way))?;
        }
        for way in others() {
            driver::record(way.end, way.stream)?;
            driver::wait_for(first, way.end)?;
        }
        driver::record(self.end, first)
    }

    fn carry_out(&self, way: &Way) -> Result<()> {
        let (CopyShape { kind, bytes, .. }, to, from) = (self.shape, way.target.address(), way.source.address());
        let amount = if kind.is_latency() { READS as u64 } else { bytes.0 };
        // SAFETY: both buffers have this many bytes and live as long as this, as does the chain of a latency; the stream is waited for by the
        // caller.
        within(way.by.as_ref(), || unsafe {
            match kind.parts().mover {
                Mover::Engine => driver::copy(to, from, amount as usize, way.stream),
                mover => way.kernels.transfer(mover, [to, from, amount], way.stream),
            }
        })
    }

    fn first_wrong(&self, way: &Way) -> Result<Option<Mismatch>> {
        let mut found: Option<Mismatch> = None;
        let (mut expected, mut read) = (Vec::new(), Vec::new());
        let bytes = self.shape.bytes.0 as usize;
        for from in (0..bytes).step_by(AT_ONCE) {
            let got = way.target.read(from, AT_ONCE.min(bytes - from), &mut read, self.held.stream)?;
            if has_pattern(way.seed, from, got) {
                continue;
            }
            write_pattern(way.seed, from, got.len(), &mut expected);
            let wrong = || got.iter().zip(&expected).enumerate().filter(|(_, (got, expected))| got != expected);
            if let Some((byte, (got, expected))) = wrong().next() {
                let [expected, got] = [expected, got].map(|byte| format!("0x{byte:02x}"));
                let (rank, element) = (self.held.rank, (from + byte) as u64);
                let first = Mismatch { rank, element, expected, got, count: 0, call: None };
                found.get_or_insert(first).count += wrong().count() as u64;
            }
        }
        Ok(found)
    }
}

impl LocalWork for DeviceCopy {
    fn run(&mut self) -> Result<u64> {
        self.run_once().map(|nanoseconds| nanoseconds.round() as u64).map_err(|error| self.held.with_place(&error))
    }

    fn check(&self) -> Result<Option<Mismatch>> {
        let found = self.ways.iter().find_map(|way| self.first_wrong(way).transpose()).transpose();
        found.map_err(|error| self.held.with_place(&error))
    }
}

impl Drop for DeviceCopy {
    fn drop(&mut self) {
        if self.held.given_up.get() {
            // Freeing memory would wait for the device, which does not respond. The process ends soon.
            self.ways.drain(..).for_each(std::mem::forget);
            return;
        }
        driver::destroy_event(self.begin);
        driver::destroy_event(self.end);
        for way in &self.ways {
            driver::destroy_event(way.end);
            if way.stream != self.held.stream {
                driver::destroy_stream(way.stream);
            }
        }
    }
}

impl Way {
    /// Reserves and fills its buffers. Without another GPU the other end is the host's memory or this rank's GPU.
    fn new(shape: &CopyShape, to: CopyDirection, other: Option<&Rc<Peer>>, index: usize, own: &OwnWork) -> Result<Way> {
        let bytes = usize::try_from(shape.bytes.0).unwrap_or(usize::MAX);
        let source_bytes = if shape.kind.is_latency() { READS * LINE } else { bytes };
        let here = |bytes| driver::allocate(bytes).map(Buffer::OnDevice);
        let there = |bytes| match (other, shape.host_memory) {
            (Some(peer), _) => peer.within(|| driver::allocate(bytes)).map(|there| Buffer::OnPeer(there, peer.clone())),
            (None, Some(memory)) => Buffer::of_host(memory, bytes),
            (None, None) => here(bytes),
        };
        let (source, target) = match to {
            CopyDirection::Out | CopyDirection::OutByOther => (here(source_bytes)?, there(bytes)?),
            CopyDirection::In | CopyDirection::InByOther => (there(source_bytes)?, here(bytes)?),
        };
        let by = other.filter(|_| matches!(to, CopyDirection::OutByOther | CopyDirection::InByOther)).cloned();
        let mut kernels = *own.kernels;
        if let Some(peer) = &by {
            peer.within(|| driver::enable_access_to(peer.own.context))?;
            if shape.kind.parts().mover == Mover::Kernel {
                kernels = peer.within(|| Kernels::load(&peer.device))?;
            }
        }
        let is_first = index == 0 && by.is_none();
        let stream = if is_first { own.stream } else { within(by.as_ref(), driver::create_stream)? };
        let end = within(by.as_ref(), driver::create_event)?;
        // Different for every rank and direction.
        let seed = u64::from(own.rank) << 16 | index as u64;
        let mut part = Vec::with_capacity(AT_ONCE.min(bytes));
        for from in (0..bytes).step_by(AT_ONCE) {
            write_pattern(seed, from, AT_ONCE.min(bytes - from), &mut part);
            source.write(from, &part, own.stream)?;
            // What no copy overwrites must be detected.
            turn_over(&mut part);
            target.write(from, &part, own.stream)?;
        }
        if shape.kind.is_latency() {
            source.write(0, &chain(source.address(), seed), own.stream)?;
        }
        Ok(Way { source, target, stream, end, seed, by, kernels })
    }
}

/// Runs work on the NUMA node farthest from the GPU.
///
/// # Errors
/// If there is none, or this process may not run there.
pub(super) fn on_far_node<T>(pci: &str, work: impl FnOnce(usize) -> T) -> Result<T> {
    let node = adapters::far_node(Path::new(SYSFS), pci)?;
    adapters::on_node(Path::new(SYSFS), node, || work(node))
}

/// Refuses buffers of the host that are not on the node: if that is full, the system takes memory of another.
fn entirely_on(node: usize, bytes: u64, ways: Vec<Way>) -> Result<Vec<Way>> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    for Way { source, target, .. } in &ways {
        let host = if source.on_host().is_some() { source } else { target };
        if let Some(there) = adapters::bytes_on(node, &maps, host.address()).filter(|there| *there < bytes) {
            let problem = format!("NUMA node {node} has {} of a buffer of {}; is it full?", Bytes(there), Bytes(bytes));
            return Err(Error::environment(problem));
        }
    }
    Ok(ways)
}

/// Lines of memory, each with the address of the next; the last has the first word of a pattern.
fn chain(address: CUdeviceptr, seed: u64) -> Vec<u8> {
    let mut lines = vec![0; READS * LINE];
    for (index, line) in lines.chunks_exact_mut(LINE).enumerate() {
        let next = address + ((index + 1) * LINE) as u64;
        line[..8].copy_from_slice(&if index + 1 < READS { next.to_le_bytes() } else { word(seed, 0) });
    }
    lines
}

/// Runs work in the context of another GPU, or of this rank's own.
fn within<T>(other: Option<&Rc<Peer>>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match other {
        Some(peer) => peer.within(work),
        None => work(),
    }
}

/// Eight bytes of a pattern. They look random and differ from place to place, so that a misplaced copy is detected.
fn word(seed: u64, index: u64) -> [u8; 8] {
    // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    let mixed = (index ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 31)).to_le_bytes()
}

/// Writes the bytes of a pattern from an offset, a multiple of eight.
fn write_pattern(seed: u64, from: usize, bytes: usize, to: &mut Vec<u8>) {
    to.resize(bytes, 0);
    let (whole, rest) = to.as_chunks_mut::<8>();
    let mut index = from as u64 / 8;
    for part in whole {
        *part = word(seed, index);
        index += 1;
    }
    rest.copy_from_slice(&word(seed, index)[..rest.len()]);
}

/// Whether bytes match a pattern from an offset, without writing the pattern out, which would take as long as reading them.
fn has_pattern(seed: u64, from: usize, bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let first = from as u64 / 8;
    // No early exit within a run of words, so that several are compared at once.
    let is_right = |(run, words): (usize, &[[u8; 8]])| {
        let first = first + (run * RUN) as u64;
        (first..).zip(words).fold(0, |wrong, (index, found)| {
            wrong | (u64::from_le_bytes(*found) ^ u64::from_le_bytes(word(seed, index)))
        }) == 0
    };
    whole.chunks(RUN).enumerate().all(is_right) && *rest == word(seed, first + whole.len() as u64)[..rest.len()]
}

/// Sets bytes so that none matches.
fn turn_over(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

// Memory at the ends of a copy: of the host, of this rank's GPU, and of another GPU of the host.

/// The GPU of another rank, opened by this process while the value lives: its own context there takes memory.
pub(super) struct Peer {
    /// This process's own device, whose context is current otherwise.
    own: Arc<Device>,
    device: Device,
}

impl Peer {
    /// Opens the GPU of that name, reachable from this rank's own.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn open(own: &Arc<Device>, uuid: &str) -> Result<Peer> {
        let number = number_of(uuid).ok_or_else(|| Error::environment(format!("this process does not see {uuid}")))?;
        let device = Device::open(number)?;
        let back = own.make_current();
        let peer = Peer { own: own.clone(), device };
        back?;
        driver::enable_access_to(peer.device.context)?;
        Ok(peer)
    }

    /// Runs work in the context of the other GPU.
    fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = self.device.make_current().and_then(|()| work());
        self.own.make_current()?;
        done
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.device.close();
    }
}

/// Why this rank's GPU cannot copy to the GPU of that name; `None` if it can.
pub(super) fn refusal(own: &Device, uuid: &str) -> Option<String> {
    if own.uuid == uuid {
        return Some("both ranks are on one GPU".to_owned());
    }
    let Some(number) = number_of(uuid) else {
        return Some(format!(
            "this process does not see the other GPU ({uuid}); make all GPUs of the host visible to all its ranks"
        ));
    };
    match device::reaches(own.number, number) {
        Ok(true) => None,
        Ok(false) => Some(format!("devices {} and {number} do not reach each other directly", own.number)),
        Err(error) => Some(error.to_string()),
    }
}

fn number_of(uuid: &str) -> Option<u32> {
    visible_devices().iter().position(|name| name == uuid).map(|number| number as u32)
}

/// Memory, freed on drop. Nothing enqueued may use it then.
pub(super) enum Buffer {
    /// Ordinary host memory: a mapping of this many bytes.
    Pageable(*mut c_void, usize),
    /// Page-locked host memory.
    Pinned(*mut c_void),
    /// Memory of this rank's GPU.
    OnDevice(CUdeviceptr),
    /// Memory of another GPU.
    OnPeer(CUdeviceptr, Rc<Peer>),
}

impl Buffer {
    /// Memory of the host, all of it where this thread now runs.
    fn of_host(memory: HostMemory, bytes: usize) -> Result<Buffer> {
        if memory.is_pinned() {
            return driver::allocate_shared(bytes).map(|(here, _)| Buffer::Pinned(here));
        }
        // Not from the heap, whose pages may be on any node.
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at an address that the system chooses.
        let here = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        let failed = || Error::environment(format!("mmap of {bytes} B: {}", std::io::Error::last_os_error()));
        (here != libc::MAP_FAILED).then_some(Buffer::Pageable(here, bytes)).ok_or_else(failed)
    }

    /// Its address: host and devices share one address space (CUDA programming guide, "Unified Virtual Address Space").
    pub fn address(&self) -> CUdeviceptr {
        match self {
            Buffer::Pageable(here, _) | Buffer::Pinned(here) => *here as CUdeviceptr,
            Buffer::OnDevice(address) | Buffer::OnPeer(address, _) => *address,
        }
    }

    /// Writes bytes at an offset, untimed; returns when they have arrived.
    pub fn write(&self, to: usize, bytes: &[u8], stream: CUstream) -> Result<()> {
        if let Some(start) = self.on_host() {
            // SAFETY: from the place on it has at least as many bytes, which are only ours, and which no copy uses now.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(to), bytes.len()) };
            return Ok(());
        }
        // SAFETY: as above; the slice outlives the copy, which is waited for.
        unsafe { driver::copy(self.address() + to as u64, bytes.as_ptr() as CUdeviceptr, bytes.len(), stream)? };
        driver::synchronize(stream)
    }

    /// The bytes from an offset, untimed, once all copies into it are done; those of devices are copied to `scratch`.
    pub fn read<'a>(
        &'a self,
        from: usize,
        bytes: usize,
        scratch: &'a mut Vec<u8>,
        stream: CUstream,
    ) -> Result<&'a [u8]> {
        if let Some(start) = self.on_host() {
            // SAFETY: from the place on it has at least as many bytes, and no copy writes there before the next run.
            return Ok(unsafe { slice::from_raw_parts(start.add(from).cast_const(), bytes) });
        }
        scratch.resize(bytes, 0);
        let to = scratch.as_mut_ptr() as CUdeviceptr;
        // SAFETY: as above; the scratch is exclusively ours until the copy is done.
        unsafe { driver::copy(to, self.address() + from as u64, bytes, stream)? };
        driver::synchronize(stream)?;
        Ok(scratch)
    }

    /// Its address in host memory, which is read and written without the driver.
    fn on_host(&self) -> Option<*mut u8> {
        match self {
            Buffer::Pageable(here, _) | Buffer::Pinned(here) => Some(here.cast()),
            Buffer::OnDevice(_) | Buffer::OnPeer(..) => None,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // These fail only if the device is lost, which the next call reports.
        let _ = match self {
            // SAFETY: from `of_host`, and not used again.
            Buffer::Pageable(here, bytes) => driver::check(unsafe { libc::munmap(*here, *bytes) }, "munmap"),
            // SAFETY: from `allocate_shared`, and not used again.
            Buffer::Pinned(here) => unsafe { driver::free_shared(*here) },
            // SAFETY: from `allocate`, and not used again.
            Buffer::OnDevice(address) => unsafe { driver::free(*address) },
            // SAFETY: as above.
            Buffer::OnPeer(address, peer) => peer.within(|| unsafe { driver::free(*address) }),
        };
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_model::config::CopyKind;

    #[test]
    fn a_sample_has_enough_copies_that_starting_them_is_a_small_part() {
        let mut shape = CopyShape {
            kind: CopyKind::WithinDevice,
            host_memory: None,
            peer_distance: None,
            bytes: Bytes(0),
            alone: true,
        };
        for (bytes, copies) in [(1, 16), (4 << 20, 16), (16 << 20, 4), (64 << 20, 1), (1 << 40, 1)] {
            shape.bytes = Bytes(bytes);
            assert_eq!(copies_per_sample(&shape), copies, "{bytes}");
        }
    }

    #[test]
    fn no_byte_of_what_is_overwritten_is_right_beforehand_and_no_stretch_comes_twice() {
        let pattern = |seed, from, bytes| {
            let mut part = Vec::new();
            write_pattern(seed, from, bytes, &mut part);
            part
        };
        let (right, other) = (pattern(3, 0, 1003), pattern(4, 0, 1003));
        assert_eq!([pattern(3, 0, 504), pattern(3, 504, 499)].concat(), right, "in parts as in one");
        assert!(has_pattern(3, 0, &right) && has_pattern(3, 504, &right[504..]) && !has_pattern(4, 0, &right));
        let mut wrong = right.clone();
        turn_over(&mut wrong);
        assert_eq!((right.len(), wrong.len()), (1003, 1003));
        assert!(right.iter().zip(&wrong).all(|(one, other)| one != other));
        let same = right.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!(same < 30, "{same} of 1003 bytes are the same with another seed");
        assert!(right.chunks_exact(8).skip(1).all(|word| word != &right[..8]));
    }
}
