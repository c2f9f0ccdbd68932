//! The tables of a fit (every curve, the held-out errors, the coefficients of contention, interference and overlap) and its plots.

use super::document::{Block, Column, Mark, Row, Table, Terminal, Tone, gigabytes_per_second, optional};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Shade, Svg, Unit, xy};
use commgauge_base::units::{Bytes, Seconds, three_digits};
use commgauge_cost::cost::{
    AtOnce, Coefficient, Contention, CurveFit, Errors, FamilyFit, FamilyKey, Fit, PointFit, Predictor,
};

/// The tables for a terminal of this width.
pub fn fit_text(fit: &Fit, width: u16) -> String {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let mut blocks: Vec<Block> = fit.synthetic.then(|| Block::Alarm(synthetic.to_owned())).into_iter().collect();
    blocks.push(Block::Table(Table { title: String::new(), ..curves(fit) }));
    blocks.extend(match held_out(fit) {
        Some(table) => vec![Block::Table(table)],
        None => vec![
            Block::heading("Held-out errors, relative"),
            Block::list(["not available: too few sizes to leave any out"]),
        ],
    });
    blocks.extend(coefficients(fit));
    blocks.push(Block::marked(Mark::Star, &fit.warnings));
    Terminal::plain(width).draw(&blocks)
}

/// Every curve.
pub(super) fn curves(fit: &Fit) -> Table {
    const COLUMNS: [Column; 13] = [
        Column::left("collective", 0),
        Column::left("type", 0),
        Column::left("locality", 2),
        Column::left("cadence", 6),
        Column::right("ranks", 0),
        Column::right("sizes", 5),
        Column::right("disturbed", 7),
        Column::right("alpha us", 0),
        Column::right("95 %", 3),
        Column::right("1/beta GB/s", 0),
        Column::right("95 % GB/s", 4),
        Column::right("held-out median %", 1),
        Column::right("mean %", 8),
    ];
    let title = "Alpha: cost of a call however small. 1/beta: bytes_total over time of a call however large";
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (family, curve)));
    let rows = curves.map(|(family, curve)| {
        Row::toned(if curve.untrusted { Tone::Unsure } else { Tone::Plain }, curve_cells(&family.key, curve))
    });
    Table::new(title, &COLUMNS, rows).whole_in("`commgauge calibrate --format json` has every curve")
}

fn curve_cells(key: &FamilyKey, curve: &CurveFit) -> Vec<String> {
    let between = |ends: Option<(String, String)>| optional(ends.map(|(low, high)| format!("{low}..{high}")));
    let percent = |error: Option<f64>| optional(error.map(|error| format!("{:.1}", 100.0 * error)));
    let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
    let mean = percent(curve.held_out_sizes.map(|errors| errors.mean));
    vec![
        key.collective.to_string() + &labels(key),
        key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string()),
        key.place.to_string(),
        key.cadence.to_string(),
        curve.ranks.to_string(),
        curve.points.len().to_string(),
        curve.points.iter().filter(|point| point.is_disturbed()).count().to_string(),
        microseconds(curve.alpha_seconds),
        between(curve.alpha_seconds_low.map(microseconds).zip(curve.alpha_seconds_high.map(microseconds))),
        optional(curve.bytes_per_second.map(gigabytes_per_second)),
        between(
            curve
                .bytes_per_second_low
                .map(gigabytes_per_second)
                .zip(curve.bytes_per_second_high.map(gigabytes_per_second)),
        ),
        percent(curve.held_out_sizes.map(|errors| errors.median)),
        if curve.untrusted { mean + " UNTRUSTED" } else { mean },
    ]
}

/// Errors at what the fit did not see; none where nothing could be left out.
pub(super) fn held_out(fit: &Fit) -> Option<Table> {
    const COLUMNS: [Column; 6] = [
        Column::left("left out", 0),
        Column::right("points", 2),
        Column::right("median %", 0),
        Column::right("p95 %", 0),
        Column::right("maximum %", 0),
        Column::right("bias %", 1),
    ];
    let percent = |value: f64| format!("{:.1}", 100.0 * value);
    let row = |name: &str, errors: &Errors| {
        vec![
            name.to_owned(),
            errors.points.to_string(),
            percent(errors.median),
            optional(errors.p95.map(percent)),
            percent(errors.maximum),
            percent(errors.bias),
        ]
    };
    let mut rows: Vec<Vec<String>> = fit.held_out.sizes.iter().map(|errors| row("every second size", errors)).collect();
    rows.extend(fit.held_out.regimes.iter().map(|by| row(&format!("  {}", by.regime.name()), &by.errors)));
    rows.extend(fit.held_out.group_sizes.iter().map(|errors| row("inner group sizes", errors)));
    (!rows.is_empty()).then(|| Table::new("Held-out errors, relative", &COLUMNS, rows))
}

/// Labels that distinguish a curve from others of the same call.
pub(super) fn labels(key: &FamilyKey) -> String {
    let words: Vec<String> =
        key.labels.iter().map(|(name, text)| format!("{} {}", name.escape_debug(), text.escape_debug())).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The tables of coefficients, as far as the fit has them.
pub(super) fn coefficients(fit: &Fit) -> impl Iterator<Item = Block> + '_ {
    let tables = [contention(fit), interference(fit), overlap(fit), both_ways(fit)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).map(Block::Table)
}

fn contention(fit: &Fit) -> Table {
    const COLUMNS: [Column; 11] = [
        Column::left("call", 0),
        Column::left("groups", 1),
        Column::left("cadence", 3),
        Column::left("counted per", 5),
        Column::right("measured", 2),
        Column::right("latency ^", 0),
        Column::right("95 %", 0),
        Column::right("bandwidth ^", 0),
        Column::right("95 %", 0),
        Column::right("error p95 %", 1),
        Column::left("of", 4),
    ];
    let title = "Contention: with x times as many groups at once a call takes x^exponent times as long";
    Table::new(title, &COLUMNS, fit.contention.iter().map(contention_cells))
}

fn interference(fit: &Fit) -> Table {
    const COLUMNS: [Column; 5] = [
        Column::left("timed", 0),
        Column::left("overlapping", 0),
        Column::right("together/alone", 0),
        Column::right("95 %", 0),
        Column::right("replicates", 1),
    ];
    let rows = fit.interference.iter().map(|pair| {
        let AtOnce { axis, collective, beside_axis, beside_collective } = pair.calls;
        let [value, interval] = cells(Some(&pair.slowdown));
        let replicates = pair.slowdown.measurements.to_string();
        vec![format!("{axis} {collective}"), format!("{beside_axis} {beside_collective}"), value, interval, replicates]
    });
    Table::new(
        "Interference: time of a call while calls of another axis are in flight, over its time alone",
        &COLUMNS,
        rows,
    )
}

fn overlap(fit: &Fit) -> Table {
    const COLUMNS: [Column; 6] = [
        Column::left("axis", 0),
        Column::right("hidden share", 0),
        Column::right("95 %", 0),
        Column::right("hidden/alone", 0),
        Column::right("95 %", 0),
        Column::right("replays", 1),
    ];
    let rows = fit.overlap.iter().map(|overlap| {
        let ([hidden, of_hidden], [slower, of_slower]) =
            (cells(Some(&overlap.hidden_share)), cells(overlap.slowdown.as_ref()));
        let replays = overlap.hidden_share.measurements.to_string();
        vec![overlap.axis.to_string(), hidden, of_hidden, slower, of_slower, replays]
    });
    Table::new("Overlap with computing, from replays", &COLUMNS, rows)
}

fn both_ways(fit: &Fit) -> Table {
    const COLUMNS: [Column; 4] = [
        Column::left("stages", 0),
        Column::right("message both ways/alone", 0),
        Column::right("95 %", 0),
        Column::right("replays", 1),
    ];
    let rows = fit.both_ways.iter().map(|both| {
        let [slower, of_slower] = cells(Some(&both.slowdown));
        let stages = if both.between_hosts { "on different hosts" } else { "on one host" };
        vec![stages.to_owned(), slower, of_slower, both.slowdown.measurements.to_string()]
    });
    Table::new("Messages of both directions at once, from replays without computing", &COLUMNS, rows)
}

fn contention_cells(one: &Contention) -> Vec<String> {
    let ([latency, of_latency], [bandwidth, of_bandwidth]) =
        (cells(one.latency_exponent.as_ref()), cells(one.bandwidth_exponent.as_ref()));
    let errors = one.errors.p95_or_maximum();
    vec![
        one.collective.map_or_else(|| "all others".to_owned(), |collective| collective.to_string()),
        (if one.across_nodes { "across nodes" } else { "within a node" }).to_owned(),
        one.cadence.to_string(),
        one.adapters_per_node.map_or_else(|| "node".to_owned(), |adapters| format!("adapter ({adapters} a node)")),
        format!("{}..{} groups", one.groups_fewest, one.groups_most),
        latency,
        of_latency,
        bandwidth,
        of_bandwidth,
        format!("{:.1}", 100.0 * errors),
        one.errors_from.name().to_owned(),
    ]
}

/// A number and its interval.
fn cells(coefficient: Option<&Coefficient>) -> [String; 2] {
    let interval = coefficient.and_then(|found| found.low.zip(found.high));
    [
        optional(coefficient.map(|found| format!("{:.2}", found.value))),
        optional(interval.map(|(low, high)| format!("{low:.2}..{high:.2}"))),
    ]
}

// Plots of a fit: for every family of curves the measured points, the curve with its band, and below it the errors of
// held-out sizes.

/// Points per doubling of the size at which a curve is drawn.
const PER_DOUBLING: f64 = 6.0;

/// Factor by which the plot extends beyond the measured sizes.
const BEYOND: f64 = 4.0;

const WIDTH: f64 = 640.0;

/// The name of an SVG file for each family, and its content.
pub fn fit_plots(fit: &Fit) -> Vec<(String, String)> {
    let predictor = Predictor::new(fit);
    let drawn =
        |(index, family)| (format!("{}.svg", name(index, family)), picture(fit, &predictor, index).standalone());
    fit.families.iter().enumerate().map(drawn).collect()
}

/// A file name of letters, digits and dashes only: labels come from untrusted files.
fn name(index: usize, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string());
    let text = format!("{:03}-{}-{element}-{}-{}", index + 1, key.collective, key.place, key.cadence);
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

fn title(fit: &Fit, family: &FamilyFit) -> String {
    let key = &family.key;
    let element = key.element_type.map_or_else(String::new, |element| format!(" of {element}"));
    let labels: String = key.labels.iter().map(|(name, text)| format!(", {name} {text}")).collect();
    let begin = if fit.synthetic { "SYNTHETIC: " } else { "" };
    format!("{begin}{}{element}, locality {}, {}{labels}", key.collective, key.place, key.cadence)
}

fn picture(fit: &Fit, predictor: &Predictor, index: usize) -> Svg {
    let family = &fit.families[index];
    let times = Plot {
        description: "Measured times, the curve through them, and the band in which 95 of 100 predictions lie"
            .to_owned(),
        series: family.curves.iter().enumerate().map(|(color, curve)| series(predictor, index, curve, color)).collect(),
        shades: shades(family),
        width: WIDTH,
        room_height: 260.0,
        ..Plot::new(
            title(fit, family),
            Axis::log("bytes_total", Unit::Bytes),
            Axis::log("time of a call; crosses: outliers", Unit::Seconds),
        )
    };
    let ends = ends(family);
    let level = |percent: f64| vec![xy(ends.0 / BEYOND, percent), xy(ends.1 * BEYOND, percent)];
    let line = |name: &str, kind, percent| Line { name: name.to_owned(), kind, points: level(percent) };
    let errors = Plot {
        description: "Error of the prediction of each size from the other ones".to_owned(),
        series: family.curves.iter().enumerate().map(|(color, curve)| residuals(curve, color)).collect(),
        lines: vec![
            line("", LineKind::Plain, 0.0),
            line("10 %: above it, on average, a curve is untrusted", LineKind::Bound, 10.0),
            line("10 %: above it, on average, a curve is untrusted", LineKind::Bound, -10.0),
        ],
        width: WIDTH,
        room_height: 130.0,
        ..Plot::new(
            "Sizes left out: predicted against measured",
            Axis::log("bytes_total", Unit::Bytes),
            Axis::linear("error", Unit::Percent),
        )
    };
    times.draw().above(&errors.draw())
}

fn ends(family: &FamilyFit) -> (f64, f64) {
    let sizes = || family.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.bytes_total.0 as f64));
    (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max))
}

/// Shades sizes outside of the measured range of all group sizes.
fn shades(family: &FamilyFit) -> Vec<Shade> {
    let (first, last) = ends(family);
    let shade = |from: f64, to: f64| Shade { from, to, name: "extrapolated".to_owned() };
    vec![shade((first / BEYOND).max(1.0), first), shade(last, last * BEYOND)]
}

fn series(predictor: &Predictor, index: usize, curve: &CurveFit, color: usize) -> Series {
    let suffix = if curve.untrusted { ", untrusted" } else { "" };
    let mut series = Series::new(format!("{} ranks{suffix}", curve.ranks));
    series.color = Some(color);
    series.points = curve
        .points
        .iter()
        .map(|point| Point {
            crossed: point.outlier,
            ..Point::at(point.bytes_total.0 as f64, point.measured_seconds.0)
        })
        .collect();
    let sizes = || curve.points.iter().map(|point| point.bytes_total.0 as f64);
    let (first, last) =
        ((sizes().fold(f64::INFINITY, f64::min) / BEYOND).max(1.0), sizes().fold(1.0, f64::max) * BEYOND);
    let steps = ((last / first).log2() * PER_DOUBLING).ceil().clamp(1.0, 1000.0);
    for step in 0..=steps as u32 {
        let bytes = (first * (last / first).powf(f64::from(step) / steps)).round().max(1.0);
        let answer = predictor.predict_by(index, curve.ranks, Bytes(bytes as u64));
        series.curve.extend(answer.seconds.map(|seconds| xy(bytes, seconds.0)));
        series.band.extend(answer.low.zip(answer.high).map(|(low, high)| (bytes, low.0, high.0)));
    }
    series
}

fn residuals(curve: &CurveFit, color: usize) -> Series {
    let mut series = Series::new(String::new());
    series.color = Some(color);
    let point = |point: &PointFit| {
        Some(Point { crossed: point.outlier, ..Point::at(point.bytes_total.0 as f64, 100.0 * point.left_out_error?) })
    };
    series.points = curve.points.iter().filter_map(point).collect();
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::published;
    use commgauge_cost::cost;
    use commgauge_cost::cost::{FitOptions, Measurements, fit as fitted};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::ForeignTool;
    use commgauge_readers::interop::{Origin, read_csv, record_lines};
    use std::path::Path;

    fn h100() -> Fit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
        let lines = record_lines(
            "test",
            &Origin::of(ForeignTool::Csv, &["h100.csv".to_owned()]),
            &read_csv(&path).unwrap().rows,
        );
        let record = Record::from_lines(lines).unwrap();
        fitted(
            &Measurements::of([("h100.jsonl", &record)]).unwrap(),
            FitOptions { resamples: 40, ..FitOptions::default() },
        )
        .unwrap()
    }

    #[test]
    fn a_fit_fits_its_schema_and_reads_back_equal() {
        let fit = h100();
        let text = serde_json::to_string(&fit).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let validator = jsonschema::validator_for(&published(cost::schema(), cost::FORMAT, cost::VERSION, "")).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fit.json");
        std::fs::write(&path, text).unwrap();
        assert_eq!(Fit::read(&path).unwrap(), fit);
    }

    #[test]
    fn the_table_of_a_fit() {
        insta::assert_snapshot!("fit_table_h100", fit_text(&h100(), 160));
    }

    #[test]
    fn a_synthetic_fit_is_labelled_first() {
        let fit = Fit { synthetic: true, ..h100() };
        assert!(fit_text(&fit, 100).starts_with("SYNTHETIC"));
    }

    #[test]
    fn every_family_gets_a_picture_with_its_curves_and_its_errors() {
        let fit = Fit { synthetic: true, ..h100() };
        let plots = fit_plots(&fit);
        assert_eq!(plots.len(), fit.families.len());
        for ((name, text), family) in plots.iter().zip(&fit.families) {
            for wanted in
                [&*format!("SYNTHETIC: {}", family.key.collective), "8 ranks", "extrapolated", "Sizes left out"]
            {
                assert!(text.contains(wanted), "{name}: {wanted}");
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{name}");
        }
    }
}
