//! Paths of the files of a run: its record, and the files that the user named.

use crate::config::{Shipped, is_embedded};
use crate::error::{Error, Result};
use crate::report::visible;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// Folder of records that were given no path, from the working directory.
const DEFAULT_FOLDER: &str = "reports/runs";

/// This program as it was typed, so that a command with it can be typed again.
pub(crate) fn program_as_typed() -> String {
    let first = std::env::args().next().unwrap_or_default();
    if first.contains('/') { crate::launch::quote(&first) } else { "commgauge".to_owned() }
}

/// A name for the record of a run that starts now, in the default folder.
pub(crate) fn default_record() -> PathBuf {
    Path::new(DEFAULT_FOLDER).join(format!("{}.jsonl", new_run_id()))
}

/// The name of the run that writes a record: the file's own where we named it, else a new one.
pub(crate) fn run_id_of(record: &Path) -> String {
    let ours = record.parent() == Some(Path::new(DEFAULT_FOLDER));
    let stem = record.file_stem().filter(|_| ours).map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(new_run_id)
}

/// Start time in UTC and a random part, such as `20261121T011530Z-9f3c`.
pub(crate) fn new_run_id() -> String {
    // The standard library seeds its hashers from the system's randomness, which is all that is needed here.
    let random = RandomState::new().build_hasher().finish() & 0xffff;
    format!("{}-{random:04x}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"))
}

/// The record's path. Only the default folder is made; a folder that was named must be there.
pub(crate) fn record_path(asked: Option<&Path>) -> Result<PathBuf> {
    let Some(path) = asked else {
        fs::create_dir_all(DEFAULT_FOLDER).map_err(|cause| Error::file("make", Path::new(DEFAULT_FOLDER), cause))?;
        return Ok(default_record());
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if path.is_dir() || path.file_name().is_none() {
        return Err(Error::usage(format!("--record {}: this is a folder; name a file in it", path.display())));
    }
    if !folder.is_dir() {
        return Err(Error::usage(format!("--record {}: there is no folder {}", path.display(), folder.display())));
    }
    Ok(path.to_owned())
}

/// Refuses a path that is taken: a record is never written over.
pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Error::usage(format!(
            "--record {}: this file exists, and a record is never written over; name another",
            path.display()
        )));
    }
    Ok(())
}

/// One path per launch: the path itself, or `NAME-1.jsonl`, `NAME-2.jsonl` ...
pub(crate) fn numbered(path: &Path, launches: u32) -> Vec<PathBuf> {
    if launches == 1 {
        return vec![path.to_owned()];
    }
    let stem = path.file_stem().unwrap_or_default().to_os_string();
    let name = |number: u32| {
        let mut name = stem.clone();
        name.push(format!("-{number}"));
        if let Some(ending) = path.extension() {
            name.push(".");
            name.push(ending);
        }
        path.with_file_name(name)
    };
    (1..=launches).map(name).collect()
}

/// Checks before a run that a file named by the user exists and is a file.
pub(crate) fn check_file(what: &str, path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(facts) if facts.is_file() => Ok(()),
        Ok(_) => Err(Error::usage(format!("{what} {}: this is not a file", path.display()))),
        Err(cause) => Err(Error::usage(format!("{what} {}: {cause}", path.display()))),
    }
}

/// Reports on stderr which file a bare name refers to. Paths are not reported, and a missing file is left to its
/// reader.
pub(crate) fn say_taken(kind: Shipped, asked: &Path) {
    if let Some(sentence) = taken(kind, asked) {
        eprintln!("{sentence}");
    }
}

fn taken(kind: Shipped, asked: &Path) -> Option<String> {
    let file = kind.find(asked).filter(|file| !file.starts_with(asked))?;
    let file = file.to_str()?;
    let place = if is_embedded(file) { "embedded" } else { file };
    Some(format!("{}: {} ({})", kind.noun(), visible(asked.to_str()?), visible(place)))
}

/// A path as an argument of a command, which the record stores as text.
pub(crate) fn text(path: &Path) -> Result<String> {
    let refuse = || Error::usage(format!("{}: this path is not UTF-8, which the record cannot hold", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_only_where_it_was_meant_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let taken = folder.path().join("taken.jsonl");
        fs::write(&taken, "x").expect("written");
        let refused = |path: &Path| {
            let error = record_path(Some(path)).and_then(|path| refuse_existing(&path)).expect_err("refused");
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(refused(&folder.path().join("missing/x.jsonl")).contains("there is no folder"));
        assert!(refused(folder.path()).contains("this is a folder"));
        assert!(refused(&taken).contains("never written over"));
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
    fn a_run_id_is_a_time_in_utc_and_a_random_part() {
        let id = new_run_id();
        let (time, random) = id.split_once('-').expect("two parts");
        assert_eq!((time.len(), random.len()), (16, 4), "{id}");
        assert!(time.ends_with('Z') && u16::from_str_radix(random, 16).is_ok(), "{id}");
    }

    #[test]
    fn a_name_says_which_file_it_means_and_a_path_says_nothing() {
        for (kind, asked, expected) in [
            (Shipped::Suite, "quick", Some("suite: quick (suites/quick.toml)")),
            (Shipped::Machine, "gb200-nvl72", Some("machine: gb200-nvl72 (suites/machines/gb200-nvl72.toml)")),
            (Shipped::Model, "gpt2", Some("model: gpt2 (suites/models/gpt2/config.json)")),
            (Shipped::Model, "suites/models/gpt2", None),
            (Shipped::Suite, "suites/quick.toml", None),
            (Shipped::Suite, "embedded:suites/quick.toml", None),
            (Shipped::Suite, "nothing", None),
        ] {
            assert_eq!(taken(kind, Path::new(asked)).as_deref(), expected, "{asked}");
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
