//! `commgauge locate RECORD...`: finds the slow node, link, rail or leaf.

use super::text_output::FormattedOutput;
use super::verdict_output::read_all;
use crate::report::{SuspectsFormat, suspects_text};
use commgauge_analysis::verdict::locate::{LocateOptions, locate};
use commgauge_base::error::Result;
use commgauge_model::config::Machine;
use std::path::{Path, PathBuf};

/// Name the node, link, rail or leaf that is slow, and what the data cannot show
///
/// Reads what `commgauge run qualify` (or `commgauge run --pairs`) recorded. Ends with 0 if there are no suspects and everything
/// was measured; 1 there is a suspect; 3 undecided; 4 data arrived wrong; 5 to 6 the run failed; 7 something planned was not
/// measured.
#[derive(Clone, Debug, clap::Args)]
pub struct LocateCommand {
    /// Records of the same ranks on the same hosts (JSON Lines)
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// Nodes behind each leaf switch, counted from node 0 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes_per_leaf: Option<u32>,

    /// Nodes that the links of a rack join, counted from node 0, as the 18 of an NVL72 [default: what the machine file of the run said]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes_per_rack: Option<u32>,

    /// Machine file, or the name of a shipped one: what it says of leaves, racks, and of what pairs of nodes reach. Without it they are only
    /// compared with each other
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,

    /// How it is shown.
    #[command(flatten)]
    pub shown: FormattedOutput<SuspectsFormat>,
}

impl LocateCommand {
    /// Finds suspects, writes the result, and returns the exit code.
    pub fn execute(&self) -> Result<i32> {
        let inputs: Vec<&Path> = self.records.iter().map(PathBuf::as_path).collect();
        let format = self.shown.check(&inputs)?;
        let machine = self.machine.as_deref().map(Machine::load).transpose()?;
        let of_file = machine.as_ref().map(LocateOptions::of_machine).unwrap_or_default();
        let options = LocateOptions {
            nodes_per_leaf: self.nodes_per_leaf.or(of_file.nodes_per_leaf),
            nodes_per_rack: self.nodes_per_rack.or(of_file.nodes_per_rack),
            machine,
        };
        let suspects = locate(&read_all(&self.records)?, &options)?;
        self.shown.to.write(&suspects_text(&suspects, format, self.shown.to.columns())?)?;
        Ok(suspects.exit_code)
    }
}
