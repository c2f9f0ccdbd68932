//! Every row of every record, up to the limit of a page.

use super::HtmlInput;
use super::page::{Block, Table};
use crate::report::row::Status;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() > 1;
    let table = |(index, run): (usize, &super::HtmlRun)| {
        let caption = if several { format!("Rows of run {}, {}", index + 1, run.name) } else { "Rows".to_owned() };
        let columns = [
            ("case", false),
            ("axis", false),
            ("ranks", true),
            ("hosts x ranks", true),
            ("bytes_total", true),
            ("latency", true),
            ("p99", true),
            ("busbw", true),
            ("samples", true),
            ("left out", true),
            ("replicates", true),
            ("status", false),
        ];
        let mut table = Table::new(caption, &columns);
        for row in &run.view.rows {
            let tone = match row.status {
                Status::Wrong { .. } | Status::Failed(_) => "bad",
                Status::Missing | Status::Skipped(_) => "unsure",
                _ if row.is_incomplete() => "unsure",
                _ => "",
            };
            let unknown = || "not available".to_owned();
            table.row_toned(
                tone,
                vec![
                    row.facts.name.clone(),
                    row.facts.axis.to_string(),
                    row.facts.group_size.to_string(),
                    row.facts.locality.to_string(),
                    row.facts.bytes_total.to_string(),
                    row.latency.map_or_else(unknown, |latency| latency.median.to_string()),
                    row.latency.and_then(|latency| latency.p99).map_or_else(unknown, |p99| p99.to_string()),
                    row.busbw.map_or_else(String::new, |rate| rate.to_string()),
                    row.samples.to_string(),
                    row.samples_doubtful.to_string(),
                    format!("{} of {}", row.replicates, row.replicates_planned),
                    row.status.to_string(),
                ],
            );
        }
        Block::Folded(table.capped(&format!("`commgauge report {} --format csv` has every row", run.name)))
    };
    let mut blocks: Vec<Block> = input.runs.iter().enumerate().map(table).collect();
    blocks.push(Block::text(
        "Raw samples, histograms of each rank and the whole provenance are in the record itself; `commgauge report --format csv` and \
         `--format json` have every row in base units.",
    ));
    blocks
}
