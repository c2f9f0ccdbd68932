//! The late rank: the one that arrived last in a clear majority of the samples of isolated cases.

use super::super::loaded_record::LoadedRecord;
use super::document::SuspectKind;
use super::explain::Finding;
use super::places::Places;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::low_median;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{ClockMethod, Outcome};
use std::collections::BTreeMap;

/// Share of the samples in which a rank must be last; of two ranks one is last in half of them by chance.
const CLEAR_MAJORITY: f64 = 0.6;
const CLEAR_MAJORITY_OF_TWO: f64 = 0.8;
/// Lateness below this share of the time of the call is ignored.
const MIN_LATENESS_SHARE: f64 = 0.1;

/// Result of the search for a late rank.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Isolated cases with samples.
    pub cases: u32,
    /// True where the clocks of a record were not synchronised, so that no late rank can be named from it.
    pub no_clock: bool,
    /// The late rank and its median lateness.
    pub late: Option<(Finding, Seconds)>,
}

/// Searches the isolated cases of all records for a late rank.
pub(super) fn arrivals(records: &[LoadedRecord], places: &Places) -> Arrivals {
    let mut found = Arrivals::default();
    let mut spreads: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    let mut transfers = Vec::new();
    let (mut samples, mut residual) = (0usize, 0u64);
    for LoadedRecord { record, .. } in records {
        let isolated = record.plan.cases.iter().filter(|facts| facts.cadence == Cadence::Isolated).count() as u32;
        if isolated == 0 {
            continue;
        }
        found.cases += isolated;
        if record.clocks.is_empty() || record.clocks.iter().any(|clock| clock.method != ClockMethod::Synchronised) {
            found.no_clock = true;
            continue;
        }
        residual = residual.max(record.clocks.iter().map(|clock| clock.residual_nanoseconds).max().unwrap_or(0));
        for line in record.cases.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. })) {
            let (last, spread_of) = (&line.samples.last_rank, &line.samples.arrival_spread_nanoseconds);
            let arrivals =
                line.samples.valid().filter_map(|index| Some((index, last.get(index)?, spread_of.get(index)?)));
            for (index, rank, spread) in arrivals {
                // The two arrivals may be off by what the clocks of their devices may.
                let error = line.samples.arrival_error_nanoseconds(index);
                spreads.entry(*rank).or_default().push([*spread as f64, error as f64]);
                samples += 1;
            }
            transfers.extend(line.samples.transfer_nanoseconds.iter().map(|time| *time as f64));
        }
    }
    let Some((rank, times)) = spreads.into_iter().max_by_key(|(_, times)| times.len()) else { return found };
    let share = times.len() as f64 / samples as f64;
    let low = |of: fn(&[f64; 2]) -> f64| low_median(times.iter().map(of)).unwrap_or(0.0);
    let (spread, certain) = (low(|[spread, _]| *spread), low(|[spread, error]| spread - error));
    let call = low_median(transfers).unwrap_or(0.0);
    let majority = if places.node_of.len() > 2 { CLEAR_MAJORITY } else { CLEAR_MAJORITY_OF_TWO };
    let agreement = residual as f64 + low(|[_, error]| *error);
    let least = agreement.max(MIN_LATENESS_SHARE * call).max(1.0);
    if share > majority && spread > least && certain > residual as f64 {
        let node = places.node_of.get(rank as usize).copied().unwrap_or(0);
        let late = Seconds(spread * 1e-9);
        let evidence = format!(
            "arrivals: last in {:.0} % of {samples} common starts, {late} after the first (median); the clocks agree to {}",
            100.0 * share,
            Seconds(agreement * 1e-9)
        );
        let suspect = SuspectKind::LateRank { rank, node };
        found.late = Some((
            Finding { suspect, slower: 0.0, strength: spread / least, intermittent: false, inside: false, evidence },
            late,
        ));
    }
    found
}
