//! What a report is made of, whatever it is written for: headings, sentences, tables and charts as plain data.
//!
//! A subject becomes a list of [`Block`]s once. `terminal`, `markdown` and `html` draw them; fitting to a width, escaping and
//! colours are theirs alone.

mod format;
mod html;
mod html_table;
mod markdown;
mod markup;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

pub use format::{
    gigabytes, gigabytes_per_second, optional, percent, range, seconds_between, seconds_range, share, signed_bounds,
    signed_percent,
};
pub use html::Html;
#[cfg(test)]
use html::html;
pub use markdown::{escaped as escaped_markdown, markdown};
pub use table::{Column, Row, Table, Tone};
pub(super) use terminal::widths;
pub use terminal::{GAP, TableLayout, Terminal, table, wrapped};

use crate::chart::Svg;

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
    /// Results in large letters, for pages alone.
    Badges(Vec<Badge>),
    /// Blocks below a summary; collapsed on a page that can do so.
    Folded(Folded),
    /// What pages show in columns for which a terminal has no room.
    Narrow(Vec<Block>),
}

/// A heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// 2 for a part of a document, 3 below it.
    pub level: u8,
    /// The text.
    pub text: String,
}

/// A text and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is about; empty where it goes on with the fact before.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
