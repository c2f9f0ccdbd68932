//! `commgauge run`: builds the launch command of a suite, a sweep or a model's step, prints it, runs it, reports its
//! progress, and prints a summary.
//!
//! The measuring is done by `commgauge-suite`, `commgauge-sweep`, `commgauge-step` or `commgauge-pairs` in the launched
//! ranks; only the record is read back.

mod allocation;
mod arguments;
mod check_launch;
mod combinations;
mod commands;
mod outcome;
mod progress;
mod resume;
mod sweep_flags;
mod wait_hosts;
mod work;

pub use super::backend_name::Backend;
pub use arguments::RunArguments;
#[cfg(feature = "mpi")]
pub(crate) use resume::{command as resume_command, exit_code_if_complete, state};

use super::live::write_above;
use super::places;
use super::suite::{SuiteWork, plan_text};
use super::table_or_json::print_on;
use crate::launch::{self, Allocation, GRACE};
use crate::report::screen::{self, CommandNames, Screen};
use crate::report::{Format, LiveRows, View};
use commands::{Commands, Launched};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use commgauge_model::record::hang_line::HangReason;
use commgauge_model::record::line::{End, EndStatus, RankFacts};
use commgauge_model::record::{Line, Record};
use commgauge_run::backend::simulated::SimulatedBackend;
use commgauge_run::session::{self, Resume, TimeLimit};
use commgauge_run::world::SoloWorld;
use progress::{Progress, Rows};
use resume::ResumedLaunch;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;
use work::PlannedWork;

/// Runs the subcommand and returns the exit code. Data goes to `out`, everything else to standard error.
pub fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    sweep_flags::check(arguments)?;
    if let Some(record) = &arguments.resume {
        return resume::run(arguments, record, out);
    }
    if combinations::is_requested(arguments) {
        combinations::check(arguments)?;
    }
    // Errors in the files are best reported before anything is started.
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let (arguments, allocation) = allocation::resolve_ranks(arguments)?;
    let arguments = &arguments;
    let nodes = predicted_nodes(arguments, allocation.as_ref(), machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    arguments.suite.iter().for_each(|suite| places::report_resolved_file(Shipped::Suite, suite));
    arguments.machine.iter().for_each(|machine| places::report_resolved_file(Shipped::Machine, machine));
    match arguments.backend {
        Backend::Simulated if arguments.check_launch => Err(Error::usage(
            "--check-launch: --backend simulated launches nothing; its ranks are played by this process",
        )),
        Backend::Simulated => run_in_process(arguments, (wanted, &nodes), machine, out),
        Backend::Mpi | Backend::Nccl if arguments.dry_run => {
            print_allocation(allocation.as_ref(), arguments);
            dry_run(arguments, &wanted.work, &nodes, out)
        }
        Backend::Mpi | Backend::Nccl if arguments.check_launch => {
            print_allocation(allocation.as_ref(), arguments);
            wait_hosts::wait(arguments)?;
            check_launch::run(arguments, out)
        }
        Backend::Mpi | Backend::Nccl => {
            print_allocation(allocation.as_ref(), arguments);
            wait_hosts::wait(arguments)?;
            if combinations::is_requested(arguments) {
                combinations::run(arguments, out)
            } else {
                launch_all(arguments, out)
            }
        }
    }
}

fn print_allocation(allocation: Option<&Allocation>, arguments: &RunArguments) {
    if let Some(allocation) = allocation {
        eprintln!("commgauge: {}", allocation.describe(arguments.ranks));
    }
}

/// Resumes a simulated run.
fn run_simulated(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let nodes = predicted_nodes(arguments, None, machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    run_in_process(arguments, (wanted, &nodes), machine, out)
}

/// The simulated backend runs all ranks in this process, so there is nothing to launch.
fn run_in_process(
    arguments: &RunArguments,
    (wanted, nodes): (PlannedWork, &Nodes),
    machine: Option<Machine>,
    out: &mut dyn Write,
) -> Result<i32> {
    if arguments.dry_run {
        print_on(out, "runs in this process, without a launcher\n")?;
        print_on(out, &plan_text(&wanted.work, nodes))?;
        return Ok(0);
    }
    let machine = machine.ok_or_else(|| {
        Error::usage(
            "--backend simulated needs --machine FILE: the latencies and rates to simulate (suites/machines/*.toml)",
        )
    })?;
    let (plan, settings, suite) = wanted.work;
    plan.ensure_portable()?;
    let record = match &arguments.resume {
        Some(record) => record.clone(),
        None => places::record_path(arguments.record.as_deref())?,
    };
    let request = session::Request {
        program: "commgauge",
        run_id: places::run_id_of(&record),
        suite,
        plan,
        world_size: arguments.ranks,
        record,
        resume: arguments.resume.is_some().then_some(Resume { allow_changed: arguments.allow_changed }),
        launch: Default::default(),
        launch_command: None,
        injected_delay: None,
        injected_panic: None,
        watch: Default::default(),
        listener: Default::default(),
        labels: std::collections::BTreeMap::new(),
        interference: wanted.interference,
        replay: wanted.replay,
        machine: Some(machine.clone()),
        settings,
    };
    let mut backend = SimulatedBackend::new(&machine, arguments.ranks, request.settings.seed)?;
    let limit = arguments.time_limit.map(|limit| TimeLimit::of(limit, Instant::now()));
    let signals = session::Signals::catch()?.with_limit(limit);
    let end = session::run(&SoloWorld, &mut backend, &request, &signals)?;
    if let Some(error) = &end.error {
        eprintln!("commgauge: {error}");
    }
    if end.status != EndStatus::Complete {
        eprintln!("commgauge: go on with: {}", resume::command(&request.record));
    }
    summarise(arguments, &request.record, out)?;
    Ok(end.exit_code)
}

/// Predicts the hosts of the ranks from flags, host file, allocation and machine file; the launched program determines
/// them itself.
fn predicted_nodes(
    arguments: &RunArguments,
    allocation: Option<&Allocation>,
    machine: Option<&Machine>,
) -> Result<Nodes> {
    let ranks = arguments.ranks as usize;
    let launched = arguments.backend != Backend::Simulated;
    if let Some(file) = arguments.host_file.as_deref().filter(|_| launched) {
        places::check_file("--hostfile", file)?;
        let text = std::fs::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
        match launch::hosts_of_ranks(&file.display().to_string(), &text, arguments.ranks) {
            Ok(host_of_rank) => return Ok(Nodes::of_hosts(&host_of_rank)),
            // A form that only the launcher understands does not prevent the launch.
            Err(cause) if arguments.dry_run => return Err(cause),
            Err(_) => {}
        }
    }
    if let Some(hosts) = arguments.hosts.as_deref().filter(|_| launched) {
        let slots = hosts.split(',').flat_map(|host| {
            let (name, count) = host.split_once(':').unwrap_or((host, "1"));
            std::iter::repeat_n(name, count.parse().unwrap_or(1))
        });
        let host_of_rank: Vec<&str> = slots.take(ranks).collect();
        if host_of_rank.len() == ranks {
            return Ok(Nodes::of_hosts(&host_of_rank));
        }
    }
    let host_of_rank = allocation.map_or_else(Vec::new, |allocation| allocation.host_of_rank(arguments.ranks));
    if host_of_rank.len() == ranks {
        return Ok(Nodes::of_hosts(&host_of_rank));
    }
    let filled = |machine: &Machine| Nodes::filled(arguments.ranks, machine.ranks_per_node);
    Ok(machine.map_or_else(|| Nodes::single(arguments.ranks), filled))
}

fn dry_run(arguments: &RunArguments, work: &SuiteWork, nodes: &Nodes, out: &mut dyn Write) -> Result<i32> {
    // The default record gets its name at the start, so a dry run only shows such a name and creates no folder.
    let record = arguments.record.clone().unwrap_or_else(places::default_record);
    let launches = match combinations::is_requested(arguments) {
        true => combinations::launches(arguments, &record),
        false => vec![(String::new(), arguments.clone(), record)],
    };
    for (_, arguments, record) in &launches {
        let commands = Launched::new(arguments, record)?.commands(arguments)?;
        print_on(out, &format!("{}\n", commands.shown.for_shell()))?;
    }
    print_on(out, &plan_text(work, nodes))?;
    Ok(0)
}

/// Runs every launch of `--launches`, each with its own record; stops at the first failure.
fn launch_all(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let first = places::record_path(arguments.record.as_deref())?;
    let records = places::numbered(&first, arguments.launches);
    records.iter().try_for_each(|record| places::refuse_existing(record))?;
    for (index, record) in records.iter().enumerate() {
        let exit_code = launch_one(arguments, record, out)?;
        if exit_code != 0 {
            if index + 1 < records.len() {
                eprintln!("commgauge: launch {} of {} failed; the rest is not started", index + 1, records.len());
            }
            return Ok(exit_code);
        }
    }
    Ok(0)
}

fn launch_one(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<i32> {
    let commands = Launched::new(arguments, record)?.commands(arguments)?;
    let live =
        if arguments.sweep.is_some() { arguments.output.live_rows(std::io::stdout().is_terminal()) } else { None };
    let rows = live.map(|rows| Rows { rows, out: &mut *out });
    let progress = Progress::new(record)?.with_rows(rows);
    let result = follow((&commands, record), progress)?;
    print_result(arguments, record, result, out)
}

/// Resumes a run.
fn resume_launch(
    arguments: &RunArguments,
    resumed: &ResumedLaunch,
    (path, record): (&Path, &Record),
    out: &mut dyn Write,
) -> Result<i32> {
    let (arguments, allocation) =
        allocation::resolve_ranks(&RunArguments { asked_ranks: Some(resumed.ranks), ..arguments.clone() })?;
    print_allocation(allocation.as_ref(), &arguments);
    let commands = Launched::resumed(resumed, &arguments, path)?.commands(&arguments)?;
    if arguments.dry_run {
        print_on(out, &format!("{}\n", commands.shown.for_shell()))?;
        return Ok(0);
    }
    wait_hosts::wait(&arguments)?;
    let result = follow((&commands, path), Progress::resuming(path, record)?)?;
    print_result(&arguments, path, result, out)
}

/// Result of a supervised launch.
struct LaunchResult {
    exit_code: i32,
    /// Whether there is a record to show.
    has_header: bool,
    /// The rows that were printed during the run.
    live: Option<LiveRows>,
}

/// Runs a launch to its end and reports its progress.
fn follow((commands, record): (&Commands, &Path), mut progress: Progress) -> Result<LaunchResult> {
    eprintln!("+ {}", commands.shown.for_shell());
    let ending = launch::supervise(&commands.started, &places::new_run_id(), GRACE, &mut progress)?;
    let (record_state, live) = progress.finish();
    let verdict = outcome::conclude(&ending, &record_state);
    for sentence in &verdict.sentences {
        eprintln!("commgauge: {sentence}");
    }
    if record_state.can_be_resumed() {
        eprintln!("commgauge: go on with: {}", resume::command(record));
    }
    Ok(LaunchResult { exit_code: verdict.exit_code, has_header: record_state.header.is_some(), live })
}

/// Prints the results of a launch's record, and returns its exit code.
fn print_result(arguments: &RunArguments, record: &Path, result: LaunchResult, out: &mut dyn Write) -> Result<i32> {
    let exit_code = result.exit_code;
    match result {
        LaunchResult { has_header: false, .. } => {}
        LaunchResult { live: None, .. } => summarise(arguments, record, out)?,
        LaunchResult { live: Some(live), .. } => {
            write_above(None, out, &live.finish(&View::new(&Record::read(record)?)));
            eprintln!("record: {}", record.display());
        }
    }
    Ok(exit_code)
}

/// Prints a summary of a record on one screen, the whole table, or the format of `--format`.
fn summarise(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<()> {
    show(arguments, record, out)?;
    eprintln!("record: {}", record.display());
    Ok(())
}

fn show(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<()> {
    let record = Record::read(path)?;
    let (view, is_terminal) = (View::new(&record), std::io::stdout().is_terminal());
    let output = &arguments.output;
    // For pairs, the table is the summary.
    if arguments.full || output.format != Format::Table || view.pairs.is_some() {
        return output.show_on(&view, is_terminal, out);
    }
    let path = launch::quote(&path.display().to_string());
    let screen = Screen::of(&record, &view, CommandNames { program: &places::program_as_typed(), record: &path });
    print_on(out, &screen::text(&screen, output.columns(is_terminal), output.colors(is_terminal)))
}

/// State collected from the record while it grew.
#[derive(Debug, Default)]
struct RecordState {
    /// The rank map, once the header is there.
    header: Option<Vec<RankFacts>>,
    /// Lines of cases and products that a complete record has.
    planned: Option<u64>,
    /// The newest round of a run that chooses its own sizes, and how many cases it added.
    round: Option<(u32, usize)>,
    /// Lines of cases and products so far.
    cases: u64,
    /// The end line, if there is one yet.
    end: Option<End>,
    /// Whether the launch resumes a record; its resume line then contains the rank map.
    resumed: bool,
    /// This host, and how many of its processes the OOM killer has ended since the launch began.
    out_of_memory_kills: (String, u64),
    /// Processes of this host's ranks that exited first; several if their order is unknown.
    first_exit: Vec<u32>,
    /// The single rank whose death the watchdog reported.
    died: Option<u32>,
}

impl RecordState {
    /// The state of a record before a launch resumes it.
    fn before(record: &Record) -> RecordState {
        let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
        let planned = (!record.plan.cases.is_empty() || planned > 0).then_some(planned);
        RecordState { planned, cases: record.measured_lines(), resumed: true, ..RecordState::default() }
    }

    /// Whether the run was begun, so that it can be resumed.
    fn can_be_resumed(&self) -> bool {
        let ended = self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete);
        self.header.is_some() && self.planned.is_some() && !ended
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.header = Some(header.ranks),
            Line::Plan(plan) => self.planned = Some(plan.case_lines.saturating_add(plan.product_lines)),
            Line::Case(_) | Line::Product(_) => self.cases += 1,
            Line::Hang(hang) if hang.reason == HangReason::Death => self.died = hang.suspects.parse().ok(),
            Line::Resume(resume) => self.header = Some(resume.ranks),
            Line::End(end) => self.end = Some(end),
            Line::PlanGrowth(growth) => {
                self.planned = self.planned.map(|planned| planned.saturating_add(growth.case_lines));
                self.round = Some((growth.round, growth.cases.len()));
            }
            Line::Clock(_) | Line::Replay(_) | Line::Interference(_) | Line::Calibration(_) | Line::Hang(_) => {}
            Line::Devices(_) | Line::DeviceReadings(_) => {}
        }
    }
}
