//! The columns of OSU and IMB.

use super::super::peer_table::{self, Block, Tool};
use super::super::row::Row;
use super::super::view::View;
use super::{LiveFormat, Run};
use commgauge_model::record::line::Header;
use std::collections::BTreeSet;

/// The tables, and how far they are written.
pub(super) struct PeerForm {
    tool: Tool,
    blocks: Vec<Block>,
    left_out: BTreeSet<&'static str>,
    block: usize,
    line: usize,
}

impl PeerForm {
    pub(super) fn new(tool: Tool) -> PeerForm {
        PeerForm { tool, blocks: Vec::new(), left_out: BTreeSet::new(), block: 0, line: 0 }
    }
}

impl LiveFormat for PeerForm {
    fn begin(&mut self, header: &Header, expected: &[Row]) -> String {
        (self.blocks, self.left_out) = peer_table::blocks(self.tool, expected);
        peer_table::begin(self.tool, header)
    }

    fn write(&mut self, run: &Run) -> String {
        let mut out = String::new();
        while let Some(block) = self.blocks.get(self.block) {
            let row = block.members()[self.line];
            if !run.is_done(row) {
                break;
            }
            if self.line == 0 {
                out += &block.begin(&run.header, &run.rows);
            }
            out += &block.line(&run.rows[row]);
            self.line += 1;
            if self.line == block.members().len() {
                out += "\n";
                (self.block, self.line) = (self.block + 1, 0);
            }
        }
        out
    }

    fn end(&mut self, view: &View) -> String {
        peer_table::closing(self.tool, &self.left_out, &view.rows)
    }

    fn whole(&self, view: &View) -> String {
        peer_table::text(self.tool, view)
    }
}
