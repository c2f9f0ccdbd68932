//! Suspects and next steps; without a search for suspects, the findings of pairs and arrivals alone.

use super::input::HtmlInput;
use crate::report::document::{Block, Table};
use crate::report::locate;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = match &input.suspects {
        Ok(suspects) => {
            let located = locate::located(suspects).into_iter().map(titled);
            std::iter::once(Block::text(&suspects.answer)).chain(located).collect()
        }
        Err(reason) => vec![Block::absent(format!("No search for culprits could be made: {reason}"))],
    };
    let findings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.findings.all).collect();
    if !findings.is_empty() {
        blocks.push(Block::heading("What the numbers say by themselves"));
        blocks.push(Block::list(findings));
    }
    let warnings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.warnings).collect();
    blocks.push(Block::heading("Warnings"));
    blocks.push(match warnings.is_empty() {
        true => Block::text("None."),
        false => Block::list(warnings),
    });
    blocks
}

/// On a page every table says what it shows.
fn titled(block: Block) -> Block {
    match block {
        Block::Table(table) => {
            Block::Table(Table { title: "Suspects, the strongest evidence first".to_owned(), ..table })
        }
        other => other,
    }
}
