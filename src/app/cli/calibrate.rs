//! `commgauge calibrate`: fits a cost model to records, writes it to a file and prints it.

use super::measure::{MeasureCommand, fit_of};
use super::output::{check_only_format, make_folder, replace};
use super::{AnswerArguments, WithParts};
use crate::report::pretty_json;
use crate::report::{fit_plots, fit_text};
use commgauge_base::error::Result;
use commgauge_cost::cost::FitOptions;
use std::path::PathBuf;

/// Fit the cost of communication to records, and report its own held-out error
///
/// Sizes between measured ones are interpolated, sizes outside follow an envelope of lines alpha + beta bytes, group sizes
/// that were not measured follow from the steps of the algorithms. Every error shown is that of points that were left
/// out.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateCommand {
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

    /// Draw every family of curves as an SVG file in this folder; it is made if missing
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,

    /// How the fit is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

/// `calibrate` and its part.
pub type Calibrate = WithParts<CalibrateCommand, CalibratePart>;

/// Source of the records, if they do not exist yet.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum CalibratePart {
    /// Measure what planning a model needs, fit it, and plan
    Measure(Box<MeasureCommand>),
}

impl Calibrate {
    /// Fits the records, or measures first.
    pub fn execute(&self) -> Result<i32> {
        match self {
            WithParts::Itself(records) => records.execute(),
            WithParts::Part(CalibratePart::Measure(measure)) => measure.execute(),
        }
    }
}

impl CalibrateCommand {
    /// Reads the records, fits, writes the fit and prints it.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            check_only_format(path, "json", &self.records.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let options = FitOptions { resamples: self.resamples, adapters_per_node: self.adapters_per_node };
        let fit = fit_of(&self.records, options)?;
        if let Some(path) = &self.output {
            replace(path, pretty_json(&fit)?)?;
        }
        if let Some(folder) = &self.plots {
            make_folder("--plots", folder)?;
            fit_plots(&fit).iter().try_for_each(|(name, svg)| replace(&folder.join(name), svg))?;
        }
        self.shown.show(&fit, |width| fit_text(&fit, width))?;
        Ok(0)
    }
}
