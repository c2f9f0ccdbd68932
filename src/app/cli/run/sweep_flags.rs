//! The flags of `commgauge-sweep` that `commgauge run --sweep` accepts and passes on unchanged.
//!
//! They are defined once, in `cli::sweep`: each is looked up there and converted back into arguments.

use crate::cli::SweepArguments;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

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
    fn from_arg_matches(matches: &ArgMatches) -> Result<SweepFlags, clap::Error> {
        let given = |flag: &Arg| matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        Ok(SweepFlags(flags().iter().filter(|flag| given(flag)).flat_map(|flag| words(flag, matches)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
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
mod tests {
    use super::super::arguments::RunArguments;
    use super::*;
    use crate::report::Format;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    fn parse(words: &[&str]) -> Result<RunArguments, String> {
        let words = std::iter::once("run").chain(words.iter().copied());
        Program::try_parse_from(words).map(|program| program.run).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_a_sweep_is_passed_on_unchanged() {
        let line = "-b 8 -e 64M -f 4 -d half,float -o sum -r 0,1 -w 5 -c 0 --iters 20 --placement in --cadence isolated --splits \
                    skewed:1 --replicates 2 --precision 1% --budget 1s --warm-buffers --start barrier --timing whole --seed 7";
        let given: Vec<&str> = line.split_whitespace().collect();
        let run = parse(&[&["--sweep", "all_reduce all_gather", "-n", "4"][..], &given].concat()).unwrap();
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
            assert_eq!(parse(&words).unwrap().output.format(), format, "{line}");
        }
    }

    #[test]
    fn flags_that_are_not_given_are_not_passed_on() {
        assert_eq!(parse(&["--sweep", "all_reduce"]).unwrap().sweep_flags, SweepFlags::default());
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
            let found = parse(words).and_then(|run| run.check_sweep_flags().map_err(|error| error.to_string()));
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
