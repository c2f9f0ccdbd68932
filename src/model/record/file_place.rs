//! Where an open record is by now: somebody may remove or rename the file while a run writes it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where an open file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FilePlace {
    /// Where it was opened.
    There,
    /// Under another name.
    Renamed(PathBuf),
    /// It has no name any more, and goes with the last process that has it open.
    Removed,
}

/// Finds out whether the path still names the file. Where the system does not say, it is taken to be there.
pub(super) fn place_of(file: &File, path: &Path) -> FilePlace {
    let Ok(own) = file.metadata() else { return FilePlace::There };
    let is_own = |found: &fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    if own.nlink() == 0 {
        return FilePlace::Removed;
    }
    if fs::metadata(path).is_ok_and(|found| is_own(&found)) {
        return FilePlace::There;
    }
    match fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        // The name that NFS gives to a file which was removed while it was open.
        Ok(name) if name.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".nfs")) => {
            FilePlace::Removed
        }
        Ok(name) if fs::metadata(&name).is_ok_and(|found| is_own(&found)) => FilePlace::Renamed(name),
        _ => FilePlace::There,
    }
}

/// The names under which a removed record goes on, in order: `run.kept.jsonl`, `run.kept-2.jsonl` ...
pub(super) fn kept_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let extension = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    (1..1000).map(move |number| {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        path.with_extension(format!("kept{suffix}{extension}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_renamed_or_replaced_is_told_from_one_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("run.jsonl"), folder.path().join("other.jsonl"));
        let file = File::create(&path).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::There);
        fs::rename(&path, &other).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Renamed(other.clone()));
        File::create(&path).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Renamed(other.clone()), "replaced");
        fs::remove_file(&other).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Removed);
    }

    #[test]
    fn a_kept_record_has_a_name_beside_the_one_that_was_removed() {
        for (path, expected) in
            [("a/run.jsonl", ["a/run.kept.jsonl", "a/run.kept-2.jsonl"]), ("run", ["run.kept", "run.kept-2"])]
        {
            assert!(kept_names(Path::new(path)).take(2).eq(expected.map(PathBuf::from)));
        }
    }
}
