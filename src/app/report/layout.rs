//! A layout: the groups of every axis and how they are placed on the nodes, as a picture with a table or as JSON.

use super::document::{Column, Fields, Table, TableLayout};
use super::template::prose;
use commgauge_base::writing::grouped;
use commgauge_model::layout::{Axis, Degrees, Groups, Layout, Locality};
use minijinja::context;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;

// A layout as JSON. Groups are written one axis at a time and never stored all at once.

/// Name of the format.
pub const FORMAT: &str = "commgauge-layout";

/// Incremented when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// The groups of every axis of a layout, and how they are placed on the nodes.
#[derive(Serialize, JsonSchema)]
pub struct LayoutDocument {
    /// Name of the format.
    format: &'static str,
    /// Version of the format.
    version: u32,
    /// Number of ranks.
    world: u32,
    /// The axes, the one that varies fastest over consecutive ranks first.
    order: String,
    /// Degrees of parallelism: tp x cp x dp x pp = world, and etp x ep divides tp x cp x dp.
    degrees: Degrees,
    /// Ranks on each node; rank r is on node r / ranks_per_node, rounded down.
    ranks_per_node: u32,
    /// For each axis the ranks of each group, in group-rank order. `etp` is there where its groups are not those of tp; all
    /// others always, unless some axes were requested. Ranks of inner stages are in no group of `embedding`.
    #[serde(skip_serializing)]
    #[expect(dead_code, reason = "for the schema; each axis is written alone")]
    #[schemars(schema_with = "per_axis::<Vec<Vec<u32>>>")]
    groups: (),
    /// For each axis how a group is placed on the nodes (the busiest group where they differ).
    #[serde(skip_serializing)]
    #[expect(dead_code, reason = "for the schema; each axis is written alone")]
    #[schemars(schema_with = "per_axis::<Locality>")]
    locality: (),
}

/// Writes the document.
///
/// # Errors
/// Those of `out`.
pub fn write_json(overview: &Overview, out: &mut dyn Write) -> io::Result<()> {
    let layout = &overview.layout;
    let document = LayoutDocument {
        format: FORMAT,
        version: VERSION,
        world: overview.world(),
        order: layout.order_name(),
        degrees: layout.degrees,
        ranks_per_node: overview.ranks_per_node,
        groups: (),
        locality: (),
    };
    let facts = serde_json::to_string_pretty(&document)?;
    out.write_all(facts.trim_end_matches("\n}").as_bytes())?;
    write_by_axis(overview, "groups", |view| serde_json::to_string(&layout.groups(view.axis).groups), out)?;
    write_by_axis(overview, "locality", |view| serde_json::to_string(&view.locality), out)?;
    writeln!(out, "\n}}")
}

/// A line for each axis: a layout of many ranks would otherwise be millions of lines.
fn write_by_axis(
    overview: &Overview,
    key: &str,
    value: impl Fn(&AxisView) -> serde_json::Result<String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, ",\n  \"{key}\": {{")?;
    for (index, view) in overview.axes.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}\n    \"{}\": {}", view.axis.name(), value(view)?)?;
    }
    write!(out, "\n  }}")
}

/// An object with the axes as keys.
fn per_axis<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let of_each = generator.subschema_for::<T>().to_value();
    let properties: serde_json::Map<_, _> =
        SHOWN.iter().map(|axis: &Axis| (axis.name().to_owned(), of_each.clone())).collect();
    schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
}

// A layout as text: the picture, the axes that stay inside nodes, and a table of the axes.

/// Groups of an axis that are listed completely.
const MAX_LISTED: usize = 32;

/// Minimum width of the group column.
const MIN_GROUP_COLUMNS: usize = 24;

/// Width beyond which a group is elided, even on a wide terminal.
const MAX_GROUP_COLUMNS: usize = 40;

/// Writes the layout for a width.
///
/// # Errors
/// Those of `out`.
pub fn write(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let (layout, world) = (&overview.layout, overview.world());
    let names = |crosses: bool| -> Vec<&str> {
        let axes = overview.axes.iter().filter(|view| view.group_size > 1);
        axes.filter(|view| (view.locality.nodes_spanned > 1) == crosses).map(|view| view.axis.name()).collect()
    };
    let facts = context! {
        width, world, nodes => overview.nodes(), ranks_per_node => overview.ranks_per_node,
        degrees => layout.degrees.name(), order => layout.order_name(), by_hand => layout.is_placed_by_hand(),
        inside => names(false), across => names(true), picture => picture(overview, width), table => table(overview, width),
    };
    write!(out, "{}", prose("layout.txt", include_str!("templates/layout.txt"), facts))
}

/// Writes the groups of each axis.
///
/// # Errors
/// Those of `out`.
pub fn write_groups(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
    overview.axes.iter().try_for_each(|view| list(overview, view, width, out))
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

fn table(overview: &Overview, width: usize) -> String {
    let stride = |view: &AxisView| match view.locality.stride {
        0 => "varies".to_owned(),
        stride => stride.to_string(),
    };
    // The degree equals the ranks of a group.
    let fields = || {
        Fields::of(&overview.axes)
            .left("axis", 0, |view| view.axis.name())
            .right("degree", 1, |view| degree(overview, view))
            .right("groups", 3, |view| view.groups)
            .column(Column::right("ranks", 4).in_unit("per group"), |view| view.group_size)
            .column(Column::right("nodes", 0).in_unit("spanned"), |view| view.locality.nodes_spanned)
            .column(Column::right("ranks", 0).in_unit("per node"), |view| view.locality.ranks_per_node)
            .right("stride", 2, |view| stride(view))
            .column(Column::right("groups", 0).in_unit("per node"), |view| view.locality.concurrent_groups_per_node)
    };
    let alone = fields().table("");
    let used = TableLayout::of(&alone.columns, &alone.rows, width).width();
    let room = width.saturating_sub(used + 2 * GAP) / 2;
    if room >= MIN_GROUP_COLUMNS {
        return drawn(&with_groups(fields(), overview, room), width);
    }
    // Too narrow for both: the groups get a separate table.
    let name_columns = overview.axes.iter().map(|view| view.axis.name().len()).max().unwrap_or(0);
    let room = width.saturating_sub(name_columns + 2 * GAP) / 2;
    let axes = Fields::of(&overview.axes).left("axis", 0, |view| view.axis.name());
    format!("{}\n{}", drawn(&alone, width), drawn(&with_groups(axes, overview, room), width))
}

fn with_groups<'a>(fields: Fields<'a, &'a AxisView>, overview: &'a Overview, room: usize) -> Table {
    let group = move |ranks: &[u32]| group_text(ranks, &overview.host_of_rank, room.min(MAX_GROUP_COLUMNS));
    fields
        .left("first group", 0, move |view| group(&view.first))
        .left("last group", 0, move |view| group(&view.last))
        .table("")
}

/// Without naming the columns that were left out, since others say the same.
fn drawn(table: &Table, width: usize) -> String {
    let layout = TableLayout::of(&table.columns, &table.rows, width);
    layout.head() + &table.rows.iter().map(|row| layout.plain_row(row)).collect::<String>()
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

// The axes of a layout with their placement, and its picture: nodes as boxes with their ranks, and under each rank the number of
// its group on each axis.
//
// For many nodes, the middle is omitted with a note.

/// The displayed axes, in the order of the table.
pub const SHOWN: [Axis; 10] =
    [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Etp, Axis::Dp, Axis::Pp, Axis::Mp, Axis::DpCp, Axis::Edp, Axis::Embedding];

/// A layout on nodes.
pub struct Overview {
    pub(super) layout: Layout,
    pub(super) ranks_per_node: u32,
    /// Node of each rank: launchers fill one node after the other.
    pub(super) host_of_rank: Vec<u32>,
    pub(super) axes: Vec<AxisView>,
}

/// One axis, without its groups: these are computed while they are written, one axis at a time, so that 131,072 ranks
/// need little memory.
pub(super) struct AxisView {
    pub(super) axis: Axis,
    pub(super) groups: usize,
    pub(super) group_size: u32,
    pub(super) locality: Locality,
    pub(super) first: Vec<u32>,
    pub(super) last: Vec<u32>,
}

impl Overview {
    /// The overview of these axes, or of all if none is given. Tensor parallelism inside experts is included if its
    /// groups differ from those of the dense layers.
    pub fn new(layout: Layout, ranks_per_node: u32, axes: &[Axis]) -> Overview {
        let host_of_rank: Vec<u32> = (0..layout.group_size(Axis::World)).map(|rank| rank / ranks_per_node).collect();
        let is_shown = |axis: &Axis| match axes {
            [] => *axis != Axis::Etp || layout.has_own_expert_tensor_groups(),
            named => named.contains(axis),
        };
        let axes = SHOWN.into_iter().filter(is_shown);
        let axes = axes.map(|axis| AxisView::new(layout.groups(axis), &host_of_rank)).collect();
        Overview { layout, ranks_per_node, host_of_rank, axes }
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.host_of_rank.len() as u32
    }

    /// Number of nodes; the last one may be partially filled.
    pub fn nodes(&self) -> u32 {
        self.world().div_ceil(self.ranks_per_node)
    }
}

impl AxisView {
    fn new(groups: Groups, host_of_rank: &[u32]) -> AxisView {
        let end = |group: Option<&Vec<u32>>| group.cloned().unwrap_or_default();
        AxisView {
            axis: groups.axis,
            groups: groups.groups.len(),
            group_size: groups.group_size(),
            locality: Locality::of(&groups, host_of_rank),
            first: end(groups.groups.first()),
            last: end(groups.groups.last()),
        }
    }
}

/// The ranks of a group with a bar at each node boundary, such as `0 4 | 8 12`; the middle of long groups is replaced
/// by `..`.
pub(super) fn group_text(group: &[u32], host_of_rank: &[u32], most_columns: usize) -> String {
    let host = |rank: u32| host_of_rank.get(rank as usize);
    let mut text = String::new();
    let mut previous: Option<u32> = None;
    let tail = group.last().map_or(String::new(), |last| format!(" .. {last}"));
    // Longest prefix that fits together with the elided rest.
    let mut fitting = 0;
    for rank in group {
        match previous {
            Some(previous) if host(previous) != host(*rank) => text += " | ",
            Some(_) => text.push(' '),
            None => {}
        }
        text += &rank.to_string();
        previous = Some(*rank);
        if text.len() + tail.len() <= most_columns {
            fitting = text.len();
        }
        if text.len() > most_columns {
            text.truncate(fitting);
            return if fitting == 0 { tail.trim_start().to_owned() } else { text + &tail };
        }
    }
    text
}

/// Minimum number of boxes before any are omitted, on several lines if necessary.
const MAX_BOXES: usize = 4;
/// Columns between boxes.
const GAP: usize = 2;
/// Group of a rank that is in no group of the axis.
const NONE: u32 = u32::MAX;

/// The picture, at most `width` columns wide unless a box of one rank is wider.
pub(super) fn picture(overview: &Overview, width: usize) -> String {
    let rows = rows(overview);
    let canvas = Canvas::new(overview, &rows, width);
    let mut text = String::new();
    let boxes = canvas.boxes();
    if boxes.len() <= MAX_BOXES.max(canvas.boxes_per_line) {
        canvas.draw(&boxes, &mut text);
    } else {
        let first = if canvas.boxes_per_line == 1 { 2 } else { canvas.boxes_per_line };
        canvas.draw(&boxes[..first], &mut text);
        let (hidden, last) = boxes[first..].split_at(boxes.len() - first - 1);
        let (from, to) = (hidden[0].start, last[0].start - 1);
        let (first_node, last_node) = (from / overview.ranks_per_node, to / overview.ranks_per_node);
        let nodes = match (first_node, last_node) {
            (first, last) if first == last => format!("of node {first}"),
            (first, last) => format!("on nodes {first} to {last}"),
        };
        let hidden = format!("... ranks {from} to {to} {nodes} are not drawn ...");
        let indent = (canvas.label + 1).min(width.saturating_sub(hidden.len()));
        text += &format!("{:indent$}{hidden}\n", "");
        canvas.draw(last, &mut text);
    }
    text
}

/// A line of the picture: axes with the same groups, and the group of each rank.
struct Row {
    name: String,
    group_of_rank: Vec<u32>,
}

/// The axes whose groups have more than one rank; axes with the same groups share a row.
fn rows(overview: &Overview) -> Vec<Row> {
    let of_axis = |view: &AxisView| {
        let mut group_of_rank = vec![NONE; overview.host_of_rank.len()];
        for (index, group) in overview.layout.groups(view.axis).groups.iter().enumerate() {
            group.iter().for_each(|rank| group_of_rank[*rank as usize] = index as u32);
        }
        (group_of_rank, view.axis.name())
    };
    let axes = grouped(overview.axes.iter().filter(|view| view.group_size > 1).map(of_axis));
    axes.into_iter().map(|(group_of_rank, names)| Row { name: names.join(", "), group_of_rank }).collect()
}

/// Dimensions of the picture.
struct Canvas<'a> {
    overview: &'a Overview,
    rows: &'a [Row],
    /// Columns of the row labels.
    label: usize,
    /// Columns of one rank, including a leading space.
    cell: usize,
    ranks_per_box: u32,
    /// Columns of all boxes of a line.
    box_columns: usize,
    boxes_per_line: usize,
}

impl Canvas<'_> {
    fn new<'a>(overview: &'a Overview, rows: &'a [Row], width: usize) -> Canvas<'a> {
        let label = rows.iter().map(|row| row.name.len()).chain(["rank".len()]).max().unwrap_or(0);
        let cell = 1 + (overview.world() - 1).to_string().len();
        let ranks_per_node = overview.ranks_per_node.min(overview.world());
        let box_columns = width.saturating_sub(label + 1);
        let most = (box_columns.saturating_sub(3) / cell).max(1) as u32;
        let ranks_per_box = match most {
            most if most >= ranks_per_node => ranks_per_node,
            // Nodes are split at a multiple of 8, for readability.
            0..8 => most,
            _ => most / 8 * 8,
        };
        let mut canvas = Canvas { overview, rows, label, cell, ranks_per_box, box_columns, boxes_per_line: 1 };
        let widest = canvas.boxes().iter().map(|ranks| canvas.inner(ranks) + 2).max().unwrap_or(0);
        canvas.boxes_per_line = ((box_columns + GAP) / (widest + GAP)).max(1);
        canvas
    }

    /// The ranks of each box: a node, or a part of a node that is too wide.
    fn boxes(&self) -> Vec<Range<u32>> {
        let (world, per_node) = (self.overview.world(), self.overview.ranks_per_node);
        let nodes = (0..self.overview.nodes())
            .map(|node| node * per_node..(node * per_node).saturating_add(per_node).min(world));
        let per_box = self.ranks_per_box;
        nodes
            .flat_map(|node| {
                let end = node.end;
                node.step_by(per_box as usize).map(move |start| start..(start + per_box).min(end))
            })
            .collect()
    }

    fn title(&self, ranks: &Range<u32>) -> String {
        let node = ranks.start / self.overview.ranks_per_node;
        if self.ranks_per_box < self.overview.ranks_per_node.min(self.overview.world()) {
            let full = format!(" node {node}, ranks {} to {} ", ranks.start, ranks.end - 1);
            if full.len() + 3 <= self.box_columns {
                return full;
            }
        }
        format!(" node {node} ")
    }

    /// Columns inside a box.
    fn inner(&self, ranks: &Range<u32>) -> usize {
        (ranks.len() * self.cell + 1).max(self.title(ranks).len() + 1)
    }

    fn draw(&self, boxes: &[Range<u32>], text: &mut String) {
        for line in boxes.chunks(self.boxes_per_line) {
            let ceiling = |ranks: &Range<u32>| {
                let title = self.title(ranks);
                format!("\u{250c}{title}{}\u{2510}", "\u{2500}".repeat(self.inner(ranks) - title.len()))
            };
            let rule = |left: char, right: char, ranks: &Range<u32>| {
                format!("{left}{}{right}", "\u{2500}".repeat(self.inner(ranks)))
            };
            self.line("", line, &ceiling, text);
            self.line("rank", line, &|ranks| self.cells(ranks, |rank| rank), text);
            if !self.rows.is_empty() {
                self.line("", line, &|ranks| rule('\u{251c}', '\u{2524}', ranks), text);
            }
            for row in self.rows {
                self.line(&row.name, line, &|ranks| self.cells(ranks, |rank| row.group_of_rank[rank as usize]), text);
            }
            self.line("", line, &|ranks| rule('\u{2514}', '\u{2518}', ranks), text);
        }
    }

    fn line(&self, name: &str, boxes: &[Range<u32>], part: &dyn Fn(&Range<u32>) -> String, text: &mut String) {
        let parts: Vec<_> = boxes.iter().map(part).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>label$} {}", parts.join(&" ".repeat(GAP)), label = self.label);
    }

    fn cells(&self, ranks: &Range<u32>, number: impl Fn(u32) -> u32) -> String {
        let cell = |rank| match number(rank) {
            NONE => format!("{:>cell$}", "-", cell = self.cell),
            number => format!("{number:>cell$}", cell = self.cell),
        };
        let cells: String = ranks.clone().map(cell).collect();
        format!("\u{2502}{cells:inner$}\u{2502}", inner = self.inner(ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_mark_node_boundaries_and_long_groups_are_elided() {
        let hosts: Vec<u32> = (0..200).map(|rank| rank / 8).collect();
        for (group, most_columns, expected) in [
            (vec![0, 4, 8, 12], 40, "0 4 | 8 12"),
            (vec![0, 8], 5, "0 | 8"),
            (vec![], 5, ""),
            (vec![3], 1, "3"),
            ((0..8).collect(), 9, "0 1 .. 7"),
            ((0..16).map(|i| i * 8).collect(), 20, "0 | 8 | 16 .. 120"),
            (vec![100, 101, 102], 4, ".. 102"),
        ] {
            assert_eq!(group_text(&group, &hosts, most_columns), expected, "{group:?}");
        }
    }
}
