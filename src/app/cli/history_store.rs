//! `commgauge history add RECORD --store DIR` and `commgauge history rebuild --store DIR`: keep the store of a fleet's history.

use crate::store::{Added, Store};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use std::path::PathBuf;

/// What keeps a store.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum StoreCommand {
    /// Add records to a store, which is made where there is none
    Add(AddArguments),
    /// Make index and dataset of a store again, of its records alone
    Rebuild(RebuildArguments),
}

/// What is added, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct AddArguments {
    /// Records (JSON Lines); a run that is in the store already changes nothing
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,

    /// The store: records/, index.sqlite and dataset/, partitioned by machine and month
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

/// What is made again.
#[derive(Clone, Debug, clap::Args)]
pub struct RebuildArguments {
    /// The store
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

impl StoreCommand {
    /// Carries the command out; notes go to stderr.
    ///
    /// # Errors
    /// Of the first record that could not be added; those before it and after it are in the store.
    pub fn execute(&self) -> Result<i32> {
        match self {
            StoreCommand::Add(arguments) => arguments.add(),
            StoreCommand::Rebuild(arguments) => arguments.rebuild(),
        }
    }
}

impl AddArguments {
    fn add(&self) -> Result<i32> {
        let mut store = Store::open_or_create(&self.store)?;
        let (mut new, mut known, mut failed) = (0, 0, Vec::new());
        for record in &self.records {
            match store.add(record) {
                Ok(Added::New) => new += 1,
                Ok(Added::Known) => known += 1,
                Err(error) => failed.push(error),
            }
        }
        let known = if known == 0 { String::new() } else { format!(", {} there already", counted(known, "run")) };
        eprintln!("commgauge: {} added to {}{known}", counted(new, "run"), self.store.shown());
        let mut failed = failed.into_iter();
        let Some(first) = failed.next() else { return Ok(0) };
        failed.for_each(|error| eprintln!("commgauge: {error}"));
        Err(first)
    }
}

impl RebuildArguments {
    fn rebuild(&self) -> Result<i32> {
        if !self.store.join("records").is_dir() {
            return Err(Error::usage(format!("--store {}: there is no folder records in it", self.store.shown())));
        }
        let (added, left_out) = Store::rebuild(&self.store)?;
        eprintln!("commgauge: index and dataset of {} made again of {}", self.store.shown(), counted(added, "run"));
        left_out.iter().for_each(|reason| eprintln!("commgauge: left out: {reason}"));
        Ok(0)
    }
}
