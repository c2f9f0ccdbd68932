//! The report for people: provenance, a table for each axis, style and cadence, then findings and doubts.
//!
//! Which columns there are is in `columns`. Nothing is cut off: where the width does not suffice, columns of less
//! interest are left out, and paragraphs are wrapped.

use super::color::Paint;
use super::columns::{Section, sections};
use super::row::Row;
use super::step::{self, Part};
use super::text::{visible, wrap};
use super::view::View;
use super::{calibration, contention, interference, plain_table, products, replay, screen};
use crate::units::Bytes;
use crate::variant;
use std::collections::HashMap;

/// The whole report, fitted to a width.
pub(super) fn text(view: &View, width: usize, color: bool) -> String {
    let paint = Paint { on: color };
    let width = width.max(40);
    let mut out = provenance(view, width, paint);
    let notes = Notes::of(view);
    match &view.pairs {
        Some(pairs) => out += &super::pairs::table::text(pairs, width, paint),
        None => out += &rows(view, &notes, width, paint),
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
        [("Notes", reasons), ("Findings", bullets(&view.findings)), ("Doubts", bullets(&view.doubts))]
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

/// What follows from the rows for steps and for groups that work at the same time.
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

/// The tables of cases and what their columns mean.
fn rows(view: &View, notes: &Notes, width: usize, paint: Paint) -> String {
    let mut out = String::new();
    if view.rows.is_empty() {
        return out;
    }
    for section in sections(view, &notes.numbers) {
        out.push('\n');
        out += &section_text(&section, width, paint);
    }
    out + &format!("\n{}\n", wrap(&legend(view), width, 0))
}

/// Why cases are wrong, failed or waived, each reason once, numbered in the order of the rows.
struct Notes {
    texts: Vec<String>,
    /// Number of the note for each row, from 1.
    numbers: Vec<Option<usize>>,
}

impl Notes {
    fn of(view: &View) -> Notes {
        let mut texts: Vec<String> = Vec::new();
        let mut number_of: HashMap<String, usize> = HashMap::new();
        let numbers = view.rows.iter().map(|row| {
            let text = note(row)?;
            let number = *number_of.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len()
            });
            Some(number)
        });
        let numbers = numbers.collect();
        Notes { texts, numbers }
    }
}

fn note(row: &Row) -> Option<String> {
    let reason = row.status.reason()?;
    let label = row.status.label();
    // A mismatch belongs to one case; any other reason often holds for many, which then share a note.
    match row.status {
        super::Status::Wrong { .. } => Some(format!("{label}: {}: {reason}", row.facts.name)),
        _ => Some(format!("{label}: {reason}")),
    }
}

fn provenance(view: &View, width: usize, paint: Paint) -> String {
    let mut out = String::new();
    if view.header.backend.synthetic {
        let warning = "SYNTHETIC: no data moved and no real time passed; these are not measurements";
        out += &format!("{}\n\n", paint.alarm(&wrap(warning, width, 0)));
    }
    let longest = view.provenance.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, text) in &view.provenance {
        let indent = longest + 2;
        let body = wrap(&visible(text), width.saturating_sub(indent).max(20), 0);
        let body = body.replace('\n', &format!("\n{:indent$}", ""));
        out += &format!("{}{:pad$}{body}\n", paint.dim(label), "", pad = indent - label.len());
    }
    out
}

fn section_text(section: &Section, width: usize, paint: Paint) -> String {
    let heading = wrap(&section.heading(width), width, 2);
    let mut out = String::new();
    for line in heading.lines() {
        out += &paint.bold(line);
        out.push('\n');
    }
    for line in section.table(width, paint.on).lines() {
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// What the columns mean, as far as they are there.
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
        legend += " Variant: what NCCL was told or forced to; graph:20 is 20 calls in a CUDA graph, x8 is 8 calls in one group, and times \
                   are of one call all the same; - is the usual way.";
    }
    if view.rows.iter().any(|row| row.library_estimate.is_some()) {
        legend += " NCCL's est.: what NCCL itself estimates (ncclGroupSimulateEnd); no measurement.";
    }
    if view.rows.iter().any(|row| !row.library_choices.is_empty()) {
        legend +=
            " NCCL's choice: algorithm, protocol and channels as its log tells them, which lengthens short calls.";
    }
    legend
}
