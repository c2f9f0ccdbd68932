//! Plots of a fit: for every family of curves the measured points, the curve with its band, and below it the errors of
//! held-out sizes.

use super::text_output::{make_folder, replace};
use crate::chart::{Axis, Line, LineKind, Plot, Point, Series, Shade, Svg, Unit, xy};
use commgauge_analysis::cost::{CurveFit, FamilyFit, Fit, Predictor};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use std::path::Path;

/// Points per doubling of the size at which a curve is drawn.
const PER_DOUBLING: f64 = 6.0;
/// Factor by which the plot extends beyond the measured sizes.
const BEYOND: f64 = 4.0;
const WIDTH: f64 = 640.0;

/// Writes one file for each family.
pub(super) fn write(folder: &Path, fit: &Fit) -> Result<()> {
    make_folder("--plots", folder)?;
    let predictor = Predictor::new(fit);
    for (index, family) in fit.families.iter().enumerate() {
        let path = folder.join(format!("{}.svg", name(index, family)));
        replace(&path, picture(fit, &predictor, index).standalone())?;
    }
    Ok(())
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
    let point = |point: &commgauge_analysis::cost::PointFit| {
        Some(Point { crossed: point.outlier, ..Point::at(point.bytes_total.0 as f64, 100.0 * point.left_out_error?) })
    };
    series.points = curve.points.iter().filter_map(point).collect();
    series
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::h100;
    use super::*;

    #[test]
    fn every_family_gets_a_picture_with_its_curves_and_its_errors() {
        let folder = tempfile::tempdir().unwrap();
        let fit = Fit { synthetic: true, ..h100() };
        write(&folder.path().join("new"), &fit).unwrap();
        let mut files: Vec<_> =
            std::fs::read_dir(folder.path().join("new")).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), fit.families.len());
        for (path, family) in files.iter().zip(&fit.families) {
            let text = std::fs::read_to_string(path).unwrap();
            for wanted in
                [&*format!("SYNTHETIC: {}", family.key.collective), "8 ranks", "extrapolated", "Sizes left out"]
            {
                assert!(text.contains(wanted), "{}: {wanted}", path.display());
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{}", path.display());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write(&file.join("below"), &h100()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--plots: cannot make"), "{error}");
    }
}
