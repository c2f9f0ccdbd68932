//! `commgauge run`: builds the launch command of a suite, a sweep or a model's step, prints it, runs it, reports its
//! progress, and prints a summary.
//!
//! The measuring is done by `commgauge-suite`, `commgauge-sweep`, `commgauge-step` or `commgauge-pairs` in the launched
//! ranks; only the record is read back.

mod allocation;
mod arguments;
mod progress;
mod resumable;

pub use arguments::RunArguments;
pub(crate) use arguments::SummaryParts;
#[cfg(feature = "mpi")]
pub(crate) use resumable::command as resume_command;
pub(crate) use resumable::{exit_code_if_complete, state};

use super::launched_arguments::{Algorithm, Backend, Protocol, value_of};
use super::output::{Sink, print_on};
use super::report::write_above;
use super::suite::{self, SuiteWork};
use crate::launch::{self, Allocation, GRACE, RecordState};
use crate::report::{Combination, Format, View, combinations_text, launch_check_text, plan_text};
use allocation::predicted_nodes;
use clap::Parser;
use clap::error::ErrorKind;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::units::{Bytes, counted};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::{distinct, eprintln};
use commgauge_model::config::{Machine, Shipped};
use commgauge_model::layout::Nodes;
use commgauge_model::record::{NEVER_OVERWRITTEN, Record};
use commgauge_run::launch_check::LaunchReport;
use progress::{Followed, Progress, Rows};
use resumable::{Commands, Deadlines, Launched, ResumedLaunch, resumed, run_in_process, run_simulated, summarise};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs the subcommand and returns the exit code. Data goes to `out`, everything else to standard error.
pub fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    arguments.check_sweep_flags()?;
    if arguments.dry_run || arguments.check_launch {
        let flag = if arguments.dry_run { "--dry-run" } else { "--check-launch" };
        arguments.output.check_answer(flag, arguments.check_launch)?;
    }
    if let Some(record) = &arguments.resume {
        return run_resume(arguments, record, out);
    }
    let arguments = &arguments.with_a_suite();
    if forces_choices(arguments) {
        check_combinations(arguments)?;
    }
    // Errors in the files are best reported before anything is started.
    let machine = arguments.machine.as_deref().map(Machine::load).transpose()?;
    let driver = allocation::driver();
    let (arguments, allocation) = allocation::resolve_ranks(arguments, &driver)?;
    let arguments = &arguments;
    let nodes = predicted_nodes(arguments, allocation.as_ref(), machine.as_ref())?;
    let wanted = resumable::of(arguments, &nodes, machine.as_ref())?;
    if !arguments.dry_run {
        allocation::check_this_host(arguments, allocation.as_ref(), &driver)?;
    }
    arguments.suite.iter().for_each(|suite| suite::report_resolved_file(Shipped::Suite, suite));
    arguments.machine.iter().for_each(|machine| suite::report_resolved_file(Shipped::Machine, machine));
    match arguments.backend {
        Backend::Simulated if arguments.check_launch => Err(Error::usage(
            "--check-launch: --backend simulated launches nothing; its ranks are played by this process",
        )),
        Backend::Simulated => run_in_process(arguments, wanted, &nodes, machine, out),
        Backend::Mpi | Backend::Nccl => {
            print_allocation(allocation.as_ref(), arguments);
            if arguments.dry_run {
                return dry_run(arguments, &wanted.work, &nodes, out);
            }
            allocation::wait(arguments)?;
            match (arguments.check_launch, forces_choices(arguments)) {
                (true, _) => run_check_launch(arguments, out),
                (false, true) => run_combinations(arguments, out),
                (false, false) => launch_all(arguments, out),
            }
        }
    }
}

fn dry_run(arguments: &RunArguments, work: &SuiteWork, nodes: &Nodes, out: &mut dyn Write) -> Result<i32> {
    // The default record gets its name at the start, so a dry run only shows such a name and creates no folder.
    let record = arguments.record.clone().unwrap_or_else(suite::default_record);
    let show = |arguments: &RunArguments, record: &Path, out: &mut dyn Write| {
        Launched::new(arguments, record)?.commands(arguments)?.print(out)
    };
    match forces_choices(arguments) {
        true => {
            let launches = launches(arguments, &record);
            launches.iter().try_for_each(|launch| show(&launch.arguments, &launch.record, out))?;
        }
        false => show(arguments, &record, out)?,
    }
    print_on(out, &plan_text(&work.plan, &work.settings, &work.facts, nodes))?;
    let (largest, available) = (work.plan.largest_bytes(), Bytes(host::available_memory_bytes()));
    let is_elsewhere = arguments.hosts.is_some() || arguments.host_file.is_some() || nodes.count() > 1;
    let is_here = arguments.backend == Backend::Mpi && !is_elsewhere;
    if is_here && largest.0.saturating_mul(u64::from(nodes.ranks())) > available.0 {
        let ranks = counted(nodes.ranks() as usize, "rank");
        print_on(
            out,
            &format!("does not fit: {ranks} with {largest} each, of {available} here; such cases are skipped\n"),
        )?;
    }
    Ok(0)
}

// `commgauge run --check-launch`: the same launch as for a run, whose ranks report and measure nothing.

/// Starts the ranks, and prints the report that rank 0 wrote.
fn run_check_launch(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    // No record is made: its path only determines where the report goes, which rank 0 can write just like the record.
    let record = suite::record_path(arguments.record.as_deref())?;
    let report = record.with_extension("launch.json");
    let mut arguments = arguments.clone();
    arguments.extra.extend(["--check-launch".into(), "--launch-report".into(), suite::text(&report)?]);
    let commands = Launched::new(&arguments, &record)?.commands(&arguments)?;
    eprintln!("+ {}", commands.shown.for_shell());
    let mut progress = Progress::new(&record, Deadlines::of(&arguments, &commands.started))?;
    let ending = launch::supervise(&commands.started, &suite::new_run_id(), GRACE, &mut progress)?;
    let found = read_report(&report);
    let _ = std::fs::remove_file(&report);
    let Some(found) = found? else {
        let verdict = launch::conclude(&ending, &progress.finish().state);
        verdict.sentences.iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
        return Ok(if verdict.exit_code == 0 { 6 } else { verdict.exit_code });
    };
    progress.finish();
    arguments.output.show_answer(&found, |width| launch_check_text(&found, width), out)?;
    Ok(if found.refusals.is_empty() { 0 } else { 7 })
}

/// The report; none if the ranks did not write one.
fn read_report(path: &Path) -> Result<Option<LaunchReport>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|cause| Error::environment(format!("{}: not the report of a launch: {cause}", path.shown()))),
        Err(_) => Ok(None),
    }
}

// Launches: of a new run, repeated, and of one that is resumed; each is followed to its end, and its result is printed.

fn print_allocation(allocation: Option<&Allocation>, arguments: &RunArguments) {
    if let Some(allocation) = allocation {
        eprintln!("commgauge: {}", allocation.describe(arguments.ranks));
    }
}

/// Runs every launch of `--launches`, each with its own record; stops at the first failure.
fn launch_all(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let first = suite::record_path(arguments.record.as_deref())?;
    let records = suite::numbered(&first, arguments.launches);
    records.iter().try_for_each(|record| suite::refuse_existing(record))?;
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
    let live = if arguments.sweep.is_some() { arguments.output.live_rows(Sink::stdout()) } else { None };
    let rows = live.map(|rows| Rows { rows, out: &mut *out });
    let progress = Progress::new(record, Deadlines::of(arguments, &commands.started))?.with_rows(rows);
    let (exit_code, followed) = follow(arguments, &commands, progress)?;
    print_result(arguments, exit_code, followed, out)
}

/// Resumes a run.
fn resume_launch(
    arguments: &RunArguments,
    resumed: &ResumedLaunch,
    path: &Path,
    record: &Record,
    out: &mut dyn Write,
) -> Result<i32> {
    let arguments = RunArguments { asked_ranks: Some(resumed.ranks), ..arguments.clone() };
    let (arguments, allocation) = allocation::resolve_ranks(&arguments, &allocation::driver())?;
    print_allocation(allocation.as_ref(), &arguments);
    let commands = Launched::resumed(resumed, &arguments, path)?.commands(&arguments)?;
    if arguments.dry_run {
        commands.print(out)?;
        return Ok(0);
    }
    allocation::wait(&arguments)?;
    let progress = Progress::resuming(path, record, Deadlines::of(&arguments, &commands.started))?;
    let (exit_code, followed) = follow(&arguments, &commands, progress)?;
    print_result(&arguments, exit_code, followed, out)
}

/// Runs a launch to its end and reports its progress; the exit code, and what was seen of the record.
fn follow(arguments: &RunArguments, commands: &Commands, mut progress: Progress) -> Result<(i32, Followed)> {
    eprintln!("+ {}", commands.shown.for_shell());
    let started = Instant::now();
    let ending = launch::supervise(&commands.started, &suite::new_run_id(), GRACE, &mut progress)?;
    let mut followed = progress.finish();
    if ending.output.contains(NEVER_OVERWRITTEN) {
        // Another run began the record at the same moment: what it measures is not of this launch, and its end is its own.
        followed.state = RecordState::default();
    }
    let verdict = launch::conclude(&ending, &followed.state);
    for sentence in &verdict.sentences {
        eprintln!("commgauge: {sentence}");
    }
    if ending.overdue.is_some() && followed.state.header.is_none() {
        allocation::unreachable(arguments).iter().for_each(|sentence| eprintln!("commgauge: {sentence}"));
    }
    let elapsed = started.elapsed();
    if let Err(cause) = launch::end_record(&followed.record, &ending, &followed.state, verdict.exit_code, elapsed) {
        eprintln!("commgauge: {cause}");
    }
    if followed.state.can_be_resumed() {
        eprintln!("commgauge: resume with: {}", resumable::command(&followed.record));
    }
    Ok((verdict.exit_code, followed))
}

/// What is wrong with a record that this launch began whole.
fn changed(problem: &str) -> Error {
    Error::mismatch(format!("{problem}; the record was changed while it was written"))
}

/// Prints the results of a launch's record, and returns its exit code.
fn print_result(arguments: &RunArguments, exit_code: i32, followed: Followed, out: &mut dyn Write) -> Result<i32> {
    let Followed { record, state, live, problem } = followed;
    if state.header.is_none() {
        let missing = (exit_code == 0).then(|| format!("{} has no header", record.shown()));
        return problem.or(missing).map_or(Ok(exit_code), |problem| Err(changed(&problem)));
    }
    if !record.exists() {
        return Err(Error::environment(format!(
            "the record {} was removed, and nothing was written to it since; what it held is lost",
            record.shown()
        )));
    }
    // What was a record when the run began is no mistake of who started it.
    let read = Record::read(&record).map_err(|cause| changed(&cause.to_string()))?;
    match live {
        None => summarise(arguments, &read, &record, out)?,
        Some(live) => {
            write_above(None, out, &live.finish(&View::new(&read)));
            eprintln!("record: {}", record.shown());
        }
    }
    match read.file.seal.tampering() {
        Some(problem) if exit_code == 0 => {
            eprintln!("commgauge: {}: {problem}", record.shown());
            Ok(7)
        }
        _ => Ok(exit_code),
    }
}

// `commgauge run --resume RECORD`: resumes a run that ended early, started as recorded.

/// Resumes the run.
fn run_resume(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<i32> {
    suite::check_file("--resume", path)?;
    let record = Record::read(path)?;
    if let Some(exit_code) = exit_code_if_complete(&record, path)? {
        summarise(arguments, &record, path, out)?;
        return Ok(exit_code);
    }
    for sentence in state(&record, path) {
        eprintln!("commgauge: {sentence}");
    }
    match record.header.backend.name.as_str() {
        "mpi" | "nccl" => {
            let resumed = resumed(&record, arguments.asked_ranks)?;
            resume_launch(arguments, &resumed, path, &record, out)
        }
        // A command that runs a suite or a step of its own has all flags; else they are those of the record.
        "simulated" if arguments.suite.is_some() || arguments.step => {
            run_simulated(&RunArguments { ranks: record.header.world_size, ..arguments.clone() }, out)
        }
        "simulated" => run_simulated(&original_arguments(&record, arguments, path)?, out),
        other => {
            let path = path.shown();
            Err(Error::usage(format!("--resume {path}: its backend is {other}, which commgauge cannot run")))
        }
    }
}

/// The only command line that a simulated record can have.
#[derive(Parser)]
enum Recorded {
    Run(Box<RunArguments>),
}

/// The arguments of the `commgauge run` that wrote a simulated record, to resume it.
fn original_arguments(record: &Record, now: &RunArguments, path: &Path) -> Result<RunArguments> {
    let unknown = |cause: &dyn std::fmt::Display| {
        Error::usage(format!("--resume {}: its command line is not one of `commgauge run`: {cause}", path.shown()))
    };
    let Recorded::Run(then) =
        Recorded::try_parse_from(&record.header.command_line).map_err(|cause| match cause.kind() {
            ErrorKind::InvalidSubcommand => unknown(&"another command"),
            _ => unknown(&cause),
        })?;
    Ok(RunArguments {
        ranks: record.header.world_size,
        asked_ranks: Some(record.header.world_size),
        record: None,
        resume: Some(path.to_owned()),
        allow_changed: now.allow_changed,
        time_limit: now.time_limit,
        output: now.output.clone(),
        full: now.full,
        dry_run: now.dry_run,
        launches: 1,
        extra: then.extra.iter().chain(&now.extra).cloned().collect(),
        ..*then
    })
}

// `--algorithm` and `--protocol` of `commgauge run`: NCCL reads both from its environment once, so each combination is
// a separate launch with its own record; a table at the end compares them.

/// Forced algorithm and protocol of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forced {
    algorithm: Option<Algorithm>,
    protocol: Option<Protocol>,
}

/// One launch of several.
struct ForcedLaunch {
    /// Name of the combination, such as `ring ll128`.
    name: String,
    arguments: RunArguments,
    record: PathBuf,
}

/// Exit codes after which further launches would end in the same way, or are no longer wanted.
const STOPS: [i32; 3] = [2, 7, 75];

/// NCCL's messages for an unsupported combination.
const REFUSALS: [&str; 2] = ["no algorithm/protocol available", "ncclInvalidUsage"];

/// Whether several launches are requested.
fn forces_choices(arguments: &RunArguments) -> bool {
    !arguments.algorithms.is_empty() || !arguments.protocols.is_empty()
}

/// Rejects conflicting flags.
fn check_combinations(arguments: &RunArguments) -> Result<()> {
    let flag = if arguments.algorithms.is_empty() { "--protocol" } else { "--algorithm" };
    if arguments.backend != Backend::Nccl {
        return Err(Error::usage(format!("{flag} is for --backend nccl; leave it out")));
    }
    if arguments.extra.iter().any(|word| word == "--record-algorithm") {
        return Err(Error::usage(format!(
            "{flag} and --record-algorithm: a forced choice is known already, and NCCL's log would be in the times; launch it by itself"
        )));
    }
    if arguments.launches > 1 {
        return Err(Error::usage(format!(
            "{flag} and --launches: each combination is launched once; leave --launches out"
        )));
    }
    Ok(())
}

/// The flags of every launch, each with its record.
fn launches(arguments: &RunArguments, first: &Path) -> Vec<ForcedLaunch> {
    let launch = |forced: Forced| {
        let (name, record) = (forced.name(), forced.record(first));
        let mut arguments = arguments.clone();
        arguments.extra.extend(forced.words());
        ForcedLaunch { name, arguments, record }
    };
    all(&arguments.algorithms, &arguments.protocols).into_iter().map(launch).collect()
}

/// Runs all combinations. Returns 0 if every combination that NCCL supports was measured.
fn run_combinations(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let first = suite::record_path(arguments.record.as_deref())?;
    let launches = launches(arguments, &first);
    launches.iter().try_for_each(|launch| suite::refuse_existing(&launch.record))?;
    let (mut measured, mut most_severe): (Vec<Combination>, i32) = (Vec::new(), 0);
    for ForcedLaunch { name, arguments, record } in &launches {
        eprintln!("commgauge: forced to {name}");
        let exit_code = launch_one(arguments, record, out)?;
        let read = if record.exists() { Some(Record::read(record)?) } else { None };
        let refused = read.as_ref().and_then(refusal);
        match (&refused, exit_code) {
            (Some(why), _) => eprintln!("commgauge: NCCL refuses {name}; continuing with the others: {why}"),
            (None, 0) => {}
            (None, code) if STOPS.contains(&code) || code >= 128 => return Ok(code),
            (None, code) => {
                eprintln!("commgauge: {name} ended with code {code}; continuing with the others");
                most_severe = if most_severe == 4 || code == 4 { 4 } else { most_severe.max(code) };
            }
        }
        let read = read.filter(|_| refused.is_none());
        measured.extend(read.map(|record| Combination { name: name.clone(), view: View::new(&record) }));
    }
    if measured.is_empty() {
        eprintln!("commgauge: NCCL refuses every combination; nothing was measured");
        return Ok(6);
    }
    show(arguments, &measured, out)?;
    Ok(most_severe)
}

fn show(arguments: &RunArguments, measured: &[Combination], out: &mut dyn Write) -> Result<()> {
    let text = combinations_text(measured, arguments.output.columns(Sink::stdout()));
    // Machine-readable formats contain one record each.
    if arguments.output.format() == Format::Table {
        return print_on(out, &format!("\n{text}"));
    }
    eprintln!("\n{}", text.trim_end());
    Ok(())
}

/// NCCL's message for an unsupported combination.
fn refusal(record: &Record) -> Option<String> {
    let error = record.end.as_ref()?.error.as_deref()?;
    REFUSALS.iter().any(|words| error.contains(words)).then(|| error.to_owned())
}

fn all(algorithms: &[Algorithm], protocols: &[Protocol]) -> Vec<Forced> {
    fn or_none<T: Copy>(list: &[T]) -> Vec<Option<T>> {
        if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
    }
    let protocols = or_none(protocols);
    let with = |algorithm| protocols.iter().map(move |protocol| Forced { algorithm, protocol: *protocol });
    distinct(or_none(algorithms).into_iter().flat_map(with))
}

impl Forced {
    fn parts(self) -> Vec<String> {
        [self.algorithm.map(value_of), self.protocol.map(value_of)].into_iter().flatten().collect()
    }

    /// `ring ll128`
    fn name(self) -> String {
        self.parts().join(" ")
    }

    /// `NAME-ring-ll128.jsonl`
    fn record(self, first: &Path) -> PathBuf {
        suite::suffixed(first, &self.parts().join("-"))
    }

    fn words(self) -> Vec<String> {
        let flag = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), value]);
        let given =
            [flag("--algorithm", self.algorithm.map(value_of)), flag("--protocol", self.protocol.map(value_of))];
        given.into_iter().flatten().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::resumable::run_arguments;
    use super::*;
    use crate::cli::run::arguments::tests::parse;
    use commgauge_model::record::Seal;

    #[test]
    fn flags_of_one_launch_are_left_out_and_the_rest_stays_in_order() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (before, after) in [
            ("all_reduce -b 8 --record r.jsonl -e 64M", "all_reduce -b 8 -e 64M"),
            (
                "s.toml --record=r --backend mpi --quiet --expect-ranks 4 --launch-command [] --machine m",
                "s.toml --backend mpi --machine m",
            ),
            ("s.toml --inject-delay 2:2ms --inject-panic 1", "s.toml --inject-delay 2:2ms"),
            ("s.toml --time-limit 25m --resume r --allow-changed", "s.toml"),
            ("s.toml --record", "s.toml"),
        ] {
            assert_eq!(run_arguments(&words(before)).join(" "), after);
        }
    }

    fn sample() -> Record {
        Record::parse(include_bytes!("../../../tests/data/sample-record.jsonl"), "sample").unwrap()
    }

    #[test]
    fn a_record_that_cannot_be_resumed_is_refused() {
        let mut imported = sample();
        imported.header.program = "nccl-tests".into();
        let error = resumed(&imported, None).err().expect("imported");
        assert!(error.exit_code() == 2 && error.to_string().contains("written by nccl-tests"), "{error}");
        let error = resumed(&sample(), Some(77)).err().expect("other ranks");
        assert!(error.to_string().contains("cannot continue with 77; leave -n out"), "{error}");
        let mut running = sample();
        running.file.running = true;
        assert!(exit_code_if_complete(&running, Path::new("r")).unwrap_err().to_string().contains("in progress"));
        let mut changed = sample();
        changed.file.seal = Seal::Broken(7);
        assert!(exit_code_if_complete(&changed, Path::new("r")).unwrap_err().to_string().contains("of line 7"));
    }

    #[test]
    fn a_finished_record_gives_its_exit_code() {
        let mut record = sample();
        let end = record.end.as_mut().expect("an end");
        (end.status, end.exit_code) = (commgauge_model::record::line::EndStatus::Complete, 4);
        assert_eq!(exit_code_if_complete(&record, Path::new("r")).unwrap(), Some(4));
        record.end = None;
        assert_eq!(exit_code_if_complete(&record, Path::new("r")).unwrap(), None);
    }

    #[test]
    fn unknown_nccl_values_and_conflicting_flags_are_refused() {
        for (line, words) in [
            ("s.toml --backend nccl --algorithm ring,rign", "possible values: any, ring, tree, collnet-direct"),
            ("s.toml --backend nccl --protocol ll256", "possible values: any, ll, ll128, simple"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(words), "{error}");
        }
        for (line, words) in [
            ("s.toml --algorithm ring", "--algorithm is for --backend nccl"),
            ("s.toml --backend nccl --protocol ll --launches 2", "--protocol and --launches"),
            ("s.toml --backend nccl --algorithm any,ring -- --record-algorithm", "--algorithm and --record-algorithm"),
        ] {
            let error = check_combinations(&parse(line).unwrap()).expect_err(line);
            assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn every_combination_has_a_launch_with_its_flags_and_a_record_that_is_named_by_it() {
        let run =
            parse("s.toml --backend nccl --algorithm ring,tree,ring --protocol ll,simple -- --warm-buffers").unwrap();
        let all = launches(&run, Path::new("runs/a.jsonl"));
        let names: Vec<&str> = all.iter().map(|launch| launch.name.as_str()).collect();
        assert_eq!(names, ["ring ll", "ring simple", "tree ll", "tree simple"]);
        assert_eq!(all[3].record, Path::new("runs/a-tree-simple.jsonl"));
        assert_eq!(all[3].arguments.extra, ["--warm-buffers", "--algorithm", "tree", "--protocol", "simple"]);
        let own = parse("s.toml --backend nccl --algorithm any,ring").unwrap();
        let all = launches(&own, Path::new("a.jsonl"));
        assert_eq!((all[0].name.as_str(), all[0].record.as_path()), ("any", Path::new("a-any.jsonl")));
        assert_eq!(all[0].arguments.extra, ["--algorithm", "any"]);
        let one = parse("s.toml --backend nccl --protocol ll").unwrap();
        assert_eq!(launches(&one, Path::new("a"))[0].record, Path::new("a-ll"));
    }
}
