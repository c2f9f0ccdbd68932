//! The main function of the programs that MPI launches: flags in, results and exit code out. What happens in between
//! is a launch of `session`.

use super::launch_table;
use super::launched_arguments::LaunchedArguments;
use super::launched_request;
use super::live::{Live, write_above};
use super::programs::Work;
use super::run::{exit_code_if_complete, resume_command, state};
use super::table_or_json::{json, print};
use super::terminal::{self, Sink, columns_of};
use super::text_output::replace;
use super::usage_message;
use crate::report::{Format, View};
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Nodes;
use commgauge_model::record::Record;
use commgauge_model::record::line::{End, EndStatus};
use commgauge_run::launch_check::LaunchReport;
use commgauge_run::session::{self, Listener, Program, Request};
use std::path::Path;
use std::time::{Duration, Instant};

/// Columns of the table of a refusal, which goes to standard error.
const REFUSAL_COLUMNS: u16 = 100;

/// The main function of a launched program. Does not return if the launch must be aborted.
pub fn run<W: Work + Parser>(name: &'static str) -> i32 {
    if let Some(exit_code) = session::run_collector() {
        return exit_code;
    }
    let begun = Instant::now();
    let work = match terminal::parse::<W>() {
        Ok(work) => work,
        Err(message) => return print_usage_once(&message),
    };
    let launch = launched_request::launch(&work, begun);
    let mut program = LaunchedProgram { name, work: &work, live: None };
    launch.and_then(|launch| session::launch(&launch, &mut program)).unwrap_or_else(|error| print_error_once(&error))
}

/// A launched program with its flags.
struct LaunchedProgram<'a, W> {
    name: &'static str,
    work: &'a W,
    /// Rows that are printed when they are done.
    live: Option<Live>,
}

impl<W: Work> LaunchedProgram<'_, W> {
    fn arguments(&self) -> &LaunchedArguments {
        self.work.launched()
    }
}

impl<W: Work> Program for LaunchedProgram<'_, W> {
    fn request(&self, nodes: &Nodes) -> Result<Request> {
        launched_request::request(self.work, self.name, nodes)
    }

    fn inspect_resumed(&self, record: &Record, path: &Path) -> Result<Option<i32>> {
        let exit_code = exit_code_if_complete(record, path)?;
        // `commgauge run` has printed it already.
        if exit_code.is_none() && !self.arguments().quiet {
            state(record, path).iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
        }
        Ok(exit_code)
    }

    fn refusal(&self, report: &LaunchReport) -> String {
        launch_table::refusal(report, REFUSAL_COLUMNS)
    }

    fn show_check(&self, report: &LaunchReport) -> Result<()> {
        let output = &self.arguments().output;
        match (&self.arguments().launch_report, output.format()) {
            (Some(path), _) => json(report).and_then(|text| replace(path, &text)),
            (None, Format::Json) => print(&json(report)?),
            (None, Format::Table) => print(&launch_table::text(report, columns_of(output.width, Sink::File))),
            (None, _) => Err(Error::usage("--check-launch writes --format table or json")),
        }
    }

    fn listener(&mut self) -> Listener {
        let arguments = self.arguments();
        // A resumed run prints all rows at its end, since most were done before.
        let shows_rows = self.work.shows_rows() && !arguments.quiet && arguments.resume.is_none();
        let rows = if shows_rows { arguments.output.live_rows(Sink::File) } else { None };
        self.live = rows.map(Live::new);
        self.live.as_ref().map(Live::listener).unwrap_or_default()
    }

    fn show_results(&self, request: &Request, end: Option<&End>) -> Result<()> {
        if self.arguments().quiet || !request.record.exists() {
            return Ok(());
        }
        // Never treated as a terminal: some launchers give rank 0 a pseudo-terminal and copy its output.
        let view = View::new(&Record::read(&request.record)?);
        let out = &mut std::io::stdout().lock();
        match &self.live {
            Some(live) => write_above(None, out, &live.finish(&view)),
            None => self.arguments().output.show_on(&view, Sink::File, out)?,
        }
        // A launcher forwards the two streams in pieces of its own, and could put this into the middle of a table.
        let record = request.record.shown();
        match self.arguments().output.format().comment_mark() {
            Some(mark) => write_above(None, out, &format!("{mark}record: {record}\n")),
            None => eprintln!("record: {record}"),
        }
        if let Some(end) = end.filter(|end| end.status != EndStatus::Complete) {
            eprintln!("commgauge: {}", end.error.as_deref().unwrap_or("the run did not end"));
            eprintln!("commgauge: resume with: {}", resume_command(&request.record));
        }
        Ok(())
    }

    fn print_error(&self, text: &str) {
        eprintln!("commgauge: {text}");
    }
}

/// Whether this copy prints messages for all copies before MPI has assigned ranks.
fn is_reporting_copy() -> bool {
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    ranks.iter().find_map(|name| std::env::var(name).ok()).is_none_or(|rank| rank == "0")
}

/// How long the other copies wait for that message: launchers kill all copies as soon as one ends with an error.
const REPORTING_GRACE: Duration = Duration::from_millis(500);

/// Runs `print` in one copy only; all copies return the exit code.
fn on_reporting_copy(exit_code: i32, print: impl FnOnce()) -> i32 {
    if is_reporting_copy() {
        print();
    } else if exit_code != 0 {
        std::thread::sleep(REPORTING_GRACE);
    }
    exit_code
}

/// Reports an error that every copy of the program found before MPI started.
fn print_error_once(error: &Error) -> i32 {
    on_reporting_copy(error.exit_code(), || eprintln!("commgauge: {}", usage_message::written_out(error.to_string())))
}

/// Prints help, version or a usage error on one rank only.
fn print_usage_once(message: &clap::Error) -> i32 {
    on_reporting_copy(message.exit_code(), || usage_message::show(message))
}
