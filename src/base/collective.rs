//! The facts of each collective: names, requirements, and the factor from bandwidth to bus bandwidth.
//!
//! How many bytes each rank sends and receives is in [`crate::geometry`]; nothing here depends on the backend.

use Collective::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A communication call, by its effect among the ranks of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' buffers.
    #[default]
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
    /// No bytes: no rank leaves before every rank has entered.
    Barrier,
}

/// How the size argument of a call is divided among the ranks of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// No bytes.
    Nothing,
    /// Every rank has all of them.
    Whole,
    /// Blocks of one length, one for each rank.
    EqualBlocks,
    /// Blocks whose lengths may differ, one for each rank.
    OwnBlocks,
}

/// Content of a rank's buffer, in terms of the blocks of a call.
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
    /// Every collective, in display order.
    pub const ALL: [Collective; 16] = *<Collective as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    /// True if elements are combined, so that a [`ReduceOp`] is needed and host memory cannot carry 8-bit floats.
    pub fn reduces(self) -> bool {
        matches!(self, AllReduce | ReduceScatter | Reduce | ReduceScatterV)
    }

    /// True if one rank of the group is the root.
    pub fn has_root(self) -> bool {
        matches!(self.motion(), Motion::Together(Algorithm::BinomialTree | Algorithm::BinomialGather))
    }

    /// Meaning of the size argument for each rank.
    pub fn division(self) -> Division {
        match self {
            Barrier => Division::Nothing,
            AllReduce | Broadcast | Reduce | SendRecv | SendRecvChain | PingPong | Bidirectional => Division::Whole,
            AllGather | ReduceScatter | Gather | Scatter | AllToAll => Division::EqualBlocks,
            AllGatherV | ReduceScatterV | AllToAllV => Division::OwnBlocks,
        }
    }

    /// The buffer that a rank reads.
    pub fn sent(self) -> Extent {
        match self {
            Barrier => Extent::Nothing,
            AllReduce | AllGather | AllGatherV | Broadcast | Reduce | Gather => Extent::OwnBlock,
            SendRecv | SendRecvChain | PingPong | Bidirectional => Extent::OwnBlock,
            ReduceScatter | ReduceScatterV | AllToAll | AllToAllV => Extent::AllBlocks,
            Scatter => Extent::AllBlocksAtRoot,
        }
    }

    /// The buffer that a rank writes.
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

    /// Which ranks wait for which, and the algorithm that determines its times and bounds.
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

    /// The placements that exist. A broadcast has one buffer by nature and counts as in place; the point-to-point forms and the barrier are
    /// out of place only, and so is all_to_all_v, which in place would have to send to each rank as much as it receives from it.
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

    /// Consecutive one-way messages in one call: the printed latency is the time of the call divided by this number.
    pub fn transfers_per_call(self) -> u32 {
        match self.motion() {
            Motion::Pairs { messages_in_turn } => messages_in_turn,
            Motion::Together(_) | Motion::Ring | Motion::Chain => 1,
        }
    }

    /// The minimum number of ranks with which the call moves data; one rank is a copy and is allowed elsewhere.
    pub fn fewest_ranks(self) -> u32 {
        match self.motion() {
            Motion::Chain | Motion::Pairs { .. } => 2,
            Motion::Together(_) | Motion::Ring => 1,
        }
    }

    /// busbw / algbw for `ranks` ranks, so the figure can be compared with the rate of a link; `None` for the barrier, which moves nothing.
    /// The values of nccl-tests (`doc/PERFORMANCE.md` and `getBw` of each `src/*.cu`).
    ///
    /// With n ranks, a size argument of S bytes, and W bytes that the busiest rank must send or receive, a link of rate B gives
    /// t >= W / B, so the factor is W / S. Ranks do all arithmetic and nothing is compressed:
    ///
    /// * `all_gather`: a rank holds S/n of S and must receive the rest, S (n-1)/n. `reduce_scatter` is its mirror image.
    /// * `all_reduce`: per element, n-1 sends before the first rank holds the sum, and n-1 more to send it to the others: 2 (n-1) S bytes
    ///   in the group, 2 (n-1)/n S on the busiest rank. A ring reaches it.
    /// * `gather`, `scatter`: the root's link carries the blocks of all others. `all_to_all`: n-1 of n blocks leave a rank.
    /// * `broadcast`, `reduce`: S enters or leaves every rank but the root; a pipelined chain reaches it.
    /// * Messages: S in each direction; one direction is counted.
    ///
    /// The vector forms use the bytes accounted: for `all_to_all_v` n times the largest block, which is exact for splits that are equal on
    /// all senders and a convention otherwise.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        self.bus_ratio(ranks).map(|[numerator, denominator]| numerator as f64 / denominator as f64)
    }

    /// [`Collective::bus_factor`] as numerator and denominator: the share of the size argument that each rank sends in a bandwidth-optimal
    /// algorithm.
    pub fn bus_ratio(self, ranks: u32) -> Option<[u64; 2]> {
        let n = u64::from(ranks.max(1));
        match self.motion() {
            Motion::Together(algorithm) => algorithm.bus_ratio(n),
            Motion::Ring | Motion::Chain | Motion::Pairs { .. } => Some([1, 1]),
        }
    }
}

// Which ranks of a group wait for which, and by which algorithm: the basis of times and bounds of a collective.

/// The algorithms of collectives in which all ranks of a group end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    RingAllReduce,
    /// all_gather and reduce_scatter.
    RingAllGather,
    PairwiseAllToAll,
    /// broadcast and reduce, with a root.
    BinomialTree,
    /// gather and scatter, with a root.
    BinomialGather,
    /// The barrier.
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
        /// Messages of a pair, each starting where the previous one ends.
        messages_in_turn: u32,
    },
}

impl Algorithm {
    /// The minimum share of the size argument that each of `n` ranks sends, as numerator and denominator. `None` for the barrier.
    fn bus_ratio(self, n: u64) -> Option<[u64; 2]> {
        match self {
            Algorithm::RingAllReduce => Some([2 * (n - 1), n]),
            Algorithm::RingAllGather | Algorithm::PairwiseAllToAll | Algorithm::BinomialGather => Some([n - 1, n]),
            Algorithm::BinomialTree => Some([1, 1]),
            Algorithm::Dissemination => None,
        }
    }
}

// The names of collectives in commgauge, and in other tools.

/// Affixes that other tools add to the names of their programs: `osu_allreduce`, `all_reduce_perf`.
const PREFIX_OF_OSU: &str = "osu_";

const SUFFIX_OF_NCCL_TESTS: &str = "_perf";

/// Names of other tools that differ from commgauge's even without underscores.
const OTHER_NAMES: [(&str, Collective); 2] = [("bcast", Broadcast), ("bibw", Bidirectional)];

impl FromStr for Collective {
    type Err = String;

    /// Parses a name from commgauge, nccl-tests, OSU or IMB: `allreduce`, `all_reduce_perf`, `osu_alltoall`, `Bcast`, `PingPong`.
    fn from_str(text: &str) -> Result<Self, String> {
        let small = text.to_ascii_lowercase();
        let bare = small.strip_prefix(PREFIX_OF_OSU).unwrap_or(&small);
        let bare = squeezed(bare.strip_suffix(SUFFIX_OF_NCCL_TESTS).unwrap_or(bare));
        let other = || OTHER_NAMES.into_iter().find(|(name, _)| *name == bare).map(|(_, collective)| collective);
        Collective::ALL.into_iter().find(|c| squeezed(c.name()) == bare).or_else(other).ok_or_else(|| {
            let names: Vec<_> = Collective::ALL.iter().map(|c| c.name()).collect();
            format!("found collective `{text}`; accepted: {}", names.join(", "))
        })
    }
}

/// A name without word separators.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).collect()
}

/// Collectives as a list separated by commas, blanks or both; `all` means every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collectives(pub Vec<Collective>);

impl FromStr for Collectives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let mut found = Vec::new();
        for word in words {
            match word {
                "all" => found.extend(Collective::ALL),
                name => found.push(name.parse()?),
            }
        }
        if found.is_empty() {
            return Err(format!("found no collective in `{text}`; accepted: such as all_reduce,all_gather, or all"));
        }
        Ok(Collectives(found))
    }
}

// The choices of a collective: its reduction, and the place of its result.

/// How a reducing collective combines elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output, as in nccl-tests.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ReduceOp {
    #[default]
    Sum,
    Prod,
    Min,
    Max,
    /// The sum divided by the number of ranks; whole-number types truncate.
    Avg,
    /// The sum after every rank multiplies its input by its own number: NCCL's `ncclRedOpCreatePreMulSum`.
    #[serde(rename = "mulsum")]
    #[strum(serialize = "mulsum")]
    PreMulSum,
}

/// Whether the result replaces the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case")]
pub enum Placement {
    OutOfPlace,
    InPlace,
}

impl ReduceOp {
    /// Operations supported by every backend, in display order.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
}

crate::error::names!(Collective, ReduceOp, Placement);

impl FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = <ReduceOp as strum::VariantArray>::VARIANTS.iter().copied().find(|op| op.name() == text);
        found.ok_or_else(|| format!("found reduce operation `{text}`; accepted: sum, prod, min, max, avg, mulsum"))
    }
}

#[cfg(test)]
mod tests {
    use super::{ReduceOp, *};

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

    #[test]
    fn the_names_of_other_tools_mean_the_same_calls() {
        for (names, expected) in [
            ("allreduce all_reduce_perf osu_allreduce Allreduce all-reduce ALLREDUCE", AllReduce),
            ("allgather all_gather_perf osu_allgather", AllGather),
            ("reducescatter reduce_scatter_perf osu_reduce_scatter Reduce_scatter", ReduceScatter),
            ("alltoall alltoall_perf osu_alltoall", AllToAll),
            ("alltoallv alltoallv_perf", AllToAllV),
            ("sendrecv sendrecv_perf Sendrecv", SendRecv),
            ("broadcast_perf bcast osu_bcast Bcast", Broadcast),
            ("reduce_perf osu_reduce", Reduce),
            ("gather_perf", Gather),
            ("scatter_perf", Scatter),
            ("PingPong", PingPong),
            ("osu_barrier", Barrier),
        ] {
            for name in names.split(' ') {
                assert_eq!(name.parse(), Ok(expected), "{name}");
            }
        }
        for name in ["", "perf", "_perf", "osu_", "hypercube_perf", "all_reduce_perf_mpi", "osu_latency"] {
            assert!(name.parse::<Collective>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_list_has_commas_or_blanks_or_both() {
        for text in ["all_reduce,allgather", "all_reduce all_gather", " all_reduce, all_gather ,"] {
            assert_eq!(text.parse(), Ok(Collectives(vec![AllReduce, AllGather])), "{text}");
        }
        assert_eq!("all".parse::<Collectives>().map(|all| all.0.len()), Ok(Collective::ALL.len()));
        for text in ["", " , ", "all_reduce,nothing"] {
            assert!(text.parse::<Collectives>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_name_reads_back_as_its_collective() {
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
        }
        for op in ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum]) {
            assert_eq!(op.name().parse(), Ok(op));
        }
    }
}
