//! The machine file of what was learned: links as they were given, the runs that it judges, and an expectation for every kind of row.

use super::Allowed;
use super::expected::variant_line;
use super::learned_kind::{CallKind, Kind, LearnedFigure, Values, expectation};
use super::learned_reach::PASSES;
use super::loaded_record::LoadedRecord;
use super::own_work_table::{head_of_copy, head_of_product};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::{Machine, toml_string};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Options of learning expectations.
#[derive(Clone, Debug)]
pub struct LearnRule {
    /// Name of the machine.
    pub name: String,
    /// The least tolerance, as a share.
    pub least_tolerance: f64,
    /// True where switches reduce, so that values above the bound of the links are accepted.
    pub in_network: bool,
    /// Differences between the runs that are accepted, besides their hosts.
    pub allowed: Vec<Allowed>,
}

/// A learned machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The text of the machine file.
    pub text: String,
    /// Expectations in it.
    pub expectations: usize,
    /// Rows that were left out, and why, as sentences.
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
    let mut text = head(records, links, rule);
    let mut expectations = 0;
    let rows = judged_rows(kinds, records.len());
    for (kind, values) in kinds {
        let count = values.count();
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
                "{} reached {}, more than the {bound} that the links allow; correct the links, or use --in-network where the \
                 switches themselves reduce or copy",
                describe(kind),
                Rate(value)
            )));
        }
        expectations += 1;
        let value = match kind {
            Kind::Product { .. } => format!("tflops = {:.9}", value * 1e-12),
            _ if values.is_rate => format!("value = \"{}\"", rate_text(value)),
            _ => format!("value = \"{:.4}us\"", value * 1e6),
        };
        let in_network = if above { "in_network = true\n" } else { "" };
        let variant = if let Kind::Call(kind) = kind { variant_line(&kind.variant) } else { String::new() };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{}{value}\ntolerance = {tolerance}\n{in_network}{variant}source = {}\ndate = \"{}\"\nversion = {}\n\
             note = \"{count} replicates\"\n",
            table_head(kind),
            toml_string(&source(records)),
            newest(records),
            toml_string(&records.first().map_or(String::new(), |loaded| loaded.record.header.backend.library.clone())),
        );
    }
    if expectations == 0 {
        let why = left_out
            .first()
            .map_or("there is no row of groups of several ranks, no copy and no product", String::as_str);
        return Err(Error::usage(format!("nothing could be learned: {why}; {} rows were left out", left_out.len())));
    }
    // A later run is to be judged by all that was learned.
    let _ = write!(text, "\n[coverage]\nexpectations = {expectations}\n");
    // The text is parsed again, so that a gate never refuses a learned file.
    Machine::parse(&text, Path::new(&format!("{}.toml", rule.name)))?;
    Ok(Learned { text, expectations, left_out })
}

/// Rows that are judged together, of the run that has most.
fn judged_rows(kinds: &BTreeMap<Kind, Values>, runs: usize) -> usize {
    let of_run = |run: usize| kinds.values().filter_map(|values| values.of_run.get(&run)).map(Vec::len).sum();
    (0..runs).map(of_run).max().unwrap_or(0)
}

/// What the links allow; they carry nothing of what a rank does by itself.
fn bound(kind: &Kind, links: &Machine) -> Option<Rate> {
    let Kind::Call(CallKind { collective, group: [_, per_node, nodes, groups], .. }) = kind else { return None };
    links.bus_bandwidth_bound(*collective, *nodes, *per_node, *groups)
}

/// The table of an expectation, up to its figure.
fn table_head(kind: &Kind) -> String {
    let kind = match kind {
        Kind::Call(kind) => kind,
        Kind::Copy(copy) => return head_of_copy(copy),
        Kind::Product { shape, element_type } => return head_of_product(*shape, element_type),
    };
    let [ranks, per_node, nodes, groups] = kind.group;
    let size = match kind.collective {
        Collective::Barrier => String::new(),
        _ => format!("bytes = \"{}B\"\n", kind.bytes),
    };
    format!(
        "[[expect]]\ncollective = \"{}\"\n{size}ranks = {ranks}\nranks_per_node = {per_node}\nnodes = {nodes}\n\
         groups_per_node = {groups}\ncadence = \"{}\"\nplacement = \"{}\"\nelement_type = \"{}\"\n",
        kind.collective,
        kind.cadence,
        key(kind.placement),
        kind.element_type,
    )
}

/// A unit of a quantity, as a multiple of the base unit.
type Unit = (f64, &'static str);

/// Small messages reach a few kB/s.
const OF_RATES: [Unit; 4] = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")];
const OF_TIMES: [Unit; 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];

/// The largest unit of which the value is at least one, else the smallest.
fn unit_of(value: f64, units: [Unit; 4]) -> Unit {
    units.into_iter().find(|(scale, _)| value >= *scale).unwrap_or(units[3])
}

/// A measured rate, with four decimals.
fn rate_text(bytes_per_second: f64) -> String {
    let (scale, unit) = unit_of(bytes_per_second, OF_RATES);
    format!("{:.4}{unit}", bytes_per_second / scale)
}

/// A figure of a data sheet, without the dust of its conversion.
fn figure_text(value: f64, units: [Unit; 4]) -> String {
    let (scale, unit) = unit_of(value, units);
    format!("{}{unit}", (value / scale * 1e9).round() / 1e9)
}

fn head(records: &[LoadedRecord], links: &Machine, rule: &LearnRule) -> String {
    let hosts: BTreeSet<&str> =
        records.iter().flat_map(|loaded| loaded.record.header.ranks.iter().map(|rank| rank.host.as_str())).collect();
    let (within, between) = (&links.within_node, &links.between_nodes);
    let rate = |rate: Rate| figure_text(rate.0, OF_RATES);
    let time = |time: Seconds| figure_text(time.0, OF_TIMES);
    let assumed = |assumed: bool| if assumed { "assumed = true\n" } else { "" };
    let peer = within.rate_per_peer.map_or(String::new(), |peer| format!("rate_per_peer = \"{}\"\n", rate(peer)));
    let cloud = links.cloud.as_ref().map_or(String::new(), |cloud| format!("cloud = {}\n", toml_string(cloud)));
    format!(
        "# Learned from {} runs on {} hosts. Each value is the median of the replicates of all runs. Its tolerance reaches as far\n\
         # as a run like these needs to pass as a whole in {} % of cases, at least to the slowest of them, and is at least {} %.\n\
         name = {}\n{cloud}ranks_per_node = {}\nhosts_per_node = {}\n\n[within_node]\nlatency = \"{}\"\nrate = \"{}\"\n{peer}{}\n\
         [between_nodes]\nlatency = \"{}\"\nadapters_per_node = {}\nrate_per_adapter = \"{}\"\n{}{}",
        records.len(),
        hosts.len(),
        PASSES * 100.0,
        rule.least_tolerance * 100.0,
        toml_string(&rule.name),
        links.ranks_per_node,
        links.hosts_per_node,
        time(within.latency),
        rate(within.rate),
        assumed(within.assumed),
        time(between.latency),
        between.adapters_per_node,
        rate(between.rate_per_adapter),
        assumed(between.assumed),
        judged_runs(records),
    )
}

/// The table of the runs that the file will judge: such as these. Another tool's records name no backend of ours.
fn judged_runs(records: &[LoadedRecord]) -> String {
    let backends: BTreeSet<&str> = records
        .iter()
        .map(|loaded| loaded.record.header.backend.name.as_str())
        .filter(|name| ["mpi", "nccl"].contains(name))
        .collect();
    let Some(backend) = backends.first().filter(|_| backends.len() == 1) else { return String::new() };
    let headers = || records.iter().map(|loaded| &loaded.record.header);
    let ranks = || headers().flat_map(|header| &header.ranks);
    let quoted = |names: BTreeSet<&str>| names.into_iter().map(toml_string).collect::<Vec<_>>().join(", ");
    let devices: BTreeSet<&str> = ranks().filter_map(|rank| rank.device.as_deref()).collect();
    let mut text = format!("\n[applies_to]\nbackend = \"{backend}\"\n");
    if !devices.is_empty() && ranks().all(|rank| rank.device.is_some()) {
        text += &format!("devices = [{}]\n", quoted(devices));
        let mut of_node: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for (run, loaded) in records.iter().enumerate() {
            loaded
                .record
                .header
                .ranks
                .iter()
                .for_each(|rank| *of_node.entry((run, rank.node)).or_default() += rank.ranks);
        }
        let sizes: BTreeSet<u32> = of_node.into_values().collect();
        if let (Some(size), 1) = (sizes.first(), sizes.len()) {
            text += &format!("devices_per_node = {size}\n");
        }
    } else if *backend == "mpi" {
        let processors: BTreeSet<&str> = ranks().map(|rank| rank.processor.as_str()).collect();
        if processors.iter().all(|name| name.chars().any(|c| c.is_ascii_alphanumeric())) {
            text += &format!("processors = [{}]\n", quoted(processors));
        }
    }
    if headers().all(|header| header.settings.warm_buffers) {
        text += "warm_buffers = true\n";
    }
    text
}

fn source(records: &[LoadedRecord]) -> String {
    let ids: Vec<&str> = records.iter().take(3).map(|loaded| loaded.record.header.run_id.as_str()).collect();
    let more = records.len().saturating_sub(ids.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("learned from the runs {}{more}", ids.join(", "))
}

/// The date of the newest run; 1970-01-01 where no record has a valid date.
fn newest(records: &[LoadedRecord]) -> String {
    let day = |loaded: &LoadedRecord| {
        let text = loaded.record.header.started_at.get(..10)?.to_owned();
        text.parse::<jiff::civil::Date>().is_ok().then_some(text)
    };
    records.iter().filter_map(day).max().unwrap_or_else(|| "1970-01-01".to_owned())
}

fn key(placement: Placement) -> &'static str {
    match placement {
        Placement::InPlace => "in_place",
        Placement::OutOfPlace => "out_of_place",
    }
}

fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Call(CallKind { collective, group, cadence, bytes, .. }) => {
            format!("{collective} of {bytes} B on {} ranks, {cadence}", group[0])
        }
        Kind::Copy(copy) => copy.name(),
        Kind::Product { shape: [m, n, k], element_type } => {
            format!("product of {m} x {k} by {k} x {n} in {element_type}")
        }
    }
}
