//! What a report is made of, whatever it is written for: headings, sentences, tables and charts as plain data.
//!
//! A subject becomes a list of [`Block`]s once. `draw` writes them for a terminal, as Markdown and as HTML; fitting to a width, escaping and
//! colours are theirs alone.

mod draw;

#[cfg(test)]
pub(super) use draw::html;
pub(super) use draw::widths;
pub use draw::{GAP, Html, TableLayout, Terminal, escaped_markdown, markdown, wrapped};

use crate::chart::Svg;
use commgauge_base::stats::{Interval, Span};
use commgauge_base::units::{Bytes, Rate, three_digits};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading; a colon at its end is for terminals only.
    Heading(Heading),
    /// A paragraph.
    Paragraph(String),
    /// A paragraph in bold letters.
    Strong(String),
    /// A warning that invalidates what follows.
    Alarm(String),
    /// The reason why a part is missing.
    Absent(String),
    /// Sentences.
    List(List),
    /// A command to be copied, which is never broken.
    Command(String),
    /// Facts, one below the other.
    Facts(Vec<Fact>),
    /// A table.
    Table(Table),
    /// Pictures, which pages alone can show.
    Charts(Vec<Figure>),
    /// What ranks did over time, for pages alone: the values of the macro `timeline` in `reports/templates/blocks.html`.
    Timeline(Value),
    /// Results in large letters, for pages alone.
    Badges(Vec<Badge>),
    /// Blocks below a summary; collapsed on a page that can do so.
    Folded(Folded),
    /// What pages show in columns for which a terminal has no room.
    Narrow(Vec<Block>),
}

/// The heading of a column whose cells are paths to other pages.
pub const LINK: &str = "page";

/// A heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// 2 for a part of a document, 3 below it.
    pub level: u8,
    /// The text.
    pub text: String,
}

/// A text and what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about; empty where it continues the fact before.
    pub label: String,
    /// The text.
    pub text: String,
}

impl Fact {
    /// A labelled text.
    pub fn new(label: impl Into<String>, text: impl Into<String>) -> Fact {
        Fact { label: label.into(), text: text.into() }
    }
}

/// Sentences, each on lines of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// What a terminal writes before each.
    pub mark: Mark,
    /// Whether a terminal leaves a line empty before the first.
    pub apart: bool,
    /// The sentences.
    pub items: Vec<String>,
}

/// What a terminal writes before the sentences of a list. Pages have bullets everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing; further lines are indented by 4.
    None,
    /// Nothing; further lines are indented by 2.
    Close,
    /// Nothing, not even before further lines.
    Flush,
    /// A dash.
    Dash,
    /// A star.
    Star,
    /// An exclamation mark.
    Alarm,
    /// A number in brackets, from 1.
    Number,
}

/// Blocks below a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// The summary.
    pub summary: String,
    /// The blocks.
    pub blocks: Vec<Block>,
}

/// A result in large letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Badge {
    /// Its colour.
    pub tone: Tone,
    /// What it answers.
    pub question: String,
    /// The answer, in a word or two.
    pub answer: String,
    /// A sentence on it.
    pub detail: String,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is in it.
    pub name: String,
    /// The picture.
    pub svg: Svg,
    /// Whether it takes the whole width, scrollable where it is wider.
    pub wide: bool,
}

impl Block {
    /// A heading of a part.
    pub fn heading(text: impl Into<String>) -> Block {
        Block::Heading(Heading { level: 2, text: text.into() })
    }

    /// A paragraph.
    pub fn text(text: impl Into<String>) -> Block {
        Block::Paragraph(text.into())
    }

    /// The reason why a part is missing.
    pub fn absent(text: impl Into<String>) -> Block {
        Block::Absent(text.into())
    }

    /// Sentences without marks, further lines indented by 4.
    pub fn list<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Block {
        Block::marked(Mark::None, items)
    }

    /// Sentences with marks.
    pub fn marked<T: Into<String>>(mark: Mark, items: impl IntoIterator<Item = T>) -> Block {
        Block::List(List { mark, apart: false, items: items.into_iter().map(Into::into).collect() })
    }

    /// Sentences after an empty line.
    pub fn apart<T: Into<String>>(mark: Mark, items: impl IntoIterator<Item = T>) -> Block {
        Block::List(List { mark, apart: true, items: items.into_iter().map(Into::into).collect() })
    }

    /// A heading with sentences below it; nothing where there is none.
    pub fn headed_list<T: Into<String>>(heading: &str, mark: Mark, items: impl IntoIterator<Item = T>) -> Vec<Block> {
        let items: Vec<String> = items.into_iter().map(Into::into).collect();
        if items.is_empty() { Vec::new() } else { vec![Block::heading(heading), Block::marked(mark, items)] }
    }

    /// Blocks below a summary.
    pub fn folded(summary: impl Into<String>, blocks: Vec<Block>) -> Block {
        Block::Folded(Folded { summary: summary.into(), blocks })
    }
}

impl List {
    /// The sentences as pages show them: without marks, but with their numbers.
    fn on_page(&self) -> impl Iterator<Item = String> {
        self.items.iter().enumerate().map(|(index, item)| match self.mark {
            Mark::Number => format!("[{}] {item}", index + 1),
            _ => item.clone(),
        })
    }
}

impl Figure {
    /// A picture that shares its row with others.
    pub fn new(name: &str, svg: Svg) -> Figure {
        Figure { name: name.to_owned(), svg, wide: false }
    }

    /// A picture over the whole width.
    pub fn wide(name: &str, svg: Svg) -> Figure {
        Figure { wide: true, ..Figure::new(name, svg) }
    }
}

// A table as data: what its columns mean, and rows of cells as text.

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub heading: &'static str,
    /// The unit of its numbers; empty where the cells have theirs.
    pub unit: &'static str,
    /// Whether it is aligned to the right.
    pub is_number: bool,
    /// Whether its cells have the colour of their row's tone.
    pub is_status: bool,
    /// Priority of being left out, the highest first; 0 is never left out.
    pub expendable: u8,
}

/// The role of a row or a result, which decides its colour. What it says is always written as text as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// Nothing to be seen at once.
    #[default]
    #[serde(rename = "none")]
    Plain,
    /// As it should be.
    Good,
    /// Wrong, failed or slow.
    Bad,
    /// Missing or not decided.
    Unsure,
    /// Not measured at all.
    #[serde(rename = "none")]
    Synthetic,
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its role.
    pub tone: Tone,
    /// A text for each column; texts that are missing are empty.
    pub cells: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows; empty where the text before it says so.
    pub title: String,
    /// Level of the title as a heading.
    pub level: u8,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// A sentence below it; empty for none.
    pub note: String,
    /// Where all rows are, if a page has no room for them.
    pub elsewhere: String,
    /// Whether a page collapses it.
    pub folded: bool,
}

impl Column {
    /// Priority of columns that only pages show, without a remark on a terminal.
    pub const PAGES_ONLY: u8 = u8::MAX;

    /// A column of words. `expendable` is its priority of being left out, the highest first; 0 is never left out.
    pub const fn left(heading: &'static str, expendable: u8) -> Column {
        Column { heading, unit: "", is_number: false, is_status: false, expendable }
    }

    /// A column of numbers.
    pub const fn right(heading: &'static str, expendable: u8) -> Column {
        Column { is_number: true, ..Column::left(heading, expendable) }
    }

    /// The same with a unit, which a terminal writes below the heading.
    pub const fn in_unit(self, unit: &'static str) -> Column {
        Column { unit, ..self }
    }

    /// The same as the column whose cells have the colour of their row's tone.
    pub const fn of_status(self) -> Column {
        Column { is_status: true, ..self }
    }

    /// The heading with its unit, on one line.
    pub fn heading_on_page(&self) -> String {
        if self.unit.is_empty() { self.heading.to_owned() } else { format!("{}, {}", self.heading, self.unit) }
    }
}

/// Rows, and one after another the fields that a table shows of each: a column and what it shows of a row.
pub struct Fields<'a, R> {
    rows: Vec<R>,
    fields: Vec<Field<'a, R>>,
}

struct Field<'a, R> {
    column: Column,
    cell: Box<dyn Fn(&R) -> String + 'a>,
}

impl<'a, R> Fields<'a, R> {
    /// No field yet.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Fields<'a, R> {
        Fields { rows: rows.into_iter().collect(), fields: Vec::new() }
    }

    /// Then a column of words.
    pub fn left<T: Display>(self, heading: &'static str, expendable: u8, cell: impl Fn(&R) -> T + 'a) -> Self {
        self.column(Column::left(heading, expendable), cell)
    }

    /// Then a column of numbers.
    pub fn right<T: Display>(self, heading: &'static str, expendable: u8, cell: impl Fn(&R) -> T + 'a) -> Self {
        self.column(Column::right(heading, expendable), cell)
    }

    /// Then this column.
    pub fn column<T: Display>(mut self, column: Column, cell: impl Fn(&R) -> T + 'a) -> Self {
        self.fields.push(Field { column, cell: Box::new(move |row| cell(row).to_string()) });
        self
    }

    /// Then these fields, where the condition holds.
    pub fn when(self, holds: bool, fields: impl FnOnce(Self) -> Self) -> Self {
        if holds { fields(self) } else { self }
    }

    /// All of it as a table.
    pub fn table(self, title: impl Into<String>) -> Table {
        self.toned(title, |_| Tone::Plain)
    }

    /// As a table whose rows have a tone.
    pub fn toned(self, title: impl Into<String>, tone: impl Fn(&R) -> Tone) -> Table {
        let columns: Vec<Column> = self.fields.iter().map(|field| field.column).collect();
        let cells = |row: &R| self.fields.iter().map(|field| (field.cell)(row)).collect();
        Table::new(title, &columns, self.rows.iter().map(|row| Row { tone: tone(row), cells: cells(row) }))
    }
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Row {
        Row { tone: Tone::Plain, cells }
    }
}

impl Row {
    /// A row with a role.
    pub fn toned(tone: Tone, cells: Vec<String>) -> Row {
        Row { tone, cells }
    }
}

impl Table {
    /// A table.
    pub fn new<R: Into<Row>>(title: impl Into<String>, columns: &[Column], rows: impl IntoIterator<Item = R>) -> Table {
        Table {
            title: title.into(),
            level: 2,
            columns: columns.to_vec(),
            rows: rows.into_iter().map(Into::into).collect(),
            note: String::new(),
            elsewhere: String::new(),
            folded: false,
        }
    }

    /// The same with another column, of a cell for each row.
    pub fn with_column(mut self, column: Column, cells: impl IntoIterator<Item = String>) -> Table {
        self.columns.push(column);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.cells.push(cell);
        }
        self
    }

    /// The same without the columns that say the same in every row; what they say goes into the note. Columns of a status stay,
    /// and so does a table of one row.
    pub fn without_columns_that_agree(mut self) -> Table {
        let Some((first, others)) = self.rows.split_first().filter(|(_, others)| !others.is_empty()) else {
            return self;
        };
        let cell = |row: &Row, at: usize| row.cells.get(at).cloned().unwrap_or_default();
        let differs = |at: usize| others.iter().any(|row| row.cells.get(at) != first.cells.get(at));
        let kept: Vec<bool> =
            self.columns.iter().enumerate().map(|(at, column)| column.is_status || differs(at)).collect();
        let is_said = |at: &usize| !kept[*at] && !cell(first, *at).is_empty();
        let agreed = |at: usize| format!("{} {}", self.columns[at].heading_on_page(), cell(first, at));
        let agreed: Vec<String> = (0..self.columns.len()).filter(is_said).map(agreed).collect();
        if !agreed.is_empty() {
            let separator = if self.note.is_empty() { "" } else { " " };
            self.note += &format!("{separator}The same in all rows: {}.", agreed.join("; "));
        }
        let mut keep = kept.iter();
        self.columns.retain(|_| keep.next().is_none_or(|kept| *kept));
        for row in &mut self.rows {
            let mut keep = kept.iter();
            row.cells.retain(|_| keep.next().is_none_or(|kept| *kept));
        }
        self
    }

    /// The same with a sentence below it.
    pub fn noted(self, note: impl Into<String>) -> Table {
        Table { note: note.into(), ..self }
    }

    /// The same, saying where all rows are.
    pub fn whole_in(self, elsewhere: impl Into<String>) -> Table {
        Table { elsewhere: elsewhere.into(), ..self }
    }

    /// The same, collapsed on a page.
    pub fn folded(self) -> Table {
        Table { folded: true, ..self }
    }
}

// Values as the text of cells, the same in every table.

/// A value, or a dash where there is none.
pub fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share in per cent, with this many decimals.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * share)
}

/// A share in per cent, with three digits.
pub fn share(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

/// A share as a change in per cent, with its sign.
pub fn signed_percent(share: f64) -> String {
    let sign = if share >= 0.0 { "+" } else { "" };
    format!("{sign}{} %", three_digits(share * 100.0))
}

/// Bytes in decimal units, as rates have.
pub fn gigabytes(bytes: Bytes) -> String {
    match bytes.0 {
        0..1_000_000 => format!("{} B", bytes.0),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(bytes.0 as f64 * 1e-6)),
        more => format!("{} GB", three_digits(more as f64 * 1e-9)),
    }
}

/// A rate in GB/s without its unit.
pub fn gigabytes_per_second(rate: Rate) -> String {
    three_digits(rate.gigabytes_per_second())
}

/// `low..high`; `n/a` where there is no interval.
pub fn range<T: Display>(interval: Option<Interval<T>>) -> String {
    interval.map_or_else(|| "n/a".to_owned(), |Interval { low, high }| format!("{low}..{high}"))
}

/// `12.3..14.5 ms`, with the unit of the upper end; `n/a` where there is no interval.
pub fn seconds_range(interval: Option<Interval>) -> String {
    interval.map_or_else(|| "n/a".to_owned(), |interval| in_one_unit(interval, ".."))
}

/// `12.3 .. 14.5 ms`, with the unit of the upper end; `not known` where there is no interval.
pub fn seconds_between(span: Span) -> String {
    span.interval.map_or_else(|| "not known".to_owned(), |interval| in_one_unit(interval, " .. "))
}

fn in_one_unit(interval: Interval, between: &str) -> String {
    let (scale, unit) = match interval.high {
        high if high < 1e-6 => (1e9, "ns"),
        high if high < 1e-3 => (1e6, "us"),
        high if high < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{}{between}{} {unit}", three_digits(interval.low * scale), three_digits(interval.high * scale))
}

/// `-1.2 % .. +3.4 %`; a dash where an end is not known.
pub fn signed_bounds(low: Option<f64>, high: Option<f64>) -> String {
    between(low, high, " .. ", signed_percent)
}

/// Both ends, with these dots between; a dash where one is not known.
pub fn between<T>(low: Option<T>, high: Option<T>, dots: &str, shown: impl Fn(T) -> String) -> String {
    optional(low.zip(high).map(|(low, high)| format!("{}{dots}{}", shown(low), shown(high))))
}

#[cfg(test)]
mod tests {
    // What each drawer makes of known documents.
    use super::*;

    const COLUMNS: [Column; 3] = [Column::left("name", 0), Column::right("count", 2), Column::left("remark", 1)];

    fn drawn(blocks: &[Block], width: u16) -> String {
        Terminal::plain(width).draw(blocks)
    }

    fn cells(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn one() -> Table {
        Table::new("", &COLUMNS, [cells(&["one", "1", "a long remark"])])
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_by_priority_and_listed() {
        let blocks = [Block::Table(one())];
        let wide = "name  count  remark\n--------------------------\none       1  a long remark\n";
        assert_eq!(drawn(&blocks, 80), wide);
        let narrow = drawn(&blocks, 20);
        assert!(narrow.ends_with("(columns omitted to fit the width:\n  count)\n"), "{narrow}");
        assert!(narrow.contains("a long remark") && !narrow.contains(" 1"), "{narrow}");
        assert!(drawn(&blocks, 5).contains("omitted to fit the width:\n  count, remark"));
    }

    #[test]
    fn a_table_shows_more_columns_at_140_than_at_80() {
        let word = "x".repeat(36);
        let table = Table::new("Words:", &COLUMNS, [cells(&[&word, &word, &word])]);
        let at = |width| drawn(&[Block::Table(table.clone())], width);
        let rule = |columns: usize| "-".repeat(36 * columns + 2 * (columns - 1));
        let two = format!(
            "Words:\nname{:32}  remark\n{}\n{word}  {word}\n(columns omitted to fit the width: count)\n",
            "",
            rule(2)
        );
        assert_eq!(at(80), two);
        let three = format!("Words:\nname{:32}  {:31}count  remark\n{}\n{word}  {word}  {word}\n", "", "", rule(3));
        assert_eq!(at(140), three);
    }

    #[test]
    fn a_column_of_sentences_keeps_its_width_on_a_page_where_others_want_room() {
        let sentence = "nine of nine replicates are beyond the threshold; and data were not checked";
        let page =
            Html::default().text("", &[Block::Table(Table::new("", &COLUMNS, [cells(&["one", "1", sentence])]))]);
        assert!(page.contains(&format!("<td>one</td><td class=\"n\">1</td><td class=\"t\">{sentence}</td>")), "{page}");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [cells(&["東京", "1", "x"]), cells(&["node", "2", "y"])];
        let table = Block::Table(Table::new("", &COLUMNS, rows));
        let expected = "name  count  remark\n-------------------\n東京      1  x\nnode      2  y\n";
        assert_eq!(drawn(&[table], 80), expected);
        assert_eq!(drawn(&[Block::text("東京 東京 東京")], 10), "東京 東京\n東京\n");
    }

    #[test]
    fn units_are_below_headings_on_a_terminal_and_after_them_on_pages() {
        let columns = [Column::left("call", 0), Column::right("median", 0).in_unit("us")];
        let table = [Block::Table(Table::new("", &columns, [cells(&["all_reduce", "3.12"])]))];
        assert_eq!(
            drawn(&table, 80),
            "call        median\n                us\n------------------\nall_reduce    3.12\n"
        );
        assert_eq!(markdown(&table), "\n| call | median, us |\n| --- | ---: |\n| all\\_reduce | 3.12 |\n");
        assert!(html(&table).contains("<th scope=\"col\" class=\"n\">median, us</th>"));
    }

    #[test]
    fn columns_for_pages_are_silently_absent_from_terminals() {
        let columns = [Column::left("name", 0), Column::left("why", Column::PAGES_ONLY)];
        let table = Table::new("", &columns, [cells(&["one", "because"])]);
        assert_eq!(drawn(&[Block::Table(table.clone())], 80), "name\n----\none\n");
        assert_eq!(markdown(&[Block::Table(table)]), "\n| name | why |\n| --- | --- |\n| one | because |\n");
        let pages = Table::new("title", &columns[1..], [cells(&["because"])]);
        assert_eq!(drawn(&[Block::Table(pages), Block::text("end")], 80), "end\n");
    }

    #[test]
    fn an_empty_table_has_its_headings_and_an_empty_list_is_nothing() {
        let blocks = [
            Block::Table(Table::new("Nothing", &COLUMNS[..1], Vec::<Row>::new())),
            Block::list(Vec::<String>::new()),
            Block::text("end"),
        ];
        assert_eq!(drawn(&blocks, 80), "Nothing\nname\n----\n\nend\n");
        assert_eq!(markdown(&blocks), "\n## Nothing\n\n| name |\n| --- |\n\nend\n");
        assert!(html(&blocks).contains("<tbody></tbody></table></div>\n<p>end</p>"));
    }

    #[test]
    fn markup_and_control_characters_are_escaped_by_every_drawer() {
        const HOSTILE: &str = "a|b <i>*x*</i> & \"'\u{1b}[31m\u{202e}";
        let blocks = [
            Block::heading(HOSTILE),
            Block::list([HOSTILE]),
            Block::Facts(vec![Fact::new(HOSTILE, HOSTILE)]),
            Block::Table(Table::new(HOSTILE, &COLUMNS[..1], [cells(&[HOSTILE])])),
            Block::Command(HOSTILE.to_owned()),
        ];
        for text in [drawn(&blocks, 80), markdown(&blocks), html(&blocks)] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        }
        let page = markdown(&blocks);
        assert!(page.contains("| a\\|b &lt;i&gt;\\*x\\*&lt;/i&gt; &amp; \"'\\\\u{1b}\\[31m"), "{page}");
        assert!(!page.contains("<i>"), "{page}");
        let html = html(&blocks);
        assert!(html.contains("<td>a|b &lt;i&gt;*x*&lt;/i&gt; &amp; &quot;&#39;\\u{1b}[31m\\u{202e}</td>"), "{html}");
        assert!(!html.contains("<i>"), "{html}");
    }

    #[test]
    fn a_document_reads_on_a_terminal_and_as_markdown() {
        let blocks = [
            Block::Alarm("SYNTHETIC".to_owned()),
            Block::Facts(vec![Fact::new("run", "1"), Fact::new("backend", "mpi")]),
            Block::Table(Table { title: "Rows:".to_owned(), ..one() }.noted("a note")),
            Block::list(["below the table"]),
            Block::marked(Mark::Alarm, ["careful"]),
            Block::Narrow(vec![Block::heading("Why:"), Block::list(["because"])]),
            Block::heading("Notes"),
            Block::marked(Mark::Number, ["first", "second of two that is wrapped"]),
            Block::Command("commgauge show".to_owned()),
            Block::apart(Mark::Dash, ["found"]),
            Block::Strong("1 case".to_owned()),
        ];
        let terminal = "SYNTHETIC\n\nrun      1\nbackend  mpi\n\nRows:\nname  remark\n-------------------\none   a long remark\n\
                    (columns omitted to fit the width:\n  count)\na note\nbelow the table\n! careful\n\nWhy:\nbecause\n\nNotes\n\
                    [1] first\n[2] second of two that\n    is wrapped\n  next: commgauge show\n\n- found\n\n1 case\n";
        assert_eq!(drawn(&blocks, 22), terminal);
        let page = "\n**SYNTHETIC**\n\n* **run**: 1\n* **backend**: mpi\n\n## Rows\n\n| name | count | remark |\n| --- | ---: | --- |\n\
                | one | 1 | a long remark |\n\na note\n\n* below the table\n* careful\n\n## Notes\n\n* \\[1\\] first\n\
                * \\[2\\] second of two that is wrapped\n* next: `commgauge show`\n* found\n\n1 case\n";
        assert_eq!(markdown(&blocks), page);
    }

    #[test]
    fn only_the_cells_of_a_status_have_the_colour_of_their_row() {
        let columns = [Column::left("name", 0), Column::left("check", 0).of_status(), Column::left("end", 0)];
        let rows =
            [(Tone::Bad, "WRONG"), (Tone::Plain, "-")].map(|(tone, check)| Row::toned(tone, cells(&["x", check, "y"])));
        let table = [Block::Table(Table::new("", &columns, rows))];
        let colored = Terminal::new(80, crate::report::text::Paint::Colors).draw(&table);
        assert!(colored.contains("x     \u{1b}[31mWRONG\u{1b}[39m  y\nx     -      y\n"), "{colored:?}");
        assert!(!drawn(&table, 80).contains('\u{1b}'));
        assert!(html(&table).contains("<tr class=\"bad\"><td>x</td>"));
    }

    #[test]
    fn a_page_has_every_row_and_the_outliers_first() {
        let mut rows: Vec<Row> = (0..1500).map(|row| vec![row.to_string(), "<b>".to_owned()].into()).collect();
        rows[1400].tone = Tone::Bad;
        let table = Table::new("many", &COLUMNS[..2], rows).whole_in("the CSV has every row").folded();
        let page = html(&[Block::Table(table.clone())]);
        assert!(page.starts_with("<details><summary>many</summary>") && page.matches("<tr").count() == 251, "{page}");
        assert!(page.contains("<tbody><tr class=\"bad\"><td>1400</td>"), "{page}");
        assert!(page.contains("<summary>1250 more rows, as text</summary><pre>\tname\tcount\n"), "{page}");
        for row in (0..1500).filter(|row| *row != 1400) {
            let as_row = page.contains(&format!("<tr><td>{row}</td><td class=\"n\">&lt;b&gt;</td>"));
            assert!(as_row != page.contains(&format!("\n\t{row}\t&lt;b&gt;\n")), "row {row} is there once");
        }
        assert!(!page.contains("the CSV has every row"), "nothing is left out");
        assert_eq!(markdown(&[Block::Table(table)]).lines().count(), 1500 + 5);
    }

    #[test]
    fn what_a_page_has_no_room_for_is_said_before_the_rows() {
        let rows = (0..12_001).map(|row| vec![row.to_string()]);
        let table = Table::new("many", &COLUMNS[..1], rows).whole_in("the CSV has every row");
        let page = html(&[Block::Table(table)]);
        let alarm = "<p class=\"alarm\">12000 of 12001 rows, those that stand out first; the CSV has every row</p>";
        assert!(page.starts_with(alarm), "{}", &page[..200]);
        assert!(page.contains("\t11999\n") && !page.contains("12000\n"));
    }

    #[test]
    fn no_two_headings_of_a_page_are_alike() {
        let table = || Block::Table(Table::new("per step:", &COLUMNS[..1], [cells(&["x"])]));
        let fold = || Block::folded("a step", vec![Block::heading("time"), table(), table()]);
        let mut page = Html::default();
        let text = page.text("one", &[Block::heading("time"), table(), fold(), fold()]) + &page.text("two", &[table()]);
        let mut heads: Vec<&str> = Vec::new();
        for tag in ["h3", "summary", "caption"] {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            heads.extend(text.split(&open).skip(1).filter_map(|rest| Some(rest.split_once(&close)?.0)));
        }
        let different: std::collections::HashSet<&&str> = heads.iter().collect();
        assert_eq!(heads.len(), different.len(), "{heads:?}");
        for expected in ["time (a step)", "per step (time (a step))", "a step (time)", "per step (two)"] {
            assert!(heads.contains(&expected), "{expected} in {heads:?}");
        }
    }

    #[test]
    fn columns_that_agree_are_said_once() {
        let table =
            || Table::new("", &COLUMNS, [cells(&["one", "1", "x"]), cells(&["two", "1", "x"])]).noted("A note.");
        let shorter = table().without_columns_that_agree();
        assert_eq!(shorter.columns, COLUMNS[..1]);
        assert_eq!(shorter.rows[1].cells, ["two"]);
        assert_eq!(shorter.note, "A note. The same in all rows: count 1; remark x.");
        let one = Table { rows: table().rows[..1].to_vec(), ..table() };
        assert_eq!(one.clone().without_columns_that_agree(), one);
    }
}
