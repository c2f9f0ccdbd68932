//! Counts of the outcomes of a run, and why it stopped early.

use commgauge_model::record::line::Outcome;
use serde::{Deserialize, Serialize};

/// Counts of the outcomes of all work, and whether the run is to stop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Lines with wrong data.
    pub corrupt: u64,
    /// Lines of work that could not be run to its end.
    pub failed: u64,
    /// The signal that ended the run early, or 0.
    pub signal: i32,
    /// Whether the time limit ended it early.
    pub out_of_time: bool,
}

impl Tally {
    /// Counts an outcome.
    pub(super) fn count(&mut self, outcome: &Outcome) {
        self.corrupt += u64::from(outcome.is_wrong());
        self.failed += u64::from(matches!(outcome, Outcome::Failed { .. }));
    }

    /// Whether no further work may begin.
    pub(super) fn is_stopped(&self) -> bool {
        self.signal != 0 || self.out_of_time
    }
}
