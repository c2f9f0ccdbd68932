//! The cost model: alpha and beta with intervals, and the curve over the points.

use super::curves::thin;
use super::page::{HtmlInput, without_many_passes};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Unit, xy};
use crate::report::document::{Block, Figure, Mark};
use crate::report::verdict::{coverage, curves_document, findings, rows_on_page};
use crate::report::{fit, view};
use commgauge_base::stats::Interval;
use commgauge_base::units::{Bytes, counted};
use commgauge_cost::cost::{CurveFit, FamilyFit, Predictor};
use commgauge_judge::verdict::{Decision, Row as VerdictRow, Verdict};
use std::collections::BTreeMap;

/// Kinds of calls whose curves are drawn; further ones are in the table only.
const MAX_CURVES: usize = 6;

/// Those whose charts are open initially.
const MAX_OPEN: usize = 2;

/// Measured sizes in the pictures and the table of a curve.
const MAX_POINTS: usize = 200;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let calibrated = input.runs.iter().flat_map(|run| view::document(&run.view));
    let fitted = match &input.fit {
        Ok(fitted) => *fitted,
        Err(_) => {
            return calibrated.collect();
        }
    };
    let from = if input.fit_is_own { "Fitted to these records" } else { "From the fit that was given with --fit" };
    let mut blocks = vec![Block::text(format!(
        "{from}. Between measured sizes the curve interpolates; outside, in the shaded parts, it follows lines of alpha + bytes / rate. \
         Errors are those of sizes that were left out of the fit."
    ))];
    blocks.extend(fit::tables(fitted));
    blocks.extend(calibrated);
    let predictor = Predictor::new(fitted);
    let has_curve = |family: &FamilyFit| family.curves.iter().any(|curve| curve.points.len() >= 3);
    let curves = fitted.families.iter().enumerate().filter(|(_, family)| has_curve(family));
    for (order, (index, family)) in curves.clone().take(MAX_CURVES).enumerate() {
        let (name, mut family) = (fit::title(fitted, family), family.clone());
        let thinned = |curve: &mut CurveFit| thin(&mut curve.points, MAX_POINTS, |point| point.outlier);
        let left_out: usize = family.curves.iter_mut().map(thinned).sum();
        let picture = fit::picture(fitted, &predictor, index, &family);
        let mut shown = vec![Block::Charts(vec![Figure::new("Cost curves", picture)])];
        shown.extend(fit::points(&name, &family));
        if left_out > 0 {
            shown.push(Block::text(format!(
                "{} in between are omitted from the pictures and the table here; `commgauge calibrate` writes them all.",
                counted(left_out, "size")
            )));
        }
        if order < MAX_OPEN {
            blocks.push(Block::heading(&name));
            blocks.extend(shown);
        } else {
            blocks.push(Block::folded(&name, shown));
        }
    }
    let (all, drawn) = (fitted.families.len(), curves.count().min(MAX_CURVES));
    if all > drawn {
        let sentence =
            format!("{drawn} of {all} kinds of calls are drawn; `commgauge calibrate --plots DIR` draws them all.");
        blocks.push(Block::text(sentence));
    }
    const MAX: usize = 30;
    let more = fitted.warnings.len().saturating_sub(MAX);
    let more = (more > 0).then(|| format!("And {more} more; `commgauge calibrate` prints them."));
    let warnings = fitted.warnings.iter().take(MAX).cloned().chain(more);
    blocks.extend(Block::headed_list("Warnings about the fit", Mark::None, warnings));
    blocks
}

/// How many curves there are.
pub(super) fn in_short(input: &HtmlInput) -> String {
    let curves = input.fit.as_ref().map_or(0, |fit| fit.families.iter().map(|family| family.curves.len()).sum());
    counted(curves, "curve")
}

// The comparison with the base, row by row with intervals.

/// Maximum number of kinds of calls with a colour of their own.
const MAX_SERIES: usize = 6;

/// The section.
pub(super) fn comparison_blocks(input: &HtmlInput) -> Vec<Block> {
    let Some(verdict) = input.comparison else { return Vec::new() };
    let mut blocks = vec![Block::list(&verdict.rule)];
    blocks.extend(curves_document(&verdict.curves.iter().collect::<Vec<_>>()));
    let all: Vec<&VerdictRow> = verdict.rows.iter().collect();
    let (shown, note) = without_many_passes(&all);
    let title = "Rows against the base, the worst first";
    blocks.push(Block::Table(rows_on_page(verdict.question, title, &shown, &note).folded()));
    blocks
}

/// The slow-down of every row.
pub(super) fn slowdown(verdict: &Verdict) -> Block {
    Block::Charts(vec![Figure::new("Slow-down", plot(verdict).draw())])
}

fn plot(verdict: &Verdict) -> Plot {
    let y = Axis::linear("slower by (+) than the base", Unit::Percent);
    let mut plot = Plot::new("Slow-down against the base", Axis::log("bytes_total", Unit::Bytes), y);
    plot.description =
        "Share by which each row is slower than in the base, with its interval; above zero is slower.".into();
    plot.width = 560.0;
    let mut kinds: BTreeMap<String, Vec<(Bytes, &VerdictRow)>> = BTreeMap::new();
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

// Calls that are inconsistent with other calls of the same run.

/// The section.
pub(super) fn consistency_blocks(input: &HtmlInput) -> Vec<Block> {
    let verdict = match &input.consistency {
        Ok(verdict) => *verdict,
        Err(_) => return Vec::new(),
    };
    let mut blocks = vec![
        Block::text(
            "No call should take longer than others that together do the same: two of half the size, one of more bytes, \
             reduce_scatter and all_gather for all_reduce. Where one does, the library chose badly or something disturbed it.",
        ),
        Block::list(coverage(verdict)),
    ];
    blocks.extend(findings(verdict));
    blocks.push(Block::list(&verdict.rule));
    blocks
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_base::collective::{Collective, Placement};
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Seconds;
    use commgauge_cost::cost::{self, FitOptions, Measurements};
    use commgauge_model::layout::Locality;
    use commgauge_model::record::Record;
    use commgauge_model::record::line::ForeignTool;
    use commgauge_readers::interop::{Origin, Row, record_lines};

    #[test]
    fn the_line_of_each_chart_is_the_curve_of_its_own_points_in_place_and_out_of_place() {
        let row = |placement, factor: f64, bytes: u64| Row {
            collective: Collective::AllReduce,
            element_type: ElementType::Float32,
            ranks: 2,
            bytes_total: Bytes(bytes),
            latency: Seconds(factor * (1e-6 + bytes as f64 * 1e-10)),
            locality: Locality::filled(2, 2, 1),
            known: cost_known(placement),
            labels: Default::default(),
        };
        let sizes: Vec<u64> = (2..24).map(|power| 1 << power).collect();
        let rows: Vec<Row> = [(Placement::OutOfPlace, 2.0), (Placement::InPlace, 1.0)]
            .into_iter()
            .flat_map(|(placement, factor)| sizes.iter().map(move |bytes| row(placement, factor, *bytes)))
            .collect();
        let record = Record::from_lines(record_lines("r", &Origin::of(ForeignTool::Csv, &[]), &rows)).unwrap();
        let fit = cost::fit(&Measurements::of([("r", &record)]).unwrap(), FitOptions::default()).unwrap();
        assert_eq!(fit.families.len(), 2);
        let predictor = Predictor::new(&fit);
        for (number, family) in fit.families.iter().enumerate() {
            for curve in &family.curves {
                let line = fit::series(&predictor, number, curve, 0).curve;
                assert!(line.len() > 20, "{:?}", family.key.labels);
                for point in curve.points.iter().skip(1).rev().skip(1) {
                    let near = |bytes: f64| (bytes.ln() - (point.bytes_total.0 as f64).ln()).abs();
                    let drawn = line.iter().min_by(|a, b| near(a.x).total_cmp(&near(b.x))).unwrap();
                    let (drawn, measured) = (drawn.y, point.measured_seconds.0);
                    assert!((drawn / measured).ln().abs() < 0.3, "{:?}: {drawn} for {measured}", family.key.labels);
                }
            }
        }
    }

    fn cost_known(placement: Placement) -> commgauge_readers::interop::Known {
        commgauge_readers::interop::Known { placement: Some(placement), ..Default::default() }
    }
}
