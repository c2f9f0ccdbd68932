//! Differences between two runs that a comparison would mistake for a change in speed.

use super::document::Run;
use commgauge_base::collective::{Collective, Division};
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::sorted;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::{
    CaseFacts, CaseLine, ClockMoment, EndStatus, ForeignTool, Header, Outcome, RankFacts,
};
use commgauge_model::record::{Record, Seal};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// What may differ between two runs, if the user allows it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, strum::IntoStaticStr, strum::EnumString,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Allowed {
    /// Names of the hosts.
    Hosts,
    /// Processors and devices.
    Hardware,
    /// Program, library, transports and kernel.
    Versions,
    /// Variables that configure the library: NCCL_*, OMPI_MCA_*, UCX_* and so on. They select algorithms.
    Environment,
    /// Number of ranks, and which rank runs on which node, on which cores.
    RankMap,
    /// Suite, model and layout, by the hash of their files. Rows that only one run has are skipped.
    Suite,
    /// Sampling: precision, checks, buffers, data seed.
    Settings,
    /// Forced settings of the calls: algorithm, protocol, kind of buffers, thread blocks; further columns of imported tables.
    Labels,
}

/// A fact in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub kind: Allowed,
    pub fact: String,
    pub base: String,
    pub new: String,
}

commgauge_base::error::names!(Allowed);

/// The facts of a run: a value for each kind and name.
pub(super) type Facts = BTreeMap<(Allowed, String), String>;

/// All differences between two runs, by kind.
pub fn differences(base: &LoadedRecord, new: &LoadedRecord) -> Vec<Difference> {
    differences_between(&facts(base), &facts(new))
}

/// As above for collected facts.
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

/// A usage error if two runs differ in a kind of fact that is not allowed.
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
        "{} and {} differ, so a difference in speed would say nothing:\n{}\nIf this is intended, use --allow {}",
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
        text(Settings, "case budget, s", settings.case_budget.0.to_string()),
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

/// The values of each label over the rows; includes `none` if some rows lack it.
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

/// The different values of a fact of the ranks, in order, abbreviated.
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

/// Node and cores of each rank, abbreviated.
fn rank_map(header: &Header) -> String {
    let entries: Vec<String> =
        header.ranks.iter().map(|rank| format!("{}+{}:{}[{}]", rank.rank, rank.ranks, rank.node, rank.cores)).collect();
    shortened(&entries, " ")
}

/// Labels that name versions (`nccl_version`) are versions; the others are forced settings, or come from a table.
fn kind_of_label(name: &str) -> Allowed {
    if name.ends_with("version") { Allowed::Versions } else { Allowed::Labels }
}

/// The names of rows without the labels that may differ, if they stay distinct.
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

/// The names of the rows without their labels, which are separate facts, hashed; cadence, sizes and layouts are parts of names.
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

// Replicates with identical times: one log imported under two names, or copied lines. They count as one.

/// In fewer rows two measurements may agree to the last digit by chance, as other tools print few digits.
pub(super) const FEWEST_ROWS: u32 = 4;

/// The times of a replicate, whatever the order of its rows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Times {
    rows: u32,
    sum_of_hashes: u64,
}

/// A sentence for the first two replicates of the records that are copies of each other. A simulation without noise repeats itself, so it
/// is exempt.
pub(super) fn copies<'a>(records: impl IntoIterator<Item = &'a LoadedRecord>) -> Option<String> {
    let mut seen: HashMap<Times, String> = HashMap::new();
    for LoadedRecord { path, record } in records.into_iter().filter(|loaded| !loaded.record.header.backend.synthetic) {
        let mut times_of: HashMap<u32, Times> = HashMap::new();
        let cases = record.cases.iter().map(|line| {
            (Cow::Borrowed(&*line.name), line.replicate, &line.outcome, line.samples.slowest_nanoseconds.as_slice())
        });
        let copies = record.copies.iter().map(|line| {
            (Cow::Owned(line.copy.row_name()), line.replicate, &line.outcome, line.slowest_nanoseconds.as_slice())
        });
        let products = record.products.iter().map(|line| {
            (Cow::Owned(line.product.row_name()), line.replicate, &line.outcome, line.slowest_nanoseconds.as_slice())
        });
        let all = cases.chain(copies).chain(products);
        for (name, replicate, _, nanoseconds) in
            all.filter(|(_, _, outcome, _)| matches!(outcome, Outcome::Measured { .. }))
        {
            let mut hasher = DefaultHasher::new();
            (name, nanoseconds).hash(&mut hasher);
            let times = times_of.entry(replicate).or_default();
            times.rows += 1;
            times.sum_of_hashes = times.sum_of_hashes.wrapping_add(hasher.finish());
        }
        let mut of_record: Vec<(u32, Times)> =
            times_of.into_iter().filter(|(_, times)| times.rows >= FEWEST_ROWS).collect();
        of_record.sort_unstable_by_key(|(replicate, _)| *replicate);
        for (replicate, times) in of_record {
            let place = format!("replicate {replicate} of {}", path.shown());
            if let Some(twin) = seen.get(&times) {
                return Some(format!(
                    "{twin} and {place} have the same times in all {} rows: a copy is not a replicate",
                    times.rows
                ));
            }
            seen.insert(times, place);
        }
    }
    None
}

// A record and its source file.

/// A record and its source file.
#[derive(Clone, Debug)]
pub struct LoadedRecord {
    /// The file, for messages.
    pub path: PathBuf,
    pub record: Record,
}

impl LoadedRecord {
    /// # Errors
    /// As [`Record::read`].
    pub fn read(path: &Path) -> Result<LoadedRecord> {
        Ok(LoadedRecord { path: path.to_owned(), record: Record::read(path)? })
    }

    pub(super) fn run(&self, role: &str) -> Run {
        let header = &self.record.header;
        Run {
            role: role.to_owned(),
            path: self.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            backend: header.backend.name.clone(),
            library: header.backend.library.clone(),
            world_size: header.world_size,
            synthetic: header.backend.synthetic,
            measured_by: header.backend.measured_by.map(ForeignTool::label),
        }
    }
}

// The rule of a comparison.

/// Thresholds of a comparison.
#[derive(Clone, Debug)]
pub struct CompareRule {
    pub false_alarm_level: f64,
    /// The smallest relevant slowdown, as a share.
    pub relevant_slowdown: f64,
    /// Differences between the runs that are accepted.
    pub allowed: Vec<Allowed>,
}

// What prevents a record as a whole from passing: how its run ended, missing data, and contradictions.

/// Warnings about a record as a whole, each with its exit code.
pub(super) fn problems_of(record: &Record) -> Vec<(i32, String)> {
    let mut found: Vec<(i32, String)> = record.file.warnings.iter().map(|warning| (7, warning.clone())).collect();
    match &record.end {
        None => {
            if record.file.warnings.is_empty() {
                found.push((7, "the record has no end line".to_owned()));
            }
        }
        Some(end) => {
            let how = match end.status {
                EndStatus::Complete => "the run failed",
                EndStatus::Interrupted => "the run was interrupted",
                EndStatus::Failed => "the run failed",
                EndStatus::OutOfTime => "the run stopped before its time limit",
            };
            let code = if (4..=7).contains(&end.exit_code) { end.exit_code } else { 7 };
            if end.status != EndStatus::Complete || end.exit_code != 0 {
                let why = end.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
                found.push((code, format!("{how}{why}")));
            }
        }
    }
    match record.file.seal {
        Seal::Absent if record.end.is_some() => {
            found.push((3, "the record has no digest, so changes after it was written would not show".to_owned()))
        }
        Seal::Unsealed(_) => found.extend(record.file.seal.note().map(|note| (3, note))),
        Seal::Whole | Seal::EndOnly | Seal::Absent | Seal::Broken(_) => {}
    }
    // The clocks and the plan of another tool are unknown.
    let is_foreign = record.header.backend.measured_by.is_some();
    for (moment, name) in [(ClockMoment::Start, "start"), (ClockMoment::End, "end")] {
        if !is_foreign && !record.clocks.iter().any(|clock| clock.moment == moment) {
            found.push((7, format!("the record lacks the agreement of the clocks at its {name}")));
        }
    }
    let (cases, replicates) = (record.plan.cases.len() as u64, record.header.settings.fewest_replicates());
    let own_work = record.plan.product_lines;
    if (cases == 0 && own_work == 0) || replicates == 0 {
        found.push((7, "the record plans nothing to measure".to_owned()));
    } else if !is_foreign && record.plan.case_lines != cases.saturating_mul(u64::from(replicates)) {
        found.push((7, "the plan of the record contradicts itself in the number of case lines".to_owned()));
    }
    let measured = (record.products.len() + record.copies.len()) as u64;
    if measured < own_work && record.header.settings.within.is_none() {
        found
            .push((7, format!("{} of {own_work} planned copies and matrix products are missing", own_work - measured)));
    }
    found.extend(shared_host(&record.header.ranks).map(|text| (7, text)));
    found.extend(contradiction(record).map(|text| (7, text)));
    let outcomes = (record.cases.iter().map(|line| &line.outcome))
        .chain(record.replays.iter().map(|replay| &replay.outcome))
        .chain(record.interference.iter().map(|pair| &pair.outcome))
        .chain(record.products.iter().map(|line| &line.outcome))
        .chain(record.copies.iter().map(|line| &line.outcome));
    let (mut corrupt, mut failed) = (0usize, 0usize);
    for outcome in outcomes {
        corrupt += usize::from(outcome.is_wrong());
        failed += usize::from(matches!(outcome, Outcome::Failed { .. }));
    }
    if corrupt > 0 {
        found.push((4, format!("wrong data in {}", counted(corrupt, "measurement"))));
    }
    if failed > 0 {
        found.push((6, format!("{} did not complete", counted(failed, "measurement"))));
    }
    found
}

/// Statements of a record that contradict each other. Another tool may list no ranks, and does not say what it measured exactly.
fn contradiction(record: &Record) -> Option<String> {
    let header = &record.header;
    let of_calls = || record.plan.cases.iter().find_map(|facts| contradiction_of_call(facts, header));
    let is_imported = header.backend.measured_by.is_some();
    let named: u64 = header.ranks.iter().map(|rank| u64::from(rank.ranks)).sum();
    if named != u64::from(header.world_size) && !(is_imported && named == 0) {
        return Some(format!("the record names {named} of its {} ranks", header.world_size));
    }
    if is_imported {
        return of_calls();
    }
    let distinct: BTreeSet<u32> = header.ranks.iter().map(|rank| rank.rank).collect();
    if distinct.len() < header.ranks.len() || distinct.last() >= Some(&header.world_size) {
        return Some(format!("the record lists a rank twice, or one beyond its {} ranks", header.world_size));
    }
    let mut nodes = BTreeMap::new();
    header.ranks.iter().for_each(|facts| *nodes.entry(facts.node).or_default() += facts.ranks);
    let of_plan = || record.plan.cases.iter().find_map(|facts| contradiction_of_plan(facts, &nodes));
    of_calls().or_else(of_plan).or_else(|| record.cases.iter().find_map(|line| contradiction_of_line(line, header)))
}

fn contradiction_of_call(facts: &CaseFacts, header: &Header) -> Option<String> {
    let CaseFacts { name, collective, group_size, groups, bytes_total, bytes_accounted, .. } = facts;
    let (found, factor) = (facts.bus_factor.unwrap_or(0.0), collective.bus_factor(*group_size).unwrap_or(0.0));
    if (found - factor).abs() > 1e-9 {
        return Some(format!("{name} has the bus factor {found}, and {collective} on {group_size} ranks has {factor}"));
    }
    if bytes_accounted != bytes_total && *collective != Collective::AllToAllV {
        return Some(format!("{name} moves {bytes_total}, but its bandwidth counts {bytes_accounted}"));
    }
    let ranks = u64::from(*group_size) * u64::from(*groups);
    (ranks > u64::from(header.world_size))
        .then(|| format!("{name} has {groups} groups of {group_size} ranks, but the run has {}", header.world_size))
}

/// `nodes` has the ranks of each node.
fn contradiction_of_plan(facts: &CaseFacts, nodes: &BTreeMap<u32, u32>) -> Option<String> {
    let CaseFacts { name, collective, transfers_per_call, bytes_total, bytes_per_rank, .. } = facts;
    if *transfers_per_call != collective.transfers_per_call() {
        return Some(format!("{name} counts {transfers_per_call} messages in a call of {collective}"));
    }
    if collective.division() == Division::Whole && bytes_per_rank != bytes_total {
        return Some(format!("{name} has {bytes_total}, but {bytes_per_rank} on a rank"));
    }
    let Locality { nodes_spanned, ranks_per_node, .. } = facts.locality;
    let fits = nodes_spanned as usize <= nodes.len()
        && nodes.values().any(|ranks| *ranks >= ranks_per_node)
        && u64::from(nodes_spanned) * u64::from(ranks_per_node) >= u64::from(facts.group_size);
    (facts.locality != Locality::UNKNOWN && !fits).then(|| {
        let group = facts.group_size;
        format!(
            "{name} has {group} ranks, {ranks_per_node} on each of {nodes_spanned} nodes; the list of ranks differs"
        )
    })
}

fn contradiction_of_line(line: &CaseLine, header: &Header) -> Option<String> {
    let what = match line {
        _ if line.samples.slowest_rank.iter().any(|rank| *rank >= header.world_size) => {
            "names a rank that the run lacks"
        }
        _ if line.outcome == (Outcome::Measured { verified: true }) && !header.settings.verify => {
            "is verified, but nothing was checked in this run"
        }
        _ if is_slower_than_the_slowest(line) => "has a rank that took longer than the slowest",
        _ => return None,
    };
    Some(format!("replicate {} of {} {what}", line.replicate, line.name))
}

/// The slowest rank of a sample takes as long as any other, so that no rank's median, which has three digits, is above theirs.
fn is_slower_than_the_slowest(line: &CaseLine) -> bool {
    let slowest = sorted(line.samples.slowest_nanoseconds.iter().map(|time| *time as f64));
    let of_ranks = line.rank_medians.iter().max().filter(|_| line.samples.excluded.is_empty());
    of_ranks.zip(slowest.get(slowest.len() / 2)).is_some_and(|(rank, slowest)| *rank as f64 > slowest * 1.01)
}

/// Whether two nodes have one name; a run gives such hosts distinct names.
fn shared_host(ranks: &[RankFacts]) -> Option<String> {
    let mut node_of_host = HashMap::new();
    ranks.iter().find_map(|facts| {
        let known = *node_of_host.entry(&facts.host).or_insert(facts.node);
        (known != facts.node).then(|| {
            format!(
                "nodes {known} and {} are both called {}: the placement of ranks is unknown",
                facts.node, facts.host
            )
        })
    })
}

#[cfg(test)]
mod tests {

    use super::super::testing::{lines, loaded};
    use super::*;

    #[test]
    fn copies_are_named_within_a_record_and_between_two_and_chance_is_no_copy() {
        let rows = |more: f64, count: usize| {
            (0..count)
                .map(|row| (0..5).map(|replicate| 100.0 + more + (row * 7 + replicate) as f64).collect())
                .collect::<Vec<Vec<f64>>>()
        };
        let record = |id: &str, rows: &[Vec<f64>]| loaded(&format!("{id}.jsonl"), lines(id, rows));
        assert_eq!(copies(&[record("a", &rows(0.0, 4)), record("b", &rows(0.5, 4))]), None);
        let text = copies(&[record("a", &rows(0.0, 4)), record("b", &rows(0.0, 4))]).expect("a copy");
        assert_eq!(
            text,
            "replicate 0 of a.jsonl and replicate 0 of b.jsonl have the same times in all 4 rows: a copy is not a replicate"
        );
        let mut twice = rows(0.0, 4);
        twice.iter_mut().for_each(|row| row[3] = row[1]);
        assert!(
            copies(&[record("a", &twice)]).expect("a copy").starts_with("replicate 1 of a.jsonl and replicate 3 of")
        );
        twice.truncate(3);
        assert_eq!(copies(&[record("a", &twice)]), None);
    }
}
