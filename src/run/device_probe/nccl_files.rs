//! Candidate file names of NCCL: the system's library search path first, then the Python packages of the environment
//! that commgauge was installed into (`pip install nvidia-nccl-cu12`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// File names to try in order: only the named file if there is one, else the default candidates.
pub fn nccl_files(named: Option<&Path>) -> Vec<OsString> {
    if let Some(path) = named {
        return vec![path.as_os_str().to_owned()];
    }
    let packaged = std::env::current_exe().map(|own| in_python_packages(&own)).unwrap_or_default();
    let unnamed = ["libnccl.so.2", "libnccl.so"].map(OsString::from);
    unnamed.into_iter().chain(packaged.into_iter().map(PathBuf::into_os_string)).collect()
}

/// NCCL's files in the Python packages of a program in `PREFIX/bin` or `PREFIX/lib/commgauge/MPI`.
fn in_python_packages(own: &Path) -> Vec<PathBuf> {
    let folder = own.parent().unwrap_or(own);
    let in_bin = folder.ends_with("bin").then(|| folder.parent()).flatten();
    let in_lib = folder
        .ancestors()
        .nth(1)
        .filter(|folder| folder.ends_with("lib/commgauge"))
        .and_then(|folder| folder.ancestors().nth(2));
    let Some(prefix) = in_bin.or(in_lib) else { return Vec::new() };
    let libraries = ["lib", "lib64"].map(|name| std::fs::read_dir(prefix.join(name)).into_iter().flatten().flatten());
    let pythons = libraries.into_iter().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = pythons
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)))
        .map(|packages| packages.join("nvidia/nccl/lib/libnccl.so.2"))
        .filter(|file| file.is_file())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nccl_of_a_python_environment_is_found_by_programs_that_lie_in_it_and_by_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
        std::fs::create_dir_all(library.parent().expect("a parent")).expect("made");
        std::fs::write(&library, "").expect("written");
        for (own, finds) in [
            ("bin/commgauge", true),
            ("lib/commgauge/open-mpi/commgauge-suite", true),
            ("lib/commgauge/mpich/commgauge-suite", true),
            ("target/release/commgauge", false),
            ("lib/elsewhere/mpich/commgauge-suite", false),
            ("commgauge", false),
        ] {
            let expected: &[PathBuf] = if finds { std::slice::from_ref(&library) } else { &[] };
            assert_eq!(in_python_packages(&folder.path().join(own)), expected, "{own}");
        }
        std::fs::remove_file(&library).expect("removed");
        assert_eq!(in_python_packages(&folder.path().join("bin/commgauge")), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_named_file_is_the_only_one_and_the_system_comes_before_python() {
        assert_eq!(nccl_files(Some(Path::new("/a/b.so"))), ["/a/b.so"]);
        assert_eq!(nccl_files(None)[..2], ["libnccl.so.2", "libnccl.so"]);
    }
}
