//! Where a machine file is that the user names: a path, or the bare name of one that is shipped.

use super::Machine;
use std::path::{Path, PathBuf};

/// Folder of shipped machine files, from the working directory.
const SHIPPED: &str = "suites/machines";

impl Machine {
    /// The file that a path or a bare name such as `h200-nvswitch-ndr` means; none where there is no such file.
    pub fn find(asked: &Path) -> Option<PathBuf> {
        if asked.is_file() {
            return Some(asked.to_owned());
        }
        let name = asked.to_str().filter(|name| {
            !name.is_empty() && !name.contains('/') && !name.contains("..") && !name.ends_with(".toml")
        })?;
        Some(Path::new(SHIPPED).join(format!("{name}.toml"))).filter(|path| path.is_file())
    }

    /// Names of the machine files that are shipped, in order.
    pub fn shipped() -> Vec<String> {
        let files = std::fs::read_dir(SHIPPED).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut names: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .filter_map(|path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned))
            .collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_means_a_shipped_file_and_nothing_leaves_that_folder() {
        let shipped = Path::new("suites/machines/gb200-nvl72.toml");
        assert_eq!(Machine::find(Path::new("gb200-nvl72")).as_deref(), Some(shipped));
        assert_eq!(Machine::find(shipped).as_deref(), Some(shipped));
        for nothing in ["", "gb200", "../machines/gb200-nvl72", "..", "suites", "gb200-nvl72.toml"] {
            assert_eq!(Machine::find(Path::new(nothing)), None, "{nothing}");
        }
        assert!(Machine::shipped().contains(&"gb200-nvl72".to_owned()));
    }
}
