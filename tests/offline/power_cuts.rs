//! Record and store after a power failure at any operation: what was committed is read again, and nothing reads as whole that is not.
//!
//! A shim logs every operation on files ([`Operation`]). The log is played again on a model of a disk ([`Disk`]), and the power is cut after
//! each operation: names and sectors that were not synced by then are lost, kept or mixed ([`Kept`]). Readers and writers then get what is
//! left.

use crate::common;
use crate::offline::text;
use crate::records::Made;
use commgauge::error::{Error, Result};
use commgauge::record::line::{End, EndStatus};
use commgauge::record::{Journal, Line, Record, Seal, Writer, append_missing_end, reopen};
use commgauge::store::{RowFilter, Store};
use commgauge::verdict::LoadedRecord;
use commgauge::verdict::history::{HistoryInput, HistoryRule, history};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a disk writes at once.
const SECTOR: usize = 512;
/// Mixtures of what is kept and lost at each operation; a hundred in a long run.
const BRIEF_MIXTURES: u64 = 2;
const LONG_MIXTURES: u64 = 100;

/// One operation of the log.
#[derive(Debug)]
enum Operation {
    /// A file is created.
    Create(u64, PathBuf),
    /// A folder is made.
    Folder(u64, PathBuf),
    /// Bytes are written at an offset.
    Write(u64, usize, Vec<u8>),
    /// A file gets another length.
    Cut(u64, usize),
    /// A file or a folder is synced.
    Sync(u64),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// The operations below a folder, in order.
fn operations(log: &Path, below: &Path) -> Vec<Operation> {
    let log = fs::read(log).expect("the shim wrote a log");
    let (mut rest, mut all) = (&log[..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).expect("paths of tests are text");
        rest = &rest[end + 1..];
        let [operation, inode, first, second] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let inode = inode.parse().expect("a number");
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let path = |text: &str| Path::new(text).strip_prefix(below).map(Path::to_owned);
        all.extend(match operation {
            "create" => path(first).ok().map(|path| Operation::Create(inode, path)),
            "folder" => path(first).ok().map(|path| Operation::Folder(inode, path)),
            "write" => {
                let (content, after) = rest.split_at(number(second));
                rest = after;
                Some(Operation::Write(inode, number(first), content.to_owned()))
            }
            "cut" => Some(Operation::Cut(inode, number(first))),
            "sync" => Some(Operation::Sync(inode)),
            "rename" => path(first).and_then(|from| Ok(Operation::Rename(from, path(second)?))).ok(),
            "link" => path(first).and_then(|from| Ok(Operation::Link(from, path(second)?))).ok(),
            "remove" => path(first).ok().map(Operation::Remove),
            other => panic!("an unknown operation {other}"),
        });
    }
    all
}

/// What of the operations that were not synced is on the disk after a power failure.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Nothing,
    /// Names of empty files.
    Names,
    /// Names and lengths; the contents are zeros.
    Lengths,
    /// Some names, and some sectors; the others are zeros. By the seed.
    Mixture(u64),
    /// The process was killed alone.
    Everything,
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

/// Contents of a file: what is synced, and what was done since.
#[derive(Clone, Debug, Default)]
struct File {
    synced: Vec<u8>,
    changes: Vec<Change>,
}

impl File {
    fn content(&self, kept: Kept, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let mut content = self.synced.clone();
        for change in &self.changes {
            match (change, kept) {
                (_, Kept::Nothing | Kept::Names) => {}
                (Change::Cut(bytes), Kept::Mixture(_)) if random.random_bool(0.5) => content.resize(*bytes, 0),
                (Change::Cut(_), Kept::Mixture(_)) => {}
                (Change::Cut(bytes), _) => content.resize(*bytes, 0),
                (Change::Write(at, bytes), _) => {
                    content.resize(content.len().max(at + bytes.len()), 0);
                    for (offset, byte) in (*at..).zip(bytes) {
                        let is_kept = match kept {
                            Kept::Mixture(seed) => is_sector_kept(seed, offset),
                            _ => matches!(kept, Kept::Everything),
                        };
                        if is_kept {
                            content[offset] = *byte;
                        }
                    }
                }
            }
        }
        content
    }
}

/// Sectors of all files are lost alike, so that one that is written twice is torn in one place.
fn is_sector_kept(seed: u64, offset: usize) -> bool {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ ((offset / SECTOR) as u64) << 20).random_bool(0.5)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder(usize),
}

#[derive(Clone, Debug)]
enum Entry {
    Put(String, Node),
    Move(String, String),
    Drop(String),
}

/// Names in a folder: those that are synced, and what was done since.
#[derive(Clone, Debug, Default)]
struct Folder {
    synced: BTreeMap<String, Node>,
    changes: Vec<Entry>,
}

impl Folder {
    fn names(&self, kept: Kept, random: &mut Xoshiro256PlusPlus) -> BTreeMap<String, Node> {
        let mut names = self.synced.clone();
        for change in &self.changes {
            let is_kept = match kept {
                Kept::Nothing => false,
                Kept::Mixture(_) => random.random_bool(0.5),
                Kept::Names | Kept::Lengths | Kept::Everything => true,
            };
            match change {
                _ if !is_kept => {}
                Entry::Put(name, node) => drop(names.insert(name.clone(), *node)),
                Entry::Drop(name) => drop(names.remove(name)),
                Entry::Move(from, to) => {
                    if let Some(node) = names.remove(from) {
                        names.insert(to.clone(), node);
                    }
                }
            }
        }
        names
    }
}

/// A disk, of which the first folder is the root.
struct Disk {
    files: Vec<File>,
    folders: Vec<Folder>,
    /// The last one of each inode; numbers are used again after a file is removed.
    nodes: HashMap<u64, Node>,
}

impl Disk {
    fn new(root: &Path) -> Disk {
        let inode = fs::metadata(root).expect("the folder is there").ino();
        let nodes = HashMap::from([(inode, Node::Folder(0))]);
        Disk { files: Vec::new(), folders: vec![Folder::default()], nodes }
    }

    fn folder_of(&mut self, path: &Path) -> (&mut Folder, String) {
        let mut at = 0;
        for part in path.parent().into_iter().flatten() {
            let names = self.names_now(at);
            let Some(Node::Folder(next)) = names.get(&*part.to_string_lossy()) else { panic!("{}", path.display()) };
            at = *next;
        }
        (&mut self.folders[at], path.file_name().expect("a name").to_string_lossy().into_owned())
    }

    fn names_now(&self, folder: usize) -> BTreeMap<String, Node> {
        self.folders[folder].names(Kept::Everything, &mut Xoshiro256PlusPlus::seed_from_u64(0))
    }

    fn node_at(&mut self, path: &Path) -> Node {
        let (folder, name) = self.folder_of(path);
        folder.names(Kept::Everything, &mut Xoshiro256PlusPlus::seed_from_u64(0))[&name]
    }

    fn put(&mut self, inode: u64, path: &Path, node: Node) {
        self.nodes.insert(inode, node);
        let (folder, name) = self.folder_of(path);
        folder.changes.push(Entry::Put(name, node));
    }

    fn change(&mut self, inode: u64, change: Change) {
        // Others are no files of the folder, such as the standard error of a test.
        if let Some(Node::File(file)) = self.nodes.get(&inode) {
            self.files[*file].changes.push(change);
        }
    }

    fn play(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(inode, path) => {
                self.files.push(File::default());
                self.put(*inode, path, Node::File(self.files.len() - 1));
            }
            Operation::Folder(inode, path) => {
                self.folders.push(Folder::default());
                self.put(*inode, path, Node::Folder(self.folders.len() - 1));
            }
            Operation::Write(inode, at, bytes) => self.change(*inode, Change::Write(*at, bytes.clone())),
            Operation::Cut(inode, bytes) => self.change(*inode, Change::Cut(*bytes)),
            Operation::Sync(inode) => self.sync(*inode),
            Operation::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "a name that moves to another folder is not modelled");
                let (_, to) = self.folder_of(to);
                let (folder, from) = self.folder_of(from);
                folder.changes.push(Entry::Move(from, to));
            }
            Operation::Link(from, to) => {
                let node = self.node_at(from);
                let (folder, name) = self.folder_of(to);
                folder.changes.push(Entry::Put(name, node));
            }
            Operation::Remove(path) => {
                let (folder, name) = self.folder_of(path);
                folder.changes.push(Entry::Drop(name));
            }
        }
    }

    fn sync(&mut self, inode: u64) {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(0);
        match self.nodes.get(&inode) {
            Some(Node::File(file)) => {
                let synced = self.files[*file].content(Kept::Everything, random);
                self.files[*file] = File { synced, changes: Vec::new() };
            }
            Some(Node::Folder(folder)) => {
                let synced = self.folders[*folder].names(Kept::Everything, random);
                self.folders[*folder] = Folder { synced, changes: Vec::new() };
            }
            None => {}
        }
    }

    /// The files after a power failure, by path; folders without content.
    fn after_a_cut(&self, kept: Kept) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let seed = if let Kept::Mixture(seed) = kept { seed } else { 0 };
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut tree, mut folders) = (BTreeMap::new(), vec![(PathBuf::new(), 0)]);
        while let Some((path, folder)) = folders.pop() {
            for (name, node) in self.folders[folder].names(kept, random) {
                let path = path.join(name);
                match node {
                    Node::File(file) => drop(tree.insert(path, Some(self.files[file].content(kept, random)))),
                    Node::Folder(folder) => {
                        tree.insert(path.clone(), None);
                        folders.push((path, folder));
                    }
                }
            }
        }
        tree
    }
}

/// Plays a log, cuts the power after each operation in every way, and checks what is then on the disk: `check` gets a folder with it, how
/// much was committed by then, and what was cut. Returns how many disks differ.
fn cut_power(
    operations: &[Operation],
    root: &Path,
    mixtures: u64,
    committed: &dyn Fn(&[Operation]) -> usize,
    check: &mut dyn FnMut(&Path, usize, &str),
) -> usize {
    let (mut disk, mut seen) = (Disk::new(root), BTreeSet::new());
    for done in 0..=operations.len() {
        let ways = [Kept::Everything, Kept::Nothing, Kept::Names, Kept::Lengths].into_iter();
        for kept in ways.chain((0..mixtures).map(|seed| Kept::Mixture(seed * 1_000_003 + done as u64))) {
            let (tree, committed) = (disk.after_a_cut(kept), committed(&operations[..done]));
            if seen.insert(commgauge::digest::sha256(format!("{committed} {tree:?}"))) {
                let last = format!("{:?}", operations[..done].last());
                check(laid_out(&tree).path(), committed, &format!("{kept:?} after operation {done}, {last:.200}"));
            }
        }
        operations.get(done).into_iter().for_each(|operation| disk.play(operation));
    }
    seen.len()
}

/// A folder with these files; in memory where the system has such a place, since each is read once.
fn laid_out(tree: &BTreeMap<PathBuf, Option<Vec<u8>>>) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    for (path, content) in tree {
        let path = folder.path().join(path);
        match content {
            None => fs::create_dir(&path).expect("made"),
            Some(content) => fs::write(&path, content).expect("written"),
        }
    }
    folder
}

/// Has a command log its operations, and returns those of the folder so far.
fn logged(command: &mut Command, shim: &Path, folder: &Path) -> Vec<Operation> {
    let log = folder.with_extension("log");
    let ran = command.env("LD_PRELOAD", shim).env("FAULT_LOG", &log).output().expect("it starts");
    assert!(ran.status.success(), "{command:?}: {}{}", text(&ran.stdout), text(&ran.stderr));
    operations(&log, folder)
}

const RULE: HistoryRule = HistoryRule { false_alarm_level: 0.05, relevant: 0.03 };

/// The answer of a history, but for where its records are, and the runs that it knows.
fn answer(input: HistoryInput) -> (serde_json::Value, Vec<String>) {
    let mut answer = serde_json::to_value(history(input, RULE)).expect("JSON");
    let mut ids = Vec::new();
    for lineage in answer["lineages"].as_array_mut().expect("lineages") {
        for run in lineage["runs"].as_array_mut().expect("runs") {
            run["path"] = serde_json::Value::Null;
            ids.push(run["run_id"].as_str().expect("an id").to_owned());
        }
    }
    (answer, ids)
}

/// Records, and the store that they were added to one by one.
struct Added {
    records: Vec<PathBuf>,
    store: PathBuf,
}

impl Added {
    fn id(record: usize) -> String {
        format!("night-{record}")
    }

    /// The store after a power failure: committed runs are there, every number and every file is right, and adding all once more makes it
    /// whole.
    fn check(&self, at: &Path, committed: usize, which: &str) {
        let store = at.join("fleet");
        if Store::is_in(&store) {
            let opened = Store::open(&store).and_then(|store| store.history_input(&RowFilter::default()));
            let (answered, ids) = answer(opened.unwrap_or_else(|error| panic!("{which}: {error}")).0);
            let mut expected = HistoryInput::default();
            // A digest of the record is part of its id.
            let is_there = |record: &usize| ids.iter().any(|id| id.starts_with(&Added::id(*record)));
            for record in (0..self.records.len()).filter(is_there) {
                expected.add(&self.records[record], LoadedRecord::read(&self.records[record]));
            }
            assert_eq!(answered, answer(expected).0, "{which}");
            assert!((0..committed).all(|record| is_there(&record)), "{which}: only {ids:?} of {committed} added runs");
        } else {
            assert_eq!(committed, 0, "{which}");
        }
        for path in files_below(at) {
            let is_whole = || fs::read(at.join(&path)).ok() == fs::read(self.store.join(&path)).ok();
            let is_named = !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            assert!(!is_named || path.ends_with("index.log") || is_whole(), "{which}: {}", path.display());
        }
        let mut again = Store::open_or_create(&store).expect("a store");
        for record in &self.records {
            again.add(record).unwrap_or_else(|error| panic!("{which}: {error}"));
        }
        let opened = Store::open(&store).and_then(|store| store.history_input(&RowFilter::default()));
        let (input, problems) = opened.unwrap_or_else(|error| panic!("{which}: {error}"));
        // A line of the index that was cut off stays in it, and counts for nothing.
        let damaged = problems.iter().filter(|problem| !problem.contains("damaged, 0 runs not in it"));
        assert_eq!((answer(input).1.len(), damaged.count()), (self.records.len(), 0), "{which}: {problems:?}");
    }
}

/// The files below a folder, relative to it.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("read").flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => files.push(path.strip_prefix(root).expect("below").to_owned()),
            }
        }
    }
    files
}

fn cut_power_of_the_store(mixtures: u64) {
    let Some(shim) = common::shim() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("made");
    let records: Vec<PathBuf> = (0..3).map(|record| folder.path().join(format!("{record}.jsonl"))).collect();
    let (mut operations, mut ends) = (Vec::new(), Vec::new());
    for (record, path) in records.iter().enumerate() {
        Made::steady(&Added::id(record), 2, 2, record as u64 + 1).write(path);
        let mut command = Command::new(common::COMMGAUGE);
        command.args(["history", "add"]).arg(path).arg("--store").arg(root.join("fleet"));
        operations = logged(&mut command, &shim, &root);
        ends.push(operations.len());
    }
    let mut command = Command::new(common::COMMGAUGE);
    operations.extend(
        logged(command.args(["history", "rebuild", "--store"]).arg(root.join("fleet")), &shim, &root)
            .split_off(operations.len()),
    );
    let added = Added { records, store: root.clone() };
    let committed = |done: &[Operation]| ends.iter().filter(|end| **end <= done.len()).count();
    let disks = cut_power(&operations, &root, mixtures, &committed, &mut |at, committed, which| {
        added.check(at, committed, which)
    });
    eprintln!("store: {} operations, {disks} different disks after a power failure", operations.len());
    assert!(disks > operations.len() / 2);
    fs::remove_file(shim).expect("removed");
}

#[test]
fn a_power_failure_at_any_operation_of_the_store_loses_no_added_run_and_changes_no_number() {
    cut_power_of_the_store(BRIEF_MIXTURES);
}

#[test]
#[ignore = "minutes: scripts/soak --power"]
fn a_power_failure_of_the_store_in_a_hundred_ways_at_each_operation() {
    cut_power_of_the_store(LONG_MIXTURES);
}

/// Tells this test program to write a record into the folder, with the operations logged or failing.
const WRITE_INTO: &str = "POWER_CUTS_WRITE_INTO";
const RECORD: &str = "run.jsonl";

/// Header, plan and cases.
fn lines_of_record() -> Vec<Line> {
    let mut lines = Made::steady("run", 4, 3, 1).lines();
    lines.truncate(lines.len() - 1);
    lines
}

/// Writes a record as a run does that is killed in the middle, resumed, and ended by its watchdog. Stops at the first error.
fn write_record(path: &Path) -> Result<()> {
    let lines = lines_of_record();
    let (first, second) = lines.split_at(lines.len() / 2);
    let write = |mut journal: Journal, lines: &[Line]| {
        for three in lines.chunks(3) {
            three.iter().try_for_each(|line| journal.write(line))?;
            journal.sync()?;
        }
        journal.finish()
    };
    write(Journal::create(path)?, first)?;
    let torn = fs::OpenOptions::new().append(true).open(path);
    torn.and_then(|mut file| std::io::Write::write_all(&mut file, b"{\"line\":\"ca"))
        .map_err(|cause| Error::file("write", path, cause))?;
    write(reopen(path)?.resume()?, second)?;
    let end = End::new(EndStatus::Failed, 6, None, Duration::from_secs(1));
    append_missing_end(path, &[], &end, Writer::Ending(Duration::from_secs(1))).map(drop)
}

/// This program once more, to write the record.
fn record_writer(root: &Path, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &format!("power_cuts::{test}"), "--nocapture"]).env(WRITE_INTO, root);
    command
}

/// Whether this process is that program; it has then written what it could.
fn is_record_writer() -> bool {
    let folder = std::env::var_os(WRITE_INTO);
    folder.is_some_and(|folder| {
        let written = write_record(&Path::new(&folder).join(RECORD));
        eprintln!("{}", written.map_or_else(|error| format!("{}: {error}", error.exit_code()), |()| String::new()));
        true
    })
}

/// Lines of the record that were synced.
fn committed_lines(done: &[Operation]) -> usize {
    let (mut content, mut lines, mut record) = (Vec::<u8>::new(), 0, 0);
    for operation in done {
        match operation {
            Operation::Create(inode, path) if path.ends_with(RECORD) => record = *inode,
            Operation::Write(inode, _, bytes) if *inode == record => content.extend(bytes),
            Operation::Cut(inode, bytes) if *inode == record => content.truncate(*bytes),
            Operation::Sync(inode) if *inode == record => lines = content.iter().filter(|byte| **byte == b'\n').count(),
            _ => {}
        }
    }
    lines
}

/// The record after a failure: it has all committed lines, claims no more than it has, and can be resumed.
fn check_record(at: &Path, committed: usize, which: &str) {
    let path = at.join(RECORD);
    let all = Record::from_lines(lines_of_record()).expect("right").cases;
    let synced = lines_of_record().iter().take(committed).filter(|line| matches!(line, Line::Case(_))).count();
    let is_right = |record: &Record| {
        let cases = record.cases.len();
        assert!(cases >= synced, "{which}: {cases} of {synced} synced cases");
        assert!(record.cases == all[..cases] && record.file.seal == Seal::Whole, "{which}: {:?}", record.file.seal);
        assert!(!record.is_finished() && (record.end.is_none() || cases == all.len()), "{which}");
    };
    match Record::read(&path) {
        Ok(record) => is_right(&record),
        Err(error) => return assert!(committed == 0 && error.exit_code() == 2, "{which}: {committed} lines: {error}"),
    }
    let reopened = reopen(&path).unwrap_or_else(|error| panic!("{which}: {error}"));
    let mut journal = reopened.resume().unwrap_or_else(|error| panic!("{which}: {error}"));
    let written = journal.lines() as usize;
    lines_of_record().iter().skip(written).for_each(|line| journal.write(line).expect("there is room"));
    journal.finish().expect("there is room");
    let resumed = Record::read(&path).unwrap_or_else(|error| panic!("{which}: {error}"));
    is_right(&resumed);
    assert!(resumed.cases.len() == all.len() && !resumed.file.torn, "{which}");
}

fn cut_power_of_a_record(test: &str, mixtures: u64) {
    let Some(shim) = common::shim() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("made");
    let operations = logged(&mut record_writer(&root, test), &shim, &root);
    assert_eq!(committed_lines(&operations), lines_of_record().len() + 1, "all are written, and the end");
    let disks = cut_power(&operations, &root, mixtures, &committed_lines, &mut check_record);
    eprintln!("record: {} operations, {disks} different disks after a power failure", operations.len());
    assert!(disks > operations.len());
    fs::remove_file(shim).expect("removed");
}

#[test]
fn a_power_failure_at_any_operation_of_a_record_loses_no_synced_case_and_it_resumes() {
    if !is_record_writer() {
        cut_power_of_a_record(
            "a_power_failure_at_any_operation_of_a_record_loses_no_synced_case_and_it_resumes",
            20 * BRIEF_MIXTURES,
        );
    }
}

#[test]
#[ignore = "minutes: scripts/soak --power"]
fn a_power_failure_of_a_record_in_a_thousand_ways_at_each_operation() {
    cut_power_of_a_record(
        "a_power_failure_at_any_operation_of_a_record_loses_no_synced_case_and_it_resumes",
        10 * LONG_MIXTURES,
    );
}

#[test]
fn a_disk_that_fails_at_any_operation_of_a_record_loses_no_synced_case_and_it_resumes() {
    if is_record_writer() {
        return;
    }
    let Some(shim) = common::shim() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut lines_without_room = 0;
    for fault in ["FAULT_FAIL_AT", "FAULT_FULL_AT", "FAULT_KILL_AT"] {
        for number in 1.. {
            let root = folder.path().join(format!("{fault}-{number}"));
            fs::create_dir(&root).expect("made");
            let log = root.with_extension("log");
            let test = "a_disk_that_fails_at_any_operation_of_a_record_loses_no_synced_case_and_it_resumes";
            let mut command = record_writer(&root, test);
            command.env("LD_PRELOAD", &shim).env("FAULT_LOG", &log).env(fault, number.to_string());
            let said = text(&command.output().expect("it starts").stderr);
            let operations = if log.exists() { operations(&log, &root) } else { Vec::new() };
            let committed = committed_lines(&operations);
            check_record(&root, committed, &format!("{fault}={number}"));
            let found_no_room = said.contains("6: cannot append to the record");
            let reasons = ["No space left on device", "before it"];
            assert!(
                fault != "FAULT_FULL_AT" || !found_no_room || reasons.iter().all(|words| said.contains(words)),
                "{said}"
            );
            lines_without_room += u32::from(fault == "FAULT_FULL_AT" && found_no_room);
            if committed == lines_of_record().len() + 1 {
                assert!(number > 10, "{fault}: {number} operations are all");
                break;
            }
        }
    }
    assert!(lines_without_room > 3, "{lines_without_room}");
    fs::remove_file(shim).expect("removed");
}
