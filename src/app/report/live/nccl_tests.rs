//! The columns of nccl-tests.

use super::super::nccl_tests::{self, Block, Lines};
use super::super::row::Row;
use super::super::view::View;
use super::{LiveFormat, Run};
use commgauge_model::record::line::Header;

/// The blocks, each with its only table where it has one, and how far they are written.
#[derive(Default)]
pub(super) struct NcclTestsForm {
    blocks: Vec<(Block, Option<Lines>)>,
    left_out: usize,
    block: usize,
    line: usize,
}

impl LiveFormat for NcclTestsForm {
    fn begin(&mut self, _: &Header, expected: &[Row]) -> String {
        let (blocks, left_out) = nccl_tests::blocks(expected);
        let with_table = |block: Block| {
            let table = block.only_table(expected);
            (block, table)
        };
        (self.blocks, self.left_out) = (blocks.into_iter().map(with_table).collect(), left_out);
        String::new()
    }

    fn write(&mut self, run: &Run) -> String {
        let (header, rows, mut out) = (&run.header, &run.rows, String::new());
        while let Some((block, table)) = self.blocks.get_mut(self.block) {
            // Problems are listed above the lines, so that all of them must be known first.
            let has_problem =
                |row: usize| rows[row].status.reason().is_some() || (run.is_done(row) && rows[row].latency.is_none());
            if self.line == 0 && block.members().iter().any(|row| has_problem(*row)) {
                *table = None;
            }
            let Some(lines) = table else {
                if !block.members().iter().all(|row| run.is_done(*row)) {
                    break;
                }
                out += &block.begin(None, header, rows);
                self.block += 1;
                continue;
            };
            if !lines.pairs[self.line].rows().all(|row| run.is_done(row)) {
                break;
            }
            if self.line == 0 {
                out += &block.begin(Some(lines), header, rows);
            }
            out += &block.line(lines, self.line, rows);
            self.line += 1;
            if self.line == lines.pairs.len() {
                out += &block.end(rows);
                (self.block, self.line) = (self.block + 1, 0);
            }
        }
        out
    }

    fn end(&mut self, _: &View) -> String {
        nccl_tests::closing(self.left_out)
    }

    fn whole(&self, view: &View) -> String {
        nccl_tests::text(view)
    }
}
