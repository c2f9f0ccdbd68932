//! `commgauge plan validate`: compares predictions with published measurements, or with a user's own.

use super::computing::{GpuFlags, RatesFlags};
use super::output::read_text;
use super::{AnswerFormat, AnswerOutput};
use crate::report::pretty_json;
use crate::report::validation::{csv, text};
use commgauge_base::error::Result;
use commgauge_plan::planner::validate::{
    OWN_RUNS, SetOrigin, Site, Validation, levels_file, read_runs, template, validate, validate_runs,
};
use std::path::{Path, PathBuf};

/// Replay training runs with the model that plans, and show how far off it is
///
/// Predicts published step times of A100 to GB300 (Megatron-LM, vTrain, BLOOM, InternEvo, llm-foundry, Megatron-Bridge, DGX Cloud) with the model of
/// `plan` and `rank`, and the memory of runs that printed it or died. Prints the level of each GPU and precision with the error of sources
/// that were left out, then every run: predicted, measured, error, the coverage of intervals, rank correlation and top-1 regret. With
/// --runs, the same for your own runs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValidateCommand {
    /// Only these sets [default: all]
    #[arg(long = "set", value_name = "NAME", value_delimiter = ',')]
    pub sets: Vec<String>,

    /// Replay the runs of this CSV file instead of published ones; --template prints one to begin with
    #[arg(long, value_name = "FILE", conflicts_with = "sets")]
    pub runs: Option<PathBuf>,

    /// Print a file for --runs with its columns and two rows, and end
    #[arg(long, conflicts_with_all = ["sets", "runs"])]
    pub template: bool,

    /// Print the levels as [[level]] tables of a machine file, and end
    #[arg(long, conflicts_with = "template")]
    pub levels: bool,

    /// Where the runs were made: a fit, from `commgauge calibrate -o`
    #[arg(long, value_name = "FILE", requires = "runs", help_heading = "Machine of --runs")]
    pub fit: Option<PathBuf>,

    /// Where the runs were made: a machine file
    #[arg(long, value_name = "FILE", requires = "runs", help_heading = "Machine of --runs")]
    pub machine: Option<PathBuf>,

    /// GPUs of each node, neighbours in world rank [default: those of the machine file]
    #[arg(long, value_name = "N", requires = "runs", help_heading = "Machine of --runs")]
    pub ranks_per_node: Option<u32>,

    #[command(flatten)]
    shown: AnswerOutput,

    #[command(flatten)]
    gpu: GpuFlags,
}

impl ValidateCommand {
    /// Predicts the published runs, prints the comparison, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let format = self.shown.check(&self.runs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        if self.template {
            self.shown.to.write(&template())?;
            return Ok(0);
        }
        let validation = match &self.runs {
            Some(path) => self.own(path)?,
            None => validate(&self.sets)?,
        };
        if self.levels {
            self.shown.to.write(&levels_file(&validation.levels)?)?;
            return Ok(0);
        }
        self.shown.write(&match format {
            AnswerFormat::Table => text(&validation, self.shown.to.columns()),
            AnswerFormat::Json => pretty_json(&validation)?,
            AnswerFormat::Csv => csv(&validation)?,
        })?;
        Ok(0)
    }

    /// Predicts a user's runs.
    fn own(&self, path: &Path) -> Result<Validation> {
        let file = path.display().to_string();
        let runs = read_runs(&read_text("--runs", path)?, &file)?;
        if self.fit.is_none() && self.machine.is_none() && runs.iter().all(|run| run.machine.is_some()) {
            let origin = SetOrigin { name: OWN_RUNS, source: &file, assumption: None };
            return validate_runs(origin, &runs, None);
        }
        let flags = RatesFlags { fit: self.fit.clone(), machine: self.machine.clone(), unknown_locality: None };
        let source = flags.read()?;
        let rates = source.rates(None);
        let described = [self.gpu.peak(source.machine()), self.gpu.memory(source.machine())].join(", memory ");
        let site = Site {
            gpu: &self.gpu.gpu(source.machine()),
            described: &described,
            rates: rates.as_ref(),
            ranks_per_node: source.ranks_per_node(self.ranks_per_node)?,
        };
        let assumption = self.gpu.assumption(source.machine());
        validate_runs(SetOrigin { name: OWN_RUNS, source: &file, assumption }, &runs, Some(site))
    }
}
