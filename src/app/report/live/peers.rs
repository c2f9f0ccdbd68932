//! The columns of other tools.

use super::super::peer_table::{Divided, Peer};
use super::super::row::Row;
use super::super::view::View;
use super::form::{LiveFormat, Run};
use commgauge_model::record::line::Header;

/// The tables, and how far they are written.
pub(super) struct PeerForm {
    peer: Peer,
    tables: Divided,
    block: usize,
    line: usize,
}

impl PeerForm {
    pub(super) fn new(peer: Peer) -> PeerForm {
        PeerForm { peer, tables: Divided { blocks: Vec::new(), left_out: Vec::new() }, block: 0, line: 0 }
    }
}

impl LiveFormat for PeerForm {
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String {
        self.tables = self.peer.divide(expected);
        self.peer.begin(header)
    }

    fn write(&mut self, run: &Run) -> String {
        let (header, rows, mut out) = (&run.header, &run.rows, String::new());
        while let Some(block) = self.tables.blocks.get_mut(self.block) {
            if self.line == 0 {
                block.settle(rows, &|row| run.is_done(row));
            }
            if !block.rows_of_line(self.line).into_iter().all(|row| run.is_done(row)) {
                break;
            }
            if self.line == 0 {
                out += &block.begin(header, rows);
            }
            out += &block.line(self.line, header, rows);
            self.line += 1;
            if self.line == block.line_count() {
                out += &block.end(rows);
                (self.block, self.line) = (self.block + 1, 0);
            }
        }
        out
    }

    fn end(&mut self, view: &View) -> String {
        self.peer.closing(&self.tables.left_out, &view.rows)
    }

    fn whole(&self, view: &View) -> String {
        self.peer.text(view)
    }
}
