//! The report as one HTML file, to be sent to those who fix the machine.
//!
//! [`html`] gathers sections of plain data; `page` writes them. The file needs no network, reads without its script, and is the
//! same for the same input: it has no timestamp of its creation.

mod answer;
mod comparison;
mod consistency;
mod cost;
mod curves;
mod groups;
mod histograms;
mod input;
mod next_command;
pub(super) mod page;
mod pair_reference;
mod pairs;
mod rows;
mod runs;
mod step;
mod suspects;
#[cfg(test)]
mod tests;
mod verdict;

pub use input::{HtmlInput, HtmlRun};

use super::view::View;
use answer::Answer;
use commgauge_analysis::planner::plan_document::PlanDocument;
use commgauge_base::error::Result;
use page::{Page, Section};

/// A plan as the text of a file.
///
/// # Errors
/// An environment error where the page cannot be written.
pub fn plan_page(plan: &PlanDocument) -> Result<String> {
    let title = format!("A plan for {}", plan.model);
    let subtitle = format!("{} GPUs, {} samples of {} tokens a step", plan.gpus, plan.global_batch, plan.sequence);
    let section = Section::new("plan", "Layouts", super::plan::blocks(plan));
    Page::new(&title, &subtitle, plan.synthetic, vec![section], "commgauge plan").text()
}

/// The report as the text of a file.
///
/// # Errors
/// An environment error where the page cannot be written.
pub fn html(input: &HtmlInput) -> Result<String> {
    let Some(first) = input.runs.first() else { return Ok(String::new()) };
    let header = &first.view.header;
    let Answer { words, heading, blocks } = Answer::of(input);
    let mut sections = vec![
        Section::new("answer", heading, blocks),
        Section::new("verdict", "Verdict and coverage", verdict::blocks(input)),
        Section::new("suspects", "Suspects and next steps", suspects::blocks(input)),
        Section::new("provenance", "Provenance", runs::blocks(input)),
    ];
    let has_model = |view: &View| !view.steps.is_empty() || !view.replays.is_empty() || view.ranking.is_some();
    if input.runs.iter().any(|run| has_model(&run.view)) {
        sections.push(Section::new("model", "The model's communication", step::blocks(input)));
    }
    sections.push(Section::new("curves", "Bandwidth and latency", curves::blocks(input)));
    if input.runs.iter().any(|run| !run.view.products.is_empty()) {
        sections.push(Section::new("products", "Matrix products", rows::products(input)));
    }
    if input.runs.iter().any(|run| !run.view.copies.is_empty()) {
        sections.push(Section::new("copies", "Copies between hosts and GPUs", rows::copies(input)));
    }
    sections.push(Section::new("consistency", "Self-consistency", consistency::blocks(input)));
    sections.push(Section::new("pairs", "Pairs of ranks", pairs::blocks(first, input.verdict)));
    sections.push(Section::new("late", "Late ranks", runs::late(first)));
    sections.push(Section::new("cost", "Cost model", cost::blocks(input)));
    sections.push(Section::new("base", "Against the base", comparison::blocks(input)));
    sections.push(Section::new("rows", "All rows", rows::blocks(input)));
    let model = header.suite.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    let title = format!("{}{model}", header.suite.name);
    let runs = match input.runs.len() {
        1 => String::new(),
        count => format!("{count} runs, the first "),
    };
    let subtitle = format!(
        "{runs}{} · {} ranks · {} · {}",
        header.started(),
        header.world_size,
        header.backend.library,
        first.name
    );
    let synthetic = input.runs.iter().chain(input.base).any(|run| run.view.header.backend.synthetic);
    let footer = format!(
        "commgauge {}. GB is 10^9 bytes; sizes are binary. Tables behind the charts open with a click, and on paper all are open.",
        env!("CARGO_PKG_VERSION")
    );
    Page::new(&title, &subtitle, synthetic, sections, &footer).answering(&words).text()
}
