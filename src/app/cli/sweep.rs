//! The flags of `commgauge-sweep`: those of nccl-tests by their letters, each with our long name.
//!
//! `sweep_plan` checks their combination.

use super::launched_arguments::{Backend, parse_time_limit};
use super::like::nccl_tests_options;
use super::suite::SuiteWork;
use clap::Args;
use commgauge_base::collective::{Collective, Collectives, Placement, ReduceOp};
use commgauge_base::digest;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::sample::{Cadence, ClockMethod, Timing};
use commgauge_base::units::{Bytes, Seconds, parse_seconds};
use commgauge_base::variant::Variants;
use commgauge_base::writing::distinct;
use commgauge_model::config::{Growth, Peer, Place, ROUNDS_WITHIN, Roots, RunSettings, Sweep, growing_sizes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::{PairsRequest, WorkPlan};

/// One or more collectives over sizes, on all ranks of the launch.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(args(nccl_tests_options()))]
pub struct SweepArguments {
    /// Collectives, with commas or blanks between them, or `all`
    ///
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all, all_gather_v,
    /// reduce_scatter_v, all_to_all_v, send_recv (a ring), send_recv_chain, ping_pong, bidirectional, barrier; also by the names of
    /// nccl-tests, OSU and IMB, such as allreduce, alltoall_perf, osu_bcast, Sendrecv.
    #[arg(value_name = "COLLECTIVE", required_unless_present = "collective")]
    pub collectives: Vec<Collectives>,

    /// The same as a flag
    #[arg(long, value_name = "LIST", hide_short_help = true)]
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

    /// Factor from one size to the next [default: 2, without -i]
    #[arg(
        short = 'f',
        long = "stepfactor",
        visible_alias = "step-factor",
        value_name = "FACTOR",
        conflicts_with = "step_bytes",
        hide_short_help = true
    )]
    pub step_factor: Option<u64>,

    /// Add this much from one size to the next, instead of multiplying
    #[arg(short = 'i', long = "stepbytes", visible_alias = "step-bytes", value_name = "BYTES", value_parser = Bytes::parse, hide_short_help = true)]
    pub step_bytes: Option<Bytes>,

    /// Element types: a list with commas, or `all`, of int8, uint8, int32, uint32, int64, uint64, float16 (half),
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

    /// Reductions: a list with commas, or `all`, of sum, prod, min, max, avg; by name with
    /// --backend nccl also mulsum, where every rank multiplies first
    #[arg(
        short = 'o',
        long = "op",
        visible_alias = "reduce-op",
        value_name = "OP",
        default_value = "sum",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub reduce_ops: Vec<String>,

    /// Root of broadcast, reduce, gather and scatter, a list with commas, or `all`
    #[arg(
        short = 'r',
        long = "root",
        value_name = "RANK",
        default_value = "0",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub roots: Vec<String>,

    /// Whether the result replaces the input: in, out or both, where a collective offers it; or one: out, else in
    #[arg(long, value_name = "WHERE", default_value = "both", value_parser = ["in", "out", "both", "one"], hide_short_help = true)]
    pub placement: String,

    /// What is timed: calls back to back (streaming), each from a common start (isolated), or both
    #[arg(long, value_name = "HOW", default_value = "streaming", value_parser = ["streaming", "isolated", "both"], hide_short_help = true)]
    pub cadence: String,

    /// How the vector forms divide their elements: equal, skewed:EXPONENT (rank 0 is the hot one), given:3,1,1; or, of
    /// all_to_all_v, routed:ROUTING,experts=COUNT,k=COUNT[,hidden=COUNT][,capacity=FACTOR][,seed=NUMBER][,back] as a router
    /// of experts divides tokens, with ROUTING uniform, random, zipf:EXPONENT or hot:SHARE
    #[arg(long, value_name = "SPLITS", default_value = "equal", value_parser = commgauge_model::config::parse_splits, hide_short_help = true)]
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
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, help_heading = "Sampling", hide_short_help = true)]
    pub within: Option<Seconds>,

    /// Repeat all calls for this time, such as 2h, with rolling checks and changing data
    ///
    /// Ends at the first wrong byte and says which call it was.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, help_heading = "Sampling", conflicts_with_all = ["within", "replicates", "budget"], hide_short_help = true)]
    pub soak: Option<Seconds>,

    /// How samples are taken.
    #[command(flatten)]
    pub sampling: SamplingArguments,
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

fn parse_bytes(text: &str) -> std::result::Result<Bytes, String> {
    match Bytes::parse(text)? {
        Bytes(0) => Err("found a size of 0; accepted: 1 B and more".to_owned()),
        bytes => Ok(bytes),
    }
}

// Combines the flags of `commgauge-sweep` into a sweep, its plan and sampling settings.

/// Default duration of a sweep: a constant, plus a time for each case. Four collectives of 24 sizes, in and out of place (192 cases) take
/// 10 s.
const BASE_SECONDS: f64 = 2.0;

const SECONDS_PER_CASE: f64 = 0.04;

/// Default smallest and largest size, as in nccl-tests.
const DEFAULT_BYTES: Bytes = Bytes(32 << 20);

impl SweepArguments {
    /// The plan on `world_size` ranks, the sampling settings, and the request as stored in the record. The hash is over
    /// the sweep and the settings, so equal requests have equal hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        let sweep = self.sweep()?;
        let plan = WorkPlan::from_sweep(&sweep, world_size)?;
        let settings = self.settings(plan.cases.len())?;
        let names: Vec<_> = sweep.collectives.iter().map(|collective| collective.name()).collect();
        let name = if names.len() == Collective::ALL.len() { "all".to_owned() } else { names.join(",") };
        let sha256 = digest::sha256(format!("{sweep:?} {settings:?}"));
        let facts = SuiteFacts { name: format!("sweep {name}"), path: None, sha256, model: None, layout: None };
        Ok(SuiteWork { plan, settings, facts })
    }

    /// Sampling settings for this many cases.
    fn settings(&self, cases: usize) -> Result<RunSettings> {
        let sampling = &self.sampling;
        // The number of calls of another tool is ignored if there is a precision or a budget.
        let stops_itself = sampling.precision.is_some() || sampling.budget.is_some();
        let calls_like = self.like.filter(|_| !stops_itself);
        let settings = RunSettings { calls_like, last_in_order: true, ..sampling.settings() };
        let has_duration = sampling.iterations.is_some() || sampling.replicates.is_some() || sampling.budget.is_some();
        let has_duration = has_duration || calls_like.is_some();
        if let Some(time) = self.soak {
            return settings.soaked(time);
        }
        let within = match self.within {
            None if has_duration => return Ok(settings),
            None => Seconds(BASE_SECONDS + SECONDS_PER_CASE * cases as f64),
            Some(within) => within,
        };
        if let Some(replicates) = sampling.replicates.filter(|replicates| *replicates < ROUNDS_WITHIN) {
            return Err(Error::usage(format!(
                "--replicates {replicates} with --within {within}: the time is divided by what a first replicate shows; accepted: \
                 {ROUNDS_WITHIN} and more, or leave one of them out"
            )));
        }
        let replicates = sampling.replicates.unwrap_or(ROUNDS_WITHIN);
        RunSettings { replicates, case_budget: sampling.budget.unwrap_or(within), ..settings }.divided(within)
    }

    fn sweep(&self) -> Result<Sweep> {
        let types_place = Place::flag("-d/--datatype");
        let element_types = listed(&self.element_types, &ElementType::ALL, &types_place)?;
        let reduce_ops = listed(&self.reduce_ops, &ReduceOp::ALL, &Place::flag("-o/--op"))?;
        let named = self.collectives.iter().chain(&self.collective).flat_map(|list| list.0.iter().copied());
        let collectives = distinct(named);
        let sweep = Sweep {
            place: Place::flag("the sweep"),
            roots_place: Place::flag("-r/--root"),
            axis: commgauge_model::config::AXES[0],
            solo: false,
            collectives,
            element_types,
            reduce_ops,
            roots: self.roots()?,
            bytes: self.sizes()?,
            placements: self.placements(),
            splits: vec![self.splits.clone()],
            cadences: self.cadences(),
            variants: Variants::default(),
        };
        if self.splits != Splits::Equal && !sweep.collectives.iter().any(|collective| collective.has_splits()) {
            return Err(Place::flag("--splits").wrong("none of the collectives has splits; leave this out"));
        }
        if self.placement != "one" {
            sweep.refuse_missing_placements(&Place::flag("--placement"))?;
        }
        Ok(sweep)
    }

    fn sizes(&self) -> Result<Vec<Bytes>> {
        let (from, to) = match (self.minimum_bytes, self.maximum_bytes) {
            (Some(from), Some(to)) => (from, to),
            (Some(from), None) => (from, from.max(DEFAULT_BYTES)),
            (None, Some(to)) => (to.min(DEFAULT_BYTES), to),
            (None, None) => (DEFAULT_BYTES, DEFAULT_BYTES),
        };
        let (growth, flag) = match (self.step_factor, self.step_bytes) {
            (Some(factor), _) => (Growth::Factor(factor), "-b/-e/-f"),
            (None, Some(step)) => (Growth::Step(step), "-b/-e/-i"),
            (None, None) => (Growth::Factor(2), "-b/-e"),
        };
        growing_sizes(from, to, growth).map_err(|problem| Place::flag(flag).wrong(problem))
    }

    fn roots(&self) -> Result<Roots> {
        if self.roots.iter().any(|root| root == "all") {
            return Ok(Roots::All);
        }
        let place = Place::flag("-r/--root");
        let read = |text: &String| {
            text.parse().map_err(|_| place.wrong(format!("found `{text}`; accepted: a rank from 0, a list, or all")))
        };
        Ok(Roots::These(self.roots.iter().map(read).collect::<Result<_>>()?))
    }
}

/// The named values without duplicates; `all` names every one.
fn listed<T>(texts: &[String], all: &[T], place: &Place) -> Result<Vec<T>>
where
    T: Copy + PartialEq + std::str::FromStr<Err = String>,
{
    let (every, names): (Vec<&String>, Vec<&String>) = texts.iter().partition(|text| *text == "all");
    let read = |text: &String| text.parse().map_err(|problem: String| place.wrong(problem));
    let ones = names.into_iter().map(read).collect::<Result<Vec<T>>>()?;
    Ok(if every.is_empty() { distinct(ones) } else { all.to_vec() })
}

// The sampling flags that the launched programs share if no suite file defines the sampling.

/// How samples are taken.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct SamplingArguments {
    /// Calls of each case [default: stop when the requested precision or the budget is reached]
    #[arg(short = 'n', long = "iters", visible_alias = "iterations", value_name = "COUNT", help_heading = "Sampling", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,

    /// Run exactly this many calls before timing [default: until the first calls stop trending]
    #[arg(
        short = 'w',
        long = "warmup_iters",
        visible_alias = "warm-up",
        value_name = "COUNT",
        help_heading = "Sampling",
        hide_short_help = true
    )]
    pub warm_up_iterations: Option<u32>,

    /// Check the data before and after timing: 1 yes, 0 no
    #[arg(short = 'c', long = "check", value_name = "0|1", default_value_t = 1, help_heading = "Sampling", value_parser = clap::value_parser!(u8).range(0..=1), hide_short_help = true)]
    pub check: u8,

    /// Independent repetitions, each with fresh communicators and a new order of the cases [default: 3; with --within 2]
    #[arg(long, value_name = "COUNT", help_heading = "Sampling", value_parser = clap::value_parser!(u32).range(1..=commgauge_model::config::MOST_REPLICATES as i64), hide_short_help = true)]
    pub replicates: Option<u32>,

    /// Half width of the median's 95 % interval at which sampling stops: 2% or 0.02 [default: 2%]
    #[arg(long, value_name = "SHARE", help_heading = "Sampling", value_parser = parse_precision, hide_short_help = true)]
    pub precision: Option<f64>,

    /// Longest sampling of a case in each replicate, such as 500ms or 2s [default: 1s; of commgauge-pairs 100ms;
    /// with --within none]
    #[arg(long, value_name = "TIME", help_heading = "Sampling", value_parser = parse_budget, hide_short_help = true)]
    pub budget: Option<Seconds>,

    /// Use one buffer again and again, so that it may stay in the cache
    #[arg(long, help_heading = "Sampling", hide_short_help = true)]
    pub warm_buffers: bool,

    /// How the ranks start an isolated call together: `synchronised`, at an agreed time, or `barrier`, each as it leaves one
    #[arg(long, value_name = "HOW", default_value_t, help_heading = "Sampling", hide_short_help = true)]
    pub start: ClockMethod,

    /// Between which readings back-to-back calls are timed: `marks`, a few calls each, or `whole`, all of them between two readings of the
    /// host's clock, on buffers within those of the largest size, as in nccl-tests
    #[arg(long, value_name = "HOW", default_value_t, help_heading = "Sampling", hide_short_help = true)]
    pub timing: Timing,

    /// Seed of the data and of the order of the cases
    #[arg(long, value_name = "NUMBER", help_heading = "Sampling", hide_short_help = true)]
    pub seed: Option<u64>,
}

impl SamplingArguments {
    /// The settings that result from the flags.
    pub fn settings(&self) -> RunSettings {
        let default = RunSettings::default();
        RunSettings {
            precision: self.precision.unwrap_or(default.precision),
            iterations: self.iterations,
            warm_up_iterations: self.warm_up_iterations,
            case_budget: self.budget.unwrap_or(default.case_budget),
            replicates: self.replicates.unwrap_or(default.replicates),
            warm_buffers: self.warm_buffers,
            start: self.start,
            timing: self.timing,
            verify: self.check == 1,
            seed: self.seed.unwrap_or(default.seed),
            ..default
        }
    }
}

fn parse_precision(text: &str) -> std::result::Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.trim().parse::<f64>().map(|number| number * scale) {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("found `{text}`; accepted: a share above 0 and up to 1, such as 0.02 or 2%")),
    }
}

fn parse_budget(text: &str) -> std::result::Result<Seconds, String> {
    match parse_seconds(text)? {
        time if time.0 > 0.0 && time.0 <= 86_400.0 => Ok(time),
        time => Err(format!("found {time}; accepted: more than 0 s, up to a day")),
    }
}

// The flags of `commgauge-pairs`, and the resulting plan.

/// There are many rounds, so each is short: with three replicates 16 ranks take half a minute.
const DEFAULT_BUDGET: Seconds = Seconds(0.1);

/// Latency and bandwidth between every two ranks.
#[derive(Args, Clone, Debug)]
pub struct PairsArguments {
    /// Message of the latency: its one-way time
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = Bytes::parse, help_heading = "Measurement", hide_short_help = true)]
    latency_bytes: Bytes,

    /// Message of the bandwidth: 4M and 4MiB are binary, 4MB is decimal [default: 4M, over NCCL 64M]
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse, help_heading = "Measurement", hide_short_help = true)]
    bandwidth_bytes: Option<Bytes>,

    /// Measure each pair alone: not all pairs of a round at once; slower, and blind to links
    /// that pairs share
    #[arg(long, help_heading = "Measurement")]
    one_at_a_time: bool,

    /// Only every N-th rank: the ranks of a host, filled one host after the other, leave one on each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Measurement")]
    rank_stride: u32,

    #[command(flatten)]
    sampling: SamplingArguments,
}

impl PairsArguments {
    /// The requested work on that many ranks. The hash is over the measured cases and the settings, so equal requests
    /// have equal hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn work(&self, world_size: u32, backend: Backend) -> Result<SuiteWork> {
        // So that the latency is about a hundredth of the time.
        let large = if backend == Backend::Nccl { Bytes(64 << 20) } else { Bytes(4 << 20) };
        let request = PairsRequest {
            latency_bytes: self.latency_bytes,
            bandwidth_bytes: self.bandwidth_bytes.unwrap_or(large),
            one_at_a_time: self.one_at_a_time,
            rank_stride: self.rank_stride,
        };
        let plan = WorkPlan::of_pairs(&request, world_size)?;
        let settings = self.settings();
        let facts = SuiteFacts {
            name: "pairs".to_owned(),
            path: None,
            sha256: digest::sha256(format!("{request:?} {settings:?}")),
            model: None,
            layout: None,
        };
        Ok(SuiteWork { plan, settings, facts })
    }

    fn settings(&self) -> RunSettings {
        let settings = self.sampling.settings();
        RunSettings { case_budget: self.sampling.budget.unwrap_or(DEFAULT_BUDGET), ..settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use commgauge_base::collective::Placement;

    #[derive(Parser)]
    #[command(name = "commgauge")]
    struct Program {
        #[command(flatten)]
        sweep: SweepArguments,
    }

    fn parse(line: &str) -> std::result::Result<SweepArguments, clap::Error> {
        Program::try_parse_from(std::iter::once("commgauge-sweep").chain(line.split(' '))).map(|program| program.sweep)
    }

    fn plan(line: &str) -> Result<SuiteWork> {
        parse(line).unwrap().plan(4)
    }

    #[test]
    fn unreadable_values_are_usage_errors() {
        for line in [
            "-b 8",
            "all_reduse -b 8",
            "all_reduce -b 0",
            "all_reduce -b -8",
            "all_reduce -n 0",
            "all_reduce -c 2",
            "all_reduce -f 2 -i 8",
            "all_reduce --splits uneven",
            "all_reduce --placement inside",
            "all_reduce --precision 0",
            "all_reduce --budget 5",
            "all_reduce --soak 0",
            "all_reduce --soak 0s",
            "all_reduce --soak 2h --within 60s",
            "all_reduce --soak 2h --replicates 3",
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
    }

    #[test]
    fn impossible_requests_are_refused_with_the_flag() {
        for (line, expected) in [
            ("all_reduce -b 64M -e 8", "-b/-e: the smallest size, 64 MiB, is above the largest, 8 B"),
            ("all_reduce -b 8 -e 64M -f 1", "-b/-e/-f: found a factor of 1; accepted: 2 and more"),
            ("all_reduce -b 8 -e 64M -i 8", "-b/-e/-i: gives more than 1000 sizes"),
            ("all_reduce -d float17", "-d/--datatype: found element type `float17`; accepted: int8"),
            ("all_reduce -o mulsumm", "-o/--op: found reduce operation `mulsumm`; accepted: sum"),
            ("broadcast -r 4", "-r/--root: found root 4; on axis world a group has 4 ranks, accepted: 0 to 3, or all"),
            ("broadcast -r first", "-r/--root: found `first`; accepted: a rank from 0"),
            ("ping_pong --placement in", "--placement: ping_pong exists out-of-place only"),
            ("all_reduce --splits skewed:1", "--splits: none of the collectives has splits; leave this out"),
            ("all_to_all_v --splits given:1,2", "the splits name 2 ranks; on axis world a group has 4"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_sweep_ends_in_a_time_that_follows_from_its_cases_unless_flags_say_how_long() {
        for (line, within, replicates) in [
            ("all_reduce -b 8 -e 8", Some(2.0 + 2.0 * 0.04), 2),
            ("all_reduce all_gather reduce_scatter all_to_all -b 8 -e 64M", Some(9.68), 2),
            ("all_reduce -b 8 -e 64M --within 60s", Some(60.0), 2),
            ("all_reduce --within 60s --replicates 5 --budget 1s", Some(60.0), 5),
            ("all_reduce -b 8 -e 64M --precision 1%", Some(2.0 + 48.0 * 0.04), 2),
            ("all_reduce -n 20", None, 3),
            ("all_reduce --replicates 6", None, 6),
            ("all_reduce --budget 100ms", None, 3),
            ("all_reduce --soak 2h", Some(7200.0), 120),
            ("all_reduce --soak 3m", Some(180.0), 18),
            ("all_reduce --soak 5s", Some(5.0), 3),
        ] {
            let SuiteWork { plan, settings, .. } = plan(line).unwrap();
            let found = settings.within.map(|within| within.0);
            assert!(found.zip(within).map_or(found == within, |(a, b)| (a - b).abs() < 1e-9), "{line}: {found:?}");
            assert_eq!(settings.replicates, replicates, "{line}: {} cases", plan.cases.len());
        }
        for (line, expected) in [
            ("all_reduce -n 20 --within 60s", "--within 60.0 s: -n/--iters takes a fixed number of calls"),
            ("all_reduce --replicates 1 --within 60s", "accepted: 2 and more"),
            ("all_reduce -n 20 --soak 60s", "--soak 60.0 s: a fixed number of calls"),
            ("all_reduce --like osu --soak 60s", "--soak 60.0 s: a fixed number of calls"),
            ("all_reduce -c 0 --soak 60s", "checking is switched off"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_flags_of_nccl_tests_mean_what_they_mean_there() {
        let SuiteWork { plan, settings, facts } =
            plan("all_reduce -b 8 -e 64M -f 2 -n 20 -w 5 -d half -o max -c 0 --cadence streaming --placement in")
                .unwrap();
        assert_eq!(plan.cases.len(), 24);
        let first = &plan.cases[0];
        assert_eq!(first.name(), "world/all_reduce/max/float16/8/in-place/streaming");
        assert_eq!(plan.cases.last().unwrap().op.bytes_total, Bytes(64 << 20));
        assert_eq!((settings.iterations, settings.warm_up_iterations, settings.verify), (Some(20), Some(5), false));
        assert_eq!((facts.name.as_str(), facts.path), ("sweep all_reduce", None));
    }

    #[test]
    fn long_and_short_flags_are_equivalent() {
        let letters = plan("all_reduce -b 8 -e 1M -f 4 -n 20 -w 5 -d float -o sum -r 0").unwrap();
        let long = "--collective all_reduce --min-bytes 8 --max-bytes 1M --step-factor 4 --iterations 20 --warm-up 5 \
                    --element-type float32 --reduce-op sum --root 0";
        let words: Vec<_> = long.split_whitespace().collect();
        let long = plan(&words.join(" ")).unwrap();
        assert_eq!(letters, long);
        assert_eq!(letters.facts.sha256.len(), 64);
        assert_ne!(letters.facts.sha256, plan("all_reduce -b 8 -e 1M -f 4").unwrap().facts.sha256);
    }

    #[test]
    fn all_means_every_type_and_operation_and_root() {
        let SuiteWork { plan: everything, .. } =
            plan("all_reduce -b 1K -e 1K -d all -o all --placement out --cadence streaming").unwrap();
        assert_eq!(everything.cases.len(), ElementType::ALL.len() * ReduceOp::ALL.len());
        let SuiteWork { plan: rooted, .. } = plan("broadcast -b 1K -e 1K -r all --cadence streaming").unwrap();
        assert_eq!(rooted.cases.len(), 4);
        assert!(rooted.cases.iter().all(|case| case.placement == Placement::InPlace));
    }

    #[test]
    fn sizes_left_out_are_those_of_nccl_tests() {
        for (line, first, last) in [
            ("all_reduce", 32 << 20, 32 << 20),
            ("all_reduce -b 8M", 8 << 20, 32 << 20),
            ("all_reduce -e 8", 8, 8),
            ("all_reduce -b 1G", 1 << 30, 1 << 30),
        ] {
            let sizes = parse(line).unwrap().sizes().unwrap();
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (Bytes(first), Bytes(last)), "{line}");
        }
    }

    #[test]
    fn the_help_answers_what_each_flag_means() {
        use clap::CommandFactory;
        let help = Program::command().term_width(100).render_long_help().to_string();
        insta::assert_snapshot!(help);
    }

    #[derive(Debug, Parser)]
    #[command(name = "commgauge-pairs", disable_version_flag = true)]
    struct PairsProgram {
        #[command(flatten)]
        pairs: PairsArguments,
    }

    fn work(line: &str, ranks: u32) -> Result<SuiteWork> {
        let words = std::iter::once("commgauge-pairs").chain(line.split_whitespace());
        PairsProgram::try_parse_from(words)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .pairs
            .work(ranks, Backend::Mpi)
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for (line, expected) in [
            ("--latency-bytes none", "found `none`"),
            ("--rank-stride 0", "0 is not in 1.."),
            ("--budget 0s", "more than 0 s"),
            ("--cadence isolated", "unexpected argument '--cadence'"),
        ] {
            let words = std::iter::once("commgauge-pairs").chain(line.split_whitespace());
            let error = PairsProgram::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        for (line, ranks, expected) in [
            ("", 1, "needs two ranks"),
            ("--latency-bytes 0", 4, "--latency-bytes: found 0 B"),
            ("--bandwidth-bytes 4G", 4, "--bandwidth-bytes: found 4 GiB"),
            ("--rank-stride 8", 8, "--rank-stride 8 leaves one of 8"),
        ] {
            let error = work(line, ranks).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn sixteen_ranks_are_done_in_less_than_a_minute() {
        let SuiteWork { plan, settings, facts } = work("", 16).unwrap();
        assert_eq!((plan.cases.len(), settings.replicates, settings.case_budget), (45, 3, DEFAULT_BUDGET));
        assert!(plan.estimated_seconds(&settings).0 < 30.0, "{}", plan.estimated_seconds(&settings));
        assert_eq!(facts.name, "pairs");
    }

    #[test]
    fn equal_requests_have_equal_hashes_and_others_do_not() {
        let hash = |line: &str| work(line, 4).unwrap().facts.sha256;
        assert_eq!(hash(""), hash("--bandwidth-bytes 4MiB --latency-bytes 8B --budget 100ms"));
        for other in ["--one-at-a-time", "--bandwidth-bytes 1M", "--seed 1", "--rank-stride 2"] {
            assert_ne!(hash(""), hash(other), "{other}");
        }
    }

    #[test]
    fn the_help_of_pairs_answers_what_each_flag_means() {
        insta::assert_snapshot!(PairsProgram::command().term_width(100).render_long_help().to_string());
    }
}
