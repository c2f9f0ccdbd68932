//! The report as one HTML file: what an engineer sends to those who have to fix the machine.
//!
//! [`html`] gathers sections of plain data; `page` writes them. The file needs no network and no script, and is the same for
//! the same input: no time of writing is in it.

mod comparison;
mod consistency;
mod cost;
mod curves;
mod groups;
mod histograms;
mod page;
mod pair_reference;
mod pairs;
mod products;
mod rows;
mod runs;
mod step;
mod suspects;
#[cfg(test)]
mod tests;
mod verdict;

use super::view::View;
use crate::cost::Fit;
use crate::error::Result;
use crate::record::Record;
use crate::verdict::locate::Suspects;
use crate::verdict::{Difference, SelfTest, Verdict};
use page::{Page, Section};

/// A record and what is seen in it.
#[derive(Debug)]
pub struct HtmlRun<'a> {
    /// Its file, as it was named.
    pub name: String,
    /// What was recorded.
    pub record: &'a Record,
    /// What is to be shown.
    pub view: View,
    /// In what it differs from the first; shown beside it all the same because that was requested.
    pub differences: Vec<Difference>,
}

/// Everything that goes into a report.
#[derive(Debug)]
pub struct HtmlInput<'a> {
    /// The records, the first in order first; at least one.
    pub runs: &'a [HtmlRun<'a>],
    /// What they are compared with, where that was requested.
    pub base: &'a [HtmlRun<'a>],
    /// The verdict of a machine file's expectations; without it there is nothing expected.
    pub verdict: Option<&'a Verdict>,
    /// The verdict against the base.
    pub comparison: Option<&'a Verdict>,
    /// Whether calls contradict each other, or why that was not asked.
    pub consistency: std::result::Result<&'a Verdict, String>,
    /// How often the rules of the verdicts were seen to err.
    pub selftest: Option<&'a SelfTest>,
    /// The cost model, or why there is none.
    pub fit: std::result::Result<&'a Fit, String>,
    /// Whether the fit was made of these very records.
    pub fit_is_own: bool,
    /// Who is to blame, or why nobody can tell.
    pub suspects: std::result::Result<&'a Suspects, String>,
}

/// The report as the text of a file.
///
/// # Errors
/// An environment error where the page cannot be written.
pub fn html(input: &HtmlInput) -> Result<String> {
    let Some(first) = input.runs.first() else { return Ok(String::new()) };
    let header = &first.view.header;
    let mut sections = vec![
        Section { id: "verdict", title: "Verdict and coverage", blocks: verdict::blocks(input) },
        Section { id: "suspects", title: "Suspects and next steps", blocks: suspects::blocks(input) },
        Section { id: "provenance", title: "Provenance", blocks: runs::blocks(input) },
    ];
    let has_model = |view: &View| !view.steps.is_empty() || !view.replays.is_empty() || view.ranking.is_some();
    if input.runs.iter().any(|run| has_model(&run.view)) {
        sections.push(Section { id: "model", title: "The model's communication", blocks: step::blocks(input) });
    }
    sections.push(Section { id: "curves", title: "Bandwidth and latency", blocks: curves::blocks(input) });
    if input.runs.iter().any(|run| !run.view.products.is_empty()) {
        sections.push(Section { id: "products", title: "Matrix products", blocks: products::blocks(input) });
    }
    sections.push(Section { id: "consistency", title: "Self-consistency", blocks: consistency::blocks(input) });
    sections.push(Section { id: "pairs", title: "Pairs of ranks", blocks: pairs::blocks(first, input.verdict) });
    sections.push(Section { id: "late", title: "Late ranks", blocks: runs::late(first) });
    sections.push(Section { id: "cost", title: "Cost model", blocks: cost::blocks(input) });
    sections.push(Section { id: "base", title: "Against the base", blocks: comparison::blocks(input) });
    sections.push(Section { id: "rows", title: "All rows", blocks: rows::blocks(input) });
    let model = header.suite.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    let title = format!("{}{model}", header.suite.name);
    let runs = match input.runs.len() {
        1 => String::new(),
        count => format!("{count} runs, the first "),
    };
    let subtitle = format!(
        "{runs}{} · {} ranks · {} · {}",
        header.started_at, header.world_size, header.backend.library, first.name
    );
    let synthetic = input.runs.iter().chain(input.base).any(|run| run.view.header.backend.synthetic);
    let footer = format!(
        "commgauge {}. GB is 10^9 bytes; sizes are binary. Tables behind the charts open with a click; print with those open that are to \
         be on paper.",
        env!("CARGO_PKG_VERSION")
    );
    Page::new(&title, &subtitle, synthetic, sections, &footer).text()
}
