//! The degrees of a layout given by flags. They correspond to the keys of a suite's `[[layout]]` and are parsed by the
//! same code, so that errors are reported in the same way.

use super::ranks_file::read_ranks;
use clap::Args;
use commgauge_base::error::Result;
use commgauge_model::config::{LayoutTable, Place, Table};
use commgauge_model::layout::Layout;
use commgauge_model::workload::step::{layout_on, ranks_of};
use std::path::PathBuf;

/// The flags that stand for a suite's `[[layout]]`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Layout")]
pub struct DegreeFlags {
    /// Degree of tensor parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub tp: Option<String>,

    /// Degree of context parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub cp: Option<String>,

    /// Degree of data parallelism [default: what is left of the ranks]
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

    /// File that names the rank at each position of the grid: ranks separated by spaces, commas or line breaks,
    /// comments from # on
    #[arg(long, value_name = "FILE")]
    pub rank_list: Option<PathBuf>,
}

impl DegreeFlags {
    /// The equivalent suite table, without placed ranks.
    ///
    /// # Errors
    /// Usage errors that name the flag and the rule.
    pub fn table(&self) -> Result<LayoutTable> {
        let flags = [
            ("--tp", "tp", &self.tp),
            ("--cp", "cp", &self.cp),
            ("--dp", "dp", &self.dp),
            ("--pp", "pp", &self.pp),
            ("--ep", "ep", &self.ep),
            ("--etp", "etp", &self.etp),
            ("--order", "order", &self.order),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.clone()?)));
        LayoutTable::read(Table::of_flags(given))
    }

    /// Whether any of them was given.
    pub fn are_given(&self) -> bool {
        let texts = [&self.tp, &self.cp, &self.dp, &self.pp, &self.ep, &self.etp, &self.order];
        texts.into_iter().any(Option::is_some) || self.rank_list.is_some()
    }

    /// The equivalent suite table on that many ranks, with placed ranks.
    ///
    /// # Errors
    /// As [`DegreeFlags::table`], degrees that do not fit the ranks, and errors in the file of ranks, with the line
    /// number.
    pub fn table_on(&self, world: u32) -> Result<LayoutTable> {
        let mut table = self.table()?;
        if let Some(path) = &self.rank_list {
            layout_on(&table, world)?;
            table.ranks = Some(read_ranks(path, world)?);
        }
        Ok(table)
    }

    /// The layout on that many ranks, or on as many as the degrees need.
    ///
    /// # Errors
    /// As [`DegreeFlags::table_on`], and neither ranks nor --dp.
    pub fn layout(&self, world: Option<u32>) -> Result<Layout> {
        let world = match (world, ranks_of(&self.table()?)?) {
            (Some(world), _) | (None, Some(world)) => world,
            (None, None) => {
                let problem = "is missing; give the number of ranks, or --dp, so that it follows from the degrees";
                return Err(Place::flag("--ranks").wrong(problem));
            }
        };
        layout_on(&self.table_on(world)?, world)
    }
}
