//! The facts of each collective: names, requirements, and the factor from bandwidth to bus bandwidth.
//!
//! How many bytes each rank sends and receives is in [`crate::geometry`]; nothing here depends on the backend.

mod motion;
mod names;
mod options;

pub use motion::{Algorithm, Motion};
pub use names::Collectives;
pub use options::{Placement, ReduceOp};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A communication call, by what it does among the ranks of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' buffers.
    AllReduce,
    /// Every rank ends with all ranks' blocks, in rank order.
    AllGather,
    /// Every rank ends with its block of the reduction.
    ReduceScatter,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the reduction.
    Reduce,
    /// The root ends with all ranks' blocks.
    Gather,
    /// Every rank ends with its block of the root's buffer.
    Scatter,
    /// Every rank sends one block to every rank.
    AllToAll,
    /// `all_gather` with a block length for each rank.
    AllGatherV,
    /// `reduce_scatter` with a block length for each rank.
    ReduceScatterV,
    /// `all_to_all` with a block length for each pair of ranks.
    AllToAllV,
    /// Rank i sends to i+1 and receives from i-1, around the ring.
    SendRecv,
    /// Rank i sends to i+1 and receives from i-1; the last sends and the first receives nothing (a pipeline boundary).
    SendRecvChain,
    /// Rank i of the lower half and rank i of the upper half: a message there and one back.
    PingPong,
    /// The same pairs, both directions at once.
    Bidirectional,
    /// No bytes: nobody leaves before everybody entered.
    Barrier,
}

use Collective::*;

/// How the bytes that name the size of a call are divided among the ranks of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// There are none.
    Nothing,
    /// Every rank has all of them.
    Whole,
    /// Blocks of one length, one for each rank.
    EqualBlocks,
    /// Blocks whose lengths may differ, one for each rank.
    OwnBlocks,
}

/// What a buffer of a rank holds, of the blocks into which the bytes of a call are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// There is no such buffer.
    Nothing,
    /// The rank's own block.
    OwnBlock,
    /// The blocks of all ranks.
    AllBlocks,
    /// The root its own block, the others nothing.
    OwnBlockAtRoot,
    /// The root the blocks of all ranks, the others nothing.
    AllBlocksAtRoot,
}

impl Collective {
    /// Every collective, in the order in which they are listed to users.
    pub const ALL: [Collective; 16] = [
        AllReduce,
        AllGather,
        ReduceScatter,
        Broadcast,
        Reduce,
        Gather,
        Scatter,
        AllToAll,
        AllGatherV,
        ReduceScatterV,
        AllToAllV,
        SendRecv,
        SendRecvChain,
        PingPong,
        Bidirectional,
        Barrier,
    ];

    /// The name in files, flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            AllReduce => "all_reduce",
            AllGather => "all_gather",
            ReduceScatter => "reduce_scatter",
            Broadcast => "broadcast",
            Reduce => "reduce",
            Gather => "gather",
            Scatter => "scatter",
            AllToAll => "all_to_all",
            AllGatherV => "all_gather_v",
            ReduceScatterV => "reduce_scatter_v",
            AllToAllV => "all_to_all_v",
            SendRecv => "send_recv",
            SendRecvChain => "send_recv_chain",
            PingPong => "ping_pong",
            Bidirectional => "bidirectional",
            Barrier => "barrier",
        }
    }

    /// True if elements are combined, so that a [`ReduceOp`] is needed and 8-bit floats cannot be carried on host
    /// memory.
    pub fn reduces(self) -> bool {
        matches!(self, AllReduce | ReduceScatter | Reduce | ReduceScatterV)
    }

    /// True if one rank of the group is the root.
    pub fn has_root(self) -> bool {
        matches!(self.motion(), Motion::Together(Algorithm::BinomialTree | Algorithm::BinomialGather))
    }

    /// What the bytes that name its size are to each rank.
    pub fn division(self) -> Division {
        match self {
            Barrier => Division::Nothing,
            AllReduce | Broadcast | Reduce | SendRecv | SendRecvChain | PingPong | Bidirectional => Division::Whole,
            AllGather | ReduceScatter | Gather | Scatter | AllToAll => Division::EqualBlocks,
            AllGatherV | ReduceScatterV | AllToAllV => Division::OwnBlocks,
        }
    }

    /// What a rank reads from.
    pub fn sent(self) -> Extent {
        match self {
            Barrier => Extent::Nothing,
            AllReduce | AllGather | AllGatherV | Broadcast | Reduce | Gather => Extent::OwnBlock,
            SendRecv | SendRecvChain | PingPong | Bidirectional => Extent::OwnBlock,
            ReduceScatter | ReduceScatterV | AllToAll | AllToAllV => Extent::AllBlocks,
            Scatter => Extent::AllBlocksAtRoot,
        }
    }

    /// What a rank writes to.
    pub fn received(self) -> Extent {
        match self {
            Barrier => Extent::Nothing,
            AllReduce | ReduceScatter | ReduceScatterV | Broadcast | Scatter => Extent::OwnBlock,
            SendRecv | SendRecvChain | PingPong | Bidirectional => Extent::OwnBlock,
            AllGather | AllGatherV | AllToAll | AllToAllV => Extent::AllBlocks,
            Reduce => Extent::OwnBlockAtRoot,
            Gather => Extent::AllBlocksAtRoot,
        }
    }

    /// Which ranks wait for which, and the algorithm that its times and bounds are those of.
    pub fn motion(self) -> Motion {
        match self {
            AllReduce => Motion::Together(Algorithm::RingAllReduce),
            AllGather | AllGatherV | ReduceScatter | ReduceScatterV => Motion::Together(Algorithm::RingAllGather),
            AllToAll | AllToAllV => Motion::Together(Algorithm::PairwiseAllToAll),
            Broadcast | Reduce => Motion::Together(Algorithm::BinomialTree),
            Gather | Scatter => Motion::Together(Algorithm::BinomialGather),
            Barrier => Motion::Together(Algorithm::Dissemination),
            SendRecv => Motion::Ring,
            SendRecvChain => Motion::Chain,
            PingPong => Motion::Pairs { messages_in_turn: 2 },
            Bidirectional => Motion::Pairs { messages_in_turn: 1 },
        }
    }

    /// True if the ranks' blocks may differ in length.
    pub fn has_splits(self) -> bool {
        self.division() == Division::OwnBlocks
    }

    /// The placements that exist. A broadcast has one buffer by nature and counts as in place; the point-to-point
    /// forms and the barrier are out of place only, and so is all_to_all_v, which in place would have to send to
    /// each rank just as much as it receives from it.
    pub fn placements(self) -> &'static [Placement] {
        match self {
            AllReduce | AllGather | ReduceScatter | Reduce | Gather | Scatter | AllGatherV | ReduceScatterV
            | AllToAll => &[Placement::OutOfPlace, Placement::InPlace],
            Broadcast => &[Placement::InPlace],
            AllToAllV | SendRecv | SendRecvChain | PingPong | Bidirectional | Barrier => &[Placement::OutOfPlace],
        }
    }

    /// True if repeating the call in place gives the same result, so that the buffers left behind by timed iterations
    /// can be checked; a reduction in place consumes its input.
    pub fn repeatable_in_place(self) -> bool {
        matches!(self, AllGather | AllGatherV | Broadcast | Gather | Scatter)
    }

    /// One-way messages that follow each other in one call: the latency printed is the time of the call divided by it.
    pub fn transfers_per_call(self) -> u32 {
        match self.motion() {
            Motion::Pairs { messages_in_turn } => messages_in_turn,
            Motion::Together(_) | Motion::Ring | Motion::Chain => 1,
        }
    }

    /// The fewest ranks of a group with which the call moves anything; one rank is a copy and is allowed elsewhere.
    pub fn fewest_ranks(self) -> u32 {
        match self.motion() {
            Motion::Chain | Motion::Pairs { .. } => 2,
            Motion::Together(_) | Motion::Ring => 1,
        }
    }

    /// busbw / algbw for `ranks` ranks, so that the figure can be compared with the rate of a link; `None` for
    /// the barrier, which moves nothing. The values of nccl-tests (`doc/PERFORMANCE.md` and `getBw` of each `src/*.cu`).
    ///
    /// With n ranks, a size argument of S bytes, and W bytes that the busiest rank must send or receive, a link of rate B gives
    /// t >= W / B, so the factor is W / S. Ranks do all arithmetic and nothing is compressed:
    ///
    /// * `all_gather`: a rank holds S/n of S and must receive the rest, S (n-1)/n. `reduce_scatter` is its mirror image.
    /// * `all_reduce`: per element, n-1 sends before the first rank holds the sum, and n-1 more to bring it to the others:
    ///   2 (n-1) S bytes in the group, 2 (n-1)/n S on the busiest rank. A ring reaches it.
    /// * `gather`, `scatter`: the root's link carries the blocks of all others. `all_to_all`: n-1 of n blocks leave a rank.
    /// * `broadcast`, `reduce`: S enters or leaves every rank but the root; a pipelined chain reaches it.
    /// * Messages: S in each direction; one direction is counted.
    ///
    /// The vector forms use the bytes accounted: of `all_to_all_v` n times the largest block, which is exact for splits that are equal on
    /// all senders and a convention otherwise.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        self.bus_ratio(ranks).map(|[numerator, denominator]| numerator as f64 / denominator as f64)
    }

    /// [`Collective::bus_factor`] as numerator and denominator: the share of the bytes that name a call which each rank of a
    /// bandwidth-optimal algorithm sends.
    pub fn bus_ratio(self, ranks: u32) -> Option<[u64; 2]> {
        let n = u64::from(ranks.max(1));
        match self.motion() {
            Motion::Together(algorithm) => algorithm.bus_ratio(n),
            Motion::Ring | Motion::Chain | Motion::Pairs { .. } => Some([1, 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        for (collective, factor) in [
            (AllReduce, 1.5),
            (AllGather, 0.75),
            (ReduceScatter, 0.75),
            (AllToAll, 0.75),
            (Gather, 0.75),
            (Scatter, 0.75),
            (Broadcast, 1.0),
            (Reduce, 1.0),
            (SendRecv, 1.0),
        ] {
            assert_eq!(collective.bus_factor(4), Some(factor), "{collective}");
        }
        assert_eq!(Barrier.bus_factor(4), None);
        assert_eq!(AllReduce.bus_factor(1), Some(0.0));
    }
}
