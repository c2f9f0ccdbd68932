//! The folder of a calibration, the run of its suite, and the fit of its record.

use crate::cli::backend_name::Backend;
use crate::cli::fit::fit_of;
use crate::cli::run::{RunArguments, SummaryParts, run as run_suite};
use crate::cli::table_or_json::json;
use crate::cli::text_output::{make_folder, replace};
use clap::Parser;
use commgauge_analysis::cost::FitOptions;
use commgauge_analysis::planner::compute::MeasuredProduct;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Record;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a calibration leaves.
pub(super) struct Folder {
    path: PathBuf,
    /// What is measured.
    pub suite: PathBuf,
    /// What was measured.
    pub record: PathBuf,
    /// How calls and computing slow each other, in the replay of the best layout's step.
    pub overlap: PathBuf,
    /// The cost model.
    pub fit: PathBuf,
}

/// What is measured by one launch.
pub(super) enum Work<'a> {
    /// The suite of the folder.
    Suite,
    /// The replay of a step, by these flags of `commgauge-step`.
    Step(&'a [String]),
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
            overlap: path.join("overlap.jsonl"),
            fit: path.join("fit.json"),
        }
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self) -> Result<()> {
        make_folder("--output", &self.path)
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

impl Work<'_> {
    fn record<'a>(&self, folder: &'a Folder) -> &'a Path {
        match self {
            Work::Suite => &folder.record,
            Work::Step(_) => &folder.overlap,
        }
    }
}

/// Runs the work, or goes on with a run that was cut off, and returns the exit code. `words` are more flags of `commgauge run`.
///
/// # Errors
/// Flags that `commgauge run` does not take; those of a run that does not start.
pub(super) fn run(folder: &Folder, work: &Work, words: &[String]) -> Result<i32> {
    let record = work.record(folder);
    let run = arguments(folder, work, words)?;
    let run = match (record.exists(), run.backend) {
        (false, _) => run,
        (true, Backend::Simulated) => RunArguments { record: None, resume: Some(record.to_owned()), ..run },
        // The record knows how its ranks were launched, and for what.
        (true, _) => RunArguments {
            suite: None,
            step: false,
            extra: Vec::new(),
            record: None,
            machine: None,
            resume: Some(record.to_owned()),
            ..run
        },
    };
    run_suite(&run, &mut std::io::stdout().lock())
}

/// Who carries the communication out, by the flags of `commgauge run`.
///
/// # Errors
/// Flags that it does not take.
pub(super) fn backend(folder: &Folder, words: &[String]) -> Result<Backend> {
    Ok(arguments(folder, &Work::Suite, words)?.backend)
}

fn arguments(folder: &Folder, work: &Work, words: &[String]) -> Result<RunArguments> {
    let mut all: Vec<OsString> = match work {
        Work::Suite => vec![folder.suite.as_os_str().to_owned()],
        Work::Step(_) => vec!["--step".into()],
    };
    all.extend(["--record".into(), work.record(folder).as_os_str().to_owned()]);
    all.extend(words.iter().map(OsString::from));
    // Those after a second `--` are for every launch of the calibration, such as --share-gpu.
    if let Work::Step(flags) = work {
        all.extend(words.iter().all(|word| word != "--").then(|| "--".into()));
        all.extend(flags.iter().map(OsString::from));
    }
    let RunWords { run } = RunWords::try_parse_from(all).map_err(|error| {
        let text = error.to_string();
        let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::usage(format!("after `--`: {problem}; accepted: flags of `commgauge run`, such as -n 4"))
    })?;
    Ok(RunArguments { summary: SummaryParts::Head, ..run })
}

/// How many ranks measured the suite.
///
/// # Errors
/// A record that cannot be read.
pub(super) fn ranks(folder: &Folder) -> Result<u32> {
    Ok(Record::read(&folder.record)?.header.world_size)
}

/// Whether the record has matrix products of this type, each with a time.
///
/// # Errors
/// A record that cannot be read.
pub(super) fn has_products(folder: &Folder, element: ElementType) -> Result<bool> {
    let products = MeasuredProduct::all_of(&Record::read(&folder.record)?);
    Ok(products.iter().any(|product| product.element == element))
}

/// Fits records of the folder and writes the fit.
///
/// # Errors
/// A record that cannot be read or has no curves; a file that cannot be written.
pub(super) fn fit(folder: &Folder, records: &[PathBuf]) -> Result<()> {
    let fit = fit_of(records, FitOptions::default())?;
    replace(&folder.fit, &json(&fit)?)?;
    let curves: usize = fit.families.iter().map(|family| family.curves.len()).sum();
    let shown: Vec<String> = records.iter().map(|record| record.shown().to_string()).collect();
    eprintln!("fit: {curves} curves in {} (`commgauge fit {}` shows them)", folder.fit.shown(), shown.join(" "));
    Ok(())
}
