//! The learned machine file: the given links, the runs that it judges, and an expectation for every kind of row.

use super::comparability::LoadedRecord;
use super::document::Subject;
use super::evidence::Evidence;
use super::expected::variant;
use super::{Allowed, Metric};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{depth_of_bound, median, proportion_interval, sorted, student_quantile};
use commgauge_base::units::{Bytes, Rate, Seconds, three_digits};
use commgauge_model::config::machine::{
    ExpectCopyTable, ExpectProductTable, ExpectTable, ExpectTables, ExpectedGroup, Figure, JudgedRuns,
    RequiredCoverage, Sizes,
};
use commgauge_model::config::{Each, Machine, Text, rounded_rate, rounded_time};
use commgauge_model::record::work_lines::{CopyShape, ProductShape};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Options of learning expectations.
#[derive(Clone, Debug)]
pub struct LearnRule {
    /// Name of the machine.
    pub name: String,
    /// Minimum tolerance, as a share.
    pub least_tolerance: f64,
    /// True if switches reduce, so that values above the bound of the links are accepted.
    pub in_network: bool,
    /// Accepted differences between the runs, in addition to their hosts.
    pub allowed: Vec<Allowed>,
}

/// A learned machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The text of the machine file.
    pub text: String,
    pub expectations: usize,
    /// Excluded rows with the reasons, as sentences.
    pub left_out: Vec<String>,
}

/// The machine file of the reliable kinds; kinds with too few replicates are added to `left_out`.
pub(super) fn write(
    records: &[LoadedRecord],
    kinds: &BTreeMap<Kind, Values>,
    mut left_out: Vec<String>,
    links: &Machine,
    rule: &LearnRule,
) -> Result<Learned> {
    let mut tables = ExpectTables::default();
    let mut expectations = 0;
    let rows = judged_rows(kinds, records.len());
    for (kind, values) in kinds {
        let LearnedFigure { value, tolerance } = match expectation(values, rows, rule.least_tolerance) {
            Ok(expected) => expected,
            Err(why) => {
                left_out.push(format!("{}: {why}", describe(kind)));
                continue;
            }
        };
        let bound = bound(kind, links);
        let above = values.is_rate && bound.is_some_and(|bound| value > bound.0);
        if let (true, Some(bound), false) = (above, bound, rule.in_network) {
            return Err(Error::usage(format!(
                "{} reached {}, more than the {bound} that the links allow; correct the links, or use --in-network if the switches themselves reduce or copy",
                describe(kind),
                Rate(value)
            )));
        }
        expectations += 1;
        let entry = Entry {
            value,
            is_rate: values.is_rate,
            tolerance,
            in_network: above,
            source: source(records),
            date: newest(records),
            version: records.first().map(|loaded| loaded.record.header.backend.library.clone()),
            note: Some(format!("{} replicates", values.count())),
        };
        entry.add(kind, &mut tables);
    }
    if expectations == 0 {
        let why = left_out
            .first()
            .map_or("no row has groups of several ranks, and there is no copy and no product", String::as_str);
        return Err(Error::usage(format!("nothing could be learned: {why}; {} rows were excluded", left_out.len())));
    }
    // Requires a later run to cover all learned expectations.
    let coverage = RequiredCoverage { expectations: expectations as u32, ..RequiredCoverage::default() };
    let machine = Machine {
        name: rule.name.clone(),
        node_like: None,
        faults: Vec::new(),
        judged_runs: judged_runs(records),
        required_coverage: Some(coverage),
        expect: tables.expect,
        expect_network: Vec::new(),
        expect_copy: tables.expect_copy,
        expect_product: tables.expect_product,
        ..links.clone()
    };
    let text = head(records, rule) + &machine.to_toml()?;
    // The text is parsed again, so that a gate never refuses a learned file.
    Machine::parse(&text, Path::new(&format!("{}.toml", rule.name)))?;
    Ok(Learned { text, expectations, left_out })
}

/// Rows that are judged together, in the run with the most.
fn judged_rows(kinds: &BTreeMap<Kind, Values>, runs: usize) -> usize {
    let of_run = |run: usize| kinds.values().filter_map(|values| values.of_run.get(&run)).map(Vec::len).sum();
    (0..runs).map(of_run).max().unwrap_or(0)
}

/// The bound of the links; none for work that a rank does alone.
fn bound(kind: &Kind, links: &Machine) -> Option<Rate> {
    let Kind::Call(CallKind { collective, group, .. }) = kind else { return None };
    links.bus_bandwidth_bound(*collective, group.nodes, group.ranks_per_node, group.groups_per_node)
}

/// What a table says besides its subject.
#[derive(Default)]
struct Entry {
    /// In bytes or operations per second, or in seconds.
    value: f64,
    is_rate: bool,
    tolerance: f64,
    in_network: bool,
    source: String,
    date: String,
    version: Option<String>,
    note: Option<String>,
}

impl Entry {
    fn add(self, kind: &Kind, tables: &mut ExpectTables) {
        let Entry { value, is_rate, tolerance, in_network, source, date, version, note } = self;
        let tolerance = Some(tolerance);
        match kind {
            Kind::Call(CallKind { collective, group, cadence, placement, element_type, variant, bytes }) => {
                tables.expect.push(ExpectTable {
                    collective: *collective,
                    bytes: (*collective != Collective::Barrier).then_some(Sizes(*bytes, *bytes)),
                    ranks: group.ranks,
                    ranks_per_node: Some(group.ranks_per_node),
                    nodes: Some(group.nodes),
                    groups_per_node: Some(group.groups_per_node),
                    cadence: *cadence,
                    placement: *placement,
                    element_type: element_type.map(Text),
                    value: Some(Text(match is_rate {
                        true => Figure::Rate(rounded_rate(Rate(value))),
                        false => Figure::Time(rounded_time(Seconds(value))),
                    })),
                    tolerance,
                    in_network,
                    source,
                    date,
                    version,
                    note,
                    variant: variant.clone(),
                    ..ExpectTable::default()
                });
            }
            Kind::Copy(CopyShape { kind, host_memory, peer_distance, bytes, alone }) => {
                tables.expect_copy.push(ExpectCopyTable {
                    kind: *kind,
                    bytes: Sizes(*bytes, *bytes),
                    host_memory: *host_memory,
                    peer_distance: *peer_distance,
                    each: Some(if *alone { Each::Alone } else { Each::Together }),
                    value: rounded_rate(Rate(value)),
                    tolerance,
                    source,
                    date,
                    version,
                    note,
                });
            }
            Kind::Product { shape: [m, n, k], element_type } => tables.expect_product.push(ExpectProductTable {
                m: *m,
                n: *n,
                k: *k,
                element_type: Some(Text(*element_type)),
                tflops: (value / 1e3).round() / 1e9,
                tolerance,
                source,
                date,
                version,
                note,
            }),
        }
    }
}

/// The comment above the file.
fn head(records: &[LoadedRecord], rule: &LearnRule) -> String {
    let hosts: BTreeSet<&str> =
        records.iter().flat_map(|loaded| loaded.record.header.ranks.iter().map(|rank| rank.host.as_str())).collect();
    format!(
        "# Learned from {} runs on {} hosts. Each value is the median of the replicates of all runs. Its tolerance reaches as far\n\
         # as a run like these needs to pass as a whole in {} % of cases, at least to the slowest of them, and is at least {} %.\n",
        records.len(),
        hosts.len(),
        PASSES * 100.0,
        rule.least_tolerance * 100.0,
    )
}

/// The runs that the file judges: runs like these. Another tool's records name no commgauge backend.
fn judged_runs(records: &[LoadedRecord]) -> Option<JudgedRuns> {
    let headers = || records.iter().map(|loaded| &loaded.record.header);
    let backends: BTreeSet<&str> =
        headers().map(|header| header.backend.name.as_str()).filter(|name| ["mpi", "nccl"].contains(name)).collect();
    let backend = *backends.first().filter(|_| backends.len() == 1)?;
    let ranks = || headers().flat_map(|header| &header.ranks);
    let names = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    let mut judged = JudgedRuns {
        backend: backend.to_owned(),
        warm_buffers: headers().all(|header| header.settings.warm_buffers),
        ..JudgedRuns::default()
    };
    let devices: BTreeSet<&str> = ranks().filter_map(|rank| rank.device.as_deref()).collect();
    if !devices.is_empty() && ranks().all(|rank| rank.device.is_some()) {
        judged.devices = names(devices);
        let mut of_node: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for (run, header) in headers().enumerate() {
            header.ranks.iter().for_each(|rank| *of_node.entry((run, rank.node)).or_default() += rank.ranks);
        }
        let sizes: BTreeSet<u32> = of_node.into_values().collect();
        judged.devices_per_node = sizes.first().copied().filter(|_| sizes.len() == 1);
    } else if backend == "mpi" {
        let processors: BTreeSet<&str> = ranks().map(|rank| rank.processor.as_str()).collect();
        if processors.iter().all(|name| name.chars().any(|c| c.is_ascii_alphanumeric())) {
            judged.processors = names(processors);
        }
    }
    Some(judged)
}

fn source(records: &[LoadedRecord]) -> String {
    let ids: Vec<&str> = records.iter().take(3).map(|loaded| loaded.record.header.run_id.as_str()).collect();
    let more = records.len().saturating_sub(ids.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("learned from the runs {}{more}", ids.join(", "))
}

/// The date of the newest run; 1970-01-01 if no record has a valid date.
fn newest(records: &[LoadedRecord]) -> String {
    let day = |loaded: &LoadedRecord| {
        let text = loaded.record.header.started_at.get(..10)?.to_owned();
        text.parse::<jiff::civil::Date>().is_ok().then_some(text)
    };
    records.iter().filter_map(day).max().unwrap_or_else(|| "1970-01-01".to_owned())
}

fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Call(CallKind { collective, group, cadence, bytes, .. }) => {
            format!("{collective} of {} B on {} ranks, {cadence}", bytes.0, group.ranks)
        }
        Kind::Copy(copy) => copy.row_name(),
        Kind::Product { shape: [m, n, k], element_type } => {
            format!("product of {m} x {k} by {k} x {n} in {element_type}")
        }
    }
}

// A template of expectations for rows without any, invalid until it is filled in.

/// TOML for a machine file; `None` if every row has an expectation. Groups of one rank have no expectations.
pub(super) fn of(cases: &[Evidence], about: &[Vec<usize>]) -> Option<String> {
    let is_alone = |case: &Evidence| case.subject.call().is_some_and(|call| call.group_size <= 1);
    let bare = cases.iter().zip(about).filter(|(case, about)| about.is_empty() && !is_alone(case));
    let mut seen = BTreeSet::new();
    let mut template = |(case, _): (&Evidence, &Vec<usize>)| {
        let mut kind = Kind::of(case.subject);
        // What is said of a call holds for any.
        if let Kind::Call(call) = &mut kind {
            (call.placement, call.element_type) = (None, None);
        }
        seen.insert(kind.clone()).then(|| unfilled(case, &kind)).flatten()
    };
    let texts: Vec<String> = bare.filter_map(&mut template).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The part before the expectations in the file of a new machine. The name is reduced to safe characters.
pub(super) fn machine_head(name: &str, ranks_per_node: u32) -> String {
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).take(60).collect();
    format!(include_str!("machine_head.txt"), name = name, ranks_per_node = ranks_per_node.max(1))
}

/// The table of a kind: only names and numbers of the plan, so that the file contains no foreign text. A comment with what the row
/// reached takes the place of the figure.
fn unfilled(case: &Evidence, kind: &Kind) -> Option<String> {
    let measured = median(&case.measured());
    let count = case.seconds.iter().flatten().count();
    let rate = case.subject.rate();
    let what = match rate.map(|rate| rate.metric) {
        Some(Metric::BusBandwidthBytesPerSecond) => "a bus bandwidth",
        Some(Metric::CopyBytesPerSecond) => "the rate of the slowest rank in each direction",
        Some(Metric::FlopsPerSecond) => "a number, of 10^12 operations a second of the slowest rank",
        Some(Metric::LatencySeconds) | None => "a time",
    };
    let here = measured.map(|time| match rate {
        Some(rate) if rate.metric == Metric::FlopsPerSecond => three_digits(rate.amount / time * 1e-12),
        Some(rate) => Rate(rate.amount / time).to_string(),
        None => Seconds(time).to_string(),
    });
    let shown = match here {
        None => "not measured here".to_owned(),
        Some(here) => format!("{what}; here {here} over {count} replicates, which does not show what is good"),
    };
    let blank = Entry { value: 1.0, is_rate: true, tolerance: 0.05, ..Entry::default() };
    let mut tables = ExpectTables::default();
    blank.add(kind, &mut tables);
    let line = |line: &str| match line.split_once(" = ") {
        Some((key @ ("value" | "tflops"), _)) => format!("{key} = \"\" # {shown}\n"),
        _ => format!("{line}\n"),
    };
    Some(tables.to_toml().ok()?.lines().map(line).collect())
}

// Rows that share an expectation, and the value learned from their replicates.

/// Minimum number of replicates for a quantile.
const MIN_REPLICATES: usize = 5;

/// Share of a healthy machine's replicates that may be below the floor.
const QUANTILE: f64 = 0.05;

/// A row that may fall behind by more is not a requirement.
const MOST_TOLERANCE: f64 = 0.5;

/// The rows that share one expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Call(CallKind),
    Copy(CopyShape),
    Product {
        /// m, n and k.
        shape: [u64; 3],
        element_type: ElementType,
    },
}

/// Calls that share one expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKind {
    pub collective: Collective,
    pub group: ExpectedGroup,
    pub cadence: Cadence,
    pub placement: Option<Placement>,
    pub element_type: Option<ElementType>,
    pub variant: BTreeMap<String, String>,
    pub bytes: Bytes,
}

impl Kind {
    pub fn of(subject: Subject) -> Kind {
        match subject {
            Subject::Call(facts) => Kind::Call(CallKind {
                collective: facts.collective,
                group: facts.locality.group(facts.group_size),
                cadence: facts.cadence,
                placement: Some(facts.placement),
                element_type: Some(facts.element_type),
                variant: variant(facts),
                bytes: facts.bytes_total,
            }),
            Subject::Copy(copy) => Kind::Copy(*copy),
            Subject::Product(ProductShape { m, n, k, element_type, .. }) => {
                Kind::Product { shape: [*m, *n, *k], element_type: *element_type }
            }
        }
    }
}

/// The replicates of a kind: by run and row, as a run may have several rows of one kind, such as the rounds of pairs. A rate in bytes or
/// operations per second, or a time in seconds.
#[derive(Default)]
pub(super) struct Values {
    pub is_rate: bool,
    pub of_run: BTreeMap<usize, Vec<Vec<f64>>>,
}

impl Values {
    /// Replicates of all rows of all runs.
    pub fn count(&self) -> usize {
        self.of_run.values().flatten().map(Vec::len).sum()
    }
}

/// The expectation of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LearnedFigure {
    /// The median, as a rate in bytes or operations per second or a time in seconds.
    pub value: f64,
    /// The share by which a run may be slower.
    pub tolerance: f64,
}

/// The expectation of a kind, one of this many rows that are judged together.
///
/// # Errors
/// If there are too few replicates, or the scatter would pass everything.
pub(super) fn expectation(
    values: &Values,
    rows: usize,
    least_tolerance: f64,
) -> std::result::Result<LearnedFigure, String> {
    let all = sorted(values.of_run.values().flatten().flatten().copied());
    let Some(middle) = median(&all).filter(|_| all.len() >= MIN_REPLICATES) else {
        return Err(format!("{} replicates, at least {MIN_REPLICATES} are needed", all.len()));
    };
    let medians = sorted(values.of_run.values().flatten().filter_map(|row| median(&sorted(row.iter().copied()))));
    // The k-th smallest of n leaves less than k/n below it; with few values that is the smallest.
    let depth = ((QUANTILE * all.len() as f64).floor() as usize).min(all.len() - 1);
    let behind = |value: f64| if values.is_rate { 1.0 - value / middle } else { value / middle - 1.0 };
    let (quantile, slowest_row, worse_half) = match values.is_rate {
        true => (all[depth], medians.first(), &all[..all.len() / 2]),
        false => (all[all.len() - 1 - depth], medians.last(), &all[all.len().div_ceil(2)..]),
    };
    let slowest_row = slowest_row.copied().unwrap_or(middle);
    let worse_half: Vec<f64> = worse_half.iter().map(|value| behind(*value)).collect();
    let replicates = values.of_run.values().flatten().map(Vec::len).min().unwrap_or(0);
    let reach = reach(&worse_half, JudgedRows { rows, replicates }).unwrap_or(0.0);
    let spread = behind(quantile).max(behind(slowest_row)).max(reach);
    // A tenth of a per cent more than the spread, so that rounding never makes it smaller.
    let tolerance = (spread.max(least_tolerance) * 1000.0).ceil() / 1000.0;
    if tolerance > MOST_TOLERANCE {
        return Err(format!(
            "scatters so much that a run {:.0} % slower would pass; learn from more runs, or from quieter ones",
            (tolerance * 100.0).min(100.0)
        ));
    }
    Ok(LearnedFigure { value: middle, tolerance })
}

// How far a healthy run may fall behind the learned median, so that a run like those learned from passes as a whole.
//
// A row of n replicates passes if the d-th worst of them meets the limit (see [`median_bounds`](commgauge_base::stats::median_bounds)). All
// of R rows should pass with probability [`PASSES`]: in each, at least d of n may miss the limit with a probability of at most (1 - PASSES)
// / R (Bonferroni), which gives the probability for one replicate. The limit is that quantile of a normal distribution with the scatter of
// the worse half of the learned values, the side of the limit. Scatter and median were estimated, from N replicates, and the new run
// differs from them too: Student's quantile times sqrt(1 + pi / 2N) (as G. J. Hahn, "Factors for calculating two-sided prediction
// intervals", J. Am. Stat. Assoc. 64, 1969, with the median in place of the mean). With a quarter of N as degrees of freedom simulated runs
// pass as often as is asked for; with all of the worse half, in 85 of 100 cases.

/// The probability with which a run like those learned from passes as a whole.
pub(super) const PASSES: f64 = 0.95;

/// The default confidence of a gate's bounds.
const LEVEL: f64 = 0.95;

/// The runs that will be judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRows {
    /// Rows that are judged together.
    pub rows: usize,
    /// Replicates of a row.
    pub replicates: usize,
}

/// The reach, as a share of the median, from the shares by which the worse half of the replicates falls behind it. `None` if a run has too
/// few replicates to be judged.
pub(super) fn reach(behind: &[f64], runs: JudgedRows) -> Option<f64> {
    let depth = depth_of_bound(runs.replicates, LEVEL)?;
    let missing = (1.0 - PASSES) / runs.rows.max(1) as f64;
    let of_one = chance_of_one(runs.replicates, depth, missing);
    let scatter = (behind.iter().map(|share| share * share).sum::<f64>() / behind.len().max(1) as f64).sqrt();
    let count = 2.0 * behind.len() as f64;
    let median_is_estimated = (1.0 + std::f64::consts::FRAC_PI_2 / count).sqrt();
    Some(scatter * student_quantile(of_one, count / 4.0) * median_is_estimated)
}

/// The probability of one replicate with which at least `depth` of `count` occur with the probability `together`: where the interval of
/// Clopper and Pearson for this many hits begins.
fn chance_of_one(count: usize, depth: usize, together: f64) -> f64 {
    proportion_interval(depth as u64, count as u64, 1.0 - 2.0 * together).low
}

#[cfg(test)]
mod tests {

    use super::*;
    use super::{Values, expectation};
    use commgauge_base::random::{normal, split_mix};
    use commgauge_base::stats::{median_bounds, sorted};

    #[test]
    fn chances_and_quantiles_are_those_of_the_tables() {
        for (count, at_least, chance, tail) in
            [(9, 2, 0.5, 502.0 / 512.0), (5, 1, 0.1, 0.40951), (20, 3, 0.05, 0.075_483_67)]
        {
            assert!((chance_of_one(count, at_least, tail) - chance).abs() < 1e-7, "{count}, {at_least}, {chance}");
        }
        assert!((chance_of_one(5, 1, 0.40951) - 0.1).abs() < 1e-9);
        // Tables of t: 2.650 and 3.012 with 13 degrees of freedom, 3.747 with 4.
        for (probability, degrees, quantile) in [(0.01, 13.0, 2.650), (0.005, 13.0, 3.012), (0.01, 4.0, 3.747)] {
            let found = student_quantile(probability, degrees);
            assert!((found / quantile - 1.0).abs() < 0.01, "{probability}, {degrees}: {found}");
        }
    }

    #[test]
    fn runs_of_too_few_replicates_have_no_reach() {
        assert!(reach(&[0.01; 4], JudgedRows { rows: 3, replicates: 4 }).is_none());
    }

    /// Rates of one run: a deviation shared by all its rows, and one of each replicate, both normal.
    fn run(seed: u64, rows: usize, replicates: usize, shared: f64, own: f64, skewed: bool) -> Vec<Vec<f64>> {
        let deviate = |index: u64| normal([split_mix(seed, 2 * index), split_mix(seed, 2 * index + 1)]);
        let whole = 1.0 + shared * deviate(0);
        let one = |row: usize, replicate: usize| {
            let deviate = deviate(1 + (row * replicates + replicate) as u64);
            // Slow ones are further away than fast ones.
            let deviate = if skewed && deviate < 0.0 { 2.0 * deviate } else { deviate };
            whole * (1.0 + own * deviate)
        };
        (0..rows).map(|row| (0..replicates).map(|replicate| one(row, replicate)).collect()).collect()
    }

    #[test]
    fn nine_of_ten_runs_like_those_learned_from_pass_as_a_whole_and_a_row_that_is_slow_does_not() {
        let (rows, replicates, tries) = (20, 9, 400);
        for (shared, own, skewed, rows_of_kind) in [
            (0.0, 0.02, false, 1),
            (0.0, 0.02, true, 1),
            (0.01, 0.01, false, 1),
            (0.005, 0.02, true, 1),
            (0.0, 0.02, false, 4),
        ] {
            let (mut passed, mut slow_passed) = (0, 0);
            for attempt in 0..tries {
                let healthy: Vec<_> =
                    (0..3).map(|one| run(1000 * attempt + one, rows, replicates, shared, own, skewed)).collect();
                let limit = |row: usize| {
                    let first = row / rows_of_kind * rows_of_kind;
                    let rows_of_run = |rates: &Vec<Vec<f64>>| rates[first..first + rows_of_kind].to_vec();
                    let of_run = healthy.iter().map(rows_of_run).enumerate().collect();
                    let expected = expectation(&Values { is_rate: true, of_run }, rows, 0.02).unwrap();
                    expected.value * (1.0 - expected.tolerance)
                };
                let later = run(1000 * attempt + 999, rows, replicates, shared, own, skewed);
                let clears = |row: usize, factor: f64| {
                    let rates = sorted(later[row].iter().map(|rate| rate * factor));
                    median_bounds(&rates, 0.95).is_some_and(|(lower, _)| lower >= limit(row))
                };
                passed += u64::from((0..rows).all(|row| clears(row, 1.0)));
                slow_passed += u64::from(clears(0, 0.8));
            }
            let label = format!(
                "shared {shared}, own {own}, skewed {skewed}, {rows_of_kind} of a kind: {passed} and {slow_passed} of {tries}"
            );
            assert!(passed * 10 >= tries * 9, "{label}");
            assert!(slow_passed * 100 <= tries, "{label}");
        }
    }
}
