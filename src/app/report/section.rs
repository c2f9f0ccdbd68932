//! The sections of the table: their columns and widths, and the values that are moved to the heading because all rows agree.
//! Rows are written one by one.

use super::color::of_status;
use super::columns::{COLUMNS, Column};
use super::plain_table::STYLE;
use super::row::Row;
use Column::*;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use commgauge_model::layout::Axis;

/// Spaces between columns.
const GAP: usize = 2;

/// Layout of the rows of one axis, style and cadence, on groups with the same locality. The rows are passed in.
pub(super) struct Section {
    /// Indices of the rows.
    members: Vec<usize>,
    /// What all rows have in common.
    title: String,
    /// Columns that are moved to the heading, with their values.
    agreed: Vec<(Column, String)>,
    /// Differing values of columns that may be left out.
    differences: Vec<(Column, &'static str, Vec<String>)>,
    columns: Vec<Column>,
    /// Widest content of each of [`Column::ALL`] over all sections, so that the sections line up; of the last
    /// column, over this section only.
    widths: [usize; COLUMNS],
}

/// The sections of a report, in the order in which they first appear. `notes` are the note numbers next to the status.
pub(super) fn sections(rows: &[Row], notes: &[Option<usize>]) -> Vec<Section> {
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        match members.iter_mut().find(|members| belong_together(&rows[members[0]], row)) {
            Some(members) => members.push(index),
            None => members.push(vec![index]),
        }
    }
    let of = |members: Vec<usize>| {
        let cells = |column: Column| -> Vec<String> {
            members.iter().map(|index| column.cell(&rows[*index], notes.get(*index).copied().flatten())).collect()
        };
        Section::of(&rows[members[0]], &cells, members.clone())
    };
    let mut sections: Vec<Section> = members.into_iter().map(of).collect();
    let mut widths = [0; COLUMNS];
    for section in &sections {
        widths = std::array::from_fn(|column| widths[column].max(section.widths[column]));
    }
    for section in &mut sections {
        let check = section.widths[Check as usize];
        section.widths = widths;
        section.widths[Check as usize] = check;
    }
    sections
}

fn belong_together(a: &Row, b: &Row) -> bool {
    let key = |row: &Row| (row.facts.axis, row.facts.style, row.facts.cadence, row.facts.groups, row.facts.group_size);
    key(a) == key(b) && a.facts.locality == b.facts.locality
}

impl Section {
    fn of(first: &Row, cells: &dyn Fn(Column) -> Vec<String>, members: Vec<usize>) -> Section {
        let (agreed, columns) = split_columns(cells);
        let mut widths = [0; COLUMNS];
        for column in &columns {
            let (heading, unit) = column.heading();
            let natural =
                cells(*column).iter().map(|cell| cell.chars().count()).chain([heading.len(), unit.len()]).max();
            widths[*column as usize] = natural.unwrap_or(0);
        }
        let differences = [(Element, "types"), (Reduce, "operations"), (Place, "placements")];
        let differences = differences.into_iter().filter(|(column, _)| columns.contains(column));
        let differences = differences.map(|(column, name)| {
            let mut values: Vec<String> = Vec::new();
            for value in cells(column) {
                if value != "-" && !values.contains(&value) {
                    values.push(value);
                }
            }
            (column, name, values)
        });
        Section { title: title(first), differences: differences.collect(), members, agreed, columns, widths }
    }

    /// Indices of its rows.
    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// What all rows have in common.
    pub(super) fn heading(&self, width: usize) -> String {
        let mut text = self.title.clone();
        for (column, value) in &self.agreed {
            let value = match (column, value.as_str()) {
                (Place, "in") => "in place",
                (Place, _) => "out of place",
                (_, value) => value,
            };
            text += &format!(", {value}");
        }
        // Two calls must not look the same because a column was left out.
        let shown = self.shown(width);
        for (_, name, values) in self.differences.iter().filter(|(column, ..)| !shown.contains(column)) {
            text += &format!(", {name} {} (column left out)", values.join("/"));
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

    /// The headings of the columns and the rule below them.
    pub(super) fn head(&self, width: usize, color: bool) -> String {
        let shown = self.shown(width);
        let mut table = Table::new();
        table.set_header(shown.iter().map(|column| {
            let (heading, unit) = column.heading();
            Cell::new(if unit.is_empty() { heading.to_owned() } else { format!("{heading}\n{unit}") })
        }));
        self.drawn(table, &shown, color)
    }

    /// One row. Widths are decided beforehand, so that rows can be written one by one.
    pub(super) fn row(&self, row: &Row, note: Option<usize>, width: usize, color: bool) -> String {
        let shown = self.shown(width);
        let mut table = Table::new();
        table.add_row(shown.iter().map(|column| {
            let cell = Cell::new(column.cell(row, note));
            match (column, of_status(&row.status)) {
                (Check, Some(status)) => cell.fg(status),
                _ => cell,
            }
        }));
        self.drawn(table, &shown, color)
    }

    fn drawn(&self, mut table: Table, shown: &[Column], color: bool) -> String {
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        if color {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        for (index, column) in shown.iter().enumerate() {
            let Some(shape) = table.column_mut(index) else { continue };
            let last = index + 1 == shown.len();
            shape.set_padding((0, if last { 0 } else { GAP as u16 }));
            shape.set_cell_alignment(if column.is_text() { CellAlignment::Left } else { CellAlignment::Right });
            let gap = if last { 0 } else { GAP };
            let content = (self.widths[*column as usize] + gap) as u16;
            shape.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(content)));
        }
        table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Separates columns with the same value in every row from those that differ.
fn split_columns(cells: &dyn Fn(Column) -> Vec<String>) -> (Vec<(Column, String)>, Vec<Column>) {
    let (mut agreed, mut columns) = (Vec::new(), Vec::new());
    for column in Column::ALL {
        let cells = cells(column);
        let may_be_empty = matches!(
            column,
            Element
                | Reduce
                | Place
                | Variant
                | PerStep
                | Precision
                | Bound
                | Share
                | Estimate
                | Choice
                | Algbw
                | Busbw
        );
        if may_be_empty && cells.iter().all(|cell| cell == "-") {
            continue;
        }
        let values = cells.iter().filter(|cell| *cell != "-").collect::<Vec<_>>();
        let agree = values.windows(2).all(|pair| pair[0] == pair[1]);
        // For variants the dash is a value too: the default.
        let all_have_one = matches!(column, Variant) && values.len() == cells.len();
        if (matches!(column, Element | Reduce | Place) || all_have_one) && agree {
            agreed.push((column, values[0].clone()));
        } else {
            columns.push(column);
        }
    }
    (agreed, columns)
}

fn title(row: &Row) -> String {
    let facts = &row.facts;
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
    format!("{} {}, {}: {groups}, {place}", facts.axis, facts.style.name(), facts.cadence)
}
