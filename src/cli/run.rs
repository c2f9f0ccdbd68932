//! `commgauge run`: builds the launch command of a suite, a sweep or a model's step, shows it, starts it, follows it, and sums up.
//!
//! The measuring is done by `commgauge-suite`, `commgauge-sweep`, `commgauge-step` or `commgauge-pairs`, in the ranks that are started; only its record comes back.

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

pub use arguments::{Backend, RunArguments};
#[cfg(feature = "mpi")]
pub(crate) use resume::{command as resume_command, nothing_left, state};

use super::live::write_above;
use super::places;
use super::step::replays_of;
use super::suite::{SuiteWork, plan_text};
use super::table_or_json::print_on;
use crate::backend::simulated::SimulatedBackend;
use crate::config::{Machine, Shipped};
use crate::error::{Error, Result};
use crate::launch::{self, Allocation, GRACE};
use crate::layout::Nodes;
use crate::record::hang_line::HangReason;
use crate::record::line::{End, EndStatus, RankFacts};
use crate::record::{Line, Record};
use crate::report::screen::{self, Called, Screen};
use crate::report::{Format, LiveRows, View};
use crate::session::{self, Resume, TimeLimit};
use crate::workload::step::Step;
use crate::world::SoloWorld;
use commands::{Commands, Launched};
use progress::{Progress, Rows};
use resume::Again;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;
use work::Wanted;

/// Carries the subcommand out. Data goes to `out`, everything else to standard error; the exit code comes back.
pub fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    sweep_flags::check(arguments)?;
    if let Some(record) = &arguments.resume {
        return resume::run(arguments, record, out);
    }
    if combinations::are_asked(arguments) {
        combinations::check(arguments)?;
    }
    // What is wrong with the files is better told before anything is started.
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let (arguments, allocation) = allocation::settle(arguments)?;
    let arguments = &arguments;
    let nodes = supposed_nodes(arguments, allocation.as_ref(), machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    arguments.suite.iter().for_each(|suite| places::say_taken(Shipped::Suite, suite));
    arguments.machine.iter().for_each(|machine| places::say_taken(Shipped::Machine, machine));
    match arguments.backend {
        Backend::Simulated if arguments.check_launch => Err(Error::usage(
            "--check-launch: --backend simulated launches nothing; its ranks are played by this process",
        )),
        Backend::Simulated => run_here(arguments, (wanted, &nodes), machine, out),
        Backend::Mpi | Backend::Nccl if arguments.dry_run => {
            tell(allocation.as_ref(), arguments);
            dry_run(arguments, &wanted.work, &nodes, out)
        }
        Backend::Mpi | Backend::Nccl if arguments.check_launch => {
            tell(allocation.as_ref(), arguments);
            wait_hosts::wait(arguments)?;
            check_launch::run(arguments, out)
        }
        Backend::Mpi | Backend::Nccl => {
            tell(allocation.as_ref(), arguments);
            wait_hosts::wait(arguments)?;
            if combinations::are_asked(arguments) {
                combinations::run(arguments, out)
            } else {
                launch_all(arguments, out)
            }
        }
    }
}

fn tell(allocation: Option<&Allocation>, arguments: &RunArguments) {
    if let Some(allocation) = allocation {
        eprintln!("commgauge: {}", allocation.sentence(arguments.ranks));
    }
}

/// A simulated run that goes on.
fn run_simulated(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let nodes = supposed_nodes(arguments, None, machine.as_ref())?;
    let wanted = work::of(arguments, &nodes)?;
    run_here(arguments, (wanted, &nodes), machine, out)
}

/// The simulated backend plays all ranks in this process, so there is nothing to launch.
fn run_here(
    arguments: &RunArguments,
    (wanted, nodes): (Wanted, &Nodes),
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
        machine: Some(machine.clone()),
        settings,
    };
    let mut backend = SimulatedBackend::new(&machine, arguments.ranks, request.settings.seed)?;
    let limit = arguments.time_limit.map(|limit| TimeLimit::of(limit, Instant::now()));
    let signals = session::Signals::catch()?.with_limit(limit);
    let end = match &wanted.replay {
        None => session::run(&SoloWorld, &mut backend, &request, &signals)?,
        Some((table, options)) => {
            let steps = Step::all_of(table, arguments.ranks)?;
            let replays = replays_of(&steps, *options);
            session::run_with_replays(&SoloWorld, &mut backend, &request, &replays, &signals)?
        }
    };
    if let Some(error) = &end.error {
        eprintln!("commgauge: {error}");
    }
    if end.status != EndStatus::Complete {
        eprintln!("commgauge: go on with: {}", resume::command(&request.record));
    }
    summarise(arguments, &request.record, out)?;
    Ok(end.exit_code)
}

/// Where ranks will lie, as far as flags, host file, allocation and machine file say it; the launched program looks for itself.
fn supposed_nodes(
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
            // A form that only the launcher knows is no reason not to start it.
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
    // The default record would get its name at the start, so a dry run names one and makes no folder for it.
    let record = arguments.record.clone().unwrap_or_else(places::default_record);
    let launches = match combinations::are_asked(arguments) {
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

/// Every launch of `--launches`, each with a record of its own; the first that does not end well is the last.
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
    let progress = Progress::new(record)?.showing(rows);
    let followed = follow((&commands, record), progress)?;
    sum_up(arguments, record, followed, out)
}

/// Goes on with a run.
fn launch_again(
    arguments: &RunArguments,
    again: &Again,
    (path, record): (&Path, &Record),
    out: &mut dyn Write,
) -> Result<i32> {
    let (arguments, allocation) =
        allocation::settle(&RunArguments { asked_ranks: Some(again.ranks), ..arguments.clone() })?;
    tell(allocation.as_ref(), &arguments);
    let commands = Launched::again(again, &arguments, path)?.commands(&arguments)?;
    if arguments.dry_run {
        print_on(out, &format!("{}\n", commands.shown.for_shell()))?;
        return Ok(0);
    }
    wait_hosts::wait(&arguments)?;
    let followed = follow((&commands, path), Progress::behind(path, record)?)?;
    sum_up(&arguments, path, followed, out)
}

/// What came of a launch that was followed.
struct Followed {
    exit_code: i32,
    /// Whether there is a record to show.
    has_header: bool,
    /// The rows that were shown while it went on.
    live: Option<LiveRows>,
}

/// Starts a launch and follows it to its end.
fn follow((commands, record): (&Commands, &Path), mut progress: Progress) -> Result<Followed> {
    eprintln!("+ {}", commands.shown.for_shell());
    let ending = launch::supervise(&commands.started, &places::new_run_id(), GRACE, &mut progress)?;
    let (seen, live) = progress.finish();
    let verdict = outcome::conclude(&ending, &seen);
    for sentence in &verdict.sentences {
        eprintln!("commgauge: {sentence}");
    }
    if seen.may_go_on() {
        eprintln!("commgauge: go on with: {}", resume::command(record));
    }
    Ok(Followed { exit_code: verdict.exit_code, has_header: seen.header.is_some(), live })
}

/// Shows what is to be shown of a launch's record, and gives its exit code.
fn sum_up(arguments: &RunArguments, record: &Path, followed: Followed, out: &mut dyn Write) -> Result<i32> {
    let exit_code = followed.exit_code;
    match followed {
        Followed { has_header: false, .. } => {}
        Followed { live: None, .. } => summarise(arguments, record, out)?,
        Followed { live: Some(live), .. } => {
            write_above(None, out, &live.finish(&View::new(&Record::read(record)?)));
            eprintln!("record: {}", record.display());
        }
    }
    Ok(exit_code)
}

/// What a record comes to on one screen, or all of it, or whatever `--format` asks for.
fn summarise(arguments: &RunArguments, record: &Path, out: &mut dyn Write) -> Result<()> {
    show(arguments, record, out)?;
    eprintln!("record: {}", record.display());
    Ok(())
}

fn show(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<()> {
    let record = Record::read(path)?;
    let (view, is_terminal) = (View::new(&record), std::io::stdout().is_terminal());
    let output = &arguments.output;
    // Of pairs the table is the answer.
    if arguments.full || output.format != Format::Table || view.pairs.is_some() {
        return output.show_on(&view, is_terminal, out);
    }
    let path = launch::quote(&path.display().to_string());
    let screen = Screen::of(&record, &view, Called { program: &places::program_as_typed(), record: &path });
    print_on(out, &screen::text(&screen, output.columns(is_terminal), output.colors(is_terminal)))
}

/// What the record told while it grew.
#[derive(Debug, Default)]
struct Seen {
    /// The rank map, once the header is there.
    header: Option<Vec<RankFacts>>,
    /// Lines of cases and products that a complete record has.
    planned: Option<u64>,
    /// The newest round of a run that chooses its own sizes, and how many cases it added.
    round: Option<(u32, usize)>,
    /// Lines of cases and products so far.
    cases: u64,
    /// The last line, if it came.
    end: Option<End>,
    /// Whether the launch goes on with a record; its resume line then brings the rank map.
    resumed: bool,
    /// This host, and how many of its processes the system killed for want of memory since the launch began.
    out_of_memory_kills: (String, u64),
    /// Processes of this host's ranks that ended before all others; several where it was too close to call.
    first_gone: Vec<u32>,
    /// The one rank that the watchdog saw die.
    died: Option<u32>,
}

impl Seen {
    /// What is there before a launch goes on with a record.
    fn before(record: &Record) -> Seen {
        let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
        let planned = (!record.plan.cases.is_empty() || planned > 0).then_some(planned);
        Seen { planned, cases: record.measured_lines(), resumed: true, ..Seen::default() }
    }

    /// Whether the run was begun, and can be gone on with.
    fn may_go_on(&self) -> bool {
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
