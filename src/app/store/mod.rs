//! The history of a fleet in a folder: records, an index of their medians, and a dataset for other programs.
//!
//! ```text
//! DIR/records/machine=M/month=2026-11/RUN-DIGEST.jsonl    the truth
//! DIR/index.log                                         medians and facts of every run, made of the records
//! DIR/dataset/rows/machine=M/month=2026-11/RUN-DIGEST.parquet, and pairs/ next to rows/
//! ```
//!
//! A record is added whole or not at all: files are written under other names and renamed, the record first. A record that the index
//! does not know, since its writer was killed or its line is damaged, is read itself, so that no answer depends on the index.

mod files;

use crate::report::View;
use commgauge_base::digest::sha256;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder, write_new, write_own};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::ascending;
use commgauge_judge::verdict::LoadedRecord;
use commgauge_judge::verdict::history::{HistoryInput, RunMedians};
use commgauge_model::record::line::Header;
pub use files::RowFilter;
use files::{Index, Run, StoredFile, append};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The index of a store, in its folder.
const INDEX_FILE: &str = "index.log";
const RECORDS: &str = "records";
const DATASET: &str = "dataset";
/// How much of the files a question reads to check their digests: a fraction of a second.
const CHECKED_BYTES: u64 = 128 << 20;

/// Result of adding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the store now.
    New,
    /// The store had it, with all files whole.
    Known,
    /// The store had it; files that were lost or damaged are written again.
    Repaired,
}

/// A store of records.
pub struct Store {
    folder: PathBuf,
    index: Index,
}

impl Store {
    /// Opens a store; a folder that does not exist is made.
    ///
    /// # Errors
    /// A folder that cannot be made, or an index that cannot be read.
    pub fn open_or_create(folder: &Path) -> Result<Store> {
        make_folder(&folder.join(RECORDS)).map_err(|cause| Error::path("make the store", folder, &cause))?;
        Ok(Store { folder: folder.to_owned(), index: Index::read(&folder.join(INDEX_FILE))? })
    }

    /// Whether a folder holds a store.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(RECORDS).is_dir()
    }

    /// Opens a store that exists.
    ///
    /// # Errors
    /// A usage error where the folder holds none.
    pub fn open(folder: &Path) -> Result<Store> {
        if !Store::is_in(folder) {
            return Err(Error::usage(format!(
                "--store {}: there is no folder records in it; `commgauge history add RECORD --store {0}` makes a store",
                folder.shown()
            )));
        }
        Ok(Store { folder: folder.to_owned(), index: Index::read(&folder.join(INDEX_FILE))? })
    }

    /// Adds a record: copies it, writes its dataset, and indexes its medians. What a store that has the run lacks of it is written again.
    ///
    /// # Errors
    /// A record that cannot be read or does not count in a history; another record of a run that the store has; a failing disk.
    pub fn add(&mut self, record: &Path) -> Result<Added> {
        let run = ReadRecord::read(record)?;
        let run_id = &run.medians.run_id;
        let digest = sha256(&run.text);
        let is_other = |file: &StoredFile| file.sha256 != digest;
        if let Some(other) =
            self.index.of_id(run_id).filter_map(|entry| entry.files.first()).find(|file| is_other(file))
        {
            return Err(self.other_record(record, run_id, &other.path));
        }
        let copy = run.partition.file(RECORDS, run_id, "jsonl");
        let at = self.folder.join(&copy);
        let mut repaired = false;
        let is_new = written(&at, |path| write_new(path, &run.text))?;
        if !is_new {
            let kept = fs::read(&at).map_err(|cause| Error::file("read", &at, cause))?;
            if kept != run.text {
                // Another program may have added it at this moment; a copy that reads is not replaced.
                if self.index.of_record(&copy).is_none() && ReadRecord::read(&at).is_ok() {
                    return Err(self.other_record(record, run_id, &copy));
                }
                written(&at, |path| write_own(path, &run.text))?;
                repaired = true;
            }
        }
        let known = self.index.of_record(&copy).map_or(&[][..], |entry| &entry.files);
        let (files, rewritten) = run.write_dataset(&self.folder, copy, known)?;
        let was_indexed = !known.is_empty();
        let lines = self.index.add(&run.medians, files)?;
        let index = self.folder.join(INDEX_FILE);
        append(&index, &lines).map_err(|cause| Error::file("write", &index, cause))?;
        Ok(match (is_new && !was_indexed, repaired || (was_indexed && (is_new || rewritten))) {
            (true, _) => Added::New,
            (_, true) => Added::Repaired,
            _ => Added::Known,
        })
    }

    fn other_record(&self, record: &Path, run_id: &str, kept: &str) -> Error {
        Error::usage(format!(
            "{}: the store has another record of the run {run_id}: {}; to replace it, remove that file and run `commgauge history \
             rebuild --store {}`",
            record.shown(),
            self.folder.join(kept).shown(),
            self.folder.shown()
        ))
    }

    /// Makes index and dataset again from the records alone, each file next to the old one. Returns how many runs there are, and the
    /// records that were left out.
    ///
    /// # Errors
    /// A folder that cannot be read, or a disk that fails; the old index is then unchanged.
    pub fn rebuild(folder: &Path, mut done: impl FnMut(usize, usize)) -> Result<(usize, Vec<String>)> {
        let records = Store::open(folder)?.records()?;
        let mut index = Index::default();
        let (mut lines, mut left_out, mut kept) = (String::new(), Vec::new(), BTreeSet::new());
        for (at, path) in records.iter().enumerate() {
            done(at, records.len());
            match ReadRecord::read(&folder.join(path)) {
                Ok(run) => {
                    let (files, _) = run.write_dataset(folder, path.clone(), &[])?;
                    kept.extend(files.iter().map(|file| file.path.clone()));
                    lines += &index.add(&run.medians, files)?;
                }
                Err(error) => left_out.push(error.to_string()),
            }
        }
        written(&folder.join(INDEX_FILE), |path| write_own(path, lines.as_bytes()))?;
        let is_left = |file: &String| !kept.contains(file) && !is_added_meanwhile(folder, file, &records);
        for file in files_below(folder, DATASET, "parquet")?.iter().filter(|file| is_left(file)) {
            let path = folder.join(file);
            match fs::remove_file(&path) {
                // Another rebuild removed it first.
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                removed => removed.map_err(|cause| Error::file("remove", &path, cause))?,
            }
        }
        Ok((index.runs().count(), left_out))
    }

    fn records(&self) -> Result<Vec<String>> {
        files_below(&self.folder, RECORDS, "jsonl")
    }

    /// The medians of all runs, of the rows that the filter wants, and what of the store is lost or damaged.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn history_input(&self, filter: &RowFilter) -> Result<(HistoryInput, Vec<String>)> {
        let mut input = HistoryInput::default();
        let mut problems = self.damaged_files(CHECKED_BYTES);
        let mut unknown: BTreeSet<String> = self.records()?.into_iter().collect();
        for entry in self.index.runs() {
            let Some(medians) = self.index.medians(entry, &self.folder) else { continue };
            unknown.remove(entry.record());
            filter.of(medians).into_iter().for_each(|medians| input.add_medians(medians));
        }
        for record in &unknown {
            let path = self.folder.join(record);
            let read = LoadedRecord::read(&path).map_err(|error| error.to_string());
            match read.and_then(|loaded| RunMedians::of(&loaded)) {
                Ok(medians) => filter.of(medians).into_iter().for_each(|medians| input.add_medians(medians)),
                Err(reason) => input.leave_out(&path, reason),
            }
        }
        if self.index.damaged + unknown.len() > 0 {
            problems.push(format!(
                "{}: {} damaged, {} not in it, read from their records; `commgauge history rebuild --store {}` repairs it",
                self.folder.join(INDEX_FILE).shown(),
                counted(self.index.damaged, "line"),
                counted(unknown.len(), "run"),
                self.folder.shown()
            ));
        }
        Ok((input, problems))
    }

    /// The files of the indexed runs that are lost or damaged, and what writes them again. All sizes are checked, and digests up to a
    /// number of bytes: from a file on that is another one each time, so that none of a large store stays unread.
    fn damaged_files(&self, mut bytes_to_read: u64) -> Vec<String> {
        let mut files: Vec<&StoredFile> = self.index.runs().flat_map(|entry| &entry.files).collect();
        let nanoseconds = UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as usize);
        let first = nanoseconds % files.len().max(1);
        files.rotate_left(first);
        let damaged = files.into_iter().filter_map(|file| {
            let damage = file.damage(&self.folder, &mut bytes_to_read)?;
            let (path, folder) = (self.folder.join(&file.path), self.folder.shown());
            let repair = match file.path.starts_with(DATASET) {
                true => format!("`commgauge history rebuild --store {folder}` writes it again"),
                false => "`commgauge history add` of the run's record writes it again".to_owned(),
            };
            Some(format!("{}: {damage}; {repair}", path.shown()))
        });
        ascending(damaged)
    }
}

/// A record that counts in a history.
struct ReadRecord {
    loaded: LoadedRecord,
    text: Vec<u8>,
    medians: RunMedians,
    partition: Partition,
}

impl ReadRecord {
    fn read(path: &Path) -> Result<ReadRecord> {
        let loaded = LoadedRecord::read(path)?;
        let text = fs::read(path).map_err(|cause| Error::file("read the record", path, cause))?;
        let medians = RunMedians::of(&loaded)
            .map_err(|reason| Error::usage(format!("{}: {reason}; it does not count in a history", path.shown())))?;
        let partition = Partition::of(&loaded.record.header);
        Ok(ReadRecord { loaded, text, medians, partition })
    }

    /// Writes the files of the dataset that are not whole. Returns all files of the run, and whether any was written.
    fn write_dataset(&self, store: &Path, record: String, known: &[StoredFile]) -> Result<(Vec<StoredFile>, bool)> {
        let view = View::new(&self.loaded.record);
        let run = Run::of(&self.loaded, &view);
        let mut files = vec![StoredFile::new(record, &self.text)];
        let mut rewritten = false;
        for (kind, content) in [("rows", Some(files::rows(&run)?)), ("pairs", files::pairs(&run)?)] {
            let Some(content) = content else { continue };
            let path = self.partition.file(&format!("{DATASET}/{kind}"), &self.medians.run_id, "parquet");
            match known.iter().find(|file| file.path == path && file.is_whole(store)) {
                Some(whole) => files.push(whole.clone()),
                None => {
                    written(&store.join(&path), |at| write_own(at, &content))?;
                    files.push(StoredFile::new(path, &content));
                    rewritten = true;
                }
            }
        }
        Ok((files, rewritten))
    }
}

// Paths of the files of a run: in folders that name machine and month, as DuckDB, Spark, Polars and pandas read them (Hive's form).

/// The folder of a run.
struct Partition {
    machine: String,
    month: String,
}

impl Partition {
    /// By the name of its machine file, else of its first host's processor or device; and by the month in which it began.
    pub fn of(header: &Header) -> Partition {
        let device = header.ranks.first().map(|rank| rank.device.clone().unwrap_or_else(|| rank.processor.clone()));
        let stem = |path: &String| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let machine = header.backend.machine.as_ref().and_then(stem).or(device).unwrap_or_default();
        let month = header
            .started_at
            .get(..7)
            .filter(|month| format!("{month}-01").parse::<jiff::civil::Date>().is_ok())
            .unwrap_or("unknown");
        Partition { machine: plain(&machine), month: month.to_owned() }
    }

    /// The file of a run below a folder of the store. The digest tells apart ids that are alike in their plain letters.
    pub fn file(&self, below: &str, run_id: &str, extension: &str) -> String {
        let digest = sha256(run_id);
        format!("{below}/machine={}/month={}/{}-{}.{extension}", self.machine, self.month, plain(run_id), &digest[..16])
    }
}

/// A name for folders and files; what has no plain letters is called unknown.
fn plain(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().take(100).map(letter).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Writes a file and the folders above it.
fn written<T>(path: &Path, write: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T> {
    make_folder(folder_of(path)).and_then(|()| write(path)).map_err(|cause| Error::file("write", path, cause))
}

/// Whether the record of a file of the dataset came into the store after its records were listed.
fn is_added_meanwhile(store: &Path, file: &str, listed: &[String]) -> bool {
    // `dataset/rows/machine=M/month=2026-11/RUN-DIGEST.parquet`
    let record = file.splitn(3, '/').nth(2).map(|path| Path::new(RECORDS).join(path).with_extension("jsonl"));
    record.is_some_and(|record| !listed.iter().any(|one| Path::new(one) == record) && store.join(record).is_file())
}

/// The files of an extension below a folder of the store, relative to the store and sorted; temporary files are left out.
fn files_below(store: &Path, below: &str, extension: &str) -> Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![below.to_owned()]);
    while let Some(folder) = folders.pop() {
        let at = store.join(&folder);
        let entries = match fs::read_dir(&at) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == ErrorKind::NotFound => continue,
            Err(cause) => return Err(Error::file("read the folder", &at, cause)),
        };
        for entry in entries {
            let entry = entry.map_err(|cause| Error::file("read the folder", &at, cause))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match Path::new(&name).extension().is_some_and(|found| found == extension) && !name.starts_with('.') {
                true if !is_folder => found.push(path),
                _ if is_folder => folders.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    // A store answers as a folder of records does, loses nothing, and can be made again.
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
        named_record(folder, &format!("run-{night:02}"), night, slow)
    }

    fn named_record(folder: &Path, id: &str, night: u32, slow: f64) -> PathBuf {
        let scatter = |row: u32| 1.0 + f64::from((night * 7 + row * 5) % 11) * 0.001;
        let rows = [vec![100.0 * scatter(0); 3], vec![200.0 * slow * scatter(1); 3]];
        let mut lines = lines(id, &rows);
        if let Line::Header(header) = &mut lines[0] {
            header.started_at = format!("2026-{:02}-{:02}T03:00:00+00:00", 1 + night / 28, night % 28 + 1);
        }
        let path = folder.join(format!("{night}-{slow}.jsonl"));
        let mut journal = Journal::create(&path).unwrap();
        lines.iter().for_each(|line| journal.write(line).unwrap());
        journal.finish().unwrap();
        path
    }

    fn asked(store: &Path, filter: &RowFilter) -> (serde_json::Value, Vec<String>) {
        let (input, problems) = Store::open(store).unwrap().history_input(filter).unwrap();
        (answer(input), problems)
    }

    fn all(store: &Path) -> (serde_json::Value, Vec<String>) {
        asked(store, &RowFilter::default())
    }

    fn file(store: &Path, below: &str, extension: &str) -> PathBuf {
        store.join(&files_below(store, below, extension).unwrap()[0])
    }

    /// A store of these records.
    fn store_of(folder: &Path, records: &[PathBuf]) -> PathBuf {
        let place = folder.join("store");
        let mut store = Store::open_or_create(&place).unwrap();
        records.iter().for_each(|path| assert_eq!(store.add(path).unwrap(), Added::New));
        place
    }

    fn answer(input: HistoryInput) -> serde_json::Value {
        let mut answer = serde_json::to_value(history(input, RULE)).unwrap();
        // Where the records lie is what differs.
        answer["lineages"].as_array_mut().unwrap().iter_mut().for_each(|lineage| {
            lineage["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["path"] = serde_json::Value::Null);
        });
        answer
    }

    #[test]
    fn a_store_answers_as_a_folder_of_records_does() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 12);
        let mut input = HistoryInput::default();
        records.iter().for_each(|path| input.add(path, LoadedRecord::read(path)));
        let place = store_of(folder.path(), &records);
        assert_eq!(Store::open(&place).unwrap().add(&records[0]).unwrap(), Added::Known);
        let expected = answer(input);
        assert_eq!(expected["lineages"][0]["events"].as_array().unwrap().len(), 1);
        assert_eq!(all(&place), (expected, Vec::new()));
        let one = RowFilter { case: Some("all_reduce/1".to_owned()), suite: None };
        assert_eq!(asked(&place, &one).0["lineages"][0]["rows"].as_array().unwrap().len(), 1);
        let none = RowFilter { suite: Some("another".to_owned()), case: None };
        assert_eq!(asked(&place, &none).0["lineages"], serde_json::json!([]));
    }

    #[test]
    fn a_run_that_is_added_during_a_rebuild_keeps_its_dataset_and_two_rebuilds_do_not_end_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 3);
        let place = store_of(folder.path(), &records[..2]);
        let stray = file(&place, DATASET, "parquet").with_file_name("gone-0123456789abcdef.parquet");
        fs::write(&stray, "of a removed record").unwrap();
        let is_first = std::cell::Cell::new(true);
        let (runs, left_out) = Store::rebuild(&place, |_, _| {
            if is_first.replace(false) {
                assert_eq!(Store::open(&place).unwrap().add(&records[2]).unwrap(), Added::New);
                Store::rebuild(&place, |_, _| {}).unwrap();
            }
        })
        .unwrap();
        assert_eq!((runs, left_out.len(), stray.exists()), (2, 0, false));
        assert_eq!(files_below(&place, DATASET, "parquet").unwrap().len(), 3);
        let mut input = HistoryInput::default();
        records.iter().for_each(|path| input.add(path, LoadedRecord::read(path)));
        let (known, problems) = all(&place);
        assert_eq!(known, answer(input));
        assert!(problems.iter().any(|problem| problem.contains("1 run not in it")), "{problems:?}");
        Store::rebuild(&place, |_, _| {}).unwrap();
        assert_eq!(all(&place), (known, Vec::new()));
    }

    #[test]
    fn copies_and_products_are_kept_as_calls_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let own_work = [copy_lines(&[20.0; 3]), product_lines(&[40.0; 3])].concat();
        let mut journal = Journal::create(&path).unwrap();
        with_own_work(lines("a", &[vec![100.0; 3]]), own_work).iter().for_each(|line| journal.write(line).unwrap());
        journal.finish().unwrap();
        let store = Store::open(&store_of(folder.path(), std::slice::from_ref(&path))).unwrap();
        let entry = store.index.runs().next().unwrap();
        let kept = store.index.medians(entry, &store.folder).unwrap();
        let read = RunMedians::of(&LoadedRecord::read(&path).unwrap()).unwrap();
        assert_eq!((&kept.rows, kept.rows.len()), (&read.rows, 3));
    }

    #[test]
    fn a_store_without_its_index_answers_from_its_records_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let place = store_of(folder.path(), &nights(folder.path(), 8));
        let (before, _) = all(&place);
        // A killed writer leaves a copy under another name.
        std::fs::write(file(&place, RECORDS, "jsonl").with_file_name(".9.jsonl.7.tmp"), "half").unwrap();
        std::fs::remove_file(place.join(INDEX_FILE)).unwrap();
        std::fs::remove_dir_all(place.join(DATASET)).unwrap();
        let (without, problems) = all(&place);
        assert_eq!(without, before);
        assert!(problems.len() == 1 && problems[0].contains("0 lines damaged, 8 runs not in it"), "{problems:?}");
        assert_eq!(Store::rebuild(&place, |_, _| {}).unwrap(), (8, Vec::new()));
        assert_eq!(all(&place), (before, Vec::new()));
        assert_eq!(files_below(&place, DATASET, "parquet").unwrap().len(), 8);
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_index_changes_no_answer_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let place = store_of(folder.path(), &nights(folder.path(), 4));
        let (before, _) = all(&place);
        let index = place.join(INDEX_FILE);
        let whole = std::fs::read(&index).unwrap();
        for at in (0..whole.len()).step_by(41) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&index, &flipped).unwrap();
            let (answer, problems) = all(&place);
            assert_eq!(answer, before, "byte {at}");
            assert!(problems.len() == 1 && problems[0].contains("damaged"), "byte {at}: {problems:?}");
        }
        // A whole line that this version cannot use, as another version may write it.
        let text = String::from_utf8(whole.clone()).unwrap().replacen(r#""medians":""#, r#""medians":"AAAA"#, 1);
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| format!("{} {}\n", sha256(&line[65..]), &line[65..]));
        std::fs::write(&index, lines.collect::<String>()).unwrap();
        let (answer, problems) = all(&place);
        assert!(answer == before && problems[0].contains("0 lines damaged, 1 run not in it"), "{problems:?}");
        // The next writer begins a line of its own behind what is cut off.
        std::fs::write(&index, &whole[..whole.len() - 9]).unwrap();
        let more = record(folder.path(), 20, 1.0);
        assert_eq!(Store::open(&place).unwrap().add(&more).unwrap(), Added::New);
        let runs = all(&place).0["lineages"][0]["runs"].as_array().unwrap().len();
        assert_eq!(runs, 5);
    }

    #[test]
    fn a_flipped_byte_in_any_sector_of_any_file_changes_no_answer_and_is_named_and_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 2);
        let place = store_of(folder.path(), &records);
        let (before, _) = all(&place);
        for (below, extension) in [(RECORDS, "jsonl"), (DATASET, "parquet")] {
            let path = file(&place, below, extension);
            let whole = std::fs::read(&path).unwrap();
            for sector in 0..whole.len().div_ceil(512) {
                let mut flipped = whole.clone();
                flipped[(sector * 512 + sector * 37 % 512).min(whole.len() - 1)] ^= 1 << (sector % 8);
                std::fs::write(&path, flipped).unwrap();
                let (answer, problems) = all(&place);
                let is_named = problems.len() == 1 && problems[0].contains(path.to_str().unwrap());
                assert!(answer == before && is_named, "{extension}, sector {sector}: {problems:?}");
                match below {
                    DATASET => assert_eq!(Store::rebuild(&place, |_, _| {}).unwrap(), (2, Vec::new())),
                    _ => assert_eq!(Store::open(&place).unwrap().add(&records[0]).unwrap(), Added::Repaired),
                }
                assert!(std::fs::read(&path).unwrap() == whole && all(&place).1.is_empty(), "{extension}, {sector}");
            }
        }
    }

    /// Damages a file.
    type Damage = fn(&Path);

    #[test]
    fn files_that_are_lost_cut_or_edited_are_written_again_by_adding_the_record_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let records = nights(folder.path(), 1);
        let place = store_of(folder.path(), &records);
        let lose: Damage = |path| std::fs::remove_file(path).unwrap();
        let cut: Damage = |path| std::fs::write(path, &std::fs::read(path).unwrap()[..50]).unwrap();
        let edit: Damage = |path| {
            let mut content = std::fs::read(path).unwrap();
            content[60] ^= 4;
            std::fs::write(path, content).unwrap();
        };
        for (below, extension) in [(RECORDS, "jsonl"), (DATASET, "parquet")] {
            let path = file(&place, below, extension);
            let whole = std::fs::read(&path).unwrap();
            for (damage, said) in [(lose, "lost or cut off"), (cut, "lost or cut off"), (edit, "changed since")] {
                damage(&path);
                assert!(all(&place).1.iter().any(|problem| problem.contains(said)), "{said}");
                assert_eq!(Store::open(&place).unwrap().add(&records[0]).unwrap(), Added::Repaired);
                assert!(std::fs::read(&path).unwrap() == whole && all(&place).1.is_empty());
            }
        }
        // A rebuilt index leaves out an edited record, and its dataset goes.
        edit(&file(&place, RECORDS, "jsonl"));
        let (runs, left_out) = Store::rebuild(&place, |_, _| {}).unwrap();
        assert_eq!((runs, left_out.len(), files_below(&place, DATASET, "parquet").unwrap()), (0, 1, Vec::new()));
    }

    #[test]
    fn ids_that_are_alike_in_their_plain_letters_are_runs_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let long = "n".repeat(100);
        let ids = ["run/1", "run:1", "run-1", "", "..", &format!("{long}1"), &format!("{long}2")];
        let records: Vec<PathBuf> =
            (0..).zip(ids).map(|(night, id)| named_record(folder.path(), id, night, 1.0)).collect();
        let place = store_of(folder.path(), &records);
        assert_eq!(files_below(&place, RECORDS, "jsonl").unwrap().len(), ids.len());
        assert_eq!(Store::rebuild(&place, |_, _| {}).unwrap(), (ids.len(), Vec::new()));
    }

    #[test]
    fn what_does_not_count_or_is_another_record_of_a_run_is_refused_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let known = record(folder.path(), 1, 1.0);
        let place = store_of(folder.path(), &[known]);
        let mut store = Store::open(&place).unwrap();
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let error = store.add(&record(&folder.path().join("other"), 1, 1.5)).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("another record of the run run-01"), "{error}");
        assert_eq!(store.add(&folder.path().join("gone.jsonl")).unwrap_err().exit_code(), 2);
        assert_eq!(Store::open(&place).unwrap().index.runs().count(), 1);
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
        let (answer, problems) = all(&place);
        assert_eq!((answer["lineages"][0]["runs"].as_array().unwrap().len(), problems), (20, Vec::new()));
    }

    #[test]
    fn of_writers_that_add_one_run_at_once_one_says_that_it_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        let add = |path: &Path| Store::open_or_create(&place).unwrap().add(path);
        let at_once = |paths: [&Path; 4]| -> Vec<Result<Added>> {
            std::thread::scope(|scope| {
                let writers: Vec<_> = paths.into_iter().map(|path| scope.spawn(|| add(path))).collect();
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            })
        };
        let is_new = |added: &&Result<Added>| matches!(added, Ok(Added::New));
        let same = record(folder.path(), 1, 1.0);
        let added = at_once([same.as_path(); 4]);
        assert!(added.iter().filter(is_new).count() == 1 && added.iter().all(Result::is_ok), "{added:?}");
        // Different records of one run: the others are refused, and the answer has the one that is kept.
        let others = [1.0, 1.1, 1.2, 1.3].map(|slow| named_record(folder.path(), "twice", 2, slow));
        let added = at_once(others.each_ref().map(PathBuf::as_path));
        assert!(
            added.iter().filter(is_new).count() == 1 && added.iter().filter(|added| added.is_err()).count() == 3,
            "{added:?}"
        );
        assert_eq!(Store::rebuild(&place, |_, _| {}).unwrap(), (2, Vec::new()));
    }

    /// What all threads of this process have used of processors: other work on the machine makes it no longer.
    fn processor_seconds() -> f64 {
        let status = std::fs::read_to_string("/proc/self/stat").unwrap();
        // After the name, which may hold blanks: the 12th and 13th field, in hundredths of a second.
        let fields: Vec<&str> = status.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    #[test]
    #[ignore = "a minute: cargo test --release -p commgauge-app --lib -- --ignored ten_thousand --nocapture"]
    fn ten_thousand_runs_of_five_hundred_rows_are_asked_and_added_to_in_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        let mut store = Store::open_or_create(&place).unwrap();
        let mut index = String::new();
        let many = |run: usize| -> Vec<Vec<f64>> {
            (0..500)
                .map(|row| vec![100.0 + row as f64 * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4); 3])
                .collect()
        };
        let model = RunMedians::of(&loaded("m.jsonl", lines("model", &many(0)))).unwrap();
        for run in 0..10_000 {
            let mut medians = model.clone();
            medians.run_id = format!("{run:032x}");
            // Twenty machines, five hundred nights.
            medians.suite = format!("suite-{}", run % 20);
            medians.started_at = jiff::Timestamp::from_second(1_700_000_000 + run as i64 * 3600).unwrap().to_string();
            for (row, (_, seconds)) in medians.rows.iter_mut().enumerate() {
                *seconds = seconds.map(|seconds| seconds * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4));
            }
            let record = StoredFile::new(format!("records/machine=m/month=unknown/{run:05}.jsonl"), b"");
            index += &store.index.add(&medians, vec![record]).unwrap();
        }
        std::fs::write(place.join(INDEX_FILE), index).unwrap();
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
        let asked = |filter: RowFilter| history(Store::open(&place).unwrap().history_input(&filter).unwrap().0, RULE);
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
