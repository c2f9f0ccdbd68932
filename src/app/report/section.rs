//! The sections of the table of cases: their columns and widths, and the values that are moved to the heading because all rows
//! agree. On a terminal rows can be written one by one.

use super::columns::{FIELDS, Field};
use super::document::{self, Column, Table, TableLayout, Tone};
use super::row::Row;
use super::shared_labels::{shared, without};
use super::status::Status;
use Field::*;
use commgauge_model::layout::Axis;

/// Layout of the rows of one axis, style and cadence, on groups with the same locality. The rows are passed in.
pub(super) struct Section {
    /// Indices of the rows.
    members: Vec<usize>,
    /// What all rows have in common.
    title: String,
    /// Columns that are moved to the heading, with their values.
    agreed: Vec<(Field, String)>,
    /// Labels that all rows have, which the heading has alone.
    shared_labels: Vec<String>,
    /// Differing values of columns that may be left out.
    differences: Vec<(Field, &'static str, Vec<String>)>,
    fields: Vec<Field>,
    /// Widest content of each of [`Field::ALL`] over all sections, so that the sections line up; of the last
    /// column, over this section only.
    widths: [usize; FIELDS],
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
        let cells = |column: Field| -> Vec<String> {
            members.iter().map(|index| column.cell(&rows[*index], notes.get(*index).copied().flatten())).collect()
        };
        Section::of(&rows[members[0]], &cells, members.clone())
    };
    let mut sections: Vec<Section> = members.into_iter().map(of).collect();
    let mut widths = [0; FIELDS];
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
    fn of(first: &Row, cells: &dyn Fn(Field) -> Vec<String>, members: Vec<usize>) -> Section {
        let shared_labels = shared(&cells(Variant));
        let cells = &|field: Field| -> Vec<String> {
            cells(field).iter().map(|cell| differing(field, cell, &shared_labels)).collect()
        };
        let (mut agreed, fields) = split_fields(cells);
        if !shared_labels.is_empty() {
            agreed.push((Variant, shared_labels.join(" ")));
        }
        let mut widths = [0; FIELDS];
        for field in &fields {
            let rows: Vec<document::Row> = cells(*field).into_iter().map(|cell| vec![cell].into()).collect();
            widths[*field as usize] = document::widths(&[field.column()], &rows)[0];
        }
        let differences = [(Element, "types"), (Reduce, "operations"), (Place, "placements")];
        let differences = differences.into_iter().filter(|(field, _)| fields.contains(field));
        let differences = differences.map(|(field, name)| {
            let mut values: Vec<String> = Vec::new();
            for value in cells(field) {
                if value != "-" && !values.contains(&value) {
                    values.push(value);
                }
            }
            (field, name, values)
        });
        let differences = differences.collect();
        Section { title: title(first), differences, members, agreed, shared_labels, fields, widths }
    }

    /// Indices of its rows.
    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Its columns on a terminal.
    pub(super) fn layout(&self, width: usize) -> TableLayout {
        let widths = self.fields.iter().map(|field| self.widths[*field as usize]).collect();
        TableLayout::new(&self.columns(), widths, width)
    }

    fn columns(&self) -> Vec<Column> {
        self.fields.iter().map(|field| field.column()).collect()
    }

    /// What all rows have in common.
    pub(super) fn heading(&self, layout: &TableLayout) -> String {
        let mut text = self.heading_on_page();
        // Two calls must not look the same because a column was left out.
        let is_shown =
            |wanted: &Field| self.fields.iter().position(|field| field == wanted).is_some_and(|at| layout.shows(at));
        for (_, name, values) in self.differences.iter().filter(|(field, ..)| !is_shown(field)) {
            text += &format!(", {name} {} (column left out)", values.join("/"));
        }
        text
    }

    fn heading_on_page(&self) -> String {
        let mut text = self.title.clone();
        for (field, value) in &self.agreed {
            let value = match (field, value.as_str()) {
                (Place, "in") => "in place",
                (Place, _) => "out of place",
                (_, value) => value,
            };
            text += &format!(", {value}");
        }
        text
    }

    /// The cells of a row.
    pub(super) fn row(&self, row: &Row, note: Option<usize>) -> document::Row {
        let cell = |field: &Field| differing(*field, &field.cell(row, note), &self.shared_labels);
        document::Row::toned(tone(row), self.fields.iter().map(cell).collect())
    }

    /// The section with all its columns.
    pub(super) fn table(&self, rows: &[Row], notes: &[Option<usize>]) -> Table {
        let rows = self.members.iter().map(|index| self.row(&rows[*index], notes.get(*index).copied().flatten()));
        Table::new(self.heading_on_page(), &self.columns(), rows)
            .whole_in("`commgauge report --format csv` has every row")
    }
}

/// The colour of a row's status.
pub(super) fn tone(row: &Row) -> Tone {
    match row.status {
        Status::Wrong { .. } | Status::Failed(_) => Tone::Bad,
        Status::Missing | Status::Skipped(_) => Tone::Unsure,
        _ if row.is_incomplete() => Tone::Unsure,
        Status::Synthetic => Tone::Synthetic,
        Status::NotVerified => Tone::Plain,
        Status::Verified => Tone::Good,
    }
}

/// A cell without the labels that the heading has.
fn differing(field: Field, cell: &str, shared_labels: &[String]) -> String {
    if field == Variant { without(cell, shared_labels) } else { cell.to_owned() }
}

/// Separates columns with the same value in every row from those that differ.
fn split_fields(cells: &dyn Fn(Field) -> Vec<String>) -> (Vec<(Field, String)>, Vec<Field>) {
    let (mut agreed, mut fields) = (Vec::new(), Vec::new());
    for column in Field::ALL {
        let cells = cells(column);
        if column.may_be_empty() && cells.iter().all(|cell| cell == "-") {
            continue;
        }
        let values = cells.iter().filter(|cell| *cell != "-").collect::<Vec<_>>();
        let agree = values.windows(2).all(|pair| pair[0] == pair[1]);
        if matches!(column, Element | Reduce | Place) && agree {
            agreed.push((column, values[0].clone()));
        } else {
            fields.push(column);
        }
    }
    (agreed, fields)
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
