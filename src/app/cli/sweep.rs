//! The flags of `commgauge-sweep`: those of nccl-tests by their letters, each with our long name.
//!
//! `sweep_plan` checks their combination.

use super::launched_arguments::parse_time_limit;
use super::nccl_tests_flags::NcclTestsFlags;
use super::sampling::SamplingArguments;
use clap::Args;
use commgauge_base::collective::{Collectives, Placement};
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::config::Peer;

/// One or more collectives over sizes, on all ranks of the launch.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct SweepArguments {
    /// Collectives, with commas or blanks between them, or `all`
    ///
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all, all_gather_v,
    /// reduce_scatter_v, all_to_all_v, send_recv (a ring), send_recv_chain, ping_pong, bidirectional, barrier; also by the names of
    /// nccl-tests, OSU and IMB, such as allreduce, alltoall_perf, osu_bcast, Sendrecv.
    #[arg(value_name = "COLLECTIVE", required_unless_present = "collective")]
    pub collectives: Vec<Collectives>,

    /// The same as a flag
    #[arg(long, value_name = "LIST")]
    pub collective: Vec<Collectives>,

    /// Smallest size, in bytes or with a unit of 1024: 8, 64K, 1M, 1MiB
    ///
    /// Sizes are those of nccl-tests: the full buffer for all_gather, reduce_scatter, gather and scatter. [default: 32M,
    /// or the largest where that is smaller]
    #[arg(short = 'b', long = "minbytes", visible_alias = "min-bytes", value_name = "BYTES", value_parser = parse_bytes)]
    pub minimum_bytes: Option<Bytes>,

    /// Largest size [default: 32M, or the smallest where that is larger]
    #[arg(short = 'e', long = "maxbytes", visible_alias = "max-bytes", value_name = "BYTES", value_parser = parse_bytes)]
    pub maximum_bytes: Option<Bytes>,

    /// The next size is so many times as large [default: 2, without -i]
    #[arg(
        short = 'f',
        long = "stepfactor",
        visible_alias = "step-factor",
        value_name = "FACTOR",
        conflicts_with = "step_bytes"
    )]
    pub step_factor: Option<u64>,

    /// Add this much from one size to the next, instead of multiplying
    #[arg(short = 'i', long = "stepbytes", visible_alias = "step-bytes", value_name = "BYTES", value_parser = parse_bytes)]
    pub step_bytes: Option<Bytes>,

    /// Type of the elements, a list with commas, or `all`: int8, uint8, int32, uint32, int64, uint64, float16 (half),
    /// bfloat16, float32 (float), float64 (double), fp8_e4m3, fp8_e5m2 (reduced by NCCL alone)
    #[arg(
        short = 'd',
        long = "datatype",
        visible_alias = "element-type",
        value_name = "TYPE",
        default_value = "float",
        value_delimiter = ','
    )]
    pub element_types: Vec<String>,

    /// How elements are combined, a list with commas, or `all`: sum, prod, min, max, avg; by name with
    /// --backend nccl also mulsum, where every rank multiplies first
    #[arg(
        short = 'o',
        long = "op",
        visible_alias = "reduce-op",
        value_name = "OP",
        default_value = "sum",
        value_delimiter = ','
    )]
    pub reduce_ops: Vec<String>,

    /// Root of broadcast, reduce, gather and scatter, a list with commas, or `all`
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", value_delimiter = ',')]
    pub roots: Vec<String>,

    /// Whether the result replaces the input: in, out or both, where a collective offers it; or one: out, else in
    #[arg(long, value_name = "WHERE", default_value = "both", value_parser = ["in", "out", "both", "one"])]
    pub placement: String,

    /// What is timed: calls back to back (streaming), each from a common start (isolated), or both
    #[arg(long, value_name = "HOW", default_value = "both", value_parser = ["streaming", "isolated", "both"])]
    pub cadence: String,

    /// How the vector forms divide their elements: equal, skewed:EXPONENT (rank 0 is the hot one), given:3,1,1; or, of
    /// all_to_all_v, routed:ROUTING,experts=COUNT,k=COUNT[,hidden=COUNT][,capacity=FACTOR][,seed=NUMBER][,back] as a router
    /// of experts divides tokens, with ROUTING uniform, random, zipf:EXPONENT or hot:SHARE
    #[arg(long, value_name = "SPLITS", default_value = "equal", value_parser = commgauge_model::config::parse_splits)]
    pub splits: Splits,

    /// Measure as another tool does by default
    ///
    /// Sets --cadence, --placement, --warm-buffers, --start, --timing, -n, -w, -c, --replicates and --format, each of which wins where it is given.
    ///
    /// nccl-tests: streaming, cold buffers, 20 calls after 1, in its columns. osu, imb: isolated, warm buffers, not checked; 1000 calls
    /// after 100 up to 8 KiB and 100 after 10 above (osu), or up to 1000 calls of 40 MiB together after a tenth as many (imb).
    /// --precision or --budget stops by these instead of after a number of calls.
    #[arg(long, value_enum, value_name = "TOOL", help_heading = "Sampling")]
    pub like: Option<Peer>,

    /// Time for all cases together, such as 60s [default: 2 s and 40 ms for each]
    ///
    /// A short round goes over all cases, then a further one in which those with the widest intervals get the most of the time. There is
    /// no default where -n, --replicates or --budget says how long.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, help_heading = "Sampling")]
    pub within: Option<Seconds>,

    /// Repeat all calls for this time, such as 2h, with rolling checks and changing data
    ///
    /// Ends at the first wrong byte and says which call it was.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, help_heading = "Sampling", conflicts_with_all = ["within", "replicates", "budget"])]
    pub soak: Option<Seconds>,

    /// How samples are taken.
    #[command(flatten)]
    pub sampling: SamplingArguments,

    /// Other options of nccl-tests.
    #[command(flatten)]
    pub nccl_tests: NcclTestsFlags,
}

/// One value, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<T> {
    /// All values.
    All,
    /// This value.
    One(T),
}

impl SweepArguments {
    /// The placements requested.
    pub(super) fn placements(&self) -> Vec<Placement> {
        match self.placement.as_str() {
            "in" => vec![Placement::InPlace],
            "out" | "one" => vec![Placement::OutOfPlace],
            _ => vec![Placement::OutOfPlace, Placement::InPlace],
        }
    }

    /// The cadences requested.
    pub(super) fn cadences(&self) -> Vec<Cadence> {
        match self.cadence.as_str() {
            "streaming" => vec![Cadence::Streaming],
            "isolated" => vec![Cadence::Isolated],
            _ => commgauge_model::config::BOTH_CADENCES.to_vec(),
        }
    }
}

/// Parses one name, or `all`.
pub(super) fn parse_all_or<T: std::str::FromStr<Err = String>>(text: &str) -> Result<Chosen<T>, String> {
    if text == "all" { Ok(Chosen::All) } else { text.parse().map(Chosen::One) }
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    match Bytes::parse(text)? {
        Bytes(0) => Err("found a size of 0; accepted: 1 B and more".to_owned()),
        bytes => Ok(bytes),
    }
}
