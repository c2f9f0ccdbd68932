//! The launched work: a suite, a sweep, the step of a model or all pairs of ranks; flags of the last two follow `--`.

use super::arguments::RunArguments;
use super::sweep_flags::collectives;
use crate::cli::backend_name::Backend;
use crate::cli::places;
use crate::cli::programs::{PairsRun, PlannedWork, StepRun, SuiteRun, Sweep, Work, planned};
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_model::layout::Nodes;

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
    let mut words: Vec<String> = arguments.suite.iter().map(|suite| places::text(suite)).collect::<Result<_>>()?;
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
pub(super) fn of(arguments: &RunArguments, nodes: &Nodes) -> Result<PlannedWork> {
    let words = [words(arguments)?, arguments.extra.clone()].concat();
    let backend = arguments.backend;
    match arguments {
        RunArguments { sweep: Some(_), .. } => checked(&read::<Sweep>("--sweep", words)?, backend, nodes),
        RunArguments { step: true, .. } => checked(&read::<StepRun>("--step", words)?, backend, nodes),
        RunArguments { pairs: true, .. } => checked(&read::<PairsRun>("--pairs", words)?, backend, nodes),
        _ => checked(&read::<SuiteRun>("after `--`", words)?, backend, nodes),
    }
}

fn checked(program: &impl Work, backend: Backend, nodes: &Nodes) -> Result<PlannedWork> {
    program.launched().nccl.check(backend)?;
    planned(program, backend, nodes)
}

/// The flags of a launched program as it will read them.
fn read<Program: Parser>(flag: &str, words: Vec<String>) -> Result<Program> {
    Program::try_parse_from(std::iter::once(Program::command().get_name().to_owned()).chain(words)).map_err(|error| {
        let text = error.to_string();
        Error::usage(format!("{flag}: {}", text.trim_start_matches("error: ").trim_end()))
    })
}

#[cfg(test)]
mod tests {
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
        of(&arguments, &Nodes::single(arguments.ranks))
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
    fn a_suite_and_a_step_exclude_each_other_and_one_of_them_is_needed() {
        for line in
            ["", "--step", "s.toml --step -- --model llama-3-8b", "s.toml --pairs", "--pairs --step -- --layers 1"]
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
        assert_eq!(planned_of("--sweep all_reduce --iters 20").unwrap().work.settings.fixed_iterations, Some(20));
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
        assert_eq!((settings.replicates, settings.fixed_iterations), (6, Some(3)));
        assert_eq!(facts.name, "step of llama-3-8b (num_hidden_layers 4 of 32)");
        assert_eq!(facts.layout.as_deref(), Some("tp 2 x pp 2"));
        assert!(plan.cases.iter().all(|case| case.op.style == commgauge_model::workload::Style::Tensor));
        assert!(plan.cases.iter().any(|case| case.solo_of.is_some()));
    }
}
