//! Calls that are inconsistent with other calls of the same run.

use super::HtmlInput;
use super::page::{Block, Table};
use crate::report::verdict::coverage;
use commgauge_base::units::three_digits;

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
    if !verdict.findings.is_empty() {
        let columns = [
            ("finding", false),
            ("over what is allowed", true),
            ("at least", true),
            ("p corrected", true),
            ("chance", false),
        ];
        let mut table = Table::new("Rules of self-consistency that calls break, the worst first", &columns);
        let over = |times: f64| format!("+{} %", three_digits(100.0 * (times - 1.0)));
        for finding in &verdict.findings {
            let cells = vec![
                finding.text.clone(),
                over(finding.times_allowed),
                finding.times_allowed_lower_bound.map_or_else(
                    || "too few replicates".to_owned(),
                    |low| if low > 1.0 { over(low) } else { "nothing".to_owned() },
                ),
                three_digits(finding.p_corrected),
                if finding.certain { "ruled out" } else { "not ruled out" }.to_owned(),
            ];
            table.row_toned(if finding.certain { "bad" } else { "" }, cells);
        }
        let capped = table.capped("`commgauge compare RECORD --format json` has every finding");
        // A short list is read at once, a long one when it is requested.
        blocks.push(if verdict.findings.len() > MAX_OPEN { Block::Folded(capped) } else { Block::Table(capped) });
    }
    blocks.push(Block::list(&verdict.rule));
    blocks
}

/// Findings that are shown without a click.
const MAX_OPEN: usize = 8;
