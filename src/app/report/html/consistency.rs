//! Calls that are inconsistent with other calls of the same run.

use super::input::HtmlInput;
use crate::report::document::Block;
use crate::report::verdict::{coverage, findings};

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let verdict = match &input.consistency {
        Ok(verdict) => *verdict,
        Err(reason) => return vec![Block::absent(format!("Not looked for: {reason}"))],
    };
    let mut blocks = vec![
        Block::text(
            "No call should take longer than others that together do the same: two of half the size, one of more bytes, \
             reduce_scatter and all_gather for all_reduce. Where one does, the library chose badly or something disturbed it.",
        ),
        Block::list(coverage(verdict)),
    ];
    blocks.extend(findings(verdict));
    blocks.push(Block::list(&verdict.rule));
    blocks
}
