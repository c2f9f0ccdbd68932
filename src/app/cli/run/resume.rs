//! `commgauge run --resume RECORD`: resumes a run that ended early, started as recorded.

use super::super::places;
use super::super::programs::{Command, Commgauge};
use super::arguments::RunArguments;
use super::{resume_launch, run_simulated, summarise};
use crate::launch::{LauncherPart, quote};
use clap::Parser;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::{Record, Seal};
use std::io::Write;
use std::path::Path;

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

/// The launch of a resumed run.
pub(super) struct ResumedLaunch {
    /// The program that wrote the record.
    pub program: String,
    /// Its arguments, without those that apply to one launch only.
    pub words: Vec<String>,
    /// The launcher part of the recorded command, if there is one.
    pub launcher: Option<LauncherPart>,
    /// Number of ranks.
    pub ranks: u32,
}

/// The command that resumes a record.
pub(crate) fn command(record: &Path) -> String {
    format!("commgauge run --resume {}", quote(&record.display().to_string()))
}

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
            resume_launch(arguments, &resumed, (path, &record), out)
        }
        "simulated" => run_simulated(&original_arguments(&record, arguments, path)?, out),
        other => {
            let path = path.display();
            Err(Error::usage(format!("--resume {path}: its backend is {other}, which commgauge cannot run")))
        }
    }
}

/// The exit code of a record without remaining work; none if there is work left.
///
/// # Errors
/// If the record cannot be resumed.
pub(crate) fn exit_code_if_complete(record: &Record, path: &Path) -> Result<Option<i32>> {
    let path = path.display();
    if record.running {
        return Err(Error::usage(format!(
            "--resume {path}: the run that writes it is still going on; wait for its end"
        )));
    }
    if record.seal == Seal::Broken {
        return Err(Error::usage(format!(
            "--resume {path}: it was changed after it was written (its digest does not fit), so no run can go on with it; \
             start a new one"
        )));
    }
    let Some(end) = record.end.as_ref().filter(|_| record.is_finished()) else { return Ok(None) };
    eprintln!("commgauge: {path} is complete: nothing is left to measure");
    Ok(Some(if (0..=255).contains(&end.exit_code) { end.exit_code } else { 6 }))
}

/// Completed and remaining work, in sentences.
pub(crate) fn state(record: &Record, path: &Path) -> Vec<String> {
    let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
    // With a budget for all cases there may be more lines than planned.
    let there = record.measured_lines().min(planned);
    let shown = path.display();
    let mut sentences = vec![format!("{shown} holds {there} of {planned} measured cases; the rest is measured now")];
    if record.torn {
        sentences.push("its last line is torn and will be cut off; that case is measured again".to_owned());
    }
    sentences
}

fn resumed(record: &Record, asked_ranks: Option<u32>) -> Result<ResumedLaunch> {
    let (header, wrong) = (&record.header, |text: String| Err(Error::usage(format!("--resume: {text}"))));
    if !LAUNCHED.contains(&header.program.as_str()) {
        return wrong(format!("the record was written by {}, which no launcher starts", header.program));
    }
    if let Some(ranks) = asked_ranks.filter(|ranks| *ranks != header.world_size) {
        return wrong(format!("the run has {} ranks and cannot go on with {ranks}; leave -n out", header.world_size));
    }
    let launch = header.launch_command.as_deref().unwrap_or_default();
    Ok(ResumedLaunch {
        program: header.program.clone(),
        words: run_arguments(header.command_line.get(1..).unwrap_or_default()),
        launcher: LauncherPart::of(launch, &header.program),
        ranks: header.world_size,
    })
}

/// The arguments of a launched program without those that apply to one launch only.
fn run_arguments(words: &[String]) -> Vec<String> {
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

/// The arguments of the `commgauge run` that wrote a simulated record, to resume it.
fn original_arguments(record: &Record, now: &RunArguments, path: &Path) -> Result<RunArguments> {
    let unknown = |cause: &dyn std::fmt::Display| {
        Error::usage(format!("--resume {}: its command line is none of `commgauge run`: {cause}", path.display()))
    };
    let command = Commgauge::try_parse_from(&record.header.command_line).map_err(|cause| unknown(&cause))?;
    let Command::Run(then) = command.command else { return Err(unknown(&"another command")) };
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
        ..then
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(error.to_string().contains("cannot go on with 77; leave -n out"), "{error}");
        let mut running = sample();
        running.running = true;
        assert!(exit_code_if_complete(&running, Path::new("r")).unwrap_err().to_string().contains("still going on"));
        let mut changed = sample();
        changed.seal = Seal::Broken;
        assert!(exit_code_if_complete(&changed, Path::new("r")).unwrap_err().to_string().contains("was changed"));
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
