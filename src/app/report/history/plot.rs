//! A picture of each row over its runs: the medians, the level between changes, and the changes.

use super::shown::ShownRows;
use crate::chart::{Axis, Change, Plot, Point, Position, Series, Svg, Unit, xy};
use crate::report::document::signed_percent;
use crate::report::text::visible;
use commgauge_analysis::verdict::history::{History, Lineage, Series as Row};
use commgauge_base::units::counted;

/// Maximum number of ticks.
const MAX_TICKS: usize = 6;

/// A picture of each row, with a name for its file.
pub fn plots(history: &History, shown: ShownRows) -> Vec<(String, Svg)> {
    let mut pictures = Vec::new();
    for (number, lineage) in history.lineages.iter().enumerate() {
        for row in lineage.rows.iter().filter(|row| shown.has(row)) {
            let plain: String = row
                .name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
                .collect();
            pictures
                .push((format!("{}-{}-{plain}.svg", number + 1, pictures.len() + 1), picture(lineage, row, &row.name)));
        }
    }
    pictures
}

/// The picture of a row that is called so.
pub(super) fn picture(lineage: &Lineage, row: &Row, name: &str) -> Svg {
    let mut x = Axis::linear("run", Unit::Count);
    x.ticks = ticks(lineage);
    let mut measured = Series::new("median of a run");
    let points = row.latency_seconds.iter().enumerate();
    measured.points = points.filter_map(|(run, seconds)| Some(Point::at(run as f64, (*seconds)?))).collect();
    let mut level = Series::new("level between changes");
    level.stepped = true;
    level.curve = levels(row);
    let changes = row
        .changes
        .iter()
        .map(|change| Change { x: f64::from(change.run) - 0.5, label: signed_percent(change.slowdown) });
    let mut y = Axis::linear("latency", Unit::Seconds);
    y.range = range(row);
    let plot = Plot {
        description: format!(
            "Latency of {} over {}, with {}.",
            visible(name),
            counted(lineage.runs.len(), "run"),
            counted(row.changes.len(), "change")
        ),
        series: vec![measured, level],
        changes: changes.collect(),
        width: 640.0,
        ..Plot::new(visible(name), x, y)
    };
    plot.draw()
}

/// Range around the values, not from zero, so that a change of 10 % is visible.
fn range(row: &Row) -> Option<(f64, f64)> {
    let values = || row.latency_seconds.iter().flatten().copied();
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let room = (0.4 * (high - low)).max(0.05 * high);
    Some(((low - room).max(0.0), high + room))
}

/// The level between changes, as the corners of a step curve.
fn levels(row: &Row) -> Vec<Position> {
    let last = row.latency_seconds.len().saturating_sub(1) as f64;
    let (Some(first), Some(newest)) = (row.changes.first(), row.changes.last()) else { return Vec::new() };
    let mut corners = vec![xy(0.0, first.latency_seconds_before)];
    let after = row.changes.iter().map(|change| xy(f64::from(change.run) - 0.5, change.latency_seconds_after));
    corners.extend(after);
    corners.push(xy(last, newest.latency_seconds_after));
    corners
}

/// Dates at some of the runs; the recorded text where it is not a date.
fn ticks(lineage: &Lineage) -> Vec<(f64, String)> {
    let runs = lineage.runs.len();
    let every = runs.div_ceil(MAX_TICKS).max(1);
    let label = |text: &str| visible(text.get(..10).unwrap_or(text));
    (0..runs).step_by(every).map(|run| (run as f64, label(&lineage.runs[run].started_at))).collect()
}
