//! `commgauge report RECORD...`: prints records as text or as one HTML file, and returns their exit code.

#[cfg(feature = "mpi")]
pub(super) use in_rank_0::Live;

use super::OutputArguments;
use super::output::{Chosen, PAGE, Sink, check_output, file_of, meant_format, names, read_all, replace, said};
use crate::report::{Format, HtmlInput, HtmlRun, View, html};
use clap::ValueEnum;
use commgauge_base::error::{Error, Result};
use commgauge_cost::cost::{self, Fit, FitOptions, Measurements};
use commgauge_judge::verdict::locate::{LocateOptions, locate};
use commgauge_judge::verdict::{
    Allowed, CompareRule, ConsistencyRule, GateRule, LoadedRecord, SelfTest, Verdict, compare, consistency,
    differences, ensure_comparable, gate, most_severe,
};
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
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_long_help = "Examples:\n    commgauge report RECORD\n    commgauge report RECORD --format csv > rows.csv\n    \
        commgauge report RECORD -o report.html"
)]
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
    #[arg(long, value_name = "FILE", help_heading = "Page", hide_short_help = true)]
    pub fit: Option<PathBuf>,

    /// What `commgauge expect selftest --format json` found, to show how often the rules err
    #[arg(long, value_name = "FILE", help_heading = "Page", hide_short_help = true)]
    pub selftest: Option<PathBuf>,

    /// In what the runs may differ
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", help_heading = "Page", hide_short_help = true)]
    pub allow: Vec<Allowed>,
}

impl ReportCommand {
    /// Reads the records, prints the report, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        Ok(said(file_of(self.output.as_deref()), self.write()?))
    }

    /// Writes the report, and returns the exit code.
    pub(super) fn write(&self) -> Result<i32> {
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
                    "{flag} is for the page (-o report.html); `commgauge judge`, `compare` and `calibrate` answer in text"
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
        let machine = self.machine.as_deref().map(Machine::load).transpose()?;
        let rule = GateRule { confidence: 0.95, allowed: self.allow.clone() };
        let verdict = machine.as_ref().map(|machine| gate(&records, Some(machine), &rule)).transpose()?;
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
        let options = machine.as_ref().map(LocateOptions::of_machine).unwrap_or_default();
        let suspects = locate(&records, &options).map_err(|error| error.to_string());
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
            "{cases} cases are too many to fit within a report; `commgauge calibrate RECORD -o fit.json` fits them, and --fit fit.json \
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
        assert!(error.contains("jsonl differ") && error.contains("Another MPI 9"), "{error}");
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
