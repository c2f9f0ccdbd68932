//! The number of nodes in runs, and the machine's expectations of calls between its nodes.

use super::document::Subject;
use super::expected::{Algorithms, Expected, expected_call};
use super::{LoadedRecord, Problem};
use commgauge_base::stats::fewest_for_bound;
use commgauge_base::units::{Bytes, Rate, counted};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::machine::{JudgedRuns, RequiredCoverage, Version};
use commgauge_model::config::{Expectation, Machine};
use commgauge_model::record::line::{CaseFacts, ForeignTool, Header};
use commgauge_model::record::work_lines::{CopyShape, ProductShape};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// NCCL's assumed rate of a channel over the network (`P2P_PER_CHANNEL_NET_BW`, NCCL 2.30, src/graph/paths.cc).
const RATE_OF_A_CHANNEL: Rate = Rate(14e9);

/// Channels per pair of ranks over the network in records from before `pair_channels`, if the user set their number.
const CHANNELS_OF_A_PAIR: &str = "NCCL_NCHANNELS_PER_NET_PEER";

/// Nodes of a run by the machine's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Nodes; several hosts joined by the links within a node are one.
    pub nodes: u32,
    pub hosts_per_node: u32,
    pub hosts: u32,
}

impl Span {
    /// This many hosts of a machine.
    pub fn new(hosts: u32, hosts_per_node: u32) -> Span {
        let hosts_per_node = hosts_per_node.max(1);
        Span { nodes: hosts.div_ceil(hosts_per_node), hosts_per_node, hosts }
    }

    /// The largest span of the records; `None` if no ranks call each other, as in runs with copies only. Other tools may not name the hosts
    /// of their ranks; calls then give a minimum.
    pub fn of(records: &[LoadedRecord], machine: Option<&Machine>) -> Span {
        let hosts = |loaded: &LoadedRecord| {
            if loaded.record.plan.cases.is_empty() {
                return 0;
            }
            let named: HashSet<u32> = loaded.record.header.ranks.iter().map(|rank| rank.node).collect();
            let spanned = loaded.record.plan.cases.iter().map(|facts| facts.locality.nodes_spanned);
            spanned.chain([named.len() as u32]).max().unwrap_or(0)
        };
        let most = records.iter().map(hosts).max().unwrap_or(0);
        Span::new(most, machine.map_or(1, |machine| machine.hosts_per_node))
    }

    /// Whether a call is between nodes.
    pub fn is_crossed_by(&self, facts: &CaseFacts) -> bool {
        facts.locality.nodes_spanned > self.hosts_per_node
    }
}

/// The machine with its expectations of the calls of records, for any number of nodes.
pub(super) fn expecting(machine: &Machine, records: &[LoadedRecord]) -> Machine {
    let calls = records.iter().flat_map(|loaded| &loaded.record.plan.cases).map(expected_call);
    machine.expecting(calls, most_of_a_pair(records.iter().map(|loaded| &loaded.record.header)))
}

/// The minimum rate of the library between two ranks, which may be below that of their adapters: NCCL halves the channels of a pair as
/// ranks grow, down to one (`ncclTopoComputeP2pChannels`, NCCL 2.30, src/graph/paths.cc), unless their number is set, as it is for pairs.
/// Without measurements, the adapters decide.
pub(super) fn most_of_a_pair<'a>(headers: impl IntoIterator<Item = &'a Header>) -> Option<Rate> {
    let carried = |header: &Header| {
        let forced = header.environment.get(CHANNELS_OF_A_PAIR).and_then(|text| text.trim().parse::<u32>().ok());
        let channels = header.backend.pair_channels.or(forced);
        let is_nccl = header.backend.library.starts_with("NCCL") && !header.backend.synthetic;
        is_nccl.then(|| RATE_OF_A_CHANNEL.0 * f64::from(channels.unwrap_or(1).max(1)))
    };
    headers.into_iter().filter_map(carried).reduce(f64::min).map(Rate)
}

// Whether a machine file applies to a run, and the run covers what the file requires. A verdict never exceeds its evidence: another machine
// is an error, less than the coverage is inconclusive.

/// Exit code of a run on hardware or software that the file does not judge.
const OTHER_MACHINE: i32 = 7;

/// Exit code of insufficient coverage.
const INCONCLUSIVE: i32 = 3;

/// What the names of devices begin with, in this order.
const VENDORS: [&str; 5] = [" nvidia", " tesla", " amd", " radeon", " instinct"];

/// The time of a smaller message is its latency, whatever the rate of the network.
const LEAST_OF_NETWORK: Bytes = Bytes(1 << 20);

/// The differences of a measured run from the runs that the file judges. A simulated run simulates the machine file itself, and never
/// passes.
pub(super) fn mismatches(loaded: &LoadedRecord, machine: &Machine) -> Vec<Problem> {
    let header = &loaded.record.header;
    let Some(judged) = machine.judged_runs.as_ref().filter(|_| !header.backend.synthetic) else { return Vec::new() };
    let (record, file) = (loaded.path.shown(), machine.path.shown());
    let problem = |exit_code, text: String| Problem { exit_code, text: format!("{record}: {text} ({file})") };
    let other = [
        backend(loaded, judged),
        devices(header, judged),
        processors(header, judged),
        node_size(header, judged),
        library(header, judged),
        transport(header, judged),
    ];
    let native = (judged.imported_only && header.backend.measured_by.is_none()).then(|| IMPORTED_ONLY.to_owned());
    let other = other.into_iter().flatten().map(|text| problem(OTHER_MACHINE, text));
    let other = other.chain(native.map(|text| problem(INCONCLUSIVE, text)));
    let other = other.chain(warm_buffers(header, judged).map(|text| problem(INCONCLUSIVE, text)));
    other.chain(unknown(header, judged).into_iter().map(|text| problem(INCONCLUSIVE, text))).collect()
}

/// Buffers that stay in the caches, if the file requires cold ones. Other tools do not report theirs.
fn warm_buffers(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let is_other = header.settings.warm_buffers && !judged.warm_buffers && header.backend.measured_by.is_none();
    is_other.then(|| {
        "measured with warm buffers, which caches may serve; the machine file judges runs with cold ones (warm_buffers = true in \
         [applies_to] would judge these)"
            .to_owned()
    })
}

/// Facts that the file requires and the logs of another tool lack.
fn unknown(header: &Header, judged: &JudgedRuns) -> Vec<String> {
    let Some(tool) = header.backend.measured_by else { return Vec::new() };
    let missing = |is_missing: bool, what: &str| is_missing.then(|| format!("the log of {} {what}", tool.name()));
    let names_devices = !judged.devices.is_empty() || judged.devices_per_node.is_some();
    let found = [
        missing(names_devices && header.ranks.is_empty(), "does not name the devices that the machine file judges"),
        missing(!judged.processors.is_empty(), "does not name the processors"),
        missing(judged.library.is_some() && is_unknown_library(header), "does not name the library's version"),
        missing(judged.transport.is_some() && header.backend.transport.is_none(), "does not name the transports"),
    ];
    found.into_iter().flatten().collect()
}

/// Whether another tool measured without reporting the library.
fn is_unknown_library(header: &Header) -> bool {
    header.backend.measured_by.is_some() && header.backend.library == "unknown"
}

/// The communication backend, also for other tools. OSU on devices does not test host memory.
fn backend_name(loaded: &LoadedRecord) -> &str {
    let header = &loaded.record.header;
    let is_on_devices = || loaded.record.plan.cases.iter().any(|case| case.labels.contains_key("osu_library"));
    match header.backend.measured_by.filter(|_| header.backend.name == "imported").and_then(ForeignTool::backend) {
        Some(name) if name == "nccl" || !is_on_devices() => name,
        _ => &header.backend.name,
    }
}

fn backend(loaded: &LoadedRecord, judged: &JudgedRuns) -> Option<String> {
    let name = backend_name(loaded);
    (*name != judged.backend)
        .then(|| format!("measured with the backend {name}; the machine file judges {}", judged.backend))
}

fn devices(header: &Header, judged: &JudgedRuns) -> Option<String> {
    if judged.devices.is_empty() {
        return None;
    }
    let accepted = judged.devices.join(" or ");
    // The name of a device slice begins with the name of the whole device.
    let is_slice = |name: &str| words(name).contains(" mig ") && !words(&accepted).contains(" mig ");
    let is_judged = |name: &str| {
        !is_slice(name) && judged.devices.iter().any(|part| model_words(name).starts_with(&model_words(part)))
    };
    header.ranks.iter().find_map(|rank| match rank.device.as_deref() {
        None => {
            Some(format!("rank {} on host {} has no device; the machine file judges {accepted}", rank.rank, rank.host))
        }
        Some(name) if !is_judged(name) => {
            Some(format!("rank {} on host {} ran on {name}; the machine file judges {accepted}", rank.rank, rank.host))
        }
        Some(_) => None,
    })
}

/// The words of a device name between spaces, so that `B200` does not match `NVIDIA GB200`.
fn words(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + &word.to_ascii_lowercase() + " ")
}

/// The words of a device name from its model on: another model that it mentions later does not count.
fn model_words(name: &str) -> String {
    VENDORS.iter().fold(words(name), |rest, vendor| rest.strip_prefix(vendor).map(str::to_owned).unwrap_or(rest))
}

fn processors(header: &Header, judged: &JudgedRuns) -> Option<String> {
    if judged.processors.is_empty() || header.backend.measured_by.is_some() {
        return None;
    }
    let accepted = judged.processors.join(" or ");
    let is_judged = |name: &str| judged.processors.iter().any(|part| words(name).contains(&words(part)));
    let other = header.ranks.iter().find(|rank| !is_judged(&rank.processor))?;
    let (rank, host, found) = (other.rank, &other.host, &other.processor);
    Some(format!("rank {rank} on host {host} ran on {found}; the machine file judges {accepted}"))
}

fn node_size(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let expected = judged.devices_per_node?;
    let mut ranks_of_node: BTreeMap<u32, (u32, &str)> = BTreeMap::new();
    for rank in &header.ranks {
        ranks_of_node.entry(rank.node).or_insert((0, &rank.host)).0 += rank.ranks;
    }
    ranks_of_node.values().find(|(ranks, _)| *ranks != expected).map(|(ranks, host)| {
        format!("host {host} has {ranks} ranks; the machine file judges nodes of {expected} devices, all in use")
    })
}

fn library(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let (found, name) = (header.backend.library.as_str(), judged.library.as_deref()?);
    if is_unknown_library(header) {
        return None;
    }
    let is_whole = |rest: &&str| rest.is_empty() || rest.starts_with(char::is_whitespace);
    let Some(rest) = found.strip_prefix(name).filter(is_whole) else {
        return Some(format!("measured with {found}; the machine file judges {name}"));
    };
    let limits = [
        judged.library_from.as_ref().map(|version| format!("from {}", version.0)),
        judged.library_below.as_ref().map(|version| format!("below {}", version.0)),
    ];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    if limits.is_empty() {
        return None;
    }
    // `Open MPI v4.1.4`, and in older records `MPICH Version:\t4.0.2`.
    let mut words = rest.split_whitespace();
    let Some(version) = words.find_map(|word| Version::at_start(word.strip_prefix('v').unwrap_or(word))) else {
        return Some(format!("the version of {found} is unknown; the machine file judges {name} {limits}"));
    };
    let judged_version = judged.library_from.as_ref().is_none_or(|from| version >= from.0)
        && judged.library_below.as_ref().is_none_or(|below| version < below.0);
    (!judged_version).then(|| format!("measured with {name} {version}; the machine file judges {name} {limits}"))
}

fn transport(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let expected = judged.transport.as_deref()?;
    match header.backend.transport.as_deref() {
        Some(found) if found.contains(expected) => None,
        None if header.backend.measured_by.is_some() => None,
        found => {
            Some(format!("transports are {}; the machine file judges {expected}", found.unwrap_or("not recorded")))
        }
    }
}

/// What was judged, or will be.
pub(super) struct Judged<'a> {
    /// The expectations of the file, by index, for judged rows.
    pub expectations: HashSet<usize>,
    /// The judged rows.
    pub cases: Vec<&'a CaseFacts>,
    /// The nodes of the runs.
    pub network: Span,
}

impl Judged<'_> {
    /// The judged rows of calls between nodes.
    pub fn between_nodes(&self) -> impl Iterator<Item = &CaseFacts> {
        self.cases.iter().copied().filter(|facts| self.network.is_crossed_by(facts))
    }

    /// How many judged expectations limit the same quantity of the same calls as another one: they cover nothing more.
    fn repeated_expectations(&self, machine: &Machine) -> usize {
        let of_calls: Vec<_> = self.expectations.iter().filter_map(|index| machine.expectations.get(*index)).collect();
        let distinct: HashSet<_> = of_calls
            .iter()
            .map(|expected| {
                let table = &expected.table;
                let element_type = table.element_type.as_ref().map(|text| text.0);
                let calls = (table.collective, expected.bytes, expected.group, table.cadence, table.placement);
                let limited = std::mem::discriminant(&expected.limit);
                (format!("{calls:?} {element_type:?}"), &table.algorithm, &table.variant, table.one_process, limited)
            })
            .collect();
        of_calls.len() - distinct.len()
    }

    /// The connection between the nodes, or between the hosts of one node, if nothing that loads it was judged.
    fn not_judged_between(&self) -> Option<String> {
        let Span { nodes, hosts_per_node, hosts } = self.network;
        let (least, what) = if nodes > 1 { (hosts_per_node, "nodes") } else { (1, "hosts") };
        let loads = |facts: &&CaseFacts| facts.locality.nodes_spanned > least && facts.bytes_total >= LEAST_OF_NETWORK;
        let is_judged = hosts < 2 || self.cases.iter().any(loads);
        (!is_judged).then(|| format!("the {} {what}", if nodes > 1 { nodes } else { hosts }))
    }
}

/// What is missing for a run to pass.
pub(super) fn shortfalls(machine: &Machine, judged: &Judged) -> Vec<Problem> {
    let texts = missing(machine, judged).into_iter();
    texts.map(|text| Problem { exit_code: INCONCLUSIVE, text: format!("{}: {text}", machine.path.shown()) }).collect()
}

/// As sentences without the file.
fn missing(machine: &Machine, judged: &Judged) -> Vec<String> {
    if machine.thresholds() == 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    if machine.judged_runs.is_none() {
        let add = "add [applies_to] with backend = \"nccl\" or \"mpi\"";
        found.push(format!("does not define which runs it judges, so none passes; {add}"));
    }
    match &machine.required_coverage {
        None => found.push(format!(
            "does not define what a run must cover, so none passes; add [coverage] with expectations, the minimum of its {} that must be judged",
            machine.thresholds()
        )),
        Some(required) => found.extend(uncovered(machine, required, judged)),
    }
    found.extend(judged.not_judged_between().map(|between| {
        let has_none = machine.network.is_empty() && machine.expectations.iter().all(|one| one.group.nodes < 2);
        let why = match has_none {
            true => "the file has no expectation between nodes; [[expect_network]] adds one",
            false => "its expectations there were not measured",
        };
        format!("no row of {LEAST_OF_NETWORK} or more between {between} was judged, so the network is unknown: {why}")
    }));
    found
}

fn uncovered(machine: &Machine, required: &RequiredCoverage, judged: &Judged) -> Vec<String> {
    let repeated = judged.repeated_expectations(machine);
    let count = judged.expectations.len() - repeated;
    let too_few = (count < required.expectations as usize).then(|| {
        let all = machine.thresholds();
        let alike = if repeated > 0 { format!(", without {repeated} that repeat another") } else { String::new() };
        format!("{count} of {all} expectations judged{alike}; [coverage] requires {}", required.expectations)
    });
    let of_calls = || judged.expectations.iter().filter_map(|index| machine.expectations.get(*index));
    let has_collective = |name| of_calls().any(|expected| expected.table.collective == name);
    let has_size = |bytes| judged.cases.iter().any(|facts| facts.bytes_total == bytes);
    let has_span = |nodes| judged.cases.iter().any(|facts| facts.locality.nodes_spanned == nodes);
    let collectives = required.collectives.iter().filter(|name| !has_collective(name.0)).map(|name| name.0.to_string());
    let sizes = required.bytes.iter().filter(|bytes| !has_size(bytes.0)).map(|bytes| bytes.0.to_string());
    let spans = required.nodes.iter().filter(|nodes| !has_span(**nodes));
    let spans = spans.map(|nodes| format!("groups over {}", counted(*nodes as usize, "node")));
    let missing: Vec<String> = collectives.chain(sizes).chain(spans).collect();
    let absent =
        (!missing.is_empty()).then(|| format!("nothing judged of {}; [coverage] requires it", missing.join(", ")));
    too_few.into_iter().chain(absent).collect()
}

/// Why some files judge no commgauge run.
const IMPORTED_ONLY: &str = "only logs of rccl-tests can be judged (`commgauge import`): no backend here runs RCCL";

/// How far a machine file can judge a plan, before it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOutlook {
    /// Expectations of the file.
    pub expectations: usize,
    /// Expectations with a planned row.
    pub expectations_judged: usize,
    /// Expectations without a planned row: their subjects, and their places in the file.
    pub not_measured: Vec<String>,
    /// Nodes of the machine that the plan spans.
    pub nodes: u32,
    /// Rows between nodes that will be judged.
    pub rows_between_nodes: usize,
    /// Why no run of the plan can pass, as sentences; empty if one can.
    pub shortfalls: Vec<String>,
}

/// Planned work of a suite.
#[derive(Clone, Debug, Default)]
pub struct PlannedWork {
    pub hosts: u32,
    pub cases: Vec<CaseFacts>,
    /// Copies between hosts and GPUs, and between GPUs.
    pub copies: Vec<CopyShape>,
    pub products: Vec<ProductShape>,
}

/// Further conditions for an expectation to judge a matching call.
fn condition(expected: &Expectation) -> String {
    match &expected.table.algorithm {
        _ if expected.table.one_process => " by threads of one process, which commgauge does not use".to_owned(),
        Some(name) => format!(" if the record shows {name}"),
        None => String::new(),
    }
}

/// Counts the expectations of a machine file that the planned work covers. `replicates` is the number of replicates, and `confidence` that
/// of the bounds of the later gate.
pub fn plan_outlook(machine: &Machine, planned: &PlannedWork, replicates: u32, confidence: f64) -> PlanOutlook {
    let machine = &machine.expecting(planned.cases.iter().map(expected_call), None);
    let expected = Expected::new(Some(machine));
    let unknown = Algorithms { environment: None, chosen: &BTreeSet::new() };
    let calls = planned.cases.iter().map(Subject::Call);
    let own_work = planned.copies.iter().map(Subject::Copy).chain(planned.products.iter().map(Subject::Product));
    let subjects: Vec<Subject> = calls.chain(own_work).collect();
    let about: Vec<Vec<usize>> = subjects.iter().map(|subject| expected.about(*subject, unknown)).collect();
    let is_judged = subjects.iter().zip(&about).filter(|(_, about)| !about.is_empty());
    let judged = Judged {
        expectations: about.iter().flatten().copied().collect(),
        cases: is_judged.filter_map(|(subject, _)| subject.call()).collect(),
        network: Span::new(if planned.cases.is_empty() { 0 } else { planned.hosts }, machine.hosts_per_node),
    };
    let calls = machine.expectations.iter().map(|one| format!("{}{} ({})", one.subject(), condition(one), one.place));
    let own_work = machine.own_work.iter().map(|one| one.place.clone());
    let network = machine
        .network
        .iter()
        .map(|one| format!("{} between nodes ({})", one.of_call.table.collective, one.of_call.place));
    let not_measured =
        calls.chain(own_work).chain(network).enumerate().filter(|(index, _)| !judged.expectations.contains(index));
    let mut shortfalls = missing(machine, &judged);
    if machine.judged_runs.as_ref().is_some_and(|runs| runs.imported_only) {
        shortfalls.push(IMPORTED_ONLY.to_owned());
    }
    if machine.thresholds() == 0 {
        shortfalls.push("it has no [[expect]]".to_owned());
    }
    let needed = fewest_for_bound(confidence);
    if (replicates as usize) < needed {
        shortfalls.push(format!("{replicates} replicates; a bound of {} % needs {needed}", confidence * 100.0));
    }
    PlanOutlook {
        expectations: machine.thresholds(),
        expectations_judged: judged.expectations.len(),
        not_measured: not_measured.map(|(_, text)| text).collect(),
        nodes: judged.network.nodes,
        rows_between_nodes: judged.between_nodes().count(),
        shortfalls,
    }
}
