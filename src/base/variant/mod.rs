//! The ways in which the same call can be handed to a library: which buffers, from a stream or a graph, how many at once, on how many
//! thread blocks. What a backend makes of them is not here.

mod choice;

pub use choice::LibraryChoice;

use crate::sample::Cadence;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Default number of calls in a graph: as many as nccl-tests captures by default.
pub const CALLS_IN_A_GRAPH: u32 = 20;
/// Most calls in one graph.
pub const MOST_CALLS_IN_A_GRAPH: u32 = 1024;
/// Most calls in one group.
pub const MOST_AGGREGATED: u32 = 64;
/// Most thread blocks that NCCL's kernels take.
pub const MOST_CTAS: u32 = 64;

/// The labels by which variants are distinguished in records, in the order in which tables show them.
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

/// Who allocates buffers, and how they are registered with the library before they are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// Memory of the driver, not registered.
    #[default]
    Plain,
    /// Memory of `ncclMemAlloc`, not registered by us; NCCL itself registers it for calls in graphs.
    Allocated,
    /// Memory of `ncclMemAlloc` of which is said that it will be used: `ncclCommRegister`.
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
    /// Which buffers.
    pub buffers: Buffers,
    /// From a stream or a graph.
    pub submit: Submit,
    /// Calls in one group (`ncclGroupStart`, `ncclGroupEnd`), each on separate buffers.
    pub aggregate: u32,
    /// Most thread blocks of its kernels; the library's own choice without.
    pub max_ctas: Option<u32>,
}

/// Lists of which every combination is a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variants {
    /// Which buffers.
    pub buffers: Vec<Buffers>,
    /// From streams, graphs or both.
    pub submit: Vec<Submit>,
    /// Calls in a group.
    pub aggregate: Vec<u32>,
    /// Most thread blocks.
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
    /// Every combination, each once.
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
    /// The same with the number of calls in a graph resolved: if each call has its own start, a graph has one call.
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

    /// Calls in a graph; none from a stream.
    pub fn calls_in_a_graph(self) -> Option<u32> {
        match self.submit {
            Submit::Graph(calls) => Some(calls.unwrap_or(CALLS_IN_A_GRAPH)),
            Submit::Stream => None,
        }
    }

    /// Calls that are handed over at once, by which times are divided.
    pub fn calls_at_once(self) -> u32 {
        self.aggregate.max(1) * self.calls_in_a_graph().unwrap_or(1).max(1)
    }

    /// Parts of a case's name; none for the usual way.
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

    /// The name in files, flags and labels.
    pub fn name(self) -> &'static str {
        match self {
            Buffers::Plain => "plain",
            Buffers::Allocated => "allocated",
            Buffers::Registered => "registered",
            Buffers::Symmetric => "symmetric",
        }
    }
}

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

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

/// Reads the number of calls in a group.
///
/// # Errors
/// What was found, and what would be accepted.
pub fn parse_aggregate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(calls @ 1..=MOST_AGGREGATED) => Ok(calls),
        _ => Err(format!("found `{text}`; accepted: 1 to {MOST_AGGREGATED} calls in a group")),
    }
}

/// Reads the most thread blocks; `any` leaves them to the library.
///
/// # Errors
/// What was found, and what would be right.
pub fn parse_max_ctas(text: &str) -> Result<Option<u32>, String> {
    match (text, text.parse()) {
        ("any", _) => Ok(None),
        (_, Ok(blocks @ 1..=MOST_CTAS)) => Ok(Some(blocks)),
        _ => Err(format!("found `{text}`; accepted: 1 to {MOST_CTAS} thread blocks, or any")),
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
}
