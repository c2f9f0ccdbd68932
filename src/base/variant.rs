//! The ways to submit the same call to a library: which buffers, from a stream or a graph, how many at once, on how many thread blocks.
//! Backends implement them elsewhere.

use crate::sample::Cadence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Default number of calls in a graph: as many as nccl-tests captures by default.
pub const CALLS_IN_A_GRAPH: u32 = 20;

pub const MOST_CALLS_IN_A_GRAPH: u32 = 1024;

/// Maximum number of calls in one group.
pub const MOST_AGGREGATED: u32 = 64;

/// Maximum number of thread blocks of NCCL's kernels.
pub const MOST_CTAS: u32 = 64;

/// The labels that distinguish variants in records, in the order of table columns.
pub const LABELS: [&str; 10] = [
    "algorithm",
    "protocol",
    "cta_policy",
    "nvls",
    "gpudirect",
    "buffers",
    "submit",
    "aggregate",
    "min_ctas",
    "max_ctas",
];

/// The allocator of buffers, and their registration with the library before use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Buffers {
    /// Memory of the driver, not registered.
    #[default]
    Plain,
    /// Memory of `ncclMemAlloc`, not registered by commgauge; NCCL itself registers it for calls in graphs.
    Allocated,
    /// Memory of `ncclMemAlloc`, registered with `ncclCommRegister`.
    Registered,
    /// Registered as symmetric on all ranks: memory of `ncclMemAlloc`, `ncclCommWindowRegister`.
    Symmetric,
}

/// How calls are submitted to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Submit {
    /// Each is enqueued on the stream separately.
    #[default]
    Stream,
    /// This many calls are captured in a CUDA graph once, and the graph is launched. Without a number:
    /// [`CALLS_IN_A_GRAPH`] when streaming, one when isolated.
    Graph(Option<u32>),
}

/// One way to submit a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    pub buffers: Buffers,
    /// From a stream or a graph.
    pub submit: Submit,
    /// Calls in one group (`ncclGroupStart`, `ncclGroupEnd`), each on separate buffers.
    pub aggregate: u32,
    /// Maximum number of thread blocks of its kernels; by default the library's choice.
    pub max_ctas: Option<u32>,
}

/// Lists, every combination of which is a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variants {
    pub buffers: Vec<Buffers>,
    /// From streams, graphs or both.
    pub submit: Vec<Submit>,
    /// Calls in a group.
    pub aggregate: Vec<u32>,
    /// Maximum numbers of thread blocks.
    pub max_ctas: Vec<Option<u32>>,
}

impl Default for Variant {
    fn default() -> Variant {
        Variant { buffers: Buffers::Plain, submit: Submit::Stream, aggregate: 1, max_ctas: None }
    }
}

impl Default for Variants {
    fn default() -> Variants {
        let Variant { buffers, submit, aggregate, max_ctas } = Variant::default();
        Variants { buffers: vec![buffers], submit: vec![submit], aggregate: vec![aggregate], max_ctas: vec![max_ctas] }
    }
}

impl Variants {
    /// Every combination, without duplicates.
    pub fn all(&self) -> Vec<Variant> {
        let mut all = Vec::new();
        for &buffers in &self.buffers {
            for &submit in &self.submit {
                for &aggregate in &self.aggregate {
                    for &max_ctas in &self.max_ctas {
                        let variant = Variant { buffers, submit, aggregate, max_ctas };
                        if !all.contains(&variant) {
                            all.push(variant);
                        }
                    }
                }
            }
        }
        all
    }

    /// Number of variants, before they are created.
    pub fn count(&self) -> usize {
        let lengths = [self.buffers.len(), self.submit.len(), self.aggregate.len(), self.max_ctas.len()];
        lengths.into_iter().fold(1, usize::saturating_mul)
    }

    /// Names of the lists that differ from the default.
    pub fn named(&self) -> Vec<&'static str> {
        let usual = Variants::default();
        let lists = [
            ("buffers", self.buffers != usual.buffers),
            ("submit", self.submit != usual.submit),
            ("aggregate", self.aggregate != usual.aggregate),
            ("max_ctas", self.max_ctas != usual.max_ctas),
        ];
        lists.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

impl Variant {
    /// With the number of calls in a graph resolved: if each call has its own start, a graph has one call.
    pub fn resolved(self, cadence: Cadence) -> Variant {
        let usual = match cadence {
            Cadence::Isolated => 1,
            Cadence::Streaming => CALLS_IN_A_GRAPH,
        };
        match self.submit {
            Submit::Graph(calls) => Variant { submit: Submit::Graph(Some(calls.unwrap_or(usual))), ..self },
            Submit::Stream => self,
        }
    }

    /// Calls in a graph; `None` from a stream.
    pub fn calls_in_a_graph(self) -> Option<u32> {
        match self.submit {
            Submit::Graph(calls) => Some(calls.unwrap_or(CALLS_IN_A_GRAPH)),
            Submit::Stream => None,
        }
    }

    /// Calls submitted at once, by which times are divided.
    pub fn calls_at_once(self) -> u32 {
        self.aggregate.max(1) * self.calls_in_a_graph().unwrap_or(1).max(1)
    }

    /// Parts of a case's name; none for the default.
    pub fn name_parts(self) -> Vec<String> {
        let mut parts = Vec::new();
        if self.buffers != Buffers::Plain {
            parts.push(self.buffers.name().to_owned());
        }
        parts.extend(self.calls_in_a_graph().map(|calls| format!("graph-{calls}")));
        if self.aggregate > 1 {
            parts.push(format!("aggregate-{}", self.aggregate));
        }
        parts.extend(self.max_ctas.map(|blocks| format!("max-ctas-{blocks}")));
        parts
    }

    /// Labels that distinguish a case from the same case in the default variant.
    pub fn labels(self) -> BTreeMap<String, String> {
        let set = [
            ("buffers", (self.buffers != Buffers::Plain).then(|| self.buffers.name().to_owned())),
            ("submit", self.calls_in_a_graph().map(|calls| format!("graph:{calls}"))),
            ("aggregate", (self.aggregate > 1).then(|| self.aggregate.to_string())),
            ("max_ctas", self.max_ctas.map(|blocks| blocks.to_string())),
        ];
        set.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// The labels of a case that describe its variant, in short form: `ring ll128 registered graph:20 x8`.
pub fn shown(labels: &BTreeMap<String, String>) -> String {
    let part = |name: &&str| {
        let text = labels.get(*name)?;
        Some(match *name {
            "aggregate" => format!("x{text}"),
            "cta_policy" | "nvls" | "gpudirect" => format!("{}={text}", name.replace('_', "-")),
            "min_ctas" => format!("ctas>={text}"),
            "max_ctas" => format!("ctas<={text}"),
            _ => text.clone(),
        })
    };
    LABELS.iter().filter_map(part).collect::<Vec<_>>().join(" ")
}

impl Buffers {
    /// Every kind.
    pub const ALL: [Buffers; 4] = [Buffers::Plain, Buffers::Allocated, Buffers::Registered, Buffers::Symmetric];
}

crate::error::names!(Buffers);

impl FromStr for Buffers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Buffers::ALL.into_iter().find(|buffers| buffers.name() == text);
        found.ok_or_else(|| format!("found buffers `{text}`; accepted: plain, allocated, registered, symmetric"))
    }
}

impl FromStr for Submit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("found `{text}`; accepted: stream, graph, or graph:CALLS with 1 to {MOST_CALLS_IN_A_GRAPH} calls")
        };
        match text.split_once(':') {
            None if text == "stream" => Ok(Submit::Stream),
            None if text == "graph" => Ok(Submit::Graph(None)),
            Some(("graph", calls)) => match calls.parse() {
                Ok(calls @ 1..=MOST_CALLS_IN_A_GRAPH) => Ok(Submit::Graph(Some(calls))),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

/// Parses the number of calls in a group.
///
/// # Errors
/// The text found, and valid ones.
pub fn parse_aggregate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(calls @ 1..=MOST_AGGREGATED) => Ok(calls),
        _ => Err(format!("found `{text}`; accepted: 1 to {MOST_AGGREGATED} calls in a group")),
    }
}

/// Parses the maximum number of thread blocks; `any` leaves it to the library.
///
/// # Errors
/// The text found, and valid ones.
pub fn parse_max_ctas(text: &str) -> Result<Option<u32>, String> {
    match (text, text.parse()) {
        ("any", _) => Ok(None),
        (_, Ok(blocks @ 1..=MOST_CTAS)) => Ok(Some(blocks)),
        _ => Err(format!("found `{text}`; accepted: 1 to {MOST_CTAS} thread blocks, or any")),
    }
}

// The algorithm, protocol and channels that a library chose for a call when none was forced, and their form in NCCL's
// log.

/// Names of NCCL's algorithms, as in the flags here, by the numbers in its log before 2.25.
const ALGORITHMS: [&str; 7] = ["tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat"];

/// Names of its protocols, likewise.
const PROTOCOLS: [&str; 3] = ["ll", "ll128", "simple"];

/// A library's own choice for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LibraryChoice {
    /// As in `--algorithm`, such as `ring`; or `symmetric`, if a kernel for symmetric buffers executes the call, or `copy-engine`.
    pub algorithm: String,
    /// As in `--protocol`, such as `simple`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The kernel, if it has its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Channels, which are thread blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
}

impl LibraryChoice {
    /// Parses a line of NCCL's log; `None` if it does not describe a choice (`src/enqueue.cc` and `src/scheduler/symmetric_sched.cc` of
    /// NCCL, subsystem TUNING).
    pub fn of_log_line(line: &str) -> Option<LibraryChoice> {
        let (before, chosen) = line.split_once(" Bytes -> ")?;
        let after = |word: &str| {
            let mut words = chosen.split_whitespace().skip_while(|one| *one != word);
            words.nth(1)
        };
        let only = |algorithm: &str| LibraryChoice {
            algorithm: algorithm.to_owned(),
            protocol: None,
            kernel: None,
            channels: None,
        };
        if before.contains("[Symmetric]") {
            let kernel = Some(after("Kernel")?.to_owned());
            let channels = after("nchannels").and_then(|count| count.parse().ok());
            return Some(LibraryChoice { kernel, channels, ..only("symmetric") });
        }
        if before.contains("[Copy Engine]") || before.contains(" CE]") {
            return Some(only("copy-engine"));
        }
        Some(LibraryChoice {
            protocol: Some(named(after("proto")?, &PROTOCOLS)),
            channels: chosen.split_once("channel{Lo..Hi}={").and_then(|(_, ends)| channels(ends)),
            ..only(&named(after("Algo")?, &ALGORITHMS))
        })
    }
}

/// By its number, or by its name in any case; an unknown name is returned in small letters.
fn named(word: &str, names: &[&str]) -> String {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let by_number = word.parse::<usize>().ok().and_then(|number| names.get(number));
    let known = by_number.or_else(|| names.iter().find(|name| plain(name) == plain(word)));
    known.map_or_else(|| word.to_lowercase(), |name| (*name).to_owned())
}

/// `0..15}` is 16 of them.
fn channels(ends: &str) -> Option<u32> {
    let (low, high) = ends.split_once('}')?.0.split_once("..")?;
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    high.checked_sub(low)?.checked_add(1)
}

impl fmt::Display for LibraryChoice {
    /// `ring simple x16`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.algorithm)?;
        for part in self.protocol.iter().chain(&self.kernel) {
            write!(f, " {part}")?;
        }
        self.channels.map_or(Ok(()), |channels| write!(f, " x{channels}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_variants_are_refused_with_the_valid_ones() {
        for (error, words) in [
            ("pinned".parse::<Buffers>().unwrap_err(), "plain, allocated, registered, symmetric"),
            ("graph:0".parse::<Submit>().unwrap_err(), "stream, graph, or graph:CALLS with 1 to 1024"),
            ("graf".parse::<Submit>().unwrap_err(), "found `graf`"),
            (parse_aggregate("65").unwrap_err(), "1 to 64 calls"),
            (parse_max_ctas("0").unwrap_err(), "1 to 64 thread blocks, or any"),
        ] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn names_and_labels_contain_only_what_differs_from_the_default() {
        assert!(Variant::default().name_parts().is_empty() && Variant::default().labels().is_empty());
        let variant =
            Variant { buffers: Buffers::Symmetric, submit: Submit::Graph(None), aggregate: 8, max_ctas: Some(4) };
        let parts = variant.resolved(Cadence::Streaming).name_parts();
        assert_eq!(parts, ["symmetric", "graph-20", "aggregate-8", "max-ctas-4"]);
        assert_eq!(variant.resolved(Cadence::Isolated).name_parts()[1], "graph-1");
        assert_eq!(shown(&variant.labels()), "symmetric graph:20 x8 ctas<=4");
        assert_eq!((variant.calls_at_once(), Variant::default().calls_at_once()), (160, 1));
    }

    #[test]
    fn every_combination_of_the_lists_occurs_once() {
        let lists = Variants {
            buffers: vec![Buffers::Plain, Buffers::Registered, Buffers::Plain],
            submit: vec![Submit::Stream, Submit::Graph(Some(1))],
            aggregate: vec![1, 8],
            max_ctas: vec![None],
        };
        assert_eq!((lists.all().len(), lists.named()), (8, vec!["buffers", "submit", "aggregate"]));
        assert_eq!((Variants::default().all(), Variants::default().count()), (vec![Variant::default()], 1));
    }

    #[test]
    fn lines_of_every_version_of_the_log_are_understood_and_others_passed_over() {
        for (line, expected) in [
            (
                "a:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}",
                Some("ring simple x16"),
            ),
            (
                "a:7:7 [0] NCCL INFO AllReduce: 64 Bytes -> Algo Tree proto LL channel{Lo..Hi}={3..3}",
                Some("tree ll x1"),
            ),
            ("NCCL INFO AllGather: 64 Bytes -> Algo COLLNET_DIRECT proto LL128 time 1.0", Some("collnet-direct ll128")),
            ("NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008", Some("ring simple")),
            ("NCCL INFO 37756928 Bytes -> Algo 4 proto 2 time 2860.2", Some("nvls simple")),
            ("NCCL INFO Broadcast: 8 Bytes -> Algo NOVEL proto 9 channel{Lo..Hi}={5..2}", Some("novel 9")),
            (
                "NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1",
                Some("symmetric AllReduce_AGxLL_R x4"),
            ),
            ("NCCL INFO AllGather [Copy Engine]: 8 Bytes -> cudaMemcpyAsync", Some("copy-engine")),
            ("NCCL INFO AllGather [Hierarchical CE]: 8 Bytes -> RMA proxy + CE", Some("copy-engine")),
            ("NCCL INFO   Broadcast |     0.0/   0.0 |", None),
            ("NCCL INFO 8 Bytes -> Algo", None),
            ("", None),
        ] {
            let found = LibraryChoice::of_log_line(line).map(|choice| choice.to_string());
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }
}
