//! How NCCL carries each collective: by a function of its own, or by parts that replace it.

use super::kinds::{Kind, Part, Piece};
use crate::backend::nccl::library::Library;
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::pattern::segments::View;
use std::ffi::c_int;

/// Offset in elements within the receive buffer at which NCCL leaves the result that [`View::outputs`] describes at
/// the beginning: NCCL's in-place reduce_scatter leaves each rank's block where it was.
pub(in super::super) fn result_offset(view: &View) -> u64 {
    match (view.collective, view.placement) {
        (Collective::ReduceScatter | Collective::ReduceScatterV, Placement::InPlace) => {
            view.geometry.block_start(view.me)
        }
        _ => 0,
    }
}

/// The calls that replace a collective for which NCCL has no function; `None` if it has one.
pub(in super::super) fn decomposition(library: &Library, collective: Collective) -> Option<&'static str> {
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

/// Pieces of work that a call puts into the queue of NCCL on one rank, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Work {
    /// Of functions that are collectives to NCCL too.
    Collectives(u32),
    /// Messages in each direction.
    Messages(u32),
}

impl Work {
    /// That of a collective. NCCL's own ncclAlltoAll, ncclGather and ncclScatter are made of messages too, the latter two on one rank.
    pub(in super::super) fn of(collective: Collective, ranks: u32) -> Work {
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
pub(super) struct Parts<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) element_bytes: usize,
}

impl Parts<'_> {
    pub(super) fn kind(&self, library: &Library) -> Kind {
        use Collective::*;
        let view = self.view;
        let block = view.geometry.blocks[view.me as usize] as usize;
        let own_offset = view.geometry.block_start(view.me) as usize;
        let at_root = view.me == view.root;
        match view.collective {
            Barrier => Kind::AllReduce { count: 1 },
            AllReduce => Kind::AllReduce { count: block },
            AllGather => Kind::AllGather { block, own_offset },
            ReduceScatter => Kind::ReduceScatter { block, own_offset },
            Broadcast => Kind::Broadcast { count: block },
            Reduce => Kind::Reduce { count: block, at_root },
            AllToAll => match library.call.all_to_all {
                Some(call) => Kind::AllToAll { block, call },
                None => Kind::Group(self.exchange()),
            },
            Gather => match library.call.gather {
                Some(call) => Kind::Gather { block, own_offset, at_root, call },
                None => Kind::Group(self.gather()),
            },
            Scatter => match library.call.scatter {
                Some(call) => Kind::Scatter { block, own_offset, at_root, call },
                None => Kind::Group(self.scatter()),
            },
            AllGatherV => Kind::Group(self.all_gather()),
            ReduceScatterV => Kind::Group(self.reduce_scatter()),
            AllToAllV => Kind::Group(self.exchange()),
            SendRecv | SendRecvChain => self.neighbours(view.next(), view.previous()),
            Bidirectional => self.neighbours(view.partner(), view.partner()),
            PingPong => match view.partner() {
                Some(partner) => {
                    let there = self.piece(Part::Send, 0, block as u64, partner);
                    let back = self.piece(Part::Receive, 0, block as u64, partner);
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

    /// all_to_all and all_to_all_v, out of place.
    pub(super) fn exchange(&self) -> Vec<Piece> {
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

    pub(super) fn all_gather(&self) -> Vec<Piece> {
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

    pub(super) fn reduce_scatter(&self) -> Vec<Piece> {
        let geometry = self.view.geometry;
        let in_place = self.view.placement == Placement::InPlace;
        let with_share = self.ranks().filter(|rank| geometry.blocks[*rank as usize] > 0);
        let reduce = |rank: u32| {
            let what = Part::Reduce { in_place, receives: rank == self.view.me };
            self.piece(what, geometry.block_start(rank), geometry.blocks[rank as usize], rank)
        };
        with_share.map(reduce).collect()
    }

    pub(super) fn gather(&self) -> Vec<Piece> {
        self.with_root(Part::Send, Part::Receive)
    }

    pub(super) fn scatter(&self) -> Vec<Piece> {
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
