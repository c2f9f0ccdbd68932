//! What earlier launches had left of a record, and next to it, when a collector started.

use super::super::reporting_thread::LoneReports;
use std::path::Path;
use std::time::SystemTime;

/// The state before this launch.
pub(super) struct Before {
    /// Length and time of the record.
    record: Option<(u64, SystemTime)>,
    /// Reports of hosts that decided alone.
    pub(super) lone_reports: LoneReports,
}

impl Before {
    pub(super) fn of(record: &Path) -> Before {
        Before { record: stamp(record), lone_reports: LoneReports::before(record) }
    }

    /// Whether this launch wrote to its record.
    pub(super) fn was_written_since(&self, record: &Path) -> bool {
        stamp(record) != self.record
    }
}

fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.len(), file.modified().ok()?))
}
