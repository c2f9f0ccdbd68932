//! `commgauge history DIR`: runs over time, row by row, and where they changed.

use super::judge::{confidence, relevant};
use super::output::{FormattedOutput, make_folder, records_in, replace};
use crate::report::{HistoryFormat, ShownRows, history_text, plots};
use crate::store::{Added, RowFilter, Store};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_judge::verdict::LoadedRecord;
use commgauge_judge::verdict::history::{HistoryInput, HistoryRule, history};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

/// Show runs over time, row by row, and where they changed
///
/// Reads every record (*.jsonl) of the folders, puts runs of one suite on the same hosts, devices and ranks together, and looks
/// for steps: between which two runs, by how much, in how many rows, and what else differs between those runs. Ends with 0
/// where no row is slower since its last change, 1 where one is, 3 where there are too few runs.
///
/// A fleet's history outgrows a folder: `commgauge history add RECORD --store DIR` keeps records, an index of them and a
/// dataset for other programs, and --store DIR shows the history of all of them.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HistoryCommand {
    /// Keeps a store.
    #[command(subcommand)]
    pub store_command: Option<StoreCommand>,

    /// Folders with records, or records
    #[arg(required_unless_present = "store", value_name = "DIR")]
    pub places: Vec<PathBuf>,

    /// Instead of folders: the store of `commgauge history add`
    #[arg(long, value_name = "DIR", conflicts_with = "places")]
    pub store: Option<PathBuf>,

    /// With --store: only rows whose names contain this text
    #[arg(long, value_name = "TEXT", requires = "store", hide_short_help = true)]
    pub case: Option<String>,

    /// With --store: only runs of this suite
    #[arg(long, value_name = "NAME", requires = "store", hide_short_help = true)]
    pub suite: Option<String>,

    /// How it is shown.
    #[command(flatten)]
    pub shown: FormattedOutput<HistoryFormat>,

    /// Show all rows, not only those that changed
    #[arg(long)]
    pub all: bool,

    /// Write a picture (SVG) of each shown row into this folder
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub plots: Option<PathBuf>,

    /// The smallest step that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = relevant, hide_short_help = true)]
    pub relevant: f64,

    /// Confidence, in per cent: the chance of any false alarm over all rows is at most the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence, hide_short_help = true)]
    pub confidence: f64,
}

impl HistoryCommand {
    /// Reads the records, prints the history, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        if let Some(command) = &self.store_command {
            return command.execute();
        }
        let (format, input) = match &self.store {
            Some(folder) => {
                let format = self.shown.check(&[])?;
                let filter = RowFilter { case: self.case.clone(), suite: self.suite.clone() };
                let (input, problems) = Store::open(folder)?.history_input(&filter)?;
                problems.iter().for_each(|problem| eprintln!("commgauge: {problem}"));
                (format, input)
            }
            None => self.of_files()?,
        };
        let rule = HistoryRule { false_alarm_level: 1.0 - self.confidence / 100.0, relevant: self.relevant / 100.0 };
        let history = history(input, rule);
        if let Some(folder) = &self.plots {
            make_folder("--plots", folder)?;
            for (name, picture) in plots(&history, self.rows()) {
                replace(&folder.join(name), picture.standalone())?;
            }
        }
        self.shown.write(&history_text(&history, format, self.shown.to.columns(), self.rows())?)?;
        Ok(history.exit_code)
    }

    fn of_files(&self) -> Result<(HistoryFormat, HistoryInput)> {
        let files = self.files()?;
        let format = self.shown.check(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        let bar = bar(files.len() as u64);
        let mut input = HistoryInput::default();
        for file in &files {
            input.add(file, LoadedRecord::read(file));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((format, input))
    }

    fn rows(&self) -> ShownRows {
        if self.all { ShownRows::All } else { ShownRows::Changed }
    }

    /// The named record files, and the records directly inside the named folders, sorted by name.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for place in &self.places {
            if place.is_dir() {
                files.extend(records_in(place)?);
            } else if place.is_file() {
                files.push(place.clone());
            } else {
                return Err(Error::usage(format!("{} is no folder and no file", place.shown())));
            }
        }
        if files.is_empty() {
            let places: Vec<String> = self.places.iter().map(|place| place.display().to_string()).collect();
            let store = self.places.iter().find(|place| Store::is_in(place));
            let hint = store.map_or(String::new(), |store| format!("; {0} is a store: --store {0}", store.shown()));
            return Err(Error::usage(format!("no record (*.jsonl) is in {}{hint}", places.join(", "))));
        }
        Ok(files)
    }
}

/// On a terminal only; indicatif hides it elsewhere.
fn bar(files: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("reading {bar:30} {pos}/{len} {eta}");
    let bar = ProgressBar::new(files);
    style.map(|style| bar.with_style(style)).unwrap_or_else(|_| ProgressBar::hidden())
}

// `commgauge history add RECORD --store DIR` and `commgauge history rebuild --store DIR`: keep the store of a fleet's history.

/// The exit code of a rebuilt store that lacks some of its records.
const SOME_LEFT_OUT: i32 = 3;

/// What keeps a store.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum StoreCommand {
    /// Add records to a store; creates the store if it does not exist
    Add(AddArguments),
    /// Make index and dataset of a store again, of its records alone
    Rebuild(RebuildArguments),
}

/// What is added, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct AddArguments {
    /// Records (JSON Lines); a run that is in the store already changes nothing
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// The store: records/, index.log and dataset/, partitioned by machine and month
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

/// What is made again.
#[derive(Clone, Debug, clap::Args)]
pub struct RebuildArguments {
    /// The store
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

impl StoreCommand {
    /// Carries the command out; notes go to stderr.
    ///
    /// # Errors
    /// Of the first record that could not be added; those before it and after it are in the store.
    pub fn execute(&self) -> Result<i32> {
        match self {
            StoreCommand::Add(arguments) => arguments.add(),
            StoreCommand::Rebuild(arguments) => arguments.rebuild(),
        }
    }
}

impl AddArguments {
    fn add(&self) -> Result<i32> {
        let mut store = Store::open_or_create(&self.store)?;
        let (mut new, mut known, mut repaired, mut failed) = (0, 0, 0, Vec::new());
        for record in &self.records {
            match store.add(record) {
                Ok(Added::New) => new += 1,
                Ok(Added::Known) => known += 1,
                Ok(Added::Repaired) => repaired += 1,
                Err(error) => failed.push(error),
            }
        }
        let and = |count: usize, what: &str| match count {
            0 => String::new(),
            _ => format!(", {} {what}", counted(count, "run")),
        };
        let others = and(known, "there already") + &and(repaired, "repaired");
        eprintln!("commgauge: {} added to {}{others}", counted(new, "run"), self.store.shown());
        let mut failed = failed.into_iter();
        let Some(first) = failed.next() else { return Ok(0) };
        failed.for_each(|error| eprintln!("commgauge: {error}"));
        Err(first)
    }
}

impl RebuildArguments {
    fn rebuild(&self) -> Result<i32> {
        let bar = bar(0);
        let (added, left_out) = Store::rebuild(&self.store, |at, count| {
            bar.set_length(count as u64);
            bar.set_position(at as u64);
        })?;
        bar.finish_and_clear();
        eprintln!("commgauge: index and dataset of {} made again of {}", self.store.shown(), counted(added, "run"));
        left_out.iter().for_each(|reason| eprintln!("commgauge: left out: {reason}"));
        Ok(if left_out.is_empty() { 0 } else { SOME_LEFT_OUT })
    }
}
