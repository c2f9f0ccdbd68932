//! `commgauge run --resume RECORD`: resumes a run that ended early, started as recorded.

use super::super::places;
use super::arguments::RunArguments;
use super::in_process::run_simulated;
use super::launches::resume_launch;
use super::resumable::{exit_code_if_complete, state};
use super::resumed_launch::resumed;
use super::summary::summarise;
use clap::Parser;
use clap::error::ErrorKind;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Record;
use std::io::Write;
use std::path::Path;

/// Resumes the run.
pub(super) fn run(arguments: &RunArguments, path: &Path, out: &mut dyn Write) -> Result<i32> {
    places::check_file("--resume", path)?;
    let record = Record::read(path)?;
    if let Some(exit_code) = exit_code_if_complete(&record, path)? {
        summarise(arguments, path, out)?;
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
        Error::usage(format!("--resume {}: its command line is none of `commgauge run`: {cause}", path.shown()))
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

#[cfg(test)]
mod tests {
    use super::super::resumed_launch::run_arguments;
    use super::*;
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
        Record::parse(include_bytes!("../../../../tests/data/sample-record.jsonl"), "sample").unwrap()
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
        assert!(exit_code_if_complete(&running, Path::new("r")).unwrap_err().to_string().contains("still going on"));
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
}
