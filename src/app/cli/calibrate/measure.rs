//! The folder of a calibration, the run of its suite, and the fit of its record.

use crate::cli::backend_name::Backend;
use crate::cli::fit::fit_of;
use crate::cli::run::{RunArguments, SummaryParts, run as run_suite};
use crate::cli::table_or_json::json;
use crate::cli::verdict_output::replace;
use clap::Parser;
use commgauge_analysis::cost::FitOptions;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a calibration leaves.
pub(super) struct Folder {
    path: PathBuf,
    /// What is measured.
    pub suite: PathBuf,
    /// What was measured.
    pub record: PathBuf,
    /// The cost model.
    pub fit: PathBuf,
}

/// The flags of `commgauge run`, from words.
#[derive(Debug, Parser)]
#[command(name = "commgauge run", no_binary_name = true, disable_help_flag = true)]
struct RunWords {
    #[command(flatten)]
    run: RunArguments,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_owned(),
            suite: path.join("suite.toml"),
            record: path.join("record.jsonl"),
            fit: path.join("fit.json"),
        }
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self) -> Result<()> {
        std::fs::create_dir_all(&self.path)
            .map_err(|cause| Error::usage(format!("cannot make the folder {}: {cause}", self.path.shown())))
    }

    /// Writes the suite; one that is there must be the same.
    ///
    /// # Errors
    /// A folder that holds the calibration of something else, or that cannot be written.
    pub fn write_suite(&self, text: &str) -> Result<()> {
        match std::fs::read_to_string(&self.suite) {
            Ok(known) if known == text => Ok(()),
            Ok(_) if self.record.exists() => Err(Error::usage(format!(
                "{} was measured for another suite than these flags ask for; name another folder with -o, or remove this one",
                self.record.shown()
            ))),
            _ => replace(&self.suite, text),
        }
    }
}

/// Runs the suite, or goes on with a run that was cut off, and returns the exit code. `words` are more flags of `commgauge run`.
///
/// # Errors
/// Flags that `commgauge run` does not take; those of a run that does not start.
pub(super) fn run(folder: &Folder, words: &[String]) -> Result<i32> {
    let mut all = vec![folder.suite.as_os_str().to_owned(), "--record".into(), folder.record.as_os_str().to_owned()];
    all.extend(words.iter().map(OsString::from));
    let RunWords { run } = RunWords::try_parse_from(all).map_err(|error| {
        let text = error.to_string();
        let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::usage(format!("after `--`: {problem}; accepted: flags of `commgauge run`, such as -n 4"))
    })?;
    let run = RunArguments { summary: SummaryParts::Head, ..run };
    let run = match (folder.record.exists(), run.backend) {
        (false, _) => run,
        (true, Backend::Simulated) => RunArguments { record: None, resume: Some(folder.record.clone()), ..run },
        // The record knows how its ranks were launched.
        (true, _) => {
            RunArguments { suite: None, record: None, machine: None, resume: Some(folder.record.clone()), ..run }
        }
    };
    run_suite(&run, &mut std::io::stdout().lock())
}

/// Fits the record and writes the fit.
///
/// # Errors
/// A record that cannot be read or has no curves; a file that cannot be written.
pub(super) fn fit(folder: &Folder) -> Result<()> {
    let fit = fit_of(std::slice::from_ref(&folder.record), FitOptions::default())?;
    replace(&folder.fit, &json(&fit)?)?;
    let curves: usize = fit.families.iter().map(|family| family.curves.len()).sum();
    eprintln!("fit: {curves} curves in {} (`commgauge fit {}` shows them)", folder.fit.shown(), folder.record.shown());
    Ok(())
}
