//! Completes the definition of every program: a short help of at most two screens, examples and exit codes below the
//! long help, and `--color` for commands without a table.

use crate::report::ColorChoice;
use clap::{Arg, Command, builder::EnumValueParser};

/// Flags that the short help of a program shows; the others are in `--help`, in their groups. A program that is not
/// listed shows all.
const SHORT: [(&str, &[&str]); 9] = [
    (
        "run",
        &[
            "suite",
            "sweep",
            "step",
            "pairs",
            "ranks",
            "backend",
            "machine",
            "record",
            "resume",
            "time-limit",
            "full",
            "format",
            "color",
            "dry-run",
            "check-launch",
            "hosts",
            "hostfile",
        ],
    ),
    (
        "ops",
        &[
            "model",
            "tp",
            "cp",
            "dp",
            "pp",
            "ep",
            "sequence",
            "global-batch",
            "micro-batches",
            "sequence-parallel",
            "data-style",
            "schedule",
            "serve",
            "framework",
            "format",
        ],
    ),
    (
        "rank",
        &[
            "model",
            "tp",
            "cp",
            "dp",
            "pp",
            "ep",
            "ranks",
            "sequence",
            "global-batch",
            "micro-batches",
            "sequence-parallel",
            "fit",
            "machine",
            "ranks-per-node",
            "format",
        ],
    ),
    (
        "plan",
        &[
            "model",
            "gpus",
            "ranks-per-node",
            "gpu-memory",
            "global-batch",
            "sequence",
            "fit",
            "machine",
            "efficiency",
            "products",
            "only",
            "explain",
            "top",
            "format",
        ],
    ),
    (
        "calibrate",
        &[
            "model",
            "gpus",
            "ranks-per-node",
            "gpu-memory",
            "global-batch",
            "sequence",
            "machine",
            "output",
            "budget",
            "suite-only",
            "run",
        ],
    ),
    (
        "commgauge-suite",
        &["suite", "backend", "machine", "record", "resume", "time-limit", "timeout", "quiet", "format"],
    ),
    (
        "commgauge-sweep",
        &[
            "collectives",
            "minbytes",
            "maxbytes",
            "stepfactor",
            "datatype",
            "op",
            "iters",
            "like",
            "within",
            "backend",
            "format",
        ],
    ),
    (
        "commgauge-step",
        &[
            "model",
            "tp",
            "cp",
            "dp",
            "pp",
            "ep",
            "sequence",
            "global-batch",
            "micro-batches",
            "sequence-parallel",
            "serve",
            "backend",
            "format",
        ],
    ),
    (
        "commgauge-pairs",
        &[
            "latency-bytes",
            "bandwidth-bytes",
            "one-at-a-time",
            "rank-stride",
            "replicates",
            "budget",
            "backend",
            "machine",
            "record",
            "resume",
            "time-limit",
            "quiet",
            "format",
        ],
    ),
];

/// Examples for the programs, one per line; those in doc comments are added.
const EXAMPLES: [(&str, &str); 6] = [
    (
        "run",
        "  commgauge run quick                          the first look, on all cores\n  \
           commgauge run quick --full                   with every table\n  \
           commgauge run 70b-64gpu --dry-run            the launch command and the plan\n  \
           commgauge run quick --hosts a:8,b:8 -n 16    on two hosts",
    ),
    (
        "report",
        "  commgauge report RECORD\n  commgauge report RECORD --format csv > rows.csv\n  commgauge report RECORD -o report.html",
    ),
    ("commgauge-suite", "  mpirun -np 4 commgauge-suite quick --record run.jsonl"),
    (
        "commgauge-sweep",
        "  mpirun -np 4 commgauge-sweep all_reduce -b 8 -e 64M -f 2\n  mpirun -np 2 commgauge-sweep ping_pong --cadence isolated",
    ),
    (
        "commgauge-step",
        "  mpirun -np 4 commgauge-step --model llama-3-8b --layers 4 --tp 2 --pp 2 --sequence 1024 --micro-batches 4",
    ),
    ("commgauge-pairs", "  mpirun -np 16 commgauge-pairs"),
];

const EXIT_CODES: &str = "\
Exit codes:
    0  complete and right, or yes
    1  no: something is worse than expected or than the base
    2  wrong usage, or a file that says something wrong
    3  inconclusive
    4  data arrived wrong
    5  a hang or a time limit of a call
    6  the environment failed: launcher, library, disk, a dead rank
    7  not everything was measured, or records do not belong together
   75  stopped before --time-limit; continue with --resume";

/// The completed definition.
pub(crate) fn finished(definition: Command) -> Command {
    let definition = with_color(definition);
    let name = definition.get_name().to_owned();
    let text = below(&name, definition.get_after_help().map(ToString::to_string));
    let definition = definition.after_long_help(text);
    let definition = match SHORT.iter().find(|(program, _)| *program == name) {
        Some((_, shown)) => shortened(definition, shown),
        None => definition,
    };
    definition.mut_subcommands(finished)
}

fn with_color(definition: Command) -> Command {
    if definition.has_subcommands() || definition.get_arguments().any(|argument| argument.get_id() == "color") {
        return definition;
    }
    let parser = EnumValueParser::<ColorChoice>::new();
    let help = "When to colour help and errors; NO_COLOR and TERM=dumb are heeded";
    let color =
        Arg::new("color").long("color").value_name("WHEN").value_parser(parser).default_value("auto").help(help);
    definition.arg(color.hide_short_help(true))
}

/// Hides flags that are not listed from the short help, and adds a pointer to the long help.
fn shortened(definition: Command, shown: &[&str]) -> Command {
    let is_shown = |argument: &Arg| {
        let names = [argument.get_long(), Some(argument.get_id().as_str())];
        argument.is_required_set() || names.into_iter().flatten().any(|name| shown.contains(&name))
    };
    let hidden = definition.get_arguments().filter(|argument| !is_shown(argument) && !argument.is_hide_set()).count();
    let more = format!("{hidden} more flags, in groups, with examples and exit codes: --help");
    definition
        .mut_args(|argument| {
            let shown = is_shown(&argument);
            argument.hide_short_help(!shown)
        })
        .after_help(more)
}

/// Adds examples and exit codes after the existing text.
fn below(name: &str, before: Option<String>) -> String {
    let examples = EXAMPLES.iter().find(|(program, _)| *program == name).map(|(_, text)| format!("Examples:\n{text}"));
    let parts = before.into_iter().chain(examples).chain([EXIT_CODES.to_owned()]);
    parts.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::programs::ProgramName;
    use clap::ValueEnum;

    /// Every program and command with its name.
    fn all() -> Vec<(String, Command)> {
        fn collect(definition: &Command, before: &str, all: &mut Vec<(String, Command)>) {
            let name = format!("{before}{}", definition.get_name());
            all.push((name.clone(), definition.clone()));
            definition.get_subcommands().for_each(|command| collect(command, &format!("{name} "), all));
        }
        let mut found = Vec::new();
        for program in ProgramName::value_variants() {
            collect(&program.definition(), "", &mut found);
        }
        found
    }

    #[test]
    fn the_short_help_of_every_program_fits_two_screens() {
        let lines = |definition: Command| definition.term_width(80).render_help().to_string().lines().count();
        let long: Vec<(String, usize)> =
            all().into_iter().map(|(name, definition)| (name, lines(definition))).collect();
        let long: Vec<&(String, usize)> = long.iter().filter(|(_, lines)| *lines > 48).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn the_long_help_has_every_flag_and_the_exit_codes() {
        for (name, mut definition) in all() {
            let text = definition.render_long_help().to_string();
            assert!(text.contains("Exit codes:") && text.contains("data arrived wrong"), "{name}: {text}");
            for flag in definition.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{flag}")), "{name} --{flag}");
            }
        }
    }

    #[test]
    fn every_flag_that_the_short_help_names_is_there() {
        let all = all();
        for (program, shown) in SHORT {
            let (_, definition) = all.iter().find(|(_, definition)| definition.get_name() == program).expect(program);
            let known: Vec<&str> = definition
                .get_arguments()
                .flat_map(|flag| [flag.get_long(), Some(flag.get_id().as_str())])
                .flatten()
                .collect();
            for flag in shown.iter().filter(|flag| **flag != "collectives") {
                assert!(known.contains(flag), "{program}: {flag} of {known:?}");
            }
        }
        for (program, _) in EXAMPLES {
            assert!(all.iter().any(|(_, definition)| definition.get_name() == program), "{program}");
        }
    }

    #[test]
    fn every_command_takes_a_choice_of_colours() {
        for (name, definition) in all().into_iter().filter(|(_, definition)| !definition.has_subcommands()) {
            assert!(definition.get_arguments().any(|flag| flag.get_long() == Some("color")), "{name}");
        }
    }
}
