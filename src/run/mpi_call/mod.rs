//! The thin checked layer over the C interface of MPI: every return code is checked.
//!
//! The `mpi` crate provides launch, bindings and handles; its safe calls drop the return codes, so the calls for data
//! and agreement are here. The few `unsafe` blocks of the project are in this module and in `backend::mpi`. Sections
//! named `MPI-3.1 n.m` are those of the MPI standard, version 3.1.

mod data;

pub use data::{Datatype, Message, Operation, Prepared, Request};

use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Located;
use commgauge_base::writing::eprintln;
use mpi::ffi;
use std::ffi::{c_int, c_void};
use std::time::Duration;

// An MPI family's handles are pointers (Open MPI) or ints (MPICH): bindings of one and headers of the other would be memory corruption, not
// a link error. It happens when MPICC changes for an existing target directory.
const _: () = assert!(
    (size_of::<ffi::MPI_Comm>() == 8) == cfg!(commgauge_open_mpi),
    "the mpi-sys bindings in this target directory were generated for another MPI: use one target directory per MPI, or run cargo clean -p mpi-sys"
);

/// Turns a return code into an error that names the call.
#[inline(always)]
pub(crate) fn check(code: c_int, call: &'static str) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(failure(code, call)) }
}

#[cold]
fn failure(code: c_int, call: &'static str) -> Error {
    let (mut class, mut length) = (0, 0);
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    // SAFETY: the text has room for MPI_MAX_ERROR_STRING characters and a zero (MPI-3.1 8.3), the ints are ours.
    unsafe {
        ffi::MPI_Error_class(code, &mut class);
        ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length);
    }
    text.truncate(length.clamp(0, ffi::MPI_MAX_ERROR_STRING as c_int) as usize);
    let text = String::from_utf8_lossy(&text).lines().map(str::trim).collect::<Vec<_>>().join("; ");
    Error::environment(format!("{call} failed with MPI error class {class}: {text}"))
}

/// MPI for as long as the process uses it. Dropping it finalises, which waits for all ranks.
pub struct Session {
    _universe: mpi::environment::Universe,
}

/// Initialises MPI. From here on a panic of any thread ends the whole launch with exit code 6, because a rank that
/// unwinds would finalise and leave the others waiting forever.
///
/// # Errors
/// If MPI was initialised before.
pub fn initialize() -> Result<Session> {
    abort_on_panic();
    crash_by_signals();
    let started = mpi::initialize_with_threading(mpi::Threading::Funneled);
    let (universe, _) = started.ok_or_else(|| Error::environment("MPI was initialised before".to_owned()))?;
    // SAFETY: MPI is initialised; both handles are MPI's own constants. Communicators split off inherit the handler (MPI-3.1 8.3).
    let code = unsafe { ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN) };
    check(code, "MPI_Comm_set_errhandler")?;
    Ok(Session { _universe: universe })
}

/// What a rank does with its processor while it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Keeps it: each rank has its own.
    Spins,
    /// Yields it: ranks share processors, and the rank that is waited for may not be scheduled otherwise.
    Yields,
}

impl Waiting {
    pub fn of_ranks(ranks_on_host: u32, processors: u32) -> Waiting {
        if ranks_on_host > processors { Waiting::Yields } else { Waiting::Spins }
    }

    /// One pause between two polls.
    #[inline]
    pub fn pause(self) {
        match self {
            Waiting::Spins => std::hint::spin_loop(),
            Waiting::Yields => std::thread::yield_now(),
        }
    }
}

/// Sets how this process waits inside calls of MPI. It yields from the start; before measuring it is set to spin if each rank has its own
/// processor. For MPICH, which has no setting for it (`yielding.c`); launchers configure Open MPI themselves.
pub fn set_waiting(waiting: Waiting) {
    #[cfg(not(commgauge_open_mpi))]
    {
        unsafe extern "C" {
            fn commgauge_yield_while_waiting(on: c_int);
        }
        // SAFETY: the function stores a number, atomically.
        unsafe { commgauge_yield_while_waiting(c_int::from(waiting == Waiting::Yields)) };
    }
    #[cfg(commgauge_open_mpi)]
    let _ = waiting;
}

/// Ends all processes of the launch with an exit code. Codes survive the launchers only through `MPI_Abort`.
pub fn abort(exit_code: i32) -> ! {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // SAFETY: MPI is initialised and not finalised; the call does not return (MPI-3.1 8.7).
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, exit_code) };
    }
    std::process::exit(exit_code)
}

/// The library's own name and version, shortened.
pub fn library_version() -> String {
    mpi::environment::library_version().map_or_else(|_| "unknown MPI".to_owned(), |text| name_and_version(&text))
}

/// The first line of a library's version text, without the package of Open MPI, and without the label that MPICH and its derivatives put
/// before the number.
fn name_and_version(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default().split(", package").next().unwrap_or_default();
    let words: Vec<&str> =
        first.split_whitespace().filter(|word| !matches!(*word, "Version:" | "Version" | ":")).collect();
    words.join(" ")
}

/// Has SIGSEGV and SIGBUS end this process also when another process sends them. Rust's handler takes them for a fault of the running
/// instruction and returns to repeat it, so that the first one from outside has no effect. MPI libraries install their own handlers, which
/// print a backtrace, only if there is none.
fn crash_by_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: restores the default of the system, which runs no code of ours (signal(2)).
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        eprintln!("commgauge: {}a broken assumption on host {host}; ending the whole launch", rank_of_this_process());
        report(panic);
        abort(6);
    }));
}

/// `rank 3: `, or nothing before MPI knows.
pub fn rank_of_this_process() -> String {
    if !mpi::environment::is_initialized() || mpi::environment::is_finalized() {
        return String::new();
    }
    let mut rank = 0;
    // SAFETY: MPI is initialised and not finalised; `rank` is ours.
    unsafe { ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank) };
    format!("rank {rank}: ")
}

// A private communicator, and the calls by which ranks agree. Never timed.

unsafe extern "C" {
    safe fn commgauge_mpi_in_place() -> *mut c_void;
    safe fn commgauge_mpi_double_int() -> ffi::MPI_Datatype;
    safe fn commgauge_mpi_maxloc() -> ffi::MPI_Op;
    safe fn commgauge_mpi_minloc() -> ffi::MPI_Op;
}

/// Tag of our own point-to-point messages; the communicators are private, so any will do.
const TAG: c_int = 1;

/// An owned communicator, freed by [`Communicator::free`] (a collective call, so never in `Drop`).
#[derive(Debug)]
pub struct Communicator {
    raw: ffi::MPI_Comm,
    rank: u32,
    ranks: u32,
}

impl Communicator {
    /// A private copy of the world's communicator. Collective.
    pub fn world() -> Result<Communicator> {
        // SAFETY: reading a constant of the initialised library.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let mut raw = world;
        // SAFETY: `raw` is ours (MPI-3.1 6.4.2).
        check(unsafe { ffi::MPI_Comm_dup(world, &mut raw) }, "MPI_Comm_dup")?;
        Communicator::of(raw)
    }

    /// The communicator of the ranks that pass the same colour, ordered by key; none for ranks that pass no colour.
    /// Collective.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Communicator>> {
        let mut raw = self.raw;
        let color_or_none = color.map_or(ffi::MPI_UNDEFINED, |color| color as c_int);
        // SAFETY: `raw` is ours (MPI-3.1 6.4.2).
        check(unsafe { ffi::MPI_Comm_split(self.raw, color_or_none, key as c_int, &mut raw) }, "MPI_Comm_split")?;
        color.map(|_| Communicator::of(raw)).transpose()
    }

    /// The lowest rank with which MPI finds shared memory. Collective.
    pub fn shared_memory_leader(&self) -> Result<u32> {
        let mut raw = self.raw;
        // SAFETY: `raw` is ours, the other two are constants of the library; no info is given (MPI-3.1 6.4.2).
        let code = unsafe {
            let (kind, key) = (ffi::RSMPI_COMM_TYPE_SHARED, self.rank as c_int);
            ffi::MPI_Comm_split_type(self.raw, kind, key, ffi::RSMPI_INFO_NULL, &mut raw)
        };
        check(code, "MPI_Comm_split_type")?;
        let sharing = Communicator::of(raw)?;
        let mut leader = [u64::from(self.rank)];
        sharing.broadcast_u64(&mut leader)?;
        sharing.free()?;
        Ok(leader[0] as u32)
    }

    fn of(raw: ffi::MPI_Comm) -> Result<Communicator> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the ints are ours.
        unsafe {
            check(ffi::MPI_Comm_rank(raw, &mut rank), "MPI_Comm_rank")?;
            check(ffi::MPI_Comm_size(raw, &mut ranks), "MPI_Comm_size")?;
        }
        Ok(Communicator { raw, rank: rank as u32, ranks: ranks as u32 })
    }

    /// Frees the communicator. Collective.
    pub fn free(mut self) -> Result<()> {
        // SAFETY: the handle is ours and not used again (MPI-3.1 6.4.3).
        check(unsafe { ffi::MPI_Comm_free(&mut self.raw) }, "MPI_Comm_free")
    }

    pub fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { ffi::MPI_Barrier(self.raw) }, "MPI_Barrier")
    }

    /// Broadcasts rank 0's numbers; the same length everywhere.
    pub fn broadcast_u64(&self, values: &mut [u64]) -> Result<()> {
        let count = int(values.len(), "numbers to broadcast")?;
        // SAFETY: the buffer has `count` elements of this type.
        let code = unsafe { ffi::MPI_Bcast(values.as_mut_ptr().cast(), count, ffi::RSMPI_UINT64_T, 0, self.raw) };
        check(code, "MPI_Bcast")
    }

    /// Broadcasts rank 0's bytes, replacing the content on the others.
    pub fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut length = [bytes.len() as u64];
        self.broadcast_u64(&mut length)?;
        bytes.resize(length[0] as usize, 0);
        let count = int(bytes.len(), "bytes to broadcast")?;
        // SAFETY: the buffer has `count` bytes.
        let code = unsafe { ffi::MPI_Bcast(start_mut(bytes).cast(), count, ffi::RSMPI_UINT8_T, 0, self.raw) };
        check(code, "MPI_Bcast")
    }

    /// Collects every rank's bytes at rank 0; empty elsewhere.
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mine = int(bytes.len(), "bytes to gather")?;
        let at_root = self.rank == 0;
        let mut lengths = vec![0 as c_int; if at_root { self.ranks as usize } else { 0 }];
        // SAFETY: the root has room for one int of each rank (MPI-3.1 5.5).
        let code = unsafe {
            let (int_type, root) = (ffi::RSMPI_INT32_T, 0);
            let send: *const c_void = (&raw const mine).cast();
            ffi::MPI_Gather(send, 1, int_type, lengths.as_mut_ptr().cast(), 1, int_type, root, self.raw)
        };
        check(code, "MPI_Gather")?;
        let total = int(lengths.iter().map(|l| *l as usize).sum(), "bytes to gather from all ranks")?;
        let starts: Vec<c_int> = lengths
            .iter()
            .scan(0, |next, length| {
                let start = *next;
                *next += length;
                Some(start)
            })
            .collect();
        let mut all = vec![0u8; total as usize];
        // SAFETY: the root has room for `lengths` bytes at `starts`, which are contiguous.
        let code = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            let (to, counts, displacements) = (start_mut(&mut all).cast(), lengths.as_ptr(), starts.as_ptr());
            ffi::MPI_Gatherv(start(bytes).cast(), mine, byte, to, counts, displacements, byte, 0, self.raw)
        };
        check(code, "MPI_Gatherv")?;
        Ok(starts
            .iter()
            .zip(&lengths)
            .map(|(start, length)| all[*start as usize..(start + length) as usize].to_vec())
            .collect())
    }

    /// Replaces every element by the largest and its rank.
    pub fn all_max(&self, values: &mut [Located]) -> Result<()> {
        self.all_located(values, commgauge_mpi_maxloc())
    }

    /// Replaces every element by the smallest and its rank.
    pub fn all_min(&self, values: &mut [Located]) -> Result<()> {
        self.all_located(values, commgauge_mpi_minloc())
    }

    fn all_located(&self, values: &mut [Located], operation: ffi::MPI_Op) -> Result<()> {
        let count = int(values.len(), "values to agree on")?;
        // SAFETY: `Located` has the layout of MPI_DOUBLE_INT, a C struct of double and int (MPI-3.1 5.9.4).
        let code = unsafe {
            let (from, to) = (commgauge_mpi_in_place().cast_const(), values.as_mut_ptr().cast());
            ffi::MPI_Allreduce(from, to, count, commgauge_mpi_double_int(), operation, self.raw)
        };
        check(code, "MPI_Allreduce")
    }

    pub fn send(&self, rank: u32, value: u64) -> Result<()> {
        let buffer: *const c_void = (&raw const value).cast();
        // SAFETY: one element of this type lives at `buffer`.
        check(unsafe { ffi::MPI_Send(buffer, 1, ffi::RSMPI_UINT64_T, rank as c_int, TAG, self.raw) }, "MPI_Send")
    }

    pub fn receive(&self, rank: u32) -> Result<u64> {
        let mut value = 0u64;
        let buffer: *mut c_void = (&raw mut value).cast();
        // SAFETY: one element of this type is at `buffer`; the status is not needed.
        let code = unsafe {
            let ignore = ffi::RSMPI_STATUS_IGNORE;
            ffi::MPI_Recv(buffer, 1, ffi::RSMPI_UINT64_T, rank as c_int, TAG, self.raw, ignore)
        };
        check(code, "MPI_Recv").map(|()| value)
    }
}

/// Address of the bytes; null if there are none. The address that Rust gives an empty slice of bytes is 1, and to Open
/// MPI that is `MPI_IN_PLACE`.
fn start(bytes: &[u8]) -> *const u8 {
    if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr() }
}

fn start_mut(bytes: &mut [u8]) -> *mut u8 {
    if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr() }
}

/// A length as the int of the C interface.
fn int(length: usize, what: &str) -> Result<c_int> {
    c_int::try_from(length)
        .map_err(|_| Error::environment(format!("{length} {what}: this MPI interface counts up to {}", c_int::MAX)))
}

// The delay between the end of MPI and the end of the process that a busy launcher needs.

/// Delay per rank on a host that shares a processor, so that its launcher reads each rank's farewell.
const PER_SHARING_RANK: Duration = Duration::from_millis(10);

/// A watchdog waits longer than this for a rank that has left.
const LONGEST: Duration = Duration::from_secs(5);

/// Waits, asleep, until the launcher has probably read that this process, on a host of this many processors, has finalised MPI.
///
/// Open MPI's finalisation tells the launcher, and stops waiting for its answer after 2 s. If the launcher sees the end of the process
/// first, it reports "exiting improperly" and ends the launch with code 1, although nothing failed (github.com/open-mpi/ompi, issues 7833
/// and 12607). That happens if many ranks share a processor; otherwise there is no delay.
pub fn pause_before_exit(ranks_here: u32, processors: u32) {
    std::thread::sleep(pause_of(ranks_here, processors));
}

fn pause_of(ranks_here: u32, processors: u32) -> Duration {
    let sharing = if ranks_here > processors { ranks_here / processors } else { 0 };
    (PER_SHARING_RANK * sharing).min(LONGEST)
}

// Files inherited from the parent process. Launchers and MPI libraries leave theirs open for processes started by a
// rank, and then wait forever for connections to close that such a process still has open.

/// Limit for systems that cannot close all files at once: no launcher leaves files with higher numbers.
const HIGHEST: u32 = 4096;

/// Closes every file except the three standard ones. Must be called first, when this program has opened nothing.
pub fn close_inherited_files() {
    const FIRST: u32 = 3;
    // SAFETY: closes numbers that nothing in this program owns yet (close_range(2), Linux 5.9).
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0u32) };
    if closed != 0 {
        for file in FIRST..HIGHEST {
            // SAFETY: as above; closing a number that is not open is an error without consequence (close(2)).
            unsafe { libc::close(file as i32) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{name_and_version, pause_of};

    #[test]
    fn what_libraries_say_of_themselves_becomes_a_name_and_a_version() {
        for (text, expected) in [
            (
                "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022",
                "Open MPI v4.1.4",
            ),
            ("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n", "MPICH 4.0.2"),
            ("MVAPICH2 Version      :\t2.3.7\n", "MVAPICH2 2.3.7"),
            ("Intel(R) MPI Library 2021.18 for Linux* OS\n", "Intel(R) MPI Library 2021.18 for Linux* OS"),
        ] {
            assert_eq!(name_and_version(text), expected);
        }
    }

    #[test]
    fn ranks_that_share_processors_leave_their_launcher_time_and_others_exit_at_once() {
        for (ranks_here, processors, milliseconds) in
            [(1, 2, 0), (2, 2, 0), (4, 2, 20), (512, 2, 2_560), (4_096, 1, 5_000), (u32::MAX, 1, 5_000)]
        {
            assert_eq!(pause_of(ranks_here, processors).as_millis(), milliseconds, "{ranks_here} on {processors}");
        }
    }
}
