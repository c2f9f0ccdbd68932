//! Provenance of the numbers for readers: label and text, in display order.
//!
//! It must suffice to repeat the measurement.

use super::row::{Row, in_words};
use super::template::{lines, prose};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Seconds, counted};
use commgauge_base::visible::quote;
use commgauge_base::writing::grouped;
use commgauge_judge::verdict::TransientSlowdown;
use commgauge_model::config::is_embedded;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseLine, ClockLine, ClockMethod, End, EndStatus, Header, RankFacts, StopReason};
use minijinja::value::Serde;
use minijinja::{Value, context};
use std::collections::{BTreeSet, HashSet};

/// Label and text of every fact of a header.
pub(super) fn of(header: &Header) -> Vec<(&'static str, String)> {
    let known: Value = Serde(header).into();
    let said = |part: &str| said(part, header, known.clone());
    let mut facts = vec![
        ("run", format!("{}, started {}", header.run_id, header.started())),
        ("program", said("program")),
        ("backend", said("backend")),
        ("ranks", ranks(header)),
    ];
    if !header.ranks.is_empty() {
        facts.push(("processor", distinct(&header.ranks, |rank| &rank.processor)));
        facts.push(("kernel", distinct(&header.ranks, |rank| &rank.kernel)));
    }
    let devices: BTreeSet<&str> = header.ranks.iter().filter_map(|rank| rank.device.as_deref()).collect();
    if !devices.is_empty() {
        facts.push(("devices", devices.into_iter().collect::<Vec<_>>().join(", ")));
    }
    if header.ranks.iter().any(|rank| !rank.adapters.is_empty()) {
        facts.push(("adapters", adapters(&header.ranks)));
    }
    facts.push(("suite", said("suite")));
    facts.push(("measuring", said("measuring")));
    let is_of_user = |name: &str| header.launch_command.is_none() || !SET_BY_LAUNCHER.contains(&name);
    let variables = header.environment.iter().filter(|(name, _)| is_of_user(name));
    let variables: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
    if !variables.is_empty() {
        facts.push(("variables", variables.join(" ")));
    }
    facts.extend(header.notes.iter().map(|note| ("note", note.clone())));
    let command = header.launch_command.as_ref().unwrap_or(&header.command_line);
    facts.push(("command", command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")));
    facts
}

/// What Open MPI sets for the `--bind-to` and `--oversubscribe` of the command that is shown.
const SET_BY_LAUNCHER: [&str; 2] = ["OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_oversubscribe"];

/// What the library carried data over, where its log says so.
pub(super) fn carried(record: &Record) -> Option<(&'static str, String)> {
    record.meanwhile.library_use.as_ref().map(|used| ("carried over", used.phrases().join(" / ")))
}

/// Which adapters are nearest to the device of each rank: ranks of the same place on their hosts mostly have the same, and stand together.
fn adapters(ranks: &[RankFacts]) -> String {
    let named = |rank: &RankFacts| {
        let names = if rank.adapters.is_empty() { "none".to_owned() } else { rank.adapters.join(" or ") };
        let device = rank.device.as_deref().and_then(|device| device.split(", ").nth(1)).unwrap_or_default();
        let one =
            format!("rank {}{}", rank.rank, if device.is_empty() { String::new() } else { format!(" ({device})") });
        (names, one)
    };
    let by_adapters = grouped(ranks.iter().map(named));
    let line = |(names, ranks): &(String, Vec<String>)| {
        let more = ranks.len().saturating_sub(MOST_RANKS_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}: {names}", ranks[..ranks.len().min(MOST_RANKS_LISTED)].join(", "))
    };
    format!("nearest to the GPUs: {}", by_adapters.iter().map(line).collect::<Vec<_>>().join("; "))
}

/// Of ranks with the same adapters.
const MOST_RANKS_LISTED: usize = 4;

/// The text of a fact some of whose parts are not always known.
fn said(part: &str, header: &Header, known: Value) -> String {
    let embedded = header.suite.path.as_deref().is_some_and(is_embedded);
    let (buffers, calls) = (header.buffers(), header.settings.fixed_calls());
    let context = context! { part, embedded, buffers, calls, ..known };
    prose("facts.txt", include_str!("templates/facts.txt"), context)
}

fn ranks(header: &Header) -> String {
    if header.ranks.is_empty() {
        return format!("up to {}; where they ran is not known", header.world_size);
    }
    let mut hosts: Vec<(&str, u64)> = Vec::new();
    for entry in &header.ranks {
        if let Some((_, ranks)) = hosts.iter_mut().find(|(host, _)| *host == entry.host) {
            *ranks += u64::from(entry.ranks);
        } else if hosts.len() < SHOWN_HOSTS {
            hosts.push((&entry.host, u64::from(entry.ranks)));
        }
    }
    let nodes = header.ranks.iter().map(|entry| entry.node).collect::<BTreeSet<_>>().len();
    let shown: Vec<String> = hosts.iter().map(|(host, ranks)| format!("{host}: {ranks}")).collect();
    let more = if nodes > SHOWN_HOSTS { ", ..." } else { "" };
    let (ranks, hosts) = (counted(header.world_size as usize, "rank"), counted(nodes, "host"));
    format!("{ranks} on {hosts} ({}{more})", shown.join(", "))
}

/// Maximum number of hosts that are listed by name.
const SHOWN_HOSTS: usize = 8;

fn distinct(ranks: &[RankFacts], fact: fn(&RankFacts) -> &String) -> String {
    let distinct: BTreeSet<&str> = ranks.iter().map(|rank| fact(rank).as_str()).collect();
    let shown: Vec<&str> = distinct.iter().copied().take(SHOWN_HOSTS).collect();
    shown.join("; ") + if distinct.len() > SHOWN_HOSTS { "; ..." } else { "" }
}

// Warnings about the numbers of a run, as sentences: its end, the machine, the clocks, excluded samples.

/// How a run ended other than complete.
pub(super) fn ending_of(end: &End) -> Option<String> {
    let how = match end.status {
        EndStatus::Complete => return None,
        EndStatus::Failed => "failed",
        EndStatus::Interrupted => "was interrupted",
        EndStatus::OutOfTime => "stopped before its time limit",
    };
    let why = end.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
    Some(format!("the run {how}{why}"))
}

/// All warnings except the reasons of single rows: end of the run, machine, clocks, excluded samples.
pub(super) fn warnings_of(record: &Record, rows: &[Row]) -> Vec<String> {
    let mut warnings = record.file.warnings.clone();
    warnings.extend(record.end.as_ref().and_then(ending_of));
    warnings.extend(record.header.warnings.iter().cloned());
    warnings.extend(clock_warning(&record.clocks, rows));
    let incomplete = rows.iter().filter(|row| row.is_incomplete()).map(|row| {
        let text = format!("{} of {} replicates measured", row.counts.replicates, row.counts.replicates_planned);
        CaseSentence { case: in_words(&row.facts), text }
    });
    let warned = rows.iter().flat_map(|row| {
        row.warnings.iter().map(|text| CaseSentence { case: in_words(&row.facts), text: text.clone() })
    });
    warnings.extend(gathered(incomplete.chain(warned)));
    warnings.extend(dropped_samples(rows));
    warnings.extend(not_precise(record, rows));
    let seconds = |line: &CaseLine| {
        let row = rows.get(line.case as usize)?;
        row.latency_seconds_of_replicate.get(&(line.replicate as usize)).copied()
    };
    warnings.extend(TransientSlowdown::of(record, seconds).map(|found| found.text));
    warnings
}

/// A sentence about one case.
struct CaseSentence {
    /// The case, in words.
    case: String,
    text: String,
}

/// Sentences about single cases, grouped by kind: those that differ only in numbers are listed once, with the numbers of the
/// first and the number of cases.
fn gathered(sentences: impl Iterator<Item = CaseSentence>) -> Vec<String> {
    let kind = |sentence: &CaseSentence| sentence.text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let of_kind = |(_, all): (String, Vec<CaseSentence>)| {
        let CaseSentence { case, text } = &all[0];
        match all.iter().map(|sentence| &sentence.case).collect::<HashSet<_>>().len() {
            1 => format!("{case}: {text}"),
            cases => format!("{cases} cases, the first {case}: {text}"),
        }
    };
    grouped(sentences.map(|sentence| (kind(&sentence), sentence))).into_iter().map(of_kind).collect()
}

/// The rows that did not reach the requested precision within the shared time budget.
fn not_precise(record: &Record, rows: &[Row]) -> Option<String> {
    let settings = &record.header.settings;
    let within = settings.within.filter(|_| !settings.soak)?;
    let wide = rows.iter().filter(|row| row.is_less_precise_than_requested());
    let names: HashSet<&str> = wide.map(|row| row.facts.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let is_full = |line: &CaseLine| line.stop == Some(StopReason::MaximumSamples) && names.contains(&*line.name);
    let full: HashSet<&str> = record.cases.iter().filter(|line| is_full(line)).map(|line| &*line.name).collect();
    warning(
        "not precise",
        context! {
            wide => names.len(), rows => rows.len(), full => full.len(), precision => settings.precision, within => within.0,
            maximum_samples => settings.maximum_samples,
            elapsed => record.end.as_ref().map_or(within, |end| end.elapsed_seconds).0,
        },
    )
}

/// The number of excluded samples over all cases.
fn dropped_samples(rows: &[Row]) -> Option<String> {
    let all = |row: &Row| row.counts.samples + row.counts.samples_excluded;
    let share = |row: &Row| row.counts.samples_excluded as f64 / all(row).max(1) as f64;
    let dropped = || rows.iter().filter(|row| row.counts.samples_excluded > 0);
    let worst = dropped().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    warning(
        "dropped samples",
        context! {
            name => in_words(&worst.facts), excluded => worst.counts.samples_excluded, samples => all(worst),
            cases => dropped().count(), excluded_of_all => dropped().map(|row| row.counts.samples_excluded).sum::<u64>(),
        },
    )
}

/// A warning of the template about the numbers of a run.
fn warning(kind: &str, facts: Value) -> Option<String> {
    lines("warnings.txt", include_str!("templates/warnings.txt"), context! { kind, ..facts }).pop()
}

fn clock_warning(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    if !rows.iter().any(|row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0) {
        return None;
    }
    if clocks.is_empty() {
        return Some("the record has no data about the clocks, so no rank is named as late".to_owned());
    }
    if clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        return Some(AFTER_A_BARRIER.to_owned());
    }
    clock_remark(clocks, rows)
}

pub(super) const AFTER_A_BARRIER: &str =
    "isolated samples started after a barrier, not on a common clock; no rank is named as late";

/// How well the clocks agree, where there are several and they do.
pub(super) fn clock_remark(clocks: &[ClockLine], rows: &[Row]) -> Option<String> {
    let is_of_several =
        |row: &Row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0 && row.facts.group_size > 1;
    let isolated = rows.iter().any(is_of_several);
    if !isolated || clocks.iter().any(|clock| clock.method == ClockMethod::Barrier) {
        return None;
    }
    let residual = Seconds::from_nanoseconds(clocks.iter().map(|clock| clock.residual_nanoseconds).max()?);
    Some(format!("the ranks' clocks agree to {residual}; no smaller difference between ranks is reported"))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_adapters_of_each_gpu_are_named_and_ranks_with_the_same_ones_are_grouped() {
        let rank = |rank: u32, pci: &str, adapters: &[&str]| RankFacts {
            rank,
            device: Some(format!("H100, {pci}, GPU-{rank}")),
            adapters: adapters.iter().map(|name| (*name).to_owned()).collect(),
            ..commgauge_model::record::header::rank_facts(rank)
        };
        let mut ranks = vec![
            rank(0, "0000:03:00.0", &["mlx5_0 (same PCIe switch)"]),
            rank(1, "0000:83:00.0", &["mlx5_2", "mlx5_3"]),
        ];
        ranks.extend((2..8).map(|number| rank(number, "0000:03:00.0", &["mlx5_0 (same PCIe switch)"])));
        ranks.push(rank(8, "0000:c3:00.0", &[]));
        assert_eq!(
            adapters(&ranks),
            "nearest to the GPUs: rank 0 (0000:03:00.0), rank 2 (0000:03:00.0), rank 3 (0000:03:00.0), rank 4 (0000:03:00.0) and 3 more: \
             mlx5_0 (same PCIe switch); rank 1 (0000:83:00.0): mlx5_2 or mlx5_3; rank 8 (0000:c3:00.0): none"
        );
    }
}
