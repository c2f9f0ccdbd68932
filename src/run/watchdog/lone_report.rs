//! Reports of hosts whose collector decided alone, because the first one was gone or out of reach: files beside the record, of which
//! whoever writes the end of the record learns why the ranks of that host were ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The reports that earlier launches had left.
#[derive(Debug, Default)]
pub struct LoneReports {
    before: BTreeSet<(PathBuf, Option<SystemTime>)>,
}

/// What such a report says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoneReport {
    /// What happened, in one sentence.
    pub sentence: String,
    /// Whether a deadline had passed; else a rank died.
    pub is_hang: bool,
}

impl LoneReports {
    /// Those beside a record before its launch.
    pub fn before(record: &Path) -> LoneReports {
        LoneReports { before: reports_beside(record).collect() }
    }

    /// One that came since.
    pub fn new_beside(&self, record: &Path) -> Option<LoneReport> {
        let (path, _) = reports_beside(record).find(|report| !self.before.contains(report))?;
        let text = std::fs::read_to_string(path).ok()?;
        let sentence = text.lines().next()?.to_owned();
        Some(LoneReport { is_hang: sentence.starts_with("no progress"), sentence })
    }
}

/// Path of the report of a host, by its number.
pub(super) fn path_of(record: &Path, node: u32) -> PathBuf {
    record.with_extension(format!("hang.host-{node}.txt"))
}

fn reports_beside(record: &Path) -> impl Iterator<Item = (PathBuf, Option<SystemTime>)> {
    let prefix = record.file_stem().map(|stem| format!("{}.hang.host-", stem.to_string_lossy()));
    let folder = record.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let (name, prefix) = (entry.file_name().to_string_lossy().into_owned(), prefix.as_ref()?);
        let is_report = name.starts_with(prefix) && name.ends_with(".txt");
        is_report.then(|| (entry.path(), entry.metadata().and_then(|data| data.modified()).ok()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_this_launch_is_found_and_one_of_an_earlier_launch_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("run.jsonl");
        std::fs::write(path_of(&record, 1), "rank 2 on host1 died\n").unwrap();
        let reports = LoneReports::before(&record);
        assert_eq!(reports.new_beside(&record), None);
        std::fs::write(folder.path().join("other.hang.host-2.txt"), "of another record\n").unwrap();
        std::fs::write(folder.path().join("run.hang.part"), "half\n").unwrap();
        assert_eq!(reports.new_beside(&record), None);
        std::fs::write(path_of(&record, 2), "no progress within 4.00 s: rank 3\n  more\n").unwrap();
        let sentence = "no progress within 4.00 s: rank 3".to_owned();
        assert_eq!(reports.new_beside(&record), Some(LoneReport { sentence, is_hang: true }));
    }
}
