//! The flags of `commgauge-sweep`: those of nccl-tests by their letters, long names of our own beside them.
//!
//! What they mean together is checked in `sweep_plan`.

use crate::collective::{Collective, Placement};
use crate::geometry::Splits;
use crate::sample::Cadence;
use crate::units::{BareSuffix, Bytes, Seconds, parse_seconds};
use clap::Args;

/// One or more collectives over sizes, on all ranks of the launch.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct SweepArguments {
    /// What to measure: one or more collectives, or `all`
    ///
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all, all_gather_v,
    /// reduce_scatter_v, all_to_all_v, send_recv (a ring), send_recv_chain, ping_pong, bidirectional, barrier.
    #[arg(value_name = "COLLECTIVE", value_parser = parse_all_or::<Collective>, required_unless_present = "collective")]
    pub collectives: Vec<Chosen<Collective>>,

    /// The same as a flag: a list with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_all_or::<Collective>)]
    pub collective: Vec<Chosen<Collective>>,

    /// Smallest size, in bytes or with a unit: 8, 64K (binary), 1MiB, 1MB (decimal)
    ///
    /// Sizes are those of nccl-tests: the full buffer for all_gather, reduce_scatter, gather and scatter. [default: 32M,
    /// or the largest where that is smaller]
    #[arg(short = 'b', long = "minbytes", visible_alias = "min-bytes", value_name = "BYTES", value_parser = parse_bytes)]
    pub minimum_bytes: Option<Bytes>,

    /// Largest size [default: 32M, or the smallest where that is larger]
    #[arg(short = 'e', long = "maxbytes", visible_alias = "max-bytes", value_name = "BYTES", value_parser = parse_bytes)]
    pub maximum_bytes: Option<Bytes>,

    /// Multiply the size by this from one to the next [default: 2, unless -i is given]
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

    /// Take exactly this many calls for each case [default: stop when the asked precision or the budget is reached]
    #[arg(short = 'n', long = "iters", visible_alias = "iterations", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,

    /// Run exactly this many calls before timing [default: until the first calls stop trending]
    #[arg(short = 'w', long = "warmup_iters", visible_alias = "warm-up", value_name = "COUNT")]
    pub warm_up_iterations: Option<u32>,

    /// Type of the elements, a list with commas, or `all`: int8, uint8, int32, uint32, int64, uint64, float16 (half),
    /// bfloat16, float32 (float), float64 (double), fp8_e4m3, fp8_e5m2 (only moved, never reduced)
    #[arg(
        short = 'd',
        long = "datatype",
        visible_alias = "element-type",
        value_name = "TYPE",
        default_value = "float",
        value_delimiter = ','
    )]
    pub element_types: Vec<String>,

    /// How elements are combined, a list with commas, or `all`: sum, prod, min, max, avg
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

    /// Check the data before and after timing: 1 yes, 0 no
    #[arg(short = 'c', long = "check", value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub check: u8,

    /// Whether the result replaces the input: in, out or both, where a collective offers it
    #[arg(long, value_name = "WHERE", default_value = "both", value_parser = ["in", "out", "both"])]
    pub placement: String,

    /// What is timed: calls back to back (streaming), each from a common start (isolated), or both
    #[arg(long, value_name = "HOW", default_value = "both", value_parser = ["streaming", "isolated", "both"])]
    pub cadence: String,

    /// How the vector forms divide their elements: equal, skewed:EXPONENT (rank 0 is the hot one), given:3,1,1; or, of
    /// all_to_all_v, routed:ROUTING,experts=COUNT,k=COUNT[,hidden=COUNT][,capacity=FACTOR][,seed=NUMBER][,back] as a router
    /// of experts divides tokens, with ROUTING uniform, random, zipf:EXPONENT or hot:SHARE
    #[arg(long, value_name = "SPLITS", default_value = "equal", value_parser = crate::config::parse_splits)]
    pub splits: Splits,

    /// Independent repetitions, each with fresh communicators and a new order of the cases
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=crate::config::MOST_REPLICATES as i64))]
    pub replicates: u32,

    /// Half width of the median's 95 % interval at which sampling stops: 2% or 0.02 [default: 2%]
    #[arg(long, value_name = "SHARE", value_parser = parse_precision)]
    pub precision: Option<f64>,

    /// Longest sampling of a case in each replicate, such as 500ms or 2s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    pub budget: Option<Seconds>,

    /// Use one buffer again and again, so that it may stay in the cache
    #[arg(long)]
    pub warm_buffers: bool,

    /// Seed of the data and of the order of the cases
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

/// One of many, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<T> {
    /// Every one.
    All,
    /// This one.
    One(T),
}

impl SweepArguments {
    /// The placements asked for.
    pub(super) fn placements(&self) -> Vec<Placement> {
        match self.placement.as_str() {
            "in" => vec![Placement::InPlace],
            "out" => vec![Placement::OutOfPlace],
            _ => vec![Placement::OutOfPlace, Placement::InPlace],
        }
    }

    /// The cadences asked for.
    pub(super) fn cadences(&self) -> Vec<Cadence> {
        match self.cadence.as_str() {
            "streaming" => vec![Cadence::Streaming],
            "isolated" => vec![Cadence::Isolated],
            _ => crate::config::BOTH_CADENCES.to_vec(),
        }
    }
}

/// Reads one name, or `all`.
pub(super) fn parse_all_or<T: std::str::FromStr<Err = String>>(text: &str) -> Result<Chosen<T>, String> {
    if text == "all" { Ok(Chosen::All) } else { text.parse().map(Chosen::One) }
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    match Bytes::parse(text, BareSuffix::Binary)? {
        Bytes(0) => Err("found a size of 0; accepted: 1 B and more".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.trim().parse::<f64>().map(|number| number * scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("found `{text}`; accepted: a share above 0 and up to 1, such as 0.02 or 2%")),
    }
}

fn parse_budget(text: &str) -> Result<Seconds, String> {
    match parse_seconds(text)? {
        time if time.0 > 0.0 && time.0 <= 86_400.0 => Ok(time),
        time => Err(format!("found {time}; accepted: more than 0 s, up to a day")),
    }
}
