//! The record of a run on the rank that writes it, as the watchdog needs it: to release it, or to end it.

use commgauge_base::error::Result;
use commgauge_model::record::launch_lines::{UnwatchedLine, has_unwatched_line};
use commgauge_model::record::line::{End, EndStatus};
use commgauge_model::record::{Line, WriteAccess, Writer, append_missing_end};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for a write in progress before the record is not released.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct OwnRecord {
    access: WriteAccess,
    path: PathBuf,
}

impl OwnRecord {
    pub(super) fn new(access: WriteAccess, path: &Path) -> OwnRecord {
        OwnRecord { access, path: path.to_owned() }
    }

    pub(super) fn move_to(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Stops this process from writing; false if a write takes too long.
    pub(super) fn give_up(&self) -> bool {
        self.access.give_up(PATIENCE)
    }

    /// Ends the record of a run whose watchdog was lost, and stops this process from writing. Records the loss too, unless the run already
    /// had.
    pub(super) fn end(&self, exit_code: i32, why: String, lost: UnwatchedLine, elapsed: Duration) -> Result<bool> {
        if !self.give_up() {
            return Ok(false);
        }
        let lines = if has_unwatched_line(&self.path) { Vec::new() } else { vec![Line::Unwatched(lost)] };
        let end = End::new(EndStatus::Failed, exit_code, Some(why), elapsed);
        append_missing_end(&self.path, &lines, &end, Writer::Ending(PATIENCE))
    }
}
