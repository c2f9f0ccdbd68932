//! What the watchdogs of hosts have found that decided alone, because the first one was gone or out of reach: files beside the record,
//! of which whoever writes the end of the record learns why the ranks of that host were ended. Each is a text for people, and the line
//! that the record would have had.

use commgauge_base::output_file::folder_of;
use commgauge_model::record::hang_line::HangLine;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How the name of the line ends.
const DATA: &str = ".json";

/// The reports that earlier launches had left.
#[derive(Debug, Default)]
pub struct LoneReports {
    before: BTreeSet<(PathBuf, Option<SystemTime>)>,
}

impl LoneReports {
    /// Those beside a record before its launch.
    pub fn before(record: &Path) -> LoneReports {
        LoneReports { before: reports_beside(record).collect() }
    }

    /// One that came since.
    pub fn new_beside(&self, record: &Path) -> Option<HangLine> {
        let (path, _) = reports_beside(record).find(|report| !self.before.contains(report))?;
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Path of the text of a host, by its number.
pub(super) fn text_path(record: &Path, node: u32) -> PathBuf {
    record.with_extension(format!("hang.host-{node}.txt"))
}

/// Path of its line.
pub(super) fn data_path(record: &Path, node: u32) -> PathBuf {
    record.with_extension(format!("hang.host-{node}{DATA}"))
}

fn reports_beside(record: &Path) -> impl Iterator<Item = (PathBuf, Option<SystemTime>)> {
    let prefix = record.file_stem().map(|stem| format!("{}.hang.host-", stem.to_string_lossy()));
    let entries = std::fs::read_dir(folder_of(record)).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let (name, prefix) = (entry.file_name().to_string_lossy().into_owned(), prefix.as_ref()?);
        let is_report = name.starts_with(prefix) && name.ends_with(DATA);
        is_report.then(|| (entry.path(), entry.metadata().and_then(|data| data.modified()).ok()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::hang_line::HangReason;

    #[test]
    fn a_report_of_this_launch_is_found_and_one_of_an_earlier_launch_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("run.jsonl");
        let line = |reason: &str| {
            serde_json::json!({
                "reason": reason, "operation": "a barrier", "activity": {"name": "a case"}, "suspects": "3", "ranks": [],
                "only_of_host": "host2",
            })
        };
        std::fs::write(data_path(&record, 1), line("death").to_string()).unwrap();
        let reports = LoneReports::before(&record);
        assert_eq!(reports.new_beside(&record), None);
        std::fs::write(folder.path().join("other.hang.host-2.json"), line("death").to_string()).unwrap();
        std::fs::write(folder.path().join(".run.hang.host-3.json.tmp"), "half").unwrap();
        // The text of people decides nothing, whatever it begins with.
        std::fs::write(text_path(&record, 2), "no progress within 4.00 s: rank 3\n").unwrap();
        assert_eq!(reports.new_beside(&record), None);
        std::fs::write(data_path(&record, 2), line("deadline").to_string()).unwrap();
        let found = reports.new_beside(&record).expect("the line");
        assert_eq!((found.reason, found.only_of_host.as_deref()), (HangReason::Deadline, Some("host2")));
    }
}
