//! Plain tables for terminals: a rule under the headings and nothing else. Columns that do not fit are left out, the most
//! expendable first.

use comfy_table::{LineStyle, TableStyle};
use std::fmt::Write;

/// Spaces between columns.
const GAP: u16 = 2;
/// A rule under the headings and nothing else, so that the table can be copied anywhere.
pub(crate) const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-'));

/// Writes a table for a format: the columns and the rows.
pub(crate) type TableWriter<'a> = &'a dyn Fn(&[Column], &[Vec<String>]) -> String;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    right: bool,
    /// Priority of being left out, the highest first; 0 is never left out.
    expendable: u8,
}

impl Column {
    /// A column of words.
    pub const fn left(heading: &'static str, expendable: u8) -> Column {
        Column { heading, right: false, expendable }
    }

    /// A column of numbers.
    pub const fn right(heading: &'static str, expendable: u8) -> Column {
        Column { heading, right: true, expendable }
    }

    /// The heading of the column.
    pub fn heading(&self) -> &'static str {
        self.heading
    }

    /// Whether the column is aligned to the right.
    pub fn is_number(&self) -> bool {
        self.right
    }

    /// Priority of being left out, the highest first; 0 is never left out.
    pub fn expendable(&self) -> u8 {
        self.expendable
    }
}

/// The table in at most `width` columns of text, if the columns that are never left out allow it. A line below names the
/// columns that were left out.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>], width: u16) -> String {
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
            cells.chain([column.heading.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| {
        shown.iter().map(|index| widths[*index] + usize::from(GAP)).sum::<usize>().saturating_sub(usize::from(GAP))
    };
    let mut left_out = Vec::new();
    while needed(&shown) > usize::from(width) {
        let most = shown.iter().copied().filter(|index| columns[*index].expendable > 0);
        let Some(index) = most.max_by_key(|index| columns[*index].expendable) else { break };
        shown.retain(|other| *other != index);
        left_out.push(columns[index].heading);
    }
    let mut text = lines(columns, rows, &widths, &shown);
    if !left_out.is_empty() {
        let sentence = format!("(columns left out for want of width: {})", left_out.join(", "));
        // A sentence needs some width even below a narrow table.
        text += &(super::wrap(&sentence, usize::from(width).max(60), 2) + "\n");
    }
    text
}

/// The same as a table of Markdown, with all columns.
pub(crate) fn markdown_table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let headings: Vec<&str> = columns.iter().map(|column| column.heading).collect();
    let rules: Vec<&str> = columns.iter().map(|column| if column.right { "---:" } else { "---" }).collect();
    let mut text = format!("| {} |\n| {} |\n", headings.join(" | "), rules.join(" | "));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| super::markdown::escaped(cell)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Written line by line, since the table library would need a third of a GiB for 100,000 rows.
fn lines(columns: &[Column], rows: &[Vec<String>], widths: &[usize], shown: &[usize]) -> String {
    let mut out = String::new();
    let line = |out: &mut String, cell: &dyn Fn(usize) -> String| {
        let from = out.len();
        for (position, index) in shown.iter().enumerate() {
            let (text, width) = (cell(*index), widths[*index]);
            let gap = if position + 1 == shown.len() { 0 } else { usize::from(GAP) };
            // Writing to a string cannot fail.
            let _ = match columns[*index].right {
                true => write!(out, "{text:>width$}{:gap$}", ""),
                false => write!(out, "{text:<width$}{:gap$}", ""),
            };
        }
        let trimmed = out[from..].trim_end().len();
        out.truncate(from + trimmed);
        out.push('\n');
    };
    line(&mut out, &|index| columns[index].heading.to_owned());
    let whole: usize = shown.iter().map(|index| widths[*index] + usize::from(GAP)).sum();
    let _ = writeln!(out, "{}", "-".repeat(whole.saturating_sub(usize::from(GAP))));
    for row in rows {
        line(&mut out, &|index| row.get(index).cloned().unwrap_or_default());
    }
    out
}

/// A paragraph broken between words, further lines indented, with a line feed at the end.
pub(crate) fn wrapped(text: &str, width: u16) -> String {
    super::wrap(text, usize::from(width), 4) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_left_out_by_priority_and_listed() {
        let columns = [Column::left("name", 0), Column::right("count", 2), Column::left("remark", 1)];
        let rows = [vec!["one".to_owned(), "1".to_owned(), "a long remark".to_owned()]];
        let wide = "name  count  remark\n--------------------------\none       1  a long remark\n";
        assert_eq!(table(&columns, &rows, 80), wide);
        let narrow = table(&columns, &rows, 20);
        assert_eq!(narrow.lines().last(), Some("(columns left out for want of width: count)"));
        assert!(narrow.contains("a long remark") && !narrow.contains(" 1"), "{narrow}");
        assert!(table(&columns, &rows, 5).contains("left out for want of width: count, remark"));
    }
}
