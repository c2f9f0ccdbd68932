//! Rows that share an expectation, and what is learned of their replicates.

use commgauge_base::collective::{Collective, Placement};
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use std::collections::BTreeMap;

/// Minimum number of replicates for a quantile.
pub(super) const MIN_REPLICATES: usize = 5;
/// The share of replicates of a healthy machine that may lie below the floor.
const QUANTILE: f64 = 0.05;

/// The rows that share one expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub collective: Collective,
    /// Ranks, ranks per node, nodes, groups per node.
    pub group: [u32; 4],
    pub cadence: Cadence,
    pub placement: Placement,
    pub element_type: &'static str,
    pub variant: BTreeMap<String, String>,
    pub bytes: u64,
}

/// The replicates of a kind: for each run, those it measured. A bus bandwidth in bytes per second, or a time in seconds.
#[derive(Default)]
pub(super) struct Values {
    pub is_rate: bool,
    pub of_run: BTreeMap<usize, Vec<f64>>,
}

/// Value and tolerance of the expectation; none with too few replicates.
pub(super) fn expectation(values: &Values, least_tolerance: f64) -> Option<(f64, f64)> {
    let all = sorted(values.of_run.values().flatten().copied());
    if all.len() < MIN_REPLICATES {
        return None;
    }
    let middle = median(&all)?;
    let medians = sorted(values.of_run.values().filter_map(|run| median(&sorted(run.iter().copied()))));
    // The k-th smallest of n leaves less than k/n below it; with few values that is the smallest.
    let depth = ((QUANTILE * all.len() as f64).floor() as usize).min(all.len() - 1);
    let worst = match values.is_rate {
        true => all[depth].min(*medians.first()?),
        false => all[all.len() - 1 - depth].max(*medians.last()?),
    };
    let spread = if values.is_rate { 1.0 - worst / middle } else { worst / middle - 1.0 };
    // A tenth of a per cent more than the spread, so that rounding takes nothing away.
    let tolerance = ((spread.max(least_tolerance) * 1000.0).ceil() / 1000.0).min(0.9);
    Some((middle, tolerance))
}
