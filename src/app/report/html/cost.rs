//! The cost model: alpha and beta with intervals, and the curve over the points.

use super::curves::thin;
use super::page::{HtmlInput, without_many_passes};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Shade, Unit, xy};
use crate::report::document::{Block, Fields, Figure, Mark, Table, Tone};
use crate::report::verdict::{coverage, curves_document, findings, rows_on_page};
use crate::report::{fit, view};
use commgauge_base::stats::Interval;
use commgauge_base::units::{Bytes, counted};
use commgauge_cost::cost::{CurveFit, FamilyFit, Predictor};
use commgauge_judge::verdict::{Decision, Row as VerdictRow, Verdict};
use std::collections::BTreeMap;

/// Curves with charts; further ones are in the table only.
const MAX_CURVES: usize = 6;

/// Curves whose charts are open initially.
const MAX_OPEN: usize = 2;

/// Factor by which a curve is drawn beyond the measured sizes.
const BEYOND: f64 = 8.0;

/// Measured sizes in the pictures and the table of a curve.
const MAX_POINTS: usize = 200;

/// Number of points of a drawn curve.
const PLACES: u32 = 48;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let calibrated = input.runs.iter().filter_map(|run| view::document(&run.view));
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
    let of_family = |(number, family)| Vec::from_iter(curves_of(number, family));
    let mut curves: Vec<Drawn> = fitted.families.iter().enumerate().flat_map(of_family).collect();
    let all = curves.len();
    curves.retain(|drawn| drawn.curve.points.len() >= 3);
    for (index, drawn) in curves.iter().take(MAX_CURVES).enumerate() {
        let (name, curve) = (name(drawn), drawn.curve);
        let mut curve = curve.clone();
        let left_out = thin(&mut curve.points, MAX_POINTS, |point| point.outlier);
        let curve = &curve;
        let plot = curve_plot(&name, &predictor, &Drawn { curve, ..*drawn });
        let charts = Block::Charts(vec![Figure::new("Cost curve", plot.draw())]);
        let mut shown = vec![charts, Block::Table(points(&name, curve))];
        if left_out > 0 {
            shown.push(Block::text(format!(
                "{} in between are omitted from the pictures and the table here; `commgauge calibrate` writes them all.",
                counted(left_out, "size")
            )));
        }
        if index < MAX_OPEN {
            blocks.push(Block::heading(&name));
            blocks.extend(shown);
        } else {
            blocks.push(Block::folded(&name, shown));
        }
    }
    let drawn = curves.len().min(MAX_CURVES);
    if all > drawn {
        blocks.push(Block::text(format!("{drawn} of {all} curves are drawn; `commgauge calibrate` writes them all.")));
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

/// A curve, its family, and the number of that in the fit.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    number: usize,
    family: &'a FamilyFit,
    curve: &'a CurveFit,
}

fn curves_of(number: usize, family: &FamilyFit) -> impl Iterator<Item = Drawn<'_>> {
    family.curves.iter().map(move |curve| Drawn { number, family, curve })
}

/// What distinguishes a curve from every other one.
fn name(Drawn { family, curve, .. }: &Drawn) -> String {
    let key = &family.key;
    let element_type = key.element_type.map_or_else(String::new, |element_type| format!(", {element_type}"));
    let (collective, ranks, place, cadence) = (key.collective, curve.ranks, &key.place, key.cadence);
    format!("Cost of {collective}, {ranks} ranks, {place}{element_type}, {cadence}{}", fit::labels(key))
}

fn curve_plot(name: &str, predictor: &Predictor, Drawn { number, curve, .. }: &Drawn) -> Plot {
    let mut plot = Plot::new("Time of a call", Axis::log("bytes_total", Unit::Bytes), Axis::log("time", Unit::Seconds));
    plot.description = format!("{name}: measured points, the curve with its band, extrapolation shaded.");
    let sizes = || curve.points.iter().map(|point| point.bytes_total.0 as f64).filter(|bytes| *bytes > 0.0);
    let (low, high) = sizes().fold((f64::INFINITY, 0.0f64), |(low, high), bytes| (low.min(bytes), high.max(bytes)));
    let mut measured = Series { color: Some(0), ..Series::new("measured") };
    let mut passed_by = Series { color: Some(1), ..Series::new("disturbed") };
    for point in curve.points.iter().filter(|point| point.bytes_total.0 > 0) {
        let at = Point::at(point.bytes_total.0 as f64, point.measured_seconds.0);
        match point.outlier {
            true => passed_by.points.push(Point { crossed: true, ..at }),
            false => measured.points.push(at),
        }
    }
    let mut fitted = Series { color: Some(2), ..Series::new("model") };
    if low.is_finite() && high > 0.0 {
        let (first, last) = ((low / BEYOND).max(1.0), high * BEYOND);
        (fitted.curve, fitted.band) = fit::predicted(predictor, *number, curve.ranks, first, last, PLACES);
        for (from, to) in [(first, low), (high, last)] {
            plot.shades.push(Shade { from, to, name: "extrapolated".into() });
        }
    }
    plot.series = vec![fitted, measured];
    if !passed_by.points.is_empty() {
        plot.series.push(passed_by);
    }
    plot
}

fn points(name: &str, curve: &CurveFit) -> Table {
    Fields::of(&curve.points)
        .right("bytes_total", 0, |point| point.bytes_total)
        .right("measured", 0, |point| point.measured_seconds)
        .right("curve", 0, |point| {
            point.curve_seconds.map_or_else(|| "passed by".to_owned(), |seconds| seconds.to_string())
        })
        .right("replicates", 0, |point| point.replicates)
        .right("disturbed", 0, |point| point.replicates_disturbed)
        .toned(format!("Table: {name}"), |point| if point.outlier { Tone::Unsure } else { Tone::Plain })
        .folded()
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
            for drawn in curves_of(number, family) {
                let plot = curve_plot("", &predictor, &drawn);
                let line = &plot.series[0].curve;
                assert!(line.len() > 20, "{:?}", family.key.labels);
                for point in drawn.curve.points.iter().skip(1).rev().skip(1) {
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
