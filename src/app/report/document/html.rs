//! Documents as parts of an HTML page: every text escaped, long tables cut and collapsed. The page itself is elsewhere.

use super::table::{Row, Table, Tone};
use super::{Badge, Block, Figure, Folded};
use crate::report::text::visible;
use std::fmt::Write;

/// Maximum number of rows of a table; further ones are only counted.
const MAX_ROWS: usize = 1_000;

/// The document, in a section of a page whose heading is of level 2.
pub fn html(blocks: &[Block]) -> String {
    blocks.iter().map(drawn).collect()
}

fn drawn(block: &Block) -> String {
    match block {
        Block::Heading(heading) => {
            let level = heading.level + 1;
            format!("<h{level}>{}</h{level}>\n", escaped(heading.text.trim_end_matches(':')))
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
        Block::Toml(text) => command(&text.lines().map(|line| escaped(line) + "\n").collect::<String>()),
        Block::Facts(facts) => {
            let one = |(label, text): &(String, String)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>", escaped(label), escaped(text))
            };
            format!("<dl>{}</dl>\n", facts.iter().map(one).collect::<String>())
        }
        Block::Table(table) if table.folded => {
            format!("<details><summary>{}</summary>{}</details>\n", escaped(&table.title), self::table(table))
        }
        Block::Table(table) => self::table(table) + "\n",
        Block::Charts(figures) => charts(figures),
        Block::Badges(badges) => {
            format!("<div class=\"badges\">{}</div>\n", badges.iter().map(badge).collect::<String>())
        }
        Block::Folded(Folded { summary, blocks }) => format!(
            "<details class=\"group\"><summary>{}</summary><div class=\"folded\">\n{}</div></details>\n",
            escaped(summary),
            html(blocks)
        ),
        Block::Narrow(_) => String::new(),
    }
}

/// A text without control characters, and without the characters of markup.
fn escaped(text: &str) -> String {
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

fn element(name: &str, class: &str, text: &str) -> String {
    format!("<{name}{}>{}</{name}>\n", attribute("class", class), escaped(text))
}

/// An attribute; none where its value is empty.
fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
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

fn charts(figures: &[Figure]) -> String {
    let single = if figures.len() == 1 { " single" } else { "" };
    let mut out = format!("<div class=\"charts{single}\">");
    for figure in figures {
        let (class, reachable) = match figure.wide {
            true => ("wide", format!(" tabindex=\"0\" role=\"region\" aria-label=\"{}\"", escaped(&figure.name))),
            false => ("", String::new()),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<figure{}><div class=\"scroll\"{reachable}>{}</div></figure>",
            attribute("class", class),
            figure.svg.inline()
        );
    }
    out + "</div>\n"
}

fn table(table: &Table) -> String {
    let title = escaped(&table.title);
    let class = |index: usize| {
        let is_number = table.columns.get(index).is_some_and(|column| column.is_number());
        if is_number { " class=\"n\"" } else { "" }
    };
    let mut out = format!(
        "<div class=\"scroll table\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<caption>{title}</caption>\n<thead><tr>"
    );
    for (index, column) in table.columns.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(index), escaped(&column.heading_on_page()));
    }
    out += "</tr></thead>\n<tbody>";
    for row in first_rows(&table.rows) {
        let _ = write!(out, "<tr{}>", attribute("class", row_class(row.tone)));
        for (index, cell) in row.cells.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(index), escaped(cell));
        }
        out += "</tr>\n";
    }
    out += "</tbody></table></div>";
    let cut = (table.rows.len() > MAX_ROWS)
        .then(|| format!("{MAX_ROWS} of {} rows, those that stand out first; {}", table.rows.len(), table.elsewhere));
    for note in cut.iter().chain([&table.note]).filter(|note| !note.is_empty()) {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    out
}

/// All rows; of very many, those that stand out come first and the last ones are left out.
fn first_rows(rows: &[Row]) -> Vec<&Row> {
    if rows.len() <= MAX_ROWS {
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
