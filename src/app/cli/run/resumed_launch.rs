//! The launch of a resumed run, as its record has it.

use crate::launch::LauncherPart;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::Record;

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
    let launch = header.launch_command.as_deref().unwrap_or_default();
    Ok(ResumedLaunch {
        program: header.program.clone(),
        words: run_arguments(header.command_line.get(1..).unwrap_or_default()),
        launcher: LauncherPart::of(launch, &header.program),
        ranks: header.world_size,
    })
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
