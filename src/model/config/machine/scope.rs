//! Which runs a machine file judges, and what a run must cover before it can pass.
//!
//! Without them a run on other hardware, or one that measured a single call, could pass as the machine.

use crate::config::document::{Item, Table};
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;

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
    /// Words of device names, of which every rank's device must have one, such as `H100 80GB HBM3`; the case of letters and
    /// what stands between the words do not matter. Empty where devices do not matter.
    pub devices: Vec<String>,
    /// The same of processor names.
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
