//! The watchdog of a host was lost while a run went on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// How such a line begins.
const BEGINNING: &[u8] = b"{\"line\":\"unwatched\"";

/// From here on nobody watches the ranks of a host: a hang is ended by the deadline of each rank, and not explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnwatchedLine {
    /// The host.
    pub host: String,
    /// A rank on it that noticed.
    pub rank: u32,
}

impl UnwatchedLine {
    /// What follows from it, in one sentence without full stop.
    pub fn sentence(&self) -> String {
        format!(
            "the watchdog of host {} was lost during the run (noticed by rank {}): from then on the run was unwatched",
            self.host, self.rank
        )
    }
}

/// Whether a record says so already; not where it cannot be read.
pub fn has_unwatched_line(record: &Path) -> bool {
    let Ok(file) = File::open(record) else { return false };
    BufReader::new(file).split(b'\n').map_while(Result::ok).any(|line| line.starts_with(BEGINNING))
}

#[cfg(test)]
mod tests {
    use super::super::Line;
    use super::*;

    #[test]
    fn a_record_is_asked_by_how_its_lines_begin() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        assert!(!has_unwatched_line(&path));
        let line = Line::Unwatched(UnwatchedLine { host: "vm".into(), rank: 3 });
        for (text, has) in [("{\"line\":\"plan\"}\n".to_owned(), false), (serde_json::to_string(&line).unwrap(), true)]
        {
            std::fs::write(&path, format!("{{}}\n{text}")).expect("written");
            assert_eq!(has_unwatched_line(&path), has, "{text}");
        }
    }
}
