//! `commgauge layout`: the groups of every axis and their placement on the nodes, as a picture or as JSON. Needs no
//! launch.
//!
//! Flags are parsed like a suite's `[[layout]]`, so that errors are reported in the same way.

mod document;
mod overview;
mod picture;
mod table;

pub use document::schema;

use super::TableOrJson;
use super::degrees::DegreeFlags;
use super::terminal::columns;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Place, Table};
use commgauge_model::layout::{Axis, MOST_RANKS};
use overview::Overview;
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
    #[arg(long, value_name = "NUMBER", default_value = "8", allow_negative_numbers = true)]
    pub ranks_per_node: String,

    /// Show these axes only, with all their groups; names as in the table, comma-separated
    #[arg(long = "axis", value_name = "AXES", value_delimiter = ',')]
    pub axes: Vec<String>,

    /// A picture and a table, or one JSON document with every group
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,

    /// Columns that the picture may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
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
            TableOrJson::Table => {
                table::write(&overview, usize::from(width), out).and_then(|()| match self.axes.is_empty() {
                    true => Ok(()),
                    false => table::write_groups(&overview, usize::from(width), out),
                })
            }
            TableOrJson::Json => document::write(&overview, out),
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

#[cfg(test)]
mod tests;
