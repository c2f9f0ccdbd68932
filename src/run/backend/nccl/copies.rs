//! Copies by a GPU's copy engines: between its memory and the host's, within it, and to and from the GPU of another rank of the host, as in
//! nvbandwidth. Every byte at the target is compared.

use super::device::{Device, visible_devices};
use super::driver::{CUdeviceptr, CUevent, CUstream};
use super::product::{HeldStream, OwnWork};
use super::{device, driver};
use crate::backend::{LocalWork, Mismatch};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{CopyKind, HostMemory};
use commgauge_model::workload::CopyShape;
use std::cell::Cell;
use std::ffi::c_void;
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

/// The number of copies per sample for this copy size.
pub(super) fn copies_per_sample(bytes: u64) -> u32 {
    (SAMPLE_BYTES / bytes.max(1)).clamp(1, MOST_COPIES) as u32
}

/// One direction: from one buffer to another, on its own stream.
struct Way {
    source: Buffer,
    target: Buffer,
    stream: CUstream,
    /// Whether the stream carries only this direction.
    is_own_stream: bool,
    end: CUevent,
    seed: u64,
}

/// A copy with its buffers.
pub(super) struct DeviceCopy {
    ways: Vec<Way>,
    begin: CUevent,
    bytes: usize,
    copies: u32,
    /// Whether the stream is held until all is enqueued; false if the driver itself waits for each copy.
    is_held: bool,
    held: HeldStream,
    /// Last, as its buffers are freed before it is closed.
    _peer: Option<Rc<Peer>>,
}

impl DeviceCopy {
    /// Reserves and fills the buffers. `peer` is the other GPU, where the copy has one.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(shape: &CopyShape, peer: Option<Rc<Peer>>, context: &OwnWork) -> Result<DeviceCopy> {
        let bytes = usize::try_from(shape.bytes.0).unwrap_or(usize::MAX);
        let host = || match shape.host_memory {
            Some(HostMemory::Pageable) => Ok(Buffer::pageable(bytes)),
            Some(HostMemory::Pinned) | None => Buffer::pinned(bytes),
        };
        let device = || Buffer::on_device(bytes);
        let there = || Buffer::on_peer(bytes, peer.as_ref());
        let ends = match shape.kind {
            CopyKind::HostToDevice => vec![(host()?, device()?)],
            CopyKind::DeviceToHost => vec![(device()?, host()?)],
            CopyKind::HostBothWays => vec![(host()?, device()?), (device()?, host()?)],
            CopyKind::WithinDevice => vec![(device()?, device()?)],
            CopyKind::ToPeer => vec![(device()?, there()?)],
            CopyKind::PeerBothWays => vec![(device()?, there()?), (there()?, device()?)],
        };
        let mut ways = Vec::new();
        for (index, (source, target)) in ends.into_iter().enumerate() {
            let stream = if index == 0 { context.stream } else { driver::create_stream()? };
            // Different for every rank and direction.
            let seed = u64::from(context.rank) << 1 | index as u64;
            let mut part = Vec::with_capacity(AT_ONCE.min(bytes));
            for from in (0..bytes).step_by(AT_ONCE) {
                write_pattern(seed, from, AT_ONCE.min(bytes - from), &mut part);
                source.write(from, &part, stream)?;
                // What no copy overwrites must be detected.
                turn_over(&mut part);
                target.write(from, &part, stream)?;
            }
            ways.push(Way { source, target, stream, is_own_stream: index > 0, end: driver::create_event()?, seed });
        }
        Ok(DeviceCopy {
            ways,
            begin: driver::create_event()?,
            bytes,
            copies: copies_per_sample(shape.bytes.0),
            is_held: shape.host_memory != Some(HostMemory::Pageable),
            held: HeldStream::new(context, &shape.name(), DEFAULT_TIMEOUT),
            _peer: peer,
        })
    }

    /// The nanoseconds of one copy: from a common start to the end of the last direction.
    fn run_once(&self) -> Result<f64> {
        let streams: Vec<CUstream> = self.ways.iter().map(|way| way.stream).collect();
        self.held.run(self.is_held, &streams, || self.enqueue(streams[0]))?;
        let mut longest = 0f64;
        for way in &self.ways {
            longest = longest.max(driver::nanoseconds_between(self.begin, way.end)?);
        }
        Ok(longest / f64::from(self.copies))
    }

    fn enqueue(&self, first: CUstream) -> Result<()> {
        driver::record(self.begin, first)?;
        for way in &self.ways[1..] {
            driver::wait_for(way.stream, self.begin)?;
        }
        // In turn, so that no direction starts ahead.
        for _ in 0..self.copies {
            for way in &self.ways {
                // SAFETY: both buffers have this many bytes and live as long as this; the stream is waited for by the caller.
                unsafe { driver::copy(way.target.address(), way.source.address(), self.bytes, way.stream)? };
            }
        }
        self.ways.iter().try_for_each(|way| driver::record(way.end, way.stream))
    }

    fn first_wrong(&self, way: &Way) -> Result<Option<Mismatch>> {
        let mut found: Option<Mismatch> = None;
        let (mut expected, mut read) = (Vec::new(), Vec::new());
        for from in (0..self.bytes).step_by(AT_ONCE) {
            let got = way.target.read(from, AT_ONCE.min(self.bytes - from), &mut read, way.stream)?;
            if has_pattern(way.seed, from, got) {
                continue;
            }
            write_pattern(way.seed, from, got.len(), &mut expected);
            let wrong = || got.iter().zip(&expected).enumerate().filter(|(_, (got, expected))| got != expected);
            let count = wrong().count() as u64;
            match (&mut found, wrong().next()) {
                (Some(found), _) => found.count += count,
                (None, Some((byte, (got, expected)))) => {
                    found = Some(Mismatch {
                        rank: self.held.rank,
                        element: (from + byte) as u64,
                        expected: format!("0x{expected:02x}"),
                        got: format!("0x{got:02x}"),
                        count,
                        call: None,
                    });
                }
                (None, None) => {}
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
        for way in &self.ways {
            let found = self.first_wrong(way).map_err(|error| self.held.with_place(&error))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
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
        for way in &self.ways {
            driver::destroy_event(way.end);
            if way.is_own_stream {
                driver::destroy_stream(way.stream);
            }
        }
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
    /// Ordinary host memory.
    Pageable(Box<[Cell<u8>]>),
    /// Page-locked host memory.
    Pinned(*mut c_void),
    /// Memory of this rank's GPU.
    OnDevice(CUdeviceptr),
    /// Memory of another GPU.
    OnPeer(CUdeviceptr, Rc<Peer>),
}

impl Buffer {
    pub fn pageable(bytes: usize) -> Buffer {
        Buffer::Pageable(vec![Cell::new(0); bytes].into_boxed_slice())
    }

    pub fn pinned(bytes: usize) -> Result<Buffer> {
        driver::allocate_shared(bytes).map(|(here, _)| Buffer::Pinned(here))
    }

    pub fn on_device(bytes: usize) -> Result<Buffer> {
        driver::allocate(bytes).map(Buffer::OnDevice)
    }

    pub fn on_peer(bytes: usize, peer: Option<&Rc<Peer>>) -> Result<Buffer> {
        let peer = peer.ok_or_else(|| Error::environment("the other GPU was not opened"))?;
        peer.within(|| driver::allocate(bytes)).map(|address| Buffer::OnPeer(address, peer.clone()))
    }

    /// Its address: host and devices share one address space (CUDA programming guide, "Unified Virtual Address Space").
    pub fn address(&self) -> CUdeviceptr {
        match self {
            Buffer::Pageable(bytes) => bytes.as_ptr() as CUdeviceptr,
            Buffer::Pinned(here) => *here as CUdeviceptr,
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
            Buffer::Pageable(bytes) => Some(bytes.as_ptr().cast::<u8>().cast_mut()),
            Buffer::Pinned(here) => Some(here.cast()),
            Buffer::OnDevice(_) | Buffer::OnPeer(..) => None,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // These fail only if the device is lost, which the next call reports.
        let _ = match self {
            Buffer::Pageable(_) => Ok(()),
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

    #[test]
    fn a_sample_has_enough_copies_that_starting_them_is_a_small_part() {
        for (bytes, copies) in [(1, 16), (4 << 20, 16), (16 << 20, 4), (64 << 20, 1), (1 << 40, 1)] {
            assert_eq!(copies_per_sample(bytes), copies, "{bytes}");
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
