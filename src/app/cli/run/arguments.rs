//! The flags of `commgauge run`.

use crate::cli::launched_arguments::{Algorithm, Backend, Protocol, parse_time_limit, parse_timeout};
use crate::cli::like::with_tool_defaults;
use crate::cli::{OutputArguments, SweepArguments};
use crate::launch::HostFile;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use std::path::PathBuf;
use std::time::Duration;

/// Launches a suite, a sweep, the step of a model, or all pairs of ranks, and sums up what was measured.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n    commgauge run quick                          the first look, on all cores\n    \
        commgauge run quick --full                   with every table\n    \
        commgauge run 70b-64gpu --dry-run            the launch command and the plan\n    \
        commgauge run quick --hosts a:8,b:8 -n 16    on two hosts",
    mut_args(with_tool_defaults)
)]
pub struct RunArguments {
    /// Suite file, or the name of one: of NAME.toml here, of one in suites/ here, or of an embedded one (`commgauge show suites`)
    /// [default: quick]
    #[arg(conflicts_with_all = ["sweep", "step", "pairs"])]
    pub suite: Option<PathBuf>,
    /// Sweep of these collectives, instead of a suite
    ///
    /// Names in one word, such as "all_reduce all_gather", or all. Takes the flags of commgauge-sweep (-b 8 -e 64M --iters 20 ...), where
    /// -n is the number of ranks.
    #[arg(long, value_name = "COLLECTIVES", conflicts_with_all = ["step", "pairs"])]
    pub sweep: Option<String>,
    /// Flags of the sweep.
    #[command(flatten)]
    pub sweep_flags: SweepFlags,
    /// Time for all cases together, such as 60s [default of a sweep: 2 s and 40 ms for each]
    ///
    /// A short round goes over all cases, then further ones in which those with the widest intervals get the most of the time. A suite
    /// has no default.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, conflicts_with_all = ["step", "pairs"], hide_short_help = true)]
    pub within: Option<Seconds>,
    /// Repeat all calls for this time, such as 2h, with rolling checks and changing data
    ///
    /// Ends at the first wrong byte and says which call it was: number, rank, element, and in how many copies of the buffers. The record
    /// keeps the rates over time. Products and copies of a suite are left out.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, conflicts_with_all = ["step", "pairs", "within"], hide_short_help = true)]
    pub soak: Option<Seconds>,
    /// Step of a model, instead of a suite: flags of commgauge-step after `--`
    #[arg(long, requires = "extra")]
    pub step: bool,
    /// All pairs of ranks, instead of a suite: flags of commgauge-pairs after `--`
    #[arg(long, conflicts_with = "step")]
    pub pairs: bool,
    /// Number of ranks [default: one for each core, or GPU]
    ///
    /// In a Slurm allocation the default is its ranks, with --hosts or --hostfile their slots; else one rank for each core of this
    /// machine, an even number, at least 2. With --backend nccl it is one for each GPU, with --backend simulated 4.
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
    pub asked_ranks: Option<u32>,
    /// Number of ranks, as settled by the flag or the allocation.
    #[arg(skip = 2u32)]
    pub ranks: u32,
    /// What the file of --hostfile or of the job says, once the number of ranks is settled.
    #[arg(skip)]
    pub(crate) listed_hosts: Option<HostFile>,
    /// Backend
    #[arg(long, value_enum, default_value_t = Backend::Mpi)]
    pub backend: Backend,
    /// Machine file, or a name: link rates that results are compared with, or that a simulation runs on.
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Record to write; its folder must exist [default: a new file in reports/runs/]
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,
    /// Record of a run that ended early, to resume
    ///
    /// If nothing is left to measure, it says so.
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["suite", "sweep", "step", "pairs", "record", "launches", "machine", "within", "soak"])]
    pub resume: Option<PathBuf>,
    /// Resume even if hosts, binary, versions or environment changed; the record says so
    #[arg(long, requires = "resume", conflicts_with_all = ["suite", "sweep", "step", "pairs"], hide_short_help = true)]
    pub allow_changed: bool,
    /// Stop with exit code 75 before this time is over, such as 25m
    ///
    /// No case is begun that would not be done by then.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, conflicts_with = "launches", hide_short_help = true)]
    pub time_limit: Option<Seconds>,
    /// Repeat the launch itself; the records get -1, -2 ... before their ending.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), hide_short_help = true)]
    pub launches: u32,
    /// With --backend nccl: algorithms to force, a list with commas, any being NCCL's own choice; one launch for each, and a table that
    /// compares them.
    #[arg(
        long = "algorithm",
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "resume",
        hide_short_help = true
    )]
    pub algorithms: Vec<Algorithm>,
    /// With --backend nccl: protocols to force, a list with commas; one launch for each, and for each algorithm.
    #[arg(
        long = "protocol",
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "resume",
        hide_short_help = true
    )]
    pub protocols: Vec<Protocol>,
    /// How long a rank may stay in one place before the run counts as hung and is ended with code 5, in seconds or as 500ms, 2m
    /// [default: follows from each case]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, hide_short_help = true)]
    pub timeout: Option<Duration>,
    /// Show every table, not one screen
    ///
    /// `commgauge report RECORD` shows them later, too.
    #[arg(long)]
    pub full: bool,
    /// How results are shown.
    #[command(flatten)]
    pub output: OutputArguments,
    /// What the summary says; set by commands that have more to say of the record than `commgauge run`.
    #[arg(skip)]
    pub(crate) summary: SummaryParts,
    /// Print the launch command and the plan, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Start the ranks, show what they have in common and where they differ, and stop before anything is measured.
    #[arg(long, conflicts_with = "dry_run", hide_short_help = true)]
    pub check_launch: bool,
    /// The launcher: auto, mpirun, mpiexec, srun, or a path.
    #[arg(long, default_value = "auto", value_name = "LAUNCHER", hide_short_help = true)]
    pub launcher: String,
    /// A word for the launcher, as it is; may be given again.
    #[arg(long = "launcher-arg", value_name = "WORD", allow_hyphen_values = true, hide_short_help = true)]
    pub launcher_arguments: Vec<String>,
    /// Hosts and the ranks on each, such as a:2,b:2.
    #[arg(long, value_name = "HOSTS", conflicts_with = "host_file")]
    pub hosts: Option<String>,
    /// Host file of the launcher
    #[arg(long = "hostfile", value_name = "FILE", hide_short_help = true)]
    pub host_file: Option<PathBuf>,
    /// Wait at most this long, such as 5m, until the names of all hosts resolve and the launcher's remote shell reaches them; then give up
    /// with code 6 and name those that never came. For pods and machines that come up late. Needs --hosts or --hostfile.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, hide_short_help = true)]
    pub wait_for_hosts: Option<Seconds>,
    /// More flags for commgauge-suite or commgauge-sweep, or those of commgauge-step or commgauge-pairs, after `--`.
    #[arg(last = true, value_name = "FLAGS", hide_short_help = true)]
    pub extra: Vec<String>,
}

/// What the summary of a run says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SummaryParts {
    /// One screen, which ends with the commands to type next.
    #[default]
    Screen,
    /// Warnings, and how many cases ended in which way.
    Head,
}

/// The suite of a run that names no work.
const FIRST_SUITE: &str = "quick";

impl RunArguments {
    /// The same, with a suite where no work is named.
    pub(super) fn with_a_suite(&self) -> RunArguments {
        let is_named = self.suite.is_some() || self.sweep.is_some() || self.step || self.pairs;
        let suite = if is_named { self.suite.clone() } else { Some(PathBuf::from(FIRST_SUITE)) };
        RunArguments { suite, ..self.clone() }
    }

    /// Rejects flags of a sweep without `--sweep`. (Clap does not enforce a requirement of a flag that conflicts with
    /// another given one.)
    ///
    /// # Errors
    /// A usage error that names them.
    pub(super) fn check_sweep_flags(&self) -> Result<()> {
        let SweepFlags(words) = &self.sweep_flags;
        if self.sweep.is_some() || words.is_empty() {
            return Ok(());
        }
        let given = words.join(" ");
        Err(Error::usage(format!(
            "found `{given}` without --sweep; a suite and --pairs and --step say themselves what is measured"
        )))
    }
}

// The flags of `commgauge-sweep` that `commgauge run --sweep` accepts and passes on unchanged.
//
// They are defined once, in `cli::sweep`: each is looked up there and converted back into arguments.

/// Flags of a sweep, as arguments of `commgauge-sweep`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepFlags(pub Vec<String>);

/// Flags that `commgauge run` defines itself.
const OWN: [&str; 2] = ["within", "soak"];

/// The flags as `commgauge-sweep` defines them, without the collectives, which are the value of `--sweep`.
fn flags() -> Vec<Arg> {
    let sweep = SweepArguments::augment_args(Command::new("sweep"));
    let is_flag =
        |arg: &&Arg| !arg.is_positional() && *arg.get_id() != "collective" && !OWN.contains(&arg.get_id().as_str());
    sweep.get_arguments().filter(is_flag).cloned().collect()
}

impl Args for SweepFlags {
    fn augment_args(command: Command) -> Command {
        flags().into_iter().fold(command, |command, flag| {
            let flag = match flag.get_short() {
                // `commgauge run` uses this letter for the number of ranks.
                Some('n') => flag.short(None),
                _ => flag,
            };
            command.arg(flag.help_heading("Sweep (with --sweep)").hide_short_help(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SweepFlags {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<SweepFlags, clap::Error> {
        let given = |flag: &Arg| matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        Ok(SweepFlags(flags().iter().filter(|flag| given(flag)).flat_map(|flag| words(flag, matches)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = SweepFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Converts a flag and its value back into arguments of `commgauge-sweep`.
fn words(flag: &Arg, matches: &ArgMatches) -> Vec<String> {
    let long = || flag.get_long().map_or_else(|| flag.get_id().to_string(), |long| format!("--{long}"));
    let name = flag.get_short().map_or_else(long, |letter| format!("-{letter}"));
    if matches!(flag.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
        return vec![name];
    }
    let values = matches.get_raw(flag.get_id().as_str()).into_iter().flatten();
    let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
    vec![name, values.join(&flag.get_value_delimiter().unwrap_or(',').to_string())]
}

/// The collectives of `--sweep`, which may be given in one argument.
pub(super) fn collectives(text: &str) -> Vec<String> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::Format;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    pub(in crate::cli::run) fn parse(line: &str) -> std::result::Result<RunArguments, String> {
        parse_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn parse_words(words: &[&str]) -> std::result::Result<RunArguments, String> {
        let words = std::iter::once("run").chain(words.iter().copied());
        Program::try_parse_from(words).map(|program| program.run).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for (line, word) in [
            ("s.toml -n 0", "0 is not in 1.."),
            ("s.toml -n -1", "-1"),
            ("s.toml --launches 0", "0 is not in 1..=10000"),
            ("s.toml --backend gloo", "possible values: mpi, simulated, nccl"),
            ("s.toml --format xml", "nccl-tests"),
            ("s.toml --hosts a --hostfile b", "cannot be used with"),
            ("s.toml --resume r.jsonl", "cannot be used with"),
            ("--resume r.jsonl --launches 2", "cannot be used with"),
            ("s.toml --allow-changed", "cannot be used with"),
            ("s.toml --time-limit 25", "such as 300ns"),
            ("s.toml --time-limit 0s", "more than 0 s"),
            ("s.toml --wait-for-hosts 0s", "more than 0 s"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn a_format_that_the_answer_does_not_have_is_refused_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("own.txt");
        std::fs::write(&template, "{{ ranks }}").unwrap();
        let template = format!("template:{}", template.display());
        for (flag, format, accepted) in [
            ("--dry-run", template.as_str(), "accepted: table"),
            ("--dry-run", "json", "accepted: table"),
            ("--dry-run", "csv", "accepted: table"),
            ("--check-launch", "csv", "accepted: table, json or template:FILE"),
            ("--check-launch", "osu", "accepted: table, json or template:FILE"),
        ] {
            let arguments = parse(&format!("no-such-suite {flag} --format {format}")).expect(format);
            let error = crate::cli::run::run(&arguments, &mut Vec::new()).expect_err(format);
            let text = error.to_string();
            assert!(text.starts_with(flag) && text.ends_with(accepted), "{text}");
            assert_eq!(error.exit_code(), 2, "{text}");
        }
        let drawn = parse(&format!("s.toml --check-launch --format {template}")).unwrap().output;
        let mut out = Vec::new();
        drawn.check_answer("--check-launch", true).unwrap();
        drawn.show_answer(&serde_json::json!({ "ranks": 8 }), |_| String::new(), &mut out).unwrap();
        assert_eq!(out, b"8");
    }

    #[test]
    fn arguments_for_launcher_and_suite_are_unchanged() {
        let run =
            parse("s.toml --launcher-arg --mca --launcher-arg btl --launcher-arg self -- --fast -x").expect("fine");
        assert_eq!(run.launcher_arguments, ["--mca", "btl", "self"]);
        assert_eq!(run.extra, ["--fast", "-x"]);
        assert_eq!((run.asked_ranks, run.backend, run.launcher.as_str()), (None, Backend::Mpi, "auto"));
    }

    #[test]
    fn every_flag_of_a_sweep_is_passed_on_unchanged() {
        let line = "-b 8 -e 64M -f 4 -d half,float -o sum -r 0,1 -w 5 -c 0 --iters 20 --placement in --cadence isolated --splits \
                    skewed:1 --replicates 2 --precision 1% --budget 1s --warm-buffers --start barrier --timing whole --seed 7";
        let given: Vec<&str> = line.split_whitespace().collect();
        let run = parse_words(&[&["--sweep", "all_reduce all_gather", "-n", "4"][..], &given].concat()).unwrap();
        assert_eq!(run.asked_ranks, Some(4));
        let mut handed: Vec<String> = run.sweep_flags.0.clone();
        let mut expected: Vec<String> = given.iter().map(|word| word.replace("--iters", "-n")).collect();
        // The order of flags does not matter.
        handed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(handed, expected);
        // All flags about what and how to measure, except -i, which conflicts with -f, and those of nccl-tests, most of
        // which are rejected.
        let own = flags().iter().filter(|flag| !flag.is_hide_set() && *flag.get_id() != "like").count();
        assert_eq!(own, given.iter().filter(|word| word.starts_with('-')).count() + 1);
    }

    #[test]
    fn like_also_sets_the_printed_format() {
        for (line, format) in [
            ("", Format::Table),
            ("--like nccl-tests", Format::NcclTests),
            ("--like osu", Format::Osu),
            ("--like imb", Format::Imb),
            ("--like imb --format csv", Format::Csv),
        ] {
            let words: Vec<&str> = ["--sweep", "all_reduce"].into_iter().chain(line.split_whitespace()).collect();
            assert_eq!(parse_words(&words).unwrap().output.format(), format, "{line}");
        }
    }

    #[test]
    fn flags_that_are_not_given_are_not_passed_on() {
        assert_eq!(parse_words(&["--sweep", "all_reduce"]).unwrap().sweep_flags, SweepFlags::default());
    }

    #[test]
    fn a_run_that_names_no_work_is_the_first_look() {
        for (words, suite) in [(&["-n", "2"][..], Some("quick")), (&["qualify"], Some("qualify")), (&["--pairs"], None)]
        {
            let suite = suite.map(PathBuf::from);
            assert_eq!(parse_words(words).unwrap().with_a_suite().suite, suite, "{words:?}");
        }
    }

    #[test]
    fn sweep_flags_without_a_sweep_and_a_sweep_with_a_suite_are_usage_errors() {
        for words in [
            &["s.toml", "-b", "8"][..],
            &["-b", "8"],
            &["--pairs", "-b", "8"],
            &["s.toml", "--sweep", "all_reduce"],
            &["--sweep", "all_reduce", "--pairs"],
            &["--sweep", "all_reduce", "--step", "--", "--model", "m"],
            &["--sweep"],
            &["--pairs", "--within", "9s"],
            &["--sweep", "all_reduce", "-b", "8", "-b", "9"],
            &["--sweep", "all_reduce", "-b", "eight"],
        ] {
            let found = parse_words(words).and_then(|run| run.check_sweep_flags().map_err(|error| error.to_string()));
            assert!(found.is_err(), "{words:?}");
        }
    }

    #[test]
    fn collectives_may_be_given_in_one_argument() {
        for text in ["all_reduce all_gather", "all_reduce,all_gather", " all_reduce, all_gather "] {
            assert_eq!(collectives(text), ["all_reduce", "all_gather"]);
        }
        assert!(collectives(" ,").is_empty());
    }
}
