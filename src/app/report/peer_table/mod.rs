//! The report in the columns of other tools, so that programs which parse those keep working: of nccl-tests, of the OSU
//! micro-benchmarks and of the Intel MPI benchmarks.
//!
//! All have one table for each test. So rows are divided into blocks, each with a table that is written from top to bottom,
//! at once or while a run goes on. Comments begin with `#` as those tools' own do.

mod imb;
mod mean_times;
mod nccl_tests;
mod osu;

use super::row::Row;
use super::view::View;
use commgauge_model::record::line::Header;
use mean_times::Tool;

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    NcclTests,
    Osu,
    Imb,
}

/// The rows of one table.
pub(super) trait Block: Send {
    /// How many lines it has.
    fn line_count(&self) -> usize;
    /// The rows that must be complete before a line is written.
    fn rows_of_line(&self, line: usize) -> Vec<usize>;
    /// Makes the whole block one line where rows have something that belongs above the others.
    fn settle(&mut self, _rows: &[Row], _is_done: &dyn Fn(usize) -> bool) {}
    /// The text above the first line.
    fn begin(&self, header: &Header, rows: &[Row]) -> String;
    /// A line.
    fn line(&self, line: usize, header: &Header, rows: &[Row]) -> String;
    /// The text below the last line.
    fn end(&self, rows: &[Row]) -> String;
}

/// Rows by table, in the order of first appearance.
pub(super) struct Divided {
    /// Each with the rows of one table.
    pub blocks: Vec<Box<dyn Block>>,
    /// Rows that have no table.
    pub left_out: Vec<usize>,
}

impl Peer {
    /// The text before the first table.
    pub(super) fn begin(self, header: &Header) -> String {
        match self {
            Peer::NcclTests => String::new(),
            Peer::Osu => mean_times::begin(Tool::Osu, header),
            Peer::Imb => mean_times::begin(Tool::Imb, header),
        }
    }

    /// The tables of the rows.
    pub(super) fn divide(self, rows: &[Row]) -> Divided {
        match self {
            Peer::NcclTests => nccl_tests::divide(rows),
            Peer::Osu => mean_times::divide(Tool::Osu, rows),
            Peer::Imb => mean_times::divide(Tool::Imb, rows),
        }
    }

    /// The text after the last table, which says what has none.
    pub(super) fn closing(self, left_out: &[usize], rows: &[Row]) -> String {
        match self {
            Peer::NcclTests => nccl_tests::closing(left_out),
            Peer::Osu => mean_times::closing(Tool::Osu, left_out, rows),
            Peer::Imb => mean_times::closing(Tool::Imb, left_out, rows),
        }
    }

    /// The whole report.
    pub(super) fn text(self, view: &View) -> String {
        let Divided { mut blocks, left_out } = self.divide(&view.rows);
        let mut out = self.begin(&view.header);
        for block in &mut blocks {
            block.settle(&view.rows, &|_| true);
            out += &block.begin(&view.header, &view.rows);
            out.extend((0..block.line_count()).map(|line| block.line(line, &view.header, &view.rows)));
            out += &block.end(&view.rows);
        }
        out + &self.closing(&left_out, &view.rows)
    }
}

/// Divides the rows that have a table into those of the same one; and those that have none.
fn divided(
    rows: &[Row],
    has_table: impl Fn(&Row) -> bool,
    same_table: impl Fn(&Row, &Row) -> bool,
) -> (Vec<Vec<usize>>, Vec<usize>) {
    let (mut blocks, mut left_out): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        match blocks.iter_mut().find(|members| same_table(&rows[members[0]], row)) {
            _ if !has_table(row) => left_out.push(index),
            Some(members) => members.push(index),
            None => blocks.push(vec![index]),
        }
    }
    (blocks, left_out)
}
