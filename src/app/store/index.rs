//! The index: medians and facts of every run in one SQLite file. Several programs may write at once; each waits for the others. SQLite's
//! write-ahead log is not used: it needs memory that all programs share, and stores lie on network file systems.

use commgauge_analysis::verdict::history::{RowKey, RunFacts, RunMedians};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Raised when the tables change; an index of another version is made again from the records.
const VERSION: i64 = 4;
/// How long a writer waits for another.
const PATIENCE: Duration = Duration::from_secs(60);
/// The medians of a run are one blob: a run is added by writing a few kilobytes, and the blobs of all runs are read in less than the time
/// that a table of single medians takes to be filled or read.
const TABLES: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        started_at TEXT NOT NULL, suite TEXT NOT NULL, backend TEXT NOT NULL, machine TEXT NOT NULL, facts TEXT NOT NULL,
        rows_left_out INTEGER NOT NULL, medians BLOB NOT NULL);
    CREATE TABLE cases (id INTEGER PRIMARY KEY, name TEXT NOT NULL, subject TEXT NOT NULL, UNIQUE (name, subject));
";
/// Bytes of a median in a blob: the case, 4, and its latency in seconds, 8, little-endian; NaN where there is none.
const BYTES_OF_MEDIAN: usize = 12;

/// Which rows of which runs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Only rows whose names contain this text.
    pub case: Option<String>,
    /// Only runs of this suite.
    pub suite: Option<String>,
}

/// What became of a record that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the store now.
    New,
    /// A run of that name was there, with the same record.
    Known,
}

/// The open file.
pub(super) struct Index {
    connection: Connection,
    path: PathBuf,
}

impl Index {
    pub fn open_or_create(path: &Path) -> Result<Index> {
        let refused = |cause: rusqlite::Error| Error::environment(format!("the index {}: {cause}", path.shown()));
        let mut connection = Connection::open(path).map_err(refused)?;
        connection.busy_timeout(PATIENCE).map_err(refused)?;
        make_tables(&mut connection).map_err(refused)?;
        let version = version_of(&connection).map_err(refused)?;
        if version != VERSION {
            return Err(Error::usage(format!(
                "{} is an index of version {version}, this program knows {VERSION}; `commgauge history rebuild --store DIR` makes it \
                 again from the records",
                path.shown()
            )));
        }
        Ok(Index { connection, path: path.to_owned() })
    }

    /// The same without waiting for the disk, so that a test fills a store of many runs in seconds.
    #[cfg(test)]
    pub fn without_waiting_for_the_disk(self) -> Index {
        self.connection.pragma_update(None, "synchronous", "OFF").unwrap();
        self
    }

    /// The digest of the record of a run, where it is there.
    pub fn digest_of(&self, run_id: &str) -> Result<Option<String>> {
        let query = "SELECT sha256 FROM runs WHERE run_id = ?1";
        self.checked(self.connection.query_row(query, [run_id], |row| row.get(0)).optional())
    }

    /// Adds a run in one transaction; a run that another writer added meanwhile stays as it is.
    pub fn add(&mut self, medians: &RunMedians, digest: &str) -> Result<Added> {
        let added = add(&mut self.connection, medians, digest);
        self.checked(added)
    }

    /// The wanted runs with the wanted rows.
    pub fn medians(&self, filter: &RowFilter) -> Result<Vec<RunMedians>> {
        self.checked(medians(&self.connection, filter))
    }

    fn checked<T>(&self, answer: rusqlite::Result<T>) -> Result<T> {
        answer.map_err(|cause| Error::environment(format!("the index {}: {cause}", self.path.shown())))
    }
}

fn version_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// In a file that has none. Only then does opening an index need the right to write.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    if version_of(connection)? != 0 {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have made them meanwhile.
    if version_of(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

fn add(connection: &mut Connection, medians: &RunMedians, digest: &str) -> rusqlite::Result<Added> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let facts = serde_json::to_string(&medians.facts.to_texts()).unwrap_or_default();
    let blob = blob_of(&transaction, medians)?;
    let inserted = transaction.execute(
        "INSERT OR IGNORE INTO runs (run_id, path, sha256, started_at, suite, backend, machine, facts, rows_left_out, medians)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            medians.run_id,
            medians.path,
            digest,
            medians.started_at,
            medians.suite,
            medians.backend,
            medians.machine,
            facts,
            medians.rows_left_out,
            blob
        ],
    )?;
    transaction.commit()?;
    Ok(if inserted == 0 { Added::Known } else { Added::New })
}

/// The medians of a run, in the order of its plan; cases that no run had before are added.
fn blob_of(connection: &Connection, medians: &RunMedians) -> rusqlite::Result<Vec<u8>> {
    let mut find = connection.prepare("SELECT id FROM cases WHERE name = ?1 AND subject = ?2")?;
    let mut make = connection.prepare("INSERT INTO cases (name, subject) VALUES (?1, ?2)")?;
    let mut blob = Vec::with_capacity(medians.rows.len() * BYTES_OF_MEDIAN);
    for (row, seconds) in &medians.rows {
        let subject = serde_json::to_string(&row.subject).unwrap_or_default();
        let key = params![row.name, subject];
        let case: u32 = match find.query_row(key, |row| row.get(0)).optional()? {
            Some(known) => known,
            None => {
                make.execute(key)?;
                connection.last_insert_rowid() as u32
            }
        };
        blob.extend(case.to_le_bytes());
        blob.extend(seconds.unwrap_or(f64::NAN).to_le_bytes());
    }
    Ok(blob)
}

fn medians(connection: &Connection, filter: &RowFilter) -> rusqlite::Result<Vec<RunMedians>> {
    let wanted = wanted_cases(connection, filter)?;
    let mut query = connection.prepare(
        "SELECT id, run_id, path, started_at, suite, backend, machine, facts, rows_left_out, medians FROM runs
         WHERE ?1 IS NULL OR suite = ?1",
    )?;
    let mut found = query.query([&filter.suite])?;
    let mut runs = Vec::new();
    while let Some(row) = found.next()? {
        let mut run = run_of(row)?;
        let blob = row.get_ref(9)?.as_blob()?;
        run.rows = blob.as_chunks().0.iter().filter_map(|median| median_of(median, &wanted)).collect();
        if !run.rows.is_empty() {
            runs.push(run);
        }
    }
    Ok(runs)
}

/// The wanted rows by their numbers in blobs.
fn wanted_cases(connection: &Connection, filter: &RowFilter) -> rusqlite::Result<HashMap<u32, Arc<RowKey>>> {
    let mut query =
        connection.prepare("SELECT id, name, subject FROM cases WHERE ?1 IS NULL OR instr(name, ?1) > 0")?;
    let mut found = query.query([&filter.case])?;
    let mut wanted = HashMap::new();
    while let Some(row) = found.next()? {
        if let Some(key) = key_of(row)? {
            wanted.insert(row.get(0)?, Arc::new(key));
        }
    }
    Ok(wanted)
}

fn median_of(median: &[u8; BYTES_OF_MEDIAN], wanted: &HashMap<u32, Arc<RowKey>>) -> Option<(Arc<RowKey>, Option<f64>)> {
    let [a, b, c, d, seconds @ ..] = *median;
    let key = wanted.get(&u32::from_le_bytes([a, b, c, d]))?;
    Some((key.clone(), Some(f64::from_le_bytes(seconds)).filter(|seconds| !seconds.is_nan())))
}

fn run_of(row: &Row) -> rusqlite::Result<RunMedians> {
    let facts: String = row.get(7)?;
    let unreadable = || rusqlite::Error::InvalidColumnType(7, "facts".to_owned(), rusqlite::types::Type::Text);
    let texts: Vec<[String; 3]> = serde_json::from_str(&facts).map_err(|_| unreadable())?;
    Ok(RunMedians {
        run_id: row.get(1)?,
        path: row.get(2)?,
        started_at: row.get(3)?,
        suite: row.get(4)?,
        backend: row.get(5)?,
        machine: row.get(6)?,
        facts: RunFacts::from_texts(texts).ok_or_else(unreadable)?,
        rows: Vec::new(),
        rows_left_out: row.get(8)?,
    })
}

/// A row of another version of the program, which is of something unknown here, is none.
fn key_of(row: &Row) -> rusqlite::Result<Option<RowKey>> {
    let (name, subject): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(serde_json::from_str(&subject).ok().map(|subject| RowKey { name, subject }))
}
