//! The comparison with the base, row by row with intervals.

use super::HtmlInput;
use super::page::{Block, Figure, Table};
use super::verdict::tone;
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Unit};
use crate::report::text::signed_percent;
use commgauge_analysis::verdict::{CurvePart, Decision, Row, Verdict};
use commgauge_base::units::{Rate, Seconds, three_digits};
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
        vec![Block::list(&verdict.rule), Block::Charts(vec![Figure::new("Slow-down", &plot(verdict).draw())])];
    if !verdict.curves.is_empty() {
        blocks.push(Block::Table(curves(verdict)));
    }
    blocks.push(Block::Folded(table(verdict)));
    blocks
}

/// Changes of latency and bandwidth by curve, the worst first.
fn curves(verdict: &Verdict) -> Table {
    let columns = [
        ("curve", false),
        ("sizes", true),
        ("part", false),
        ("base", true),
        ("new", true),
        ("costs more", true),
        ("bounds", true),
        ("p corrected", true),
        ("verdict", false),
    ];
    let mut table =
        Table::new("Whole curves: alpha, the latency, and 1/beta, the bandwidth, before and after", &columns);
    let mut sorted: Vec<_> = verdict.curves.iter().collect();
    sorted.sort_by(|a, b| b.worse.cmp(&a.worse).then(b.slowdown.total_cmp(&a.slowdown)));
    for curve in sorted {
        let value = |cost: f64| match curve.part {
            CurvePart::Latency => Seconds(cost).to_string(),
            CurvePart::Bandwidth => Rate(1.0 / cost).to_string(),
        };
        let bounds = curve.slowdown_lower_bound.zip(curve.slowdown_upper_bound);
        let cells = vec![
            curve.name.clone(),
            curve.cases.to_string(),
            curve.part.name().to_owned(),
            value(curve.base),
            value(curve.new),
            signed_percent(curve.slowdown),
            bounds.map_or_else(
                || "too few replicates".to_owned(),
                |(low, high)| format!("{} to {}", signed_percent(low), signed_percent(high)),
            ),
            three_digits(curve.p_corrected),
            if curve.worse { format!("{} got worse", curve.part.name()) } else { "not worse".to_owned() },
        ];
        table.row_toned(if curve.worse { "bad" } else { "" }, cells);
    }
    table.capped("`commgauge compare --format json` has every curve")
}

fn plot(verdict: &Verdict) -> Plot {
    let mut y = Axis::linear("slower by (+) than the base", Unit::Percent);
    y.range = None;
    let mut plot = Plot::new("Slow-down against the base", Axis::log("bytes_total", Unit::Bytes), y);
    plot.description =
        "Share by which each row is slower than in the base, with its interval; above zero is slower.".into();
    plot.width = 560.0;
    let mut kinds: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in verdict.rows.iter().filter(|row| row.against_base.is_some()) {
        kinds.entry(format!("{} {}", row.collective, row.cadence)).or_default().push(row);
    }
    let mut ends: Option<(f64, f64)> = None;
    let all = kinds.len();
    for (name, rows) in kinds.into_iter().take(MAX_SERIES) {
        let mut series = Series::new(name);
        for row in rows {
            let Some(against) = &row.against_base else { continue };
            let Some(middle) = against.slowdown else { continue };
            let bounds = against.slowdown_lower_bound.zip(against.slowdown_upper_bound);
            let x = row.bytes_total.0 as f64;
            let (low, high) = ends.unwrap_or((x, x));
            ends = Some((low.min(x), high.max(x)));
            let interval = bounds.map(|(low, high)| (100.0 * low, 100.0 * high));
            let crossed = row.decision == Some(Decision::Fail);
            series.points.push(Point { interval, crossed, ..Point::at(x, 100.0 * middle) });
        }
        plot.series.push(series);
    }
    if all > MAX_SERIES {
        plot.description += &format!(" {MAX_SERIES} of {all} kinds of calls are drawn.");
    }
    if let Some((low, high)) = ends {
        let points = vec![(low, 0.0), (high, 0.0)];
        plot.lines.push(Line { name: "as the base".into(), kind: LineKind::Plain, points });
    }
    plot
}

fn table(verdict: &Verdict) -> Table {
    let columns = [
        ("decision", false),
        ("row", false),
        ("base", true),
        ("new", true),
        ("slower by", true),
        ("interval", true),
        ("p, corrected", true),
        ("why", false),
    ];
    let mut table = Table::new("Table: rows against the base", &columns);
    for row in &verdict.rows {
        let against = row.against_base.as_ref();
        let time =
            |seconds: Option<f64>| seconds.map_or_else(|| "not available".to_owned(), |s| Seconds(s).to_string());
        let bounds = against.and_then(|against| against.slowdown_lower_bound.zip(against.slowdown_upper_bound));
        let cells = vec![
            row.decision.map_or("not judged", Decision::name).to_owned(),
            row.name.clone(),
            time(against.and_then(|against| against.latency_seconds_base)),
            time(against.and_then(|against| against.latency_seconds_new)),
            against.and_then(|against| against.slowdown).map_or_else(|| "not available".to_owned(), signed_percent),
            bounds.map_or_else(
                || "too few replicates".to_owned(),
                |(low, high)| format!("{} to {}", signed_percent(low), signed_percent(high)),
            ),
            against.and_then(|against| against.p_corrected).map_or_else(String::new, three_digits),
            row.reasons.join("; "),
        ];
        let tone = match row.decision {
            Some(Decision::Pass) | None => "",
            decided => tone(decided),
        };
        table.row_toned(tone, cells);
    }
    table.capped("`commgauge compare --format json` has every row")
}
