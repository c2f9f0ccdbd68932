//! Expected content of each part of each buffer before and after a call.

use crate::collective::{Collective, Placement};
use crate::geometry::Geometry;

/// One of the two buffers of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Read by an out-of-place call.
    Send,
    /// Written by every call, and also read by one in place.
    Receive,
}

/// Origin of a segment's elements. `first` is the index of its first element in that data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Data of a world rank, moved unchanged.
    Moved {
        /// World rank.
        rank: u32,
        /// Index of the first element.
        first: u64,
    },
    /// The contribution of a group rank to the reduction.
    Contribution {
        group_rank: u32,
        /// Index of the first element.
        first: u64,
    },
    /// The reduction over the group.
    Reduced {
        /// Index of the first element.
        first: u64,
    },
}

impl Source {
    /// The same data, `elements` further on.
    pub fn shifted_by(self, elements: u64) -> Source {
        match self {
            Source::Moved { rank, first } => Source::Moved { rank, first: first + elements },
            Source::Contribution { group_rank, first } => Source::Contribution { group_rank, first: first + elements },
            Source::Reduced { first } => Source::Reduced { first: first + elements },
        }
    }
}

/// A stretch of a buffer with data from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub buffer: Buffer,
    /// First element in the buffer.
    pub offset: u64,
    /// Number of elements.
    pub elements: u64,
    /// Origin of the elements.
    pub source: Source,
}

/// One rank's view of a call.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The call.
    pub collective: Collective,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// Element counts of the group.
    pub geometry: &'a Geometry,
    /// World ranks of the group.
    pub group: &'a [u32],
    /// This rank within the group.
    pub me: u32,
    /// Root of the group, if there is one.
    pub root: u32,
}

impl View<'_> {
    /// The rank that this one is paired with in ping-pong and bidirectional transfers: the lower half of the group
    /// with the upper half. The last rank of an odd group has no partner.
    pub fn partner(&self) -> Option<u32> {
        let half = self.group.len() as u32 / 2;
        match self.me {
            me if me < half => Some(me + half),
            me if me < 2 * half => Some(me - half),
            _ => None,
        }
    }

    /// The rank that sends to this one along the ring or chain.
    pub fn previous(&self) -> Option<u32> {
        let last = self.group.len() as u32 - 1;
        match (self.collective, self.me) {
            (Collective::SendRecvChain, 0) => None,
            (_, 0) => Some(last),
            (_, me) => Some(me - 1),
        }
    }

    /// The rank that this one sends to along the ring or chain.
    pub fn next(&self) -> Option<u32> {
        let last = self.group.len() as u32 - 1;
        match (self.collective, self.me) {
            (Collective::SendRecvChain, me) if me == last => None,
            (_, me) if me == last => Some(0),
            (_, me) => Some(me + 1),
        }
    }

    /// Required content of the buffers before a call whose data start at index `base`.
    pub fn inputs(&self, base: u64) -> Vec<Segment> {
        use Collective::*;
        let me = self.me;
        let in_place = self.placement == Placement::InPlace;
        let own = self.geometry.blocks[me as usize];
        let all = self.geometry.elements_of_all_blocks();
        let buffer = if in_place { Buffer::Receive } else { Buffer::Send };
        let moved = Source::Moved { rank: self.group[me as usize], first: base };
        let contribution = Source::Contribution { group_rank: me, first: base };
        let one = |buffer, offset, elements, source| vec![Segment { buffer, offset, elements, source }];
        match self.collective {
            Barrier => vec![],
            AllReduce => one(buffer, 0, own, contribution),
            Reduce if in_place && me == self.root => one(Buffer::Receive, 0, own, contribution),
            Reduce => one(Buffer::Send, 0, own, contribution),
            ReduceScatter | ReduceScatterV => one(buffer, 0, all, contribution),
            AllGather | AllGatherV if in_place => one(Buffer::Receive, self.geometry.block_start(me), own, moved),
            Gather if in_place && me == self.root => one(Buffer::Receive, self.geometry.block_start(me), own, moved),
            AllGather | AllGatherV | Gather => one(Buffer::Send, 0, own, moved),
            Broadcast if me == self.root => one(Buffer::Receive, 0, own, moved),
            Scatter if me == self.root => one(Buffer::Send, 0, all, moved),
            Broadcast | Scatter => vec![],
            AllToAll => one(buffer, 0, all, moved),
            AllToAllV => one(buffer, 0, self.geometry.send_elements(me, self.root), moved),
            SendRecv | SendRecvChain | PingPong | Bidirectional => one(Buffer::Send, 0, own, moved),
        }
    }

    /// Expected content of the receive buffer after a call whose data start at index `base`.
    pub fn outputs(&self, base: u64) -> Vec<Segment> {
        use Collective::*;
        let me = self.me;
        let own = self.geometry.blocks[me as usize];
        let start = self.geometry.block_start(me);
        let from = |rank: u32, first: u64| Source::Moved { rank: self.group[rank as usize], first };
        let whole = |source| vec![Segment { buffer: Buffer::Receive, offset: 0, elements: own, source }];
        let in_place_root = self.placement == Placement::InPlace && me == self.root;
        match self.collective {
            Barrier => vec![],
            AllReduce => whole(Source::Reduced { first: base }),
            Reduce if me == self.root => whole(Source::Reduced { first: base }),
            ReduceScatter | ReduceScatterV => whole(Source::Reduced { first: base + start }),
            AllGather | AllGatherV => self.blocks(|rank| (self.geometry.block_start(rank), from(rank, base), rank)),
            Gather if me == self.root => self.blocks(|rank| (self.geometry.block_start(rank), from(rank, base), rank)),
            Broadcast => whole(from(self.root, base)),
            // In place the root's own block stays in the send buffer.
            Scatter if in_place_root => vec![],
            Scatter => whole(from(self.root, base + start)),
            AllToAll => self.blocks(|rank| (u64::from(rank) * own, from(rank, base + start), me)),
            AllToAllV => self.arrivals(base),
            SendRecv | SendRecvChain => self.previous().map_or(vec![], |rank| whole(from(rank, base))),
            PingPong | Bidirectional => self.partner().map_or(vec![], |rank| whole(from(rank, base))),
            Reduce | Gather => vec![],
        }
    }

    /// One segment for each rank of the group: its offset, its source, and the rank whose block determines its length.
    fn blocks(&self, describe: impl Fn(u32) -> (u64, Source, u32)) -> Vec<Segment> {
        let segment = |rank| {
            let (offset, source, length_of) = describe(rank);
            let elements = self.geometry.blocks[length_of as usize];
            Segment { buffer: Buffer::Receive, offset, elements, source }
        };
        (0..self.geometry.ranks()).map(segment).filter(|segment| segment.elements > 0).collect()
    }

    /// One segment for each rank that sends data in an all_to_all_v, contiguous.
    fn arrivals(&self, base: u64) -> Vec<Segment> {
        let mut offset = 0;
        let mut segments = Vec::new();
        for (rank, arrival) in self.group.iter().zip(self.geometry.arrivals(self.me)) {
            let source = Source::Moved { rank: *rank, first: base + arrival.first_at_sender };
            segments.push(Segment { buffer: Buffer::Receive, offset, elements: arrival.elements, source });
            offset += arrival.elements;
        }
        segments.retain(|segment| segment.elements > 0);
        segments
    }

    /// Elements that the two buffers of this rank must hold: send, receive.
    pub fn buffer_elements(&self) -> (u64, u64) {
        let send = self.geometry.send_elements(self.me, self.root);
        let receive = self.geometry.receive_elements(self.me, self.root);
        match (self.collective, self.placement) {
            (Collective::Broadcast, _) => (0, receive),
            // The root scatters from a separate buffer, others have no input: in place changes only which rank copies.
            (Collective::Scatter, _) => (send, receive),
            (collective, Placement::InPlace) if collective.has_root() && self.me == self.root => (0, receive),
            (collective, _) if collective.has_root() => (send, receive),
            (_, Placement::InPlace) => (0, send.max(receive)),
            _ => (send, receive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementType;
    use crate::geometry::Splits;
    use crate::units::Bytes;

    #[test]
    fn all_segments_lie_within_the_buffers() {
        let group = [4, 5, 6, 7, 8];
        let splits = Splits::Given(vec![3, 0, 2, 2, 1]);
        for collective in Collective::ALL {
            let geometry = Geometry::new(collective, ElementType::Float32, Bytes(3200), 5, &splits).unwrap();
            for &placement in collective.placements() {
                for me in 0..5 {
                    let view = View { collective, placement, geometry: &geometry, group: &group, me, root: 2 };
                    let (send, receive) = view.buffer_elements();
                    for segment in view.inputs(10).into_iter().chain(view.outputs(10)) {
                        let room = if segment.buffer == Buffer::Send { send } else { receive };
                        assert!(segment.offset + segment.elements <= room, "{collective} {placement} {segment:?}");
                    }
                }
            }
        }
    }

    /// Executes an all_to_all_v by hand on lists of (world rank, index) and compares with the expected segments.
    #[test]
    fn what_arrives_in_an_all_to_all_v_is_what_was_sent() {
        let group = [3, 5, 4, 9];
        let routed = |text: &str| crate::geometry::Routed {
            experts: 8,
            experts_per_token: 2,
            elements_per_token: 3,
            routing: crate::geometry::Routing::Random,
            capacity_factor: text.contains("capacity").then_some(0.9),
            seed: 5,
            back: text.contains("back"),
        };
        let kinds = ["", "back", "capacity", "capacity back"].map(|text| Splits::Routed(routed(text)));
        for splits in kinds.into_iter().chain([Splits::Given(vec![3, 0, 2, 1])]) {
            let geometry = Geometry::new(Collective::AllToAllV, ElementType::Uint8, Bytes(600), 4, &splits).unwrap();
            let view = |me: usize| View {
                collective: Collective::AllToAllV,
                placement: Placement::OutOfPlace,
                geometry: &geometry,
                group: &group,
                me: me as u32,
                root: 0,
            };
            for me in 0..4 {
                let mut expected: Vec<(u32, u64)> = Vec::new();
                for (from, rank) in group.iter().enumerate() {
                    let counts = geometry.counts_sent(from as u32);
                    let start: u64 = 10 + counts[..me].iter().sum::<u64>();
                    expected.extend((start..start + counts[me]).map(|index| (*rank, index)));
                }
                let mut promised = Vec::new();
                for segment in view(me).outputs(10) {
                    let Source::Moved { rank, first } = segment.source else { panic!("{segment:?}") };
                    assert_eq!(segment.offset, promised.len() as u64);
                    promised.extend((first..first + segment.elements).map(|index| (rank, index)));
                }
                assert_eq!(promised, expected, "{splits:?} rank {me}");
                let sent: u64 = view(me).inputs(10).iter().map(|segment| segment.elements).sum();
                assert_eq!((sent, promised.len() as u64), view(me).buffer_elements(), "{splits:?} rank {me}");
            }
        }
    }

    #[test]
    fn an_odd_group_leaves_its_last_rank_without_a_partner() {
        let group = [0, 1, 2];
        let geometry = Geometry::new(Collective::PingPong, ElementType::Int8, Bytes(8), 3, &Splits::Equal).unwrap();
        let partner = |me| {
            let placement = Placement::OutOfPlace;
            View { collective: Collective::PingPong, placement, geometry: &geometry, group: &group, me, root: 0 }
                .partner()
        };
        assert_eq!([partner(0), partner(1), partner(2)], [Some(1), Some(0), None]);
    }
}
