//! What of the files of a job was skipped, each reason once.

use std::collections::BTreeMap;
use std::path::Path;

/// Names of unknown calls that a note lists.
const NAMED_UNKNOWN: usize = 4;

/// Reasons with the files that have them, and calls that are not known.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    files_of_note: BTreeMap<String, Vec<String>>,
    unknown: BTreeMap<String, u64>,
}

impl Skipped {
    /// What a file says of itself, and its calls of unknown kinds.
    pub(super) fn add(&mut self, path: &Path, notes: &[String], unknown: &BTreeMap<String, u64>) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for note in notes {
            self.files_of_note.entry(note.clone()).or_default().push(name.clone());
        }
        for (call, count) in unknown {
            *self.unknown.entry(call.clone()).or_default() += count;
        }
    }

    /// Calls of kinds that are not known.
    pub(super) fn unknown(&self) -> &BTreeMap<String, u64> {
        &self.unknown
    }

    /// As sentences.
    pub(super) fn notes(self) -> Vec<String> {
        let of_files = |(note, files): (String, Vec<String>)| match &files[..] {
            [file] => format!("{file}: {note}"),
            _ => format!("{} and {} more: {note}", files[0], files.len() - 1),
        };
        let mut notes: Vec<String> = self.files_of_note.into_iter().map(of_files).collect();
        if !self.unknown.is_empty() {
            let count: u64 = self.unknown.values().sum();
            let mut names: Vec<&str> = self.unknown.keys().map(String::as_str).collect();
            let more = if names.len() > NAMED_UNKNOWN { ", ..." } else { "" };
            names.truncate(NAMED_UNKNOWN);
            notes.push(format!("{count} calls of a kind that is not known were skipped: {}{more}", names.join(", ")));
        }
        notes
    }
}
