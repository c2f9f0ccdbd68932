//! The index: medians and facts of every run in one SQLite file. Several programs may write at once; each waits for the others. SQLite's
//! write-ahead log is not used: it needs memory that all programs share, and stores lie on network file systems.

use commgauge_analysis::verdict::history::{RowKey, RunFacts, RunMedians};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Axis;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Raised when the tables change; an index of another version is made again from the records.
const VERSION: i64 = 1;
/// How long a writer waits for another.
const PATIENCE: Duration = Duration::from_secs(60);
/// Medians are sorted by row, as most questions are about a few rows of all runs.
const TABLES: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        started_at TEXT NOT NULL, suite TEXT NOT NULL, backend TEXT NOT NULL, machine TEXT NOT NULL, facts TEXT NOT NULL,
        rows_left_out INTEGER NOT NULL);
    CREATE TABLE cases (id INTEGER PRIMARY KEY, name TEXT NOT NULL, axis TEXT NOT NULL, collective TEXT NOT NULL,
        bytes_total INTEGER NOT NULL, UNIQUE (name, axis, collective, bytes_total));
    CREATE TABLE medians (case_id INTEGER NOT NULL, run INTEGER NOT NULL, position INTEGER NOT NULL, latency_seconds REAL,
        PRIMARY KEY (case_id, run)) WITHOUT ROWID;
";

/// Which rows of which runs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Only rows whose names contain this text.
    pub case: Option<String>,
    /// Only runs of this suite.
    pub suite: Option<String>,
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

    /// The digest of the record of a run, where it is there.
    pub fn digest_of(&self, run_id: &str) -> Result<Option<String>> {
        let query = "SELECT sha256 FROM runs WHERE run_id = ?1";
        self.checked(self.connection.query_row(query, [run_id], |row| row.get(0)).optional())
    }

    /// Adds a run in one transaction; a run that another writer added meanwhile stays as it is.
    pub fn add(&mut self, medians: &RunMedians, digest: &str) -> Result<()> {
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

fn add(connection: &mut Connection, medians: &RunMedians, digest: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let facts = serde_json::to_string(&medians.facts.to_texts()).unwrap_or_default();
    let new = transaction.execute(
        "INSERT OR IGNORE INTO runs (run_id, path, sha256, started_at, suite, backend, machine, facts, rows_left_out)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            medians.run_id,
            medians.path,
            digest,
            medians.started_at,
            medians.suite,
            medians.backend,
            medians.machine,
            facts,
            medians.rows_left_out
        ],
    )?;
    if new == 0 {
        return transaction.commit();
    }
    let run = transaction.last_insert_rowid();
    {
        let mut make = transaction
            .prepare("INSERT OR IGNORE INTO cases (name, axis, collective, bytes_total) VALUES (?1, ?2, ?3, ?4)")?;
        let mut find = transaction
            .prepare("SELECT id FROM cases WHERE name = ?1 AND axis = ?2 AND collective = ?3 AND bytes_total = ?4")?;
        let mut put = transaction.prepare(
            "INSERT OR IGNORE INTO medians (case_id, run, position, latency_seconds) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for (position, (row, seconds)) in medians.rows.iter().enumerate() {
            let key = params![row.name, row.axis.to_string(), row.collective.name(), row.bytes_total.0 as i64];
            make.execute(key)?;
            let case: i64 = find.query_row(key, |row| row.get(0))?;
            put.execute(params![case, run, position as i64, seconds])?;
        }
    }
    transaction.commit()
}

fn medians(connection: &Connection, filter: &RowFilter) -> rusqlite::Result<Vec<RunMedians>> {
    let mut runs = Vec::new();
    let mut place_of_run = HashMap::new();
    let mut query = connection.prepare(
        "SELECT id, run_id, path, started_at, suite, backend, machine, facts, rows_left_out FROM runs
         WHERE ?1 IS NULL OR suite = ?1",
    )?;
    let mut found = query.query([&filter.suite])?;
    while let Some(row) = found.next()? {
        place_of_run.insert(row.get::<_, i64>(0)?, runs.len());
        runs.push(run_of(row)?);
    }
    let mut query = connection
        .prepare("SELECT id, name, axis, collective, bytes_total FROM cases WHERE ?1 IS NULL OR instr(name, ?1) > 0")?;
    let mut of_case = connection.prepare("SELECT run, position, latency_seconds FROM medians WHERE case_id = ?1")?;
    let mut positions: Vec<Vec<i64>> = vec![Vec::new(); runs.len()];
    let mut found = query.query([&filter.case])?;
    while let Some(row) = found.next()? {
        let Some(key) = key_of(row)? else { continue };
        let key = Arc::new(key);
        let mut values = of_case.query([row.get::<_, i64>(0)?])?;
        while let Some(value) = values.next()? {
            if let Some(place) = place_of_run.get(&value.get::<_, i64>(0)?) {
                runs[*place].rows.push((key.clone(), value.get(2)?));
                positions[*place].push(value.get(1)?);
            }
        }
    }
    for (run, positions) in runs.iter_mut().zip(positions) {
        in_order(run, &positions);
    }
    runs.retain(|run| !run.rows.is_empty());
    Ok(runs)
}

/// Puts rows into the order of the plan.
fn in_order(run: &mut RunMedians, positions: &[i64]) {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by_key(|index| positions[*index]);
    run.rows = order.into_iter().map(|index| run.rows[index].clone()).collect();
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

/// A row of another version of the program, whose axis or collective is unknown here, is none.
fn key_of(row: &Row) -> rusqlite::Result<Option<RowKey>> {
    let (axis, collective): (String, String) = (row.get(2)?, row.get(3)?);
    let axis = Axis::ALL.into_iter().find(|known| known.to_string() == axis);
    let collective = Collective::ALL.into_iter().find(|known| known.name() == collective);
    let name = row.get(1)?;
    let bytes_total = Bytes(row.get::<_, i64>(4)? as u64);
    Ok(axis.zip(collective).map(|(axis, collective)| RowKey { name, axis, collective, bytes_total }))
}
