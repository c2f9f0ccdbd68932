//! The names of collectives: ours, and those of other tools for the same calls.

use super::Collective::{self, *};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Affixes that other tools add to the names of their programs: `osu_allreduce`, `all_reduce_perf`.
const PREFIX_OF_OSU: &str = "osu_";
const SUFFIX_OF_NCCL_TESTS: &str = "_perf";
/// Names of other tools that are ours neither with nor without their underlines.
const OTHER_NAMES: [(&str, Collective); 2] = [("bcast", Broadcast), ("bibw", Bidirectional)];

impl FromStr for Collective {
    type Err = String;

    /// Reads our name, or that of nccl-tests, OSU or IMB: `allreduce`, `all_reduce_perf`, `osu_alltoall`, `Bcast`, `PingPong`.
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

/// A name without what divides its words.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).collect()
}

/// Collectives as a list with commas, blanks or both; `all` means every one.
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

#[cfg(test)]
mod tests {
    use super::super::ReduceOp;
    use super::*;

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
