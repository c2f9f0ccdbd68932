//! A layout as text: the picture, the axes that stay inside nodes, and a table of the axes.

use super::overview::{AxisView, Overview, group_text};
use super::picture::picture;
use crate::cli::plain_table::STYLE;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use commgauge_model::layout::Axis;
use std::io::{self, Write};

/// Groups of an axis that are listed completely.
const MAX_LISTED: usize = 32;
/// Minimum width of the group column.
const MIN_GROUP_COLUMNS: usize = 24;
/// Width beyond which a group is elided, even on a wide terminal.
const MAX_GROUP_COLUMNS: usize = 40;
/// Spaces between columns.
const GAP: usize = 2;

/// Writes the layout for a width; `listed` adds the groups of each axis.
pub(super) fn write(overview: &Overview, width: usize, listed: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", wrapped(&heading(overview), width))?;
    write!(out, "{}", picture(overview, width))?;
    let drawn = "Under each rank is the number of its group on each axis; axes with one rank in a group are not drawn.";
    writeln!(out, "{}\n", wrapped(drawn, width))?;
    writeln!(out, "{}\n", wrapped(&crossing(overview), width))?;
    write!(out, "{}", table(overview, width))?;
    if listed {
        for view in &overview.axes {
            list(overview, view, width, out)?;
        }
    }
    Ok(())
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

/// The columns without the groups.
const HEADINGS: [&str; 8] =
    ["axis", "degree", "groups", "ranks\nper group", "nodes\nspanned", "ranks\nper node", "stride", "groups\nper node"];

/// Columns that are dropped first if the width does not suffice; the degree equals the ranks per group.
const EXPENDABLE: [usize; 4] = [3, 2, 6, 1];

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
    let mut rows: Vec<Vec<String>> = overview.axes.iter().map(cells).collect();
    let columns = |column: usize| {
        let heading = HEADINGS[column].lines().map(str::len).max().unwrap_or(0);
        rows.iter().map(|row| row[column].len()).chain([heading]).max().unwrap_or(0) + GAP
    };
    let mut shown: Vec<usize> = (0..HEADINGS.len()).collect();
    let used = |shown: &[usize]| shown.iter().map(|column| columns(*column)).sum::<usize>() - GAP;
    for expendable in EXPENDABLE {
        if used(&shown) > width {
            shown.retain(|column| *column != expendable);
        }
    }
    let used = used(&shown);
    let headings: Vec<&str> = shown.iter().map(|column| HEADINGS[*column]).collect();
    for row in &mut rows {
        *row = shown.iter().map(|column| row[*column].clone()).collect();
    }
    let group_headings = ["first group", "last group"];
    let room = width.saturating_sub(used + 2 * GAP) / 2;
    if room >= MIN_GROUP_COLUMNS {
        for (row, view) in rows.iter_mut().zip(&overview.axes) {
            row.extend(ends(overview, view, room));
        }
        return laid_out(&[&headings[..], &group_headings[..]].concat(), &rows);
    }
    // Too narrow for both: the groups get a separate table.
    let name_columns = overview.axes.iter().map(|view| view.axis.name().len()).max().unwrap_or(0);
    let room = width.saturating_sub(name_columns + 2 * GAP) / 2;
    let with_groups = |view: &AxisView| {
        let [first, last] = ends(overview, view, room);
        vec![view.axis.name().to_owned(), first, last]
    };
    let groups: Vec<_> = overview.axes.iter().map(with_groups).collect();
    format!("{}\n{}", laid_out(&headings, &rows), laid_out(&["axis", group_headings[0], group_headings[1]], &groups))
}

fn ends(overview: &Overview, view: &AxisView, room: usize) -> [String; 2] {
    [&view.first, &view.last].map(|group| group_text(group, &overview.host_of_rank, room.min(MAX_GROUP_COLUMNS)))
}

fn laid_out(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(headings.iter().map(|heading| Cell::new(*heading)));
    for row in rows {
        table.add_row(row.iter().map(Cell::new));
    }
    for (index, heading) in headings.iter().enumerate() {
        let Some(column) = table.column_mut(index) else { continue };
        let is_text = matches!(*heading, "axis" | "first group" | "last group");
        column.set_padding((0, if index + 1 == headings.len() { 0 } else { GAP as u16 }));
        column.set_cell_alignment(if is_text { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
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

/// Wraps a sentence between words.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
