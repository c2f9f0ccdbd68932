//! A machine as its file describes it.

use super::fault::Fault;
use super::level::Level;
use super::own_work::OwnWorkExpectation;
use crate::config::document::{Item, Table};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate, Seconds, counted, three_digits};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A machine as its file describes it, checked.
///
/// Every tier of the machine has its own table; further tiers, such as racks, become further tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The file, for messages.
    pub path: PathBuf,
    /// The name by which records and reports call it.
    pub name: String,
    /// Provider and instance name, for a rented machine.
    pub cloud: Option<String>,
    /// Ranks on each node, neighbours in world rank.
    pub ranks_per_node: u32,
    /// Hosts that the links within a node join to one: 18 where a rack of 18 hosts is one NVLink domain, else 1.
    pub hosts_per_node: u32,
    /// Links among the ranks of a node.
    pub within_node: NodeLinks,
    /// Links between nodes.
    pub between_nodes: Network,
    /// What one GPU computes, where the file says it.
    pub computing: Option<Computing>,
    /// What its GPUs reach in training steps, where the file says it; else the shipped levels hold.
    pub own_levels: Vec<Level>,
    /// Variation of simulated times; absent without the table.
    pub noise: Noise,
    /// Injected faults.
    pub faults: Vec<Fault>,
    /// Required performance of calls. A file without any gates nothing.
    pub expectations: Vec<Expectation>,
    /// Required performance of calls between nodes, for any number of nodes.
    pub network: Vec<NetworkExpectation>,
    /// Required performance of copies and matrix products, which each rank carries out by itself.
    pub own_work: Vec<OwnWorkExpectation>,
    /// The runs that the expectations judge. Without it no run passes.
    pub judged_runs: Option<JudgedRuns>,
    /// What must have been judged before a run can pass. Without it no run passes.
    pub required_coverage: Option<RequiredCoverage>,
}

/// Links among the ranks of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLinks {
    /// Time of a message without bytes.
    pub latency: Seconds,
    /// Bytes per second that one rank can send, and at the same time receive.
    pub rate: Rate,
    /// Rate of the link to any one other rank, if each pair has a separate link instead of a switch.
    pub rate_per_peer: Option<Rate>,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    pub assumed: bool,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Time of a message without bytes.
    pub latency: Seconds,
    /// Network adapters of each node, shared by its ranks.
    pub adapters_per_node: u32,
    /// Nodes behind each leaf switch, neighbours in number; absent if there is one switch for all, or if unknown.
    pub nodes_per_leaf: Option<u32>,
    /// Bytes per second that one adapter can send, and at the same time receive.
    pub rate_per_adapter: Rate,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    pub assumed: bool,
}

/// What one GPU computes, by its data sheet.
#[derive(Clone, Debug, PartialEq)]
pub struct Computing {
    /// The kind of GPU, as levels name it, where the file says it.
    pub gpu: Option<String>,
    /// Peak of dense matrix products of 16-bit floats, operations per second.
    pub peak_flops_per_second: f64,
    /// For 8-bit floats, if the GPU supports them.
    pub peak_fp8_flops_per_second: Option<f64>,
    /// Bytes per second to and from its memory, both together.
    pub memory_rate: Rate,
}

impl Computing {
    /// The peak of 16-bit floats with who says it: `989 TFLOP/s (given)`.
    pub fn peak_by(&self, source: &str) -> String {
        format!("{} TFLOP/s ({source})", three_digits(self.peak_flops_per_second / 1e12))
    }

    /// The memory's rate with who says it.
    pub fn memory_by(&self, source: &str) -> String {
        format!("{} ({source})", self.memory_rate)
    }
}

/// Variation of simulated times from call to call.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    /// Standard deviation of the logarithm of a call's time: 0.01 is about 1 %.
    pub relative_sigma: f64,
    /// Share of calls that take `outlier_factor` times as long.
    pub outlier_probability: f64,
    /// See `outlier_probability`.
    pub outlier_factor: f64,
    /// Ranks reach an agreed start up to this much late, uniformly distributed.
    pub arrival_jitter: Seconds,
}

impl Machine {
    /// How many thresholds the file has: of calls, of what each rank does by itself, and of the network.
    pub fn thresholds(&self) -> usize {
        self.expectations.len() + self.own_work.len() + self.network.len()
    }

    /// What GPUs reach in training steps: what the file says, then what is shipped.
    ///
    /// # Errors
    /// A program that was built without levels.
    pub fn levels(&self) -> Result<Vec<Level>> {
        Ok([self.own_levels.clone(), Level::shipped()?].concat())
    }

    /// Ranks on each host.
    pub fn ranks_per_host(&self) -> u32 {
        (self.ranks_per_node / self.hosts_per_node.max(1)).max(1)
    }

    /// Hosts that this many ranks fill, the last of them perhaps in part.
    pub fn hosts_of(&self, ranks: u32) -> u32 {
        ranks.div_ceil(self.ranks_per_host())
    }

    /// Hosts that the links within a node join, where they join several.
    pub fn hosts_per_rack(&self) -> Option<u32> {
        Some(self.hosts_per_node).filter(|hosts| *hosts > 1)
    }

    /// Hosts behind each leaf switch, where that is known.
    pub fn hosts_per_leaf(&self) -> Option<u32> {
        self.between_nodes.nodes_per_leaf.map(|nodes| nodes.saturating_mul(self.hosts_per_node.max(1)))
    }

    /// The machine with its hosts for nodes, which is how records and faults count them. Only the links that join several hosts to one node
    /// are then left out.
    pub fn by_hosts(&self) -> Machine {
        let hosts = self.hosts_per_node.max(1);
        let mut machine = self.clone();
        (machine.ranks_per_node, machine.hosts_per_node) = (self.ranks_per_host(), 1);
        let network = &mut machine.between_nodes;
        network.adapters_per_node = (network.adapters_per_node / hosts).max(1);
        network.nodes_per_leaf = self.hosts_per_leaf();
        machine
    }
}

impl Default for Noise {
    fn default() -> Self {
        Noise { relative_sigma: 0.0, outlier_probability: 0.0, outlier_factor: 1.0, arrival_jitter: Seconds(0.0) }
    }
}

// What is expected of a machine: the performance of a call, and by how much it may be missed.

/// Required performance of one kind of call.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// File, line and key of the expectation, for messages and reports.
    pub place: String,
    /// The call.
    pub collective: Collective,
    /// Smallest and largest size argument, in the sense of nccl-tests, ends included.
    pub bytes: (Bytes, Bytes),
    /// The groups that carry it out.
    pub group: ExpectedGroup,
    /// What is timed.
    pub cadence: Cadence,
    /// Whether the result replaces the input; both if absent.
    pub placement: Option<Placement>,
    /// Type of the elements; any if absent.
    pub element_type: Option<ElementType>,
    /// How the calls are handed over, by the labels of records (`buffers`, `submit`, `aggregate` ...); empty for plain calls.
    pub variant: BTreeMap<String, String>,
    /// What must be met.
    pub limit: Limit,
    /// Value and tolerance from which the limit was computed, if given so.
    pub tolerance: Option<f64>,
    /// Origin of the figure: a publication or a measurement.
    pub source: String,
    /// When: `2026`, `2026-03` or `2026-03-14`.
    pub date: String,
    /// True if switches reduce or copy by themselves, so that the links are no bound.
    pub in_network: bool,
    /// With what the figure was reached.
    pub reached: Reached,
    /// Further remarks.
    pub note: Option<String>,
}

/// With what a figure was reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// Algorithm. Only calls of which the record says that they had it are compared with the figure.
    pub algorithm: Option<String>,
    /// Library and version.
    pub version: Option<String>,
    /// True if one process drove all devices of a host with a thread for each: small messages then take another time than those of
    /// processes, which are not compared with it.
    pub one_process: bool,
}

/// Required performance of calls between nodes, as a share of what the adapters carry, for groups of any number of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkExpectation {
    /// The part of the adapters' rate that is reached.
    pub share: f64,
    /// The share of that by which it may be missed.
    pub tolerance: f64,
    /// The rest of it. Group, size and limit are taken from each call that it is about.
    pub of_call: Expectation,
}

impl NetworkExpectation {
    /// What it requires of a call, for which the adapters and the library carry at most `most`; none where it is not about the call.
    pub(super) fn of(&self, call: &ExpectedCall, most: Rate) -> Option<Expectation> {
        let expected = Expectation { group: call.group, ..self.of_call.clone() };
        expected.is_about(call).then_some(Expectation {
            bytes: (call.bytes, call.bytes),
            limit: Limit::BusBandwidthFloor(Rate(most.0 * (1.0 - self.tolerance))),
            tolerance: Some(self.tolerance),
            ..expected
        })
    }
}

/// The pass limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The least bus bandwidth.
    BusBandwidthFloor(Rate),
    /// The longest time of a call (of one way where a call has several).
    LatencyCeiling(Seconds),
}

impl Expectation {
    /// The figure itself: the limit without the tolerance, where it has one. A bus bandwidth in bytes per second or a time
    /// in seconds, as the limit is.
    pub fn figure(&self) -> f64 {
        let tolerance = self.tolerance.unwrap_or(0.0);
        match self.limit {
            Limit::BusBandwidthFloor(rate) => rate.0 / (1.0 - tolerance),
            Limit::LatencyCeiling(time) => time.0 / (1.0 + tolerance),
        }
    }

    /// Whether it is about such a call, whatever its variant.
    pub fn is_about(&self, call: &ExpectedCall) -> bool {
        let ExpectedCall { collective, group, cadence, placement, element_type, bytes } = *call;
        self.covers(collective, bytes)
            && (self.group, self.cadence) == (group, cadence)
            && self.placement.is_none_or(|expected| expected == placement)
            && self.element_type.is_none_or(|expected| expected == element_type)
    }

    /// Whether it is about such a call of this size in some groups.
    pub fn covers(&self, collective: Collective, bytes: Bytes) -> bool {
        self.collective == collective && (self.bytes.0..=self.bytes.1).contains(&bytes)
    }

    /// What it is about, in words.
    pub fn subject(&self) -> String {
        let (least, most) = self.bytes;
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let ExpectedGroup { ranks, nodes, groups_per_node, .. } = self.group;
        let at_once = if groups_per_node > 1 { format!(", {groups_per_node} groups at once") } else { String::new() };
        let nodes = counted(nodes as usize, "node");
        format!("{} of {size}, {} on {ranks} ranks of {nodes}{at_once}", self.collective, self.cadence.name())
    }
}

/// The size of a group, and its placement on the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpectedGroup {
    /// Ranks in each group.
    pub ranks: u32,
    /// Most ranks of a group on one node.
    pub ranks_per_node: u32,
    /// Nodes that a group spans.
    pub nodes: u32,
    /// Groups that have ranks on the same node and are active at the same time.
    pub groups_per_node: u32,
}

/// A call of which something may be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedCall {
    /// The call.
    pub collective: Collective,
    /// The groups that carry it out.
    pub group: ExpectedGroup,
    /// What is timed.
    pub cadence: Cadence,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes: Bytes,
}

// Which runs a machine file judges, and what a run must cover before it can pass.
//
// Without them a run on other hardware, or one that measured a single call, could pass as the machine.

const JUDGED_KEYS: [&str; 10] = [
    "backend",
    "devices",
    "devices_per_node",
    "processors",
    "library",
    "library_from",
    "library_below",
    "transport",
    "warm_buffers",
    "imported_only",
];

const COVERAGE_KEYS: [&str; 4] = ["expectations", "collectives", "bytes", "nodes"];

const BACKENDS: [&str; 2] = ["mpi", "nccl"];

/// More devices than any node has, and more nodes than any cluster.
const MOST: u32 = 1 << 20;

/// The runs that a machine file is about: its table `[applies_to]`. What is not said is not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedRuns {
    /// The backend that measured: `mpi` or `nccl`.
    pub backend: String,
    /// Words of device names, of which every rank's device must have one, such as `H100 80GB HBM3`; the case of letters and the text
    /// between the words do not matter. Empty where devices do not matter.
    pub devices: Vec<String>,
    /// For processor names.
    pub processors: Vec<String>,
    /// Ranks with a device on every node.
    pub devices_per_node: Option<u32>,
    /// The beginning of the library's name, such as `NCCL` or `Open MPI`.
    pub library: Option<String>,
    /// The first version of the library that is judged.
    pub library_from: Option<Version>,
    /// The first version that is no longer judged.
    pub library_below: Option<Version>,
    /// A part of what the environment asks of transports, such as `UCX_TLS=rc`.
    pub transport: Option<String>,
    /// Whether runs with one buffer for all iterations, which caches may serve, are judged too.
    pub warm_buffers: bool,
    /// Whether only logs of other tools can be judged, since no backend runs the library.
    pub imported_only: bool,
}

/// What must have been judged before a run can pass: its table `[coverage]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequiredCoverage {
    /// The fewest expectations of the file.
    pub expectations: u32,
    /// Calls, each with at least one expectation.
    pub collectives: Vec<Collective>,
    /// Sizes, each with at least one row.
    pub bytes: Vec<Bytes>,
    /// Numbers of nodes that groups span, each with at least one row.
    pub nodes: Vec<u32>,
}

/// Numbers between dots, compared from the left; `2.9` comes before `2.10`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// The version at the beginning of a text, such as `2.27.3 (libnccl.so.2)`; none where there is no number.
    pub fn at_start(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let parts: Option<Vec<u32>> =
            text[..end].trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
        parts.map(Version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
    }
}

pub(super) fn judged_runs(mut table: Table) -> Result<JudgedRuns> {
    table.only(&JUDGED_KEYS)?;
    let backend = table.require("backend", "the backend of the runs that are judged: mpi or nccl")?;
    // Without a letter or digit it would be a part of every name.
    let word = |item: &Item| -> Result<String> {
        let text = item.text_such_as("H100")?;
        match text.chars().any(|c| c.is_ascii_alphanumeric()) {
            true => Ok(text.to_owned()),
            false => Err(item.wrong(format!("found `{text}`; accepted: words of a name, such as \"H100 80GB HBM3\""))),
        }
    };
    let words = |item: Item| item.items()?.iter().map(word).collect();
    let mut text = |key, example: &str| -> Result<Option<String>> {
        table.take(key).map(|item| item.text_such_as(example).map(str::to_owned)).transpose()
    };
    let (library, transport) = (text("library", "NCCL")?, text("transport", "NVLink")?);
    let mut version = |key| -> Result<Option<Version>> { table.take(key).map(|item| item.parsed(version)).transpose() };
    let (library_from, library_below) = (version("library_from")?, version("library_below")?);
    if let (None, Some(_)) = (&library, library_from.as_ref().or(library_below.as_ref())) {
        return Err(table.place.wrong("a version needs the name of its library, such as library = \"NCCL\""));
    }
    Ok(JudgedRuns {
        backend: backend.parsed(|text| match BACKENDS.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("found `{text}`; accepted: {}", BACKENDS.join(", "))),
        })?,
        devices: table.take("devices").map_or(Ok(Vec::new()), words)?,
        processors: table.take("processors").map_or(Ok(Vec::new()), words)?,
        devices_per_node: table.take("devices_per_node").map(|item| item.count_within(1..=MOST)).transpose()?,
        library,
        library_from,
        library_below,
        transport,
        warm_buffers: table.take("warm_buffers").map_or(Ok(false), |item| item.truth())?,
        imported_only: table.take("imported_only").map_or(Ok(false), |item| item.truth())?,
    })
}

pub(super) fn required_coverage(mut table: Table, expectations: usize) -> Result<RequiredCoverage> {
    table.only(&COVERAGE_KEYS)?;
    let fewest = table.require("expectations", "the fewest [[expect]] that a run must be judged by, such as 12")?;
    let count = fewest.count_within(1..=MOST)?;
    if count as usize > expectations {
        return Err(fewest.wrong(format!("found {count}; this file has {expectations} expectations")));
    }
    fn list<T>(table: &mut Table, key: &'static str, read: impl Fn(&Item) -> Result<T>) -> Result<Vec<T>> {
        table.take(key).map_or(Ok(Vec::new()), |item| item.items()?.iter().map(read).collect())
    }
    Ok(RequiredCoverage {
        expectations: count,
        collectives: list(&mut table, "collectives", |item| item.parsed(str::parse))?,
        bytes: list(&mut table, "bytes", |item| item.parsed(Bytes::parse))?,
        nodes: list(&mut table, "nodes", |item| item.count_within(1..=MOST))?,
    })
}

fn version(text: &str) -> std::result::Result<Version, String> {
    let digits = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    Version::at_start(text)
        .filter(|_| digits)
        .ok_or_else(|| format!("found `{text}`; accepted: a version such as 2.18"))
}

#[cfg(test)]
mod tests {

    use super::super::Machine;
    use super::*;
    use std::path::Path;

    fn machine(tables: &str) -> Result<Machine> {
        let text = format!(
            "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\nlatency = \
             '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n{tables}\n[[expect]]\ncollective = 'all_reduce'\n\
             ranks = 2\nbytes = '1MiB'\nfloor = '1GB/s'\nsource = 's'\ndate = '2026'\n"
        );
        Machine::parse(&text, Path::new("m.toml"))
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        let version = |text: &str| Version::at_start(text).expect(text);
        assert!(version("2.9") < version("2.10.3") && version("2.27") < version("2.27.3"));
        assert_eq!(version("2.27.3 (libnccl.so.2)").to_string(), "2.27.3");
        assert!(Version::at_start("unknown").is_none() && Version::at_start("").is_none());
    }

    #[test]
    fn scope_and_coverage_are_read() {
        let machine = machine(
            "[applies_to]\nbackend = 'nccl'\ndevices = ['H100', 'H200']\ndevices_per_node = 8\nlibrary = 'NCCL'\n\
             library_from = '2.18'\n[coverage]\nexpectations = 1\ncollectives = ['all_reduce']\nbytes = ['1MiB']\nnodes = [1]",
        )
        .expect("a machine");
        let judged = machine.judged_runs.expect("its scope");
        assert_eq!((judged.backend.as_str(), judged.devices.len(), judged.devices_per_node), ("nccl", 2, Some(8)));
        assert_eq!(judged.library_from, Version::at_start("2.18"));
        let coverage = machine.required_coverage.expect("its coverage");
        assert_eq!((coverage.expectations, coverage.bytes, coverage.nodes), (1, vec![Bytes(1 << 20)], vec![1]));
    }

    #[test]
    fn what_is_wrong_in_them_is_named() {
        for (tables, expected) in [
            ("[applies_to]\ndevices = ['H100']", "applies_to: `backend` is missing"),
            ("[applies_to]\nbackend = 'gpu'", "found `gpu`; accepted: mpi, nccl"),
            ("[applies_to]\nbackend = 'nccl'\nlibrary_from = '2.18'", "needs the name of its library"),
            ("[applies_to]\nbackend = 'nccl'\nlibrary = 'NCCL'\nlibrary_from = 'new'", "found `new`"),
            ("[applies_to]\nbackend = 'nccl'\ndevice = 'H100'", "did you mean `devices`"),
            ("[applies_to]\nbackend = 'nccl'\ndevices = ['-']", "found `-`; accepted: words of a name"),
            ("[applies_to]\nbackend = 'nccl'\ntransport = ''", "found the text"),
            ("[coverage]\ncollectives = ['all_reduce']", "coverage: `expectations` is missing"),
            ("[coverage]\nexpectations = 2", "found 2; this file has 1 expectations"),
            ("[coverage]\nexpectations = 0", "found 0"),
            ("[coverage]\nexpectations = 1\nnodes = [0]", "found 0"),
        ] {
            let error = machine(tables).expect_err(tables).to_string();
            assert!(error.contains(expected), "{tables}: {error}");
        }
    }
}
