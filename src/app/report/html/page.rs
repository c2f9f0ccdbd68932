//! The page as data: sections of blocks, each a paragraph, a list, a table or charts; and the template that writes them.
//!
//! Every text is a [`Shown`], which has its control characters removed on construction, and is escaped by the template.

use crate::chart::{STYLE, Svg};
use crate::report::text::visible;
use askama::Template;
use base64::Engine;
use commgauge_base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt;

/// Maximum number of rows of a table; further ones are only counted.
const MAX_ROWS: usize = 1_000;

/// A text without control and format characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown(String);

impl<T: AsRef<str>> From<T> for Shown {
    fn from(text: T) -> Shown {
        Shown(visible(text.as_ref()))
    }
}

impl Shown {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The whole page.
#[derive(Debug, Template)]
#[template(path = "report.html")]
pub(super) struct Page {
    pub title: Shown,
    pub subtitle: Shown,
    pub synthetic: bool,
    pub sections: Vec<Section>,
    pub footer: Shown,
    style: String,
    style_sha256_base64: String,
}

/// A part of the page with a heading.
#[derive(Debug)]
pub(super) struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub blocks: Vec<Block>,
}

/// What sections are made of.
#[derive(Debug)]
pub(super) enum Block {
    /// Results in large letters.
    Badges(Vec<Badge>),
    Heading(Shown),
    Text(Shown),
    /// The reason why a part is missing.
    Absent(Shown),
    List(Vec<Shown>),
    Command(Shown),
    Facts(Vec<(Shown, Shown)>),
    Table(Table),
    /// A collapsed table.
    Folded(Table),
    /// Begin of a collapsed part, up to the next [`Block::FoldEnd`]; see [`folded`].
    FoldBegin(Shown),
    FoldEnd,
    Charts(Vec<Figure>),
}

/// A result in large letters.
#[derive(Debug)]
pub(super) struct Badge {
    /// `good`, `bad`, `unsure` or `none`.
    pub tone: &'static str,
    pub question: Shown,
    pub answer: Shown,
    pub detail: Shown,
}

/// A picture.
#[derive(Debug)]
pub(super) struct Figure {
    svg: String,
    name: Shown,
    wide: bool,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    caption: Shown,
    columns: Vec<(&'static str, bool)>,
    rows: Vec<TableRow>,
    note: Shown,
}

/// A row of a table.
#[derive(Debug)]
pub(super) struct TableRow {
    tone: &'static str,
    cells: Vec<Shown>,
}

impl Page {
    pub fn new(title: &str, subtitle: &str, synthetic: bool, sections: Vec<Section>, footer: &str) -> Page {
        let style = format!("{STYLE}{}", include_str!("../../../../reports/templates/report.css"));
        let style_sha256_base64 = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&style));
        let (title, subtitle, footer) = (title.into(), subtitle.into(), footer.into());
        Page { title, subtitle, synthetic, sections, footer, style, style_sha256_base64 }
    }

    pub fn text(&self) -> Result<String> {
        self.render().map_err(|cause| Error::environment(format!("cannot write the report as HTML: {cause}")))
    }
}

/// Blocks in a collapsed part with a summary line, so that a page with many charts stays clear.
pub(super) fn folded(summary: impl AsRef<str>, blocks: Vec<Block>) -> Vec<Block> {
    let begin = std::iter::once(Block::FoldBegin(summary.into()));
    begin.chain(blocks).chain(std::iter::once(Block::FoldEnd)).collect()
}

impl Block {
    pub fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Block {
        Block::List(items.into_iter().map(Shown::from).collect())
    }

    pub fn text(text: impl AsRef<str>) -> Block {
        Block::Text(text.into())
    }

    pub fn heading(text: impl AsRef<str>) -> Block {
        Block::Heading(text.into())
    }

    pub fn absent(text: impl AsRef<str>) -> Block {
        Block::Absent(text.into())
    }
}

impl Figure {
    /// A picture that shares its row with others.
    pub fn new(name: &str, svg: &Svg) -> Figure {
        Figure { svg: svg.inline(), name: name.into(), wide: false }
    }

    /// A picture over the whole width, scrollable where it is wider.
    pub fn wide(name: &str, svg: &Svg) -> Figure {
        Figure { wide: true, ..Figure::new(name, svg) }
    }
}

impl Table {
    /// A table without rows; number columns are aligned to the right.
    pub fn new(caption: impl AsRef<str>, columns: &[(&'static str, bool)]) -> Table {
        Table { caption: caption.into(), columns: columns.to_vec(), rows: Vec::new(), note: Shown::default() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.row_toned("", cells);
    }

    /// A highlighted row: `bad` or `unsure`.
    pub fn row_toned(&mut self, tone: &'static str, cells: Vec<String>) {
        self.rows.push(TableRow { tone, cells: cells.into_iter().map(Shown::from).collect() });
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Limits the number of rows, keeping highlighted ones first, and notes the total number and where the others are.
    pub fn capped(mut self, elsewhere: &str) -> Table {
        let all = self.rows.len();
        if all > MAX_ROWS {
            let (toned, plain): (Vec<TableRow>, Vec<TableRow>) =
                self.rows.into_iter().partition(|row| !row.tone.is_empty());
            self.rows = toned.into_iter().chain(plain).take(MAX_ROWS).collect();
            self.note = Shown::from(format!("{MAX_ROWS} of {all} rows, those that stand out first; {elsewhere}"));
        }
        self
    }

    pub fn noted(mut self, note: impl AsRef<str>) -> Table {
        self.note = note.into();
        self
    }

    fn is_number(&self, column: &usize) -> bool {
        self.columns.get(*column).is_some_and(|column| column.1)
    }
}
