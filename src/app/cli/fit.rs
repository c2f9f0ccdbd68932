//! `commgauge fit`: fits a cost model to records, writes it to a file and prints it.

use super::AnswerArguments;
use super::fit_plots;
use super::published::published;
use super::table_or_json::json;
use super::text_output::{check_only_format, replace};
use crate::report::fit_text as text;
use commgauge_analysis::cost::{self, FORMAT, Fit, FitOptions, Measurements, VERSION};
use commgauge_base::error::Result;
use commgauge_model::record::Record;
use serde_json::Value;
use std::path::PathBuf;

/// Fit the cost of communication to records, and report its own held-out error
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

    /// Network adapters of a node: contention of groups across nodes is then counted per adapter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub adapters_per_node: Option<u32>,

    /// Draw every family of curves as an SVG file in this directory, which is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,

    /// How the fit is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl FitCommand {
    /// Reads the records, fits, writes the fit and prints it.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            check_only_format(path, "json", &self.records.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let options = FitOptions { resamples: self.resamples, adapters_per_node: self.adapters_per_node };
        let fit = fit_of(&self.records, options)?;
        if let Some(path) = &self.output {
            replace(path, json(&fit)?)?;
        }
        if let Some(folder) = &self.plots {
            fit_plots::write(folder, &fit)?;
        }
        self.shown.show(&fit, |width| text(&fit, width))?;
        Ok(0)
    }
}

/// The fit of records of one machine.
///
/// # Errors
/// A record that cannot be read; records without a curve, or of several machines.
pub(super) fn fit_of(records: &[PathBuf], options: FitOptions) -> Result<Fit> {
    let records =
        records.iter().map(|path| Ok((path.display().to_string(), Record::read(path)?))).collect::<Result<Vec<_>>>()?;
    let measurements = Measurements::of(records.iter().map(|(name, record)| (name.as_str(), record)))?;
    cost::fit(&measurements, options)
}

/// The JSON Schema of `fit.json`.
pub(super) fn schema() -> Value {
    published(cost::schema(), FORMAT, VERSION, "A commgauge fit")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use commgauge_analysis::interop::{Origin, read_csv, record_lines};
    use commgauge_model::record::line::ForeignTool;
    use std::path::Path;

    pub(in crate::cli) fn h100() -> Fit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nccl/h100_sxm-nccl-2.29.2.csv");
        let lines = record_lines(
            "test",
            &Origin::of(ForeignTool::Csv, &["h100.csv".to_owned()]),
            &read_csv(&path).unwrap().rows,
        );
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
    fn a_synthetic_fit_is_labelled_first() {
        let fit = Fit { synthetic: true, ..h100() };
        assert!(text(&fit, 100).starts_with("SYNTHETIC"));
    }
}
