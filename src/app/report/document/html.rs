//! Documents as parts of an HTML page: every text escaped, no two headings alike. Tables are in `html_table`, the page itself is
//! elsewhere.

use super::html_table;
use super::markup::{attribute, escaped};
use super::table::Tone;
use super::{Badge, Block, Fact, Figure, Folded};
use std::collections::HashSet;
use std::fmt::Write;

/// Writes the sections of one page.
#[derive(Debug, Default)]
pub struct Html {
    /// Headings, summaries and captions so far.
    used: HashSet<String>,
    /// The headings that what is written now stands under.
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
                let drawn = html_table::drawn(table, &title);
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
