//! The calls that carry data, prepared once so that the timed loop only adds an offset and calls; executed, or started without waiting.

use super::counts::{Counts, count};
use super::nonblocking::TAG;
use super::{Communicator, Datatype, Operation, Request, check};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::segments::View;
use mpi::ffi;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    safe fn commgauge_mpi_in_place() -> *mut c_void;
}

/// A call with everything but the addresses of its buffers.
#[derive(Debug)]
pub struct Prepared {
    call: Kind,
    communicator: ffi::MPI_Comm,
    datatype: ffi::MPI_Datatype,
    operation: Option<Operation>,
    in_place: bool,
    at_root: bool,
    root: c_int,
}

#[derive(Debug)]
enum Kind {
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
        // SAFETY: promised by the caller.
        unsafe { self.call(send, receive, None) }
    }

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
        // SAFETY: promised by the caller.
        unsafe { self.call(send, receive, Some(&mut request.parts)) }
    }

    /// Each call once, with the name of its form that waits and of that which leaves a request (MPI-3.1 chapters 3 and 5). Always inlined,
    /// so that nothing of the other form is left in a timed loop.
    ///
    /// # Safety
    /// Without a request as [`Prepared::issue`], with one as [`Prepared::start`].
    #[inline(always)]
    unsafe fn call(
        &self,
        send: *const u8,
        receive: *mut u8,
        request: Option<&mut [ffi::MPI_Request; 2]>,
    ) -> Result<()> {
        let (comm, kind, root) = (self.communicator, self.datatype, self.root);
        let receive: *mut c_void = receive.cast();
        let own: *const c_void = send.cast();
        // MPI_IN_PLACE replaces the send buffer; in rooted reductions and gathers at the root only (MPI-3.1 5.2.1).
        let from = if self.in_place { commgauge_mpi_in_place().cast_const() } else { own };
        let from_rooted = if self.at_root { from } else { own };
        macro_rules! call {
            ($waiting:ident, $starting:ident, $($argument:expr),+ $(,)?) => {
                match request {
                    None => check(ffi::$waiting($($argument),+), stringify!($waiting)),
                    Some([request, _]) => check(ffi::$starting($($argument),+, request), stringify!($starting)),
                }
            };
        }
        // SAFETY: the buffers are promised by the caller; counts were checked when the call was prepared and are stored in it.
        unsafe {
            match &self.call {
                Kind::AllReduce { count } => {
                    call!(MPI_Allreduce, MPI_Iallreduce, from, receive, *count, kind, self.op(), comm)
                }
                Kind::AllGather { block } => {
                    call!(MPI_Allgather, MPI_Iallgather, from, *block, kind, receive, *block, kind, comm)
                }
                Kind::AllGatherV { mine, all } => {
                    let (counts, starts) = (all.counts.as_ptr(), all.displacements.as_ptr());
                    call!(MPI_Allgatherv, MPI_Iallgatherv, from, *mine, kind, receive, counts, starts, kind, comm)
                }
                Kind::ReduceScatter { block } => {
                    let op = self.op();
                    call!(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, from, receive, *block, kind, op, comm)
                }
                Kind::ReduceScatterV { all } => {
                    let counts = all.counts.as_ptr();
                    call!(MPI_Reduce_scatter, MPI_Ireduce_scatter, from, receive, counts, kind, self.op(), comm)
                }
                Kind::Broadcast { count } => call!(MPI_Bcast, MPI_Ibcast, receive, *count, kind, root, comm),
                Kind::Reduce { count } => {
                    call!(MPI_Reduce, MPI_Ireduce, from_rooted, receive, *count, kind, self.op(), root, comm)
                }
                Kind::Gather { block } => {
                    call!(MPI_Gather, MPI_Igather, from_rooted, *block, kind, receive, *block, kind, root, comm)
                }
                Kind::Scatter { block } => {
                    let to = if self.in_place && self.at_root { commgauge_mpi_in_place() } else { receive };
                    call!(MPI_Scatter, MPI_Iscatter, own, *block, kind, to, *block, kind, root, comm)
                }
                Kind::AllToAll { block } => {
                    call!(MPI_Alltoall, MPI_Ialltoall, from, *block, kind, receive, *block, kind, comm)
                }
                Kind::AllToAllV { send, receive: to } => {
                    let (sent, sent_starts) = (send.counts.as_ptr(), send.displacements.as_ptr());
                    let (got, got_starts) = (to.counts.as_ptr(), to.displacements.as_ptr());
                    call!(
                        MPI_Alltoallv,
                        MPI_Ialltoallv,
                        from,
                        sent,
                        sent_starts,
                        kind,
                        receive,
                        got,
                        got_starts,
                        kind,
                        comm
                    )
                }
                Kind::Shift { count, next, previous } => match request {
                    None => {
                        let (n, status) = (*count, ffi::RSMPI_STATUS_IGNORE);
                        let code =
                            ffi::MPI_Sendrecv(own, n, kind, *next, TAG, receive, n, kind, *previous, TAG, comm, status);
                        check(code, "MPI_Sendrecv")
                    }
                    Some([receiving, sending]) => {
                        check(ffi::MPI_Irecv(receive, *count, kind, *previous, TAG, comm, receiving), "MPI_Irecv")?;
                        check(ffi::MPI_Isend(own, *count, kind, *next, TAG, comm, sending), "MPI_Isend")
                    }
                },
                Kind::PingPong { .. } if request.is_some() => {
                    Err(Error::usage("a ping_pong cannot be part of a replay: its way back cannot be started at once"))
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
                Kind::Barrier => call!(MPI_Barrier, MPI_Ibarrier, comm),
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

    fn op(&self) -> ffi::MPI_Op {
        match &self.operation {
            Some(operation) => operation.raw,
            None => unreachable!("reducing calls are prepared with an operation"),
        }
    }
}

fn peer(group_rank: Option<u32>) -> c_int {
    // SAFETY: reading a constant of the initialised library.
    group_rank.map_or_else(|| unsafe { ffi::RSMPI_PROC_NULL }, |rank| rank as c_int)
}
