//! Documents as parts of an HTML page: every text escaped, no two headings alike. Tables are in `html_table`, the page itself is
//! elsewhere.

use super::{Badge, Block, Fact, Figure, Folded, Row, Table, Tone};
use crate::report::text::visible;
use std::collections::HashSet;
use std::fmt::Write;

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
                format!("<h{level}>{}</h{level}>\n", escaped(&text))
            }
            Block::Paragraph(text) => element("p", "", text),
            Block::Strong(text) => format!("<p><strong>{}</strong></p>\n", escaped(text)),
            Block::Alarm(text) => element("p", "alarm", text),
            Block::Absent(text) => element("p", "absent", text),
            Block::List(list) if list.items.is_empty() => String::new(),
            Block::List(list) => {
                let items: String = list.on_page().map(|item| format!("<li>{}</li>", escaped(&item))).collect();
                format!("<ul class=\"sentences\">{items}</ul>\n")
            }
            Block::Command(text) => command(&escaped(text)),
            Block::Facts(facts) => {
                let one = |Fact { label, text }: &Fact| {
                    format!("<div><dt>{}</dt><dd>{}</dd></div>", escaped(label), escaped(text))
                };
                format!("<dl>{}</dl>\n", facts.iter().map(one).collect::<String>())
            }
            Block::Table(table) => {
                let title = self.unlike(table.title.trim_end_matches(':'));
                let drawn = drawn(table, &title);
                match table.folded {
                    true => format!("<details><summary>{}</summary>{drawn}</details>\n", escaped(&title)),
                    false => drawn + "\n",
                }
            }
            Block::Charts(figures) => charts(figures),
            Block::Badges(badges) => {
                format!("<div class=\"badges\">{}</div>\n", badges.iter().map(badge).collect::<String>())
            }
            Block::Folded(Folded { summary, blocks }) => {
                let summary = self.unlike(summary);
                let around = std::mem::replace(&mut self.under, vec![summary.clone()]);
                let inner = self.all(blocks);
                self.under = around;
                format!(
                    "<details class=\"group\"><summary>{}</summary><div class=\"folded\">\n{inner}</div></details>\n",
                    escaped(&summary)
                )
            }
            Block::Narrow(_) => String::new(),
        }
    }
}

fn element(name: &str, class: &str, text: &str) -> String {
    format!("<{name}{}>{}</{name}>\n", attribute("class", class), escaped(text))
}

fn command(escaped: &str) -> String {
    format!("<pre class=\"command\"><code>{escaped}</code></pre>\n")
}

fn badge(badge: &Badge) -> String {
    let tone = match badge.tone {
        Tone::Plain | Tone::Synthetic => "none",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Unsure => "unsure",
    };
    format!(
        "<div class=\"badge {tone}\"><p class=\"what\">{}</p><p class=\"answer\">{}</p><p class=\"detail\">{}</p></div>",
        escaped(&badge.question),
        escaped(&badge.answer),
        escaped(&badge.detail)
    )
}

/// Each picture with its numbers in words below it, folded, as it has them for screen readers.
fn charts(figures: &[Figure]) -> String {
    let single = if figures.len() == 1 { " single" } else { "" };
    let mut out = format!("<div class=\"charts{single}\">");
    for figure in figures {
        let (class, reachable) = match figure.wide {
            true => ("wide", format!(" tabindex=\"0\" role=\"region\" aria-label=\"{}\"", escaped(&figure.name))),
            false => ("", String::new()),
        };
        let (class, svg, words) = (attribute("class", class), figure.svg.inline(), escaped(figure.svg.summary()));
        // Writing to a string cannot fail.
        let _ = write!(out, "<figure{class}><div class=\"scroll\"{reachable}>{svg}</div>");
        if !words.is_empty() {
            let _ = write!(out, "<figcaption>{words}</figcaption>");
        }
        out += "</figure>";
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

// Text as a part of markup.

/// A text without control characters, and without the characters of markup.
pub(in crate::report) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// An attribute; none where its value is empty.
pub(super) fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
}
