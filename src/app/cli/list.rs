//! `commgauge list`: names that can be used in files and flags, one line each.
//!
//! `list/gather` collects the entries with the same functions and definitions that the other commands use.

mod document;
mod facts;
mod gather;
mod table;
#[cfg(test)]
mod tests;

pub(super) use document::schema;

use super::table_or_json::AnswerArguments;
use commgauge_base::error::Result;
use document::ListDocument;

/// List what there is to name in files and flags, one line each; without an argument how many there are of each kind
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "commgauge list models\ncommgauge list machines --format json\n\nFiles in suites/ of the working directory win over the embedded ones; `commgauge show` prints those."
)]
pub struct ListCommand {
    /// Of which kind
    #[arg(value_enum)]
    pub kind: Option<Kind>,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

/// A kind of things that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Communication calls, as in `collectives` of a [[sweep]]
    Collectives,
    /// Dimensions of a layout, whose groups communicate
    Axes,
    /// Parallel styles, as in `styles` of a [[layout]]
    Styles,
    /// Pipeline schedules, as in `schedule` of [training]
    Schedules,
    /// Shipped suites, for `commgauge run`
    Suites,
    /// Shipped models, for --model and `preset`
    Models,
    /// Shipped machine files, for --machine
    Machines,
    /// Formats that are written and read, and by which commands
    Formats,
    /// Who can carry calls out, for --backend
    Backends,
}

impl ListCommand {
    /// Collects the entries and prints them.
    pub fn execute(&self) -> Result<i32> {
        let document = ListDocument::of(self.kind);
        self.shown.show(&document, |width| table::text(&document, self.kind, width))?;
        Ok(0)
    }
}
