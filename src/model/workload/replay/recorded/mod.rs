//! A plan of calls that a trace recorded: each rank has a program of its own, with its own order of calls and gaps of computing.
//!
//! `matching` carries the records out on paper: it finds which calls of the ranks are one, refuses what does not fit together, and
//! lets no rank wait for what others start after it. `programs` makes the programs of that.

mod calls;
mod matching;
mod programs;
#[cfg(test)]
mod tests;

pub use calls::{RecordedAction, RecordedCall, RecordedKind, RecordedRank};
pub use programs::RECORDED_SCHEDULE;

use super::ReplayPlan;
use crate::layout::Groups;
use commgauge_base::error::Result;

impl ReplayPlan {
    /// The plan of what ranks did, one after another from rank 0 on, with the programs of the ranks of this process, selected by `plays`.
    ///
    /// # Errors
    /// Calls that do not fit together, and those that cannot be carried out.
    pub fn of_recorded(groups: Vec<Groups>, ranks: &[RecordedRank], plays: impl Fn(u32) -> bool) -> Result<ReplayPlan> {
        let matched = matching::matched(&groups, ranks)?;
        programs::plan(groups, ranks, &matched, plays)
    }
}
