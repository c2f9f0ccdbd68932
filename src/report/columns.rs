//! The columns of the table: what each holds, which are left out where the width does not suffice, and which are said
//! in the heading instead because all rows of a section agree.

use super::color::of_status;
use super::plain_table::STYLE;
use super::row::Row;
use super::view::View;
use crate::collective::Placement;
use crate::geometry::Splits;
use crate::layout::Axis;
use crate::units::three_digits;
use crate::variant;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

/// A column. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Collective,
    Size,
    Element,
    Reduce,
    Place,
    Variant,
    PerStep,
    Samples,
    Replicates,
    Median,
    Interval,
    P99,
    Estimate,
    Choice,
    Algbw,
    Busbw,
    Bound,
    Share,
    Check,
}

/// How many columns there are.
const COLUMNS: usize = 19;

use Column::*;

impl Column {
    const ALL: [Column; COLUMNS] = [
        Collective, Size, Element, Reduce, Place, Variant, PerStep, Samples, Replicates, Median, Interval, P99,
        Estimate, Choice, Algbw, Busbw, Bound, Share, Check,
    ];

    /// The first to go where the width does not suffice. What is not listed always stays.
    const EXPENDABLE: [Column; 12] =
        [Replicates, Bound, Algbw, Estimate, PerStep, P99, Samples, Share, Interval, Reduce, Element, Place];

    /// Heading and its unit.
    fn heading(self) -> (&'static str, &'static str) {
        match self {
            Collective => ("collective", ""),
            Size => ("size", ""),
            Element => ("type", ""),
            Reduce => ("op", ""),
            Place => ("place", ""),
            Variant => ("variant", ""),
            PerStep => ("calls", "a step"),
            Samples => ("samples", ""),
            Replicates => ("repl.", ""),
            Median => ("median", "us"),
            Interval => ("interval", "95 %, us"),
            P99 => ("p99", "us"),
            Estimate => ("NCCL's", "est., us"),
            Choice => ("NCCL's", "choice"),
            Algbw => ("algbw", "GB/s"),
            Busbw => ("busbw", "GB/s"),
            Bound => ("bound", "GB/s"),
            Share => ("of bound", "%"),
            Check => ("check", ""),
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Collective | Element | Reduce | Place | Variant | Choice | Check)
    }

    fn cell(self, row: &Row, note: Option<usize>) -> String {
        let (facts, latency) = (&row.facts, row.latency.as_ref());
        let microseconds = |seconds: crate::units::Seconds| three_digits(seconds.0 * 1e6);
        let text = match self {
            Collective => Some(collective(row)),
            Size => (facts.bytes_total.0 > 0).then(|| facts.bytes_total.to_string()),
            Element => (facts.bytes_total.0 > 0).then(|| facts.element_type.name().to_owned()),
            Reduce => facts.reduce_op.map(|op| op.name().to_owned()),
            Place => (facts.bytes_total.0 > 0).then(|| place(facts.placement).to_owned()),
            Variant => Some(variant::shown(&facts.labels)).filter(|shown| !shown.is_empty()),
            PerStep => facts.count_per_step().map(|count| count.to_string()),
            Samples => (row.samples > 0).then(|| row.samples.to_string()),
            Replicates => (row.replicates > 0).then(|| format!("{}/{}", row.replicates, row.replicates_planned)),
            Median => latency.map(|latency| microseconds(latency.median)),
            Interval => latency.map(|latency| match latency.interval {
                Some((low, high)) => format!("{}..{}", microseconds(low), microseconds(high)),
                None => "n/a".to_owned(),
            }),
            P99 => latency.map(|latency| latency.p99.map_or_else(|| "n/a".to_owned(), microseconds)),
            Estimate => row.library_estimate.map(microseconds),
            Choice => row.library_choice(),
            Algbw => row.algbw.map(|rate| three_digits(rate.gigabytes_per_second())),
            Busbw => row.busbw.map(|rate| three_digits(rate.gigabytes_per_second())),
            Bound => facts.bound_bytes_per_second.map(|rate| three_digits(rate.gigabytes_per_second())),
            Share => row.bound_share.map(|share| format!("{:.0}", share * 100.0)),
            Check => Some(match note {
                Some(number) => format!("{} [{number}]", row.status.label()),
                None if row.is_incomplete() => {
                    format!("{}, {}/{}", row.status.label(), row.replicates, row.replicates_planned)
                }
                None => row.status.label().to_owned(),
            }),
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

fn place(placement: Placement) -> &'static str {
    match placement {
        Placement::OutOfPlace => "out",
        Placement::InPlace => "in",
    }
}

/// The collective and what else tells two calls of it apart.
pub(super) fn collective(row: &Row) -> String {
    let mut text = row.facts.collective.name().to_owned();
    if let Some(root) = row.facts.root.filter(|root| *root != 0) {
        text += &format!(" root {root}");
    }
    match &row.facts.splits {
        Some(Splits::Skewed { exponent }) => text += &format!(" skew {exponent}"),
        Some(Splits::Given(_)) => text += " given",
        Some(Splits::Routed(routed)) => {
            text += &format!(" {}", routed.routing);
            text += if routed.back { " back" } else { "" };
        }
        Some(Splits::Equal) | None => {}
    }
    text
}

/// The collective and the variant in which it was handed over.
pub(super) fn collective_and_variant(row: &Row) -> String {
    format!("{} {}", collective(row), variant::shown(&row.facts.labels)).trim_end().to_owned()
}

/// Rows of one axis, style and cadence, on groups that lie alike.
pub(super) struct Section<'a> {
    rows: Vec<(&'a Row, Option<usize>)>,
    /// Columns that are said in the heading, with what they say.
    agreed: Vec<(Column, String)>,
    columns: Vec<Column>,
    /// Widest content of each of [`Column::ALL`] over all sections, so that the sections line up; of the last column,
    /// which nothing stands behind, over this section.
    widths: [usize; COLUMNS],
}

/// The sections of a report, in the order in which they first appear. `notes` are the numbers beside the status.
pub(super) fn sections<'a>(view: &'a View, notes: &[Option<usize>]) -> Vec<Section<'a>> {
    let mut sections: Vec<Section> = Vec::new();
    for (row, note) in view.rows.iter().zip(notes) {
        match sections.iter_mut().find(|section| belong_together(section.rows[0].0, row)) {
            Some(section) => section.rows.push((row, *note)),
            None => {
                let (agreed, columns) = (Vec::new(), Vec::new());
                sections.push(Section { rows: vec![(row, *note)], agreed, columns, widths: [0; COLUMNS] });
            }
        }
    }
    sections.iter_mut().for_each(Section::settle);
    let mut widths = [0; COLUMNS];
    for section in &sections {
        for column in &section.columns {
            widths[*column as usize] = widths[*column as usize].max(section.natural_width(*column));
        }
    }
    for section in &mut sections {
        section.widths = widths;
        section.widths[Check as usize] = section.natural_width(Check);
    }
    sections
}

fn belong_together(a: &Row, b: &Row) -> bool {
    let key = |row: &Row| (row.facts.axis, row.facts.style, row.facts.cadence, row.facts.groups, row.facts.group_size);
    key(a) == key(b) && a.facts.locality == b.facts.locality
}

impl Section<'_> {
    /// Decides which columns say something, and which say the same in every row.
    fn settle(&mut self) {
        for column in Column::ALL {
            let cells: Vec<String> = self.rows.iter().map(|(row, note)| column.cell(row, *note)).collect();
            if matches!(
                column,
                Element | Reduce | Place | Variant | PerStep | Bound | Share | Estimate | Choice | Algbw | Busbw
            ) && cells.iter().all(|cell| cell == "-")
            {
                continue;
            }
            let said = cells.iter().filter(|cell| *cell != "-").collect::<Vec<_>>();
            let agree = said.windows(2).all(|pair| pair[0] == pair[1]);
            // Of variants the dash says something too: the usual way.
            let all_say = matches!(column, Variant) && said.len() == cells.len();
            if (matches!(column, Element | Reduce | Place) || all_say) && agree {
                self.agreed.push((column, said[0].clone()));
            } else {
                self.columns.push(column);
            }
        }
    }

    fn natural_width(&self, column: Column) -> usize {
        let (heading, unit) = column.heading();
        let cells = self.rows.iter().map(|(row, note)| column.cell(row, *note).chars().count());
        cells.chain([heading.len(), unit.len()]).max().unwrap_or(0)
    }

    /// What all rows have in common.
    pub(super) fn heading(&self, width: usize) -> String {
        let facts = &self.rows[0].0.facts;
        let locality = &facts.locality;
        let groups = match (facts.axis, facts.groups) {
            (Axis::World, _) => format!("all {} ranks", facts.group_size),
            (_, 1) => format!("1 group of {} ranks", facts.group_size),
            (_, groups) => format!("{groups} groups of {} ranks at once", facts.group_size),
        };
        let place = match locality.nodes_spanned {
            0 => "placement not known".to_owned(),
            1 => "each on 1 host".to_owned(),
            nodes => format!("over {nodes} hosts, {} per host", locality.ranks_per_node),
        };
        let place = place.replace("each ", if facts.groups == 1 { "" } else { "each " });
        let mut text = format!("{} {}, {}: {groups}, {place}", facts.axis, facts.style.name(), facts.cadence);
        for (column, said) in &self.agreed {
            let said = match (column, said.as_str()) {
                (Place, "in") => "in place",
                (Place, _) => "out of place",
                (_, said) => said,
            };
            text += &format!(", {said}");
        }
        text += &self.hidden_differences(width);
        text
    }

    /// A column that gave way must not make two calls look the same without a word.
    fn hidden_differences(&self, width: usize) -> String {
        let shown = self.shown(width);
        let mut text = String::new();
        for (column, name) in [(Element, "types"), (Reduce, "operations"), (Place, "placements")] {
            if self.columns.contains(&column) && !shown.contains(&column) {
                let mut values: Vec<String> = Vec::new();
                for (row, note) in &self.rows {
                    let value = column.cell(row, *note);
                    if value != "-" && !values.contains(&value) {
                        values.push(value);
                    }
                }
                text += &format!(", {name} {} (column left out)", values.join("/"));
            }
        }
        text
    }

    /// The columns that fit, in order.
    fn shown(&self, width: usize) -> Vec<Column> {
        let mut columns = self.columns.clone();
        let fits = |columns: &[Column]| {
            columns.iter().map(|column| self.widths[*column as usize] + GAP).sum::<usize>().saturating_sub(GAP) <= width
        };
        for expendable in Column::EXPENDABLE {
            if fits(&columns) {
                break;
            }
            columns.retain(|column| *column != expendable);
        }
        columns
    }

    /// The table, without headings above it.
    pub(super) fn table(&self, width: usize, color: bool) -> String {
        let shown = self.shown(width);
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        if color {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        table.set_header(shown.iter().map(|column| {
            let (heading, unit) = column.heading();
            Cell::new(if unit.is_empty() { heading.to_owned() } else { format!("{heading}\n{unit}") })
        }));
        for (row, note) in &self.rows {
            table.add_row(shown.iter().map(|column| {
                let cell = Cell::new(column.cell(row, *note));
                match (column, of_status(&row.status)) {
                    (Check, Some(status)) => cell.fg(status),
                    _ => cell,
                }
            }));
        }
        for (index, column) in shown.iter().enumerate() {
            let Some(shape) = table.column_mut(index) else { continue };
            let last = index + 1 == shown.len();
            shape.set_padding((0, if last { 0 } else { GAP as u16 }));
            shape.set_cell_alignment(if column.is_text() { CellAlignment::Left } else { CellAlignment::Right });
            let gap = if last { 0 } else { GAP };
            let content = (self.widths[*column as usize] + gap) as u16;
            shape.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(content)));
        }
        table.to_string()
    }
}

/// Spaces between columns.
const GAP: usize = 2;
