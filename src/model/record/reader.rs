//! Reads a record from its file, line by line. A truncated last line loses only that line; any other defect is an error that
//! names file and line.
//!
//! Consistency between lines is checked in `assemble`; nothing is computed from them here.

use super::assemble::{Assembly, LastLine, Record, RunState};
use super::line::{CaseLine, EndStatus};
use super::seal::{Chain, Seal};
use super::{FORMAT, Line, VERSION};
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::visible::ShownPath;
use serde::Deserialize;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use strum::VariantNames;

/// Upper bound on the length of a line. A case of 100,000 samples with the histograms of 1,000 ranks has a hundredth of it.
const MAX_LINE_BYTES: u64 = 1 << 30;

impl Record {
    /// Reads a record from a file.
    ///
    /// # Errors
    /// A usage error where the file is not a record, is newer than this program, or is broken before its last line; an
    /// environment error where the disk failed.
    pub fn read(path: &Path) -> Result<Record> {
        let unreadable = |cause| Error::path("read the record", path, &cause);
        let file = host::open(path).map_err(unreadable)?;
        // Checked before reading, so that an end line that is written meanwhile is seen.
        let run = match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => RunState::Running,
            _ => RunState::Over,
        };
        let _ = file.unlock();
        Record::from_reader(BufReader::new(file), &path.shown(), run)
    }

    /// Reads the bytes of a record that is no longer written; `name` is used in messages.
    ///
    /// # Errors
    /// As [`Record::read`], except for disk errors.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Record> {
        Record::from_reader(bytes, name, RunState::Over)
    }

    /// Builds a record from its lines, as [`Record::read`] does from a file.
    ///
    /// # Errors
    /// Where the lines do not belong together.
    pub fn from_lines(lines: impl IntoIterator<Item = Line>) -> Result<Record> {
        let mut assembly = Assembly::default();
        for (index, line) in lines.into_iter().enumerate() {
            assembly.add(line).map_err(|problem| Error::usage(format!("line {}: {problem}", index + 1)))?;
        }
        assembly
            .finish(LastLine::Whole, RunState::Over, Seal::Whole)
            .ok_or_else(|| Error::usage("a record begins with a header; there are no lines"))
    }

    /// Whether everything in the plan was measured.
    pub fn is_finished(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete)
    }

    /// Lines of cases, products and copies that a resumed run does not measure again.
    pub fn measured_lines(&self) -> u64 {
        let cases = self.cases.iter().filter(|case| !case.was_cut_short()).count();
        (cases + self.products.len() + self.copies.len()) as u64
    }

    fn from_reader(reader: impl BufRead, name: &str, run: RunState) -> Result<Record> {
        Record::read_lines(reader, name, run, &mut |_| {}).map(|(record, _)| record)
    }

    /// As [`Record::read`], but passes each line to a callback, and also returns the extent of the complete lines.
    pub(super) fn read_lines(
        mut reader: impl BufRead,
        name: &str,
        run: RunState,
        each: &mut dyn FnMut(&Line),
    ) -> Result<(Record, CompleteLines)> {
        let unreadable = |cause| Error::path("read the record", Path::new(name), &cause);
        let wrong = |text: String| Error::usage(format!("{name}{text}"));
        let (mut assembly, mut whole_part) = (Assembly::default(), CompleteLines::default());
        let (mut text, mut number, mut last_line) = (Vec::new(), 0u64, LastLine::Whole);
        if reader.fill_buf().map_err(unreadable)?.first().is_some_and(|byte| *byte != b'{') {
            return Err(wrong(" is not a commgauge record: its first line is not a JSON object".to_owned()));
        }
        loop {
            text.clear();
            number += 1;
            reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(unreadable)?;
            if text.is_empty() {
                break;
            }
            if text.len() as u64 == MAX_LINE_BYTES {
                return Err(wrong(format!(", line {number}: longer than any line of a record")));
            }
            // A JSON object that lacks only its line feed is complete: no proper prefix of an object is an object.
            let whole = !is_torn(&text);
            if number == 1 {
                check_first(&text, whole).map_err(|problem| wrong(format!(" {problem}")))?;
            }
            match parse(&text) {
                Ok(mut line) => {
                    if let Line::Header(header) = &mut line {
                        header.identify(&text);
                    }
                    each(&line);
                    assembly.add(line).map_err(|problem| wrong(format!(", line {number}: {problem}")))?;
                }
                // What follows was written after it, and is no more on the disk than it.
                Err(_) if !whole => {
                    last_line = LastLine::Torn;
                    break;
                }
                Err(cause) => return Err(wrong(format!(", line {number}: {}", explain(&text, &cause)))),
            }
            whole_part.add(&text);
        }
        let record = assembly.finish(last_line, run, whole_part.chain.seal()).ok_or_else(|| match run {
            RunState::Running => wrong(" has no complete line yet; the run that writes it has just begun".to_owned()),
            RunState::Over => wrong(" holds no complete line of a record".to_owned()),
        })?;
        Ok((record, whole_part))
    }
}

/// The complete lines of a file.
#[derive(Default)]
pub(super) struct CompleteLines {
    pub chain: Chain,
    pub bytes: u64,
    /// Whether the last of them lacks its line feed.
    pub lacks_line_feed: bool,
}

impl CompleteLines {
    pub fn add(&mut self, text: &[u8]) {
        self.chain.add(text);
        self.bytes += text.len() as u64;
        self.lacks_line_feed = text.last() != Some(&b'\n');
    }
}

/// Whether the writing of a line was cut off: its line feed is missing, or a part of it that did not reach the disk before a power failure
/// reads as zeros, which JSON never contains.
pub(super) fn is_torn(text: &[u8]) -> bool {
    text.last() != Some(&b'\n') || text.contains(&0)
}

/// Parses a line. Most lines are cases, which are read directly, since going through the tagged enum would double the time.
fn parse(text: &[u8]) -> serde_json::Result<Line> {
    match text.starts_with(b"{\"line\":\"case\",") {
        true => serde_json::from_slice(text).map(|mut case: Box<CaseLine>| {
            // Frees the spare capacity, which adds up in a record of many cases.
            case.samples.slowest_nanoseconds.shrink_to_fit();
            case.samples.slowest_rank.shrink_to_fit();
            Line::Case(case)
        }),
        false => serde_json::from_slice(text),
    }
}

/// Checks that the first line begins a record that this program can read, before the rest of the line is parsed, because a
/// newer version may have other fields.
fn check_first(text: &[u8], whole: bool) -> std::result::Result<(), String> {
    #[derive(Deserialize)]
    struct Begin {
        format: Option<String>,
        version: Option<u64>,
    }
    let begin: Begin = match serde_json::from_slice(text) {
        Ok(begin) => begin,
        Err(_) if !whole => return Ok(()),
        Err(cause) => return Err(format!("is not a commgauge record: its first line is not a header: {cause}")),
    };
    match (begin.format.as_deref(), begin.version) {
        (Some(FORMAT), Some(version)) if (1..=u64::from(VERSION)).contains(&version) => Ok(()),
        (Some(FORMAT), Some(version)) => Err(format!(
            "is a record of version {version}; commgauge {} reads version {VERSION} and older, so a newer commgauge is needed",
            env!("CARGO_PKG_VERSION")
        )),
        (Some(FORMAT), None) => Err("is not a commgauge record: its header names no version".to_owned()),
        _ => Err(format!("is not a commgauge record: its first line does not say `\"format\":\"{FORMAT}\"`")),
    }
}

fn explain(text: &[u8], cause: &serde_json::Error) -> String {
    #[derive(Deserialize)]
    struct Tag {
        line: Option<String>,
    }
    match serde_json::from_slice::<Tag>(text) {
        Ok(Tag { line: Some(kind) }) if !Line::VARIANTS.contains(&kind.as_str()) => {
            format!("a record of version {VERSION} has no lines of kind `{kind}`")
        }
        _ => format!("broken: {cause}"),
    }
}

// Follows a record while a run writes it: every poll returns the lines that were completed since the last one.
//
// It goes with a record that is renamed, or removed and kept under another name. It does not check that the lines belong together; [`super::Record`] does.

/// Follows a record that grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of the complete lines returned so far. A truncated line that was removed again never counts.
    position: u64,
    lines: u64,
    /// Number of kept records next to it at first, which belong to other launches.
    kept_before: usize,
}

impl Follower {
    /// Follows a file that may not exist yet.
    pub fn open(path: impl AsRef<Path>) -> Follower {
        let kept_before = kept_names(path.as_ref()).take_while(|path| path.exists()).count();
        Follower { path: path.as_ref().to_owned(), file: None, position: 0, lines: 0, kept_before }
    }

    /// Follows a file from the end of its complete lines.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn from_end(path: impl AsRef<Path>) -> Result<Follower> {
        let mut follower = Follower::open(path);
        let unreadable = |cause| Error::path("read the record", &follower.path, &cause);
        let mut reader = BufReader::new(File::open(&follower.path).map_err(unreadable)?);
        let mut text = Vec::new();
        loop {
            text.clear();
            reader.read_until(b'\n', &mut text).map_err(unreadable)?;
            if is_torn(&text) {
                return Ok(follower);
            }
            follower.position += text.len() as u64;
            follower.lines += 1;
        }
    }

    /// Where the record is by now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Follows a renamed or removed record to its new file; the newest, if it was removed several times.
    fn find_file(&mut self) {
        let Some(file) = &self.file else { return };
        match place_of(file, &self.path) {
            FilePlace::There => {}
            FilePlace::Renamed(path) => self.path = path,
            FilePlace::Removed => {
                let first = first_line(file);
                let kept = kept_names(&self.path).take_while(|path| path.exists());
                let kept = kept.filter_map(|path| File::open(&path).ok().map(|file| (path, file)));
                if let Some((path, file)) = kept.filter(|(_, file)| first_line(file) == first).last() {
                    (self.path, self.file) = (path, Some(file));
                }
            }
        }
    }

    /// The lines that were completed since the last poll; none while the file does not exist.
    ///
    /// # Errors
    /// Where the file cannot be read, or a complete line is not a record line.
    pub fn poll(&mut self) -> Result<Vec<Line>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(cause) if cause.kind() == ErrorKind::NotFound => {
                    // It may have been removed before it was seen here.
                    let kept = kept_names(&self.path).skip(self.kept_before).take_while(|path| path.exists()).last();
                    match kept {
                        Some(path) => self.path = path,
                        None => return Ok(Vec::new()),
                    }
                    return self.poll();
                }
                Err(cause) => return Err(Error::path("read the record", &self.path, &cause)),
            }
        }
        self.find_file();
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        let unreadable = |cause| Error::path("read the record", &self.path, &cause);
        file.seek(SeekFrom::Start(self.position)).map_err(unreadable)?;
        let mut reader = BufReader::new(file);
        let (mut lines, mut text) = (Vec::new(), Vec::new());
        loop {
            text.clear();
            reader.read_until(b'\n', &mut text).map_err(unreadable)?;
            if is_torn(&text) {
                return Ok(lines);
            }
            let line = serde_json::from_slice(&text).map_err(|cause| {
                Error::usage(format!("{}, line {}: not a line of a record: {cause}", self.path.shown(), self.lines + 1))
            })?;
            lines.push(line);
            self.position += text.len() as u64;
            self.lines += 1;
        }
    }
}

fn first_line(mut file: &File) -> Option<String> {
    let mut line = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    BufReader::new(file).read_line(&mut line).ok()?;
    Some(line)
}

// Where an open record is by now: somebody may remove or rename the file while a run writes it.

/// Where an open file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FilePlace {
    /// Where it was opened.
    There,
    /// Under another name.
    Renamed(PathBuf),
    /// It has no name any more, and goes with the last process that has it open.
    Removed,
}

/// Finds out whether the path still names the file. Where the system does not say, it is taken to be there.
pub(super) fn place_of(file: &File, path: &Path) -> FilePlace {
    let Ok(own) = file.metadata() else { return FilePlace::There };
    let is_own = |found: &fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    if own.nlink() == 0 {
        return FilePlace::Removed;
    }
    if fs::metadata(path).is_ok_and(|found| is_own(&found)) {
        return FilePlace::There;
    }
    match fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        // The name that NFS gives to a file which was removed while it was open.
        Ok(name) if name.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".nfs")) => {
            FilePlace::Removed
        }
        Ok(name) if fs::metadata(&name).is_ok_and(|found| is_own(&found)) => FilePlace::Renamed(name),
        _ => FilePlace::There,
    }
}

/// The names under which a removed record continues, in order: `run.kept.jsonl`, `run.kept-2.jsonl` ...
pub(super) fn kept_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let extension = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    (1..1000).map(move |number| {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        path.with_extension(format!("kept{suffix}{extension}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Journal;
    use std::io::Write;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn read(text: &[u8]) -> Result<Record> {
        Record::from_reader(text, "r.jsonl", RunState::Over)
    }

    #[test]
    fn a_record_cut_at_any_byte_keeps_every_complete_line() {
        // A line of each kind is enough, so that the test stays quick.
        let complete_lines: Vec<&str> = SAMPLE.lines().take(6).chain(SAMPLE.lines().last()).collect();
        let text = complete_lines.join("\n") + "\n";
        let is_case = |line: &&str| line.starts_with("{\"line\":\"case\"");
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        // Every byte near an end of a line, where the outcome changes, and every seventh elsewhere.
        let is_near_an_end = |cut: &usize| ends.iter().any(|end| end.abs_diff(*cut) < 8);
        for cut in (0..=text.len()).filter(|cut| cut % 7 == 0 || is_near_an_end(cut)) {
            let complete = ends.iter().filter(|end| **end <= cut).count();
            match read(&text.as_bytes()[..cut]) {
                Err(error) => assert_eq!((complete, error.exit_code()), (0, 2), "{error}"),
                Ok(record) => {
                    assert!(complete >= 1, "cut at {cut}");
                    assert_eq!(
                        record.cases.len(),
                        complete_lines[..complete].iter().filter(|line| is_case(line)).count()
                    );
                    let between_lines = ends.iter().any(|end| cut == *end || cut == end + 1);
                    assert_eq!(record.file.torn, !between_lines, "cut at {cut}");
                    assert_eq!(record.file.warnings.is_empty(), complete == complete_lines.len(), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn what_is_broken_or_no_record_is_named() {
        let lines: Vec<&str> = SAMPLE.lines().collect();
        let with = |index: usize, text: &str| {
            let mut lines = lines.clone();
            lines[index] = text;
            lines.join("\n") + "\n"
        };
        let newer = lines[0].replacen("\"version\":1", "\"version\":7", 1);
        let twice = lines[4].to_owned() + "\n" + lines[4];
        let stranger = lines[4].replacen("\"case\":0", "\"case\":4000", 1);
        let renamed = lines[4].replacen("\"name\":\"", "\"name\":\"x", 1);
        let endless = lines[0].replacen("\"replicates\":", "\"replicates\":40000000", 1);
        let ragged = lines[4].replacen("\"slowest_rank\":[", "\"slowest_rank\":[1,", 1);
        for (text, reason) in [
            (String::new(), "r.jsonl holds no complete line"),
            ("size,count\n1,2\n".to_owned(), "r.jsonl is not a commgauge record"),
            ("{\"a\":1}\n".to_owned(), "is not a commgauge record: its first line does not say"),
            ("{\"a\":\n".to_owned(), "is not a commgauge record: its first line is not a header"),
            (with(0, &newer), "r.jsonl is a record of version 7; commgauge 0.1.0 reads version 1"),
            (with(3, "{\"line\":\"case\",\"case\":"), "r.jsonl, line 4: broken"),
            (with(3, "{\"line\":\"poem\"}"), "r.jsonl, line 4: a record of version 1 has no lines of kind `poem`"),
            (with(1, lines[2]), "r.jsonl, line 2: "),
            (with(3, lines[0]), "r.jsonl, line 4: "),
            (with(4, &twice), "r.jsonl, line 6: "),
            (with(4, &stranger), "r.jsonl, line 5: case 4000 is not in the plan"),
            (with(4, &renamed), "r.jsonl, line 5: "),
            (with(4, &ragged), "r.jsonl, line 5: "),
            (with(0, &endless), "r.jsonl, line 2: 40000000"),
            (SAMPLE.to_owned() + lines[4] + "\n", "after the end"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(reason), "expected `{reason}`, got `{error}`");
        }
    }

    #[test]
    fn a_path_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("nothing")] {
            let error = Record::read(&path).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_running_record_is_distinguished_from_one_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let mut journal = super::super::Journal::create(&path).unwrap();
        for line in SAMPLE.lines().take(5) {
            journal.write(&serde_json::from_str(line).unwrap()).unwrap();
        }
        let record = Record::read(&path).unwrap();
        assert!(record.file.running && record.file.warnings[0].contains("in progress"), "{:?}", record.file.warnings);
        drop(journal);
        let record = Record::read(&path).unwrap();
        assert!(!record.file.running && record.file.warnings[0].contains("cut off"), "{:?}", record.file.warnings);
    }

    #[test]
    fn the_histograms_of_a_record_contain_its_samples() {
        use base64::Engine;
        let record = read(SAMPLE.as_bytes()).unwrap();
        let mut histograms = 0;
        for (case, rank) in record.cases.iter().flat_map(|case| case.histograms.iter().map(move |rank| (case, rank))) {
            let bytes =
                base64::engine::general_purpose::STANDARD.decode(rank.hdr_v2_deflate_base64.as_bytes()).unwrap();
            let histogram: hdrhistogram::Histogram<u64> =
                hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!(histogram.len(), case.samples.slowest_nanoseconds.len() as u64);
            histograms += 1;
        }
        assert!(histograms > 0);
    }

    #[test]
    fn a_record_that_is_written_again_is_the_same() {
        let record = read(SAMPLE.as_bytes()).unwrap();
        let lines = SAMPLE.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
        let again: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        assert_eq!(read(again.as_bytes()).unwrap(), record);
    }

    const END: &str = r#"{"line":"end","status":"complete","exit_code":0,"elapsed_seconds":1.5}"#;

    #[test]
    fn lines_are_returned_once_and_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let mut follower = Follower::open(&path);
        assert_eq!(follower.poll().unwrap(), [], "the file does not exist yet");
        let mut file = File::create(&path).unwrap();
        assert_eq!(follower.poll().unwrap(), [], "the file is empty");
        write!(file, "{END}\n{}", &END[..20]).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 1);
        assert_eq!(follower.poll().unwrap().len(), 0, "the second line is torn");
        writeln!(file, "{}", &END[20..]).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 1);
    }

    #[test]
    fn a_torn_line_that_was_cut_off_again_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        std::fs::write(&path, format!("{END}\n{{\"line\":\"cas")).unwrap();
        let mut follower = Follower::open(&path);
        assert_eq!(follower.poll().unwrap().len(), 1);
        std::fs::write(&path, format!("{END}\n{END}\n")).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 1);
    }

    #[test]
    fn a_follower_from_the_end_returns_only_new_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        assert!(Follower::from_end(&path).is_err(), "there is no file");
        std::fs::write(&path, format!("{END}\n{{\"line\":\"cas")).unwrap();
        let mut follower = Follower::from_end(&path).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 0);
        std::fs::write(&path, format!("{END}\n{END}\n")).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 1);
    }

    #[test]
    fn a_line_that_does_not_belong_to_a_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        std::fs::write(&path, format!("{END}\nhello\n")).unwrap();
        let text = Follower::open(&path).poll().unwrap_err().to_string();
        assert!(text.contains("record.jsonl, line 2"), "{text}");
    }

    #[test]
    fn a_record_that_is_removed_or_renamed_is_followed_to_where_it_continues() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let line: Line = serde_json::from_str(END).unwrap();
        let mut journal = Journal::create(&path).unwrap();
        let mut follower = Follower::open(&path);
        journal.write(&line).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 1);
        let renamed = folder.path().join("renamed.jsonl");
        std::fs::rename(&path, &renamed).unwrap();
        journal.write(&line).unwrap();
        assert_eq!((follower.poll().unwrap().len(), follower.path()), (1, renamed.as_path()));
        std::fs::remove_file(&renamed).unwrap();
        assert_eq!(follower.poll().unwrap().len(), 0, "it continues at the next write");
        journal.write(&line).unwrap();
        assert_eq!((follower.poll().unwrap().len(), follower.path()), (1, journal.path()));
    }

    #[test]
    fn a_record_that_is_removed_before_it_is_seen_is_found_where_it_continues() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        std::fs::write(folder.path().join("record.kept.jsonl"), "of an earlier launch").unwrap();
        let mut follower = Follower::open(&path);
        let line: Line = serde_json::from_str(END).unwrap();
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&line).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(follower.poll().unwrap(), []);
        journal.write(&line).unwrap();
        assert_eq!((follower.poll().unwrap().len(), follower.path()), (2, journal.path()));
    }

    #[test]
    fn a_removed_renamed_or_replaced_file_is_distinguished_from_an_existing_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("run.jsonl"), folder.path().join("other.jsonl"));
        let file = File::create(&path).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::There);
        fs::rename(&path, &other).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Renamed(other.clone()));
        File::create(&path).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Renamed(other.clone()), "replaced");
        fs::remove_file(&other).unwrap();
        assert_eq!(place_of(&file, &path), FilePlace::Removed);
    }

    #[test]
    fn a_kept_record_has_a_name_next_to_the_removed_one() {
        for (path, expected) in
            [("a/run.jsonl", ["a/run.kept.jsonl", "a/run.kept-2.jsonl"]), ("run", ["run.kept", "run.kept-2"])]
        {
            assert!(kept_names(Path::new(path)).take(2).eq(expected.map(PathBuf::from)));
        }
    }
}
