//! The flags of `commgauge-suite`, and the requested work. `launched` runs it.

use super::super::LaunchedArguments;
use super::super::launched_arguments::parse_time_limit;
use super::super::suite::{SuiteWork, suite_work};
use super::work::Work;
use clap::Parser;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Nodes;
use commgauge_model::record::provenance::program_version;
use std::path::PathBuf;

/// Run a suite file on all ranks of the launch
///
/// mpirun -np 4 commgauge-suite quick
#[derive(Debug, Parser)]
#[command(name = "commgauge-suite", version = program_version())]
pub struct SuiteRun {
    /// Suite file, or the name of one (`commgauge list suites`)
    suite: PathBuf,
    /// Time for all cases together, such as 10m
    ///
    /// A short round goes over all cases, then further ones (as many as the suite has replicates, at least one) in which those with the
    /// widest intervals get the most of the time.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit)]
    within: Option<Seconds>,
    /// Repeat all calls of the suite for this time, such as 2h, with rolling checks and changing data
    ///
    /// Ends at the first wrong byte and says which call it was. Products and copies of the suite are left out.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, conflicts_with = "within")]
    soak: Option<Seconds>,
    #[command(flatten)]
    launched: LaunchedArguments,
}

impl Work for SuiteRun {
    fn launched(&self) -> &LaunchedArguments {
        &self.launched
    }

    fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        self.plan_on(&Nodes::single(world_size))
    }

    fn plan_on(&self, nodes: &Nodes) -> Result<SuiteWork> {
        let work = suite_work(&self.suite, self.within, nodes)?;
        self.soak.map_or(Ok(work.clone()), |time| work.soaked(time))
    }
}
