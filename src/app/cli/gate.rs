//! `commgauge gate RECORD --machine FILE`: compares a record with the expectations of a machine file.

use super::gate_plan::judge_plan;
use super::text_output::{check_only_format, replace};
use super::verdict_output::{VerdictOutput, read_all};
use commgauge_analysis::verdict::locate::LocateOptions;
use commgauge_analysis::verdict::{Allowed, GateRule, LoadedRecord, Verdict, gate, gate_new_machine};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::{Machine, Shipped};
use std::path::{Path, PathBuf};

/// Hold a record against what a machine file expects, and end with the code of the verdict
///
/// 0 every judged row passed; 1 a row failed; 3 inconclusive; 4 data arrived wrong; 5 to 6 the run failed; 7 something
/// planned was not measured. Missing, unverified, synthetic and unreliable rows never pass.
#[derive(Clone, Debug, clap::Args)]
pub struct GateCommand {
    /// Records of a run (JSON Lines); the replicates of several like runs are taken together
    #[arg(required_unless_present = "plan")]
    pub records: Vec<PathBuf>,

    /// Instead of records: say how many thresholds of the machine a suite will be judged by, and whether a run of it can pass
    #[arg(long, value_name = "SUITE", conflicts_with = "records", requires = "machine")]
    pub plan: Option<PathBuf>,

    /// With --plan: nodes, each with the ranks that the machine file says
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nodes: u32,

    /// Machine file whose [[expect]] rows are the limits, or the name of a shipped one; without it the answer is inconclusive
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// Also write a file with an [[expect]] to fill in for each row that has none; without --machine, a whole machine file, named as
    /// the file
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub template: Option<PathBuf>,

    /// Confidence of the bounds, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// In what several records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,
}

impl GateCommand {
    /// Evaluates the records, writes the verdict, and returns its exit code.
    pub fn execute(&self) -> Result<i32> {
        if let (Some(suite), Some(machine)) = (&self.plan, &self.machine) {
            return judge_plan(suite, machine, self.nodes, self.confidence / 100.0, &mut std::io::stdout().lock());
        }
        let file = self.machine.as_deref().and_then(|requested| Shipped::Machine.find(requested));
        let inputs: Vec<&Path> = self.records.iter().chain(&file).map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        if let Some(path) = &self.template {
            check_only_format(path, "toml", &inputs)?;
        }
        let rule = GateRule { confidence: self.confidence / 100.0, allowed: self.allow.clone() };
        let records = read_all(&self.records)?;
        let verdict = match (&self.machine, &self.template) {
            (None, Some(path)) => gate_new_machine(&records, &stem(path), &rule)?,
            (machine, _) => gated(&records, machine.as_deref(), &rule)?,
        };
        if let Some(path) = &self.template {
            write_template(path, verdict.template.as_deref())?;
        }
        self.shown.show(&verdict, format)
    }
}

/// Never replaces a file: it may be one that somebody has begun to fill in.
fn write_template(path: &Path, template: Option<&str>) -> Result<()> {
    let Some(template) = template else {
        eprintln!("gate: --template {} is not written: every row has an expectation", path.shown());
        return Ok(());
    };
    if path.exists() {
        return Err(Error::usage(format!("--template {} is there already; name a new file", path.shown())));
    }
    replace(path, template)
}

/// The verdict on records for a machine given as a file or as a shipped name.
pub(super) fn gated(records: &[LoadedRecord], requested: Option<&Path>, rule: &GateRule) -> Result<Verdict> {
    gate(records, requested.map(Machine::load).transpose()?.as_ref(), rule)
}

/// What the machine that is asked for says of its leaves and racks.
pub(super) fn locate_options(requested: Option<&Path>) -> Result<LocateOptions> {
    Ok(requested.map(Machine::load).transpose()?.as_ref().map(LocateOptions::of_machine).unwrap_or_default())
}

fn stem(requested: &Path) -> String {
    requested.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Parses a confidence in per cent that some number of replicates can reach, and one alone cannot: of its scatter nothing is known.
pub(super) fn confidence(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (75.0..=99.999).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 75, which takes two replicates, to 99.999")),
    }
}
