//! A layout: the groups of every axis and how they are placed on the nodes, as a picture with a table or as JSON.

mod picture;

use super::document::{Column, Fields, GAP, Table, TableLayout};
use super::wrap;
use commgauge_model::layout::{Axis, Degrees, Layout, Locality};
use picture::{AxisView, group_text, picture};
pub use picture::{Overview, SHOWN};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::io;
use std::io::Write;

// A layout as JSON. Groups are written one axis at a time and never stored all at once.

/// Name of the format.
pub const FORMAT: &str = "commgauge-layout";

/// Incremented when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// The groups of every axis of a layout, and how they are placed on the nodes.
#[derive(serde::Serialize, JsonSchema)]
pub struct LayoutDocument<'a> {
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
    groups: GroupsOf<'a>,
    /// For each axis how a group is placed on the nodes (the busiest group where they differ).
    locality: LocalityOf<'a>,
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
        groups: GroupsOf { layout, axes: &overview.axes },
        locality: LocalityOf(&overview.axes),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Shallow::default());
    document.serialize(&mut serializer)?;
    writeln!(out)
}

/// The groups of each axis, computed while they are written.
struct GroupsOf<'a> {
    layout: &'a Layout,
    axes: &'a [AxisView],
}

impl Serialize for GroupsOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.axes.len()))?;
        for view in self.axes {
            map.serialize_entry(view.axis.name(), &self.layout.groups(view.axis).groups)?;
        }
        map.end()
    }
}

impl JsonSchema for GroupsOf<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Groups".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        per_axis(generator.subschema_for::<Vec<Vec<u32>>>())
    }
}

/// The locality of each axis.
struct LocalityOf<'a>(&'a [AxisView]);

impl Serialize for LocalityOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|view| (view.axis.name(), &view.locality)))
    }
}

impl JsonSchema for LocalityOf<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Localities".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        per_axis(generator.subschema_for::<Locality>())
    }
}

/// An object with the axes as keys.
fn per_axis(of_each: Schema) -> Schema {
    let properties: serde_json::Map<_, _> =
        SHOWN.iter().map(|axis: &Axis| (axis.name().to_owned(), of_each.clone().to_value())).collect();
    schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Puts each key of the two outer objects on its own line and everything inside them on the same line: a layout of many
/// ranks would otherwise be millions of lines.
#[derive(Default)]
struct Shallow {
    objects: usize,
}

impl Shallow {
    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        write!(writer, "\n{:indent$}", "", indent = 2 * self.objects)
    }
}

impl serde_json::ser::Formatter for Shallow {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.objects += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.objects -= 1;
        if self.objects < 2 {
            self.new_line(writer)?;
        }
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        match (self.objects < 3, first) {
            (true, true) => self.new_line(writer),
            (true, false) => writer.write_all(b",").and_then(|()| self.new_line(writer)),
            (false, true) => Ok(()),
            (false, false) => writer.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
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
    writeln!(out, "{}\n", wrap(&heading(overview), width, 0))?;
    write!(out, "{}", picture(overview, width))?;
    let drawn = "Under each rank is the number of its group on each axis; axes with one rank in a group are not drawn.";
    writeln!(out, "{}\n", wrap(drawn, width, 0))?;
    writeln!(out, "{}\n", wrap(&crossing(overview), width, 0))?;
    write!(out, "{}", table(overview, width))
}

/// Writes the groups of each axis.
///
/// # Errors
/// Those of `out`.
pub fn write_groups(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
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
