//! A communicator of our own, and the calls by which ranks agree. Never timed.

use super::check;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Located;
use mpi::ffi;
use std::ffi::{c_int, c_void};

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
        sharing.broadcast(&mut leader)?;
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

    /// The handle.
    pub fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Waits for all.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { ffi::MPI_Barrier(self.raw) }, "MPI_Barrier")
    }

    /// Broadcasts rank 0's numbers; the same length everywhere.
    pub fn broadcast(&self, values: &mut [u64]) -> Result<()> {
        let count = int(values.len(), "numbers to broadcast")?;
        // SAFETY: the buffer has `count` elements of this type.
        let code = unsafe { ffi::MPI_Bcast(values.as_mut_ptr().cast(), count, ffi::RSMPI_UINT64_T, 0, self.raw) };
        check(code, "MPI_Bcast")
    }

    /// Broadcasts rank 0's bytes, replacing the content on the others.
    pub fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut length = [bytes.len() as u64];
        self.broadcast(&mut length)?;
        bytes.resize(length[0] as usize, 0);
        let count = int(bytes.len(), "bytes to broadcast")?;
        // SAFETY: the buffer has `count` bytes.
        let code = unsafe { ffi::MPI_Bcast(start_mut(bytes).cast(), count, ffi::RSMPI_UINT8_T, 0, self.raw) };
        check(code, "MPI_Bcast")
    }

    /// Collects every rank's bytes at rank 0; empty elsewhere.
    pub fn gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
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

    /// Sends one number.
    pub fn send(&self, rank: u32, value: u64) -> Result<()> {
        let buffer: *const c_void = (&raw const value).cast();
        // SAFETY: one element of this type lives at `buffer`.
        check(unsafe { ffi::MPI_Send(buffer, 1, ffi::RSMPI_UINT64_T, rank as c_int, TAG, self.raw) }, "MPI_Send")
    }

    /// Receives one number.
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

/// As [`start`], to write to.
fn start_mut(bytes: &mut [u8]) -> *mut u8 {
    if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr() }
}

/// A length as the int of the C interface.
pub(super) fn int(length: usize, what: &str) -> Result<c_int> {
    c_int::try_from(length).map_err(|_| {
        Error::environment(format!("{length} {what}: this MPI interface counts to {} at most", c_int::MAX))
    })
}
