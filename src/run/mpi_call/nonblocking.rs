//! The same calls started without waiting, and messages between two ranks: for replaying a step, in which calls of
//! many groups are active at once (MPI-3.1 sections 3.7 and 5.12).

use super::data::{Kind, TAG, count};
use super::{Communicator, Datatype, Prepared, check};
use commgauge_base::error::{Error, Result};
use mpi::ffi;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    safe fn commgauge_mpi_in_place() -> *mut c_void;
}

/// A call under way: at most a sending and a receiving part.
#[derive(Debug)]
pub struct Request {
    parts: [ffi::MPI_Request; 2],
}

impl Request {
    /// Nothing under way.
    pub fn none() -> Request {
        // SAFETY: reading a constant of the initialised library.
        Request { parts: [unsafe { ffi::RSMPI_REQUEST_NULL }; 2] }
    }

    /// Whether the call is done, and progress for all calls of the process (MPI-3.1 3.7.4).
    #[inline]
    pub fn test(&mut self) -> Result<bool> {
        let mut all_done = true;
        for part in &mut self.parts {
            let mut done: c_int = 0;
            // SAFETY: the handle is ours, null or of an active call; the status is not needed.
            check(unsafe { ffi::MPI_Test(part, &mut done, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Test")?;
            all_done &= done != 0;
        }
        Ok(all_done)
    }

    /// Waits until the call is complete; returns at once without an active call.
    #[inline]
    pub fn wait(&mut self) -> Result<()> {
        for part in &mut self.parts {
            // SAFETY: the handle is ours, null or of an active call; the status is not needed.
            check(unsafe { ffi::MPI_Wait(part, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Wait")?;
        }
        Ok(())
    }
}

impl Prepared {
    /// Starts the call.
    ///
    /// # Errors
    /// Those of MPI, and a ping-pong, whose second half cannot be started before the first has arrived.
    ///
    /// # Safety
    /// As [`Prepared::issue`]; the buffers, this value and the communicator must exist until the request was waited
    /// for, and no other call may write to the buffers meanwhile. The request must not belong to an active call.
    #[inline]
    pub unsafe fn start(&self, send: *const u8, receive: *mut u8, request: &mut Request) -> Result<()> {
        let (comm, kind, root) = (self.communicator, self.datatype, self.root);
        let receive: *mut c_void = receive.cast();
        let own: *const c_void = send.cast();
        // As in `issue`: MPI_IN_PLACE replaces the send buffer, in rooted calls at the root only (MPI-3.1 5.2.1).
        let from = if self.in_place { commgauge_mpi_in_place().cast_const() } else { own };
        let from_rooted = if self.at_root { from } else { own };
        let [first, second] = &mut request.parts;
        // SAFETY: the caller guarantees the buffers; counts were checked when the call was prepared and are stored in
        // it.
        unsafe {
            match &self.call {
                Kind::AllReduce { count } => {
                    let code = ffi::MPI_Iallreduce(from, receive, *count, kind, self.op(), comm, first);
                    check(code, "MPI_Iallreduce")
                }
                Kind::AllGather { block } => {
                    let code = ffi::MPI_Iallgather(from, *block, kind, receive, *block, kind, comm, first);
                    check(code, "MPI_Iallgather")
                }
                Kind::AllGatherV { mine, all } => {
                    let (counts, starts) = (all.counts.as_ptr(), all.displacements.as_ptr());
                    let code = ffi::MPI_Iallgatherv(from, *mine, kind, receive, counts, starts, kind, comm, first);
                    check(code, "MPI_Iallgatherv")
                }
                Kind::ReduceScatter { block } => {
                    let code = ffi::MPI_Ireduce_scatter_block(from, receive, *block, kind, self.op(), comm, first);
                    check(code, "MPI_Ireduce_scatter_block")
                }
                Kind::ReduceScatterV { all } => {
                    let counts = all.counts.as_ptr();
                    let code = ffi::MPI_Ireduce_scatter(from, receive, counts, kind, self.op(), comm, first);
                    check(code, "MPI_Ireduce_scatter")
                }
                Kind::Broadcast { count } => {
                    check(ffi::MPI_Ibcast(receive, *count, kind, root, comm, first), "MPI_Ibcast")
                }
                Kind::Reduce { count } => {
                    let code = ffi::MPI_Ireduce(from_rooted, receive, *count, kind, self.op(), root, comm, first);
                    check(code, "MPI_Ireduce")
                }
                Kind::Gather { block } => {
                    let code = ffi::MPI_Igather(from_rooted, *block, kind, receive, *block, kind, root, comm, first);
                    check(code, "MPI_Igather")
                }
                Kind::Scatter { block } => {
                    let to = if self.in_place && self.at_root { commgauge_mpi_in_place() } else { receive };
                    let code = ffi::MPI_Iscatter(own, *block, kind, to, *block, kind, root, comm, first);
                    check(code, "MPI_Iscatter")
                }
                Kind::AllToAll { block } => {
                    let code = ffi::MPI_Ialltoall(from, *block, kind, receive, *block, kind, comm, first);
                    check(code, "MPI_Ialltoall")
                }
                Kind::AllToAllV { send, receive: to } => {
                    let (sent, sent_starts) = (send.counts.as_ptr(), send.displacements.as_ptr());
                    let (got, got_starts) = (to.counts.as_ptr(), to.displacements.as_ptr());
                    let code =
                        ffi::MPI_Ialltoallv(from, sent, sent_starts, kind, receive, got, got_starts, kind, comm, first);
                    check(code, "MPI_Ialltoallv")
                }
                Kind::Shift { count, next, previous } => {
                    check(ffi::MPI_Irecv(receive, *count, kind, *previous, TAG, comm, first), "MPI_Irecv")?;
                    check(ffi::MPI_Isend(own, *count, kind, *next, TAG, comm, second), "MPI_Isend")
                }
                Kind::PingPong { .. } => {
                    Err(Error::usage("a ping_pong cannot be part of a replay: its way back cannot be started at once"))
                }
                Kind::Idle => Ok(()),
                Kind::Barrier => check(ffi::MPI_Ibarrier(comm, first), "MPI_Ibarrier"),
            }
        }
    }

    /// Elements of the size argument, from the counts that are handed to MPI, in a group of `ranks` ranks.
    pub fn elements_named(&self, ranks: u32) -> u64 {
        let of_all = |block: c_int| block as u64 * u64::from(ranks);
        let sum = |counts: &[c_int]| counts.iter().map(|count| *count as u64).sum();
        match &self.call {
            Kind::AllReduce { count } | Kind::Broadcast { count } | Kind::Reduce { count } => *count as u64,
            Kind::Shift { count, .. } | Kind::PingPong { count, .. } => *count as u64,
            Kind::AllGather { block } | Kind::ReduceScatter { block } | Kind::AllToAll { block } => of_all(*block),
            Kind::Gather { block } | Kind::Scatter { block } => of_all(*block),
            Kind::AllGatherV { all, .. } | Kind::ReduceScatterV { all } => sum(&all.counts),
            Kind::AllToAllV { send, .. } => sum(&send.counts),
            Kind::Idle | Kind::Barrier => 0,
        }
    }

    /// Elements that rank `me` of the group sends to others in an all_to_all_v or receives from them, whichever is more, from the
    /// counts that are handed to MPI. `None` of other calls.
    pub fn elements_exchanged_with_others(&self, me: u32) -> Option<u64> {
        let Kind::AllToAllV { send, receive } = &self.call else { return None };
        let others = |counts: &[c_int]| -> u64 {
            counts.iter().enumerate().filter(|(rank, _)| *rank != me as usize).map(|(_, count)| *count as u64).sum()
        };
        Some(others(&send.counts).max(others(&receive.counts)))
    }
}

/// A message to or from one rank, with everything but the address of its buffer.
#[derive(Debug)]
pub struct Message {
    count: c_int,
    datatype: ffi::MPI_Datatype,
    peer: c_int,
    tag: c_int,
    communicator: ffi::MPI_Comm,
}

impl Message {
    /// A message of this many elements to or from a rank of the communicator. Messages of one stream arrive in order.
    ///
    /// # Errors
    /// If a count exceeds the range of the C interface.
    pub fn new(
        elements: u64,
        datatype: Datatype,
        peer: u32,
        stream: u32,
        communicator: &Communicator,
    ) -> Result<Message> {
        let outside = || Error::usage(format!("stream {stream} between two stages is beyond what MPI can distinguish"));
        // 32767 is the smallest limit of tags that MPI allows (MPI-3.1 8.1.2); the shift of a ring has a reserved tag.
        let tag = Some(stream).filter(|stream| *stream < 32_767 - TAG as u32 - 1).ok_or_else(outside)? as c_int;
        Ok(Message {
            count: count(elements)?,
            datatype: datatype.raw(),
            peer: peer as c_int,
            tag: tag + TAG + 1,
            communicator: communicator.raw(),
        })
    }

    /// Elements that are handed to MPI.
    pub fn elements(&self) -> u64 {
        self.count as u64
    }

    /// Starts sending.
    ///
    /// # Safety
    /// As [`Prepared::start`]; other calls may read the buffer meanwhile.
    #[inline]
    pub unsafe fn start_sending(&self, buffer: *const u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Isend(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Isend")
    }

    /// Starts receiving.
    ///
    /// # Safety
    /// As [`Prepared::start`].
    #[inline]
    pub unsafe fn start_receiving(&self, buffer: *mut u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Irecv(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Irecv")
    }
}
