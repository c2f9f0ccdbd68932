//! What logs of OSU and of IMB have in common: tests with a title and a table, and names of MPI.
//!
//! A collective without a line in their lists has no test there.

use super::imported::{BadLine, Imported, Row};
use super::log_text::{self, LogLine, Unread};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::units::{Bytes, counted};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The part of a log that belongs to one test.
pub(super) struct Block<'a, Facts> {
    pub title: LogLine<'a>,
    /// Its name in the title.
    pub name: String,
    pub test: Option<PeerProgram>,
    /// Ranks of a group, if known.
    pub ranks: Option<u32>,
    /// The heading of its table, as soon as that is read.
    pub columns: Vec<String>,
    pub rows_left_out: usize,
    /// What only this tool says.
    pub facts: Facts,
}

impl<'a, Facts> Block<'a, Facts> {
    pub(super) fn new(title: LogLine<'a>, name: String, test: Option<PeerProgram>, facts: Facts) -> Self {
        Block { title, name, test, ranks: None, columns: Vec::new(), rows_left_out: 0, facts }
    }

    /// The cells of a row.
    pub(super) fn cells<'r>(&'r self, text: &'r str) -> Result<Cells<'r>, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        match fields.len() == self.columns.len() {
            true => Ok(Cells { columns: &self.columns, fields }),
            false => Err(format!("has {} fields, the heading {}", fields.len(), self.columns.len())),
        }
    }

    fn left_out(&self) -> Option<BadLine> {
        (self.test.is_none() && self.rows_left_out > 0).then(|| {
            let rows = counted(self.rows_left_out, "row");
            self.title.bad(format!("commgauge has no call for the test `{}`; skipped: {rows}", self.name))
        })
    }
}

/// The cells of a row by the names of their columns.
pub(super) struct Cells<'a> {
    columns: &'a [String],
    fields: Vec<&'a str>,
}

impl<'a> Cells<'a> {
    /// The cell under one of these names.
    pub(super) fn of(&self, names: &[&str]) -> Option<&'a str> {
        let index = self.columns.iter().position(|column| names.contains(&column.as_str()))?;
        self.fields.get(index).copied()
    }

    /// All names, for messages.
    pub(super) fn heading(&self) -> String {
        self.columns.join(", ")
    }
}

/// What was read of a log so far.
pub(super) struct Reading<'a, Facts> {
    pub imported: Imported,
    pub unread: Unread,
    pub block: Option<Block<'a, Facts>>,
    /// What the sizes of a test mean.
    meaning: fn(PeerProgram) -> Option<&'static str>,
    notes: BTreeSet<String>,
}

impl<'a, Facts> Reading<'a, Facts> {
    pub(super) fn new(meaning: fn(PeerProgram) -> Option<&'static str>) -> Self {
        let (imported, unread, notes) = (Imported::default(), Unread::default(), BTreeSet::new());
        Reading { imported, unread, block: None, meaning, notes }
    }

    /// Ends a block, and begins the next one.
    pub(super) fn begin(&mut self, next: Option<Block<'a, Facts>>) {
        let Some(ended) = std::mem::replace(&mut self.block, next) else { return };
        self.imported.bad_lines.extend(ended.left_out());
        let test = ended.test.filter(|_| !ended.columns.is_empty());
        let meaning = test.and_then(self.meaning);
        self.notes.extend(meaning.map(|meaning| format!("{}: {meaning}", ended.name)));
    }

    /// Takes a row of a table, or why it cannot be read; none of a test without a call.
    pub(super) fn take(&mut self, line: LogLine, row: Option<Result<Row, String>>) {
        match (row, &mut self.block) {
            (Some(Ok(row)), _) => self.imported.rows.push(row),
            (Some(Err(problem)), _) => self.imported.bad_lines.push(line.bad(problem)),
            (None, Some(block)) => block.rows_left_out += 1,
            (None, None) => {}
        }
    }

    /// Takes a line that is in no table; whether it looks like a row of one.
    pub(super) fn is_lost_row(&mut self, line: LogLine) -> bool {
        let is_lost = log_text::looks_like_a_row(line.text);
        if is_lost {
            self.imported.bad_lines.push(line.bad("a row outside a table: no heading above it"));
        } else if !line.text.is_empty() {
            self.unread.add(line);
        }
        is_lost
    }

    pub(super) fn finish(mut self, assumed: Option<String>) -> Imported {
        self.begin(None);
        self.imported.bad_lines.sort_by_key(|line| line.number);
        self.imported.facts.notes = self.notes.into_iter().chain(assumed).chain(self.unread.note()).collect();
        self.imported
    }
}

/// The element type of a name of MPI.
pub(super) fn mpi_type(name: &str) -> Result<ElementType, String> {
    let name = name.trim_end_matches(['.', ',']);
    let found = pairs(include_str!("mpi_types.txt")).find(|(known, _)| *known == name);
    found.and_then(|(_, element)| element.parse().ok()).ok_or_else(|| {
        format!("found data type `{name}`; known: MPI_CHAR, MPI_BYTE, MPI_INT, MPI_LONG, MPI_FLOAT, MPI_DOUBLE")
    })
}

/// Meaning of the size that a tool prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PrintedSize {
    /// `bytes_total`.
    Total,
    /// One rank's block.
    Block,
    /// No size, as nothing is moved.
    Absent,
}

/// A test of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgram {
    pub collective: Collective,
    /// Its name in the title.
    pub name: &'static str,
    /// Meaning of the printed size.
    pub size: PrintedSize,
}

fn tests_of(table: &'static str) -> Vec<PeerProgram> {
    let test = |(name, meaning): (&'static str, &str)| {
        let (collective, size) = meaning.split_once(' ')?;
        Some(PeerProgram { collective: collective.parse().ok()?, name, size: size.parse().ok()? })
    };
    pairs(table).filter_map(test).collect()
}

/// The tests of the OSU micro-benchmarks (`c/mpi`), by their titles without the last word.
pub static OSU: LazyLock<Vec<PeerProgram>> = LazyLock::new(|| tests_of(include_str!("osu_tests.txt")));

/// The benchmarks of IMB-MPI1.
pub static IMB: LazyLock<Vec<PeerProgram>> = LazyLock::new(|| tests_of(include_str!("imb_tests.txt")));

impl PeerProgram {
    /// The size of a call in which a tool prints this size.
    pub(super) fn bytes_total(self, printed: u64, ranks: u32) -> Result<Bytes, String> {
        Ok(Bytes(if self.size == PrintedSize::Block { log_text::for_each_rank(printed, ranks)? } else { printed }))
    }

    /// The first of `tests` that measures the collective.
    pub fn of(tests: &'static [PeerProgram], collective: Collective) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.collective == collective)
    }

    /// The test in `tests` with this name, ignoring case: versions differ.
    pub(super) fn named(tests: &'static [PeerProgram], name: &str) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.name.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tables_of_tests_and_types_is_read() {
        let rows = [include_str!("osu_tests.txt"), include_str!("imb_tests.txt")].map(|table| pairs(table).count());
        assert_eq!(rows, [OSU.len(), IMB.len()]);
        assert!(pairs(include_str!("mpi_types.txt")).all(|(name, element)| mpi_type(name) == element.parse()));
    }
}
