//! The index of a store: the medians of every run, and the size and digest of its files.
//!
//! `index.log` only grows. Each line is the SHA-256 of its body in hexadecimal, a blank, and the body as JSON: either a list of rows, or
//! a run that refers to such a list by its digest. Programs append whole lines, so that several may add runs at once without a lock, which
//! network file systems may lack. A line whose digest does not match counts as absent: its run is read from its record again.

use crate::report::{RowLine as Line, UNKNOWN_HOST, View, lines, pair_lines};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use commgauge_base::digest::sha256;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::sync_folder_of;
use commgauge_judge::verdict::LoadedRecord;
use commgauge_judge::verdict::history::{RowKey, RunFacts, RunMedians};
use commgauge_model::record::Record;
use commgauge_model::record::header::host_of;
use commgauge_model::record::line::is_unique;
use commgauge_readers::interop::export::parquet_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

/// Which rows of which runs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// Only rows whose names contain this text.
    pub case: Option<String>,
    /// Only runs of this suite.
    pub suite: Option<String>,
}

impl RowFilter {
    /// The wanted rows of a run, if it has any.
    pub(super) fn of(&self, mut medians: RunMedians) -> Option<RunMedians> {
        medians.rows.retain(|(key, _)| self.case.as_ref().is_none_or(|text| key.name.contains(text.as_str())));
        let is_wanted = self.suite.as_ref().is_none_or(|suite| *suite == medians.suite);
        (is_wanted && !medians.rows.is_empty()).then_some(medians)
    }
}

/// The body of a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    /// Rows that runs of one plan share.
    Rows(Vec<serde_json::Value>),
    Run(Box<Entry>),
}

/// A file of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredFile {
    /// Relative to the store.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

impl StoredFile {
    pub fn new(path: String, content: &[u8]) -> StoredFile {
        StoredFile { path, bytes: content.len() as u64, sha256: sha256(content) }
    }

    /// What is wrong with the file. Its digest is checked while bytes are left to be read.
    pub fn damage(&self, store: &Path, bytes_to_read: &mut u64) -> Option<&'static str> {
        if !fs::metadata(store.join(&self.path)).is_ok_and(|found| found.is_file() && found.len() == self.bytes) {
            return Some("lost or cut off");
        }
        let is_read = *bytes_to_read > 0;
        *bytes_to_read = bytes_to_read.saturating_sub(self.bytes);
        (is_read && !self.is_whole(store)).then_some("changed since it was written")
    }

    pub fn is_whole(&self, store: &Path) -> bool {
        fs::read(store.join(&self.path)).is_ok_and(|content| sha256(content) == self.sha256)
    }
}

/// A run of the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub run_id: String,
    /// The record, and the files of the dataset that were made of it.
    pub files: Vec<StoredFile>,
    started_at: String,
    suite: String,
    backend: String,
    machine: String,
    facts: Vec<[String; 3]>,
    rows_left_out: u32,
    /// SHA-256 of the line with the rows.
    rows: String,
    /// Seconds of each row as little-endian `f64` in base64; NaN where a row has no median.
    medians: String,
}

impl Entry {
    /// The key of a run: its record.
    pub fn record(&self) -> &str {
        self.files.first().map_or("", |file| file.path.as_str())
    }

    fn medians(&self, store: &Path, rows: &[Option<Arc<RowKey>>]) -> Option<RunMedians> {
        let bytes = STANDARD.decode(&self.medians).ok()?;
        let (seconds, []) = bytes.as_chunks() else { return None };
        if seconds.len() != rows.len() {
            return None;
        }
        // A row that another version of the program measured, and this one does not know, is left out.
        let medians = rows.iter().zip(seconds).filter_map(|(key, seconds)| {
            let seconds = Some(f64::from_le_bytes(*seconds)).filter(|seconds| !seconds.is_nan());
            Some((key.clone()?, seconds))
        });
        Some(RunMedians {
            path: store.join(self.record()).display().to_string(),
            run_id: self.run_id.clone(),
            started_at: self.started_at.clone(),
            suite: self.suite.clone(),
            backend: self.backend.clone(),
            machine: self.machine.clone(),
            facts: RunFacts::from_texts(self.facts.clone())?,
            rows: medians.collect(),
            rows_left_out: self.rows_left_out,
        })
    }
}

/// The index in memory.
#[derive(Default)]
pub(super) struct Index {
    rows: HashMap<String, Vec<Option<Arc<RowKey>>>>,
    /// By the path of the record; the last line of a run counts.
    runs: BTreeMap<String, Entry>,
    /// Lines that cannot be used.
    pub damaged: usize,
}

impl Index {
    /// Reads an index; one that does not exist is empty.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(path: &Path) -> Result<Index> {
        let mut index = Index::default();
        let content = match fs::read(path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(index),
            read => read.map_err(|cause| Error::file("read", path, cause))?,
        };
        for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match body_of(line) {
                Some((digest, body)) => index.take(digest, body),
                None => index.damaged += 1,
            }
        }
        Ok(index)
    }

    fn take(&mut self, digest: String, body: Body) {
        match body {
            Body::Rows(rows) => {
                let keys = rows.into_iter().map(|row| serde_json::from_value(row).ok().map(Arc::new));
                self.rows.insert(digest, keys.collect());
            }
            // Its record is read instead, which gives the run an id of its own.
            Body::Run(entry) if !is_unique(&entry.run_id) => self.damaged += 1,
            Body::Run(entry) => {
                self.runs.insert(entry.record().to_owned(), *entry);
            }
        }
    }

    /// The runs of this id; more than one only where two programs added different records of it at once.
    pub fn of_id<'a>(&'a self, run_id: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.runs.values().filter(move |entry| entry.run_id == run_id)
    }

    /// A run by the path of its record; none where its medians cannot be told.
    pub fn of_record(&self, path: &str) -> Option<&Entry> {
        self.runs.get(path).filter(|entry| self.rows.contains_key(&entry.rows))
    }

    pub fn runs(&self) -> impl Iterator<Item = &Entry> {
        self.runs.values()
    }

    /// The medians of a run; none where this version cannot tell them.
    pub fn medians(&self, entry: &Entry, store: &Path) -> Option<RunMedians> {
        entry.medians(store, self.rows.get(&entry.rows)?)
    }

    /// Takes a run in; returns the lines that the file lacks for it.
    pub fn add(&mut self, medians: &RunMedians, files: Vec<StoredFile>) -> Result<String> {
        let keys = medians.rows.iter().map(|(key, _)| serde_json::to_value(&**key));
        let keys = keys.collect::<serde_json::Result<_>>().map_err(unwritable)?;
        let (rows, rows_line) = line_of(&Body::Rows(keys))?;
        let seconds = medians.rows.iter().flat_map(|(_, seconds)| seconds.unwrap_or(f64::NAN).to_le_bytes());
        let entry = Entry {
            run_id: medians.run_id.clone(),
            files,
            started_at: medians.started_at.clone(),
            suite: medians.suite.clone(),
            backend: medians.backend.clone(),
            machine: medians.machine.clone(),
            facts: medians.facts.to_texts(),
            rows_left_out: medians.rows_left_out,
            rows: rows.clone(),
            medians: STANDARD.encode(seconds.collect::<Vec<u8>>()),
        };
        let mut lines = String::new();
        self.rows.entry(rows).or_insert_with(|| {
            lines += &rows_line;
            medians.rows.iter().map(|(key, _)| Some(key.clone())).collect()
        });
        if self.runs.get(entry.record()) != Some(&entry) {
            lines += &line_of(&Body::Run(Box::new(entry.clone())))?.1;
            self.runs.insert(entry.record().to_owned(), entry);
        }
        Ok(lines)
    }
}

fn unwritable(cause: serde_json::Error) -> Error {
    Error::environment(format!("cannot write a line of the index: {cause}"))
}

/// The digest of a body, and its line.
fn line_of(body: &Body) -> Result<(String, String)> {
    let text = serde_json::to_string(body).map_err(unwritable)?;
    let digest = sha256(&text);
    let line = format!("{digest} {text}\n");
    Ok((digest, line))
}

fn body_of(line: &[u8]) -> Option<(String, Body)> {
    let (digest, [b' ', text @ ..]) = line.split_at_checked(64)? else { return None };
    let is_whole = sha256(text).as_bytes() == digest;
    let body = is_whole.then(|| serde_json::from_slice(text).ok()).flatten()?;
    Some((String::from_utf8(digest.to_vec()).ok()?, body))
}

/// Appends lines in one write, behind a line feed that ends what a writer that was cut off left.
///
/// # Errors
/// Those of the system. What was written of the lines counts as damaged.
pub(super) fn append(path: &Path, lines: &str) -> std::io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let is_new = !path.exists();
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("\n{lines}").as_bytes())?;
    file.sync_data()?;
    if is_new { sync_folder_of(path) } else { Ok(()) }
}

// The Parquet dataset: a line for each call, copy and matrix product of a run, and one for each measured pair of ranks.
//
// Every column is optional; an unknown value is null and never 0. Times are in seconds, rates in bytes per second, and the start of
// a run is a timestamp in UTC. Machine and month are in the names of the folders.

/// A run and its view.
pub(super) struct Run<'a> {
    record: &'a Record,
    view: &'a View,
    /// Facts shared by every line of the run.
    facts: Line,
}

/// The common columns of all lines of a run.
const RUN: &str = include_str!("run.schema");

const ROWS: &str = include_str!("rows.schema");

const PAIRS: &str = include_str!("pairs.schema");

impl<'a> Run<'a> {
    pub fn of(loaded: &'a LoadedRecord, view: &'a View) -> Run<'a> {
        let record = &loaded.record;
        let header = &record.header;
        let moment = header.started_at.parse::<jiff::Timestamp>().ok();
        let driver = record.devices.iter().flat_map(|line| &line.devices).find_map(|device| device.driver.clone());
        let facts = [
            ("run_id", header.run_id.as_str().into()),
            ("started_at", moment.map(jiff::Timestamp::as_microsecond).into()),
            ("suite", header.suite.name.as_str().into()),
            ("backend", header.backend.name.as_str().into()),
            ("library", header.backend.library.as_str().into()),
            ("driver", driver.into()),
            ("program_version", header.program_version.as_str().into()),
            ("world_size", header.world_size.into()),
        ];
        Run { record, view, facts: facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect() }
    }
}

/// The lines of all rows, as the content of a file.
pub(super) fn rows(run: &Run) -> Result<Vec<u8>> {
    let mut lines = lines(run.view)?;
    for (line, slowest) in lines.iter_mut().zip(run.slowest_hosts()) {
        line.extend(run.facts.clone());
        for key in ["status", "placement"] {
            // The spelling of the names of cases.
            let text = line[key].as_str().map(|text| text.to_lowercase().replace('_', "-"));
            line.insert(key.to_owned(), text.into());
        }
        let (host, share) = slowest.unzip();
        line.insert("slowest_host".to_owned(), host.into());
        line.insert("slowest_host_share".to_owned(), share.into());
    }
    file(ROWS, &lines)
}

impl Run<'_> {
    /// For each entry the host whose ranks were slowest most often, and its share of the samples.
    fn slowest_hosts(&self) -> Vec<Option<(String, f64)>> {
        let (record, view) = (self.record, self.view);
        let mut slowest_ranks = vec![Vec::<&[u32]>::new(); view.rows.len()];
        for line in &record.cases {
            if let Some(of_case) = slowest_ranks.get_mut(line.case as usize) {
                of_case.push(&line.samples.slowest_rank);
            }
        }
        let copies = view.copies.iter().map(|time| {
            let lines = record.copies.iter().filter(|line| line.copy == time.copy);
            lines.map(|line| line.slowest_rank.as_slice()).collect()
        });
        let products = view.products.iter().map(|time| {
            let lines = record.products.iter().filter(|line| line.product == time.product);
            lines.map(|line| line.slowest_rank.as_slice()).collect()
        });
        slowest_ranks
            .into_iter()
            .chain(copies)
            .chain(products)
            .map(|ranks| self.slowest_host(&ranks.concat()))
            .collect()
    }

    fn slowest_host(&self, slowest_ranks: &[u32]) -> Option<(String, f64)> {
        let mut samples_of_rank = BTreeMap::<u32, usize>::new();
        slowest_ranks.iter().for_each(|rank| *samples_of_rank.entry(*rank).or_default() += 1);
        let all = slowest_ranks.len();
        let mut samples_of_host = BTreeMap::<&str, usize>::new();
        for (rank, samples) in samples_of_rank {
            *samples_of_host.entry(host_of(&self.record.header.ranks, rank).unwrap_or(UNKNOWN_HOST)).or_default() +=
                samples;
        }
        let (host, samples) = samples_of_host.into_iter().max_by_key(|(_, samples)| *samples)?;
        Some((host.to_owned(), samples as f64 / all as f64))
    }
}

/// The lines of all pairs, if any.
pub(super) fn pairs(run: &Run) -> Result<Option<Vec<u8>>> {
    let Some(view) = &run.view.pairs else { return Ok(None) };
    let mut lines = pair_lines(view)?;
    for line in &mut lines {
        line.extend(run.facts.clone());
        for (name, key) in [
            ("one_way_bytes_per_second", "bandwidth_bytes_per_second"),
            ("both_ways_bytes_per_second", "bidirectional_bandwidth_bytes_per_second"),
        ] {
            line.insert(name.to_owned(), line[key].clone());
        }
    }
    file(PAIRS, &lines).map(Some)
}

fn file(columns: &str, lines: &[Line]) -> Result<Vec<u8>> {
    parquet_file("the dataset", &format!("message commgauge {{{RUN}{columns}}}"), lines)
}
