//! The launch of a resumed run, as its record has it.

use crate::launch::LauncherPart;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::Record;
use commgauge_model::record::secrets::HIDDEN;

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
    let launch = revealed(header.launch_command.as_deref().unwrap_or_default(), |name| std::env::var(name).ok())?;
    Ok(ResumedLaunch {
        program: header.program.clone(),
        words: run_arguments(header.command_line.get(1..).unwrap_or_default()),
        launcher: LauncherPart::of(&launch, &header.program),
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

#[cfg(test)]
mod tests {
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
