//! Which rows of a history are shown.

use commgauge_analysis::verdict::history::Series;

/// The rows of a history that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownRows {
    /// Those that changed.
    Changed,
    /// All.
    All,
}

impl ShownRows {
    pub(super) fn has(self, row: &Series) -> bool {
        self == ShownRows::All || !row.changes.is_empty()
    }
}
