//! What earlier launches had left of a record, and beside it, when a collector was started.

use super::super::lone_report::LoneReports;
use super::serve::Serving;
use std::path::Path;
use std::time::SystemTime;

/// The state before this launch.
pub(super) struct Before {
    /// Length and time of the record.
    record: Option<(u64, SystemTime)>,
    /// Reports of hosts that had decided alone.
    pub(super) lone_reports: LoneReports,
}

impl Before {
    pub(super) fn of(record: &Path) -> Before {
        Before { record: stamp(record), lone_reports: LoneReports::before(record) }
    }
}

impl Serving {
    /// Whether this launch wrote to its record: the end line is not ours to write if the launch only read the record and refused to
    /// resume it.
    pub(super) fn has_begun_its_record(&self) -> bool {
        stamp(&self.config.record) != self.before.record
    }
}

fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.len(), file.modified().ok()?))
}
