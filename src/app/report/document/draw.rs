//! Documents on a terminal: paragraphs wrapped, tables fitted to the width by leaving out columns, the most expendable first.

use super::{Badge, Block, Column, Fact, Figure, Folded, List, Mark, Row, Table, Tone};
use crate::chart::escaped as escaped_html;
use crate::report::text::{Paint, hung, text_width, visible, wrap};
use std::collections::HashSet;
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
    /// How many of those shown are on the first line of a row; the others follow on a second one.
    on_first_line: usize,
    left_out: Vec<&'static str>,
}

impl TableLayout {
    /// The layout of these rows.
    pub fn of(columns: &[Column], rows: &[Row], width: usize) -> TableLayout {
        TableLayout::new(columns, widths(columns, rows), width)
    }

    /// Leaves out columns until the others fit, or none may be left out; those go on two lines. `widths` are those of the widest cells.
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
            if position == self.on_first_line {
                out.truncate(out.trim_end().len());
                out += "\n    ";
            }
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
        Block::Charts(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
    }
}

fn markdown_title(level: u8, text: &str) -> String {
    format!("{} {}\n", "#".repeat(usize::from(level)), escaped_markdown(text.trim_end_matches(':')))
}

fn markdown_table(table: &Table) -> String {
    let mut text =
        if table.title.is_empty() { String::new() } else { markdown_title(table.level, &table.title) + "\n" };
    let headings: Vec<String> = table.columns.iter().map(|column| column.heading_on_page()).collect();
    let rules: Vec<&str> = table.columns.iter().map(|column| if column.is_number() { "---:" } else { "---" }).collect();
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

// Documents as parts of an HTML page: every text escaped, no two headings alike. Tables are in `html_table`, the page itself is
// elsewhere.

/// Writes the sections of one page.
#[derive(Debug, Default)]
pub struct Html {
    /// Headings, summaries and captions so far.
    used: HashSet<String>,
    /// The headings above the current text.
    under: Vec<String>,
}

/// The document, in a section of a page whose heading is of level 2.
#[cfg(test)]
pub fn html(blocks: &[Block]) -> String {
    Html::default().section("", blocks)
}

impl Html {
    /// A section below its title, which is of level 2.
    pub fn section(&mut self, title: &str, blocks: &[Block]) -> String {
        self.used.insert(title.to_owned());
        self.under = vec![title.to_owned()];
        self.all(blocks)
    }

    fn all(&mut self, blocks: &[Block]) -> String {
        blocks.iter().map(|block| self.drawn(block)).collect()
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

    fn drawn(&mut self, block: &Block) -> String {
        match block {
            Block::Heading(heading) => {
                let level = heading.level + 1;
                let text = self.unlike(heading.text.trim_end_matches(':'));
                self.under.truncate(1);
                self.under.push(text.clone());
                format!("<h{level}>{}</h{level}>\n", escaped_html(&text))
            }
            Block::Paragraph(text) => element("p", "", text),
            Block::Strong(text) => format!("<p><strong>{}</strong></p>\n", escaped_html(text)),
            Block::Alarm(text) => element("p", "alarm", text),
            Block::Absent(text) => element("p", "absent", text),
            Block::List(list) if list.items.is_empty() => String::new(),
            Block::List(list) => {
                let items: String = list.on_page().map(|item| format!("<li>{}</li>", escaped_html(&item))).collect();
                format!("<ul class=\"sentences\">{items}</ul>\n")
            }
            Block::Command(text) => html_command(&escaped_html(text)),
            Block::Facts(facts) => {
                let one = |Fact { label, text }: &Fact| {
                    format!("<div><dt>{}</dt><dd>{}</dd></div>", escaped_html(label), escaped_html(text))
                };
                format!("<dl>{}</dl>\n", facts.iter().map(one).collect::<String>())
            }
            Block::Table(table) => {
                let title = self.unlike(table.title.trim_end_matches(':'));
                let drawn = html_table(table, &title);
                match table.folded {
                    true => format!("<details><summary>{}</summary>{drawn}</details>\n", escaped_html(&title)),
                    false => drawn + "\n",
                }
            }
            Block::Charts(figures) => html_charts(figures),
            Block::Badges(badges) => {
                format!("<div class=\"badges\">{}</div>\n", badges.iter().map(html_badge).collect::<String>())
            }
            Block::Folded(Folded { summary, blocks }) => {
                let summary = self.unlike(summary);
                let around = std::mem::replace(&mut self.under, vec![summary.clone()]);
                let inner = self.all(blocks);
                self.under = around;
                format!(
                    "<details class=\"group\"><summary>{}</summary><div class=\"folded\">\n{inner}</div></details>\n",
                    escaped_html(&summary)
                )
            }
            Block::Narrow(_) => String::new(),
        }
    }
}

fn element(name: &str, class: &str, text: &str) -> String {
    format!("<{name}{}>{}</{name}>\n", attribute("class", class), escaped_html(text))
}

fn html_command(escaped: &str) -> String {
    format!("<pre class=\"command\"><code>{escaped}</code></pre>\n")
}

fn html_badge(badge: &Badge) -> String {
    let tone = match badge.tone {
        Tone::Plain | Tone::Synthetic => "none",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Unsure => "unsure",
    };
    format!(
        "<div class=\"badge {tone}\"><p class=\"what\">{}</p><p class=\"answer\">{}</p><p class=\"detail\">{}</p></div>",
        escaped_html(&badge.question),
        escaped_html(&badge.answer),
        escaped_html(&badge.detail)
    )
}

/// Each picture; screen readers have its numbers in words.
fn html_charts(figures: &[Figure]) -> String {
    let single = if figures.len() == 1 { " single" } else { "" };
    let mut out = format!("<div class=\"charts{single}\">");
    for figure in figures {
        let (class, reachable) = match figure.wide {
            true => ("wide", format!(" tabindex=\"0\" role=\"region\" aria-label=\"{}\"", escaped_html(&figure.name))),
            false => ("", String::new()),
        };
        let (class, svg) = (attribute("class", class), figure.svg.inline());
        // Writing to a string cannot fail.
        let _ = write!(out, "<figure{class}><div class=\"scroll\"{reachable}>{svg}</div></figure>");
    }
    out + "</div>\n"
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

/// The table below its caption.
pub(super) fn html_table(table: &Table, title: &str) -> String {
    let title = escaped_html(title);
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
    let quiet = if table.title.is_empty() { " quiet" } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<div class=\"scroll table{quiet}\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<caption>{title}</caption>\n<thead><tr>"
    );
    for (index, column) in table.columns.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(index), escaped_html(&column.heading_on_page()));
    }
    out += "</tr></thead>\n<tbody>";
    for row in rows.iter().take(DRAWN_ROWS) {
        let _ = write!(out, "<tr{}>", attribute("class", row_class(row.tone)));
        for (index, cell) in row.cells.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(index), escaped_html(cell));
        }
        out += "</tr>\n";
    }
    out += "</tbody></table></div>";
    out += &html_lines(table, rows.get(DRAWN_ROWS..).unwrap_or_default());
    if !table.note.is_empty() {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped_html(&table.note));
    }
    out
}

/// What is not on the page, said before the rows.
fn cut(table: &Table) -> String {
    if table.rows.len() <= MAX_ROWS {
        return String::new();
    }
    let text = format!("{MAX_ROWS} of {} rows, those that stand out first; {}", table.rows.len(), table.elsewhere);
    format!("<p class=\"alarm\">{}</p>", escaped_html(&text))
}

/// Rows as lines of text with tabs between the cells. The first line has the headings, and the first cell of each other line a
/// mark of the row's tone.
fn html_lines(table: &Table, rows: &[&Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let headings: Vec<String> = table.columns.iter().map(|column| escaped_html(&column.heading_on_page())).collect();
    let mut out = format!(
        "<details class=\"more\"><summary>{} more rows, as text</summary><pre>\t{}\n",
        rows.len(),
        headings.join("\t")
    );
    for row in rows {
        out += row_class(row.tone);
        for cell in &row.cells {
            out.push('\t');
            out += &escaped_html(cell);
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

/// An attribute; none where its value is empty.
pub(super) fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
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
