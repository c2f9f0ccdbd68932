//! A record with the file that it was read from.

use super::document::Run;
use commgauge_base::error::Result;
use commgauge_model::record::Record;
use commgauge_model::record::line::ForeignTool;
use std::path::{Path, PathBuf};

/// A record and the file that it was read from.
#[derive(Clone, Debug)]
pub struct LoadedRecord {
    /// The file, for messages.
    pub path: PathBuf,
    /// Its contents.
    pub record: Record,
}

impl LoadedRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn read(path: &Path) -> Result<LoadedRecord> {
        Ok(LoadedRecord { path: path.to_owned(), record: Record::read(path)? })
    }

    pub(super) fn run(&self, role: &str) -> Run {
        let header = &self.record.header;
        Run {
            role: role.to_owned(),
            path: self.path.display().to_string(),
            run_id: header.run_id.clone(),
            started_at: header.started_at.clone(),
            suite: header.suite.name.clone(),
            backend: header.backend.name.clone(),
            library: header.backend.library.clone(),
            world_size: header.world_size,
            synthetic: header.backend.synthetic,
            measured_by: header.backend.measured_by.map(ForeignTool::label),
        }
    }
}
