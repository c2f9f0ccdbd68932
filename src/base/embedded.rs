//! Tables embedded as text next to the code that reads them: a row on each line, cells between ` | `, comments after `#`.

/// The rows of a table.
pub fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The two cells of every row that has two.
pub fn pairs(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    rows(table).filter_map(|row| row.split_once(" | "))
}
