//! `commgauge judge RECORD --machine M`: thresholds, suspects and the page of a finished run, with one exit code.

use super::OutputArguments;
use super::gate::{gated, locate_options};
use super::report::ReportCommand;
use super::table_or_json::print;
use super::terminal::columns;
use super::text_output::is_page;
use super::verdict_output::read_all;
use crate::report::{SuspectsFormat, VerdictFormat, suspects_text, verdict_text};
use commgauge_analysis::verdict::locate::{Suspects, locate};
use commgauge_analysis::verdict::{Allowed, Decision, GateRule, Verdict, is_cleared, located_code, most_severe};
use commgauge_base::error::Result;
use commgauge_base::message::eprintln;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use std::path::PathBuf;

/// Judge a finished run: thresholds, suspects and the page, with one exit code
///
/// What `commgauge gate` and `commgauge locate` say, one after the other, and with --page what `commgauge report -o` writes.
/// The exit code is the more severe of the two: 0 every threshold passed and nothing is suspected; 1 a row failed or there is
/// a suspect; 3 inconclusive; 4 data arrived wrong; 5 to 6 the run failed; 7 something planned was not measured. Where fewer
/// than three nodes met in pairs, and the machine file expects nothing of pairs, no node can be suspected, and the thresholds alone decide; so
/// they do on fewer than eight nodes about what one measure of pairs alone shows.
#[derive(Clone, Debug, clap::Args)]
pub struct JudgeCommand {
    /// Records of a run (JSON Lines); the replicates of several like runs are taken together
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Machine file whose [[expect]] rows are the limits, or the name of a shipped one; without it the answer is inconclusive
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// Write the page of the run to this file (its name ends in .html); an existing file is replaced
    #[arg(long, value_name = "FILE", value_parser = page)]
    pub page: Option<PathBuf>,

    /// In what several records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub allow: Vec<Allowed>,

    /// Columns that the tables may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

impl JudgeCommand {
    /// Judges the records, writes verdict, suspects and page, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let records = read_all(&self.records)?;
        let rule = GateRule { confidence: 0.95, allowed: self.allow.clone() };
        let verdict = gated(&records, self.machine.as_deref(), &rule)?;
        let suspects = locate(&records, &locate_options(self.machine.as_deref())?).map_err(|error| error.to_string());
        let width = columns(self.width);
        let exit_code = exit_code(&verdict, suspects.as_ref());
        let located = match &suspects {
            Ok(suspects) => suspects_text(suspects, SuspectsFormat::default(), width)?,
            Err(reason) => format!("locate: not possible: {reason}\n"),
        };
        print(&format!(
            "{}\n{}\n{located}",
            summary(exit_code, &verdict, suspects.as_ref().ok()),
            verdict_text(&verdict, VerdictFormat::default(), width)?,
        ))?;
        self.write_page()?;
        Ok(exit_code)
    }

    fn write_page(&self) -> Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        ReportCommand {
            records: self.records.clone(),
            shown: OutputArguments::default(),
            output: Some(page.clone()),
            machine: self.machine.clone(),
            base: Vec::new(),
            fit: None,
            selftest: None,
            allow: self.allow.clone(),
        }
        .execute()?;
        eprintln!("commgauge: page: {}", page.shown());
        Ok(())
    }
}

/// The code of both; a search that was not possible leaves open whether there are suspects.
fn exit_code(verdict: &Verdict, suspects: std::result::Result<&Suspects, &String>) -> i32 {
    let located = match suspects {
        Ok(suspects) => located_code(suspects, Some(verdict)),
        Err(_) => NO_SEARCH,
    };
    most_severe([verdict.exit_code, located])
}

/// The exit code where suspects could not be searched for.
const NO_SEARCH: i32 = 3;

fn summary(exit_code: i32, verdict: &Verdict, suspects: Option<&Suspects>) -> String {
    let found = match suspects {
        Some(suspects) if !suspects.suspects.is_empty() => counted(suspects.suspects.len(), "suspect"),
        // Those that it cannot show are listed below, with the suspects.
        Some(suspects) if suspects.examined.can_name_a_node() && !suspects.unseen.is_empty() => {
            "no suspects of the kinds that this record can show".to_owned()
        }
        Some(suspects) if suspects.examined.can_name_a_node() => "no suspects".to_owned(),
        None => "suspects could not be searched for".to_owned(),
        Some(_) => "too few nodes met in pairs to suspect one".to_owned(),
    };
    let cleared = match suspects {
        Some(suspects) if is_cleared(suspects, Some(verdict)) => {
            "; what one measure alone shows (below) is within its thresholds"
        }
        _ => "",
    };
    let word = |code| Decision::from_exit_code(code).name().to_uppercase();
    format!(
        "judge: {} (exit code {exit_code}): thresholds {}; {found}{cleared}",
        word(exit_code),
        word(verdict.exit_code)
    )
}

/// Parses the name of a page.
fn page(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_page(&path) { Ok(path) } else { Err(format!("found `{text}`; accepted: a file name that ends in .html")) }
}
