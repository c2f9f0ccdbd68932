//! Tables of an HTML page, with all their rows. The first ones are rows of a table; the others follow as text below it, a line
//! each, which costs a browser nothing until somebody looks. The script of the page takes the lines for further rows; without
//! it they can be read and copied as they are.

use super::markup::{attribute, escaped};
use super::table::{Row, Table, Tone};
use std::fmt::Write;

/// Rows that are rows of the table; the script shows as many at a time.
const DRAWN_ROWS: usize = 250;
/// Letters of a cell beyond which its column is one of sentences, which are not to be broken after every word.
const SHORT: usize = 30;
/// Maximum number of rows on a page, which keeps it below two megabytes. What is left out is said above the table.
const MAX_ROWS: usize = 12_000;

/// The table below its caption.
pub(super) fn drawn(table: &Table, title: &str) -> String {
    let title = escaped(title);
    // An interval is not broken over lines.
    let has_intervals = |index: usize| {
        table.rows.iter().take(DRAWN_ROWS).any(|row| row.cells.get(index).is_some_and(|cell| cell.contains(" .. ")))
    };
    let is_text = |index: usize| {
        let cells = table.rows.iter().take(DRAWN_ROWS).filter_map(|row| row.cells.get(index));
        cells.into_iter().any(|cell| cell.chars().count() > SHORT)
    };
    let classes: Vec<&str> = (table.columns.iter().enumerate())
        .map(|(index, column)| match column.is_number() {
            true => " class=\"n\"",
            false if has_intervals(index) => " class=\"s\"",
            false if is_text(index) => " class=\"t\"",
            false => "",
        })
        .collect();
    let class = |index: usize| classes.get(index).copied().unwrap_or_default();
    let rows = first_rows(&table.rows);
    let mut out = cut(table);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<div class=\"scroll table\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<caption>{title}</caption>\n<thead><tr>"
    );
    for (index, column) in table.columns.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(index), escaped(&column.heading_on_page()));
    }
    out += "</tr></thead>\n<tbody>";
    for row in rows.iter().take(DRAWN_ROWS) {
        let _ = write!(out, "<tr{}>", attribute("class", row_class(row.tone)));
        for (index, cell) in row.cells.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(index), escaped(cell));
        }
        out += "</tr>\n";
    }
    out += "</tbody></table></div>";
    out += &lines(table, rows.get(DRAWN_ROWS..).unwrap_or_default());
    if !table.note.is_empty() {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(&table.note));
    }
    out
}

/// What is not on the page, said before the rows.
fn cut(table: &Table) -> String {
    if table.rows.len() <= MAX_ROWS {
        return String::new();
    }
    let text = format!("{MAX_ROWS} of {} rows, those that stand out first; {}", table.rows.len(), table.elsewhere);
    format!("<p class=\"alarm\">{}</p>", escaped(&text))
}

/// Rows as lines of text with tabs between the cells. The first line has the headings, and the first cell of each other line a
/// mark of the row's tone.
fn lines(table: &Table, rows: &[&Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let headings: Vec<String> = table.columns.iter().map(|column| escaped(&column.heading_on_page())).collect();
    let mut out = format!(
        "<details class=\"more\"><summary>{} more rows, as text</summary><pre>\t{}\n",
        rows.len(),
        headings.join("\t")
    );
    for row in rows {
        out += row_class(row.tone);
        for cell in &row.cells {
            out.push('\t');
            out += &escaped(cell);
        }
        out.push('\n');
    }
    out + "</pre></details>"
}

/// All rows; of very many, those that stand out come first and the last ones are left out.
fn first_rows(rows: &[Row]) -> Vec<&Row> {
    if rows.len() <= DRAWN_ROWS {
        return rows.iter().collect();
    }
    let (standing_out, plain): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| !row_class(row.tone).is_empty());
    standing_out.into_iter().chain(plain).take(MAX_ROWS).collect()
}

/// The class of a row; rows that are as they should be have none.
fn row_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Bad => "bad",
        Tone::Unsure => "unsure",
        Tone::Plain | Tone::Good | Tone::Synthetic => "",
    }
}
