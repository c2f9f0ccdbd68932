//! The calls that carry data, prepared once so that the timed loop only adds an offset and calls.

use super::communicator::int;
use super::{Communicator, Datatype, Operation, check};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::segments::View;
use mpi::ffi;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    safe fn commgauge_mpi_in_place() -> *mut c_void;
}

/// Tag of timed point-to-point messages, on communicators of their own.
pub(super) const TAG: c_int = 0;

/// Element counts and displacements in the form of the C interface.
#[derive(Clone, Debug)]
pub struct Counts {
    pub(super) counts: Vec<c_int>,
    pub(super) displacements: Vec<c_int>,
}

impl Counts {
    /// Contiguous blocks.
    fn end_to_end(blocks: &[u64]) -> Result<Counts> {
        let mut next = 0u64;
        let mut counts = Vec::with_capacity(blocks.len());
        let mut displacements = Vec::with_capacity(blocks.len());
        for block in blocks {
            counts.push(count(*block)?);
            displacements.push(count(next)?);
            next += block;
        }
        Ok(Counts { counts, displacements })
    }
}

/// A call with everything but the addresses of its buffers.
#[derive(Debug)]
pub struct Prepared {
    pub(super) call: Kind,
    pub(super) communicator: ffi::MPI_Comm,
    pub(super) datatype: ffi::MPI_Datatype,
    operation: Option<Operation>,
    pub(super) in_place: bool,
    pub(super) at_root: bool,
    pub(super) root: c_int,
}

#[derive(Debug)]
pub(super) enum Kind {
    AllReduce { count: c_int },
    AllGather { block: c_int },
    AllGatherV { mine: c_int, all: Counts },
    ReduceScatter { block: c_int },
    ReduceScatterV { all: Counts },
    Broadcast { count: c_int },
    Reduce { count: c_int },
    Gather { block: c_int },
    Scatter { block: c_int },
    AllToAll { block: c_int },
    AllToAllV { send: Counts, receive: Counts },
    Shift { count: c_int, next: c_int, previous: c_int },
    PingPong { count: c_int, partner: c_int, first: bool },
    Idle,
    Barrier,
}

impl Prepared {
    /// Prepares a call as one rank of a group sees it; the communicator must be that group's and outlive the result.
    ///
    /// # Errors
    /// If a count exceeds the range of the C interface.
    pub fn new(
        view: &View,
        communicator: &Communicator,
        datatype: Datatype,
        operation: Option<Operation>,
    ) -> Result<Prepared> {
        use Collective::*;
        let blocks = &view.geometry.blocks;
        let mine = count(blocks[view.me as usize])?;
        let call = match view.collective {
            AllReduce => Kind::AllReduce { count: mine },
            AllGather => Kind::AllGather { block: mine },
            AllGatherV => Kind::AllGatherV { mine, all: Counts::end_to_end(blocks)? },
            ReduceScatter => Kind::ReduceScatter { block: mine },
            ReduceScatterV => Kind::ReduceScatterV { all: Counts::end_to_end(blocks)? },
            Broadcast => Kind::Broadcast { count: mine },
            Reduce => Kind::Reduce { count: mine },
            Gather => Kind::Gather { block: mine },
            Scatter => Kind::Scatter { block: mine },
            AllToAll => Kind::AllToAll { block: mine },
            AllToAllV => {
                let to_each = view.geometry.counts_sent(view.me);
                let from_each: Vec<u64> =
                    view.geometry.arrivals(view.me).iter().map(|arrival| arrival.elements).collect();
                Kind::AllToAllV { send: Counts::end_to_end(&to_each)?, receive: Counts::end_to_end(&from_each)? }
            }
            SendRecv | SendRecvChain => {
                Kind::Shift { count: mine, next: peer(view.next()), previous: peer(view.previous()) }
            }
            Bidirectional => match view.partner() {
                Some(_) => Kind::Shift { count: mine, next: peer(view.partner()), previous: peer(view.partner()) },
                None => Kind::Idle,
            },
            PingPong => match view.partner() {
                Some(partner) => Kind::PingPong { count: mine, partner: partner as c_int, first: view.me < partner },
                None => Kind::Idle,
            },
            Barrier => Kind::Barrier,
        };
        Ok(Prepared {
            call,
            communicator: communicator.raw(),
            datatype: datatype.0,
            operation,
            in_place: view.placement == Placement::InPlace,
            at_root: view.me == view.root,
            root: view.root as c_int,
        })
    }

    /// The communicator of the call.
    pub fn communicator(&self) -> ffi::MPI_Comm {
        self.communicator
    }

    /// Executes the call.
    ///
    /// # Safety
    /// `send` and `receive` must point to buffers of at least [`View::buffer_elements`] elements, aligned for the
    /// element type, disjoint, and not borrowed otherwise; the communicator must not be freed.
    #[inline]
    pub unsafe fn issue(&self, send: *const u8, receive: *mut u8) -> Result<()> {
        let (comm, kind, root) = (self.communicator, self.datatype, self.root);
        let receive: *mut c_void = receive.cast();
        let own: *const c_void = send.cast();
        // MPI_IN_PLACE replaces the send buffer; in rooted reductions and gathers at the root only (MPI-3.1 5.2.1).
        let from = if self.in_place { commgauge_mpi_in_place().cast_const() } else { own };
        let from_rooted = if self.at_root { from } else { own };
        // SAFETY: buffers are promised by the caller, counts were checked when the call was prepared (MPI-3.1 chapters 3 and 5).
        unsafe {
            match &self.call {
                Kind::AllReduce { count } => {
                    check(ffi::MPI_Allreduce(from, receive, *count, kind, self.op(), comm), "MPI_Allreduce")
                }
                Kind::AllGather { block } => {
                    check(ffi::MPI_Allgather(from, *block, kind, receive, *block, kind, comm), "MPI_Allgather")
                }
                Kind::AllGatherV { mine, all } => {
                    let (counts, starts) = (all.counts.as_ptr(), all.displacements.as_ptr());
                    check(ffi::MPI_Allgatherv(from, *mine, kind, receive, counts, starts, kind, comm), "MPI_Allgatherv")
                }
                Kind::ReduceScatter { block } => {
                    let code = ffi::MPI_Reduce_scatter_block(from, receive, *block, kind, self.op(), comm);
                    check(code, "MPI_Reduce_scatter_block")
                }
                Kind::ReduceScatterV { all } => {
                    let code = ffi::MPI_Reduce_scatter(from, receive, all.counts.as_ptr(), kind, self.op(), comm);
                    check(code, "MPI_Reduce_scatter")
                }
                Kind::Broadcast { count } => check(ffi::MPI_Bcast(receive, *count, kind, root, comm), "MPI_Bcast"),
                Kind::Reduce { count } => {
                    check(ffi::MPI_Reduce(from_rooted, receive, *count, kind, self.op(), root, comm), "MPI_Reduce")
                }
                Kind::Gather { block } => {
                    let code = ffi::MPI_Gather(from_rooted, *block, kind, receive, *block, kind, root, comm);
                    check(code, "MPI_Gather")
                }
                Kind::Scatter { block } => {
                    let to = if self.in_place && self.at_root { commgauge_mpi_in_place() } else { receive };
                    check(ffi::MPI_Scatter(own, *block, kind, to, *block, kind, root, comm), "MPI_Scatter")
                }
                Kind::AllToAll { block } => {
                    check(ffi::MPI_Alltoall(from, *block, kind, receive, *block, kind, comm), "MPI_Alltoall")
                }
                Kind::AllToAllV { send, receive: to } => {
                    let (sent, sent_starts) = (send.counts.as_ptr(), send.displacements.as_ptr());
                    let (got, got_starts) = (to.counts.as_ptr(), to.displacements.as_ptr());
                    let code = ffi::MPI_Alltoallv(from, sent, sent_starts, kind, receive, got, got_starts, kind, comm);
                    check(code, "MPI_Alltoallv")
                }
                Kind::Shift { count, next, previous } => {
                    let status = ffi::RSMPI_STATUS_IGNORE;
                    let n = *count;
                    let code =
                        ffi::MPI_Sendrecv(own, n, kind, *next, TAG, receive, n, kind, *previous, TAG, comm, status);
                    check(code, "MPI_Sendrecv")
                }
                Kind::PingPong { count, partner, first } => {
                    let there = |_: ()| check(ffi::MPI_Send(own, *count, kind, *partner, TAG, comm), "MPI_Send");
                    let back = |_: ()| {
                        let status = ffi::RSMPI_STATUS_IGNORE;
                        check(ffi::MPI_Recv(receive, *count, kind, *partner, TAG, comm, status), "MPI_Recv")
                    };
                    if *first { there(()).and_then(back) } else { back(()).and_then(there) }
                }
                Kind::Idle => Ok(()),
                Kind::Barrier => check(ffi::MPI_Barrier(comm), "MPI_Barrier"),
            }
        }
    }

    pub(super) fn op(&self) -> ffi::MPI_Op {
        match &self.operation {
            Some(operation) => operation.raw,
            None => unreachable!("reducing calls are prepared with an operation"),
        }
    }
}

pub(super) fn count(elements: u64) -> Result<c_int> {
    usize::try_from(elements)
        .map_err(|_| Error::usage("more elements than this machine can address"))
        .and_then(|e| int(e, "elements"))
}

fn peer(group_rank: Option<u32>) -> c_int {
    // SAFETY: reading a constant of the initialised library.
    group_rank.map_or_else(|| unsafe { ffi::RSMPI_PROC_NULL }, |rank| rank as c_int)
}
