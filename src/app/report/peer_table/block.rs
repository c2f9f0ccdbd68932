//! A table of a peer, written from top to bottom, and the division of rows into tables.

use crate::report::row::Row;
use commgauge_model::record::line::Header;

/// The rows of one table.
pub(in crate::report) trait Block: Send {
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
pub(in crate::report) struct Divided {
    /// Each with the rows of one table.
    pub blocks: Vec<Box<dyn Block>>,
    /// Rows that have no table.
    pub left_out: Vec<usize>,
}

/// Divides the rows that have a table into those of the same one; and those that have none.
pub(super) fn divided(
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
