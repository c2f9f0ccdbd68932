//! Which ranks of a group wait for which, and by which algorithm: what times and bounds of a collective follow from.

/// The algorithms of collectives in which all ranks of a group end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Of all_reduce.
    RingAllReduce,
    /// Of all_gather and reduce_scatter.
    RingAllGather,
    /// Of all_to_all.
    PairwiseAllToAll,
    /// Of broadcast and reduce, which have a root.
    BinomialTree,
    /// Of gather and scatter, which have a root.
    BinomialGather,
    /// Of the barrier.
    Dissemination,
}

/// The dependencies between the ranks of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// All ranks of the group start with the last arrival and end together.
    Together(Algorithm),
    /// Rank i sends to i + 1, the last to the first.
    Ring,
    /// Rank i sends to i + 1.
    Chain,
    /// Ranks half a group apart exchange this many messages, one after another.
    Pairs {
        /// Messages of a pair, of which each starts where the one before ends.
        messages_in_turn: u32,
    },
}

impl Algorithm {
    /// The share of the bytes that name a call which each of `n` ranks sends, as numerator and denominator, where as little is sent as can
    /// be. `None` for the barrier.
    pub(super) fn bus_ratio(self, n: u64) -> Option<[u64; 2]> {
        match self {
            Algorithm::RingAllReduce => Some([2 * (n - 1), n]),
            Algorithm::RingAllGather | Algorithm::PairwiseAllToAll | Algorithm::BinomialGather => Some([n - 1, n]),
            Algorithm::BinomialTree => Some([1, 1]),
            Algorithm::Dissemination => None,
        }
    }
}
