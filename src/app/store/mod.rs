//! The history of a fleet in a folder: records, an index of their medians, and a dataset for other programs.
//!
//! ```text
//! DIR/records/machine=M/month=2026-11/RUN.jsonl      the truth
//! DIR/index.sqlite                                   medians and facts of every run, made of the records
//! DIR/dataset/rows/machine=M/month=2026-11/RUN.parquet, and pairs/ beside rows/
//! ```
//!
//! A record is added completely or not at all: files are written under other names and renamed, and the index, which readers consult first,
//! is updated last in one transaction. Leftovers of a killed writer are replaced when the record is added again.

mod dataset;

use crate::report::View;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder, write_own};
use commgauge_base::visible::ShownPath;
use commgauge_judge::verdict::LoadedRecord;
use commgauge_judge::verdict::history::{HistoryInput, RowKey, RunFacts, RunMedians};
use commgauge_model::record::line::Header;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The index of a store, in its folder.
const INDEX_FILE: &str = "index.sqlite";

/// A store of records.
pub struct Store {
    folder: PathBuf,
    index: Index,
}

impl Store {
    /// Opens a store; creates a missing folder.
    ///
    /// # Errors
    /// If the folder cannot be created, or holds an index of another version.
    pub fn open_or_create(folder: &Path) -> Result<Store> {
        make_folder(folder)
            .map_err(|cause| Error::usage(format!("--store: cannot create {}: {cause}", folder.shown())))?;
        Ok(Store { folder: folder.to_owned(), index: Index::open_or_create(&folder.join(INDEX_FILE))? })
    }

    /// Whether a folder holds a store.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(INDEX_FILE).is_file()
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// A usage error if the folder holds none.
    pub fn open(folder: &Path) -> Result<Store> {
        let file = folder.join(INDEX_FILE);
        if !Store::is_in(folder) {
            return Err(Error::usage(format!(
                "--store {}: it has no index.sqlite; `commgauge history add RECORD --store {0}` creates a store, `commgauge history rebuild --store {0}` rebuilds the index of its records",
                folder.shown()
            )));
        }
        Ok(Store { folder: folder.to_owned(), index: Index::open_or_create(&file)? })
    }

    /// Adds a record: copies it, writes its dataset, and indexes its medians.
    ///
    /// # Errors
    /// If the record cannot be read, does not count in a history, or is another record of a run in the store.
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
            write(&copy, &text)?;
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
        let mut medians = RunMedians::of(loaded).map_err(|reason| {
            Error::usage(format!("{}: {reason}; it does not count in a history", loaded.path.shown()))
        })?;
        medians.path = copy.display().to_string();
        let view = View::new(&loaded.record);
        let run = dataset::Run::of(loaded, &view);
        let at = |kind: &str| partition.file(&self.folder.join("dataset").join(kind), &medians.run_id, "parquet");
        write(&at("rows"), &dataset::rows(&run)?)?;
        if let Some(pairs) = dataset::pairs(&run)? {
            write(&at("pairs"), &pairs)?;
        }
        self.index.add(&medians, digest)
    }

    /// Rebuilds index and dataset from the records. Returns their number, and the excluded ones.
    ///
    /// # Errors
    /// If a folder cannot be read or written.
    pub fn rebuild(folder: &Path) -> Result<(usize, Vec<String>)> {
        let records = files_below(&folder.join("records"), "jsonl")?;
        for name in [INDEX_FILE, "index.sqlite-journal"] {
            remove(&folder.join(name))?;
        }
        remove(&folder.join("dataset"))?;
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

    /// The medians of all runs, for the rows that match the filter.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn history_input(&self, filter: &RowFilter) -> Result<HistoryInput> {
        let mut input = HistoryInput::default();
        self.index.medians(filter)?.into_iter().for_each(|medians| input.add_medians(medians));
        Ok(input)
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one))
}

// The index: medians and facts of every run in one SQLite file. Several programs may write at once; each waits for the others. SQLite's
// write-ahead log is not used: it needs memory shared by all programs, but stores may be on network file systems.

/// Raised when the tables change; an index of another version is rebuilt from the records.
const VERSION: i64 = 4;

/// How long a writer waits for another.
const PATIENCE: Duration = Duration::from_secs(60);

/// The medians of a run are one blob: adding a run writes a few kilobytes, and the blobs of all runs are read in less time than a table of
/// single medians.
const TABLES: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        started_at TEXT NOT NULL, suite TEXT NOT NULL, backend TEXT NOT NULL, machine TEXT NOT NULL, facts TEXT NOT NULL,
        rows_left_out INTEGER NOT NULL, medians BLOB NOT NULL);
    CREATE TABLE cases (id INTEGER PRIMARY KEY, name TEXT NOT NULL, subject TEXT NOT NULL, UNIQUE (name, subject));
";

/// Bytes of a median in a blob: the case, 4, and its latency in seconds, 8, little-endian; NaN if there is none.
const BYTES_OF_MEDIAN: usize = 12;

/// Which rows of which runs to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Only rows whose names contain this text.
    pub case: Option<String>,
    /// Only runs of this suite.
    pub suite: Option<String>,
}

/// The result of adding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    New,
    /// The store already had this run, with the same record.
    Known,
}

/// The open file.
struct Index {
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
                "{} is an index of version {version}, this program uses {VERSION}; `commgauge history rebuild --store DIR` rebuilds it from the records",
                path.shown()
            )));
        }
        Ok(Index { connection, path: path.to_owned() })
    }

    /// Without waiting for the disk, so that a test fills a store of many runs in seconds.
    #[cfg(test)]
    pub fn without_waiting_for_the_disk(self) -> Index {
        self.connection.pragma_update(None, "synchronous", "OFF").unwrap();
        self
    }

    /// The digest of the record of a run, if present.
    pub fn digest_of(&self, run_id: &str) -> Result<Option<String>> {
        let query = "SELECT sha256 FROM runs WHERE run_id = ?1";
        self.checked(self.connection.query_row(query, [run_id], |row| row.get(0)).optional())
    }

    /// Adds a run in one transaction; a run that another writer added meanwhile is unchanged.
    pub fn add(&mut self, medians: &RunMedians, digest: &str) -> Result<Added> {
        let added = add(&mut self.connection, medians, digest);
        self.checked(added)
    }

    /// The matching rows of the matching runs.
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

/// Creates the tables in a file without any. Only then does opening an index need write permission.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    if version_of(connection)? != 0 {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have created them meanwhile.
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

/// The medians of a run, in the order of its plan; new cases are added.
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

/// The matching rows by their numbers in blobs.
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

/// A row of another version of the program with an unknown subject is skipped.
fn key_of(row: &Row) -> rusqlite::Result<Option<RowKey>> {
    let (name, subject): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(serde_json::from_str(&subject).ok().map(|subject| RowKey { name, subject }))
}

// Location of a run's files: in folders named by machine and month, as read by DuckDB, Spark, Polars and pandas (Hive's form).

/// The folder of a run.
struct Partition {
    machine: String,
    month: String,
}

impl Partition {
    /// By the name of its machine file, else of its first host's processor or device; and by the month of its start.
    pub fn of(header: &Header) -> Partition {
        let device = header.ranks.first().map(|rank| rank.device.clone().unwrap_or_else(|| rank.processor.clone()));
        let stem = |path: &String| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let machine = header.backend.machine.as_ref().and_then(stem).or(device).unwrap_or_default();
        let month = header.started_at.get(..7).filter(|text| text.parse::<MonthText>().is_ok()).unwrap_or("unknown");
        Partition { machine: plain(&machine), month: month.to_owned() }
    }

    /// The file of a run below a folder.
    pub fn file(&self, below: &Path, run_id: &str, extension: &str) -> PathBuf {
        let folder = below.join(format!("machine={}", self.machine)).join(format!("month={}", self.month));
        folder.join(format!("{}.{extension}", plain(run_id)))
    }
}

/// `2026-11`.
struct MonthText;

impl std::str::FromStr for MonthText {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<MonthText, ()> {
        let (year, month) = text.split_once('-').ok_or(())?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(year) && digits(month) && matches!(month.parse::<u8>(), Ok(1..=12));
        if valid { Ok(MonthText) } else { Err(()) }
    }
}

/// A name for folders and files; a text without plain letters becomes `unknown`.
fn plain(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().take(100).map(letter).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Writes a file and its parent folders: readers see it completely or not at all.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    make_folder(folder_of(path))
        .and_then(|()| write_own(path, content))
        .map_err(|cause| Error::file("write", path, cause))
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path, cause)),
        _ => Ok(()),
    }
}

/// The files with an extension below a folder, sorted, without leftovers of killed writers.
fn files_below(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(Error::file("read the folder", &folder, cause)),
        };
        for entry in entries {
            let path = entry.map_err(|cause| Error::file("read the folder", &folder, cause))?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            match path.is_dir() {
                true => folders.push(path),
                false if !hidden && path.extension().is_some_and(|found| found == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    // A store answers like a folder of records, loses nothing, and can be rebuilt.
    use super::*;
    use commgauge_base::writing::eprintln;
    use commgauge_judge::verdict::history::{HistoryRule, history};
    use commgauge_judge::verdict::testing::{copy_lines, lines, loaded, product_lines, with_own_work};
    use commgauge_model::record::{Journal, Line};

    const RULE: HistoryRule = HistoryRule { false_alarm_level: 0.05, relevant: 0.03 };

    /// Records of a row that is slower from the eighth night on.
    fn nights(folder: &Path, count: u32) -> Vec<PathBuf> {
        (0..count).map(|night| record(folder, night, if night >= 7 { 1.2 } else { 1.0 })).collect()
    }

    fn record(folder: &Path, night: u32, slow: f64) -> PathBuf {
        let scatter = |row: u32| 1.0 + f64::from((night * 7 + row * 5) % 11) * 0.001;
        let rows = [vec![100.0 * scatter(0); 3], vec![200.0 * slow * scatter(1); 3]];
        let mut lines = lines(&format!("run-{night:02}"), &rows);
        if let Line::Header(header) = &mut lines[0] {
            header.started_at = format!("2026-{:02}-{:02}T03:00:00+00:00", 1 + night / 28, night % 28 + 1);
        }
        let path = folder.join(format!("{night}.jsonl"));
        let mut journal = Journal::create(&path).unwrap();
        lines.iter().for_each(|line| journal.write(line).unwrap());
        journal.finish().unwrap();
        path
    }

    fn answer(input: HistoryInput) -> serde_json::Value {
        let mut answer = serde_json::to_value(history(input, RULE)).unwrap();
        // Only the location of the records differs.
        answer["lineages"].as_array_mut().unwrap().iter_mut().for_each(|lineage| {
            lineage["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["path"] = serde_json::Value::Null);
        });
        answer
    }

    #[test]
    fn a_store_answers_as_a_folder_of_records_does() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 12);
        let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let mut input = HistoryInput::default();
        for path in &records {
            assert_eq!(store.add(path).unwrap(), Added::New);
            input.add(path, LoadedRecord::read(path));
        }
        assert_eq!(store.add(&records[0]).unwrap(), Added::Known);
        let expected = answer(input);
        assert_eq!(expected["lineages"][0]["events"].as_array().unwrap().len(), 1);
        assert_eq!(answer(store.history_input(&RowFilter::default()).unwrap()), expected);
        let one = RowFilter { case: Some("all_reduce/1".to_owned()), suite: None };
        assert_eq!(answer(store.history_input(&one).unwrap())["lineages"][0]["rows"].as_array().unwrap().len(), 1);
        let none = RowFilter { suite: Some("another".to_owned()), case: None };
        assert_eq!(answer(store.history_input(&none).unwrap())["lineages"], serde_json::json!([]));
    }

    #[test]
    fn copies_and_products_are_kept_as_calls_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let own_work = [copy_lines(&[20.0; 3]), product_lines(&[40.0; 3])].concat();
        let mut journal = Journal::create(&path).unwrap();
        with_own_work(lines("a", &[vec![100.0; 3]]), own_work).iter().for_each(|line| journal.write(line).unwrap());
        journal.finish().unwrap();
        let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
        store.add(&path).unwrap();
        let kept = store.index.medians(&RowFilter::default()).unwrap();
        let read = RunMedians::of(&LoadedRecord::read(&path).unwrap()).unwrap();
        assert_eq!((&kept[0].rows, kept[0].rows.len()), (&read.rows, 3));
    }

    #[test]
    fn an_index_that_is_lost_or_half_written_is_made_again_of_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        let mut store = Store::open_or_create(&place).unwrap();
        nights(folder.path(), 8).iter().for_each(|path| assert_eq!(store.add(path).unwrap(), Added::New));
        let before = answer(store.history_input(&RowFilter::default()).unwrap());
        drop(store);
        // A killed writer leaves a copy under another name, a file of the dataset, and nothing in the index.
        let leftover = super::files_below(&place.join("records"), "jsonl").unwrap()[0].with_file_name(".9.jsonl.7.tmp");
        std::fs::write(&leftover, "half").unwrap();
        std::fs::remove_file(place.join("index.sqlite")).unwrap();
        assert_eq!(Store::open(&place).err().unwrap().exit_code(), 2);
        assert_eq!(Store::rebuild(&place).unwrap(), (8, Vec::new()));
        assert_eq!(answer(Store::open(&place).unwrap().history_input(&RowFilter::default()).unwrap()), before);
        assert_eq!(super::files_below(&place.join("dataset"), "parquet").unwrap().len(), 8);
    }

    #[test]
    fn what_has_no_say_or_is_another_record_of_a_run_is_refused_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let known = record(folder.path(), 1, 1.0);
        store.add(&known).unwrap();
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let error = store.add(&record(&folder.path().join("other"), 1, 1.5)).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("another record of the run run-01"), "{error}");
        assert_eq!(store.add(&folder.path().join("gone.jsonl")).unwrap_err().exit_code(), 2);
        assert_eq!(store.index.medians(&RowFilter::default()).unwrap().len(), 1);
    }

    #[test]
    fn writers_that_begin_a_store_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 20);
        let place = folder.path().join("store");
        std::thread::scope(|scope| {
            for half in records.chunks(5) {
                let place = &place;
                scope.spawn(move || {
                    let mut store = Store::open_or_create(place).unwrap();
                    half.iter().for_each(|path| assert_eq!(store.add(path).unwrap(), Added::New));
                });
            }
        });
        let all = Store::open(&place).unwrap().index.medians(&RowFilter::default()).unwrap();
        assert_eq!((all.len(), all.iter().map(|run| run.rows.len()).sum::<usize>()), (20, 40));
    }

    #[test]
    fn of_writers_that_add_one_record_at_once_one_says_that_it_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let (path, place) = (record(folder.path(), 1, 1.0), folder.path().join("store"));
        let add = || Store::open_or_create(&place).unwrap().add(&path).unwrap();
        let added: Vec<Added> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert_eq!(added.iter().filter(|added| **added == Added::New).count(), 1, "{added:?}");
    }

    /// Processor time of all threads of this process: independent of other load on the machine.
    fn processor_seconds() -> f64 {
        let status = std::fs::read_to_string("/proc/self/stat").unwrap();
        // After the name, which may contain blanks: the 12th and 13th field, in hundredths of a second.
        let fields: Vec<&str> = status.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    #[test]
    #[ignore = "a minute: cargo test --release -p commgauge-app --lib -- --ignored ten_thousand --nocapture"]
    fn ten_thousand_runs_of_five_hundred_rows_are_asked_and_added_to_in_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        let mut store = Store::open_or_create(&place).unwrap();
        store.index = store.index.without_waiting_for_the_disk();
        let many = |run: usize| -> Vec<Vec<f64>> {
            (0..500)
                .map(|row| vec![100.0 + row as f64 * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4); 3])
                .collect()
        };
        let model = RunMedians::of(&loaded("m.jsonl", lines("model", &many(0)))).unwrap();
        for run in 0..10_000 {
            let mut medians = model.clone();
            medians.run_id = format!("run-{run:05}");
            // Twenty machines, five hundred nights.
            medians.suite = format!("suite-{}", run % 20);
            medians.started_at = jiff::Timestamp::from_second(1_700_000_000 + run as i64 * 3600).unwrap().to_string();
            for (row, (_, seconds)) in medians.rows.iter_mut().enumerate() {
                *seconds = seconds.map(|seconds| seconds * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4));
            }
            store.index.add(&medians, "none").unwrap();
        }
        let path = folder.path().join("new.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        lines("new", &many(1)).iter().for_each(|line| journal.write(line).unwrap());
        journal.finish().unwrap();
        drop(store);
        let timed = |name: &str, seconds: f64, work: &mut dyn FnMut()| {
            let begun = (processor_seconds(), std::time::Instant::now());
            work();
            let (took, clock) = (processor_seconds() - begun.0, begun.1.elapsed().as_secs_f64());
            eprintln!("{name}: {took:.2} s of {seconds} s, {clock:.2} s by the clock");
            assert!(took < seconds, "{name}");
        };
        timed("add", 1.0, &mut || {
            Store::open_or_create(&place).unwrap().add(&path).unwrap();
        });
        let asked = |filter: RowFilter| history(Store::open(&place).unwrap().history_input(&filter).unwrap(), RULE);
        let one = RowFilter { case: Some("world/all_reduce/499".to_owned()), suite: Some("suite-3".to_owned()) };
        timed("one row", 1.0, &mut || assert_eq!(asked(one.clone()).lineages[0].runs.len(), 500));
        timed("all rows", 30.0, &mut || assert_eq!(asked(RowFilter::default()).lineages.len(), 21));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
        eprintln!("memory: {} MB of 500 MB", kilobytes / 1000);
        assert!(kilobytes < 500_000, "{kilobytes} kB");
    }
}
