//! Documents as Markdown, for issues and pages: every text escaped, every table with all columns.

use super::table::Table;
use super::{Block, Fact, Folded};
use crate::report::text::visible;
use std::fmt::Write;

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
        Block::Table(table) => self::table(table),
        Block::Folded(Folded { summary, blocks }) => title(3, summary) + &markdown(blocks),
        Block::Charts(_) | Block::Badges(_) | Block::Narrow(_) => String::new(),
    }
}

fn title(level: u8, text: &str) -> String {
    format!("{} {}\n", "#".repeat(usize::from(level)), escaped(text.trim_end_matches(':')))
}

fn table(table: &Table) -> String {
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
