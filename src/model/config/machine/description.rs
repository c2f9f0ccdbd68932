//! A machine as its file describes it.

use super::calls::known_links;
use super::counters::counter_limits;
use super::expect_tables::{ExpectCopyTable, ExpectNetworkTable, ExpectProductTable, ExpectTable, OwnWorkExpectation};
use super::fault::Fault;
use super::level::Level;
use crate::config::typed::{Found, SECOND, Text, Written, accepting, count, number, text, time};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate, Seconds, counted, three_digits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// More than any node has, of ranks or of adapters.
const MOST_PER_NODE: u32 = 4096;

/// More ports than any switch has.
const MOST_NODES_PER_LEAF: u32 = 65_536;

/// More devices than any node has, and more nodes than any cluster.
const MOST: u32 = 1 << 20;

/// More than any GPU computes, in 10^12 operations a second.
const MOST_TFLOPS: f64 = 1e6;

/// A machine as its file describes it, checked. Files are read and written by these fields.
///
/// Every tier of the machine has its own table; further tiers, such as racks, become further tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The file, for messages.
    #[serde(skip)]
    pub path: PathBuf,
    /// The name by which records and reports call it.
    pub name: String,
    /// Provider and instance name, for a rented machine.
    pub cloud: Option<String>,
    /// Ranks on each node, neighbours in world rank.
    #[serde(deserialize_with = "count::<_, _, 1, MOST_PER_NODE>")]
    pub ranks_per_node: u32,
    /// Hosts that the links within a node join to one: 18 where a rack of 18 hosts is one NVLink domain, else 1.
    #[serde(default = "one", deserialize_with = "count::<_, _, 1, MOST_PER_NODE>")]
    pub hosts_per_node: u32,
    /// The machine whose expectations of one node hold here too.
    pub node_like: Option<String>,
    /// Links among the ranks of a node.
    pub within_node: NodeLinks,
    /// Links between nodes.
    pub between_nodes: Network,
    /// What one GPU computes, where the file says it.
    pub computing: Option<Computing>,
    /// What its GPUs reach in training steps, where the file says it; else the shipped levels hold.
    #[serde(default, rename = "level", skip_serializing_if = "Vec::is_empty")]
    pub own_levels: Vec<Level>,
    /// Variation of simulated times. Without the table there is none.
    #[serde(default, skip_serializing_if = "Noise::is_none")]
    pub noise: Noise,
    /// Injected faults, which are read by themselves: their keys depend on their kind.
    #[serde(default, skip_serializing, deserialize_with = "later")]
    pub faults: Vec<Fault>,
    /// The runs that the expectations judge. Without it no run passes.
    #[serde(rename = "applies_to")]
    pub judged_runs: Option<JudgedRuns>,
    /// What must have been judged before a run can pass. Without it no run passes.
    #[serde(rename = "coverage")]
    pub required_coverage: Option<RequiredCoverage>,
    /// By how much counters of a host may rise while cases are measured, by name, such as `symbol_error`.
    #[serde(default, deserialize_with = "counter_limits", skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// What the library must carry data over.
    pub transport: Option<RequiredTransport>,
    /// The tables `[[expect]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<ExpectTable>,
    /// The tables `[[expect_network]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect_network: Vec<ExpectNetworkTable>,
    /// The tables `[[expect_copy]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect_copy: Vec<ExpectCopyTable>,
    /// The tables `[[expect_product]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect_product: Vec<ExpectProductTable>,
    /// Required performance of calls, from the tables and from the node that this one is like. A file without any gates nothing.
    #[serde(skip)]
    pub expectations: Vec<Expectation>,
    /// Required performance of calls between nodes, for any number of nodes.
    #[serde(skip)]
    pub network: Vec<NetworkExpectation>,
    /// Required performance of copies and matrix products, which each rank carries out by itself.
    #[serde(skip)]
    pub own_work: Vec<OwnWorkExpectation>,
}

/// Links among the ranks of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeLinks {
    /// Time of a message without bytes.
    #[serde(serialize_with = "text::serialize", deserialize_with = "time::<_, _, 1, SECOND>")]
    pub latency: Seconds,
    /// Bytes per second that one rank can send, and at the same time receive.
    #[serde(with = "text")]
    pub rate: Rate,
    /// Rate of the link to any one other rank, if each pair has a separate link instead of a switch.
    pub rate_per_peer: Option<Text<Rate>>,
    /// Links on which calls were measured ([`super::MeasuredCall`]): plans take their times instead of those that follow from the rate.
    #[serde(default, deserialize_with = "known_links")]
    pub measured_calls: Option<String>,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Time of a message without bytes.
    #[serde(serialize_with = "text::serialize", deserialize_with = "time::<_, _, 1, SECOND>")]
    pub latency: Seconds,
    /// Network adapters of each node, shared by its ranks.
    #[serde(deserialize_with = "count::<_, _, 1, MOST_PER_NODE>")]
    pub adapters_per_node: u32,
    /// Bytes per second that one adapter can send, and at the same time receive.
    #[serde(with = "text")]
    pub rate_per_adapter: Rate,
    /// True if the rate is a guess for rehearsals: it is used in simulations, but bounds nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
    /// Nodes behind each leaf switch, neighbours in number; absent if there is one switch for all, or if unknown.
    #[serde(default, deserialize_with = "count::<_, _, 1, MOST_NODES_PER_LEAF>")]
    pub nodes_per_leaf: Option<u32>,
}

/// What one GPU computes, by its data sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Computing {
    /// The kind of GPU, as levels name it, where the file says it.
    pub gpu: Option<String>,
    /// Peak of dense matrix products of 16-bit floats, operations per second.
    #[serde(rename = "peak_tflops", serialize_with = "as_tflops", deserialize_with = "tflops")]
    pub peak_flops_per_second: f64,
    /// For 8-bit floats, if the GPU supports them.
    #[serde(default, rename = "peak_tflops_fp8", serialize_with = "as_tflops", deserialize_with = "tflops")]
    pub peak_fp8_flops_per_second: Option<f64>,
    /// For 4-bit floats that share a scale in blocks (NVFP4, MXFP4).
    #[serde(default, rename = "peak_tflops_fp4", serialize_with = "as_tflops", deserialize_with = "tflops")]
    pub peak_fp4_flops_per_second: Option<f64>,
    /// Bytes per second to and from its memory, both together.
    #[serde(with = "text")]
    pub memory_rate: Rate,
}

impl Computing {
    /// The peak of linear layers in this many bits, where it is known and not that of 16 bits.
    pub fn peak_of_linears(&self, bits: u8) -> Option<f64> {
        match bits {
            8 => self.peak_fp8_flops_per_second,
            4 => self.peak_fp4_flops_per_second,
            _ => None,
        }
    }
}

fn one() -> u32 {
    1
}

fn later<'de, D: Deserializer<'de>, T>(_: D) -> std::result::Result<Vec<T>, D::Error> {
    Ok(Vec::new())
}

fn tflops<'de, D: Deserializer<'de>, T: From<f64>>(from: D) -> std::result::Result<T, D::Error> {
    number::<_, f64>(from, 1e-3..=MOST_TFLOPS).map(|tflops| T::from(1e12 * tflops))
}

fn as_tflops<S: Serializer, T: Copy + Into<Option<f64>>>(flops: &T, to: S) -> std::result::Result<S::Ok, S::Error> {
    // As many digits as data sheets have, without the dust of the division.
    (*flops).into().map(|flops| (flops / 1e3).round() / 1e9).serialize(to)
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

/// Variation of simulated times from call to call. Missing keys have the values of a machine without noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    /// Standard deviation of the logarithm of a call's time: 0.01 is about 1 %.
    #[serde(deserialize_with = "share")]
    pub relative_sigma: f64,
    /// Share of calls that take `outlier_factor` times as long.
    #[serde(deserialize_with = "share")]
    pub outlier_probability: f64,
    /// See `outlier_probability`.
    #[serde(deserialize_with = "factor")]
    pub outlier_factor: f64,
    /// Ranks reach an agreed start up to this much late, uniformly distributed.
    #[serde(serialize_with = "text::serialize", deserialize_with = "time::<_, _, 0, SECOND>")]
    pub arrival_jitter: Seconds,
}

impl Noise {
    fn is_none(&self) -> bool {
        *self == Noise::default()
    }
}

fn share<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 0.0..=1.0)
}

fn factor<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 1.0..=1000.0)
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

    /// Hosts that this many ranks fill, the last one perhaps in part.
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
    /// What the file says of it.
    pub table: ExpectTable,
    /// Smallest and largest size argument, in the sense of nccl-tests, ends included.
    pub bytes: (Bytes, Bytes),
    /// The groups that carry it out.
    pub group: ExpectedGroup,
    /// What must be met.
    pub limit: Limit,
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
        let tolerance = self.table.tolerance.unwrap_or(0.0);
        match self.limit {
            Limit::BusBandwidthFloor(rate) => rate.0 / (1.0 - tolerance),
            Limit::LatencyCeiling(time) => time.0 / (1.0 + tolerance),
        }
    }

    /// Whether it is about such a call, whatever its variant.
    pub fn is_about(&self, call: &ExpectedCall) -> bool {
        let ExpectedCall { collective, group, cadence, placement, element_type, bytes } = *call;
        self.covers(collective, bytes)
            && (self.group, self.table.cadence) == (group, cadence)
            && self.table.placement.is_none_or(|expected| expected == placement)
            && self.table.element_type.is_none_or(|expected| expected.0 == element_type)
    }

    /// Whether it is about such a call of this size in some groups.
    pub fn covers(&self, collective: Collective, bytes: Bytes) -> bool {
        self.table.collective == collective && (self.bytes.0..=self.bytes.1).contains(&bytes)
    }

    /// What it is about, in words.
    pub fn subject(&self) -> String {
        let (least, most) = self.bytes;
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let ExpectedGroup { ranks, nodes, groups_per_node, .. } = self.group;
        let at_once = if groups_per_node > 1 { format!(", {groups_per_node} groups at once") } else { String::new() };
        let nodes = counted(nodes as usize, "node");
        format!(
            "{} of {size}, {} on {ranks} ranks of {nodes}{at_once}",
            self.table.collective,
            self.table.cadence.name()
        )
    }
}

/// The size of a group, and how it is spread over the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpectedGroup {
    /// Ranks in each group.
    pub ranks: u32,
    /// Most ranks of a group on one node.
    pub ranks_per_node: u32,
    /// Nodes that a group spans.
    pub nodes: u32,
    /// Groups that have ranks on the same node and call at the same time.
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

const BACKENDS: [&str; 2] = ["mpi", "nccl"];

/// The runs that a machine file is about: its table `[applies_to]`. What is not said is not compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JudgedRuns {
    /// The backend that measured: `mpi` or `nccl`.
    #[serde(deserialize_with = "backend")]
    pub backend: String,
    /// Words of device names, of which every rank's device must have one, such as `H100 80GB HBM3`; the case of letters and
    /// what separates the words do not matter. Empty where devices do not matter.
    #[serde(default, deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// For processor names.
    #[serde(default, deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<String>,
    /// Ranks with a device on every node.
    #[serde(default, deserialize_with = "count::<_, _, 1, MOST>")]
    pub devices_per_node: Option<u32>,
    /// The beginning of the library's name, such as `NCCL` or `Open MPI`.
    pub library: Option<String>,
    /// The first version of the library that is judged.
    pub library_from: Option<Text<Version>>,
    /// The first version that is no longer judged.
    pub library_below: Option<Text<Version>>,
    /// A part of what the environment asks of transports, such as `UCX_TLS=rc`.
    pub transport: Option<String>,
    /// Whether runs with one buffer for all iterations, which caches may serve, are judged too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_buffers: bool,
    /// Whether only logs of other tools can be judged, since no backend runs the library.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported_only: bool,
}

/// What the library must carry data over: its table `[transport]`. What is not said is not required.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredTransport {
    /// The network between nodes, by the beginning of the library's name for it: `IB`, `Socket`, `AWS Libfabric`.
    pub net: Option<String>,
    /// Whether adapters read and write the memory of devices (GPUDirect RDMA) on every route to other nodes.
    pub gpudirect: Option<bool>,
    /// Whether NVLink SHARP is available to every device.
    pub nvls: Option<bool>,
}

/// What must have been judged before a run can pass: its table `[coverage]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequiredCoverage {
    /// The fewest expectations of the file.
    #[serde(deserialize_with = "count::<_, _, 1, MOST>")]
    pub expectations: u32,
    /// Calls, each with at least one expectation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<Text<Collective>>,
    /// Sizes, each with at least one row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<Text<Bytes>>,
    /// Numbers of nodes that groups span, each with at least one row.
    #[serde(default, deserialize_with = "node_counts", skip_serializing_if = "Vec::is_empty")]
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

impl Written for Version {
    const ACCEPTED: &'static str = "a version such as 2.18";

    fn from_text(text: &str) -> std::result::Result<Version, String> {
        let digits = text.chars().all(|c| c.is_ascii_digit() || c == '.');
        let wrong = || format!("found `{text}`; accepted: {}", Version::ACCEPTED);
        Version::at_start(text).filter(|_| digits).ok_or_else(wrong)
    }
}

fn backend<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    accepting(from, BACKENDS.join(", "), |value| match value {
        Found::Text(text) if BACKENDS.contains(&text) => Some(Ok(text.to_owned())),
        _ => None,
    })
}

fn node_counts<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<u32>, D::Error> {
    let counts = Vec::<u32>::deserialize(from)?;
    match counts.iter().find(|count| !(1..=MOST).contains(*count)) {
        Some(count) => Err(D::Error::custom(format!("found {count}; accepted: whole numbers from 1 to {MOST}"))),
        None => Ok(counts),
    }
}

/// Words of names. Without a letter or digit one would be a part of every name.
fn words<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    match words.iter().find(|word| !word.chars().any(|c| c.is_ascii_alphanumeric())) {
        Some(word) => {
            Err(D::Error::custom(format!("found `{word}`; accepted: words of a name, such as \"H100 80GB HBM3\"")))
        }
        None => Ok(words),
    }
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
        assert_eq!(judged.library_from.map(|version| version.0), Version::at_start("2.18"));
        let coverage = machine.required_coverage.expect("its coverage");
        assert_eq!((coverage.expectations, coverage.bytes, coverage.nodes), (1, vec![Text(Bytes(1 << 20))], vec![1]));
    }

    #[test]
    fn what_is_wrong_in_them_is_named() {
        for (tables, expected) in [
            ("[applies_to]\ndevices = ['H100']", "applies_to: `backend` is missing"),
            ("[applies_to]\nbackend = 'gpu'", "applies_to.backend: found the text \"gpu\"; accepted: mpi, nccl"),
            ("[applies_to]\nbackend = 'nccl'\nlibrary_from = '2.18'", "needs the name of its library"),
            ("[applies_to]\nbackend = 'nccl'\nlibrary = 'NCCL'\nlibrary_from = 'new'", "found `new`"),
            ("[applies_to]\nbackend = 'nccl'\ndevice = 'H100'", "did you mean `devices`"),
            ("[applies_to]\nbackend = 'nccl'\ndevices = ['-']", "found `-`; accepted: words of a name"),
            ("[applies_to]\nbackend = 'nccl'\ntransport = ''", "found the text"),
            ("[transport]\nnetwork = 'IB'", "did you mean `net`"),
            ("[transport]\ngpudirect = 'yes'", "gpudirect"),
            ("[transport]\nnet = ''", "found the text"),
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
