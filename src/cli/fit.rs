//! `commgauge fit`: records become a fit, which is written to a file and shown.

use super::AnswerArguments;
use super::plain_table::{Column, table, wrapped};
use super::schema::published;
use super::table_or_json::json;
use crate::cost::{self, CurveFit, Errors, FORMAT, FamilyFit, Fit, FitOptions, Measurements, VERSION};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::units::three_digits;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Fit the cost of communication to records, and tell its own held-out error
///
/// Sizes between measured ones are interpolated, sizes outside follow an envelope of lines alpha + beta bytes, group sizes
/// that were not measured follow from the steps of the algorithms. Every error shown is that of points that were left
/// out.
#[derive(Clone, Debug, clap::Args)]
pub struct FitCommand {
    /// Records of one machine
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Write the fit to a file; an existing one is replaced
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Resamples behind the intervals; 0 for none
    #[arg(long, default_value_t = FitOptions::default().resamples, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub resamples: u32,

    /// How the fit is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl FitCommand {
    /// Reads, fits, writes and shows.
    pub fn execute(&self) -> Result<i32> {
        let records = self
            .records
            .iter()
            .map(|path| Ok((path.display().to_string(), Record::read(path)?)))
            .collect::<Result<Vec<_>>>()?;
        let measurements = Measurements::of(records.iter().map(|(name, record)| (name.as_str(), record)))?;
        let fit = cost::fit(&measurements, FitOptions { resamples: self.resamples, ..FitOptions::default() })?;
        if let Some(path) = &self.output {
            self.write(path, &fit)?;
        }
        self.shown.show(&fit, |width| text(&fit, width))?;
        Ok(0)
    }

    fn write(&self, path: &Path, fit: &Fit) -> Result<()> {
        let same = |a: &Path, b: &Path| a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        if self.records.iter().any(|record| same(record, path)) {
            return Err(Error::usage(format!("--output {} is a record; name another file", path.display())));
        }
        std::fs::write(path, json(fit)?)
            .map_err(|cause| Error::usage(format!("--output: cannot write {}: {cause}", path.display())))
    }
}

/// The JSON Schema of `fit.json`.
pub(super) fn schema() -> Value {
    published(cost::schema(), FORMAT, VERSION, "A commgauge fit")
}

fn text(fit: &Fit, width: u16) -> String {
    let mut text = String::new();
    if fit.synthetic {
        text += "SYNTHETIC: no data moved and no real time passed; nothing below was measured\n\n";
    }
    let columns = [
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
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (family, curve)));
    text += &table(&columns, &curves.map(|(family, curve)| row(family, curve)).collect::<Vec<_>>(), width);
    text += "\nHeld-out errors, relative\n";
    text += &held_out(fit, width);
    for warning in &fit.warnings {
        text += &wrapped(&format!("* {warning}"), width);
    }
    text
}

fn row(family: &FamilyFit, curve: &CurveFit) -> Vec<String> {
    let key = &family.key;
    let between = |low: Option<f64>, high: Option<f64>| {
        low.zip(high).map_or_else(|| "-".to_owned(), |(a, b)| format!("{}..{}", three_digits(a), three_digits(b)))
    };
    let percent = |error: Option<f64>| error.map_or_else(|| "-".to_owned(), |error| format!("{:.1}", 100.0 * error));
    let microseconds = |seconds: crate::units::Seconds| seconds.0 * 1e6;
    let mean = percent(curve.held_out_sizes.map(|errors| errors.mean));
    vec![
        key.collective.to_string(),
        key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string()),
        key.place.to_string(),
        key.cadence.to_string(),
        curve.ranks.to_string(),
        curve.points.len().to_string(),
        curve.points.iter().filter(|point| point.is_disturbed()).count().to_string(),
        three_digits(microseconds(curve.alpha_seconds)),
        between(curve.alpha_seconds_low.map(microseconds), curve.alpha_seconds_high.map(microseconds)),
        curve.bytes_per_second.map_or_else(|| "-".to_owned(), |rate| three_digits(rate.gigabytes_per_second())),
        between(
            curve.bytes_per_second_low.map(|rate| rate.gigabytes_per_second()),
            curve.bytes_per_second_high.map(|rate| rate.gigabytes_per_second()),
        ),
        percent(curve.held_out_sizes.map(|errors| errors.median)),
        if curve.untrusted { mean + " UNTRUSTED" } else { mean },
    ]
}

fn held_out(fit: &Fit, width: u16) -> String {
    let columns = [
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
            errors.p95.map_or_else(|| "-".to_owned(), percent),
            percent(errors.maximum),
            percent(errors.bias),
        ]
    };
    let mut rows: Vec<Vec<String>> = fit.held_out.sizes.iter().map(|errors| row("every second size", errors)).collect();
    rows.extend(fit.held_out.regimes.iter().map(|by| row(&format!("  {}", by.regime.name()), &by.errors)));
    rows.extend(fit.held_out.group_sizes.iter().map(|errors| row("inner group sizes", errors)));
    if rows.is_empty() {
        return "not available: too few sizes to leave any out\n".to_owned();
    }
    table(&columns, &rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::{read_csv, record_lines};

    pub(crate) fn h100() -> Fit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
        let lines = record_lines("test", &["h100.csv".to_owned()], &read_csv(&path).unwrap().rows, Vec::new());
        let record = Record::from_lines(lines).unwrap();
        cost::fit(
            &Measurements::of([("h100.jsonl", &record)]).unwrap(),
            FitOptions { resamples: 40, ..FitOptions::default() },
        )
        .unwrap()
    }

    #[test]
    fn a_fit_fits_its_schema_and_reads_back_equal() {
        let fit = h100();
        let document: Value = serde_json::from_str(&json(&fit).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fit.json");
        std::fs::write(&path, json(&fit).unwrap()).unwrap();
        assert_eq!(Fit::read(&path).unwrap(), fit);
    }

    #[test]
    fn the_table_of_a_fit() {
        insta::assert_snapshot!("fit_table_h100", text(&h100(), 160));
    }

    #[test]
    fn a_synthetic_fit_says_so_first() {
        let fit = Fit { synthetic: true, ..h100() };
        assert!(text(&fit, 100).starts_with("SYNTHETIC"));
    }
}
