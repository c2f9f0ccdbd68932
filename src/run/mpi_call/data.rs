//! The calls that carry data, prepared once so that the timed loop only adds an offset and calls; executed, or started without waiting.

use super::{Communicator, check, int};
use commgauge_base::collective::{Collective, Division, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::encode;
use commgauge_base::pattern::segments::View;
use mpi::ffi;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    safe fn commgauge_mpi_in_place() -> *mut c_void;
}

/// A call with everything but the addresses of its buffers.
#[derive(Debug)]
pub struct Prepared {
    collective: Collective,
    /// Elements of this rank's block.
    count: c_int,
    /// Of calls with own blocks: what this rank sends to each rank, in an all_to_all_v only, and what it receives from each.
    sent: Counts,
    blocks: Counts,
    /// Of messages: to and from whom; a rank without a partner is idle.
    next: c_int,
    previous: c_int,
    is_idle: bool,
    /// Whether it sends first in a ping-pong.
    is_first: bool,
    communicator: ffi::MPI_Comm,
    datatype: ffi::MPI_Datatype,
    operation: Option<Operation>,
    in_place: bool,
    at_root: bool,
    root: c_int,
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
        let geometry = view.geometry;
        let (sent, blocks) = match view.collective {
            AllGatherV | ReduceScatterV => (Counts::default(), Counts::end_to_end(&geometry.blocks)?),
            AllToAllV => {
                let from_each: Vec<u64> = geometry.arrivals(view.me).iter().map(|arrival| arrival.elements).collect();
                (Counts::end_to_end(&geometry.counts_sent(view.me))?, Counts::end_to_end(&from_each)?)
            }
            _ => Default::default(),
        };
        let (next, previous) = match view.collective {
            SendRecv | SendRecvChain => (view.next(), view.previous()),
            Bidirectional | PingPong => (view.partner(), view.partner()),
            _ => (None, None),
        };
        Ok(Prepared {
            collective: view.collective,
            count: count(geometry.blocks[view.me as usize])?,
            sent,
            blocks,
            next: peer(next),
            previous: peer(previous),
            is_idle: matches!(view.collective, Bidirectional | PingPong) && next.is_none(),
            is_first: next.is_some_and(|partner| view.me < partner),
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

    /// # Safety
    /// `send` and `receive` must point to buffers of at least [`View::buffer_elements`] elements, aligned for the
    /// element type, disjoint, and not borrowed otherwise; the communicator must not be freed.
    #[inline]
    pub unsafe fn issue(&self, send: *const u8, receive: *mut u8) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.call(send, receive, None) }
    }

    /// # Errors
    /// Errors of MPI, and a ping-pong, whose second half cannot start before the first has arrived.
    ///
    /// # Safety
    /// As [`Prepared::issue`]; the buffers, this value and the communicator must exist until the request has completed, and no other call
    /// may write to the buffers meanwhile. The request must not belong to an active call.
    #[inline]
    pub unsafe fn start(&self, send: *const u8, receive: *mut u8, request: &mut Request) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.call(send, receive, Some(&mut request.parts)) }
    }

    /// Each call once, with the names of its blocking and its nonblocking form (MPI-3.1 chapters 3 and 5). Always inlined, so that a timed
    /// loop contains nothing of the other form.
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
        use Collective::*;
        let (comm, kind, root) = (self.communicator, self.datatype, self.root);
        let Prepared { count, next, previous, .. } = *self;
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
            match self.collective {
                _ if self.is_idle => Ok(()),
                AllReduce => call!(MPI_Allreduce, MPI_Iallreduce, from, receive, count, kind, self.op(), comm),
                AllGather => call!(MPI_Allgather, MPI_Iallgather, from, count, kind, receive, count, kind, comm),
                AllGatherV => {
                    let (counts, starts) = (self.blocks.counts.as_ptr(), self.blocks.displacements.as_ptr());
                    call!(MPI_Allgatherv, MPI_Iallgatherv, from, count, kind, receive, counts, starts, kind, comm)
                }
                ReduceScatter => {
                    let op = self.op();
                    call!(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, from, receive, count, kind, op, comm)
                }
                ReduceScatterV => {
                    let counts = self.blocks.counts.as_ptr();
                    call!(MPI_Reduce_scatter, MPI_Ireduce_scatter, from, receive, counts, kind, self.op(), comm)
                }
                Broadcast => call!(MPI_Bcast, MPI_Ibcast, receive, count, kind, root, comm),
                Reduce => call!(MPI_Reduce, MPI_Ireduce, from_rooted, receive, count, kind, self.op(), root, comm),
                Gather => {
                    call!(MPI_Gather, MPI_Igather, from_rooted, count, kind, receive, count, kind, root, comm)
                }
                Scatter => {
                    let to = if self.in_place && self.at_root { commgauge_mpi_in_place() } else { receive };
                    call!(MPI_Scatter, MPI_Iscatter, own, count, kind, to, count, kind, root, comm)
                }
                AllToAll => call!(MPI_Alltoall, MPI_Ialltoall, from, count, kind, receive, count, kind, comm),
                AllToAllV => {
                    let (sent, from_where) = (self.sent.counts.as_ptr(), self.sent.displacements.as_ptr());
                    let (got, to) = (self.blocks.counts.as_ptr(), self.blocks.displacements.as_ptr());
                    call!(MPI_Alltoallv, MPI_Ialltoallv, from, sent, from_where, kind, receive, got, to, kind, comm)
                }
                SendRecv | SendRecvChain | Bidirectional => match request {
                    None => {
                        let status = ffi::RSMPI_STATUS_IGNORE;
                        let code = ffi::MPI_Sendrecv(
                            own, count, kind, next, TAG, receive, count, kind, previous, TAG, comm, status,
                        );
                        check(code, "MPI_Sendrecv")
                    }
                    Some([receiving, sending]) => {
                        check(ffi::MPI_Irecv(receive, count, kind, previous, TAG, comm, receiving), "MPI_Irecv")?;
                        check(ffi::MPI_Isend(own, count, kind, next, TAG, comm, sending), "MPI_Isend")
                    }
                },
                PingPong if request.is_some() => {
                    Err(Error::usage("a ping_pong cannot be part of a replay: its reply cannot start at once"))
                }
                PingPong => {
                    let there = |_: ()| check(ffi::MPI_Send(own, count, kind, next, TAG, comm), "MPI_Send");
                    let back = |_: ()| {
                        let status = ffi::RSMPI_STATUS_IGNORE;
                        check(ffi::MPI_Recv(receive, count, kind, next, TAG, comm, status), "MPI_Recv")
                    };
                    if self.is_first { there(()).and_then(back) } else { back(()).and_then(there) }
                }
                Barrier => call!(MPI_Barrier, MPI_Ibarrier, comm),
            }
        }
    }

    /// Elements of the size argument, from the counts passed to MPI, in a group of `ranks` ranks.
    pub fn elements_named(&self, ranks: u32) -> u64 {
        let sum = |counts: &[c_int]| counts.iter().map(|count| *count as u64).sum();
        match self.collective.division() {
            _ if self.is_idle => 0,
            Division::Nothing => 0,
            Division::Whole => self.count as u64,
            Division::EqualBlocks => self.count as u64 * u64::from(ranks),
            Division::OwnBlocks if self.collective == Collective::AllToAllV => sum(&self.sent.counts),
            Division::OwnBlocks => sum(&self.blocks.counts),
        }
    }

    /// Elements that rank `me` of the group sends to others in an all_to_all_v or receives from them, whichever is more, from the counts
    /// passed to MPI. `None` for other calls.
    pub fn elements_exchanged_with_others(&self, me: u32) -> Option<u64> {
        if self.collective != Collective::AllToAllV {
            return None;
        }
        let others = |counts: &[c_int]| -> u64 {
            counts.iter().enumerate().filter(|(rank, _)| *rank != me as usize).map(|(_, count)| *count as u64).sum()
        };
        Some(others(&self.sent.counts).max(others(&self.blocks.counts)))
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

// Calls in progress, and messages between two ranks: for replaying a step, in which calls of many groups are active at once
// (MPI-3.1 sections 3.7 and 5.12).

/// Tag of timed point-to-point messages, on separate communicators.
pub(super) const TAG: c_int = 0;

/// A call in progress: at most a sending and a receiving part.
#[derive(Debug)]
pub struct Request {
    pub(super) parts: [ffi::MPI_Request; 2],
}

impl Request {
    /// Nothing in progress.
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

    /// Elements passed to MPI.
    pub fn elements(&self) -> u64 {
        self.count as u64
    }

    /// # Safety
    /// As [`super::Prepared::start`]; other calls may read the buffer meanwhile.
    #[inline]
    pub unsafe fn start_sending(&self, buffer: *const u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Isend(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Isend")
    }

    /// # Safety
    /// As [`super::Prepared::start`].
    #[inline]
    pub unsafe fn start_receiving(&self, buffer: *mut u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Irecv(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Irecv")
    }
}

// Numbers of elements in the form of the C interface, whose ints have 32 bits.

/// Element counts and displacements in the form of the C interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) counts: Vec<c_int>,
    pub(super) displacements: Vec<c_int>,
}

impl Counts {
    /// Counts of contiguous blocks.
    pub(super) fn end_to_end(blocks: &[u64]) -> Result<Counts> {
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

/// # Errors
/// If it exceeds the range of the C interface.
pub(super) fn count(elements: u64) -> Result<c_int> {
    usize::try_from(elements)
        .map_err(|_| Error::usage("more elements than this machine can address"))
        .and_then(|e| int(e, "elements"))
}

// Element types and reduce operations of MPI, and custom operations for those it lacks.

/// An MPI datatype with the size of an element type. 16-bit and 8-bit floats, which MPI lacks, are sent as integers of their size.
#[derive(Clone, Copy, Debug)]
pub struct Datatype(pub(super) ffi::MPI_Datatype);

impl Datatype {
    /// The handle.
    pub fn raw(self) -> ffi::MPI_Datatype {
        self.0
    }

    pub fn of(element: ElementType) -> Datatype {
        // SAFETY: reading constants of the initialised library.
        Datatype(unsafe {
            match element {
                ElementType::Int8 => ffi::RSMPI_INT8_T,
                ElementType::Uint8 | ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => ffi::RSMPI_UINT8_T,
                ElementType::Int32 => ffi::RSMPI_INT32_T,
                ElementType::Uint32 => ffi::RSMPI_UINT32_T,
                ElementType::Int64 => ffi::RSMPI_INT64_T,
                ElementType::Uint64 => ffi::RSMPI_UINT64_T,
                ElementType::Float16 | ElementType::Bfloat16 => ffi::RSMPI_UINT16_T,
                ElementType::Float32 => ffi::RSMPI_FLOAT,
                ElementType::Float64 => ffi::RSMPI_DOUBLE,
            }
        })
    }
}

/// A reduce operation: predefined by MPI, or custom and freed on drop.
#[derive(Debug)]
pub struct Operation {
    pub(super) raw: ffi::MPI_Op,
    ours: bool,
}

impl Operation {
    /// The operation on an element type. `avg` is a sum here; the caller divides afterwards. A custom function combines 16-bit floats on
    /// one core, as no MPI standard has them.
    pub fn of(op: ReduceOp, element: ElementType) -> Result<Operation> {
        if op == ReduceOp::PreMulSum {
            return Err(Error::usage("mulsum is an NCCL operation that MPI lacks"));
        }
        if let Some(function) = user_function(op, element) {
            // SAFETY: reading a constant only to have something to overwrite.
            let mut raw = unsafe { ffi::RSMPI_SUM };
            // SAFETY: the function has the signature of MPI-3.1 5.9.5 and lives as long as the program.
            check(unsafe { ffi::MPI_Op_create(Some(function), 1, &mut raw) }, "MPI_Op_create")?;
            return Ok(Operation { raw, ours: true });
        }
        // SAFETY: reading constants of the initialised library.
        let raw = unsafe {
            match op {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => ffi::RSMPI_SUM,
                ReduceOp::Prod => ffi::RSMPI_PROD,
                ReduceOp::Min => ffi::RSMPI_MIN,
                ReduceOp::Max => ffi::RSMPI_MAX,
            }
        };
        Ok(Operation { raw, ours: false })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.ours && !mpi::environment::is_finalized() {
            // SAFETY: the handle is ours; freeing is local (MPI-3.1 5.9.5).
            unsafe { ffi::MPI_Op_free(&mut self.raw) };
        }
    }
}

type UserFunction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

fn user_function(op: ReduceOp, element: ElementType) -> Option<UserFunction> {
    const HALF: bool = false;
    const BRAIN: bool = true;
    match (element, op) {
        (ElementType::Float16, ReduceOp::Sum | ReduceOp::Avg) => Some(reduce_16_bit::<HALF, 0>),
        (ElementType::Float16, ReduceOp::Prod) => Some(reduce_16_bit::<HALF, 1>),
        (ElementType::Float16, ReduceOp::Min) => Some(reduce_16_bit::<HALF, 2>),
        (ElementType::Float16, ReduceOp::Max) => Some(reduce_16_bit::<HALF, 3>),
        (ElementType::Bfloat16, ReduceOp::Sum | ReduceOp::Avg) => Some(reduce_16_bit::<BRAIN, 0>),
        (ElementType::Bfloat16, ReduceOp::Prod) => Some(reduce_16_bit::<BRAIN, 1>),
        (ElementType::Bfloat16, ReduceOp::Min) => Some(reduce_16_bit::<BRAIN, 2>),
        (ElementType::Bfloat16, ReduceOp::Max) => Some(reduce_16_bit::<BRAIN, 3>),
        _ => None,
    }
}

/// `inout = op(in, inout)` over `length` elements.
///
/// # Safety
/// As MPI calls it: both buffers hold `*length` 16-bit elements and do not overlap.
unsafe extern "C" fn reduce_16_bit<const BRAIN: bool, const OP: u8>(
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: promised by the caller.
    let (input, inout) = unsafe {
        let bytes = 2 * *length as usize;
        (
            std::slice::from_raw_parts(input.cast::<u8>(), bytes),
            std::slice::from_raw_parts_mut(inout.cast::<u8>(), bytes),
        )
    };
    let element = if BRAIN { ElementType::Bfloat16 } else { ElementType::Float16 };
    let op = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max][OP as usize];
    encode::reduce_into(element, op, input, inout);
}
