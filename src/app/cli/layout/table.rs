//! A layout as text: the picture, the axes that stay inside nodes, and a table of the axes.

use super::overview::{AxisView, Overview, group_text};
use super::picture::picture;
use crate::report::document::{Column, GAP, Row, TableLayout};
use crate::report::wrap;
use commgauge_model::layout::Axis;
use std::io::{self, Write};

/// Groups of an axis that are listed completely.
const MAX_LISTED: usize = 32;
/// Minimum width of the group column.
const MIN_GROUP_COLUMNS: usize = 24;
/// Width beyond which a group is elided, even on a wide terminal.
const MAX_GROUP_COLUMNS: usize = 40;

/// Writes the layout for a width.
pub(super) fn write(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", wrap(&heading(overview), width, 0))?;
    write!(out, "{}", picture(overview, width))?;
    let drawn = "Under each rank is the number of its group on each axis; axes with one rank in a group are not drawn.";
    writeln!(out, "{}\n", wrap(drawn, width, 0))?;
    writeln!(out, "{}\n", wrap(&crossing(overview), width, 0))?;
    write!(out, "{}", table(overview, width))
}

/// Writes the groups of each axis.
pub(super) fn write_groups(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
    overview.axes.iter().try_for_each(|view| list(overview, view, width, out))
}

fn heading(overview: &Overview) -> String {
    let (layout, nodes) = (&overview.layout, overview.nodes());
    let on = match (nodes, overview.world() % overview.ranks_per_node) {
        (1, _) => "1 node".to_owned(),
        (_, 0) => format!("{nodes} nodes of {}", overview.ranks_per_node),
        (2, rest) => format!("a node of {} and one of {rest}", overview.ranks_per_node),
        (_, rest) => format!("{} nodes of {} and one of {rest}", nodes - 1, overview.ranks_per_node),
    };
    let (world, degrees, order) = (overview.world(), layout.degrees.name(), layout.order_name());
    let plural = if world == 1 { "" } else { "s" };
    let placed = if layout.is_placed_by_hand() { ", ranks placed by hand" } else { "" };
    format!("{world} rank{plural} on {on}: {degrees}, order {order}{placed}")
}

/// Which axes stay inside nodes and which cross them.
fn crossing(overview: &Overview) -> String {
    let names = |crosses: bool| -> String {
        let axes = overview.axes.iter().filter(|view| view.group_size > 1);
        let chosen = axes.filter(|view| (view.locality.nodes_spanned > 1) == crosses);
        let names: Vec<_> = chosen.map(|view| view.axis.name()).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    format!("Inside a node: {}. Across nodes: {}.", names(false), names(true))
}

/// The factors of the degree, for an axis that is derived from others.
fn degree(overview: &Overview, view: &AxisView) -> String {
    let d = &overview.layout.degrees;
    match view.axis {
        Axis::Mp => format!("{} x {}", d.tp, d.pp),
        Axis::DpCp => format!("{} x {}", d.dp, d.cp),
        Axis::Embedding => "ends".to_owned(),
        _ => view.group_size.to_string(),
    }
}

/// The columns without the groups; the degree equals the ranks of a group.
const COLUMNS: [Column; 8] = [
    Column::left("axis", 0),
    Column::right("degree", 1),
    Column::right("groups", 3),
    Column::right("ranks", 4).in_unit("per group"),
    Column::right("nodes", 0).in_unit("spanned"),
    Column::right("ranks", 0).in_unit("per node"),
    Column::right("stride", 2),
    Column::right("groups", 0).in_unit("per node"),
];
const GROUPS: [Column; 2] = [Column::left("first group", 0), Column::left("last group", 0)];

fn table(overview: &Overview, width: usize) -> String {
    let cells = |view: &AxisView| -> Vec<String> {
        let lies = &view.locality;
        let stride = if lies.stride == 0 { "varies".to_owned() } else { lies.stride.to_string() };
        let mut cells = vec![view.axis.name().to_owned(), degree(overview, view), view.groups.to_string()];
        cells.push(view.group_size.to_string());
        cells.extend([lies.nodes_spanned.to_string(), lies.ranks_per_node.to_string(), stride]);
        cells.push(lies.concurrent_groups_per_node.to_string());
        cells
    };
    let rows: Vec<Vec<String>> = overview.axes.iter().map(cells).collect();
    let alone: Vec<Row> = rows.iter().cloned().map(Row::from).collect();
    let used = TableLayout::of(&COLUMNS, &alone, width).width();
    let room = width.saturating_sub(used + 2 * GAP) / 2;
    if room >= MIN_GROUP_COLUMNS {
        let with_groups = rows
            .into_iter()
            .zip(&overview.axes)
            .map(|(row, view)| row.into_iter().chain(ends(overview, view, room)).collect());
        return drawn(&[&COLUMNS[..], &GROUPS[..]].concat(), with_groups, width);
    }
    // Too narrow for both: the groups get a separate table.
    let name_columns = overview.axes.iter().map(|view| view.axis.name().len()).max().unwrap_or(0);
    let room = width.saturating_sub(name_columns + 2 * GAP) / 2;
    let with_groups = |view: &AxisView| {
        let [first, last] = ends(overview, view, room);
        vec![view.axis.name().to_owned(), first, last]
    };
    let groups = overview.axes.iter().map(with_groups);
    format!(
        "{}\n{}",
        drawn(&COLUMNS, rows.into_iter(), width),
        drawn(&[&COLUMNS[..1], &GROUPS[..]].concat(), groups, width)
    )
}

fn ends(overview: &Overview, view: &AxisView, room: usize) -> [String; 2] {
    [&view.first, &view.last].map(|group| group_text(group, &overview.host_of_rank, room.min(MAX_GROUP_COLUMNS)))
}

/// Without naming the columns that were left out, since others say the same.
fn drawn(columns: &[Column], rows: impl Iterator<Item = Vec<String>>, width: usize) -> String {
    let rows: Vec<Row> = rows.map(Row::from).collect();
    let layout = TableLayout::of(columns, &rows, width);
    layout.head() + &rows.iter().map(|row| layout.plain_row(row)).collect::<String>()
}

/// All groups of an axis, or the first and the last of very many.
fn list(overview: &Overview, view: &AxisView, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let groups = overview.layout.groups(view.axis).groups;
    writeln!(out, "\ngroups of {}", view.axis)?;
    let digits = groups.len().saturating_sub(1).to_string().len();
    let hidden = if groups.len() > MAX_LISTED { MAX_LISTED / 2..groups.len() - 1 } else { 0..0 };
    for (index, group) in groups.iter().enumerate() {
        if index == hidden.start && !hidden.is_empty() {
            let last = hidden.end - 1;
            writeln!(out, "  ... groups {index} to {last} are not listed; --format json has them ...")?;
        }
        if !hidden.contains(&index) {
            let ranks = group_text(group, &overview.host_of_rank, width.saturating_sub(digits + 4));
            writeln!(out, "  {index:>digits$}  {ranks}")?;
        }
    }
    Ok(())
}
