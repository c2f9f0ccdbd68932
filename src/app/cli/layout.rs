//! `commgauge layout`: the groups of every axis and their placement on the nodes, as a picture or as JSON. Needs no
//! launch.
//!
//! Flags are parsed like a suite's `[[layout]]`, so that errors are reported in the same way.

mod overview;
mod picture;

use super::TableOrJson;
use super::degrees::DegreeFlags;
use super::output::columns;
use crate::cli::published::published;
use crate::report::document::{Column, GAP, Row, TableLayout};
use crate::report::wrap;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Place, Table};
use commgauge_model::layout::{Axis, Degrees, Layout, Locality, MOST_RANKS};
use overview::{AxisView, Overview, SHOWN, group_text};
use picture::picture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::io;
use std::io::{BufWriter, ErrorKind, Write};

/// Show the groups of every axis of a layout, and how they are placed on the nodes
///
/// commgauge layout --ranks 16 --tp 2 --pp 4
///
/// Ranks are numbered as the launcher numbers them, so that consecutive ranks share a node.
#[derive(Clone, Debug, clap::Args)]
pub struct LayoutCommand {
    /// The degrees, their order, and where ranks stand.
    #[command(flatten)]
    pub degrees: DegreeFlags,

    /// Number of ranks [default: tp x cp x dp x pp, if --dp is given]
    #[arg(long, visible_alias = "world", value_name = "RANKS", allow_negative_numbers = true)]
    pub ranks: Option<String>,

    /// Ranks on each node
    #[arg(long, value_name = "N", default_value = "8", allow_negative_numbers = true)]
    pub ranks_per_node: String,

    /// Show these axes only, with all their groups; names as in the table, comma-separated
    #[arg(long = "axis", value_name = "AXES", value_delimiter = ',')]
    pub axes: Vec<String>,

    /// Format of the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,

    /// Columns that the picture may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
    pub width: Option<u16>,
}

impl LayoutCommand {
    fn world(&self) -> Result<Option<u32>> {
        let given = self.ranks.clone().map(|text| ("--ranks", "ranks", text));
        Table::of_flags(given).take("ranks").map(|item| item.count_within(1..=MOST_RANKS)).transpose()
    }

    /// Prints the layout on stdout.
    ///
    /// # Errors
    /// Usage errors as of [`DegreeArguments::layout`], and an environment error if stdout cannot be written.
    pub fn execute(&self) -> Result<i32> {
        let stdout = std::io::stdout();
        self.show_on(columns(self.width), &mut BufWriter::new(stdout.lock()))?;
        Ok(0)
    }

    /// Writes the layout to `out`. If the reader closes the pipe early, it ends without an error.
    ///
    /// # Errors
    /// As [`LayoutCommand::execute`].
    pub fn show_on(&self, width: u16, out: &mut dyn Write) -> Result<()> {
        let overview = self.overview()?;
        let written = match self.format {
            TableOrJson::Table => write(&overview, usize::from(width), out).and_then(|()| match self.axes.is_empty() {
                true => Ok(()),
                false => write_groups(&overview, usize::from(width), out),
            }),
            TableOrJson::Json => write_json(&overview, out),
        };
        match written.and_then(|()| out.flush()) {
            Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
                Err(Error::environment(format!("cannot write the layout: {cause}")))
            }
            _ => Ok(()),
        }
    }

    fn overview(&self) -> Result<Overview> {
        let key = "ranks_per_node";
        let mut table = Table::of_flags([("--ranks-per-node", key, self.ranks_per_node.clone())]);
        let accepted = "the number of ranks on each node";
        let ranks_per_node = table.require(key, accepted)?.count_within(1..=MOST_RANKS)?;
        let mut axes = Vec::new();
        for name in &self.axes {
            let shown = Axis::named(name).filter(|axis| overview::SHOWN.contains(axis));
            let axis = shown.ok_or_else(|| {
                let accepted = overview::SHOWN.map(Axis::name).join(", ");
                Place::flag("--axis").wrong(format!("found `{name}`; accepted: {accepted}"))
            })?;
            axes.push(axis);
        }
        Ok(Overview::new(self.degrees.layout(self.world()?)?, ranks_per_node, &axes))
    }
}

// A layout as JSON, and its JSON Schema. Groups are written one axis at a time and never stored all at once.

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
fn write_json(overview: &Overview, out: &mut dyn Write) -> io::Result<()> {
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
fn write(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", wrap(&heading(overview), width, 0))?;
    write!(out, "{}", picture(overview, width))?;
    let drawn = "Under each rank is the number of its group on each axis; axes with one rank in a group are not drawn.";
    writeln!(out, "{}\n", wrap(drawn, width, 0))?;
    writeln!(out, "{}\n", wrap(&crossing(overview), width, 0))?;
    write!(out, "{}", table(overview, width))
}

/// Writes the groups of each axis.
fn write_groups(overview: &Overview, width: usize, out: &mut dyn Write) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    // Tests of the command from its arguments: errors, the picture at two widths, the document against its schema.
    use super::*;
    use clap::Parser;
    use serde_json::Value;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        layout: LayoutCommand,
    }

    fn shown(line: &str, width: u16) -> Result<String> {
        let words = std::iter::once("layout").chain(line.split_whitespace());
        let command = Program::try_parse_from(words).map_err(|error| Error::usage(error.to_string()))?.layout;
        let mut out = Vec::new();
        command.show_on(width, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn document(line: &str) -> Value {
        serde_json::from_str(&shown(&format!("{line} --format json"), 80).unwrap()).unwrap()
    }

    #[test]
    fn invalid_layouts_are_refused_with_the_flag_and_the_rule() {
        for (line, expected) in [
            ("", "--ranks: is missing; give the number of ranks, or --dp, so that it follows"),
            ("--tp 2 --pp 4", "--ranks: is missing"),
            ("--ranks 0", "--ranks: found 0; accepted: a whole number from 1 to 1048576"),
            ("--ranks 1048577", "--ranks: found 1048577; accepted: a whole number from 1 to 1048576"),
            ("--ranks 99999999999999999999999999", "--ranks: found 99999999999999999999999999; accepted"),
            ("--ranks 16 --tp 0", "--tp: found 0; accepted: a whole number from 1 to 1048576"),
            ("--ranks 16 --pp -4", "--pp: found -4; accepted: a whole number from 1"),
            ("--ranks 16 --ep 2.5", "--ep: found 2.5; accepted: a whole number from 1"),
            ("--ranks 16 --cp two", "--cp: found the text \"two\"; accepted: a whole number from 1"),
            ("--ranks 16 --tp 2 --dp 3 --pp 4", "= 24 ranks, but there are 16; start 24, or write dp = 2"),
            (
                "--ranks 16 --tp 3",
                "needs a multiple of 3 ranks, but there are 16; nearest: 15 or 18, or write tp = 2 or 4",
            ),
            (
                "--tp 1024 --dp 1024 --pp 2",
                "tp 1024 x cp 1 x dp 1024 x pp 2 = 2097152 ranks; the most are 1048576 (2^20)",
            ),
            (
                "--ranks 16 --tp 2 --ep 3",
                "ep 3 x etp 2 = 6 does not divide the tp 2 x cp 1 x dp 8 = 16 ranks of a stage",
            ),
            ("--ranks 16 --etp 3", "nearest that divide: etp 2 or 4"),
            ("--ranks 16 --order tp-dp-zz", "--order: found `zz` in `tp-dp-zz`; accepted: the axes from the fastest"),
            ("--ranks 16 --order tp-dp-tp", "--order: `tp-dp-tp` names tp twice"),
            ("--ranks 16 --tp 2 --order tp-pp", "axis order tp-pp: dp is left out, but dp is 8"),
            ("--ranks 16 --ranks-per-node 0", "--ranks-per-node: found 0; accepted: a whole number from 1"),
            (
                "--ranks 16 --axis tp,xx",
                "--axis: found `xx`; accepted: tp, cp, ep, etp, dp, pp, mp, dp_cp, edp, embedding",
            ),
            ("--ranks 16 --axis pair", "--axis: found `pair`"),
            ("--ranks 16 --rank-list no/such/file", "--rank-list: cannot read no/such/file"),
            ("--ranks 16 --format yaml", "invalid value 'yaml'"),
            (
                "--ranks 64 --tp 8 --pp 2 --ep 4 --order tp-cp-ep-pp-dp",
                "before pp are tp 8 x cp 1 = 8 ranks for dense layers and etp 8 x ep 4 = 32 for experts; put pp last",
            ),
        ] {
            let error = shown(line, 80).expect_err(line);
            assert!(error.to_string().contains(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn the_picture_fits_the_width() {
        for (name, line) in [
            ("sixteen", "--ranks 16 --tp 2 --pp 4 --dp 2"),
            ("sixteen_swapped", "--ranks 16 --tp 2 --pp 4 --order tp-cp-ep-pp-dp"),
            ("experts", "--ranks 64 --tp 8 --pp 2 --ep 8 --etp 1"),
            ("many", "--ranks 131072 --tp 8 --cp 2 --pp 16 --ep 64 --etp 1"),
            ("wide_node", "--ranks 144 --ranks-per-node 72 --tp 8 --pp 2"),
            ("uneven", "--ranks 12 --tp 2 --dp 6 --axis dp,pp"),
        ] {
            for width in [80, 140] {
                let text = shown(line, width).unwrap();
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(widest <= usize::from(width), "{name} at {width}: {widest}\n{text}");
                insta::assert_snapshot!(format!("{name}_{width}"), text);
            }
            let text = shown(line, 60).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= 60), "{name} at 60:\n{text}");
        }
    }

    #[test]
    fn the_document_has_every_group_and_its_locality() {
        let json = document("--tp 2 --pp 4 --dp 2");
        assert_eq!((&json["format"], &json["version"]), (&"commgauge-layout".into(), &1.into()));
        assert_eq!((&json["world"], &json["order"]), (&16.into(), &"tp-cp-ep-dp-pp".into()));
        assert_eq!(json["degrees"], serde_json::json!({"tp": 2, "cp": 1, "dp": 2, "pp": 4, "ep": 1, "etp": 2}));
        let keys: Vec<_> = json["groups"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = ["tp", "cp", "ep", "dp", "pp", "mp", "dp_cp", "edp", "embedding"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(
            json["groups"]["pp"],
            serde_json::json!([[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]])
        );
        let lies = |nodes, ranks, stride, groups| {
            serde_json::json!({
                "nodes_spanned": nodes, "ranks_per_node": ranks, "stride": stride, "concurrent_groups_per_node": groups
            })
        };
        assert_eq!(json["locality"]["tp"], lies(1, 2, 1, 4));
        assert_eq!(json["locality"]["dp"], lies(1, 2, 2, 4));
        assert_eq!(json["locality"]["pp"], lies(2, 2, 4, 4));
        assert_eq!(json["locality"]["mp"], lies(2, 4, 0, 2));
        assert_eq!(json["locality"]["embedding"], lies(2, 1, 12, 4));
        let json = document("--tp 8 --dp 4 --pp 2 --ep 8 --etp 1");
        assert_eq!(json["groups"]["etp"][63], serde_json::json!([63]), "etp is there where it is not tp");
        let json = document("--ranks 16 --tp 2 --axis dp,tp");
        assert_eq!(json["groups"].as_object().unwrap().len(), 2);
    }

    #[test]
    fn every_document_is_valid_and_an_unknown_one_is_not() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for line in
            ["--ranks 1", "--ranks 16 --tp 2 --pp 4", "--ranks 64 --tp 8 --ep 8 --etp 1", "--ranks 16 --axis dp"]
        {
            let json = document(line);
            let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{line}: {errors:?}");
        }
        let mut stranger = document("--ranks 16");
        stranger["groups"]["zz"] = serde_json::json!([[0]]);
        assert!(!validator.is_valid(&stranger));
        stranger = document("--ranks 16");
        stranger["version"] = 2.into();
        assert!(!validator.is_valid(&stranger));
    }

    #[test]
    fn a_mapping_file_moves_ranks_to_other_positions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.txt");
        std::fs::write(&path, "0 4 1 5 # even positions on the first node\n2 6 3 7\n").unwrap();
        let line = format!("--tp 2 --dp 4 --ranks-per-node 4 --rank-list {}", path.display());
        let json = document(&line);
        assert_eq!(json["groups"]["tp"], serde_json::json!([[0, 4], [1, 5], [2, 6], [3, 7]]));
        assert_eq!(json["locality"]["tp"]["nodes_spanned"], 2);
        assert!(
            shown(&line, 80)
                .unwrap()
                .starts_with("8 ranks on 2 nodes of 4: tp 2 x dp 4, order tp-cp-ep-dp-pp, ranks placed")
        );
        std::fs::write(&path, "0 4 1 5\n2 6 3 3\n").unwrap();
        let error = shown(&line, 80).unwrap_err();
        let place = format!("{}:2: rank 3 is named a second time, the first is on line 2", path.display());
        assert!(error.to_string().starts_with(&place), "{error}");
    }
}
