//! Rows that share an expectation, and what is learned of their replicates.

use super::learned_reach::{JudgedRuns, reach};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{median, sorted};
use commgauge_model::record::copy_line::CopyFacts;
use std::collections::BTreeMap;

/// Minimum number of replicates for a quantile.
const MIN_REPLICATES: usize = 5;
/// The share of replicates of a healthy machine that may lie below the floor.
const QUANTILE: f64 = 0.05;

/// A row that may fall behind by more is no requirement.
const MOST_TOLERANCE: f64 = 0.5;

/// The rows that share one expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Call(CallKind),
    Copy(CopyFacts),
    Product {
        /// m, n and k.
        shape: [u64; 3],
        element_type: &'static str,
    },
}

/// Calls that share one expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKind {
    pub collective: Collective,
    /// Ranks, ranks per node, nodes, groups per node.
    pub group: [u32; 4],
    pub cadence: Cadence,
    pub placement: Placement,
    pub element_type: &'static str,
    pub variant: BTreeMap<String, String>,
    pub bytes: u64,
}

/// The replicates of a kind: for each run those of each of its rows, as a run may have several of one kind, such as the rounds of pairs. A rate in
/// bytes or operations per second, or a time in seconds.
#[derive(Default)]
pub(super) struct Values {
    pub is_rate: bool,
    pub of_run: BTreeMap<usize, Vec<Vec<f64>>>,
}

impl Values {
    /// Replicates, of all rows of all runs.
    pub fn count(&self) -> usize {
        self.of_run.values().flatten().map(Vec::len).sum()
    }
}

/// What is expected of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LearnedFigure {
    /// The median, as a rate in bytes or operations per second or a time in seconds.
    pub value: f64,
    /// The share by which a run may fall behind it.
    pub tolerance: f64,
}

/// What is expected of a kind, one of so many rows that are judged together.
///
/// # Errors
/// Why nothing can be: too few replicates, or a scatter that would let everything pass.
pub(super) fn expectation(values: &Values, rows: usize, least_tolerance: f64) -> Result<LearnedFigure, String> {
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
    let reach = reach(&worse_half, JudgedRuns { rows, replicates }).unwrap_or(0.0);
    let spread = behind(quantile).max(behind(slowest_row)).max(reach);
    // A tenth of a per cent more than the spread, so that rounding takes nothing away.
    let tolerance = (spread.max(least_tolerance) * 1000.0).ceil() / 1000.0;
    if tolerance > MOST_TOLERANCE {
        return Err(format!(
            "scatters so much that a run {:.0} % behind would pass; learn from more runs, or from quieter ones",
            (tolerance * 100.0).min(100.0)
        ));
    }
    Ok(LearnedFigure { value: middle, tolerance })
}
