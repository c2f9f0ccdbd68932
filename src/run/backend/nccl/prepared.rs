//! The calls that carry data, prepared once so that the timed loop only adds an offset and calls.
//!
//! A collective for which NCCL has no function is a group of sends, receives, reductions or broadcasts;
//! [`decomposition`] names them.

use super::abi::{self, ElementUse, RawStream};
use super::communicator::ChannelEnd;
use super::library::Library;
use crate::backend::nccl::abi::{RawCommunicator, SimulationInfo};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::segments::View;
use std::ffi::{c_int, c_void};

/// A call with everything but the addresses of its buffers.
pub struct Prepared {
    library: &'static Library,
    call: Kind,
    datatype: c_int,
    operation: c_int,
    root: c_int,
    at_root: bool,
    /// Elements of this rank's block, and where it begins among all blocks.
    block: usize,
    own_offset: usize,
    element_bytes: usize,
    in_place: bool,
    /// Whether NCCL can estimate the call. Not messages: NCCL has no estimate for them, and the next group would execute what a simulated
    /// group leaves in the queues of its peers (`src/include/group.h`, `ncclGroupCommJoin`). Nor calls of one rank, which it executes at
    /// once (`src/enqueue.cc`, `taskAppend`).
    pub(super) is_estimated: bool,
}

impl Prepared {
    /// Prepares a call as one rank of a group sees it.
    pub fn new(library: &'static Library, view: &View, element: ElementType, operation: c_int) -> Prepared {
        // A barrier is an all_reduce of one byte, whatever type it was requested with.
        let is_barrier = view.collective == Collective::Barrier;
        let element = if is_barrier { ElementType::Uint8 } else { element };
        let call = Parts { view, element_bytes: element.size() as usize }.kind(library);
        let element_use = if view.collective.reduces() { ElementUse::Reduced } else { ElementUse::Moved };
        Prepared {
            library,
            is_estimated: view.geometry.ranks() > 1 && call.is_built_from_collectives(),
            call,
            datatype: abi::datatype(element, element_use),
            operation,
            root: view.root as c_int,
            at_root: view.me == view.root,
            block: if is_barrier { 1 } else { view.geometry.blocks[view.me as usize] as usize },
            own_offset: view.geometry.block_start(view.me) as usize,
            element_bytes: element.size() as usize,
            in_place: view.placement == Placement::InPlace,
        }
    }

    /// As above on a communicator of more ranks, in which those of the group have these ranks.
    pub fn among(mut self, group: &[u32]) -> Prepared {
        if let Kind::Group(pieces) | Kind::Turns(pieces) = &mut self.call {
            pieces.iter_mut().for_each(|piece| piece.peer = group[piece.peer as usize] as c_int);
        }
        self
    }

    /// A message of elements on a channel, as seen from this end.
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
            at_root: false,
            block: 0,
            own_offset: 0,
            element_bytes: element.size() as usize,
            in_place: false,
            is_estimated: false,
        }
    }

    pub fn element_bytes(&self) -> u64 {
        self.element_bytes as u64
    }

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
        let Prepared { block, own_offset, at_root, in_place, .. } = *self;
        let from = if in_place { receive } else { send };
        // SAFETY: the caller guarantees buffers, communicator and stream; counts come from the same geometry as the
        // buffers.
        unsafe {
            match &self.call {
                Kind::AllReduce => {
                    let code = (call.all_reduce)(at(from, 0), at(receive, 0), block, kind, op, comm, stream);
                    library.check(code, "ncclAllReduce")
                }
                Kind::AllGather => {
                    // In place, the input is at the rank's own block (nccl.h).
                    let from = if in_place { at(receive, own_offset) } else { at(send, 0) };
                    library.check((call.all_gather)(from, at(receive, 0), block, kind, comm, stream), "ncclAllGather")
                }
                Kind::ReduceScatter => {
                    // NCCL's in-place form leaves the result at the rank's own block, ours at the beginning: see
                    // `result_offset`.
                    let to = if in_place { at(receive, own_offset) } else { at(receive, 0) };
                    let code = (call.reduce_scatter)(at(from, 0), to, block, kind, op, comm, stream);
                    library.check(code, "ncclReduceScatter")
                }
                Kind::Broadcast => {
                    let code = (call.broadcast)(at(receive, 0), at(receive, 0), block, kind, root, comm, stream);
                    library.check(code, "ncclBroadcast")
                }
                Kind::Reduce => {
                    let from = if at_root { from } else { send };
                    let code = (call.reduce)(at(from, 0), at(receive, 0), block, kind, op, root, comm, stream);
                    library.check(code, "ncclReduce")
                }
                Kind::AllToAll(call) => {
                    library.check(call(at(send, 0), at(receive, 0), block, kind, comm, stream), "ncclAlltoAll")
                }
                Kind::Gather(call) => {
                    let from = if in_place && at_root { at(receive, own_offset) } else { at(send, 0) };
                    library.check(call(from, at(receive, 0), block, kind, root, comm, stream), "ncclGather")
                }
                Kind::Scatter(call) => {
                    let to = if in_place && at_root { at(send, own_offset) } else { at(receive, 0) };
                    library.check(call(at(send, 0), to, block, kind, root, comm, stream), "ncclScatter")
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

    /// Makes calls in one group, so that they start together.
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

// How NCCL executes each collective: by its own function, or by parts that replace it.

/// Offset in elements within the receive buffer at which NCCL leaves the result that [`View::outputs`] describes at
/// the beginning: NCCL's in-place reduce_scatter leaves each rank's block where it was.
pub(super) fn result_offset(view: &View) -> u64 {
    match (view.collective, view.placement) {
        (Collective::ReduceScatter | Collective::ReduceScatterV, Placement::InPlace) => {
            view.geometry.block_start(view.me)
        }
        _ => 0,
    }
}

/// The calls that replace a collective for which NCCL has no function; `None` if it has one.
pub(super) fn decomposition(library: &Library, collective: Collective) -> Option<&'static str> {
    use Collective::*;
    match collective {
        AllToAll if library.call.all_to_all.is_none() => Some("grouped ncclSend and ncclRecv"),
        Gather if library.call.gather.is_none() => Some("grouped ncclSend and ncclRecv"),
        Scatter if library.call.scatter.is_none() => Some("grouped ncclSend and ncclRecv"),
        AllGatherV | AllToAllV | SendRecv | SendRecvChain | Bidirectional => Some("grouped ncclSend and ncclRecv"),
        ReduceScatterV => Some("grouped ncclReduce, one for each rank's block"),
        PingPong => Some("ncclSend and ncclRecv in turn"),
        Barrier => Some("ncclAllReduce of one byte"),
        _ => None,
    }
}

/// Maximum number of work items that a call puts into NCCL's queue on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// For functions that are collectives in NCCL too.
    Collectives(u32),
    /// Messages in each direction.
    Messages(u32),
}

impl Work {
    /// A collective. NCCL's own ncclAlltoAll, ncclGather and ncclScatter consist of messages too, the latter two on one rank.
    pub(super) fn of(collective: Collective, ranks: u32) -> Work {
        use Collective::*;
        match collective {
            AllToAll | AllToAllV | AllGatherV | Gather | Scatter => Work::Messages(ranks),
            PingPong => Work::Messages(2),
            SendRecv | SendRecvChain | Bidirectional => Work::Messages(1),
            ReduceScatterV => Work::Collectives(ranks),
            Barrier | AllReduce | AllGather | ReduceScatter | Broadcast | Reduce => Work::Collectives(1),
        }
    }
}

/// Builds the parts of a call.
struct Parts<'a> {
    view: &'a View<'a>,
    element_bytes: usize,
}

impl Parts<'_> {
    fn kind(&self, library: &Library) -> Kind {
        use Collective::*;
        let view = self.view;
        let composed = |pieces: fn(&Self) -> Vec<Piece>| Kind::Group(pieces(self));
        match view.collective {
            Barrier | AllReduce => Kind::AllReduce,
            AllGather => Kind::AllGather,
            ReduceScatter => Kind::ReduceScatter,
            Broadcast => Kind::Broadcast,
            Reduce => Kind::Reduce,
            AllToAll => library.call.all_to_all.map_or_else(|| composed(Self::exchange), Kind::AllToAll),
            Gather => library.call.gather.map_or_else(|| composed(Self::gather), Kind::Gather),
            Scatter => library.call.scatter.map_or_else(|| composed(Self::scatter), Kind::Scatter),
            AllGatherV => Kind::Group(self.all_gather()),
            ReduceScatterV => Kind::Group(self.reduce_scatter()),
            AllToAllV => Kind::Group(self.exchange()),
            SendRecv | SendRecvChain => self.neighbours(view.next(), view.previous()),
            Bidirectional => self.neighbours(view.partner(), view.partner()),
            PingPong => match view.partner() {
                Some(partner) => {
                    let block = view.geometry.blocks[view.me as usize];
                    let there = self.piece(Part::Send, 0, block, partner);
                    let back = self.piece(Part::Receive, 0, block, partner);
                    Kind::Turns(if view.me < partner { vec![there, back] } else { vec![back, there] })
                }
                None => Kind::Nothing,
            },
        }
    }

    fn piece(&self, what: Part, first: u64, count: u64, peer: u32) -> Piece {
        Piece { what, offset: first as usize * self.element_bytes, count: count as usize, peer: peer as c_int }
    }

    fn ranks(&self) -> std::ops::Range<u32> {
        0..self.view.geometry.ranks()
    }

    fn neighbours(&self, next: Option<u32>, previous: Option<u32>) -> Kind {
        let count = self.view.geometry.blocks[self.view.me as usize];
        let to = next.map(|rank| self.piece(Part::Send, 0, count, rank));
        let from = previous.map(|rank| self.piece(Part::Receive, 0, count, rank));
        Kind::Group(to.into_iter().chain(from).collect())
    }

    fn exchange(&self) -> Vec<Piece> {
        let (geometry, me) = (self.view.geometry, self.view.me);
        let own = geometry.blocks[me as usize];
        let arrivals = geometry.arrivals(me);
        let sent = geometry.counts_sent(me);
        let (mut pieces, mut sent_first, mut received_first) = (Vec::new(), 0, 0);
        for rank in self.ranks() {
            let (to, from) = match self.view.collective {
                Collective::AllToAllV => (sent[rank as usize], arrivals.get(rank as usize).map_or(0, |a| a.elements)),
                _ => (own, own),
            };
            if to > 0 {
                pieces.push(self.piece(Part::Send, sent_first, to, rank));
            }
            if from > 0 {
                pieces.push(self.piece(Part::Receive, received_first, from, rank));
            }
            sent_first += to;
            received_first += from;
        }
        pieces
    }

    fn all_gather(&self) -> Vec<Piece> {
        let (geometry, me) = (self.view.geometry, self.view.me);
        let own = geometry.blocks[me as usize];
        let in_place = self.view.placement == Placement::InPlace;
        let mut pieces = Vec::new();
        for rank in self.ranks().filter(|rank| !in_place || *rank != me) {
            if own > 0 {
                let (what, first) = if in_place { (Part::SendOwn, geometry.block_start(me)) } else { (Part::Send, 0) };
                pieces.push(self.piece(what, first, own, rank));
            }
            if geometry.blocks[rank as usize] > 0 {
                pieces.push(self.piece(
                    Part::Receive,
                    geometry.block_start(rank),
                    geometry.blocks[rank as usize],
                    rank,
                ));
            }
        }
        pieces
    }

    fn reduce_scatter(&self) -> Vec<Piece> {
        let geometry = self.view.geometry;
        let in_place = self.view.placement == Placement::InPlace;
        let with_share = self.ranks().filter(|rank| geometry.blocks[*rank as usize] > 0);
        let reduce = |rank: u32| {
            let what = Part::Reduce { in_place, receives: rank == self.view.me };
            self.piece(what, geometry.block_start(rank), geometry.blocks[rank as usize], rank)
        };
        with_share.map(reduce).collect()
    }

    fn gather(&self) -> Vec<Piece> {
        self.with_root(Part::Send, Part::Receive)
    }

    fn scatter(&self) -> Vec<Piece> {
        self.with_root(Part::Receive, Part::Send)
    }

    /// What each rank does with the root, and the root with each rank; in place the root's own block stays where it is.
    fn with_root(&self, of_each: Part, of_root: Part) -> Vec<Piece> {
        let (geometry, me, root) = (self.view.geometry, self.view.me, self.view.root);
        let stays = self.view.placement == Placement::InPlace && me == root;
        let own = geometry.blocks[me as usize];
        let mut pieces = if stays { vec![] } else { vec![self.piece(of_each, 0, own, root)] };
        if me == root {
            let others = self.ranks().filter(|rank| !stays || *rank != me);
            pieces.extend(others.map(|rank| self.piece(of_root, geometry.block_start(rank), own, rank)));
        }
        pieces
    }
}

// NCCL's own estimate of the time of a call, and the calls that have one.

/// `ncclGroupSimulateEnd`.
type SimulateEnd = unsafe extern "C" fn(*mut SimulationInfo) -> c_int;

impl Prepared {
    /// NCCL's estimate of the time of a group of calls, in microseconds; none of them is executed.
    pub fn simulated(&self, end: SimulateEnd, calls: impl FnOnce() -> Result<()>) -> Result<f32> {
        let library = self.library;
        // SAFETY: has no arguments, and is ended below.
        library.check(unsafe { (library.call.group_start)() }, "ncclGroupStart")?;
        let called = calls();
        let mut info = SimulationInfo::empty();
        // SAFETY: the group was started above, the structure is ours. Also after an error, or the group would stay open.
        let ended = library.check(unsafe { end(&mut info) }, "ncclGroupSimulateEnd");
        called.and(ended).map(|()| info.estimated_microseconds)
    }
}

impl Kind {
    /// Whether NCCL executes it without sends and receives, which it uses for all_to_all, gather and scatter too.
    fn is_built_from_collectives(&self) -> bool {
        match self {
            Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::Broadcast | Kind::Reduce => true,
            Kind::Group(pieces) => pieces.iter().all(|piece| matches!(piece.what, Part::Reduce { .. })),
            Kind::AllToAll(_) | Kind::Gather(_) | Kind::Scatter(_) | Kind::Turns(_) | Kind::Nothing => false,
        }
    }
}

/// A call as requested from NCCL.
enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll(AllToAll),
    Gather(Rooted),
    Scatter(Rooted),
    Group(Vec<Piece>),
    /// One after another.
    Turns(Vec<Piece>),
    Nothing,
}

type AllToAll = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, RawCommunicator, RawStream) -> c_int;

type Rooted =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;

/// A part of a call, with its offset in bytes from the start of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    what: Part,
    offset: usize,
    count: usize,
    peer: c_int,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Send,
    /// The receive buffer, which contains the input if in place.
    SendOwn,
    Receive,
    /// One rank's block reduced to that rank; with `in_place` from its place in the receive buffer.
    Reduce {
        in_place: bool,
        receives: bool,
    },
}

#[cfg(test)]
mod tests {
    // The composition of grouped calls, checked by hand; the launched tests check that they transfer the right bytes.
    use super::*;
    use commgauge_base::geometry::{Geometry, Splits};
    use commgauge_base::units::Bytes;

    fn pieces(collective: Collective, placement: Placement, me: u32, of: impl Fn(Parts) -> Vec<Piece>) -> Vec<Piece> {
        let splits = Splits::Given(vec![2, 0, 1]);
        let geometry = Geometry::new(collective, ElementType::Float32, Bytes(24), 3, &splits).unwrap();
        let view = View { collective, placement, geometry: &geometry, group: &[0, 1, 2], me, root: 2 };
        of(Parts { view: &view, element_bytes: 4 })
    }

    fn piece(what: Part, offset: usize, count: usize, peer: c_int) -> Piece {
        Piece { what, offset, count, peer }
    }

    #[test]
    fn ranks_without_a_share_are_left_out_of_vector_forms() {
        let out = |me| pieces(Collective::AllGatherV, Placement::OutOfPlace, me, |of| of.all_gather());
        assert_eq!(out(1), [piece(Part::Receive, 0, 4, 0), piece(Part::Receive, 16, 2, 2)]);
        let reduced = pieces(Collective::ReduceScatterV, Placement::OutOfPlace, 2, |of| of.reduce_scatter());
        let reduce = |receives| Part::Reduce { in_place: false, receives };
        assert_eq!(reduced, [piece(reduce(false), 0, 4, 0), piece(reduce(true), 16, 2, 2)]);
    }

    #[test]
    fn in_place_a_block_that_stays_is_not_sent_to_its_own_rank() {
        let gathered = pieces(Collective::AllGatherV, Placement::InPlace, 2, |of| of.all_gather());
        assert_eq!(
            gathered,
            [piece(Part::SendOwn, 16, 2, 0), piece(Part::Receive, 0, 4, 0), piece(Part::SendOwn, 16, 2, 1)]
        );
        for collective in [Collective::Gather, Collective::Scatter] {
            let at_root = pieces(collective, Placement::InPlace, 2, |of| match collective {
                Collective::Gather => of.gather(),
                _ => of.scatter(),
            });
            assert!(at_root.len() == 2 && at_root.iter().all(|piece| piece.peer != 2), "{collective}: {at_root:?}");
        }
    }

    #[test]
    fn nccl_leaves_the_block_of_an_in_place_reduce_scatter_where_it_was() {
        let geometry =
            Geometry::new(Collective::ReduceScatter, ElementType::Float32, Bytes(48), 3, &Splits::Equal).unwrap();
        let offset = |placement| {
            let collective = Collective::ReduceScatter;
            result_offset(&View { collective, placement, geometry: &geometry, group: &[0, 1, 2], me: 2, root: 0 })
        };
        assert_eq!((offset(Placement::InPlace), offset(Placement::OutOfPlace)), (8, 0));
    }
}
