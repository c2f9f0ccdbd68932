//! Whether the run of a record can be resumed, with how much work, and by which command.

use super::allocation::{self, predicted_nodes};
use super::arguments::{RunArguments, SummaryParts, collectives};
use crate::cli::launched_arguments::Backend;
use crate::cli::output::{Sink, print_drawn_on, print_on};
use crate::cli::suite::{self, SuiteWork};
use crate::cli::work::{PairsRun, PlannedWork, StepRun, SuiteRun, Sweep, Work, planned};
use crate::launch::{self, LaunchCommand, Launcher, LauncherContext, Request, quote};
use crate::report::screen::{CommandNames, Screen};
use crate::report::{Format, View, plan_text, screen};
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::Machine;
use commgauge_model::layout::Nodes;
use commgauge_model::record::Record;
use commgauge_model::record::header::{HIDDEN, HIDDEN_FROM_VIEW, without_secrets};
use commgauge_model::record::line::EndStatus;
use commgauge_run::backend::simulated::SimulatedBackend;
use commgauge_run::session::{self, Resume, TimeLimit};
use commgauge_run::world::SoloWorld;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// The command that resumes a record.
pub(crate) fn command(record: &Path) -> String {
    format!("commgauge run --resume {}", quote(&record.display().to_string()))
}

/// The exit code of a record without remaining work; none if there is work left.
///
/// # Errors
/// If the record cannot be resumed.
pub(crate) fn exit_code_if_complete(record: &Record, path: &Path) -> Result<Option<i32>> {
    let path = path.shown();
    if record.file.running {
        return Err(Error::usage(format!("--resume {path}: the run that writes it is in progress; wait for its end")));
    }
    if let Some(problem) = record.file.seal.tampering() {
        return Err(Error::usage(format!("--resume {path}: {problem}, so no run can continue it; start a new one")));
    }
    let Some(end) = record.end.as_ref().filter(|_| record.is_finished()) else { return Ok(None) };
    eprintln!("commgauge: {path} is complete: nothing left to measure");
    Ok(Some(if (0..=255).contains(&end.exit_code) { end.exit_code } else { 6 }))
}

/// Completed and remaining work, in sentences.
pub(crate) fn state(record: &Record, path: &Path) -> Vec<String> {
    let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
    // With a budget for all cases there may be more lines than planned.
    let there = record.measured_lines().min(planned);
    let shown = path.shown();
    let mut sentences = vec![format!("{shown} holds {there} of {planned} measured cases; the rest is measured now")];
    if record.file.torn {
        sentences.push("its last line is torn and will be cut off; that case is measured again".to_owned());
    }
    sentences
}

// The launched work: a suite, a sweep, the step of a model or all pairs of ranks; flags of the last two follow `--`.

/// The program that measures it.
pub(super) fn program(arguments: &RunArguments) -> &'static str {
    match arguments {
        RunArguments { sweep: Some(_), .. } => "commgauge-sweep",
        RunArguments { step: true, .. } => "commgauge-step",
        RunArguments { pairs: true, .. } => "commgauge-pairs",
        _ => "commgauge-suite",
    }
}

/// The program's arguments that select the work, without those after `--`.
pub(super) fn words(arguments: &RunArguments) -> Result<Vec<String>> {
    let mut words: Vec<String> = arguments.suite.iter().map(|suite| suite::text(suite)).collect::<Result<_>>()?;
    if let Some(sweep) = &arguments.sweep {
        words.extend(collectives(sweep));
        words.extend(arguments.sweep_flags.0.iter().cloned());
    }
    for (flag, time) in [("--within", arguments.within), ("--soak", arguments.soak)] {
        words.extend(time.into_iter().flat_map(|time| [flag.to_owned(), format!("{}s", time.0)]));
    }
    Ok(words)
}

/// Plans the work of the launched program by its own flags, so that errors are reported before anything is started.
pub(super) fn of(arguments: &RunArguments, nodes: &Nodes, machine: Option<&Machine>) -> Result<PlannedWork> {
    let words = [words(arguments)?, arguments.extra.clone()].concat();
    let backend = arguments.backend;
    match arguments {
        RunArguments { sweep: Some(_), .. } => checked(&read::<Sweep>("--sweep", words)?, backend, nodes, machine),
        RunArguments { step: true, .. } => {
            let step = read::<StepRun>("--step", words)?;
            step.step.flags.report()?;
            checked(&step, backend, nodes, machine)
        }
        RunArguments { pairs: true, .. } => checked(&read::<PairsRun>("--pairs", words)?, backend, nodes, machine),
        _ => checked(&read::<SuiteRun>("after `--`", words)?, backend, nodes, machine),
    }
}

fn checked(program: &impl Work, backend: Backend, nodes: &Nodes, machine: Option<&Machine>) -> Result<PlannedWork> {
    program.launched().nccl.check(backend)?;
    planned(program, backend, nodes, machine)
}

/// The flags of a launched program as it will read them.
fn read<Program: Parser>(flag: &str, words: Vec<String>) -> Result<Program> {
    Program::try_parse_from(std::iter::once(Program::command().get_name().to_owned()).chain(words)).map_err(|error| {
        let text = error.to_string();
        Error::usage(format!("{flag}: {}", text.trim_start_matches("error: ").trim_end()))
    })
}

// The simulated backend plays all ranks in this process, so there is nothing to launch.

/// Resumes a simulated run.
pub(super) fn run_simulated(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let nodes = predicted_nodes(arguments, None, machine.as_ref())?;
    let wanted = of(arguments, &nodes, machine.as_ref())?;
    run_in_process(arguments, wanted, &nodes, machine, out)
}

/// The simulated backend runs all ranks in this process, so there is nothing to launch.
pub(super) fn run_in_process(
    arguments: &RunArguments,
    wanted: PlannedWork,
    nodes: &Nodes,
    machine: Option<Machine>,
    out: &mut dyn Write,
) -> Result<i32> {
    if arguments.dry_run {
        print_on(out, "runs in this process, without a launcher\n")?;
        let work = &wanted.work;
        print_on(out, &plan_text(&work.plan, &work.settings, &work.facts, nodes))?;
        return Ok(0);
    }
    let machine = machine.ok_or_else(|| {
        Error::usage(
            "--backend simulated needs --machine FILE: the latencies and rates to simulate (suites/machines/*.toml)",
        )
    })?;
    let SuiteWork { plan, settings, facts: suite } = wanted.work;
    let record = match &arguments.resume {
        Some(record) => record.clone(),
        None => suite::record_path(arguments.record.as_deref())?,
    };
    let request = session::Request {
        record: record.clone(),
        resume: arguments.resume.is_some().then_some(Resume { allow_changed: arguments.allow_changed }),
        after_plan: wanted.after_plan,
        ..session::Request::simulated(suite::new_run_id(), suite, plan, settings, &machine, arguments.ranks)
    };
    let mut backend = SimulatedBackend::new(&machine, arguments.ranks, request.settings.seed)?;
    let limit = arguments.time_limit.map(|limit| TimeLimit::of(limit, Instant::now()));
    let signals = session::Signals::catch()?.with_limit(limit);
    let end = session::run(&SoloWorld, &mut backend, &request, &signals)?;
    if let Some(error) = &end.error {
        eprintln!("commgauge: {error}");
    }
    if end.status != EndStatus::Complete {
        eprintln!("commgauge: resume with: {}", command(&request.record));
    }
    summarise(arguments, &Record::read(&request.record)?, &request.record, out)?;
    Ok(end.exit_code)
}

// The launch commands of `commgauge run`: of a new run, and of a resumed run as recorded.

/// The displayed command and the started one, which differ in one flag of the launched program: the started one passes
/// the displayed one on for the record.
pub(super) struct Commands {
    pub shown: LaunchCommand,
    pub started: LaunchCommand,
}

impl Commands {
    /// Prints the command for `--dry-run`, to be copied.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<()> {
        print_on(out, &format!("{}\n", self.shown.for_shell()))?;
        if self.shown.has_secrets() {
            eprintln!(
                "commgauge: the command has {HIDDEN_FROM_VIEW} in place of secret values; put them in before you run it"
            );
        }
        Ok(())
    }
}

/// The launched program.
pub(super) struct Launched<'a> {
    /// Name of the program.
    program: &'a str,
    /// Its arguments.
    words: Vec<String>,
    /// The resumed run, if it is one.
    resumed: Option<&'a ResumedLaunch>,
}

impl<'a> Launched<'a> {
    /// The program of a new run.
    pub(super) fn new(arguments: &RunArguments, record: &Path) -> Result<Launched<'a>> {
        let mut words = words(arguments)?;
        words.extend(["--record".into(), suite::text(record)?]);
        words.extend(["--backend", arguments.backend.name(), "--quiet"].map(str::to_owned));
        words.extend(launch_only_arguments(arguments));
        if let Some(machine) = &arguments.machine {
            words.extend(["--machine".into(), suite::text(machine)?]);
        }
        Ok(Launched { program: program(arguments), words, resumed: None })
    }

    /// The program of a resumed run.
    pub(super) fn resumed(resumed: &'a ResumedLaunch, arguments: &RunArguments, record: &Path) -> Result<Launched<'a>> {
        let mut words = resumed.words.clone();
        words.extend(["--resume".into(), suite::text(record)?, "--quiet".into()]);
        if arguments.allow_changed {
            words.push("--allow-changed".into());
        }
        words.extend(launch_only_arguments(arguments));
        Ok(Launched { program: &resumed.program, words, resumed: Some(resumed) })
    }

    /// Its launch commands.
    pub(super) fn commands(&self, arguments: &RunArguments) -> Result<Commands> {
        // The user's launcher arguments take precedence over those of the record.
        let has_launcher_arguments = arguments.launcher != "auto"
            || arguments.hosts.is_some()
            || arguments.host_file.is_some()
            || !arguments.launcher_arguments.is_empty();
        let before = self.resumed.and_then(|resumed| resumed.launcher.as_ref()).filter(|_| !has_launcher_arguments);
        let choice = before.map_or(arguments.launcher.as_str(), |part| part.program.as_str());
        let launcher = launch::find(choice, LauncherContext::here(), &launch::probe)?;
        let program = suite::text(&launch::program(self.program, launcher.family)?)?;
        let listed = before.is_none().then(|| allocation::hosts_for_launcher(arguments, &launcher)).flatten();
        let request = |words| request(arguments, &launcher, listed.clone(), program.clone(), words);
        let build = |words: Vec<String>| match before {
            Some(part) => Ok(part.clone().with_program(program.clone(), words)),
            None => launch::build(&launcher, &request(words)?),
        };
        let with = |own: &[String]| [self.words.as_slice(), own, arguments.extra.as_slice()].concat();
        let shown = build(with(&[]))?;
        // Everybody on a host can read the command lines of its processes.
        let json = serde_json::to_string(&without_secrets(&shown.words()))
            .map_err(|cause| Error::environment(format!("cannot write the launch command as JSON: {cause}")))?;
        Ok(Commands { started: build(with(&["--launch-command".to_owned(), json]))?, shown })
    }
}

/// Arguments that apply to one launch only. They include the number of ranks, so that a launcher that starts
/// unconnected copies is detected, and a single rank is possible.
fn launch_only_arguments(arguments: &RunArguments) -> Vec<String> {
    let limit = arguments.time_limit.iter().flat_map(|limit| ["--time-limit".to_owned(), format!("{}s", limit.0)]);
    let timeout = arguments.timeout.iter().flat_map(|each| ["--timeout".to_owned(), each.as_secs_f64().to_string()]);
    ["--expect-ranks".to_owned(), arguments.ranks.to_string()].into_iter().chain(limit).chain(timeout).collect()
}

/// Cores of the Slurm allocation, or of this host.
pub(super) fn cores(in_slurm: bool) -> u32 {
    let allocated = if in_slurm { launch::find::slurm_cores() } else { None };
    allocated.unwrap_or_else(launch::find::cores)
}

/// Variables by which NCCL and its libraries are set here, and which ranks on other hosts are to have too: those of NCCL, those that name
/// files, and where hosts are named the path on which NCCL was found.
fn passed_variables(arguments: &RunArguments, names: impl Iterator<Item = String>) -> Vec<String> {
    if arguments.backend != Backend::Nccl {
        return Vec::new();
    }
    let is_elsewhere = arguments.hosts.is_some() || arguments.host_file.is_some();
    let is_passed = |name: &String| {
        let names_file = ["COMMGAUGE_NCCL_LIBRARY", "COMMGAUGE_CUBLAS_LIBRARY"].contains(&name.as_str());
        name.starts_with("NCCL_") || names_file || (is_elsewhere && name == "LD_LIBRARY_PATH")
    };
    let mut passed: Vec<String> = names.filter(is_passed).collect();
    passed.sort_unstable();
    passed
}

fn request(
    arguments: &RunArguments,
    launcher: &Launcher,
    listed: Option<String>,
    program: String,
    words: Vec<String>,
) -> Result<Request> {
    // Open MPI's and MPICH's own launchers use the allocation as well.
    let in_slurm = launcher.family == launch::Family::Slurm || LauncherContext::here().in_slurm;
    let host_file = arguments.host_file.as_deref().filter(|_| listed.is_none());
    Ok(Request {
        ranks: arguments.ranks,
        hosts: arguments.hosts.clone().or(listed),
        host_file: host_file.map(suite::text).transpose()?,
        ranks_per_host: allocation::ranks_per_host(arguments)?,
        cores: cores(in_slurm),
        srun_mpi: allocation::srun_mpi_plugin(arguments, launcher)?,
        root: launch::find::is_root(),
        has_threads: arguments.backend == Backend::Nccl,
        passed_variables: passed_variables(
            arguments,
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        ),
        launcher_arguments: arguments.launcher_arguments.clone(),
        program,
        program_arguments: words,
    })
}

// How long `commgauge run` waits for its launch where no watchdog watches: for the ranks to come together, and for the
// launcher to end.

/// Deadlines of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// From the start of the launcher to the first line of the record; none where the launcher may wait in a queue.
    pub start: Option<Duration>,
    /// From the end of a run that failed to that of its launcher.
    pub failed: Duration,
    /// The same for a run that ended in order: its ranks still finalise MPI, which the watchdog watches.
    pub ended: Duration,
}

/// To start ranks takes that long on a busy machine, and on many hosts longer.
const SHORTEST_START: Duration = Duration::from_secs(30);

const DEFAULT: Duration = Duration::from_secs(120);

const PER_RANK: Duration = Duration::from_millis(20);

/// Ranks that wait for the others poll in turns with those that still start, so that each that shares a processor starts that much later
/// for every other one on it. Open MPI 4 needs a third of it.
const PER_SHARING_RANK: Duration = Duration::from_millis(5);

/// As the watchdog has it for the end of MPI.
const SHORTEST_END: Duration = Duration::from_secs(10);

/// By then the watchdog has ended the ranks, and a launcher that is alive follows them. With the report before it, and the time that a
/// launcher has between being terminated and killed, all is over within 10 s of a deadline.
const FAILED: Duration = Duration::from_secs(4);

/// For a launcher to end after the last rank has.
const AFTER_FINALIZE: Duration = Duration::from_secs(5);

impl Deadlines {
    /// The deadlines of a launch with these flags.
    pub(super) fn of(arguments: &RunArguments, command: &LaunchCommand) -> Deadlines {
        let in_slurm = LauncherContext::here().in_slurm;
        Deadlines::on_cores(arguments, command, in_slurm, cores(in_slurm))
    }

    fn on_cores(arguments: &RunArguments, command: &LaunchCommand, in_slurm: bool, cores: u32) -> Deadlines {
        let is_srun = Path::new(&command.program).file_name().is_some_and(|name| name == "srun");
        let sharing = (arguments.ranks / cores.max(1)).saturating_sub(1);
        let launching = PER_RANK * arguments.ranks + PER_SHARING_RANK * sharing * arguments.ranks;
        let timeout = arguments.timeout;
        Deadlines {
            // Outside of an allocation srun waits until it gets one.
            start: (!is_srun || in_slurm)
                .then(|| launching + timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_START))),
            failed: FAILED,
            ended: timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_END)) + AFTER_FINALIZE,
        }
    }
}

// The launch of a resumed run, as its record has it.

/// The launch of a resumed run.
pub(super) struct ResumedLaunch {
    /// The program that wrote the record.
    pub program: String,
    /// Its arguments, without those that apply to one launch only.
    pub words: Vec<String>,
    /// The launcher part of the recorded command, if there is one.
    pub launcher: Option<LaunchCommand>,
    /// Number of ranks.
    pub ranks: u32,
}

/// Launched programs that write records.
const LAUNCHED: [&str; 4] = ["commgauge-suite", "commgauge-sweep", "commgauge-step", "commgauge-pairs"];

/// Flags that apply to one launch only, and whether a value follows.
const LAUNCH_ONLY_FLAGS: [(&str, bool); 8] = [
    ("--record", true),
    ("--resume", true),
    ("--launch-command", true),
    ("--expect-ranks", true),
    ("--time-limit", true),
    // An injected fault must not end the resumed run again.
    ("--inject-panic", true),
    ("--allow-changed", false),
    ("--quiet", false),
];

pub(super) fn resumed(record: &Record, asked_ranks: Option<u32>) -> Result<ResumedLaunch> {
    let (header, wrong) = (&record.header, |text: String| Err(Error::usage(format!("--resume: {text}"))));
    if !LAUNCHED.contains(&header.program.as_str()) {
        return wrong(format!("the record was written by {}, which no launcher starts", header.program));
    }
    if let Some(ranks) = asked_ranks.filter(|ranks| *ranks != header.world_size) {
        return wrong(format!(
            "the run has {} ranks and cannot continue with {ranks}; leave -n out",
            header.world_size
        ));
    }
    let launch = revealed(header.launch_command.as_deref().unwrap_or_default(), |name| std::env::var(name).ok())?;
    Ok(ResumedLaunch {
        program: header.program.clone(),
        words: run_arguments(header.command_line.get(1..).unwrap_or_default()),
        launcher: LaunchCommand::before_program(&launch, &header.program),
        ranks: header.world_size,
    })
}

/// The words of a launch with the values that its record does not hold, which are taken from the environment.
fn revealed(words: &[String], value_of: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let reveal = |(index, word): (usize, &String)| {
        let (mut revealed, mut rest) = (String::new(), word.as_str());
        while let Some((before_it, after)) = rest.split_once(HIDDEN) {
            let before =
                before_it.strip_suffix('=').map(|before| before.rsplit([',', ';', '=']).next().unwrap_or(before));
            let name = before.or(index.checked_sub(1).map(|before| words[before].as_str())).unwrap_or_default();
            let value = value_of(name).ok_or_else(|| {
                Error::usage(format!(
                    "--resume: the run was launched with a value of {name}, which records do not hold; set {name} in the \
                     environment of this command"
                ))
            })?;
            revealed.extend([before_it, &value]);
            rest = after;
        }
        Ok(revealed + rest)
    };
    words.iter().enumerate().map(reveal).collect()
}

/// The arguments of a launched program without those that apply to one launch only.
pub(super) fn run_arguments(words: &[String]) -> Vec<String> {
    let mut retained = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let flag = word.split_once('=').map_or(word.as_str(), |(flag, _)| flag);
        match LAUNCH_ONLY_FLAGS.iter().find(|(name, _)| *name == flag) {
            Some((_, true)) if flag == word => drop(rest.next()),
            Some(_) => {}
            None => retained.push(word.clone()),
        }
    }
    retained
}

/// Prints a summary of a record on one screen, the whole table, or the format of `--format`.
pub(super) fn summarise(arguments: &RunArguments, record: &Record, path: &Path, out: &mut dyn Write) -> Result<()> {
    show(arguments, record, path, out)?;
    eprintln!("record: {}", path.shown());
    Ok(())
}

fn show(arguments: &RunArguments, record: &Record, path: &Path, out: &mut dyn Write) -> Result<()> {
    let (view, sink) = (View::new(record), Sink::stdout());
    let output = &arguments.output;
    // Of pairs, and of copies alone, the table is the summary.
    let has_table = view.pairs.is_some() || view.rows.is_empty() && !view.copies.is_empty();
    if arguments.full || output.format() != Format::Table || has_table {
        return output.show_on(&view, sink, out);
    }
    let path = launch::quote(&path.display().to_string());
    let screen = Screen::of(record, &view, CommandNames { program: &suite::program_as_typed(), record: &path });
    let text = match arguments.summary {
        SummaryParts::Screen => screen::text,
        SummaryParts::Head => screen::head_text,
    };
    print_drawn_on(out, &text(&screen, output.columns(sink), output.paint(sink)))
}

#[cfg(test)]
mod work_tests {

    use super::*;
    use crate::cli::suite::SuiteWork;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    fn run(line: &str) -> RunArguments {
        let words = std::iter::once("run").chain(line.split_whitespace());
        let run = Program::try_parse_from(words).map(|program| program.run);
        let mut run = run.unwrap_or_else(|error| panic!("{line}: {error}"));
        run.ranks = run.asked_ranks.unwrap_or(4);
        run
    }

    fn planned_of(line: &str) -> Result<PlannedWork> {
        let arguments = run(line);
        of(&arguments, &Nodes::single(arguments.ranks), None)
    }

    #[test]
    fn flags_of_a_step_that_make_no_sense_are_refused_before_anything_is_started() {
        for (line, expected) in [
            ("--step -- --modell llama-3-8b", "unexpected argument '--modell'"),
            ("--step -- --model llama-3-8b --tp 2 --sequence 512", "`micro_batches`"),
            ("--step -- --model llama-3-8b --tp 3 --sequence 512 --micro-batches 1", "but there are 4"),
            (
                "--step -- --model llama-3-8b --tp 2 --sequence 512 --micro-batches 1 --style tensors",
                "accepted: tensor",
            ),
            ("--step -- --model llama-3-8b --tp 4 --sequence 512 --micro-batches 1 --solo", "nothing to compare"),
            ("--step -- --model llama-3-8b --tp 4 --sequence 512 --micro-batches 1 --interfere tp,up", "found `up`"),
            (
                "--step -- --model llama-3-8b --tp 4 --sequence 512 --micro-batches 1 --interfere tp,dp",
                "dp has no call",
            ),
            ("--step -- --model llama-3-8b --tp 4 --sequence 512 --micro-batches 1 --interfere tp", "found 1 axes"),
        ] {
            let Err(error) = planned_of(line) else { panic!("{line} is accepted") };
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_suite_and_a_step_exclude_each_other() {
        for line in ["--step", "s.toml --step -- --model llama-3-8b", "s.toml --pairs", "--pairs --step -- --layers 1"]
        {
            let words = std::iter::once("run").chain(line.split_whitespace());
            assert!(Program::try_parse_from(words).is_err(), "{line}");
        }
        assert_eq!(program(&run("s.toml")), "commgauge-suite");
    }

    #[test]
    fn the_flags_of_a_sweep_give_its_plan_or_an_error() {
        let line = "--sweep all_reduce,all_gather -n 2 -b 8 -e 1K -f 2 --placement out --cadence streaming --within 9s -- -d half";
        let SuiteWork { plan, settings, facts } = planned_of(line).unwrap().work;
        assert_eq!(
            (plan.cases.len(), settings.replicates, facts.name.as_str()),
            (16, 2, "sweep all_reduce,all_gather")
        );
        assert_eq!(settings.within.map(|within| within.0), Some(9.0));
        assert_eq!(plan.cases[0].op.element, commgauge_base::element::ElementType::Float16);
        assert_eq!(program(&run(line)), "commgauge-sweep");
        assert_eq!(planned_of("--sweep all_reduce --iters 20").unwrap().work.settings.iterations, Some(20));
        for (line, expected) in [
            ("--sweep all_reduse", "--sweep: invalid value 'all_reduse'"),
            ("--sweep ,", "--sweep: the following required arguments were not provided"),
            ("--sweep broadcast -n 2 -r 4", "found root 4"),
            ("--sweep all_reduce -b 64M -e 8", "the smallest size, 64 MiB, is above the largest"),
            ("--sweep all_reduce --iters 20 --within 9s", "takes a fixed number of calls"),
            ("--sweep all_reduce -- --no-such-flag", "--no-such-flag"),
        ] {
            let Err(error) = planned_of(line) else { panic!("{line} is accepted") };
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn the_flags_of_pairs_give_their_rounds_or_an_error() {
        let SuiteWork { plan, settings, .. } =
            planned_of("--pairs -n 6 -- --bandwidth-bytes 1M --replicates 1").unwrap().work;
        assert_eq!((plan.groups.len(), plan.cases.len(), settings.replicates), (5, 15, 1));
        assert_eq!(program(&run("--pairs")), "commgauge-pairs");
        let Err(error) = planned_of("--pairs -- --bandwith-bytes 1M") else { panic!("accepted") };
        assert!(error.to_string().contains("--pairs: unexpected argument '--bandwith-bytes'"), "{error}");
    }

    #[test]
    fn the_flags_of_a_step_give_its_plan() {
        let line = "--step -- --model llama-3-8b --layers 4 --tp 2 --pp 2 --sequence 512 --micro-batches 2 --style tensor --solo -n 3";
        let SuiteWork { plan, settings, facts } = planned_of(line).unwrap().work;
        assert_eq!(program(&run(line)), "commgauge-step");
        assert_eq!((settings.replicates, settings.iterations), (6, Some(3)));
        assert_eq!(facts.name, "step of llama-3-8b (num_hidden_layers 4 of 32)");
        assert_eq!(facts.layout.as_deref(), Some("tp 2 x pp 2"));
        assert!(plan.cases.iter().all(|case| case.op.style == commgauge_model::workload::Style::Tensor));
        assert!(plan.cases.iter().any(|case| case.solo_of.is_some()));
    }
}

#[cfg(test)]
mod deadlines_tests {

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn the_timeout_covers_start_and_end_and_is_never_too_short_for_them() {
        for (line, launcher, in_slurm, ranks, start, ended) in [
            ("", "mpirun", false, 50, Some(121), 125),
            ("--timeout 5", "mpirun", false, 50, Some(31), 15),
            ("--timeout 300", "/opt/bin/mpirun", false, 50, Some(301), 305),
            ("--timeout 5", "srun", true, 50, Some(31), 15),
            ("--timeout 5", "/usr/bin/srun", false, 50, None, 15),
            ("--timeout 5", "mpirun", false, 99, Some(31), 15),
            ("--timeout 5", "mpirun", false, 100, Some(32), 15),
            ("--timeout 5", "mpirun", false, 500, Some(62), 15),
            ("", "mpirun", false, 3_200, Some(1_192), 125),
        ] {
            let words = ["run", "suite.toml"].into_iter().chain(line.split_whitespace());
            let arguments = RunArguments { ranks, ..Program::parse_from(words).run };
            let command = LaunchCommand {
                environment: Vec::new(),
                program: launcher.to_owned(),
                arguments: Vec::new(),
                stop_signal: None,
            };
            let found = Deadlines::on_cores(&arguments, &command, in_slurm, 50);
            assert_eq!(found.start.map(|start| start.as_secs()), start, "{line} {launcher} {ranks}");
            assert_eq!(found.ended, Duration::from_secs(ended), "{line}");
        }
    }
}

#[cfg(test)]
mod resumed_launch_tests {

    use super::*;

    #[test]
    fn a_hidden_value_of_the_launch_comes_from_the_environment_or_is_asked_for() {
        let lists = "--export=ALL,C=set (hidden),D=set (hidden),E";
        let words: Vec<String> =
            ["mpirun", "-x", "A_TOKEN=set (hidden)", "-genv", "B", "set (hidden)", lists].map(str::to_owned).into();
        let found = revealed(&words, |name| Some(format!("<{name}>"))).unwrap();
        assert_eq!(found.join(" "), "mpirun -x A_TOKEN=<A_TOKEN> -genv B <B> --export=ALL,C=<C>,D=<D>,E");
        let error = revealed(&words, |_| None).unwrap_err().to_string();
        assert!(error.contains("a value of A_TOKEN, which records do not hold"), "{error}");
    }
}
