//! The tables of a fit (every curve, the held-out errors, the coefficients of contention, interference and overlap) and its plots.

use super::document::{Block, Fields, Mark, Table, Terminal, Tone, gigabytes_per_second, optional};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Shade, Svg, Unit, xy};
use commgauge_analysis::cost::{
    Coefficient, Contention, CurveFit, Errors, FamilyFit, FamilyKey, Fit, PointFit, Predictor,
};
use commgauge_base::units::{Bytes, Seconds, three_digits};

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
    let title = "Alpha: cost of a call however small. 1/beta: bytes_total over time of a call however large";
    let between = |ends: Option<(String, String)>| optional(ends.map(|(low, high)| format!("{low}..{high}")));
    let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
    let alpha = |curve: &CurveFit| {
        between(curve.alpha_seconds_low.map(microseconds).zip(curve.alpha_seconds_high.map(microseconds)))
    };
    let beta = |curve: &CurveFit| {
        let ends = curve.bytes_per_second_low.zip(curve.bytes_per_second_high);
        between(ends.map(|(low, high)| (gigabytes_per_second(low), gigabytes_per_second(high))))
    };
    let error = |curve: &CurveFit, of: fn(Errors) -> f64| {
        optional(curve.held_out_sizes.map(|errors| format!("{:.1}", 100.0 * of(errors))))
    };
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (&family.key, curve)));
    Fields::of(curves)
        .left("collective", 0, |(key, _)| key.collective.to_string() + &labels(key))
        .left("type", 0, |(key, _)| element(key))
        .left("locality", 2, |(key, _)| key.place)
        .left("cadence", 6, |(key, _)| key.cadence)
        .right("ranks", 0, |(_, curve)| curve.ranks)
        .right("sizes", 5, |(_, curve)| curve.points.len())
        .right("disturbed", 7, |(_, curve)| curve.points.iter().filter(|point| point.is_disturbed()).count())
        .right("alpha us", 0, |(_, curve)| microseconds(curve.alpha_seconds))
        .right("95 %", 3, |(_, curve)| alpha(curve))
        .right("1/beta GB/s", 0, |(_, curve)| optional(curve.bytes_per_second.map(gigabytes_per_second)))
        .right("95 % GB/s", 4, |(_, curve)| beta(curve))
        .right("held-out median %", 1, |(_, curve)| error(curve, |errors| errors.median))
        .right("mean %", 8, |(_, curve)| {
            error(curve, |errors| errors.mean) + if curve.untrusted { " UNTRUSTED" } else { "" }
        })
        .toned(title, |(_, curve)| if curve.untrusted { Tone::Unsure } else { Tone::Plain })
        .whole_in("`commgauge calibrate --format json` has every curve")
}

fn element(key: &FamilyKey) -> String {
    key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string())
}

/// Errors at what the fit did not see; none where nothing could be left out.
pub(super) fn held_out(fit: &Fit) -> Option<Table> {
    let percent = |value: f64| format!("{:.1}", 100.0 * value);
    let sizes = fit.held_out.sizes.iter().map(|errors| ("every second size".to_owned(), errors));
    let regimes = fit.held_out.regimes.iter().map(|by| (format!("  {}", by.regime.name()), &by.errors));
    let group_sizes = fit.held_out.group_sizes.iter().map(|errors| ("inner group sizes".to_owned(), errors));
    let table = Fields::of(sizes.chain(regimes).chain(group_sizes))
        .left("left out", 0, |(name, _)| name.clone())
        .right("points", 2, |(_, errors)| errors.points)
        .right("median %", 0, |(_, errors)| percent(errors.median))
        .right("p95 %", 0, |(_, errors)| optional(errors.p95.map(percent)))
        .right("maximum %", 0, |(_, errors)| percent(errors.maximum))
        .right("bias %", 1, |(_, errors)| percent(errors.bias))
        .table("Held-out errors, relative");
    (!table.rows.is_empty()).then_some(table)
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
    let title = "Contention: with x times as many groups at once a call takes x^exponent times as long";
    let counted_per = |one: &Contention| match one.adapters_per_node {
        None => "node".to_owned(),
        Some(adapters) => format!("adapter ({adapters} a node)"),
    };
    Fields::of(&fit.contention)
        .left("call", 0, |one| one.collective.map_or_else(|| "all others".to_owned(), |call| call.to_string()))
        .left("groups", 1, |one| if one.across_nodes { "across nodes" } else { "within a node" })
        .left("cadence", 3, |one| one.cadence)
        .left("counted per", 5, |one| counted_per(one))
        .right("measured", 2, |one| format!("{}..{} groups", one.groups_fewest, one.groups_most))
        .right("latency ^", 0, |one| value(one.latency_exponent.as_ref()))
        .right("95 %", 0, |one| interval(one.latency_exponent.as_ref()))
        .right("bandwidth ^", 0, |one| value(one.bandwidth_exponent.as_ref()))
        .right("95 %", 0, |one| interval(one.bandwidth_exponent.as_ref()))
        .right("error p95 %", 1, |one| format!("{:.1}", 100.0 * one.errors.p95_or_maximum()))
        .left("of", 4, |one| one.errors_from.name())
        .table(title)
}

fn interference(fit: &Fit) -> Table {
    let title = "Interference: time of a call while calls of another axis are under way, over that alone";
    Fields::of(&fit.interference)
        .left("timed", 0, |pair| format!("{} {}", pair.calls.axis, pair.calls.collective))
        .left("beside", 0, |pair| format!("{} {}", pair.calls.beside_axis, pair.calls.beside_collective))
        .right("together/alone", 0, |pair| value(Some(&pair.slowdown)))
        .right("95 %", 0, |pair| interval(Some(&pair.slowdown)))
        .right("replicates", 1, |pair| pair.slowdown.measurements)
        .table(title)
}

fn overlap(fit: &Fit) -> Table {
    Fields::of(&fit.overlap)
        .left("axis", 0, |overlap| overlap.axis)
        .right("hidden share", 0, |overlap| value(Some(&overlap.hidden_share)))
        .right("95 %", 0, |overlap| interval(Some(&overlap.hidden_share)))
        .right("hidden/alone", 0, |overlap| value(overlap.slowdown.as_ref()))
        .right("95 %", 0, |overlap| interval(overlap.slowdown.as_ref()))
        .right("replays", 1, |overlap| overlap.hidden_share.measurements)
        .table("Overlap with computing, from replays")
}

fn both_ways(fit: &Fit) -> Table {
    Fields::of(&fit.both_ways)
        .left("stages", 0, |both| if both.between_hosts { "on different hosts" } else { "on one host" })
        .right("message both ways/alone", 0, |both| value(Some(&both.slowdown)))
        .right("95 %", 0, |both| interval(Some(&both.slowdown)))
        .right("replays", 1, |both| both.slowdown.measurements)
        .table("Messages of both directions at once, from replays without computing")
}

/// A number and its interval.
fn value(coefficient: Option<&Coefficient>) -> String {
    optional(coefficient.map(|found| format!("{:.2}", found.value)))
}

fn interval(coefficient: Option<&Coefficient>) -> String {
    let interval = coefficient.and_then(|found| found.low.zip(found.high));
    optional(interval.map(|(low, high)| format!("{low:.2}..{high:.2}")))
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
    let text = format!("{:03}-{}-{}-{}-{}", index + 1, key.collective, element(key), key.place, key.cadence);
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
    use commgauge_analysis::cost;
    use commgauge_analysis::cost::{FitOptions, Measurements, fit as fitted};
    use commgauge_analysis::interop::{Origin, read_csv, record_lines};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::ForeignTool;
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
