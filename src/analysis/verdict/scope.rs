//! Whether a run is what a machine file judges, and covers what the file asks for. A verdict never goes beyond its evidence:
//! another machine is an error, less than the coverage is inconclusive.

use super::{LoadedRecord, Row, Trouble};
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{JudgedRuns, RequiredCoverage, Version};
use commgauge_model::record::line::Header;
use std::collections::{BTreeMap, HashSet};

/// A run on other hardware or software than the file is about.
const OTHER_MACHINE: i32 = 7;
/// Not enough was judged.
const INCONCLUSIVE: i32 = 3;

/// The differences of a measured run from the runs that the file judges. A simulated run is of the machine file itself, and
/// never passes.
pub(super) fn mismatches(loaded: &LoadedRecord, machine: &Machine) -> Vec<Trouble> {
    let header = &loaded.record.header;
    let Some(judged) = machine.judged_runs.as_ref().filter(|_| !header.backend.synthetic) else { return Vec::new() };
    let (record, file) = (loaded.path.display(), machine.path.display());
    let trouble = |text: String| Trouble { exit_code: OTHER_MACHINE, text: format!("{record}: {text} ({file})") };
    [
        backend(header, judged),
        devices(header, judged),
        node_size(header, judged),
        library(header, judged),
        transport(header, judged),
    ]
    .into_iter()
    .flatten()
    .map(trouble)
    .collect()
}

fn backend(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let name = &header.backend.name;
    (*name != judged.backend)
        .then(|| format!("measured with the backend {name}; the machine file judges {}", judged.backend))
}

fn devices(header: &Header, judged: &JudgedRuns) -> Option<String> {
    if judged.devices.is_empty() {
        return None;
    }
    let accepted = judged.devices.join(" or ");
    let is_judged = |name: &str| judged.devices.iter().any(|part| words(name).contains(&words(part)));
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

/// The words of a device name between spaces, so that `B200` is no part of `NVIDIA GB200`.
fn words(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + &word.to_ascii_lowercase() + " ")
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
    let Some(rest) = found.strip_prefix(name) else {
        return Some(format!("measured with {found}; the machine file judges {name}"));
    };
    let limits = [
        judged.library_from.as_ref().map(|version| format!("from {version}")),
        judged.library_below.as_ref().map(|version| format!("below {version}")),
    ];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    if limits.is_empty() {
        return None;
    }
    let Some(version) = Version::at_start(rest.trim_start()) else {
        return Some(format!("the version of {found} is unknown; the machine file judges {name} {limits}"));
    };
    let judged_version = judged.library_from.as_ref().is_none_or(|from| version >= *from)
        && judged.library_below.as_ref().is_none_or(|below| version < *below);
    (!judged_version).then(|| format!("measured with {name} {version}; the machine file judges {name} {limits}"))
}

fn transport(header: &Header, judged: &JudgedRuns) -> Option<String> {
    let expected = judged.transport.as_deref()?;
    match header.backend.transport.as_deref() {
        Some(found) if found.contains(expected) => None,
        found => {
            Some(format!("transports are {}; the machine file judges {expected}", found.unwrap_or("not recorded")))
        }
    }
}

/// What is missing for a run to pass. `judged` are the expectations that a judged row is about.
pub(super) fn shortfalls(machine: &Machine, judged: &HashSet<usize>, rows: &[Row]) -> Vec<Trouble> {
    let trouble = |text: String| Trouble { exit_code: INCONCLUSIVE, text };
    let file = machine.path.display();
    if machine.expectations.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if machine.judged_runs.is_none() {
        found.push(trouble(format!(
            "{file} does not say which runs it judges, so none passes; add [applies_to] with backend = \"nccl\" or \"mpi\""
        )));
    }
    match &machine.required_coverage {
        None => found.push(trouble(format!(
            "{file} does not say what a run must cover, so none passes; add [coverage] with expectations, the fewest of its {} \
             that must be judged",
            machine.expectations.len()
        ))),
        Some(required) => found.extend(uncovered(machine, required, judged, rows).map(|text| trouble(format!("{text} ({file})")))),
    }
    found
}

fn uncovered<'a>(
    machine: &'a Machine,
    required: &'a RequiredCoverage,
    judged: &'a HashSet<usize>,
    rows: &'a [Row],
) -> impl Iterator<Item = String> + 'a {
    let count = judged.len();
    let too_few = (count < required.expectations as usize).then(|| {
        let all = machine.expectations.len();
        format!("{count} of {all} expectations were judged; [coverage] asks for {}", required.expectations)
    });
    let judged_rows = || rows.iter().filter(|row| row.decision.is_some());
    let is_judged = move |collective| judged.iter().any(|index| machine.expectations[*index].collective == collective);
    let calls =
        required.collectives.iter().filter(move |collective| !is_judged(**collective)).map(|name| name.to_string());
    let sizes = required
        .bytes
        .iter()
        .filter(move |bytes| !judged_rows().any(|row| row.bytes_total == **bytes))
        .map(|bytes| bytes.to_string());
    let spans = required
        .nodes
        .iter()
        .filter(move |nodes| !judged_rows().any(|row| row.locality.nodes_spanned == **nodes))
        .map(|nodes| format!("groups over {nodes} {}", if *nodes == 1 { "node" } else { "nodes" }));
    let missing: Vec<String> = calls.chain(sizes).chain(spans).collect();
    let not_judged =
        (!missing.is_empty()).then(|| format!("nothing was judged of {}; [coverage] asks for it", missing.join(", ")));
    too_few.into_iter().chain(not_judged)
}
