//! `commgauge layout`: the groups of every axis and how they lie on the nodes, as a picture or as JSON. Needs no launch.
//!
//! Flags are read as a suite's `[[layout]]` is, so equal mistakes get equal words.

mod document;
mod overview;
mod picture;
mod ranks_file;
mod table;

pub use document::schema;
pub use ranks_file::read_ranks;

use super::TableOrJson;
use crate::config::{LayoutTable, Place, Table};
use crate::error::{Error, Result};
use crate::layout::{Axis, Layout, MOST_RANKS};
use crate::workload::step::{layout_on, ranks_of};
use overview::Overview;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

/// Columns of a picture that goes into a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: u16 = 100;

/// Show the groups of every axis of a layout, and how they lie on the nodes
///
/// commgauge layout --world 16 --tp 2 --pp 4
///
/// Ranks are numbered as the launcher numbers them, so that consecutive ranks share a node.
#[derive(Clone, Debug, clap::Args)]
pub struct LayoutCommand {
    /// The degrees, their order, and where ranks stand.
    #[command(flatten)]
    pub degrees: DegreeArguments,

    /// Ranks on each node
    #[arg(long, value_name = "NUMBER", default_value = "8", allow_negative_numbers = true)]
    pub ranks_per_node: String,

    /// Show these axes only, with all their groups; names as in the table, comma-separated
    #[arg(long = "axis", value_name = "AXES", value_delimiter = ',')]
    pub axes: Vec<String>,

    /// A picture and a table, or one JSON document with every group
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,

    /// Columns that the picture may take [default: those of the terminal, or 100 without one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
}

/// The flags that stand for a suite's `[[layout]]`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DegreeArguments {
    /// Number of ranks [default: tp x cp x dp x pp, if --dp is given]
    #[arg(long, value_name = "RANKS", allow_negative_numbers = true)]
    pub world: Option<String>,

    /// Degree of tensor parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub tp: Option<String>,

    /// Degree of context parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub cp: Option<String>,

    /// Degree of data parallelism [default: world / (tp x cp x pp)]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub dp: Option<String>,

    /// Degree of pipeline parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub pp: Option<String>,

    /// Degree of expert parallelism, carved out of the tp x cp x dp ranks of a stage [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub ep: Option<String>,

    /// Degree of tensor parallelism inside experts [default: that of --tp]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub etp: Option<String>,

    /// Axes from the fastest varying over consecutive ranks on; those of degree 1 may be left out [default:
    /// tp-cp-ep-dp-pp]
    #[arg(long, value_name = "AXES")]
    pub order: Option<String>,

    /// File that says which rank stands at each position of the grid: ranks separated by spaces, commas or line breaks,
    /// comments from # on
    #[arg(long, value_name = "FILE")]
    pub ranks: Option<PathBuf>,
}

impl DegreeArguments {
    /// The layout that the flags ask for.
    ///
    /// # Errors
    /// Usage errors that name the flag, or the file and line, and the rule.
    pub fn layout(&self) -> Result<Layout> {
        let flags = [
            ("--world", "world", &self.world),
            ("--tp", "tp", &self.tp),
            ("--cp", "cp", &self.cp),
            ("--dp", "dp", &self.dp),
            ("--pp", "pp", &self.pp),
            ("--ep", "ep", &self.ep),
            ("--etp", "etp", &self.etp),
            ("--order", "order", &self.order),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.clone()?)));
        let mut table = Table::of_flags(given);
        let world = table.take("world").map(|item| item.count_within(1..=MOST_RANKS)).transpose()?;
        let table = LayoutTable::read(table)?;
        let world = match (world, ranks_of(&table)?) {
            (Some(world), _) | (None, Some(world)) => world,
            (None, None) => {
                let problem = "is missing; give the number of ranks, or --dp, so that it follows from the degrees";
                return Err(Place::flag("--world").wrong(problem));
            }
        };
        let layout = layout_on(&table, world)?;
        match &self.ranks {
            Some(path) => {
                layout.with_ranks_at(read_ranks(path, world)?).map_err(|wrong| Place::flag("--ranks").wrong(wrong))
            }
            None => Ok(layout),
        }
    }
}

impl LayoutCommand {
    /// Shows the layout on stdout.
    ///
    /// # Errors
    /// Usage errors as of [`DegreeArguments::layout`], and an environment error where stdout cannot be written.
    pub fn execute(&self) -> Result<i32> {
        let stdout = std::io::stdout();
        let terminal = || terminal_size::terminal_size().filter(|_| stdout.is_terminal()).map(|(width, _)| width.0);
        let width = self.width.or_else(terminal).unwrap_or(WIDTH_WITHOUT_TERMINAL);
        self.show_on(width, &mut BufWriter::new(stdout.lock()))?;
        Ok(0)
    }

    /// Shows the layout on anything that can be written to. A reader that closes the pipe early ends it quietly.
    ///
    /// # Errors
    /// As [`LayoutCommand::execute`].
    pub fn show_on(&self, width: u16, out: &mut dyn Write) -> Result<()> {
        let overview = self.overview()?;
        let written = match self.format {
            TableOrJson::Table => table::write(&overview, usize::from(width), !self.axes.is_empty(), out),
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
        Ok(Overview::new(self.degrees.layout()?, ranks_per_node, &axes))
    }
}

#[cfg(test)]
mod tests;
