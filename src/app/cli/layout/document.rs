//! A layout as JSON, and its JSON Schema. Groups are written one axis at a time and never stored all at once.

use super::overview::{AxisView, Overview, SHOWN};
use crate::cli::published::published;
use commgauge_model::layout::{Axis, Degrees, Layout, Locality};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, Write};

/// Name of the format.
const FORMAT: &str = "commgauge-layout";
/// Incremented when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// The groups of every axis of a layout, and how they lie on the nodes.
#[derive(serde::Serialize, JsonSchema)]
struct Document<'a> {
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
    /// For each axis how a group lies on the nodes (the busiest group where they differ).
    locality: LocalityOf<'a>,
}

/// Writes the document.
pub(super) fn write(overview: &Overview, out: &mut dyn Write) -> io::Result<()> {
    let layout = &overview.layout;
    let document = Document {
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

/// The JSON Schema (draft 2020-12) of the document.
pub fn schema() -> Value {
    published(schemars::schema_for!(Document).to_value(), FORMAT, VERSION, &format!("A {FORMAT}, version {VERSION}"))
}

/// The groups of each axis, computed while they are written.
struct GroupsOf<'a> {
    layout: &'a Layout,
    axes: &'a [AxisView],
}

impl Serialize for GroupsOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
