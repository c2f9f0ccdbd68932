//! `commgauge ops`: lists all communication of one step of a model, op by op, without a launch.

mod document;
#[cfg(test)]
mod tests;
mod text;

pub use document::{OpsDocument, schema};

use super::places::report_resolved_file;
use super::step::StepFlags;
use super::step::style_name::parse_style;
use super::step::without_effect::sentences;
use super::table_or_json::AnswerArguments;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::config::Shipped;
use commgauge_model::config::step::ModelWork;
use commgauge_model::layout::{Degrees, MOST_RANKS};
use commgauge_model::workload::Style;
use commgauge_model::workload::step::Step;
use std::path::Path;
use std::sync::Arc;

/// List every communication of a training or serving step: bytes, counts, what hides it, and why
///
/// commgauge ops --model llama-3-70b --tp 8 --pp 4 --dp 4 --sequence 8192 --global-batch 512 --sequence-parallel
///
/// Bytes are shown for the rank that each axis loads most; --stage shows the ranks of one pipeline stage instead.
#[derive(Clone, Debug, clap::Args)]
pub struct OpsCommand {
    #[command(flatten)]
    step: StepFlags,

    /// Number of ranks, where --dp is left out [default: those of dp 1]
    #[arg(long, visible_alias = "world", value_name = "N", help_heading = "Layout")]
    ranks: Option<u32>,

    /// Show the ranks of this pipeline stage [default: the rank that each axis loads most]
    #[arg(long, value_name = "N")]
    stage: Option<u32>,

    /// Only these styles, a list with commas: tensor, sequence, vocabulary, data, pipeline, context, expert, control, serving
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_style)]
    style: Vec<Style>,

    /// How the answer is shown.
    #[command(flatten)]
    shown: AnswerArguments,
}

impl OpsCommand {
    /// Builds the list and prints it.
    pub fn execute(&self) -> Result<i32> {
        let document = self.document()?;
        report_resolved_file(Shipped::Model, Path::new(self.step.model.as_deref().unwrap_or_default()));
        self.notes(&document.groups.degrees)?.iter().for_each(|note| eprintln!("note: {note}"));
        self.shown.show(&document, |width| text::text(&document, width))?;
        Ok(0)
    }

    pub(super) fn document(&self) -> Result<OpsDocument> {
        let ranks = self.ranks()?;
        let table = self.step.table(ranks)?;
        let steps = Step::all_of(&table, ranks)?;
        let step = match steps.as_slice() {
            [step] => step,
            _ => return Err(Error::usage("--serve: one phase can be listed at a time; accepted: prefill or decode")),
        };
        let wanted = |style| self.style.is_empty() || self.style.contains(&style);
        OpsDocument::new(step, self.stage, wanted)
    }

    /// Flags that change nothing here.
    fn notes(&self, degrees: &Degrees) -> Result<Vec<String>> {
        let table = self.step.table(self.ranks()?)?;
        let sentences = |work: &Arc<ModelWork>| sentences(&self.step.given_of_model(), degrees, &work.model);
        Ok(table.work.as_ref().map(sentences).unwrap_or_default())
    }

    fn ranks(&self) -> Result<u32> {
        match self.ranks {
            Some(ranks) if (1..=MOST_RANKS).contains(&ranks) => Ok(ranks),
            Some(ranks) => Err(Error::usage(format!("--ranks: found {ranks}; accepted: 1 to {MOST_RANKS}"))),
            None => self.step.ranks(),
        }
    }
}
