//! The shared memory of the ranks of a communicator: a file, in /dev/shm unless `SETTINGS.shared` says otherwise, that is removed as soon as all have opened it.
//!
//! Every two ranks have a ring of bytes in each direction. A file that a crashed rank left behind is removed by the
//! process that creates the next one: its lock shows that no process has it open.

use crate::link;
use crate::result::{Answer, INVALID_ARGUMENT, INVALID_USAGE, SYSTEM_ERROR, failure};
use settings::SETTINGS;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const PREFIX: &str = "commgauge-double-";

/// Files of ids created by this process, open so that no process takes them for left behind.
static GIVEN: Mutex<Vec<(String, File)>> = Mutex::new(Vec::new());

#[repr(C)]
struct Head {
    ranks: AtomicU32,
    attached: AtomicU32,
}

/// What a rank writes of itself.
#[repr(C)]
struct Seat {
    taken: AtomicU32,
    /// Changes whenever data arrived for the rank, or room for what it sends.
    bell: AtomicU32,
    uuid: [AtomicU64; 2],
    host: AtomicU64,
    process: AtomicU64,
}

/// A ring of bytes from one rank to another.
#[repr(C, align(64))]
pub struct Ring {
    written: AtomicU64,
    read: AtomicU64,
}

/// An end of the messages from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sender = 1,
    Receiver = 2,
}

pub struct Segment {
    start: *mut u8,
    bytes: usize,
    ranks: usize,
    ring_bytes: usize,
    /// Open file with the lock.
    _file: File,
}

// SAFETY: what several threads and processes touch are atomics, and rings with one writer and one reader.
unsafe impl Send for Segment {}
// SAFETY: likewise.
unsafe impl Sync for Segment {}

const HEAD_BYTES: usize = 4096;

/// A new file, not shared with any process yet, for a future communicator.
pub fn create() -> Answer<String> {
    sweep();
    for attempt in 0..1000u32 {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{PREFIX}{}-{time:x}-{attempt}", std::process::id());
        let path = SETTINGS.shared.join(&name);
        if let Ok(file) = OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            lock_shared(&file);
            GIVEN.lock().unwrap().push((name.clone(), file));
            return Ok(name);
        }
    }
    failure(SYSTEM_ERROR, format!("no file can be made in {}", SETTINGS.shared.display()))
}

/// Removes files that their processes left behind.
fn sweep() {
    let old = |path: &PathBuf| {
        let age = path.metadata().and_then(|facts| facts.modified()).ok().and_then(|time| time.elapsed().ok());
        age.is_some_and(|age| age > Duration::from_secs(10))
    };
    let entries = std::fs::read_dir(&SETTINGS.shared).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)));
    for path in ours.filter(old) {
        let Ok(file) = File::open(&path) else { continue };
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn lock_shared(file: &File) {
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) };
}

impl Segment {
    /// Opens the file of an id and registers as a rank.
    pub fn open(name: &str, rank: usize, ranks: usize, uuid: [u8; 16], place: link::Seat) -> Answer<Segment> {
        let path = SETTINGS.shared.join(name);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.or_else(|cause| failure(INVALID_ARGUMENT, format!("the unique id names {name}: {cause}")))?;
        lock_shared(&file);
        // Sparse: untouched pages take no memory.
        let ring_bytes = ((64 << 20) / (ranks * ranks)).clamp(4 << 10, 64 << 10);
        let pairs = ranks * ranks;
        let bytes = HEAD_BYTES
            + ranks * size_of::<Seat>().next_multiple_of(64)
            + pairs * (size_of::<Ring>() + ring_bytes)
            + 4 * pairs;
        if file.set_len(bytes as u64).is_err() {
            return failure(SYSTEM_ERROR, format!("{} has no room for {bytes} bytes", SETTINGS.shared.display()));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return failure(SYSTEM_ERROR, format!("{bytes} bytes of {name} cannot be mapped"));
        }
        let segment = Segment { start: start.cast(), bytes, ranks, ring_bytes, _file: file };
        let agreed = segment.head().ranks.compare_exchange(0, ranks as u32, Ordering::SeqCst, Ordering::SeqCst);
        if let Err(others) = agreed.or_else(|others| if others as usize == ranks { Ok(0) } else { Err(others) }) {
            return failure(INVALID_ARGUMENT, format!("this rank says {ranks} ranks, others say {others}"));
        }
        let seat = segment.seat(rank);
        if seat.taken.swap(1, Ordering::SeqCst) != 0 {
            return failure(INVALID_USAGE, format!("rank {rank} is there twice"));
        }
        for (half, place) in uuid.as_chunks::<8>().0.iter().zip(&seat.uuid) {
            place.store(u64::from_ne_bytes(*half), Ordering::SeqCst);
        }
        seat.host.store(place.host, Ordering::SeqCst);
        seat.process.store(place.process, Ordering::SeqCst);
        if segment.head().attached.fetch_add(1, Ordering::SeqCst) + 1 == ranks as u32 {
            let _ = std::fs::remove_file(&path);
        }
        Ok(segment)
    }

    /// Whether all ranks are there.
    pub fn is_complete(&self) -> bool {
        self.head().attached.load(Ordering::SeqCst) as usize == self.ranks
    }

    /// What every rank said of itself; complete only when all are there.
    pub fn seats(&self) -> Vec<link::Seat> {
        let number = |place: &AtomicU64| place.load(Ordering::SeqCst);
        let seat = |seat: &Seat| link::Seat { host: number(&seat.host), process: number(&seat.process) };
        (0..self.ranks).map(|rank| seat(self.seat(rank))).collect()
    }

    /// Another rank on the same device.
    pub fn sharer(&self, rank: usize) -> Option<usize> {
        let uuid = |rank: usize| self.seat(rank).uuid.each_ref().map(|half| half.load(Ordering::SeqCst));
        (0..self.ranks).find(|other| *other != rank && uuid(*other) == uuid(rank))
    }

    fn head(&self) -> &Head {
        unsafe { &*self.start.cast() }
    }

    fn seat(&self, rank: usize) -> &Seat {
        unsafe { &*self.start.add(HEAD_BYTES + rank * size_of::<Seat>().next_multiple_of(64)).cast() }
    }

    fn ring(&self, from: usize, to: usize) -> (&Ring, *mut u8) {
        let first = HEAD_BYTES + self.ranks * size_of::<Seat>().next_multiple_of(64);
        let number = from * self.ranks + to;
        let data = first + self.ranks * self.ranks * size_of::<Ring>() + number * self.ring_bytes;
        unsafe { (&*self.start.add(first + number * size_of::<Ring>()).cast(), self.start.add(data)) }
    }

    /// Which ends of the messages from one rank to another have come to connect.
    fn ends(&self, from: usize, to: usize) -> &AtomicU32 {
        let pairs = self.ranks * self.ranks;
        let at = self.bytes - 4 * pairs + 4 * (from * self.ranks + to);
        unsafe { &*self.start.add(at).cast() }
    }

    /// An end of the messages from one rank to another comes to connect.
    pub fn come(&self, from: usize, to: usize, end: End) {
        self.ends(from, to).fetch_or(end as u32, Ordering::SeqCst);
    }

    /// Whether both ends have come.
    pub fn have_met(&self, from: usize, to: usize) -> bool {
        self.ends(from, to).load(Ordering::SeqCst) == End::Sender as u32 | End::Receiver as u32
    }

    /// Writes as much as there is room for; how much that was.
    pub fn write(&self, from: usize, to: usize, bytes: &[u8]) -> usize {
        let (ring, data) = self.ring(from, to);
        let (written, read) = (ring.written.load(Ordering::Relaxed), ring.read.load(Ordering::Acquire));
        let count = bytes.len().min(self.ring_bytes - (written - read) as usize);
        self.in_pieces(written, count, |at, done, piece| unsafe {
            data.add(at).copy_from_nonoverlapping(bytes.as_ptr().add(done), piece);
        });
        ring.written.store(written + count as u64, Ordering::Release);
        self.call(to, count);
        count
    }

    /// Reads as much as is there; how much that was.
    pub fn read(&self, from: usize, to: usize, bytes: &mut [u8]) -> usize {
        let (ring, data) = self.ring(from, to);
        let (read, written) = (ring.read.load(Ordering::Relaxed), ring.written.load(Ordering::Acquire));
        let count = bytes.len().min((written - read) as usize);
        self.in_pieces(read, count, |at, done, piece| unsafe {
            bytes.as_mut_ptr().add(done).copy_from_nonoverlapping(data.add(at), piece);
        });
        ring.read.store(read + count as u64, Ordering::Release);
        self.call(from, count);
        count
    }

    /// What the bell of a rank shows now.
    pub fn bell(&self, rank: usize) -> u32 {
        self.seat(rank).bell.load(Ordering::SeqCst)
    }

    /// Sleeps until the bell of a rank changes, for a short time at most. Many ranks share few processors in tests:
    /// one that polled would block the one that it waits for.
    pub fn wait_for_bell(&self, rank: usize, seen: u32) {
        let most = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let bell = self.seat(rank).bell.as_ptr();
        unsafe { libc::syscall(libc::SYS_futex, bell, libc::FUTEX_WAIT, seen, &most) };
    }

    /// Wakes a rank for which data arrived or room was made.
    fn call(&self, rank: usize, bytes: usize) {
        if bytes > 0 {
            let bell = &self.seat(rank).bell;
            bell.fetch_add(1, Ordering::SeqCst);
            unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// The pieces of this many bytes in a ring, which may wrap round its end.
    fn in_pieces(&self, position: u64, count: usize, mut piece: impl FnMut(usize, usize, usize)) {
        let at = (position % self.ring_bytes as u64) as usize;
        let first = count.min(self.ring_bytes - at);
        piece(at, 0, first);
        piece(0, first, count - first);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.bytes) };
    }
}

/// The id is no longer given out: all ranks are there, or making the communicator was given up.
pub fn retire(name: &str, given_up: bool) {
    GIVEN.lock().unwrap().retain(|(given, _)| given != name);
    if given_up {
        let _ = std::fs::remove_file(SETTINGS.shared.join(name));
    }
}
