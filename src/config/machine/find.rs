//! Where a machine file is that the user names: a path, or the bare name of one that is shipped.

use super::Machine;
use crate::config::model::find::names_in;
use crate::config::shipped;
use std::path::{Path, PathBuf};

impl Machine {
    /// The file that a path or a bare name such as `h200-nvswitch-ndr` means; none where there is no such file.
    pub fn find(asked: &Path) -> Option<PathBuf> {
        if asked.is_file() {
            return Some(asked.to_owned());
        }
        let name = asked.to_str().filter(|name| {
            !name.is_empty() && !name.contains('/') && !name.contains("..") && !name.ends_with(".toml")
        })?;
        let file = |folder: &PathBuf| folder.join(format!("{name}.toml"));
        shipped::folders("machines").iter().map(file).find(|path| path.is_file())
    }

    /// Names of the machine files that are shipped, in order.
    pub fn shipped() -> Vec<String> {
        let folders = shipped::folders("machines");
        folders.iter().map(|folder| names_in(folder, ".toml")).find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// That there is no such machine, and the nearest of what there is.
    pub fn unknown(asked: &Path) -> String {
        let name = asked.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let shipped = Machine::shipped();
        let likeness = |known: &String| strsim::jaro_winkler(&name, known);
        let nearest = shipped.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let meant = nearest
            .filter(|known| likeness(known) > 0.8)
            .map_or(String::new(), |known| format!("; did you mean {known}?"));
        let known = match shipped.as_slice() {
            [] => "there are no shipped ones here".to_owned(),
            names => format!("shipped: {}", names.join(", ")),
        };
        format!("the machine {} is not known: there is no such file{meant} ({known})", asked.display())
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
