//! `--algorithm` and `--protocol` of `commgauge run`: NCCL reads both from its environment once, so each combination is
//! a separate launch with its own record; a table at the end compares them.

use super::super::nccl_arguments::{Algorithm, Protocol};
use super::super::places;
use super::super::table_or_json::print_on;
use super::arguments::RunArguments;
use super::launches::launch_one;
use crate::cli::backend_name::Backend;
use crate::cli::terminal::Sink;
use crate::report::{Combination, Format, View, combinations_text};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::record::Record;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Forced algorithm and protocol of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forced {
    algorithm: Option<Algorithm>,
    protocol: Option<Protocol>,
}

/// One launch of several.
pub(super) struct ForcedLaunch {
    /// Name of the combination, such as `ring ll128`.
    name: String,
    pub arguments: RunArguments,
    pub record: PathBuf,
}

/// What a combination was measured at.
struct Measured {
    name: String,
    view: View,
}

/// Exit codes after which further launches would end in the same way, or are no longer wanted.
const STOPS: [i32; 3] = [2, 7, 75];
/// NCCL's messages for an unsupported combination.
const REFUSALS: [&str; 2] = ["no algorithm/protocol available", "ncclInvalidUsage"];

/// Whether several launches are requested.
pub(super) fn is_requested(arguments: &RunArguments) -> bool {
    !arguments.algorithms.is_empty() || !arguments.protocols.is_empty()
}

/// Rejects conflicting flags.
pub(super) fn check(arguments: &RunArguments) -> Result<()> {
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
pub(super) fn launches(arguments: &RunArguments, first: &Path) -> Vec<ForcedLaunch> {
    let launch = |forced: Forced| {
        let (name, record) = (forced.name(), forced.record(first));
        let mut arguments = arguments.clone();
        arguments.extra.extend(forced.words());
        ForcedLaunch { name, arguments, record }
    };
    all(&arguments.algorithms, &arguments.protocols).into_iter().map(launch).collect()
}

/// Runs all combinations. Returns 0 if every combination that NCCL supports was measured.
pub(super) fn run(arguments: &RunArguments, out: &mut dyn Write) -> Result<i32> {
    let first = places::record_path(arguments.record.as_deref())?;
    let launches = launches(arguments, &first);
    launches.iter().try_for_each(|launch| places::refuse_existing(&launch.record))?;
    let (mut measured, mut most_severe): (Vec<Measured>, i32) = (Vec::new(), 0);
    for ForcedLaunch { name, arguments, record } in &launches {
        eprintln!("commgauge: forced to {name}");
        let exit_code = launch_one(arguments, record, out)?;
        let read = if record.exists() { Some(Record::read(record)?) } else { None };
        let refused = read.as_ref().and_then(refusal);
        match (&refused, exit_code) {
            (Some(why), _) => eprintln!("commgauge: NCCL refuses {name}, and the others go on: {why}"),
            (None, 0) => {}
            (None, code) if STOPS.contains(&code) || code >= 128 => return Ok(code),
            (None, code) => {
                eprintln!("commgauge: {name} ended with code {code}; the others go on");
                most_severe = if most_severe == 4 || code == 4 { 4 } else { most_severe.max(code) };
            }
        }
        let read = read.filter(|_| refused.is_none());
        measured.extend(read.map(|record| Measured { name: name.clone(), view: View::new(&record) }));
    }
    if measured.is_empty() {
        eprintln!("commgauge: NCCL refuses every combination; nothing was measured");
        return Ok(6);
    }
    show(arguments, &measured, out)?;
    Ok(most_severe)
}

fn show(arguments: &RunArguments, measured: &[Measured], out: &mut dyn Write) -> Result<()> {
    let combinations: Vec<Combination> =
        measured.iter().map(|Measured { name, view }| Combination { name, view }).collect();
    let text = combinations_text(&combinations, arguments.output.columns(Sink::stdout()));
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
    let mut all = Vec::new();
    for algorithm in or_none(algorithms) {
        for protocol in or_none(protocols) {
            let forced = Forced { algorithm, protocol };
            if !all.contains(&forced) {
                all.push(forced);
            }
        }
    }
    all
}

impl Forced {
    fn parts(self) -> Vec<String> {
        [self.algorithm.map(Algorithm::flag), self.protocol.map(Protocol::flag)].into_iter().flatten().collect()
    }

    /// `ring ll128`
    fn name(self) -> String {
        self.parts().join(" ")
    }

    /// `NAME-ring-ll128.jsonl`
    fn record(self, first: &Path) -> PathBuf {
        let mut name = first.file_stem().unwrap_or_default().to_os_string();
        name.push(format!("-{}", self.parts().join("-")));
        if let Some(ending) = first.extension() {
            name.push(".");
            name.push(ending);
        }
        first.with_file_name(name)
    }

    fn words(self) -> Vec<String> {
        let flag = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), value]);
        let given = [
            flag("--algorithm", self.algorithm.map(Algorithm::flag)),
            flag("--protocol", self.protocol.map(Protocol::flag)),
        ];
        given.into_iter().flatten().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run::arguments::tests::parse;

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
            let error = check(&parse(line).unwrap()).expect_err(line);
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
