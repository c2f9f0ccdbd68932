//! Differences between two runs that a comparison would mistake for a change of speed.

use super::loaded_record::LoadedRecord;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::line::{CaseFacts, ForeignTool, Header, RankFacts};
use std::collections::{BTreeMap, BTreeSet};

/// What may differ between two runs, if the user says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Allowed {
    /// Names of the hosts.
    Hosts,
    /// Processors and devices.
    Hardware,
    /// Program, library, transports and kernel.
    Versions,
    /// Variables that steer the library: NCCL_*, OMPI_MCA_*, UCX_* and such. Algorithms are chosen there.
    Environment,
    /// Number of ranks, and which rank lies on which node, on which cores.
    RankMap,
    /// Suite, model and layout, by the hash of their files. Rows that only one run has stay out.
    Suite,
    /// How samples are taken: precision, checks, buffers, data seed.
    Settings,
    /// What was forced upon the calls: algorithm, protocol, kind of buffers, thread blocks; further columns of imported tables.
    Labels,
}

/// A fact in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What kind it is.
    pub kind: Allowed,
    /// Which fact.
    pub fact: String,
    /// Its value in the first run.
    pub base: String,
    /// Its value in the second.
    pub new: String,
}

impl Allowed {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Allowed::Hosts => "hosts",
            Allowed::Hardware => "hardware",
            Allowed::Versions => "versions",
            Allowed::Environment => "environment",
            Allowed::RankMap => "rank-map",
            Allowed::Suite => "suite",
            Allowed::Settings => "settings",
            Allowed::Labels => "labels",
        }
    }
}

/// The facts of a run: a value for each kind and name.
pub(super) type Facts = BTreeMap<(Allowed, String), String>;

/// Everything in which two runs differ, by kind.
pub fn differences(base: &LoadedRecord, new: &LoadedRecord) -> Vec<Difference> {
    differences_between(&facts(base), &facts(new))
}

/// The same for facts that were collected before.
pub(super) fn differences_between(old_facts: &Facts, new_facts: &Facts) -> Vec<Difference> {
    let names: BTreeSet<&(Allowed, String)> = old_facts.keys().chain(new_facts.keys()).collect();
    let value =
        |facts: &Facts, name: &(Allowed, String)| facts.get(name).cloned().unwrap_or_else(|| "not set".to_owned());
    names
        .into_iter()
        .map(|name| Difference {
            kind: name.0,
            fact: name.1.clone(),
            base: value(old_facts, name),
            new: value(new_facts, name),
        })
        .filter(|difference| difference.base != difference.new)
        .collect()
}

/// A usage error where two runs differ in a kind of fact that is not allowed.
pub(super) fn ensure_alike(base: &LoadedRecord, new: &LoadedRecord, allowed: &[Allowed]) -> Result<()> {
    let unlike: Vec<Difference> =
        differences(base, new).into_iter().filter(|difference| !allowed.contains(&difference.kind)).collect();
    if unlike.is_empty() {
        return Ok(());
    }
    let kinds: BTreeSet<Allowed> = unlike.iter().map(|difference| difference.kind).collect();
    let kinds: Vec<&str> = kinds.into_iter().map(Allowed::name).collect();
    let lines: Vec<String> = unlike
        .iter()
        .map(|difference| {
            let Difference { kind, fact, base, new } = difference;
            format!("  {} ({fact}): {base:?} and {new:?}", kind.name())
        })
        .collect();
    Err(Error::usage(format!(
        "{} and {} are not alike, so a difference in speed would say nothing:\n{}\nIf that is intended, use --allow {}",
        base.path.shown(),
        new.path.shown(),
        lines.join("\n"),
        kinds.join(",")
    )))
}

/// The facts of a run.
pub(super) fn facts(loaded: &LoadedRecord) -> Facts {
    use Allowed::*;
    let header = &loaded.record.header;
    let settings = &header.settings;
    let ranks = &header.ranks;
    let text = |kind, name: &str, value: String| ((kind, name.to_owned()), value);
    let mut facts = BTreeMap::from([
        text(Hosts, "hosts", hosts(header)),
        text(Hardware, "processors", distinct(ranks, |rank| rank.processor.clone())),
        text(Hardware, "devices", distinct(ranks, |rank| rank.device.clone().unwrap_or_default())),
        text(Versions, "backend", header.backend.name.clone()),
        text(Versions, "synthetic", header.backend.synthetic.to_string()),
        text(Versions, "measured by", header.backend.measured_by.map_or("commgauge", ForeignTool::name).to_owned()),
        text(Versions, "library", header.backend.library.clone()),
        text(Versions, "transport", header.backend.transport.clone().unwrap_or_default()),
        text(Versions, "program", format!("{} {}", header.program, header.program_version)),
        text(Versions, "program's SHA-256", header.program_sha256.clone()),
        text(Versions, "kernels", distinct(ranks, |rank| rank.kernel.clone())),
        text(RankMap, "ranks", header.world_size.to_string()),
        text(RankMap, "rank map", rank_map(header)),
        text(Suite, "SHA-256", header.suite.sha256.clone()),
        text(Suite, "layout", header.suite.layout.clone().unwrap_or_default()),
        text(Suite, "rows", rows(loaded)),
        text(Settings, "precision", settings.precision.to_string()),
        text(Settings, "samples", format!("{} to {}", settings.minimum_samples, settings.maximum_samples)),
        text(Settings, "case budget, s", settings.case_budget_seconds.0.to_string()),
        text(Settings, "warm buffers", settings.warm_buffers.to_string()),
        text(Settings, "start", settings.start.to_string()),
        text(Settings, "timing", settings.timing.to_string()),
        text(Settings, "verify", settings.verify.to_string()),
        text(Settings, "machine file", header.backend.machine.clone().unwrap_or_default()),
    ]);
    // Scheduler variables differ from job to job and do not affect the measurement.
    let steering = header.environment.iter().filter(|(name, _)| !name.starts_with("SLURM_"));
    facts.extend(steering.map(|(name, value)| ((Environment, name.clone()), value.clone())));
    facts.extend(labels(loaded).into_iter().map(|(name, values)| ((kind_of_label(name), name.to_owned()), values)));
    facts
}

/// The values of each label over the rows; `none` among them where some rows go without it.
fn labels(loaded: &LoadedRecord) -> BTreeMap<&str, String> {
    let cases = &loaded.record.plan.cases;
    let mut values: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for (name, value) in cases.iter().flat_map(|case| &case.labels) {
        let (rows, seen) = values.entry(name).or_default();
        *rows += 1;
        seen.insert(value);
    }
    let pairs = values.into_iter().map(|(name, (rows, seen))| {
        let without = (rows < cases.len()).then_some("none");
        (name, without.into_iter().chain(seen).collect::<Vec<_>>().join(", "))
    });
    pairs.collect()
}

/// The hosts of a run.
pub(super) fn hosts(header: &Header) -> String {
    distinct(&header.ranks, |rank| rank.host.clone())
}

/// The different values of a fact of the ranks, in order, in short.
fn distinct(ranks: &[RankFacts], fact: impl Fn(&RankFacts) -> String) -> String {
    let values: BTreeSet<String> = ranks.iter().map(fact).collect();
    shortened(&values.into_iter().collect::<Vec<_>>(), ", ")
}

/// All values if there are few; else the first ones, their number, and a hash of all.
fn shortened(values: &[String], between: &str) -> String {
    let whole = values.join(between);
    match values.len() {
        ..=8 => whole,
        many => format!("{} ... ({many}, {})", values[..4].join(between), &commgauge_base::digest::sha256(whole)[..12]),
    }
}

/// Node and cores of each rank, in short.
fn rank_map(header: &Header) -> String {
    let entries: Vec<String> =
        header.ranks.iter().map(|rank| format!("{}+{}:{}[{}]", rank.rank, rank.ranks, rank.node, rank.cores)).collect();
    shortened(&entries, " ")
}

/// Labels that name versions (`nccl_version`) are versions; the others were forced upon the calls, or come from a table.
fn kind_of_label(name: &str) -> Allowed {
    if name.ends_with("version") { Allowed::Versions } else { Allowed::Labels }
}

/// The names of rows without the labels that may differ, where that leaves them distinct.
pub(super) fn identities<'a>(cases: impl Iterator<Item = &'a CaseFacts> + Clone, allowed: &[Allowed]) -> Vec<String> {
    let names: Vec<String> = cases.clone().map(|facts| identity(facts, allowed)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let unique = names.iter().zip(cases).map(|(name, facts)| match counts[name.as_str()] {
        1 => name.clone(),
        _ => facts.name.clone(),
    });
    unique.collect()
}

/// The name of a row without the labels that may differ.
fn identity(facts: &CaseFacts, allowed: &[Allowed]) -> String {
    let mut parts: Vec<&str> = facts.name.split('/').collect();
    for (name, value) in facts.labels.iter().filter(|(name, _)| allowed.contains(&kind_of_label(name))) {
        let name = name.as_str();
        let spelled = [
            value.clone(),
            format!("{name}={value}"),
            format!("{}-{value}", name.replace('_', "-")),
            value.replace(':', "-"),
        ];
        if let Some(at) = parts.iter().rposition(|part| spelled.iter().any(|text| text == part)) {
            parts.remove(at);
        }
    }
    parts.join("/")
}

/// The names of the rows without their labels, which are facts of their own, hashed; cadence, sizes and layouts are parts of names.
fn rows(loaded: &LoadedRecord) -> String {
    let cases = &loaded.record.plan.cases;
    let names = identities(cases.iter(), &[Allowed::Versions, Allowed::Labels]);
    format!("{} rows ({})", cases.len(), &commgauge_base::digest::sha256(names.join("\n"))[..12])
}

/// Checks that records can be replicates of each other: no run is given twice, and the runs are comparable.
///
/// # Errors
/// A usage error that names the records, and the `--allow` flag that would accept them.
pub fn ensure_comparable(records: &[&LoadedRecord], allowed: &[Allowed]) -> Result<()> {
    let Some((first, others)) = records.split_first() else { return Err(Error::usage("name at least one record")) };
    for (index, other) in records.iter().enumerate() {
        let id = &other.record.header.run_id;
        if let Some(twin) = records[..index].iter().find(|twin| twin.record.header.run_id == *id) {
            let (a, b) = (twin.path.shown(), other.path.shown());
            return Err(Error::usage(format!("{a} and {b} are the same run ({id}); it counts once")));
        }
    }
    for other in others {
        ensure_alike(first, other, allowed)?;
    }
    Ok(())
}
