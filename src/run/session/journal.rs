//! The record as a run writes it: open on process 0 only, with errors that all processes share.

use super::listener::Listener;
use crate::world::{World, agree};
use commgauge_base::error::Result;
use commgauge_model::record::Journal;
use commgauge_model::record::line::Line;

/// Writes the lines of a run. Collective, where nothing else is said.
pub(super) struct SharedJournal<'a> {
    world: &'a dyn World,
    journal: Option<Journal>,
    listener: Listener,
}

impl<'a> SharedJournal<'a> {
    /// The journal that process 0 has opened; the others have none.
    pub(super) fn new(world: &'a dyn World, journal: Option<Journal>, listener: &Listener) -> SharedJournal<'a> {
        SharedJournal { world, journal, listener: listener.clone() }
    }

    /// Writes a line that process 0 makes.
    pub(super) fn write(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.write_locally(line);
        agree(self.world, mine)
    }

    /// Writes several lines.
    pub(super) fn write_all(&mut self, lines: impl FnOnce() -> Vec<Line>) -> Result<()> {
        let mine = match self.journal.as_mut() {
            Some(journal) => {
                lines().iter().try_for_each(|line| journal.write(line).map(|()| self.listener.notify(line)))
            }
            None => Ok(()),
        };
        agree(self.world, mine)
    }

    /// Writes a line without waiting for the other processes.
    pub(super) fn write_locally(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let mut line = line();
        if let Line::End(end) = &mut line {
            end.lines_before = Some(journal.lines());
        }
        journal.write(&line).map(|()| self.listener.notify(&line))
    }

    /// Closes the record. Not collective.
    pub(super) fn finish(self) -> Result<()> {
        self.journal.map_or(Ok(()), Journal::finish)
    }
}
