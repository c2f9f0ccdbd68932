//! Documents on a terminal: paragraphs wrapped, tables fitted to the width by leaving out columns, the most expendable first.

use super::{Block, Column, Fact, Figure, Folded, LINK, List, Mark, Row, Table, Tone};
use crate::chart::escaped as escaped_html;
use crate::report::text::{Paint, hung, text_width, visible, wrap};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write;

/// Spaces between columns.
pub const GAP: usize = 2;

/// A sentence needs some width even below a narrow table.
const MIN_SENTENCE_WIDTH: usize = 40;

/// A terminal of this many columns, with or without colours.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    width: usize,
    paint: Paint,
}

impl Terminal {
    /// A terminal without colours.
    pub fn plain(width: u16) -> Terminal {
        Terminal::new(usize::from(width), Paint::Plain)
    }

    /// A terminal with or without colours.
    pub(in crate::report) fn new(width: usize, paint: Paint) -> Terminal {
        Terminal { width, paint }
    }

    /// Its columns of text.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Its colours.
    pub(in crate::report) fn paint(&self) -> Paint {
        self.paint
    }

    /// The document, each line with its end.
    pub fn draw(&self, blocks: &[Block]) -> String {
        let mut text = String::new();
        self.draw_after(blocks, &mut None, &mut text);
        text
    }

    fn draw_after<'a>(&self, blocks: &'a [Block], before: &mut Option<&'a Block>, text: &mut String) {
        for block in blocks {
            let drawn = match block {
                Block::Narrow(inner) => {
                    self.draw_after(inner, before, text);
                    continue;
                }
                Block::Charts(_) | Block::Timeline(_) | Block::Badges(_) => continue,
                block => self.block(block),
            };
            if drawn.is_empty() {
                continue;
            }
            if !text.is_empty() && is_apart(*before, block) {
                text.push('\n');
            }
            *text += &drawn;
            *before = Some(block);
        }
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Heading(heading) => self.heading(&heading.text),
            Block::Paragraph(text) | Block::Absent(text) => wrap(&visible(text), self.width, 0) + "\n",
            Block::Strong(text) => self.paint.bold(&wrap(&visible(text), self.width, 0)) + "\n",
            Block::Alarm(text) => self.paint.alarm(&wrap(&visible(text), self.width, 0)) + "\n",
            Block::List(list) => self.list(list),
            Block::Command(command) => format!("  next: {}\n", visible(command)),
            Block::Facts(facts) => self.facts(facts),
            Block::Table(table) => self.table(table),
            Block::Folded(Folded { summary, blocks }) => self.heading(summary) + &self.draw(blocks),
            Block::Charts(_) | Block::Timeline(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
        }
    }

    fn heading(&self, text: &str) -> String {
        wrap(&visible(text), self.width, 2).lines().map(|line| self.paint.bold(line) + "\n").collect()
    }

    fn list(&self, list: &List) -> String {
        let mut text = String::new();
        for (index, item) in list.items.iter().enumerate() {
            let (lead, indent) = lead(list.mark, index);
            text += &hung(&lead, &visible(item), self.width, indent);
            text.push('\n');
        }
        text
    }

    fn facts(&self, facts: &[Fact]) -> String {
        let labels: Vec<String> = facts.iter().map(|fact| visible(&fact.label)).collect();
        let indent = labels.iter().map(|label| text_width(label)).max().unwrap_or(0) + 2;
        let mut out = String::new();
        for (label, fact) in labels.iter().zip(facts) {
            let body = wrap(&visible(&fact.text), self.width.saturating_sub(indent).max(20), 0);
            let body = body.replace('\n', &format!("\n{:indent$}", ""));
            out += &format!("{}{:pad$}{body}\n", self.paint.dim(label), "", pad = indent - text_width(label));
        }
        out
    }

    fn table(&self, table: &Table) -> String {
        if table.columns.iter().all(|column| column.expendable == Column::PAGES_ONLY) {
            return String::new();
        }
        let title = if table.title.is_empty() { String::new() } else { self.heading(&table.title) };
        let layout = TableLayout::of(&table.columns, &table.rows, self.width);
        let mut text = title + &layout.head();
        table.rows.iter().for_each(|row| text += &layout.row(row, self.paint));
        text += &layout.left_out(self.width);
        if !table.note.is_empty() {
            text += &wrapped(&visible(&table.note), u16::try_from(self.width).unwrap_or(u16::MAX));
        }
        text
    }
}

/// Whether an empty line comes before a block.
fn is_apart(before: Option<&Block>, block: &Block) -> bool {
    let after_heading = matches!(before, Some(Block::Heading(_)));
    match block {
        Block::List(list) => list.apart,
        Block::Command(_) => false,
        Block::Table(table) => !table.title.is_empty() || !after_heading,
        Block::Paragraph(_) | Block::Absent(_) => !after_heading,
        _ => true,
    }
}

fn lead(mark: Mark, index: usize) -> (String, usize) {
    match mark {
        Mark::None => (String::new(), 4),
        Mark::Close => (String::new(), 2),
        Mark::Flush => (String::new(), 0),
        Mark::Dash => ("- ".to_owned(), 2),
        Mark::Star => ("* ".to_owned(), 4),
        Mark::Alarm => ("! ".to_owned(), 4),
        Mark::Number => {
            let lead = format!("[{}] ", index + 1);
            let indent = lead.len();
            (lead, indent)
        }
    }
}

/// Columns, widths and headings of a table, decided before its first row.
#[derive(Clone, Debug)]
pub struct TableLayout {
    columns: Vec<Column>,
    widths: Vec<usize>,
    shown: Vec<usize>,
    /// How many of those shown are on the first line of a row; the others follow on a second one.
    on_first_line: usize,
    left_out: Vec<&'static str>,
}

impl TableLayout {
    /// The layout of these rows.
    pub fn of(columns: &[Column], rows: &[Row], width: usize) -> TableLayout {
        TableLayout::new(columns, widths(columns, rows), width)
    }

    /// Leaves out columns until the others fit, or none may be left out; those take two lines. `widths` are those of the widest cells.
    pub fn new(columns: &[Column], widths: Vec<usize>, width: usize) -> TableLayout {
        let on_terminals = |index: &usize| columns[*index].expendable != Column::PAGES_ONLY;
        let mut shown: Vec<usize> = (0..columns.len()).filter(on_terminals).collect();
        let mut left_out = Vec::new();
        while whole(&shown, &widths) > width {
            let most = shown.iter().copied().filter(|index| columns[*index].expendable > 0);
            let Some(index) = most.max_by_key(|index| columns[*index].expendable) else { break };
            shown.retain(|other| *other != index);
            left_out.push(columns[index].heading);
        }
        let fits = |count: &usize| whole(&shown[..*count], &widths) <= width;
        let on_first_line = (1..=shown.len()).rev().find(fits).unwrap_or(shown.len());
        TableLayout { columns: columns.to_vec(), widths, shown, on_first_line, left_out }
    }

    /// Whether a column is shown.
    pub fn shows(&self, column: usize) -> bool {
        self.shown.contains(&column)
    }

    /// Columns of text that it takes.
    pub fn width(&self) -> usize {
        whole(&self.shown[..self.on_first_line], &self.widths)
    }

    /// The headings, the units where there are any, and a rule.
    pub fn head(&self) -> String {
        let mut out = self.line(|column| column.heading);
        if self.shown.iter().any(|index| !self.columns[*index].unit.is_empty()) {
            out += &self.line(|column| column.unit);
        }
        out + &format!("{}\n", "-".repeat(self.width()))
    }

    fn line(&self, text: impl Fn(&Column) -> &'static str) -> String {
        let cells: Vec<String> = self.columns.iter().map(|column| text(column).to_owned()).collect();
        self.plain_row(&Row::from(cells))
    }

    /// A row without colours.
    pub fn plain_row(&self, row: &Row) -> String {
        self.row(row, Paint::Plain)
    }

    /// A row.
    pub(in crate::report) fn row(&self, row: &Row, paint: Paint) -> String {
        let mut out = String::new();
        for (position, index) in self.shown.iter().enumerate() {
            if position == self.on_first_line {
                out.truncate(out.trim_end().len());
                out += "\n    ";
            }
            let cell = row.cells.get(*index).map_or_else(String::new, |cell| visible(cell));
            let pad = self.widths[*index].saturating_sub(text_width(&cell));
            let gap = if position + 1 == self.shown.len() { 0 } else { GAP };
            let (left, right) = if self.columns[*index].is_number { (pad, gap) } else { (0, pad + gap) };
            let cell = if self.columns[*index].is_status { toned(paint, row.tone, &cell) } else { cell };
            // Writing to a string cannot fail.
            let _ = write!(out, "{:left$}{cell}{:right$}", "", "");
        }
        out.truncate(out.trim_end().len());
        out + "\n"
    }

    /// A line that names the columns without room; empty where all have some.
    pub fn left_out(&self, width: usize) -> String {
        if self.left_out.is_empty() {
            return String::new();
        }
        let sentence = format!("(columns omitted to fit the width: {})", self.left_out.join(", "));
        wrap(&sentence, width.max(MIN_SENTENCE_WIDTH), 2) + "\n"
    }
}

/// A text in the colour of a tone, one of the eight that every terminal has; what is as it should be stays plain.
fn toned(paint: Paint, tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain | Tone::Good => text.to_owned(),
        Tone::Bad => paint.colored(1, text),
        Tone::Unsure => paint.colored(3, text),
        Tone::Synthetic => paint.colored(5, text),
    }
}

fn whole(shown: &[usize], widths: &[usize]) -> usize {
    shown.iter().map(|index| widths[*index] + GAP).sum::<usize>().saturating_sub(GAP)
}

/// The width of each column: that of its widest cell, heading or unit.
pub(in crate::report) fn widths(columns: &[Column], rows: &[Row]) -> Vec<usize> {
    let width = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.cells.get(index)).map(|cell| text_width(&visible(cell)));
        cells.chain([text_width(column.heading), text_width(column.unit)]).max().unwrap_or(0)
    };
    columns.iter().enumerate().map(width).collect()
}

impl Table {
    /// As text of at most this many columns, if the columns that are never left out allow it. A line below names the others.
    pub fn text(&self, width: u16) -> String {
        Terminal::plain(width).table(self)
    }
}

/// A paragraph broken between words, further lines indented, with a line feed at the end.
pub fn wrapped(text: &str, width: u16) -> String {
    wrap(text, usize::from(width), 4) + "\n"
}

// Documents as Markdown, for issues and pages: every text escaped, every table with all columns.

/// The document; each block comes after an empty line.
pub fn markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    let mut after_list = false;
    for block in blocks {
        let is_list = matches!(block, Block::List(_) | Block::Command(_));
        let text = markdown_block(block);
        if text.is_empty() {
            continue;
        }
        if !(is_list && after_list) {
            out.push('\n');
        }
        out += &text;
        after_list = is_list;
    }
    out
}

fn markdown_block(block: &Block) -> String {
    match block {
        Block::Heading(heading) => markdown_title(heading.level, &heading.text),
        Block::Paragraph(text) | Block::Absent(text) | Block::Strong(text) => format!("{}\n", escaped_markdown(text)),
        Block::Alarm(text) => format!("**{}**\n", escaped_markdown(text)),
        Block::List(list) => list.on_page().map(|item| format!("* {}\n", escaped_markdown(&item))).collect(),
        Block::Command(command) => format!("* next: {}\n", markdown_code(command)),
        Block::Facts(facts) => {
            let one = |Fact { label, text }: &Fact| {
                format!("* **{}**: {}\n", escaped_markdown(label), escaped_markdown(text))
            };
            facts.iter().map(one).collect()
        }
        Block::Table(table) => self::markdown_table(table),
        Block::Folded(Folded { summary, blocks }) => markdown_title(3, summary) + &markdown(blocks),
        Block::Charts(_) | Block::Timeline(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
    }
}

fn markdown_title(level: u8, text: &str) -> String {
    format!("{} {}\n", "#".repeat(usize::from(level)), escaped_markdown(text.trim_end_matches(':')))
}

fn markdown_table(table: &Table) -> String {
    let mut text =
        if table.title.is_empty() { String::new() } else { markdown_title(table.level, &table.title) + "\n" };
    let headings: Vec<String> = table.columns.iter().map(|column| column.heading_on_page()).collect();
    let rules: Vec<&str> = table.columns.iter().map(|column| if column.is_number { "---:" } else { "---" }).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |\n| {} |", headings.join(" | "), rules.join(" | "));
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| escaped_markdown(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if !table.note.is_empty() {
        let _ = writeln!(text, "\n{}", escaped_markdown(&table.note));
    }
    text
}

/// A text from the record, escaped for Markdown.
pub fn escaped_markdown(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// A command to be copied: a code span, unless a renderer could take it for markup, in which case it is escaped.
fn markdown_code(text: &str) -> String {
    let shown = visible(text);
    match shown.contains(['`', '<', '>', '&']) {
        true => escaped_markdown(text),
        false => format!("`{shown}`"),
    }
}

// Documents as parts of an HTML page, for `reports/templates/blocks.html`, which escapes every text; no two headings are alike.

/// Prepares the sections of one page.
#[derive(Debug, Default)]
pub struct Html {
    /// Headings, summaries and captions so far.
    used: HashSet<String>,
    /// The headings above the current text.
    under: Vec<String>,
}

/// The document as a page has it, in a section without a title.
#[cfg(test)]
pub fn html(blocks: &[Block]) -> String {
    Html::default().text("", blocks)
}

impl Html {
    /// The blocks of a section below its title, which is of level 2.
    pub fn section(&mut self, title: &str, blocks: &[Block]) -> Vec<Value> {
        self.used.insert(title.to_owned());
        self.under = vec![title.to_owned()];
        self.all(blocks)
    }

    /// The same as text.
    #[cfg(test)]
    pub fn text(&mut self, title: &str, blocks: &[Block]) -> String {
        let source = concat!(include_str!("../../../../reports/templates/blocks.html"), "{{ draw(blocks) }}");
        let blocks = json!({ "blocks": self.section(title, blocks) });
        crate::report::template::through("blocks.html", source, blocks).expect("the template fits")
    }

    fn all(&mut self, blocks: &[Block]) -> Vec<Value> {
        blocks.iter().map(|block| self.block(block)).collect()
    }

    /// A heading that the page does not have yet: the same name below two headings gets that of its heading, and a table without
    /// a title is called by it.
    fn unlike(&mut self, text: &str) -> String {
        let under = self.under.last().filter(|under| !under.is_empty() && *under != text);
        let named = under.filter(|_| text.is_empty()).map(|under| format!("Table: {under}"));
        let text = named.as_deref().unwrap_or(text);
        let below = under.map(|under| format!("{text} ({under})"));
        let numbered = (2..).map(|number| format!("{text} ({number})"));
        let mut names = std::iter::once(text.to_owned()).chain(below).chain(numbered);
        // There is always a number that is not used yet.
        let name = names.find(|name| !self.used.contains(name)).unwrap_or_default();
        self.used.insert(name.clone());
        name
    }

    fn block(&mut self, block: &Block) -> Value {
        match block {
            Block::Heading(heading) => {
                let text = self.unlike(heading.text.trim_end_matches(':'));
                self.under.truncate(1);
                self.under.push(text.clone());
                json!({ "kind": "heading", "level": heading.level + 1, "text": text })
            }
            Block::Paragraph(text) => json!({ "kind": "paragraph", "text": text }),
            Block::Strong(text) => json!({ "kind": "strong", "text": text }),
            Block::Alarm(text) => json!({ "kind": "alarm", "text": text }),
            Block::Absent(text) => json!({ "kind": "absent", "text": text }),
            Block::List(list) => json!({ "kind": "list", "items": list.on_page().collect::<Vec<_>>() }),
            Block::Command(text) => json!({ "kind": "command", "text": text }),
            Block::Facts(facts) => json!({ "kind": "facts", "facts": facts }),
            Block::Table(table) => table_on_page(table, self.unlike(table.title.trim_end_matches(':'))),
            Block::Charts(figures) => {
                let figure = |one: &Figure| json!({ "name": one.name, "is_wide": one.wide, "svg": one.svg.inline() });
                json!({ "kind": "charts", "figures": figures.iter().map(figure).collect::<Vec<_>>() })
            }
            Block::Timeline(values) => values.clone(),
            Block::Badges(badges) => json!({ "kind": "badges", "badges": badges }),
            Block::Folded(Folded { summary, blocks }) => {
                let summary = self.unlike(summary);
                let around = std::mem::replace(&mut self.under, vec![summary.clone()]);
                let inner = self.all(blocks);
                self.under = around;
                json!({ "kind": "folded", "summary": summary, "blocks": inner })
            }
            Block::Narrow(_) => json!({ "kind": "narrow" }),
        }
    }
}

// Tables of an HTML page, with all their rows. The first ones are rows of a table; the others follow as text below it, a line
// each, which costs a browser nothing until somebody looks. The script of the page takes the lines for further rows; without
// it they can be read and copied as they are.

/// Rows that are rows of the table; the script shows as many at a time.
const DRAWN_ROWS: usize = 250;

/// Letters of a cell beyond which its column is one of sentences, which are not to be broken after every word.
const SHORT: usize = 30;

/// Maximum number of rows on a page, which keeps it below two megabytes. What is left out is said above the table.
const MAX_ROWS: usize = 12_000;

fn table_on_page(table: &Table, title: String) -> Value {
    let any = |index: usize, of: &dyn Fn(&str) -> bool| {
        table.rows.iter().take(DRAWN_ROWS).any(|row| row.cells.get(index).is_some_and(|cell| of(cell)))
    };
    let column = |(index, column): (usize, &Column)| {
        let class = match column.is_number {
            true => "n",
            false if column.heading == LINK => "link",
            // An interval is not broken over lines.
            false if any(index, &|cell| cell.contains(" .. ")) => "s",
            false if any(index, &|cell| cell.chars().count() > SHORT) => "t",
            false => "",
        };
        json!({ "heading": column.heading_on_page(), "class": class })
    };
    let rows = first_rows(&table.rows);
    let (drawn, others) = rows.split_at(rows.len().min(DRAWN_ROWS));
    let row = |row: &&Row| json!({ "class": row_class(row.tone), "cells": row.cells });
    json!({
        "kind": "table",
        "title": title,
        "is_quiet": table.title.is_empty(),
        "is_folded": table.folded,
        "cut": cut(table),
        "columns": table.columns.iter().enumerate().map(column).collect::<Vec<_>>(),
        "rows": drawn.iter().map(row).collect::<Vec<_>>(),
        "more": others.len(),
        "lines": lines_on_page(table, others),
        "note": table.note,
    })
}

/// What is not on the page, said before the rows.
fn cut(table: &Table) -> String {
    match table.rows.len() > MAX_ROWS {
        true => format!("{MAX_ROWS} of {} rows, those that stand out first; {}", table.rows.len(), table.elsewhere),
        false => String::new(),
    }
}

/// Rows as lines of escaped text with tabs between the cells. The first line has the headings, and the first cell of each other line a
/// mark of the row's tone.
fn lines_on_page(table: &Table, rows: &[&Row]) -> String {
    let headings: Vec<String> = table.columns.iter().map(|column| column.heading_on_page()).collect();
    let headings = Row::from(headings);
    let mut out = String::new();
    for row in std::iter::once(&headings).chain(rows.iter().copied()) {
        out += row_class(row.tone);
        for cell in &row.cells {
            out.push('\t');
            out += &escaped_html(cell);
        }
        out.push('\n');
    }
    out
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

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn commands_can_be_copied_and_cannot_break_out_of_markup() {
        assert_eq!(markdown_code("run -n 2 --hosts a_b:1  # why"), "`run -n 2 --hosts a_b:1  # why`");
        assert_eq!(markdown_code("a`<b>"), "a\\`&lt;b&gt;");
        assert!(!markdown_code("a\n# b\u{1b}[31m").contains(['\n', '\u{1b}']));
    }
}
