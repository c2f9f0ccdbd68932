//! A suite file as work for a launch, and its plan as text.

use crate::report::visible;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder};
use commgauge_base::units::Seconds;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::{RunSettings, Shipped, Suite, is_embedded};
use commgauge_model::layout::Nodes;
use commgauge_model::record::line::{ID_DIGITS, SuiteFacts};
use commgauge_model::workload::WorkPlan;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// Work for a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteWork {
    /// What is measured.
    pub plan: WorkPlan,
    /// How it is sampled.
    pub settings: RunSettings,
    /// What was requested, as stored in the record.
    pub facts: SuiteFacts,
}

impl SuiteWork {
    /// The same calls without products and copies, repeated for a time with rolling checks.
    ///
    /// # Errors
    /// A usage error if the settings do not allow it.
    pub fn soaked(mut self, time: Seconds) -> Result<SuiteWork> {
        self.plan.products.clear();
        self.plan.copies.clear();
        Ok(SuiteWork { settings: self.settings.soaked(time)?, ..self })
    }
}

/// The work that a suite requests on these nodes, with all its cases within a time if one is given.
///
/// # Errors
/// Usage errors that name file, line and key.
pub fn suite_work(suite: &Path, within: Option<Seconds>, nodes: &Nodes) -> Result<SuiteWork> {
    let suite = Suite::load(suite)?;
    let plan = WorkPlan::from_suite_on(&suite, nodes)?;
    let facts = SuiteFacts {
        name: suite.name.clone(),
        path: Some(suite.path.display().to_string()),
        sha256: suite.sha256.clone(),
        model: plan.model.clone(),
        layout: plan.layout.clone(),
    };
    let settings = suite.settings.clone();
    let settings = within.map_or(Ok(settings.clone()), |within| settings.divided(within))?;
    Ok(SuiteWork { plan, settings, facts })
}

// Paths of the files of a run: its record, and the files that the user named.

/// Default folder of records, relative to the working directory.
const DEFAULT_FOLDER: &str = "reports/runs";

/// This program as it was typed, for commands in messages.
pub(crate) fn program_as_typed() -> String {
    let first = std::env::args().next().unwrap_or_default();
    if first.contains('/') { crate::launch::quote(&first) } else { "commgauge".to_owned() }
}

/// A name for the record of a run that starts now, in the default folder; the run's id is another, and longer.
pub(crate) fn default_record() -> PathBuf {
    let id = new_run_id();
    Path::new(DEFAULT_FOLDER).join(format!("{}.jsonl", &id[..id.len() - ID_DIGITS + 4]))
}

/// Start time in UTC and 128 random bits, such as `20261121T011530Z-9f3c41d2...`.
pub(crate) fn new_run_id() -> String {
    // The standard library seeds its hashers from the system's randomness, which suffices here.
    let random = || RandomState::new().build_hasher().finish();
    format!("{}-{:016x}{:016x}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"), random(), random())
}

/// The record's path. Only the default folder is created; another one must exist.
pub(crate) fn record_path(requested: Option<&Path>) -> Result<PathBuf> {
    let Some(path) = requested else {
        make_default_folder(Path::new(DEFAULT_FOLDER))?;
        return Ok(default_record());
    };
    let folder = folder_of(path);
    if path.is_dir() || path.file_name().is_none() {
        return Err(Error::usage(format!("--record {}: this is a folder; name a file in it", path.shown())));
    }
    if !folder.is_dir() {
        return Err(Error::usage(format!("--record {}: there is no folder {}", path.shown(), folder.shown())));
    }
    Ok(path.to_owned())
}

fn make_default_folder(folder: &Path) -> Result<()> {
    make_folder(folder).map_err(|cause| {
        Error::usage(format!(
            "the folder {} for records cannot be made here ({cause}); work in a folder that can be written to, or name the record: \
             --record FILE",
            folder.shown()
        ))
    })
}

/// Rejects an existing path: a record is never overwritten.
pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Error::usage(format!(
            "--record {}: this file exists, and a record is never written over; name another",
            path.shown()
        )));
    }
    Ok(())
}

/// One path per launch: the path itself, or `NAME-1.jsonl`, `NAME-2.jsonl` ...
pub(crate) fn numbered(path: &Path, launches: u32) -> Vec<PathBuf> {
    if launches == 1 {
        return vec![path.to_owned()];
    }
    (1..=launches).map(|number| suffixed(path, &number.to_string())).collect()
}

/// `NAME-SUFFIX.jsonl`
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{suffix}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// Checks before a run that a file named by the user exists and is a file.
pub(crate) fn check_file(what: &str, path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(facts) if facts.is_file() => Ok(()),
        Ok(_) => Err(Error::usage(format!("{what} {}: this is not a file", path.shown()))),
        Err(cause) => Err(Error::usage(format!("{what} {}: {cause}", path.shown()))),
    }
}

/// Reports on stderr which file a bare name refers to. Paths are not reported, and a missing file is left to its
/// reader.
pub(crate) fn report_resolved_file(kind: Shipped, requested: &Path) {
    if let Some(sentence) = resolved_file(kind, requested) {
        eprintln!("{sentence}");
    }
}

fn resolved_file(kind: Shipped, requested: &Path) -> Option<String> {
    let file = kind.find(requested).filter(|file| !file.starts_with(requested))?;
    let file = file.to_str()?;
    let place = if is_embedded(file) { "embedded" } else { file };
    Some(format!("{}: {} ({})", kind.noun(), visible(requested.to_str()?), visible(place)))
}

/// A path as an argument of a command, which the record stores as text.
pub(crate) fn text(path: &Path) -> Result<String> {
    let refuse = || Error::usage(format!("{}: this path is not UTF-8, which the record cannot hold", path.shown()));
    path.to_str().map(str::to_owned).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_record_is_written_only_to_the_requested_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let resolved_file = folder.path().join("taken.jsonl");
        fs::write(&resolved_file, "x").expect("written");
        let refused = |path: &Path| {
            let error = record_path(Some(path)).and_then(|path| refuse_existing(&path)).expect_err("refused");
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        let error = make_default_folder(&resolved_file.join("runs")).expect_err("a file is in the way");
        assert!(error.exit_code() == 2 && error.to_string().contains("--record FILE"), "{error}");
        assert!(refused(&folder.path().join("missing/x.jsonl")).contains("there is no folder"));
        assert!(refused(folder.path()).contains("this is a folder"));
        assert!(refused(&resolved_file).contains("never written over"));
        assert_eq!(record_path(Some(Path::new("new.jsonl"))).expect("fine"), Path::new("new.jsonl"));
    }

    #[test]
    fn every_launch_has_a_record_of_its_own() {
        let names = |path: &str, launches| -> Vec<String> {
            numbered(Path::new(path), launches).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("a/b.jsonl", 1), ["a/b.jsonl"]);
        assert_eq!(names("a/b.jsonl", 2), ["a/b-1.jsonl", "a/b-2.jsonl"]);
        assert_eq!(names("b", 2), ["b-1", "b-2"]);
    }

    #[test]
    fn a_run_id_is_a_time_in_utc_and_128_random_bits() {
        let ids = std::iter::repeat_with(new_run_id).take(1000).collect::<BTreeSet<_>>();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let (time, random) = id.split_once('-').expect("two parts");
            assert_eq!((time.len(), random.len()), (16, ID_DIGITS), "{id}");
            assert!(time.ends_with('Z') && u128::from_str_radix(random, 16).is_ok(), "{id}");
        }
    }

    #[test]
    fn a_name_reports_its_file_and_a_path_does_not() {
        commgauge_base::testing::enter_checkout();
        for (kind, requested, expected) in [
            (Shipped::Suite, "quick", Some("suite: quick (suites/quick.toml)")),
            (Shipped::Machine, "gb200-nvl72", Some("machine: gb200-nvl72 (suites/machines/gb200-nvl72.toml)")),
            (Shipped::Model, "gpt2", Some("model: gpt2 (suites/models/gpt2/config.json)")),
            (Shipped::Model, "suites/models/gpt2", None),
            (Shipped::Suite, "suites/quick.toml", None),
            (Shipped::Suite, "embedded:suites/quick.toml", None),
            (Shipped::Suite, "nothing", None),
        ] {
            assert_eq!(resolved_file(kind, Path::new(requested)).as_deref(), expected, "{requested}");
        }
    }

    #[test]
    fn a_file_that_is_missing_or_a_folder_is_a_usage_error() {
        for path in ["/nowhere/suite.toml", "/"] {
            let error = check_file("the suite", Path::new(path)).expect_err(path);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(path));
        }
    }
}
