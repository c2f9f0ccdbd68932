//! Rows as comma-separated values in memory. What is in the cells, and what makes them harmless, is for the caller.

use crate::error::{Error, Result};

/// A text of comma-separated values in the making.
pub struct CommaSeparated {
    what: &'static str,
    writer: csv::Writer<Vec<u8>>,
}

impl CommaSeparated {
    /// Begins with the row of names; `what` is for messages, such as `the pairs as CSV`.
    ///
    /// # Errors
    /// An environment error where memory cannot take it.
    pub fn new(what: &'static str, heading: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<CommaSeparated> {
        let mut text = CommaSeparated { what, writer: csv::Writer::from_writer(Vec::new()) };
        text.row(heading)?;
        Ok(text)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// As [`CommaSeparated::new`]; and if the number of cells differs from the row of names.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<()> {
        self.writer.write_record(cells).map_err(|cause| failed(self.what, &cause.to_string()))
    }

    /// The text.
    ///
    /// # Errors
    /// As [`CommaSeparated::new`].
    pub fn finish(self) -> Result<String> {
        let bytes = self.writer.into_inner().map_err(|cause| failed(self.what, &cause.to_string()))?;
        String::from_utf8(bytes).map_err(|cause| failed(self.what, &cause.to_string()))
    }
}

/// A column: its name, and its cell in a row.
pub struct Column<T> {
    /// The name, with its unit.
    pub name: &'static str,
    /// The cell.
    pub cell: fn(&T) -> String,
}

impl<T> Column<T> {
    /// A column.
    pub fn new(name: &'static str, cell: fn(&T) -> String) -> Column<T> {
        Column { name, cell }
    }
}

/// The names of columns.
pub fn names<T>(columns: &[Column<T>]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|column| column.name)
}

/// The cells of a row.
pub fn cells<T>(columns: &[Column<T>], row: &T) -> impl Iterator<Item = String> {
    columns.iter().map(move |column| (column.cell)(row))
}

/// A whole text of comma-separated values; `what` as for [`CommaSeparated::new`].
///
/// # Errors
/// As [`CommaSeparated::new`].
pub fn comma_separated<T>(
    what: &'static str,
    columns: &[Column<T>],
    rows: impl IntoIterator<Item = T>,
) -> Result<String> {
    let mut text = CommaSeparated::new(what, names(columns))?;
    for row in rows {
        text.row(cells(columns, &row))?;
    }
    text.finish()
}

fn failed(what: &str, cause: &str) -> Error {
    Error::environment(format!("cannot write {what}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_another_length_is_refused_with_what_was_being_written() {
        let mut text = CommaSeparated::new("the pairs as CSV", ["a", "b"]).unwrap();
        let error = text.row(["1"]).unwrap_err();
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().starts_with("cannot write the pairs as CSV: "), "{error}");
    }

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let mut text = CommaSeparated::new("CSV", ["a", "b"]).unwrap();
        text.row(["1,5", "say \"x\""]).unwrap();
        assert_eq!(text.finish().unwrap(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }
}
