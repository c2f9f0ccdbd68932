//! What OSU and IMB call their tests, for reading and for writing their output, and what the size is that they print.
//!
//! A collective without a line has no test there.

use commgauge_base::collective::Collective::{self, *};

/// Meaning of the size that a tool prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintedSize {
    /// `bytes_total`.
    Total,
    /// One rank's block of it.
    Block,
    /// Nothing, as nothing is moved.
    Absent,
}

/// A test of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgram {
    /// What it measures.
    pub collective: Collective,
    /// Its name in the title.
    pub name: &'static str,
    /// The size in each line.
    pub size: PrintedSize,
}

const fn test(collective: Collective, name: &'static str, size: PrintedSize) -> PeerProgram {
    PeerProgram { collective, name, size }
}

/// The tests of the OSU micro-benchmarks (`c/mpi`), by their titles without the last word.
pub const OSU: [PeerProgram; 15] = {
    use PrintedSize::{Absent, Block, Total};
    [
        test(AllReduce, "Allreduce Latency", Total),
        test(Reduce, "Reduce Latency", Total),
        test(Broadcast, "Broadcast Latency", Total),
        test(ReduceScatter, "Reduce_scatter Latency", Total),
        test(ReduceScatter, "Reduce_scatter_block Latency", Total),
        test(AllGather, "Allgather Latency", Block),
        test(AllGatherV, "Allgatherv Latency", Block),
        test(AllToAll, "All-to-All Personalized Exchange Latency", Block),
        test(AllToAllV, "All-to-Allv Personalized Exchange Latency", Block),
        test(Gather, "Gather Latency", Block),
        test(Scatter, "Scatter Latency", Block),
        test(Barrier, "Barrier Latency", Absent),
        test(PingPong, "Latency", Total),
        test(SendRecvChain, "Bandwidth", Total),
        test(Bidirectional, "Bi-Directional Bandwidth", Total),
    ]
};

/// The benchmarks of IMB-MPI1.
pub const IMB: [PeerProgram; 15] = {
    use PrintedSize::{Absent, Block, Total};
    [
        test(PingPong, "PingPong", Total),
        test(Bidirectional, "PingPing", Total),
        test(SendRecv, "Sendrecv", Total),
        test(AllReduce, "Allreduce", Total),
        test(Reduce, "Reduce", Total),
        test(Broadcast, "Bcast", Total),
        test(ReduceScatter, "Reduce_scatter", Total),
        test(ReduceScatter, "Reduce_scatter_block", Block),
        test(AllGather, "Allgather", Block),
        test(AllGatherV, "Allgatherv", Block),
        test(AllToAll, "Alltoall", Block),
        test(AllToAllV, "Alltoallv", Block),
        test(Gather, "Gather", Block),
        test(Scatter, "Scatter", Block),
        test(Barrier, "Barrier", Absent),
    ]
};

impl PeerProgram {
    /// The first of `tests` that measures the collective.
    pub fn of(tests: &'static [PeerProgram], collective: Collective) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.collective == collective)
    }

    /// The one of `tests` with this name, in whatever case: versions differ.
    pub(super) fn named(tests: &'static [PeerProgram], name: &str) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.name.eq_ignore_ascii_case(name))
    }
}
