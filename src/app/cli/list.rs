//! `commgauge list`: names that can be used in files and flags, one line each.
//!
//! `list/gather` collects the entries with the same functions and definitions that the other commands use.

mod document;
mod facts;
mod gather;
mod kind;
mod table;
#[cfg(test)]
mod tests;

pub(super) use document::schema;

use super::table_or_json::AnswerArguments;
use commgauge_base::error::Result;
use document::ListDocument;
pub use kind::Kind;

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

impl ListCommand {
    /// Collects the entries and prints them; the formats are those of the flags of these programs.
    pub fn execute(&self, programs: &[clap::Command]) -> Result<i32> {
        let document = ListDocument::of(self.kind, programs);
        self.shown.show(&document, |width| table::text(&document, self.kind, width))?;
        Ok(0)
    }
}
