//! The history of a fleet in a folder: records, an index of their medians, and a dataset for other programs.
//!
//! ```text
//! DIR/records/machine=M/month=2026-11/RUN.jsonl      the truth
//! DIR/index.sqlite                                   medians and facts of every run, made of the records
//! DIR/dataset/rows/machine=M/month=2026-11/RUN.parquet, and pairs/ beside rows/
//! ```
//!
//! A record is added whole or not at all: files are written under other names and renamed, and the index, of which readers
//! learn what there is, comes last in one transaction. What a killed writer leaves is replaced when the record is added again.

mod dataset;
mod index;
mod partition;
#[cfg(test)]
mod tests;

pub use index::{Added, RowFilter};

use crate::report::View;
use commgauge_analysis::verdict::LoadedRecord;
use commgauge_analysis::verdict::history::{HistoryInput, RunMedians};
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::make_folder;
use commgauge_base::visible::ShownPath;
use index::Index;
use partition::Partition;
use std::fs;
use std::path::{Path, PathBuf};

/// The index of a store, in its folder.
const INDEX_FILE: &str = "index.sqlite";

/// A store of records.
pub struct Store {
    folder: PathBuf,
    index: Index,
}

impl Store {
    /// Opens a store; a folder that is not there is made.
    ///
    /// # Errors
    /// Where the folder cannot be made, or holds an index of another version.
    pub fn open_or_create(folder: &Path) -> Result<Store> {
        make_folder(folder)
            .map_err(|cause| Error::usage(format!("--store: cannot make {}: {cause}", folder.shown())))?;
        Ok(Store { folder: folder.to_owned(), index: Index::open_or_create(&folder.join(INDEX_FILE))? })
    }

    /// Whether a folder holds a store.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(INDEX_FILE).is_file()
    }

    /// Opens a store that is there.
    ///
    /// # Errors
    /// A usage error where the folder holds none.
    pub fn open(folder: &Path) -> Result<Store> {
        let file = folder.join(INDEX_FILE);
        if !Store::is_in(folder) {
            return Err(Error::usage(format!(
                "--store {}: there is no index.sqlite in it; `commgauge history add RECORD --store {0}` makes a store, `commgauge \
                 history rebuild --store {0}` makes the index of its records again",
                folder.shown()
            )));
        }
        Ok(Store { folder: folder.to_owned(), index: Index::open_or_create(&file)? })
    }

    /// Adds a record: copies it, writes its dataset, and indexes its medians.
    ///
    /// # Errors
    /// Where the record cannot be read, has no say in a history, or is another record of a run that is in the store.
    pub fn add(&mut self, record: &Path) -> Result<Added> {
        let loaded = LoadedRecord::read(record)?;
        let text = fs::read(record).map_err(|cause| Error::file("read the record", record, cause))?;
        let digest = commgauge_base::digest::sha256(&text);
        let run_id = &loaded.record.header.run_id;
        match self.index.digest_of(run_id)? {
            Some(known) if known == digest => return Ok(Added::Known),
            Some(_) => {
                return Err(Error::usage(format!(
                    "{}: the store has another record of the run {run_id}; remove that one and `commgauge history rebuild`",
                    record.shown()
                )));
            }
            None => {}
        }
        let partition = Partition::of(&loaded.record.header);
        let copy = partition.file(&self.folder.join("records"), run_id, "jsonl");
        if !is_same_file(record, &copy) {
            partition::write(&copy, &text)?;
        }
        self.index_record(&loaded, &partition, &copy, &digest)
    }

    fn index_record(
        &mut self,
        loaded: &LoadedRecord,
        partition: &Partition,
        copy: &Path,
        digest: &str,
    ) -> Result<Added> {
        let mut medians = RunMedians::of(loaded)
            .map_err(|reason| Error::usage(format!("{}: {reason}; it has no say in a history", loaded.path.shown())))?;
        medians.path = copy.display().to_string();
        let view = View::new(&loaded.record);
        let run = dataset::Run::of(loaded, &view);
        let at = |kind: &str| partition.file(&self.folder.join("dataset").join(kind), &medians.run_id, "parquet");
        partition::write(&at("rows"), &dataset::rows(&run)?)?;
        if let Some(pairs) = dataset::pairs(&run)? {
            partition::write(&at("pairs"), &pairs)?;
        }
        self.index.add(&medians, digest)
    }

    /// Makes index and dataset again, of the records alone. Returns how many there are, and those that were left out.
    ///
    /// # Errors
    /// Where a folder cannot be read or written.
    pub fn rebuild(folder: &Path) -> Result<(usize, Vec<String>)> {
        let records = partition::files_below(&folder.join("records"), "jsonl")?;
        for name in [INDEX_FILE, "index.sqlite-journal"] {
            partition::remove(&folder.join(name))?;
        }
        partition::remove(&folder.join("dataset"))?;
        let mut store = Store::open_or_create(folder)?;
        let (mut added, mut left_out) = (0, Vec::new());
        for record in &records {
            match store.add(record) {
                Ok(_) => added += 1,
                Err(error) => left_out.push(error.to_string()),
            }
        }
        Ok((added, left_out))
    }

    /// The medians of all runs, of the rows that the filter wants.
    ///
    /// # Errors
    /// Where the index cannot be read.
    pub fn history_input(&self, filter: &RowFilter) -> Result<HistoryInput> {
        let mut input = HistoryInput::default();
        self.index.medians(filter)?.into_iter().for_each(|medians| input.add_medians(medians));
        Ok(input)
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one))
}
