//! The history as one HTML file: what changed with pictures first, then every row with its trend.

use super::document::{changes, left_out, rows};
use super::plot::picture;
use super::row_names::RowNames;
use crate::report::document::{Block, Figure, Tone};
use crate::report::html::page::{Page, Section};
use commgauge_analysis::verdict::history::{History, Lineage, Series};
use commgauge_base::error::Result;
use commgauge_base::units::counted;

/// Pictures of a place; the rows that are slowest since their last change come first.
const MAX_PICTURES: usize = 24;

pub(super) fn text(history: &History) -> Result<String> {
    let mut sections = vec![Section::new("answer", "What changed", answer(history))];
    sections.push(Section::new("pictures", "Rows that changed", pictures(history)));
    sections.push(Section::new("rows", "All rows", all_rows(history)));
    sections.push(Section::new("decided", "How it was decided", vec![Block::list(&history.rule)]));
    if !history.left_out.is_empty() {
        sections.push(Section::new("left-out", "Left out", left_out(history)));
    }
    let runs: Vec<_> = history.lineages.iter().flat_map(|lineage| &lineage.runs).collect();
    let span = match (runs.iter().map(|run| &run.started_at).min(), runs.iter().map(|run| &run.started_at).max()) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "no runs".to_owned(),
    };
    let title = format!("History of {}", counted(runs.len(), "run"));
    let footer = format!("commgauge {}", env!("CARGO_PKG_VERSION"));
    Page::new(&title, &span, false, sections, &footer).text()
}

/// The answer in large letters, and the changes of each place.
fn answer(history: &History) -> Vec<Block> {
    let rows = || history.lineages.iter().flat_map(|lineage| &lineage.rows);
    let slower = rows().filter(|row| row.slower_since().is_some()).count();
    let (tone, answer) = match history.exit_code {
        0 => (Tone::Good, "no row is slower".to_owned()),
        1 => (Tone::Bad, format!("{} slower", counted(slower, "row"))),
        _ => (Tone::Unsure, "too few runs".to_owned()),
    };
    let detail = format!("of {} in {}", counted(rows().count(), "row"), counted(history.lineages.len(), "place"));
    let badge = crate::report::document::Badge { tone, question: "since the last change".to_owned(), answer, detail };
    let mut blocks = vec![Block::Badges(vec![badge])];
    blocks.extend(history.lineages.iter().flat_map(changes));
    blocks
}

fn pictures(history: &History) -> Vec<Block> {
    let mut blocks = Vec::new();
    for lineage in &history.lineages {
        let mut changed: Vec<&Series> = lineage.rows.iter().filter(|row| !row.changes.is_empty()).collect();
        changed.sort_by(|one, other| last_slowdown(other).total_cmp(&last_slowdown(one)));
        let names = RowNames::of(&lineage.rows);
        let figure = |row: &&Series| {
            let name = names.name(row);
            Figure::new(&name, picture(lineage, row, &name))
        };
        let figures: Vec<Figure> = changed.iter().take(MAX_PICTURES).map(figure).collect();
        if figures.is_empty() {
            continue;
        }
        blocks.push(Block::heading(heading(lineage)));
        blocks.push(Block::Charts(figures));
        if changed.len() > MAX_PICTURES {
            let more = changed.len() - MAX_PICTURES;
            blocks.push(Block::text(format!(
                "{} more changed, see below; --plots DIR writes all pictures",
                counted(more, "row")
            )));
        }
    }
    if blocks.is_empty() {
        blocks.push(Block::absent("no row changed"));
    }
    blocks
}

fn all_rows(history: &History) -> Vec<Block> {
    let of_place = |lineage: &Lineage| {
        let all: Vec<&Series> = lineage.rows.iter().collect();
        [Block::heading(heading(lineage)), Block::Table(rows(lineage, &all))]
    };
    history.lineages.iter().flat_map(of_place).collect()
}

fn heading(lineage: &Lineage) -> String {
    format!("{} on {}", lineage.suite, lineage.place)
}

fn last_slowdown(row: &Series) -> f64 {
    row.changes.last().map_or(0.0, |change| change.slowdown)
}
