//! The report for people: provenance, a table for each axis, style and cadence, then what follows from them, findings and warnings.
//!
//! The columns of cases are in `columns` and `section`. Nothing is truncated: where the width does not suffice, less important
//! columns are left out, and paragraphs are wrapped.

use super::color::Paint;
use super::document::{Block, Fact, Mark, TableLayout, Terminal, markdown};
use super::row::Row;
use super::section::{Section, sections};
use super::view::View;
use super::{calibration, contention, copies, interference, pairs, products, replay, screen, soak, step};
use commgauge_base::units::Bytes;
use commgauge_base::variant;
use commgauge_model::record::line::Header;
use std::collections::HashMap;

/// The whole report, fitted to a width.
pub(super) fn text(view: &View, width: usize, paint: Paint) -> String {
    let terminal = Terminal::new(width.max(MIN_WIDTH), paint);
    let mut notes = Notes::default();
    let numbers = notes.numbers_of(&view.rows);
    let mut out = terminal.draw(&provenance(&view.header));
    match &view.pairs {
        Some(pairs) => out += &pairs::text(pairs, terminal),
        None => {
            for section in sections(&view.rows, &numbers) {
                let layout = section.layout(terminal.width());
                out += &section_head(&section, &layout, terminal);
                let row =
                    |index: &usize| layout.row(&section.row(&view.rows[*index], numbers[*index]), terminal.paint());
                out.extend(section.members().iter().map(row));
            }
        }
    }
    out + &format!("\n{}", terminal.draw(&closing(view, &notes)))
}

/// The same as Markdown.
pub(super) fn page(view: &View) -> String {
    let mut notes = Notes::default();
    let cases = cases(view, &mut notes);
    let rows = view.pairs.as_ref().map_or(cases, pairs::document);
    let blocks = [provenance(&view.header), rows, closing(view, &notes)].concat();
    format!("# commgauge: {}\n{}", super::document::escaped_markdown(&view.header.suite.name), markdown(&blocks))
}

/// The fewest columns of text that a report is fitted to.
pub(super) const MIN_WIDTH: usize = 40;

/// A table for each section of cases, with all columns.
pub(super) fn cases(view: &View, notes: &mut Notes) -> Vec<Block> {
    let numbers = notes.numbers_of(&view.rows);
    let table = |section: &Section| Block::Table(section.table(&view.rows, &numbers));
    sections(&view.rows, &numbers).iter().map(table).collect()
}

/// What comes after the rows: legend, derived results, notes, findings and warnings.
pub(super) fn closing(view: &View, notes: &Notes) -> Vec<Block> {
    let mut blocks = Vec::new();
    if view.pairs.is_none() && !view.rows.is_empty() {
        blocks.push(Block::text(legend(view)));
    }
    blocks.extend(screen::document(view));
    blocks.extend(view.steps.iter().flat_map(|step| step::document(step, &view.rows)));
    blocks.extend(contention::document(&view.contention, &view.rows));
    blocks.extend(soak::document(view).map(Block::Table));
    blocks.extend(interference::document(&view.interference));
    blocks.extend(calibration::document(view));
    blocks.extend(products::document(&view.products, &view.header));
    blocks.extend(copies::document(&view.copies, &view.header));
    blocks.extend(replay::document(view));
    blocks.extend(notes.document());
    blocks.extend(Block::headed_list("Findings", Mark::Dash, &view.findings.all));
    blocks.extend(Block::headed_list("Warnings", Mark::Dash, &view.warnings));
    blocks.push(Block::Strong(view.summary()));
    blocks
}

/// Why cases are wrong, failed or skipped, each reason once, numbered in the order in which the rows come.
#[derive(Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    number_of: HashMap<String, usize>,
}

impl Notes {
    /// Number of the note for a row, from 1, where it has one.
    pub(super) fn number_of(&mut self, row: &Row) -> Option<usize> {
        let texts = &mut self.texts;
        let number = self.number_of.entry(note(row)?).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len()
        });
        Some(*number)
    }

    /// The notes by number.
    pub(super) fn document(&self) -> Vec<Block> {
        Block::headed_list("Notes", Mark::Number, &self.texts)
    }

    /// Numbers of the notes for all rows.
    pub(super) fn numbers_of(&mut self, rows: &[Row]) -> Vec<Option<usize>> {
        rows.iter().map(|row| self.number_of(row)).collect()
    }
}

fn note(row: &Row) -> Option<String> {
    let reason = row.status.reason()?;
    let label = row.status.label();
    // A mismatch belongs to one case; other reasons often apply to many, which then share a note.
    match row.status {
        super::Status::Wrong { .. } => Some(format!("{label}: {}: {reason}", row.facts.name)),
        _ => Some(format!("{label}: {reason}")),
    }
}

/// Where the numbers come from.
pub(super) fn provenance(header: &Header) -> Vec<Block> {
    let warning = "SYNTHETIC: no data moved and no real time passed; these are not measurements";
    let facts = super::provenance::of(header).into_iter().map(|(label, text)| Fact::new(label, text));
    let alarm = header.backend.synthetic.then(|| Block::Alarm(warning.to_owned()));
    alarm.into_iter().chain([Block::Facts(facts.collect())]).collect()
}

/// The text above the rows of a section on a terminal.
pub(super) fn section_head(section: &Section, layout: &TableLayout, terminal: Terminal) -> String {
    format!("\n{}{}", terminal.draw(&[Block::heading(section.heading(layout))]), layout.head())
}

/// The meaning of the columns that are shown.
fn legend(view: &View) -> String {
    let mut legend = "Times are of one call, the slowest rank's; the interval of the median is the hull of the \
                      replicates' own 95 % intervals. Rates follow from the median; GB = 10^9 B, sizes are binary."
        .to_owned();
    if view.rows.iter().any(|row| row.facts.transfers_per_call > 1) {
        legend += " ping_pong: one way, half the round trip.";
    }
    if view.rows.iter().any(|row| row.latency.is_some_and(|latency| latency.p99.is_none())) {
        legend += " p99 needs 100 samples.";
    }
    if view.rows.iter().any(|row| row.precision_requested.is_some()) {
        legend += " +-: half the width of the widest replicate's own interval; * is wider than requested.";
    }
    if view.rows.iter().any(|row| row.bound_share.is_some()) {
        legend += " Bound: the highest busbw that the machine file allows.";
    }
    if view
        .rows
        .iter()
        .any(|row| row.facts.bytes_accounted != row.facts.bytes_total && row.facts.bytes_total != Bytes(0))
    {
        legend += " all_to_all_v: algbw counts the busiest rank.";
    }
    if view.rows.iter().any(|row| !variant::shown(&row.facts.labels).is_empty()) {
        legend += " Variant: what NCCL was set or forced to; graph:20 is 20 calls in a CUDA graph, x8 is 8 calls in one group, and times \
                   are of one call all the same; - is the usual way, but for what the heading has.";
    }
    if view.rows.iter().any(|row| row.library_estimate.is_some()) {
        legend += " NCCL's est.: what NCCL itself estimates (ncclGroupSimulateEnd); no measurement.";
    }
    if view.rows.iter().any(|row| !row.library_choices.is_empty()) {
        legend +=
            " NCCL's choice: algorithm, protocol and channels as its log shows them, which lengthens short calls.";
    }
    legend
}
