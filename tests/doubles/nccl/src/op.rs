//! What each call moves: as messages between the ranks, reduced in pieces.

use crate::arithmetic;
use crate::communicator::Communicator;
use crate::element::Element;
use crate::exchange::{Exchange, Tag};
use crate::operator::{Named, Operator};
use crate::result::Answer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    AllReduce,
    Reduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    AllToAll,
    Gather,
    Scatter,
    Send,
    Receive,
    /// No data: no rank leaves before all have entered.
    Barrier,
    /// Bytes that the doubles exchange internally.
    Talk,
}

use Kind::*;

const ALL: [(Kind, &str); 12] = [
    (AllReduce, "all_reduce"),
    (Reduce, "reduce"),
    (ReduceScatter, "reduce_scatter"),
    (AllGather, "all_gather"),
    (Broadcast, "broadcast"),
    (AllToAll, "all_to_all"),
    (Gather, "gather"),
    (Scatter, "scatter"),
    (Send, "send"),
    (Receive, "recv"),
    (Barrier, "finalize"),
    (Talk, "split"),
];

/// One call as it was made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    pub send: usize,
    pub receive: usize,
    /// Elements of one rank's block.
    pub count: usize,
    pub element: Element,
    pub operator: Named,
    /// Root, or the other end of a message.
    pub peer: u32,
    /// Whether both buffers of a collective are registered, in which ranks must not differ.
    pub is_registered: bool,
}

/// Kind, bytes and peer of a call.
pub type Connection = (Kind, usize, u32);

/// Reductions are executed in pieces of this many bytes for each rank.
const PIECE_BYTES: usize = 64 << 10;

impl Kind {
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// In a tag: that the buffers are registered.
const REGISTERED: Tag = 0x80;
/// Bytes of work that a kernel gets for a message in each direction.
const WORK_BYTES: usize = 96;
/// Work of a collective in NCCL 2.30 (`ncclDevWorkColl`), whose buffers are not registered.
const COLLECTIVE_BYTES: usize = 128;

/// The name for a tag received in a message.
pub fn name_of_tag(tag: Tag) -> String {
    let name = ALL.get((tag & (REGISTERED - 1)) as usize).map_or("something unknown", |(_, name)| name);
    let registered = if tag & REGISTERED == 0 { "" } else { " on registered buffers" };
    match tag >> 8 {
        0 => format!("{name}{registered}"),
        rest => {
            format!("{name} (type {}, operator {}, root {}){registered}", rest & 0xff, rest >> 8 & 0xff, rest >> 16)
        }
    }
}

impl Call {
    pub fn bytes(&self) -> usize {
        self.count * self.element.bytes()
    }

    /// The key that both ends of its messages must use. Sends and receives have one tag.
    fn tag(&self) -> Tag {
        let kind = if self.kind == Receive { Send } else { self.kind };
        let number = ALL.iter().position(|(one, _)| *one == kind).unwrap_or(0) as u64;
        let operator = match self.operator {
            Named::Now(Operator::Sum) => 1,
            Named::Now(Operator::Prod) => 2,
            Named::Now(Operator::Max) => 3,
            Named::Now(Operator::Min) => 4,
            Named::Now(Operator::Avg) => 5,
            Named::Now(Operator::PreMulSum(_)) | Named::Later(_) => 6,
        };
        let operator = if matches!(kind, AllReduce | Reduce | ReduceScatter) { operator } else { 0 };
        let root = if matches!(kind, Reduce | Broadcast | Gather | Scatter) { u64::from(self.peer) } else { 0 };
        let registered = if self.is_registered { REGISTERED } else { 0 };
        number | registered | (self.element as u64) << 8 | operator << 16 | root << 24
    }

    pub fn is_message(&self) -> bool {
        matches!(self.kind, Send | Receive)
    }

    /// Whether NCCL carries it as sends and receives.
    pub fn is_made_of_messages(&self) -> bool {
        matches!(self.kind, Send | Receive | AllToAll | Gather | Scatter)
    }

    /// Whether eight-bit floats are multiplied before they are reduced: `avg`, and what was made for it.
    pub fn is_eight_bit_product(&self) -> bool {
        let multiplies =
            !matches!(self.operator, Named::Now(Operator::Sum | Operator::Prod | Operator::Max | Operator::Min));
        matches!(self.kind, AllReduce | Reduce | ReduceScatter)
            && multiplies
            && matches!(self.element, Element::Fp8E4m3 | Element::Fp8E5m2)
    }

    /// Bytes of work that its kernel gets.
    pub fn work_bytes(&self, rank: u32, ranks: u32) -> usize {
        match self.kind {
            AllToAll => WORK_BYTES * ranks as usize,
            Gather | Scatter if rank == self.peer => WORK_BYTES * ranks as usize,
            Send | Receive | Gather | Scatter => WORK_BYTES / 2,
            _ => COLLECTIVE_BYTES,
        }
    }

    /// The ranks to which it sends messages, and from which it receives some.
    pub fn peers(&self, rank: u32, ranks: u32) -> [Vec<u32>; 2] {
        let (all, one) = ((0..ranks).collect(), vec![self.peer]);
        match (self.kind, rank == self.peer) {
            (Send, _) => [one, vec![]],
            (Receive, _) => [vec![], one],
            (AllToAll, _) => [all, (0..ranks).collect()],
            (Gather, true) => [one, all],
            (Gather, false) => [one, vec![]],
            (Scatter, true) => [all, one],
            (Scatter, false) => [vec![], one],
            _ => [vec![], vec![]],
        }
    }

    /// What NCCL connects for it, at the latest when it is called.
    pub fn connection(&self) -> Connection {
        (self.kind, self.bytes(), self.peer)
    }

    /// Bytes that the rank reads from the send buffer, and that it writes to the receive buffer.
    pub fn extents(&self, rank: u32, ranks: u32) -> (usize, usize) {
        let (block, all, at_root) = (self.bytes(), self.bytes() * ranks as usize, rank == self.peer);
        let if_root = |bytes| if at_root { bytes } else { 0 };
        match self.kind {
            AllReduce => (block, block),
            Reduce => (block, if_root(block)),
            ReduceScatter => (all, block),
            AllGather => (block, all),
            Broadcast => (if_root(block), block),
            AllToAll => (all, all),
            Gather => (block, if_root(all)),
            Scatter => (if_root(all), block),
            Send => (block, 0),
            Receive => (0, block),
            Barrier | Talk => (0, 0),
        }
    }

    /// Adds the messages of a send or receive to those of its group.
    pub fn post(&self, exchange: &mut Exchange) {
        match self.kind {
            Send => exchange.send(self.peer, self.tag(), self.send, self.bytes()),
            _ => exchange.receive(self.peer, self.tag(), self.receive, self.bytes()),
        }
    }

    /// Carries a collective out. False where it was given up.
    pub fn run(&self, communicator: &Communicator) -> Answer<bool> {
        if matches!(self.kind, AllReduce | Reduce | ReduceScatter) {
            return self.reduce(communicator);
        }
        let (me, ranks, block, tag) = (communicator.rank, communicator.ranks, self.bytes(), self.tag());
        let mut exchange = Exchange::new(ranks);
        let at = |rank: u32| rank as usize * block;
        for peer in 0..ranks {
            match self.kind {
                AllGather => exchange.send(peer, tag, self.send, block),
                AllToAll => exchange.send(peer, tag, self.send + at(peer), block),
                Broadcast if me == self.peer && (peer != me || self.send != self.receive) => {
                    exchange.send(peer, tag, self.send, block);
                }
                Scatter if me == self.peer => exchange.send(peer, tag, self.send + at(peer), block),
                Gather if peer == self.peer => exchange.send(peer, tag, self.send, block),
                Barrier => exchange.send(peer, tag, 0, 0),
                _ => {}
            }
            match self.kind {
                AllGather | AllToAll => exchange.receive(peer, tag, self.receive + at(peer), block),
                Broadcast if peer == self.peer && (peer != me || self.send != self.receive) => {
                    exchange.receive(peer, tag, self.receive, block);
                }
                Scatter if peer == self.peer => exchange.receive(peer, tag, self.receive, block),
                Gather if me == self.peer => exchange.receive(peer, tag, self.receive + at(peer), block),
                Barrier => exchange.receive(peer, tag, 0, 0),
                _ => {}
            }
        }
        exchange.run(communicator)
    }

    /// Every rank that needs the result receives all data and reduces them itself, in the order of the ranks.
    fn reduce(&self, communicator: &Communicator) -> Answer<bool> {
        let (me, ranks, element) = (communicator.rank, communicator.ranks, self.element);
        let operator = self.operator.read(element);
        let wants = |rank: u32| self.kind != Reduce || rank == self.peer;
        let piece = PIECE_BYTES / element.bytes();
        let mut arrived = vec![vec![0u8; PIECE_BYTES.min(self.bytes())]; if wants(me) { ranks as usize } else { 0 }];
        for first in (0..self.count).step_by(piece) {
            let bytes = piece.min(self.count - first) * element.bytes();
            let offset = first * element.bytes();
            let mut exchange = Exchange::new(ranks);
            // What is multiplied by a number of each rank's own is so before it leaves the rank.
            let mut multiplied: Vec<Vec<u8>> = Vec::new();
            for peer in (0..ranks).filter(|peer| wants(*peer)) {
                let block = if self.kind == ReduceScatter { peer as usize * self.bytes() } else { 0 };
                let mut from = self.send + block + offset;
                if let Operator::PreMulSum(_) = operator {
                    let mut own = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
                    arithmetic::prepare(element, operator, ranks, &mut own);
                    from = own.as_ptr() as usize;
                    multiplied.push(own);
                }
                exchange.send(peer, self.tag(), from, bytes);
            }
            for (peer, place) in arrived.iter().enumerate() {
                exchange.receive(peer as u32, self.tag(), place.as_ptr() as usize, bytes);
            }
            if !exchange.run(communicator)? {
                return Ok(false);
            }
            if wants(me) {
                if !matches!(operator, Operator::PreMulSum(_)) {
                    arrived
                        .iter_mut()
                        .for_each(|data| arithmetic::prepare(element, operator, ranks, &mut data[..bytes]));
                }
                let (total, others) = arrived.split_at_mut(1);
                others
                    .iter()
                    .for_each(|data| arithmetic::combine(element, operator, &mut total[0][..bytes], &data[..bytes]));
                arithmetic::finish(element, operator, ranks, &mut total[0][..bytes]);
                let result = (self.receive + offset) as *mut u8;
                unsafe { result.copy_from_nonoverlapping(total[0].as_ptr(), bytes) };
            }
        }
        Ok(true)
    }
}
