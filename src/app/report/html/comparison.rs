//! The comparison with the base, row by row with intervals.

use super::input::HtmlInput;
use super::verdict::without_many_passes;
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Unit, xy};
use crate::report::document::{Block, Figure};
use crate::report::verdict::{curves, rows_on_page};
use commgauge_analysis::verdict::{Decision, Row, Verdict};
use commgauge_base::stats::Interval;
use commgauge_base::units::Bytes;
use std::collections::BTreeMap;

/// Maximum number of kinds of calls with a colour of their own.
const MAX_SERIES: usize = 6;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let Some(verdict) = input.comparison else {
        return vec![Block::absent(
            "Not requested: `commgauge report RECORD --base EARLIER -o report.html` compares with an earlier run.",
        )];
    };
    let mut blocks =
        vec![Block::list(&verdict.rule), Block::Charts(vec![Figure::new("Slow-down", plot(verdict).draw())])];
    blocks.extend(curves(&verdict.curves));
    let all: Vec<&Row> = verdict.rows.iter().collect();
    let (shown, note) = without_many_passes(&all);
    let title = "Rows against the base, the worst first";
    blocks.push(Block::Table(rows_on_page(verdict.question, title, &shown, &note).folded()));
    blocks
}

fn plot(verdict: &Verdict) -> Plot {
    let mut y = Axis::linear("slower by (+) than the base", Unit::Percent);
    y.range = None;
    let mut plot = Plot::new("Slow-down against the base", Axis::log("bytes_total", Unit::Bytes), y);
    plot.description =
        "Share by which each row is slower than in the base, with its interval; above zero is slower.".into();
    plot.width = 560.0;
    let mut kinds: BTreeMap<String, Vec<(Bytes, &Row)>> = BTreeMap::new();
    for row in verdict.rows.iter().filter(|row| row.against_base.is_some()) {
        let cadence = row.subject.call().map_or_else(String::new, |call| format!(" {}", call.cadence));
        // A product has no size to draw it at.
        if let Some(bytes) = row.subject.bytes() {
            kinds.entry(format!("{}{cadence}", row.subject.what())).or_default().push((bytes, row));
        }
    }
    let mut ends: Option<(f64, f64)> = None;
    let all = kinds.len();
    for (name, rows) in kinds.into_iter().take(MAX_SERIES) {
        let mut series = Series::new(name);
        for (bytes, row) in rows {
            let Some(against) = &row.against_base else { continue };
            let Some(middle) = against.slowdown else { continue };
            let bounds = against.slowdown_lower_bound.zip(against.slowdown_upper_bound);
            let x = bytes.0 as f64;
            let (low, high) = ends.unwrap_or((x, x));
            ends = Some((low.min(x), high.max(x)));
            let interval = bounds.map(|(low, high)| Interval { low: 100.0 * low, high: 100.0 * high });
            let crossed = row.decision == Some(Decision::Fail);
            series.points.push(Point { interval, crossed, ..Point::at(x, 100.0 * middle) });
        }
        plot.series.push(series);
    }
    if all > MAX_SERIES {
        plot.description += &format!(" {MAX_SERIES} of {all} kinds of calls are drawn.");
    }
    if let Some((low, high)) = ends {
        let points = vec![xy(low, 0.0), xy(high, 0.0)];
        plot.lines.push(Line { name: "as the base".into(), kind: LineKind::Plain, points });
    }
    plot
}
