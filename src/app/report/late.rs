//! Late ranks: the rank that the others of an isolated case waited for, and for how long.
//!
//! A rank is named only with synchronised clocks, if it is late by more than their residual and what the clocks of devices may be off, and last in a clear majority of
//! the samples. Otherwise no rank is named.

use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseLine, ClockMethod, Outcome};
use std::collections::BTreeMap;

/// The rank that was last in a clear majority of the samples of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// World rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Share of the valid samples in which it arrived last.
    pub share: f64,
    /// From the first rank's arrival to its own, the median of those samples.
    pub spread: Seconds,
}

/// The late rank of a case, from the lines of its replicates.
pub(super) fn late_rank(record: &Record, lines: &[&CaseLine], cadence: Cadence) -> Option<Late> {
    let residual = clock_residual(record)?;
    let mut spreads: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    let mut samples = 0;
    for line in lines {
        let known = !line.samples.last_rank.is_empty() && !line.samples.arrival_spread_nanoseconds.is_empty();
        if cadence != Cadence::Isolated || !known || !matches!(line.outcome, Outcome::Measured { .. }) {
            continue;
        }
        for index in line.samples.valid() {
            let spread = Seconds::from_nanoseconds(line.samples.arrival_spread_nanoseconds[index]);
            let error = Seconds::from_nanoseconds(line.samples.arrival_error_nanoseconds(index));
            spreads.entry(line.samples.last_rank[index]).or_default().push([spread.0, spread.0 - error.0]);
            samples += 1;
        }
    }
    let (rank, times) = spreads.into_iter().max_by_key(|(_, times)| times.len())?;
    let share = times.len() as f64 / f64::from(samples);
    // What is left of each spread beyond what the clocks of the devices may be off in its batch.
    let [spread, certain] = [0, 1].map(|which| median(&sorted(times.iter().map(|time| time[which]))));
    let (spread, certain) = (Seconds(spread?), Seconds(certain?));
    let named = share > clear_majority(record.header.world_size) && certain.0 > residual.0;
    named.then(|| Late { rank, host: host_of(record, rank), share, spread })
}

/// Of two ranks one is last in half of the samples by chance, so the threshold is higher.
fn clear_majority(world_size: u32) -> f64 {
    if world_size > 2 { 0.6 } else { 0.8 }
}

/// The largest residual of the clocks; `None` where they were not synchronised or have no entry.
fn clock_residual(record: &Record) -> Option<Seconds> {
    if record.clocks.iter().any(|clock| clock.method != ClockMethod::Synchronised) {
        return None;
    }
    record.clocks.iter().map(|clock| clock.residual_nanoseconds).max().map(Seconds::from_nanoseconds)
}

/// The host of a rank, by the rank map of the record.
pub(crate) fn host_of(record: &Record, rank: u32) -> String {
    let holds = |first: u32, ranks: u32| rank >= first && u64::from(rank) < u64::from(first) + u64::from(ranks);
    let entry = record.header.ranks.iter().find(|entry| holds(entry.rank, entry.ranks));
    entry.map_or_else(|| "unknown host".to_owned(), |entry| entry.host.clone())
}

/// One sentence for every late rank, over all cases in which it was late.
pub(super) fn findings<'a>(late: impl Iterator<Item = (&'a str, &'a Late)>, isolated_cases: usize) -> Vec<String> {
    let mut by_rank: BTreeMap<u32, Vec<LateCase>> = BTreeMap::new();
    for (case, late) in late {
        by_rank.entry(late.rank).or_default().push(LateCase { case, late });
    }
    by_rank.into_values().filter_map(|cases| sentence(&cases, isolated_cases)).collect()
}

/// A case in which a rank was late.
struct LateCase<'a> {
    /// Its name.
    case: &'a str,
    late: &'a Late,
}

fn sentence(cases: &[LateCase], isolated_cases: usize) -> Option<String> {
    let by_spread = |a: &&LateCase, b: &&LateCase| a.late.spread.0.total_cmp(&b.late.spread.0);
    let least = cases.iter().min_by(by_spread)?.late;
    let LateCase { case: worst_case, late: worst } = cases.iter().max_by(by_spread)?;
    let share = 100.0 * cases.iter().map(|case| case.late.share).fold(1.0, f64::min);
    let subject = format!("rank {} (host {}) arrived last in", worst.rank, worst.host);
    let (least, most) = (least.spread.to_string(), worst.spread.to_string());
    let spread = if least == most { most } else { format!("{least} to {most}") };
    Some(match cases.len() {
        1 => format!("{subject} {share:.0} % of the samples of {worst_case}, {spread} after the first (median)"),
        some => format!(
            "{subject} at least {share:.0} % of the samples of {some} of {isolated_cases} isolated cases, {spread} after the \
             first (medians); latest in {worst_case}"
        ),
    })
}
