//! Every row of every record in one table, with the verdict on it; and every matrix product and copy.

use super::input::{HtmlInput, HtmlRun};
use crate::report::columns::Field;
use crate::report::document::{self, Block, Column, Table, optional, signed_bounds, signed_percent};
use crate::report::row::Row;
use crate::report::section::tone;
use crate::report::table::Notes;
use crate::report::verdict::value;
use crate::report::{copies, products, verdict};
use commgauge_analysis::verdict::{Row as Judged, Verdict};
use std::collections::HashMap;

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
    let rows = &run.view.rows;
    if rows.is_empty() {
        return heading(input, index, run).into_iter().collect();
    }
    let mut notes = Notes::default();
    let numbers = notes.numbers_of(rows);
    let fields: Vec<Field> = Field::ALL.into_iter().filter(|field| is_said(*field, rows)).collect();
    let limits = ByName::of(input.verdict);
    let base = ByName::of(input.comparison);
    let columns: Vec<Column> = [&PLACE[..], &fields.iter().map(|field| field.column()).collect::<Vec<_>>()]
        .into_iter()
        .chain([limits.columns(&GATE), base.columns(&COMPARISON)])
        .flatten()
        .copied()
        .collect();
    let drawn = rows.iter().zip(&numbers).map(|(row, number)| {
        let mut cells = place(row);
        cells.extend(fields.iter().map(|field| field.cell(row, *number)));
        cells.extend(limits.cells(row, gate_cells, GATE.len()));
        cells.extend(base.cells(row, comparison_cells, COMPARISON.len()));
        document::Row::toned(tone(row), cells)
    });
    let table = Table::new(format!("All {} rows of {}", rows.len(), run.name), &columns, drawn)
        .without_columns_that_agree()
        .whole_in(format!("`commgauge report {} --format csv` has every row", run.name));
    heading(input, index, run).into_iter().chain([Block::Table(table)]).chain(notes.document()).collect()
}

const PLACE: [Column; 6] = [
    Column::left("axis", 0),
    Column::left("style", 0),
    Column::left("cadence", 0),
    Column::right("groups", 0),
    Column::right("ranks", 0),
    Column::left("hosts x ranks", 0),
];

fn place(row: &Row) -> Vec<String> {
    let facts = &row.facts;
    vec![
        facts.axis.to_string(),
        facts.style.name().to_owned(),
        facts.cadence.to_string(),
        facts.groups.to_string(),
        facts.group_size.to_string(),
        facts.locality.to_string(),
    ]
}

const GATE: [Column; 3] =
    [Column::left("verdict", 0), Column::right("limit", 0), Column::left("bounds of the median", 0)];

fn gate_cells(row: &Judged) -> Vec<String> {
    let limit = row.against_limit.as_ref();
    let bounds = limit.and_then(|limit| {
        let (low, high) = limit.lower_bound.zip(limit.upper_bound)?;
        Some(format!("{} .. {}", value(limit.metric, low), value(limit.metric, high)))
    });
    vec![
        verdict::decision(row).to_owned(),
        optional(limit.map(|limit| value(limit.metric, limit.limit))),
        optional(bounds),
    ]
}

const COMPARISON: [Column; 4] = [
    Column::left("against the base", 0),
    Column::right("slower by", 0),
    Column::left("bounds", 0),
    Column::right("p corrected", 0),
];

fn comparison_cells(row: &Judged) -> Vec<String> {
    let base = row.against_base.as_ref();
    let bounds = base.map(|base| signed_bounds(base.slowdown_lower_bound, base.slowdown_upper_bound));
    vec![
        verdict::decision(row).to_owned(),
        optional(base.and_then(|base| base.slowdown).map(signed_percent)),
        optional(bounds),
        optional(base.and_then(|base| base.p_corrected).map(|p| format!("{p:.4}"))),
    ]
}

/// The rows of a verdict by name.
struct ByName<'a>(HashMap<&'a str, &'a Judged>);

impl<'a> ByName<'a> {
    fn of(verdict: Option<&'a Verdict>) -> ByName<'a> {
        let rows = verdict.into_iter().flat_map(|verdict| &verdict.rows);
        ByName(rows.map(|row| (row.name.as_str(), row)).collect())
    }

    /// The columns; none without a verdict.
    fn columns<'c>(&self, columns: &'c [Column]) -> &'c [Column] {
        if self.0.is_empty() { &[] } else { columns }
    }

    fn cells(&self, row: &Row, cells: fn(&Judged) -> Vec<String>, columns: usize) -> Vec<String> {
        match self.0.get(row.facts.name.as_str()) {
            Some(judged) => cells(judged),
            None if self.0.is_empty() => Vec::new(),
            None => vec![optional(None::<String>); columns],
        }
    }
}

/// Whether a column says anything about any row.
fn is_said(field: Field, rows: &[Row]) -> bool {
    rows.iter().any(|row| field.cell(row, None) != "-")
}

/// The section of matrix products.
pub(super) fn products(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        if let Some(products) = products::document(&run.view.products, &run.view.header) {
            blocks.extend(heading(input, index, run).into_iter().chain([products]));
        }
    }
    blocks
}

/// The section of copies.
pub(super) fn copies(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        if let Some(copies) = copies::document(&run.view.copies, &run.view.header) {
            blocks.extend(heading(input, index, run).into_iter().chain([copies]));
        }
    }
    blocks
}

/// Which run it is, where there are several.
fn heading(input: &HtmlInput, index: usize, run: &HtmlRun) -> Option<Block> {
    (input.runs.len() > 1).then(|| Block::heading(format!("Run {}, {}", index + 1, run.name)))
}
