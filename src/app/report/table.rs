//! The report for people: provenance, a table for each axis, style and cadence, then findings and warnings.
//!
//! The columns are in `columns` and `section`. Nothing is truncated: where the width does not suffice, less important
//! columns are left out, and paragraphs are wrapped.

use super::color::Paint;
use super::row::Row;
use super::section::{Section, sections};
use super::step::{self, Part};
use super::text::{visible, wrap};
use super::view::View;
use super::{calibration, contention, interference, plain_table, products, replay, screen};
use commgauge_base::units::Bytes;
use commgauge_base::variant;
use commgauge_model::record::line::Header;
use std::collections::HashMap;

/// The whole report, fitted to a width.
pub(super) fn text(view: &View, width: usize, color: bool) -> String {
    let paint = Paint { on: color };
    let width = width.max(MIN_WIDTH);
    let mut notes = Notes::default();
    let rows = match &view.pairs {
        Some(pairs) => {
            for row in &view.rows {
                notes.number_of(row);
            }
            super::pairs::table::text(pairs, width, paint)
        }
        None => rows(view, &mut notes, width, paint),
    };
    provenance(&view.header, width, paint) + &rows + &closing(view, &notes, width, paint)
}

/// The fewest columns of text that a report is fitted to.
pub(super) const MIN_WIDTH: usize = 40;

/// The text after the rows: legend, derived results, notes, findings and warnings.
pub(super) fn closing(view: &View, notes: &Notes, width: usize, paint: Paint) -> String {
    let mut out = String::new();
    if view.pairs.is_none() && !view.rows.is_empty() {
        out += &format!("\n{}\n", wrap(&legend(view), width, 0));
    }
    for part in step_parts(view, width) {
        out += &format!("\n{}\n{}", paint.bold(&wrap(&part.title, width, 2)), part.body);
    }
    let mut reasons = Vec::new();
    for (number, text) in notes.texts.iter().enumerate() {
        reasons.push((format!("[{}]", number + 1), visible(text)));
    }
    let bullets = |texts: &[String]| texts.iter().map(|text| ("-".to_owned(), visible(text))).collect::<Vec<_>>();
    for (heading, items) in
        [("Notes", reasons), ("Findings", bullets(&view.findings)), ("Warnings", bullets(&view.warnings))]
    {
        if !items.is_empty() {
            out += &format!("\n{}\n", paint.bold(heading));
        }
        for (mark, text) in items {
            out += &format!(
                "{mark} {}\n",
                wrap(&text, width - mark.len() - 1, 0).replace('\n', &format!("\n{:1$}", "", mark.len() + 1))
            );
        }
    }
    out += &format!("\n{}\n", paint.bold(&wrap(&view.summary(), width, 0)));
    out
}

/// Derived results for steps and for concurrent groups.
fn step_parts(view: &View, width: usize) -> Vec<Part> {
    let columns = u16::try_from(width).unwrap_or(u16::MAX);
    let lines =
        |sentences: Vec<String>| sentences.iter().map(|sentence| plain_table::wrapped(sentence, columns)).collect();
    let mut parts: Vec<Part> = Vec::new();
    parts.extend(screen::part(view, &|headings, rows| plain_table::table(headings, rows, columns), &lines));
    parts.extend(view.steps.iter().flat_map(|step| step::text(step, &view.rows, columns)));
    parts.extend(contention::part(view, &|headings, rows| plain_table::table(headings, rows, columns)));
    parts.extend(interference::part(view, &|headings, rows| plain_table::table(headings, rows, columns)));
    parts.extend(calibration::part(view, &|headings, rows| plain_table::table(headings, rows, columns)));
    parts.extend(products::part(view, &|headings, rows| plain_table::table(headings, rows, columns)));
    parts.extend(replay::parts(view, &|headings, rows| plain_table::table(headings, rows, columns), &lines));
    parts
}

/// The tables of cases.
fn rows(view: &View, notes: &mut Notes, width: usize, paint: Paint) -> String {
    let numbers: Vec<Option<usize>> = view.rows.iter().map(|row| notes.number_of(row)).collect();
    let mut out = String::new();
    for section in sections(&view.rows, &numbers) {
        out += &section_head(&section, width, paint);
        let lines =
            section.members().iter().map(|index| section.row(&view.rows[*index], numbers[*index], width, paint.on));
        out.extend(lines);
    }
    out
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
pub(super) fn provenance(header: &Header, width: usize, paint: Paint) -> String {
    let facts = super::provenance::of(header);
    let mut out = String::new();
    if header.backend.synthetic {
        let warning = "SYNTHETIC: no data moved and no real time passed; these are not measurements";
        out += &format!("{}\n\n", paint.alarm(&wrap(warning, width, 0)));
    }
    let longest = facts.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, text) in &facts {
        let indent = longest + 2;
        let body = wrap(&visible(text), width.saturating_sub(indent).max(20), 0);
        let body = body.replace('\n', &format!("\n{:indent$}", ""));
        out += &format!("{}{:pad$}{body}\n", paint.dim(label), "", pad = indent - label.len());
    }
    out
}

/// The text above the rows of a section.
pub(super) fn section_head(section: &Section, width: usize, paint: Paint) -> String {
    let mut out = "\n".to_owned();
    for line in wrap(&section.heading(width), width, 2).lines() {
        out += &paint.bold(line);
        out.push('\n');
    }
    out + &section.head(width, paint.on)
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
        legend += " +-: half the width of the widest replicate's own interval; * is wider than requested, as the time was over.";
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
                   are of one call all the same; - is the usual way.";
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
