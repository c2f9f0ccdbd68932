//! `commgauge report RECORD...`: prints records as text or as one HTML file, and returns their exit code.

#[cfg(feature = "mpi")]
pub(super) use in_rank_0::Live;

use super::OutputArguments;
use super::gate::{confidence, gated, locate_options};
use super::output::{
    Chosen, FormattedOutput, PAGE, Sink, VerdictOutput, check_output, columns, file_of, is_page, meant_format, names,
    print, read_all, replace,
};
use crate::report::{
    Format, HtmlInput, HtmlRun, SuspectsFormat, VerdictFormat, View, html, suspects_text, verdict_text,
};
use clap::ValueEnum;
use commgauge_analysis::cost;
use commgauge_analysis::cost::{Fit, FitOptions, Measurements};
use commgauge_analysis::verdict::locate::{LocateOptions, Suspects, locate};
use commgauge_analysis::verdict::{
    Allowed, CompareRule, ConsistencyRule, Decision, GateRule, LoadedRecord, SelfTest, Verdict, compare, consistency,
    differences, ensure_comparable, is_cleared, located_code, most_severe,
};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::Machine;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Fitting more cases would take too long for a report.
const MAX_CASES_TO_FIT: usize = 20_000;

/// Show a record as a table, or turn it into another format; `-o report.html` writes a page to send around
///
/// The exit code is that of the record: 0 complete and right, 4 data arrived wrong, 5 to 6 the run failed, 7 something
/// planned was not measured or the record was cut off. With --machine or --base it is that of the verdict: 1 a row failed,
/// 3 inconclusive. The report is written in any case.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportCommand {
    /// Records of runs (JSON Lines); several like runs are shown together in one HTML file
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// How results are shown.
    #[command(flatten)]
    pub shown: OutputArguments,

    /// Write to a file instead of stdout; an existing file is replaced once the new one is complete. Without --format the ending of
    /// its name chooses the format: .html makes the page; .txt, .json, .csv, .md, .xml, .prom
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Machine file whose [[expect]] rows are the limits of the page's verdict, or the name of a shipped one
    #[arg(long, value_name = "FILE|NAME", help_heading = "Page")]
    pub machine: Option<PathBuf>,

    /// Earlier record to compare with; may be given several times, for several runs of the base
    #[arg(long, value_name = "RECORD", help_heading = "Page")]
    pub base: Vec<PathBuf>,

    /// Cost model to show; without it one is fitted to the records
    #[arg(long, value_name = "FILE", help_heading = "Page")]
    pub fit: Option<PathBuf>,

    /// What `commgauge selftest --format json` found, to show how often the rules err
    #[arg(long, value_name = "FILE", help_heading = "Page")]
    pub selftest: Option<PathBuf>,

    /// In what the runs may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", help_heading = "Page")]
    pub allow: Vec<Allowed>,
}

impl ReportCommand {
    /// Reads the records, prints the report, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let output = file_of(self.output.as_deref());
        let inputs = self.records.iter().chain(&self.base).chain(&self.machine).chain(&self.fit).chain(&self.selftest);
        check_output(output, &inputs.map(PathBuf::as_path).collect::<Vec<_>>())?;
        let offered = [names::<Format>(), vec![PAGE.to_owned()]].concat();
        let meant = match (&self.shown.format, output) {
            (None, Some(path)) => meant_format(path, &offered)?,
            _ => None,
        };
        match (output, meant.as_deref()) {
            (Some(path), Some(PAGE)) => self.page(path),
            (_, meant) => {
                let meant = meant.and_then(|name| Format::from_str(name, false).ok()).map(Chosen::Named);
                self.text(
                    output,
                    &OutputArguments { format: self.shown.format.clone().or(meant), ..self.shown.clone() },
                )
            }
        }
    }

    fn text(&self, output: Option<&Path>, shown: &OutputArguments) -> Result<i32> {
        let [record] = &self.records[..] else {
            return Err(Error::usage(format!(
                "{} records were given; text shows one at a time, a page (-o report.html) shows several",
                self.records.len()
            )));
        };
        for (flag, given) in [
            ("--machine", self.machine.is_some()),
            ("--base", !self.base.is_empty()),
            ("--fit", self.fit.is_some()),
            ("--selftest", self.selftest.is_some()),
            ("--allow", !self.allow.is_empty()),
        ] {
            if given {
                return Err(Error::usage(format!(
                    "{flag} is for the page (-o report.html); `commgauge gate`, `compare` and `fit` answer in text"
                )));
            }
        }
        let view = View::new(&LoadedRecord::read(record)?.record);
        match output {
            Some(path) => {
                let mut text = Vec::new();
                shown.show_on(&view, Sink::File, &mut text)?;
                replace(path, &text)?;
            }
            None => shown.show(&view)?,
        }
        Ok(view.exit_code())
    }

    fn page(&self, path: &Path) -> Result<i32> {
        if self.selftest.is_some() && self.machine.is_none() && self.base.is_empty() {
            return Err(Error::usage(
                "--selftest shows how often the rules of a verdict err, and this page has none; give --machine or --base",
            ));
        }
        let (records, base) = (read_all(&self.records)?, read_all(&self.base)?);
        ensure_comparable(&records.iter().chain(&base).collect::<Vec<_>>(), &self.allow)?;
        let verdict = self.machine.as_deref().map(|machine| self.gated(&records, machine)).transpose()?;
        let comparison = if base.is_empty() { None } else { Some(self.compared(&base, &records)?) };
        let tried = self.selftest.as_deref().map(SelfTest::read).transpose()?;
        let consistent = self.consistent(&records)?;
        let fit = match &self.fit {
            Some(path) => Ok(Fit::read(path)?),
            None => fitted(&records),
        };
        let seen =
            |loaded: &[LoadedRecord]| -> Vec<View> { loaded.iter().map(|loaded| View::new(&loaded.record)).collect() };
        let runs = shown(&records, &records, seen(&records));
        let base = shown(&base, &records, seen(&base));
        let codes: Vec<i32> = match (&verdict, &comparison) {
            (None, None) => runs.iter().map(|run| run.view.exit_code()).collect(),
            (verdict, comparison) => verdict.iter().chain(comparison).map(|verdict| verdict.exit_code).collect(),
        };
        // Records without suspects to search for still make a page, which gives the reason.
        let suspects = locate(&records, &locate_options(self.machine.as_deref())?).map_err(|error| error.to_string());
        let page = html(&HtmlInput {
            runs: &runs,
            base: &base,
            machine: self.machine.as_ref().map(|machine| machine.display().to_string()),
            verdict: verdict.as_ref(),
            comparison: comparison.as_ref(),
            consistency: consistent.as_ref().map_err(Clone::clone),
            selftest: tried.as_ref(),
            fit: fit.as_ref().map_err(Clone::clone),
            fit_is_own: self.fit.is_none(),
            suspects: suspects.as_ref().map_err(Clone::clone),
        })?;
        replace(path, &page)?;
        Ok(most_severe(codes))
    }

    fn gated(&self, records: &[LoadedRecord], machine: &Path) -> Result<Verdict> {
        gated(records, Some(machine), &GateRule { confidence: 0.95, allowed: self.allow.clone() })
    }

    /// Checks calls for contradictions, or returns why the check does not apply.
    fn consistent(&self, records: &[LoadedRecord]) -> Result<std::result::Result<Verdict, String>> {
        if records.iter().any(|judged| judged.record.header.backend.synthetic) {
            return Ok(Err("a simulation is not compared with rules for machines".to_owned()));
        }
        consistency(records, ConsistencyRule::default(), &self.allow).map(Ok)
    }

    fn compared(&self, base: &[LoadedRecord], records: &[LoadedRecord]) -> Result<Verdict> {
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: self.allow.clone() };
        compare(base, records, &rule)
    }
}

/// The cost model fitted to the records, or why there is none.
fn fitted(records: &[LoadedRecord]) -> std::result::Result<Fit, String> {
    let cases: usize = records.iter().map(|judged| judged.record.plan.cases.len()).sum();
    if cases > MAX_CASES_TO_FIT {
        return Err(format!(
            "{cases} cases are too many to fit beside a report; `commgauge fit RECORD -o fit.json` fits them, and --fit fit.json \
             shows it here"
        ));
    }
    let named: Vec<(String, &LoadedRecord)> =
        records.iter().map(|loaded| (loaded.path.display().to_string(), loaded)).collect();
    let of = named.iter().map(|(name, loaded)| (name.as_str(), &loaded.record));
    let measurements = Measurements::of(of).map_err(|error| error.to_string())?;
    cost::fit(&measurements, FitOptions::default()).map_err(|error| error.to_string())
}

/// Records with their views, and how each differs from the first of all.
fn shown<'a>(records: &'a [LoadedRecord], all: &[LoadedRecord], views: Vec<View>) -> Vec<HtmlRun<'a>> {
    let unlike = |judged: &LoadedRecord| all.first().map_or_else(Vec::new, |first| differences(first, judged));
    let pairs = records.iter().zip(views);
    pairs
        .map(|(loaded, view)| HtmlRun {
            name: loaded.path.display().to_string(),
            record: &loaded.record,
            view,
            differences: unlike(loaded),
        })
        .collect()
}

// Prints rows on standard output as they are done, and below them, if standard error is a terminal, a progress bar.

/// A progress bar of cases.
pub(super) fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The template is a constant, so an error would show in every run; the default style is used then.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} cases{msg}, {elapsed}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Writes text above the bar immediately. If the reader closes the pipe early (`| head`), writing stops without an
/// error.
pub(super) fn write_above(bar: Option<&ProgressBar>, out: &mut dyn Write, text: &str) {
    if text.is_empty() {
        return;
    }
    let mut write = || drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(feature = "mpi")]
mod in_rank_0 {
    use super::{ProgressBar, new_bar, write_above};
    use crate::report::{LiveRows, View};
    use commgauge_model::record::Line;
    use commgauge_run::session::Listener;
    use std::io::IsTerminal;
    use std::sync::{Arc, Mutex};

    /// The rows of a run that this process measures.
    #[derive(Clone)]
    pub(in crate::cli) struct Live(Arc<Mutex<LiveTable>>);

    struct LiveTable {
        rows: Option<LiveRows>,
        bar: Option<ProgressBar>,
        cases: u64,
    }

    impl Live {
        pub(in crate::cli) fn new(rows: LiveRows) -> Live {
            let bar = std::io::stderr().is_terminal().then(new_bar);
            Live(Arc::new(Mutex::new(LiveTable { rows: Some(rows), bar, cases: 0 })))
        }

        /// A listener that prints the row of each line.
        pub(in crate::cli) fn listener(&self) -> Listener {
            let shown = Arc::clone(&self.0);
            Listener::new(move |line| {
                if let Ok(mut shown) = shown.lock() {
                    shown.print_line(line);
                }
            })
        }

        /// Clears the bar, and returns the text that follows the printed rows.
        pub(in crate::cli) fn finish(&self, view: &View) -> String {
            let Ok(mut shown) = self.0.lock() else { return String::new() };
            if let Some(bar) = shown.bar.take() {
                bar.finish_and_clear();
            }
            shown.rows.take().map_or_else(String::new, |rows| rows.finish(view))
        }
    }

    impl LiveTable {
        fn print_line(&mut self, line: &Line) {
            let text = self.rows.as_mut().map_or_else(String::new, |rows| rows.take(line));
            match (line, &self.bar) {
                (Line::Plan(plan), Some(bar)) => bar.set_length(plan.case_lines),
                (Line::Case(_), Some(bar)) => {
                    self.cases += 1;
                    // With a budget for all cases there may be more lines than planned.
                    bar.set_length(bar.length().unwrap_or(0).max(self.cases));
                    bar.set_position(self.cases);
                }
                _ => {}
            }
            // Never treated as a terminal: some launchers give rank 0 a pseudo-terminal and copy its output.
            write_above(self.bar.as_ref(), &mut std::io::stdout().lock(), &text);
        }
    }
}

// `commgauge judge RECORD --machine M`: thresholds, suspects and the page of a finished run, with one exit code.

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

// `commgauge locate RECORD...`: finds the slow node, link, rail or leaf.

/// Name the node, link, rail or leaf that is slow, and what the data cannot show
///
/// Reads what `commgauge run qualify` (or `commgauge run --pairs`) recorded. Ends with 0 if there are no suspects and everything
/// was measured; 1 there is a suspect; 3 undecided; 4 data arrived wrong; 5 to 6 the run failed; 7 something planned was not
/// measured.
#[derive(Clone, Debug, clap::Args)]
pub struct LocateCommand {
    /// Records of the same ranks on the same hosts (JSON Lines)
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Nodes behind each leaf switch, counted from node 0 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes_per_leaf: Option<u32>,

    /// Nodes that the links of a rack join, counted from node 0, as the 18 of an NVL72 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes_per_rack: Option<u32>,

    /// Machine file, or the name of a shipped one: what it says of leaves, racks, and of what pairs of nodes reach. Without it they are only
    /// compared with each other
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// How it is shown.
    #[command(flatten)]
    pub shown: FormattedOutput<SuspectsFormat>,
}

impl LocateCommand {
    /// Finds suspects, writes the result, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let inputs: Vec<&Path> = self.records.iter().map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        let machine = self.machine.as_deref().map(Machine::load).transpose()?;
        let of_file = machine.as_ref().map(LocateOptions::of_machine).unwrap_or_default();
        let options = LocateOptions {
            nodes_per_leaf: self.nodes_per_leaf.or(of_file.nodes_per_leaf),
            nodes_per_rack: self.nodes_per_rack.or(of_file.nodes_per_rack),
            machine,
        };
        let suspects = locate(&read_all(&self.records)?, &options)?;
        self.shown.write(&suspects_text(&suspects, format, self.shown.to.columns())?)?;
        Ok(suspects.exit_code)
    }
}

// `commgauge compare BASE NEW`: tests whether a run is slower than a base; with --consistency it looks for contradictions within
// one run.

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
    #[arg(long, value_name = "RECORD")]
    pub more_base: Vec<PathBuf>,

    /// Further records that are compared with the base
    #[arg(long, value_name = "RECORD")]
    pub more_new: Vec<PathBuf>,

    /// The smallest slow-down that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = relevant)]
    pub relevant: f64,

    /// Confidence, in per cent: the chance of any false alarm over all rows is at most the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = confidence)]
    pub confidence: f64,

    /// In what the runs may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
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
        let format = self.shown.check(&inputs)?;
        let false_alarm_level = 1.0 - self.confidence / 100.0;
        if self.consistency {
            let rule = ConsistencyRule { false_alarm_level, ..ConsistencyRule::default() };
            return self.shown.show(&consistency(&read_all(&base)?, rule, &self.allow)?, format);
        }
        let rule =
            CompareRule { false_alarm_level, relevant_slowdown: self.relevant / 100.0, allowed: self.allow.clone() };
        let mut judged = read_all(&[base.clone(), new].concat())?;
        let new = judged.split_off(base.len());
        self.shown.show(&compare(&judged, &new, &rule)?, format)
    }
}

pub(super) fn relevant(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.1..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("found `{text}`; accepted: a number from 0.1 to 100")),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn command(records: &[&Path], output: &Path) -> ReportCommand {
        ReportCommand {
            records: records.iter().map(|path| path.to_path_buf()).collect(),
            shown: OutputArguments { width: Some(80), ..OutputArguments::default() },
            output: Some(output.to_owned()),
            machine: None,
            base: Vec::new(),
            fit: None,
            selftest: None,
            allow: Vec::new(),
        }
    }

    #[test]
    fn a_report_is_written_and_answers_with_the_exit_code_of_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, SAMPLE).unwrap();
        for (name, begin) in [("r.txt", ""), ("r.html", "<!doctype html>")] {
            let output = folder.path().join(name);
            assert_eq!(command(&[&record], &output).execute().unwrap(), 4, "data arrived wrong");
            let text = std::fs::read_to_string(&output).unwrap();
            assert!(text.contains("all_reduce") && text.starts_with(begin), "{name}");
        }
    }

    #[test]
    fn a_report_never_overwrites_what_it_is_made_from() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, SAMPLE).unwrap();
        let nowhere = folder.path().join("missing/r.html");
        for output in [record.clone(), folder.path().to_owned(), nowhere] {
            assert_eq!(command(&[&record], &output).execute().unwrap_err().exit_code(), 2, "{}", output.display());
        }
        let mut with_base = command(&[&record], &folder.path().join("base.html"));
        with_base.base = vec![folder.path().join("base.html")];
        std::fs::write(&with_base.base[0], SAMPLE).unwrap();
        assert_eq!(with_base.execute().unwrap_err().exit_code(), 2);
        assert_eq!(std::fs::read_to_string(&record).unwrap(), SAMPLE);
        assert_eq!(std::fs::read_to_string(&with_base.base[0]).unwrap(), SAMPLE);
    }

    #[test]
    fn runs_that_differ_are_refused_unless_allowed_and_then_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one.jsonl"), folder.path().join("other.jsonl"));
        let output = folder.path().join("r.html");
        std::fs::write(&one, SAMPLE).unwrap();
        let id = SAMPLE.split_once("\"run_id\":\"").unwrap().1.split_once('"').unwrap().0;
        let library = SAMPLE.split_once("\"library\":\"").unwrap().1.split_once('"').unwrap().0;
        let text = SAMPLE.replace(id, "another-run").replace(library, "Another MPI 9");
        std::fs::write(&other, text).unwrap();
        let mut both = command(&[&one, &other], &output);
        let error = both.execute().unwrap_err().to_string();
        assert!(error.contains("not alike") && error.contains("Another MPI 9"), "{error}");
        assert!(!output.exists());
        both.allow = vec![Allowed::Versions];
        both.execute().unwrap();
        assert!(std::fs::read_to_string(&output).unwrap().contains("Another MPI 9 here"));
        let twice = command(&[&one, &one], &output).execute().unwrap_err().to_string();
        assert!(twice.contains("same run"), "{twice}");
    }

    #[test]
    fn page_options_are_refused_for_text() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, SAMPLE).unwrap();
        let output = folder.path().join("r.txt");
        let several = command(&[&record, &record], &output).execute().unwrap_err();
        assert!(several.exit_code() == 2 && several.to_string().contains("one at a time"), "{several}");
        let mut machine = command(&[&record], &output);
        machine.machine = Some(record.clone());
        assert_eq!(machine.execute().unwrap_err().exit_code(), 2);
        let page = folder.path().join("r.html");
        let mut unused = command(&[&record], &page);
        unused.selftest = Some(record.clone());
        let error = unused.execute().unwrap_err();
        assert!(
            error.exit_code() == 2 && error.to_string().contains("--machine or --base") && !page.exists(),
            "{error}"
        );
    }
}
