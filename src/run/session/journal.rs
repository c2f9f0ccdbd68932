//! The record as a run writes it: open on process 0 only, with errors that all processes share.

use super::listener::Listener;
use crate::watchdog::Watch;
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::line::Line;
use commgauge_model::record::{Journal, Moved};

/// Writes the lines of a run. Collective, where nothing else is said.
pub(super) struct SharedJournal<'a> {
    world: &'a dyn World,
    journal: Option<Journal>,
    listener: Listener,
    watch: Watch,
    /// What became of the file, if somebody removed or renamed it.
    moved: Option<Moved>,
}

impl<'a> SharedJournal<'a> {
    /// The journal that process 0 has opened; the others have none.
    pub(super) fn new(
        world: &'a dyn World,
        journal: Option<Journal>,
        listener: &Listener,
        watch: &Watch,
    ) -> SharedJournal<'a> {
        if let Some(journal) = &journal {
            watch.record(journal);
        }
        SharedJournal { world, journal, listener: listener.clone(), watch: watch.clone(), moved: None }
    }

    /// Writes a line that process 0 makes.
    pub(super) fn write(&mut self, line: impl FnOnce() -> Line) -> Result<()> {
        let mine = self.write_locally(line);
        agree(self.world, mine)
    }

    /// Writes several lines.
    pub(super) fn write_all(&mut self, lines: impl FnOnce() -> Vec<Line>) -> Result<()> {
        let mine = match self.journal {
            Some(_) => lines().into_iter().try_for_each(|line| self.write_locally(|| line)),
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
        journal.write(&line)?;
        if let Some(moved) = journal.take_moved() {
            self.watch.record_moved(&moved);
            let from = self.moved.take().map_or(moved.from, |earlier| earlier.from);
            self.moved = Some(Moved { from, ..moved });
        }
        self.listener.notify(&line);
        Ok(())
    }

    /// Closes the record. An error if it is not where it was asked for, although nothing of it is lost.
    pub(super) fn finish(self) -> Result<()> {
        let closed = self.journal.map_or(Ok(()), Journal::finish);
        let moved = self.moved.map_or(Ok(()), |moved| Err(Error::environment(moved.sentence())));
        agree(self.world, closed.and(moved))
    }
}
