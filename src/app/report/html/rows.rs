//! Every row of every record, and every matrix product, up to the limit of a page.

use super::input::{HtmlInput, HtmlRun};
use crate::report::document::Block;
use crate::report::products;
use crate::report::table::{Notes, cases};

/// The section of all rows.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks: Vec<Block> =
        input.runs.iter().enumerate().flat_map(|(index, run)| of_run(input, index, run)).collect();
    blocks.push(Block::text(
        "Raw samples, histograms of each rank and the whole provenance are in the record itself; `commgauge report --format csv` and \
         `--format json` have every row in base units.",
    ));
    blocks
}

fn of_run(input: &HtmlInput, index: usize, run: &HtmlRun) -> Vec<Block> {
    let mut notes = Notes::default();
    let elsewhere = format!("`commgauge report {} --format csv` has every row", run.name);
    let folded = |block: Block| match block {
        Block::Table(table) => Block::Table(table.folded().whole_in(&elsewhere)),
        other => other,
    };
    let rows: Vec<Block> = cases(&run.view, &mut notes).into_iter().map(folded).collect();
    heading(input, index, run).into_iter().chain(rows).chain(notes.document()).collect()
}

/// The section of matrix products.
pub(super) fn products(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        if let Some(products) = products::document(&run.view.products, run.view.header.backend.synthetic) {
            blocks.extend(heading(input, index, run).into_iter().chain([products]));
        }
    }
    blocks
}

/// Which run it is, where there are several.
fn heading(input: &HtmlInput, index: usize, run: &HtmlRun) -> Option<Block> {
    (input.runs.len() > 1).then(|| Block::heading(format!("Run {}, {}", index + 1, run.name)))
}
