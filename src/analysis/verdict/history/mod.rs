//! Runs over time: which rows changed, between which two runs, by how much, and what else changed there.
//!
//! `change` finds the change points, `gather` groups runs and extracts their medians. Records that cannot be read or are
//! synthetic, and unreliable rows, are left out and listed.

mod change;
mod dates;
mod document;
mod gather;
mod run_medians;

pub use document::{Change, Event, FORMAT, History, LeftOut, Lineage, Series, SeriesRun, VERSION};
pub use gather::HistoryInput;
pub use run_medians::{RowKey, RunFacts, RunMedians};

use super::most_severe;
use super::percent::percent;
use rayon::prelude::*;

/// Thresholds of a change.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRule {
    /// Upper bound on the probability of any false alarm over all rows of a lineage.
    pub false_alarm_level: f64,
    /// The smallest relevant step, as a share.
    pub relevant: f64,
}

/// The changes of every row over the runs.
pub fn history(input: HistoryInput, rule: HistoryRule) -> History {
    let (mut lineages, left_out) = input.into_lineages();
    let orders = find_changes(&mut lineages, rule);
    let mut exit_codes: Vec<i32> = Vec::new();
    if lineages.iter().flat_map(|lineage| &lineage.rows).any(|row| row.slower_since().is_some()) {
        exit_codes.push(1);
    }
    if !lineages.iter().flat_map(|lineage| &lineage.rows).any(Series::can_show_change) {
        exit_codes.push(3);
    }
    // Where it stands among the others is unknown, and so is what came before a change.
    if lineages.iter().flat_map(|lineage| &lineage.runs).any(|run| dates::time(&run.started_at).is_none()) {
        exit_codes.push(3);
    }
    History {
        format: FORMAT.to_owned(),
        version: VERSION,
        exit_code: most_severe(exit_codes),
        rule: rules(rule, orders),
        lineages,
        left_out,
    }
}

/// Finds the changes of all lineages, on all processors, as long ones take seconds. Returns the fewest orders of runs that were drawn.
fn find_changes(lineages: &mut [Lineage], rule: HistoryRule) -> usize {
    lineages.par_iter_mut().map(|lineage| find_changes_of(lineage, rule)).min().unwrap_or(1)
}

fn find_changes_of(lineage: &mut Lineage, rule: HistoryRule) -> usize {
    let logarithms: Vec<Vec<Option<f64>>> = (lineage.rows.iter())
        .map(|row| row.latency_seconds.iter().map(|seconds| seconds.map(f64::ln)).collect())
        .collect();
    let changes = change::changes(&logarithms, rule.false_alarm_level, rule.relevant.ln_1p());
    for ((row, points), logarithms) in lineage.rows.iter_mut().zip(&changes.rows).zip(&logarithms) {
        row.changes = changes_of_row(logarithms, points);
    }
    lineage.events = events(lineage);
    changes.orders
}

fn changes_of_row(row: &[Option<f64>], points: &[change::ChangePoint]) -> Vec<Change> {
    let starts: Vec<usize> = points.iter().map(|point| point.run).collect();
    let segments = change::segments(row.len(), &starts);
    let middle = |segment: usize| change::middle(row, segments.get(segment)?.clone());
    (points.iter().enumerate())
        .filter_map(|(index, point)| {
            let (before, after) = (middle(index)?, middle(index + 1)?);
            Some(Change {
                run: point.run as u32,
                latency_seconds_before: before.exp(),
                latency_seconds_after: after.exp(),
                slowdown: (after - before).exp_m1(),
                p_corrected: point.p_corrected,
            })
        })
        .collect()
}

/// The changes of all rows, by the run at which they begin.
fn events(lineage: &Lineage) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for run in 1..lineage.runs.len() as u32 {
        let of_run = || lineage.rows.iter().flat_map(|row| &row.changes).filter(|change| change.run == run);
        let (slower, faster) =
            (of_run().filter(|c| c.slowdown > 0.0).count(), of_run().filter(|c| c.slowdown <= 0.0).count());
        if slower + faster > 0 {
            let mut steps: Vec<f64> = of_run().map(|change| change.slowdown).collect();
            steps.sort_by(f64::total_cmp);
            events.push(Event {
                run,
                rows_slower: slower as u32,
                rows_faster: faster as u32,
                slowdown_least: steps[0],
                slowdown_most: steps[steps.len() - 1],
            });
        }
    }
    events
}

fn rules(rule: HistoryRule, orders: usize) -> Vec<String> {
    vec![
        format!(
            "a row changes where a stretch of its runs lies farther from the others than any stretch of any row does in {} of \
             random orders of the runs, and the step is at least {}",
            percent(1.0 - rule.false_alarm_level),
            percent(rule.relevant)
        ),
        format!(
            "at least {} runs stand on each side of a change, so the newest {} cannot show one yet (commgauge compare can); {} \
             orders, always the same",
            change::MIN_RUNS,
            change::MIN_RUNS - 1,
            orders
        ),
        "a run counts as the median of its replicates; missing, wrong, unverified and unreliable rows stay out"
            .to_owned(),
        "runs are taken to be exchangeable where nothing changed; a machine that drifts slowly shows steps too"
            .to_owned(),
    ]
}
