//! The calls that carry data, prepared once so that the timed loop only adds an offset and calls.
//!
//! A collective for which NCCL has no function is a group of sends, receives, reductions or broadcasts;
//! [`decomposition`] names them.

mod collectives;
mod estimate;
mod kinds;
#[cfg(test)]
mod tests;

pub(super) use collectives::{Work, decomposition, result_offset};

use super::abi::{self, ElementUse, RawStream};
use super::channel::ChannelEnd;
use super::library::Library;
use collectives::Parts;
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use kinds::{Kind, Part, Piece};
use std::ffi::{c_int, c_void};

/// A call with everything but the addresses of its buffers.
pub struct Prepared {
    library: &'static Library,
    call: Kind,
    datatype: c_int,
    operation: c_int,
    root: c_int,
    element_bytes: usize,
    in_place: bool,
    is_estimated: bool,
}

impl Prepared {
    /// Prepares a call as one rank of a group sees it.
    ///
    /// # Errors
    /// None today; reserved for calls that a library may lack.
    pub fn new(library: &'static Library, view: &View, element: ElementType, operation: c_int) -> Result<Prepared> {
        // A barrier is an all_reduce of one byte, whatever type it was requested with.
        let element = if view.collective == Collective::Barrier { ElementType::Uint8 } else { element };
        let call = Parts { view, element_bytes: element.size() as usize }.kind(library);
        let element_use = if view.collective.reduces() { ElementUse::Reduced } else { ElementUse::Moved };
        Ok(Prepared {
            library,
            is_estimated: view.geometry.ranks() > 1 && call.is_built_from_collectives(),
            call,
            datatype: abi::datatype(element, element_use),
            operation,
            root: view.root as c_int,
            element_bytes: element.size() as usize,
            in_place: view.placement == Placement::InPlace,
        })
    }

    /// The same messages on a communicator of all ranks, where those of the group have their world ranks.
    pub fn among_all_ranks(mut self, group: &[u32]) -> Prepared {
        if let Kind::Group(pieces) | Kind::Turns(pieces) = &mut self.call {
            pieces.iter_mut().for_each(|piece| piece.peer = group[piece.peer as usize] as c_int);
        }
        self
    }

    /// A message of elements on a channel, as this end of it sees it.
    pub fn message(library: &'static Library, element: ElementType, count: u64, end: ChannelEnd) -> Prepared {
        let what = match end {
            ChannelEnd::Sender => Part::Send,
            ChannelEnd::Receiver => Part::Receive,
        };
        let piece = Piece { what, offset: 0, count: count as usize, peer: end.peer() as c_int };
        Prepared {
            library,
            call: Kind::Turns(vec![piece]),
            datatype: abi::datatype(element, ElementUse::Moved),
            operation: 0,
            root: 0,
            element_bytes: element.size() as usize,
            in_place: false,
            is_estimated: false,
        }
    }

    /// Bytes of one element.
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes as u64
    }

    /// Enqueues the call.
    ///
    /// # Safety
    /// `send` and `receive` are device memory with room for [`View::buffer_elements`] elements (a barrier needs one
    /// byte to receive), alive until the stream has passed the call; the communicator is that of the view's group.
    #[inline]
    pub unsafe fn issue(
        &self,
        send: u64,
        receive: u64,
        communicator: abi::RawCommunicator,
        stream: RawStream,
    ) -> Result<()> {
        let (library, call) = (self.library, &self.library.call);
        let (kind, op, root, comm) = (self.datatype, self.operation, self.root, communicator);
        let at = |base: u64, elements: usize| (base as usize + elements * self.element_bytes) as *mut c_void;
        let from = if self.in_place { receive } else { send };
        // SAFETY: the caller guarantees buffers, communicator and stream; counts come from the same geometry as the
        // buffers.
        unsafe {
            match &self.call {
                Kind::AllReduce { count } => {
                    let code = (call.all_reduce)(at(from, 0), at(receive, 0), *count, kind, op, comm, stream);
                    library.check(code, "ncclAllReduce")
                }
                Kind::AllGather { block, own_offset } => {
                    // In place, the input is at the rank's own block (nccl.h).
                    let from = if self.in_place { at(receive, *own_offset) } else { at(send, 0) };
                    library.check((call.all_gather)(from, at(receive, 0), *block, kind, comm, stream), "ncclAllGather")
                }
                Kind::ReduceScatter { block, own_offset } => {
                    // NCCL's in-place form leaves the result at the rank's own block, ours at the beginning: see
                    // `result_offset`.
                    let to = if self.in_place { at(receive, *own_offset) } else { at(receive, 0) };
                    let code = (call.reduce_scatter)(at(from, 0), to, *block, kind, op, comm, stream);
                    library.check(code, "ncclReduceScatter")
                }
                Kind::Broadcast { count } => {
                    let code = (call.broadcast)(at(receive, 0), at(receive, 0), *count, kind, root, comm, stream);
                    library.check(code, "ncclBroadcast")
                }
                Kind::Reduce { count, at_root } => {
                    let from = if *at_root { from } else { send };
                    let code = (call.reduce)(at(from, 0), at(receive, 0), *count, kind, op, root, comm, stream);
                    library.check(code, "ncclReduce")
                }
                Kind::AllToAll { block, call } => {
                    library.check(call(at(send, 0), at(receive, 0), *block, kind, comm, stream), "ncclAlltoAll")
                }
                Kind::Gather { block, own_offset, at_root, call } => {
                    let from = if self.in_place && *at_root { at(receive, *own_offset) } else { at(send, 0) };
                    library.check(call(from, at(receive, 0), *block, kind, root, comm, stream), "ncclGather")
                }
                Kind::Scatter { block, own_offset, at_root, call } => {
                    let to = if self.in_place && *at_root { at(send, *own_offset) } else { at(receive, 0) };
                    library.check(call(at(send, 0), to, *block, kind, root, comm, stream), "ncclScatter")
                }
                Kind::Group(pieces) => {
                    self.grouped(|| pieces.iter().try_for_each(|piece| self.part(piece, send, receive, comm, stream)))
                }
                Kind::Turns(pieces) => {
                    pieces.iter().try_for_each(|piece| self.part(piece, send, receive, comm, stream))
                }
                Kind::Nothing => Ok(()),
            }
        }
    }

    /// Makes calls in one group, so that they begin together.
    #[inline]
    pub fn grouped(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        let (library, call) = (self.library, &self.library.call);
        // SAFETY: has no arguments, and is ended below.
        library.check(unsafe { (call.group_start)() }, "ncclGroupStart")?;
        let called = calls();
        // SAFETY: the group was started above. Also after an error, or the thread's group would stay open for the abort.
        let ended = library.check(unsafe { (call.group_end)() }, "ncclGroupEnd");
        called.and(ended)
    }

    /// # Safety
    /// As [`Prepared::issue`].
    #[inline]
    unsafe fn part(
        &self,
        piece: &Piece,
        send: u64,
        receive: u64,
        comm: abi::RawCommunicator,
        stream: RawStream,
    ) -> Result<()> {
        let (library, call, kind) = (self.library, &self.library.call, self.datatype);
        let at = |base: u64| (base as usize + piece.offset) as *mut c_void;
        let (count, peer) = (piece.count, piece.peer);
        // SAFETY: guaranteed by the caller; the pieces are inside the buffers.
        unsafe {
            match piece.what {
                Part::Send => library.check((call.send)(at(send), count, kind, peer, comm, stream), "ncclSend"),
                Part::SendOwn => library.check((call.send)(at(receive), count, kind, peer, comm, stream), "ncclSend"),
                Part::Receive => {
                    library.check((call.receive)(at(receive), count, kind, peer, comm, stream), "ncclRecv")
                }
                Part::Reduce { in_place, receives } => {
                    let from = if in_place { at(receive) } else { at(send) };
                    // Out of place, the one block that a rank receives is at the beginning.
                    let to = if receives && !in_place { receive as *mut c_void } else { from };
                    let code = (call.reduce)(from, to, count, kind, self.operation, peer, comm, stream);
                    library.check(code, "ncclReduce")
                }
            }
        }
    }
}
