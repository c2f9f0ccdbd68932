//! Where the files that ship with commgauge are: below the working directory, then in the source tree in which the program was
//! built, wherever that is now. What is in the files is for others to read.

use std::env;
use std::path::{Path, PathBuf};

/// The folder of shipped suites, with one for models and one for machines inside.
const SUITES: &str = "suites";
/// Folders above the program in which `suites` is looked for: `target/x86_64-unknown-linux-gnu/debug/deps`.
const FOLDERS_ABOVE_PROGRAM: usize = 5;

/// The shipped folders of a kind (`models`, `machines`, or nothing for the suites themselves), the nearest first.
pub(super) fn folders(kind: &str) -> Vec<PathBuf> {
    let here = below(Path::new(SUITES), kind);
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    let there = of_source_tree().map(|suites| below(&suites, kind)).filter(|there| !same(&here, there));
    std::iter::once(here).chain(there).collect()
}

fn below(suites: &Path, kind: &str) -> PathBuf {
    if kind.is_empty() { suites.to_owned() } else { suites.join(kind) }
}

/// `suites` of the source tree in which the program was built. Models tell it from another folder of that name.
fn of_source_tree() -> Option<PathBuf> {
    let program = env::current_exe().ok()?.canonicalize().ok()?;
    let above = program.ancestors().skip(1).take(FOLDERS_ABOVE_PROGRAM);
    above.map(|folder| folder.join(SUITES)).find(|suites| suites.join("models").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_tree_is_found_by_way_of_the_program() {
        let suites = of_source_tree().expect("this test lies in a source tree");
        assert!(suites.join("quick.toml").is_file() && suites.join("machines").is_dir(), "{}", suites.display());
        assert_eq!(folders("machines"), [Path::new("suites/machines")], "tests run in the source tree itself");
    }
}
