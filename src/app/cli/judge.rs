//! `commgauge judge` and `commgauge compare`: records against a machine file, against each other, and against a base.

use super::output::{
    FormattedOutput, VerdictOutput, check_only_format, is_page, make_folder, print_on, read_all, records_in, replace,
    said,
};
use super::report::ReportCommand;
use super::simulate::rehearsed_request;
use super::suite;
use crate::report::{
    Answered, HistoryFormat, Judged, ShownRows, VerdictLook, history_text, outlook_text, plots, suspects_text,
    verdict_text,
};
use crate::store::{Added, RowFilter, Store};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::{ShownPath, quote};
use commgauge_base::writing::eprintln;
use commgauge_judge::verdict::history::{HistoryInput, HistoryRule, history};
use commgauge_judge::verdict::locate::{LocateOptions, Suspects, locate};
use commgauge_judge::verdict::{
    Allowed, CompareRule, ConsistencyRule, GateRule, LoadedRecord, PlannedWork, Verdict, compare, consistency, gate,
    gate_new_machine, located_code, most_severe, plan_outlook,
};
use commgauge_model::config::{Machine, Shipped};
use commgauge_run::session::Rehearsal;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Judge a finished run: thresholds, suspects and the page, with one exit code
///
/// Thresholds are the [[expect]] rows of the machine file; suspects are the node, link, rail or leaf that is slow, from the pairs
/// that `commgauge run qualify` measures. The exit code is the more severe of the two: 0 every threshold passed and there is no
/// suspect; 1 a row failed or there is a suspect; 3 inconclusive; 4 data arrived wrong; 5 to 6 the run failed; 7 something planned
/// was not measured. Missing, unverified, synthetic and unreliable rows never pass. Where fewer than three nodes met in pairs and
/// the machine file expects nothing of pairs, the thresholds alone decide; on fewer than eight nodes they also overrule a suspect
/// that a single measure of pairs names.
#[derive(Clone, Debug, clap::Args)]
pub struct JudgeCommand {
    /// Records of a run (JSON Lines); the replicates of several like runs are taken together
    #[arg(required_unless_present = "plan", value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Machine file with the thresholds, or the name of a shipped one; without it thresholds are inconclusive
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// Show one part only, with its own exit code [default: both]
    #[arg(long, value_enum)]
    pub part: Option<Part>,

    /// Write the page of the run to this file (NAME.html); an existing file is replaced
    #[arg(long, value_name = "FILE", value_parser = page)]
    pub page: Option<PathBuf>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,

    /// Before a run of this suite, show which thresholds it measures: how many, and whether a run can pass
    #[arg(
        long,
        value_name = "SUITE",
        requires = "machine",
        conflicts_with_all = ["records", "part", "page", "template", "format", "output"]
    )]
    pub plan: Option<PathBuf>,

    /// Nodes of --plan, each with the ranks of the machine file
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nodes: u32,

    /// Also write a file with an [[expect]] to fill in for each row that has none; without --machine, a whole machine file with the
    /// file's name
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub template: Option<PathBuf>,

    /// Confidence of the bounds of thresholds, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = within(CONFIDENCE), hide_short_help = true)]
    pub confidence: f64,

    /// In what several records may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", hide_short_help = true)]
    pub allow: Vec<Allowed>,

    /// Nodes behind each leaf switch, counted from node 0 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub nodes_per_leaf: Option<u32>,

    /// Nodes that the links of a rack join, counted from node 0, as the 18 of an NVL72 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub nodes_per_rack: Option<u32>,
}

/// A part of the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Each row against what the machine file expects
    Thresholds,
    /// The node, link, rail or leaf that is slow: table, json or markdown
    Suspects,
}

impl JudgeCommand {
    /// Judges the records, writes the answer and the page, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        if let (Some(suite), Some(machine)) = (&self.plan, &self.machine) {
            return judge_plan(suite, machine, self.nodes, self.confidence / 100.0, &mut std::io::stdout().lock());
        }
        let look = self.check()?;
        let records = read_all(&self.records)?;
        let machine = self.machine.as_deref().map(Machine::load).transpose()?;
        let (text, exit_code) = match self.part {
            Some(Part::Thresholds) => {
                let verdict = self.verdict(&records, machine.as_ref())?;
                (verdict_text(&verdict, look)?, verdict.exit_code)
            }
            Some(Part::Suspects) => {
                let suspects = locate(&records, &self.locate_options(machine))?;
                (suspects_text(&suspects, look)?, suspects.exit_code)
            }
            None => {
                let verdict = self.verdict(&records, machine.as_ref())?;
                let suspects = locate(&records, &self.locate_options(machine)).map_err(|error| error.to_string());
                let exit_code = exit_code(&verdict, suspects.as_ref().ok());
                let next = self.next(&records, &verdict, suspects.as_ref().ok());
                let judged = Judged { exit_code, verdict: &verdict, suspects: suspects.as_ref(), next };
                (judged.text(look)?, exit_code)
            }
        };
        self.shown.output.write(&text)?;
        self.write_page()?;
        Ok(said(self.shown.output.to.file(), exit_code))
    }

    /// Refuses outputs over inputs and flags of the part that is not shown, and returns the format.
    fn check(&self) -> Result<VerdictLook> {
        let file = self.machine.as_deref().and_then(|requested| Shipped::Machine.find(requested));
        let inputs: Vec<&Path> = self.records.iter().chain(&file).map(PathBuf::as_path).collect();
        if let Some(path) = &self.template {
            check_only_format(path, "toml", &inputs)?;
        }
        for (flag, given, other) in [
            ("--template", self.template.is_some(), Part::Suspects),
            ("--nodes-per-leaf", self.nodes_per_leaf.is_some(), Part::Thresholds),
            ("--nodes-per-rack", self.nodes_per_rack.is_some(), Part::Thresholds),
        ] {
            if given && self.part == Some(other) {
                let part = if other == Part::Suspects { "suspects" } else { "thresholds" };
                return Err(Error::usage(format!("{flag} has no effect on --part {part}; leave out one of the two")));
            }
        }
        self.shown.look(&inputs)
    }

    /// What to run next.
    fn next(&self, records: &[LoadedRecord], verdict: &Verdict, suspects: Option<&Suspects>) -> Option<String> {
        let answered = Answered {
            header: &records.first()?.record.header,
            records: self.records.iter().map(|record| quote(&record.display().to_string())).collect(),
            machine: self.machine.as_ref().map(|machine| machine.display().to_string()),
            base: Vec::new(),
            verdicts: vec![verdict],
            suspects,
            disturbed: false,
            exit_code: exit_code(verdict, suspects),
        };
        answered.next()
    }

    fn verdict(&self, records: &[LoadedRecord], machine: Option<&Machine>) -> Result<Verdict> {
        let rule = GateRule { confidence: self.confidence / 100.0, allowed: self.allow.clone() };
        let verdict = match (machine, &self.template) {
            (None, Some(path)) => gate_new_machine(records, &stem(path), &rule)?,
            (machine, _) => gate(records, machine, &rule)?,
        };
        if let Some(path) = &self.template {
            write_template(path, verdict.template.as_deref())?;
        }
        Ok(verdict)
    }

    fn locate_options(&self, machine: Option<Machine>) -> LocateOptions {
        let of_file = machine.as_ref().map(LocateOptions::of_machine).unwrap_or_default();
        LocateOptions {
            nodes_per_leaf: self.nodes_per_leaf.or(of_file.nodes_per_leaf),
            nodes_per_rack: self.nodes_per_rack.or(of_file.nodes_per_rack),
            machine,
        }
    }

    fn write_page(&self) -> Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        ReportCommand {
            records: self.records.clone(),
            output: Some(page.clone()),
            machine: self.machine.clone(),
            allow: self.allow.clone(),
            ..ReportCommand::default()
        }
        .write()?;
        eprintln!("commgauge: page: {}", page.shown());
        Ok(())
    }
}

/// The code of both parts; a search that was not possible leaves open whether there are suspects.
fn exit_code(verdict: &Verdict, suspects: Option<&Suspects>) -> i32 {
    const NO_SEARCH: i32 = 3;
    let located = suspects.map_or(NO_SEARCH, |suspects| located_code(suspects, Some(verdict)));
    most_severe([verdict.exit_code, located])
}

/// Never replaces a file: it may already be filled in.
fn write_template(path: &Path, template: Option<&str>) -> Result<()> {
    let Some(template) = template else {
        eprintln!("judge: --template {} is not written: every row has an expectation", path.shown());
        return Ok(());
    };
    if path.exists() {
        return Err(Error::usage(format!("--template {} exists; name a new file", path.shown())));
    }
    replace(path, template)
}

fn stem(requested: &Path) -> String {
    requested.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Percent of confidence: two replicates allow no less.
pub(super) const CONFIDENCE: RangeInclusive<f64> = 75.0..=99.999;

/// A slowdown in percent that is worth a verdict.
pub(super) const RELEVANT: RangeInclusive<f64> = 0.1..=100.0;

/// A parser of numbers in this range.
pub(super) fn within(range: RangeInclusive<f64>) -> impl Fn(&str) -> std::result::Result<f64, String> + Clone {
    move |text| match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("found `{text}`; accepted: a number from {} to {}", range.start(), range.end())),
    }
}

/// Parses the name of a page.
fn page(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_page(&path) { Ok(path) } else { Err(format!("found `{text}`; accepted: a file name that ends in .html")) }
}

/// Writes how far a suite on this many nodes of a machine can be judged; 0 where a run of it can pass.
pub(super) fn judge_plan(
    suite: &Path,
    machine: &Path,
    nodes: u32,
    confidence: f64,
    out: &mut dyn Write,
) -> Result<i32> {
    suite::report_resolved_file(Shipped::Suite, suite);
    suite::report_resolved_file(Shipped::Machine, machine);
    let machine = Machine::load(machine)?;
    let well = Machine { faults: Vec::new(), ..machine.clone() };
    let request = rehearsed_request(suite, &well, nodes)?;
    let planned = PlannedWork {
        cases: Rehearsal::new(&request)?.planned_cases(),
        hosts: machine.hosts_of(request.world_size),
        copies: request.plan.copies.clone(),
        products: request.plan.products.clone(),
    };
    let outlook = plan_outlook(&machine, &planned, request.settings.replicates, confidence);
    print_on(out, &outlook_text(&request, &machine, nodes, &outlook))?;
    Ok(if outlook.shortfalls.is_empty() { 0 } else { 3 })
}

/// Decide whether a run is slower than a base, row by row, and end with the code of the verdict
///
/// 0 every row is shown to be no slower by what matters; 1 a row is slower, or alpha or beta of a curve; 3 inconclusive; 4
/// data arrived wrong; 5 to 6 a run failed; 7 something planned was not measured. Runs that are not alike are refused.
///
/// Where several runs are compared, one that is slower by itself is named, and good runs do not make up for it.
///
/// --consistency compares nothing: it checks one run for contradictions. A call of twice the bytes takes more than 2.05 times as
/// long; a larger call takes less time; all_reduce is slower than reduce_scatter and all_gather together, and the like; the
/// bandwidth dips at a size.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareCommand {
    /// Record of the base (JSON Lines)
    pub base: PathBuf,

    /// Record that is compared with it; only --consistency goes without
    pub new: Option<PathBuf>,

    /// Check BASE alone for contradictions within it, and compare it with nothing
    #[arg(long, conflicts_with_all = ["new", "more_new", "relevant"])]
    pub consistency: bool,

    /// Further records of the base; their replicates count with the first's
    #[arg(long, value_name = "RECORD", hide_short_help = true)]
    pub more_base: Vec<PathBuf>,

    /// Further records that are compared with the base
    #[arg(long, value_name = "RECORD", hide_short_help = true)]
    pub more_new: Vec<PathBuf>,

    /// The smallest slow-down that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = within(RELEVANT))]
    pub relevant: f64,

    /// Confidence, in per cent: the chance of any false alarm over all rows is at most the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = within(CONFIDENCE), hide_short_help = true)]
    pub confidence: f64,

    /// In what the runs may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", hide_short_help = true)]
    pub allow: Vec<Allowed>,

    /// How the verdict is shown.
    #[command(flatten)]
    pub shown: VerdictOutput,
}

impl CompareCommand {
    /// Compares, writes the verdict, and returns its exit code.
    pub fn execute(&self) -> Result<i32> {
        if self.new.is_none() && !self.consistency {
            return Err(Error::usage(format!(
                "NEW is missing, so {base} is compared with nothing (an empty variable?): name the record of the new run, or check {base} \
                 for contradictions within itself with `commgauge compare --consistency {base}`",
                base = self.base.shown()
            )));
        }
        let base: Vec<PathBuf> = std::iter::once(&self.base).chain(&self.more_base).cloned().collect();
        let new: Vec<PathBuf> = self.new.iter().chain(&self.more_new).cloned().collect();
        let inputs: Vec<&Path> = base.iter().chain(&new).map(PathBuf::as_path).collect();
        let look = self.shown.look(&inputs)?;
        let false_alarm_level = 1.0 - self.confidence / 100.0;
        if self.consistency {
            let rule = ConsistencyRule { false_alarm_level, ..ConsistencyRule::default() };
            return self.shown.show(&consistency(&read_all(&base)?, rule, &self.allow)?, look);
        }
        let rule =
            CompareRule { false_alarm_level, relevant_slowdown: self.relevant / 100.0, allowed: self.allow.clone() };
        let mut judged = read_all(&[base.clone(), new].concat())?;
        let new = judged.split_off(base.len());
        self.shown.show(&compare(&judged, &new, &rule)?, look)
    }
}

// `commgauge history DIR`: runs over time, row by row, and where they changed.

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
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = within(RELEVANT), hide_short_help = true)]
    pub relevant: f64,

    /// Confidence, in per cent: the chance of any false alarm over all rows is at most the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = within(CONFIDENCE), hide_short_help = true)]
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
        let to = &self.shown.to;
        self.shown.write(&history_text(&history, format, to.columns(), self.rows(), &to.folder())?)?;
        Ok(said(to.file(), history.exit_code))
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
    Add {
        /// Records (JSON Lines); a run that is in the store already changes nothing
        #[arg(required = true, value_name = "RECORD")]
        records: Vec<PathBuf>,

        /// The store: records/, index.log and dataset/, partitioned by machine and month
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
    },
    /// Make index and dataset of a store again, of its records alone
    Rebuild {
        /// The store
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
    },
}

impl StoreCommand {
    /// Carries the command out; notes go to stderr.
    ///
    /// # Errors
    /// Of the first record that could not be added; those before it and after it are in the store.
    pub fn execute(&self) -> Result<i32> {
        match self {
            StoreCommand::Add { records, store } => add(records, store),
            StoreCommand::Rebuild { store } => rebuild(store),
        }
    }
}

fn add(records: &[PathBuf], folder: &Path) -> Result<i32> {
    let mut store = Store::open_or_create(folder)?;
    let (mut new, mut known, mut repaired, mut failed) = (0, 0, 0, Vec::new());
    for record in records {
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
    eprintln!("commgauge: {} added to {}{others}", counted(new, "run"), folder.shown());
    let mut failed = failed.into_iter();
    let Some(first) = failed.next() else { return Ok(0) };
    failed.for_each(|error| eprintln!("commgauge: {error}"));
    Err(first)
}

fn rebuild(folder: &Path) -> Result<i32> {
    let bar = bar(0);
    let (added, left_out) = Store::rebuild(folder, |at, count| {
        bar.set_length(count as u64);
        bar.set_position(at as u64);
    })?;
    bar.finish_and_clear();
    eprintln!("commgauge: index and dataset of {} made again of {}", folder.shown(), counted(added, "run"));
    left_out.iter().for_each(|reason| eprintln!("commgauge: left out: {reason}"));
    Ok(if left_out.is_empty() { 0 } else { SOME_LEFT_OUT })
}
