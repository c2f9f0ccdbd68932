//! Documents on a terminal: paragraphs wrapped, tables fitted to the width by leaving out columns, the most expendable first.

use super::{Block, Column, Fact, Folded, List, Mark, Row, Table, Tone};
use crate::report::text::Paint;
use crate::report::text::{hung, text_width, visible, wrap};
use std::fmt::Write;

/// Spaces between columns.
pub const GAP: usize = 2;

/// A sentence needs some width even below a narrow table.
const MIN_SENTENCE_WIDTH: usize = 60;

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
                Block::Charts(_) | Block::Badges(_) => continue,
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
            Block::Charts(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
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
        if table.columns.iter().all(|column| column.expendable() == Column::PAGES_ONLY) {
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
    left_out: Vec<&'static str>,
}

impl TableLayout {
    /// The layout of these rows.
    pub fn of(columns: &[Column], rows: &[Row], width: usize) -> TableLayout {
        TableLayout::new(columns, widths(columns, rows), width)
    }

    /// Leaves out columns until the others fit, or none may be left out. `widths` are those of the widest cells.
    pub fn new(columns: &[Column], widths: Vec<usize>, width: usize) -> TableLayout {
        let on_terminals = |index: &usize| columns[*index].expendable() != Column::PAGES_ONLY;
        let mut shown: Vec<usize> = (0..columns.len()).filter(on_terminals).collect();
        let mut left_out = Vec::new();
        while whole(&shown, &widths) > width {
            let most = shown.iter().copied().filter(|index| columns[*index].expendable() > 0);
            let Some(index) = most.max_by_key(|index| columns[*index].expendable()) else { break };
            shown.retain(|other| *other != index);
            left_out.push(columns[index].heading());
        }
        TableLayout { columns: columns.to_vec(), widths, shown, left_out }
    }

    /// Whether a column is shown.
    pub fn shows(&self, column: usize) -> bool {
        self.shown.contains(&column)
    }

    /// Columns of text that it takes.
    pub fn width(&self) -> usize {
        whole(&self.shown, &self.widths)
    }

    /// The headings, the units where there are any, and a rule.
    pub fn head(&self) -> String {
        let mut out = self.line(|column| column.heading());
        if self.shown.iter().any(|index| !self.columns[*index].unit().is_empty()) {
            out += &self.line(|column| column.unit());
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
            let cell = row.cells.get(*index).map_or_else(String::new, |cell| visible(cell));
            let pad = self.widths[*index].saturating_sub(text_width(&cell));
            let gap = if position + 1 == self.shown.len() { 0 } else { GAP };
            let (left, right) = if self.columns[*index].is_number() { (pad, gap) } else { (0, pad + gap) };
            let cell = if self.columns[*index].is_status() { toned(paint, row.tone, &cell) } else { cell };
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

/// A text in the colour of a tone.
fn toned(paint: Paint, tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        Tone::Good => paint.colored(10, text),
        Tone::Bad => paint.colored(9, text),
        Tone::Unsure => paint.colored(11, text),
        Tone::Synthetic => paint.colored(13, text),
    }
}

fn whole(shown: &[usize], widths: &[usize]) -> usize {
    shown.iter().map(|index| widths[*index] + GAP).sum::<usize>().saturating_sub(GAP)
}

/// The width of each column: that of its widest cell, heading or unit.
pub(in crate::report) fn widths(columns: &[Column], rows: &[Row]) -> Vec<usize> {
    let width = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.cells.get(index)).map(|cell| text_width(&visible(cell)));
        cells.chain([text_width(column.heading()), text_width(column.unit())]).max().unwrap_or(0)
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
        let text = drawn(block);
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

fn drawn(block: &Block) -> String {
    match block {
        Block::Heading(heading) => title(heading.level, &heading.text),
        Block::Paragraph(text) | Block::Absent(text) | Block::Strong(text) => format!("{}\n", escaped(text)),
        Block::Alarm(text) => format!("**{}**\n", escaped(text)),
        Block::List(list) => list.on_page().map(|item| format!("* {}\n", escaped(&item))).collect(),
        Block::Command(command) => format!("* next: {}\n", code(command)),
        Block::Facts(facts) => {
            let one = |Fact { label, text }: &Fact| format!("* **{}**: {}\n", escaped(label), escaped(text));
            facts.iter().map(one).collect()
        }
        Block::Table(table) => self::markdown_table(table),
        Block::Folded(Folded { summary, blocks }) => title(3, summary) + &markdown(blocks),
        Block::Charts(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
    }
}

fn title(level: u8, text: &str) -> String {
    format!("{} {}\n", "#".repeat(usize::from(level)), escaped(text.trim_end_matches(':')))
}

fn markdown_table(table: &Table) -> String {
    let mut text = if table.title.is_empty() { String::new() } else { title(table.level, &table.title) + "\n" };
    let headings: Vec<String> = table.columns.iter().map(|column| column.heading_on_page()).collect();
    let rules: Vec<&str> = table.columns.iter().map(|column| if column.is_number() { "---:" } else { "---" }).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |\n| {} |", headings.join(" | "), rules.join(" | "));
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if !table.note.is_empty() {
        let _ = writeln!(text, "\n{}", escaped(&table.note));
    }
    text
}

/// A text from the record, escaped for Markdown.
pub fn escaped(text: &str) -> String {
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
fn code(text: &str) -> String {
    let shown = visible(text);
    match shown.contains(['`', '<', '>', '&']) {
        true => escaped(text),
        false => format!("`{shown}`"),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn commands_can_be_copied_and_cannot_break_out_of_markup() {
        assert_eq!(code("run -n 2 --hosts a_b:1  # why"), "`run -n 2 --hosts a_b:1  # why`");
        assert_eq!(code("a`<b>"), "a\\`&lt;b&gt;");
        assert!(!code("a\n# b\u{1b}[31m").contains(['\n', '\u{1b}']));
    }
}
