//! Opens the record of a run that ended early, so that another launch can resume it.
//!
//! The file is not modified before [`Reopened::resume`], so that a launch that does not fit leaves it unchanged.

use super::assemble::RunState;
use super::journal::{Journal, READERS, finite_json, lock};
use super::line::{End, Plan};
use super::reader::{CompleteLines, is_torn};
use super::seal::END;
use super::work_lines::PlanGrowth;
use super::{Line, Record};
use commgauge_base::error::{Error, Result};
use commgauge_base::host::ensure_file;
use commgauge_base::visible::ShownPath;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A locked record that can be resumed.
pub struct Reopened {
    /// Its contents.
    pub record: Record,
    /// The initial plan, before the run added cases; absent where the record was cut off before it.
    pub plan: Option<Plan>,
    /// The cases that the run added, round by round.
    pub growths: Vec<PlanGrowth>,
    /// Bytes of a truncated last line.
    pub torn_bytes: u64,
    path: PathBuf,
    file: File,
    whole: CompleteLines,
}

/// Opens and locks the record, and reads it.
///
/// # Errors
/// Where it is not a record, was changed after it was written, or is being written by another process.
pub fn reopen(path: &Path) -> Result<Reopened> {
    let unusable = |cause| Error::path("resume the record", path, &cause);
    ensure_file(path).map_err(unusable)?;
    let file = OpenOptions::new().read(true).append(true).open(path).map_err(unusable)?;
    lock(&file, path, READERS)?;
    let (mut plan, mut growths) = (None, Vec::new());
    let mut observe = |line: &Line| match line {
        Line::Plan(first) => plan = Some(first.clone()),
        Line::PlanGrowth(growth) => growths.push(growth.as_ref().clone()),
        _ => {}
    };
    let name = path.shown().into_owned();
    let (record, whole) = Record::read_lines(BufReader::new(&file), &name, RunState::Over, &mut observe)?;
    if let Some(problem) = record.file.seal.tampering() {
        return Err(Error::usage(format!("{name}: {problem}, so no run can continue it; start a new one")));
    }
    let length = file.metadata().map_err(unusable)?.len();
    let torn_bytes = length.saturating_sub(whole.bytes);
    Ok(Reopened { record, plan, growths, torn_bytes, path: path.to_owned(), file, whole })
}

impl Reopened {
    /// Removes a truncated last line, syncs to disk, and returns a journal that appends after the complete lines.
    ///
    /// # Errors
    /// Where the disk fails.
    pub fn resume(self) -> Result<Journal> {
        let Reopened { path, mut file, mut whole, torn_bytes, .. } = self;
        let failed = |cause| Error::file("resume the record", &path, cause);
        if torn_bytes > 0 {
            file.set_len(whole.bytes).map_err(failed)?;
        }
        if whole.lacks_line_feed {
            file.write_all(b"\n").map_err(failed)?;
            whole.chain.add_line_feed();
            whole.bytes += 1;
        }
        file.sync_all().map_err(failed)?;
        Journal::append_after(&path, file, whole)
    }
}

// Adds the end of a record whose writer can no longer write it, because it was stopped, died, or hangs.

/// The process that wrote a record so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It ends, or gives its right to write up, within this time.
    Ending(Duration),
    /// It is stopped with the lock in its hands. When it is woken, it finds the record longer than it left it.
    Stopped,
}

/// Adds lines and an end line to a record without one, once its writer has released the lock or is stopped. A truncated
/// last line is removed. Returns false where there is no record, or where it already has an end line.
///
/// # Errors
/// Where the writer does not release the lock in time, or the disk fails.
pub fn append_missing_end(path: &Path, lines: &[Line], end: &End, writer: Writer) -> Result<bool> {
    let failed = |cause| Error::path("end the record", path, &cause);
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(failed(cause)),
    };
    match writer {
        Writer::Ending(patience) => lock(&file, path, patience)?,
        Writer::Stopped => {}
    }
    let Some(whole) = complete_lines_without_end(&file).map_err(failed)? else { return Ok(false) };
    file.set_len(whole.bytes).map_err(failed)?;
    let lines_before = whole.chain.lines() + lines.len() as u64;
    let mut sealing = whole.chain.into_sealing();
    let unwritable = |cause| Error::environment(format!("cannot end the record {}: {cause}", path.shown()));
    let mut added = Vec::new();
    for line in lines {
        let text = sealing.seal(&finite_json(line).map_err(unwritable)?);
        sealing.add(&text);
        added.extend(text);
    }
    let end = Line::End(End { lines_before: Some(lines_before), ..end.clone() });
    added.extend(sealing.seal(&finite_json(&end).map_err(unwritable)?));
    file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&added)).and_then(|()| file.sync_data()).map_err(failed)?;
    Ok(true)
}

/// The complete lines of a file; `None` where it has no line yet, or already has an end line.
fn complete_lines_without_end(file: &File) -> std::io::Result<Option<CompleteLines>> {
    let mut whole = CompleteLines::default();
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    let mut ended = false;
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text)? == 0 || is_torn(&text) {
            return Ok((whole.chain.lines() > 0 && !ended).then_some(whole));
        }
        ended = text.starts_with(END);
        whole.add(&text);
    }
}

#[cfg(test)]
mod reopen_tests {

    use super::super::Seal;
    use super::super::launch_lines::{Change, ResumeLine};
    use super::super::line::{CaseLine, End, EndStatus, StopReason};
    use super::super::seal::sealed;
    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn resume_line(changes: Vec<Change>) -> Line {
        let resumed_at = "2026-11-21T12:00:00+00:00".to_owned();
        Line::Resume(Box::new(ResumeLine { resumed_at, changes, ..ResumeLine::default() }))
    }

    fn end(status: EndStatus) -> Line {
        Line::End(End::new(status, 0, None, Duration::from_secs(1)))
    }

    /// Resumes what is left of a record, adds lines and an end line, and reads it.
    fn resumed_with(path: &Path, lines: &[Line]) -> Record {
        let reopened = reopen(path).unwrap();
        let before = reopened.whole.chain.lines();
        let mut journal = reopened.resume().unwrap();
        assert_eq!(journal.lines(), before);
        journal.write(&resume_line(Vec::new())).unwrap();
        lines.iter().for_each(|line| journal.write(line).unwrap());
        let Line::End(ending) = end(EndStatus::Complete) else { unreachable!() };
        journal.write(&Line::End(End { lines_before: Some(journal.lines()), ..ending })).unwrap();
        journal.finish().unwrap();
        Record::read(path).unwrap()
    }

    #[test]
    fn a_record_torn_at_any_byte_continues_after_its_complete_lines_and_is_whole_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        // The first few kinds of lines are enough, so that the test stays quick.
        let lines: Vec<&str> = SAMPLE.lines().take(5).collect();
        let text = sealed(&lines);
        let header_length = text.find('\n').unwrap();
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        // Each cut costs a flush to disk: every byte near an end of a line, where the outcome changes, and every 23rd elsewhere.
        let is_near_an_end = |cut: &usize| ends.iter().any(|end| end.abs_diff(*cut) < 8);
        for cut in (0..=text.len()).filter(|cut| cut % 23 == 0 || is_near_an_end(cut)) {
            std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
            if cut < header_length {
                let error = reopen(&path).err().expect("nothing to resume");
                assert_eq!(error.exit_code(), 2, "{error}");
                continue;
            }
            let before = Record::read(&path).unwrap();
            let record = resumed_with(&path, &[]);
            assert_eq!(
                (record.file.seal, record.file.torn, record.resumes.len()),
                (Seal::Whole, false, 1),
                "cut at {cut}"
            );
            assert_eq!(record.cases, before.cases, "cut at {cut}");
            assert!(record.is_finished());
        }
    }

    #[test]
    fn a_line_that_lacks_only_its_line_feed_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let lines: Vec<&str> = SAMPLE.lines().take(5).collect();
        std::fs::write(&path, sealed(&lines).trim_end()).unwrap();
        let cases = Record::read(&path).unwrap().cases.len();
        assert_eq!(reopen(&path).unwrap().torn_bytes, 0);
        assert_eq!(resumed_with(&path, &[]).cases.len(), cases);
    }

    #[test]
    fn an_earlier_end_is_replaced_and_interrupted_cases_are_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let lines: Vec<Line> = SAMPLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let case = lines.iter().find_map(|line| if let Line::Case(case) = line { Some(case) } else { None }).unwrap();
        let cut_short = CaseLine { stop: Some(StopReason::Interrupted), ..case.as_ref().clone() };
        let mut journal = Journal::create(&path).unwrap();
        for line in [lines[0].clone(), lines[1].clone(), Line::Case(Box::new(cut_short)), end(EndStatus::Interrupted)] {
            journal.write(&line).unwrap();
        }
        drop(journal);
        let record = resumed_with(&path, &[Line::Case(case.clone())]);
        assert_eq!(record.cases, [case.as_ref().clone()]);
        assert_eq!((record.file.seal, record.end.unwrap().status), (Seal::Whole, EndStatus::Complete));
        assert_eq!(record.file.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_changed_record_is_refused_and_a_change_before_an_earlier_end_is_still_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        for text in SAMPLE.lines().take(2) {
            journal.write(&serde_json::from_str(text).unwrap()).unwrap();
        }
        journal.write(&end(EndStatus::Interrupted)).unwrap();
        drop(journal);
        let whole = std::fs::read_to_string(&path).unwrap();
        let changed = whole.replacen("\"seed\":", "\"seed\":1", 1);
        std::fs::write(&path, &changed).unwrap();
        let error = reopen(&path).err().expect("changed");
        assert!(error.exit_code() == 2 && error.to_string().contains("the digest of line 1 does not fit"), "{error}");
        std::fs::write(&path, &whole).unwrap();
        resumed_with(&path, &[]);
        let resumed = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, resumed.replacen("\"seed\":", "\"seed\":1", 1)).unwrap();
        assert_eq!(Record::read(&path).unwrap().file.seal, Seal::Broken(1));
    }

    #[test]
    fn a_record_that_was_cut_off_and_edited_is_refused_with_the_line_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let lines: Vec<&str> = SAMPLE.lines().take(6).collect();
        let text = sealed(&lines);
        let edited = text.replacen("\"slowest_nanoseconds\":[", "\"slowest_nanoseconds\":[1", 1);
        let line = edited.lines().zip(text.lines()).position(|(edited, line)| edited != line).unwrap() + 1;
        std::fs::write(&path, &edited).unwrap();
        let error = reopen(&path).err().expect("edited");
        assert!(error.exit_code() == 2 && error.to_string().contains(&format!("of line {line} does not")), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), edited);
        // Without any digest it looks like a file of an older version: it can be resumed, and says so permanently.
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let record = resumed_with(&path, &[]);
        assert_eq!(record.file.seal, Seal::Unsealed(6));
        let notes = record.header.notes.join("\n");
        assert!(notes.contains("whether its first 6 lines were changed"), "{notes}");
    }

    #[test]
    fn two_processes_cannot_resume_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, SAMPLE.lines().take(3).collect::<Vec<_>>().join("\n") + "\n").unwrap();
        let first = reopen(&path).unwrap();
        let error = reopen(&path).err().expect("locked");
        assert!(error.exit_code() == 6 && error.to_string().contains("held by another process"), "{error}");
        let journal = first.resume().unwrap();
        assert!(reopen(&path).is_err(), "the journal holds the lock");
        drop(journal);
        assert!(reopen(&path).is_ok());
    }

    #[test]
    fn a_change_between_two_launches_is_a_warning_of_the_whole_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, SAMPLE.lines().take(3).collect::<Vec<_>>().join("\n") + "\n").unwrap();
        let change = Change { what: "host of rank 1".into(), before: "a".into(), now: "b".into() };
        let mut journal = reopen(&path).unwrap().resume().unwrap();
        journal.write(&resume_line(vec![change])).unwrap();
        drop(journal);
        let record = Record::read(&path).unwrap();
        let warnings = record.header.warnings.join("\n");
        assert!(warnings.contains("host of rank 1 was a, is b"), "{warnings}");
    }
}

#[cfg(test)]
mod append_tests {

    use super::super::line::EndStatus;
    use super::super::seal::sealed;
    use super::super::{Record, Seal};
    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn end() -> End {
        End::new(EndStatus::Failed, 5, Some("no progress".to_owned()), Duration::from_secs(1))
    }

    fn conclude(text: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, text).unwrap();
        let done = append_missing_end(&path, &[], &end(), Writer::Ending(Duration::ZERO)).unwrap();
        (done, std::fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn a_record_that_was_cut_off_anywhere_gets_an_honest_sealed_end() {
        let lines: Vec<&str> = SAMPLE.lines().collect();
        for (complete_lines, torn) in [(2, ""), (3, "{\"line\":\"cas"), (lines.len() - 1, "{")] {
            let (done, text) = conclude(&format!("{}{torn}", sealed(&lines[..complete_lines])));
            assert!(done);
            let record = Record::parse(text.as_bytes(), "run.jsonl").unwrap();
            let end = record.end.expect("an end");
            assert_eq!(
                (end.status, end.exit_code, end.lines_before),
                (EndStatus::Failed, 5, Some(complete_lines as u64))
            );
            assert_eq!((record.file.seal, record.file.torn), (Seal::Whole, false));
        }
    }

    #[test]
    fn a_finished_record_and_a_file_that_is_no_record_are_left_unchanged() {
        for text in [SAMPLE, "", "{\"line\":\"hea"] {
            assert_eq!(conclude(text), (false, text.to_owned()));
        }
        let nowhere = Path::new("/nowhere/run.jsonl");
        assert!(!append_missing_end(nowhere, &[], &end(), Writer::Ending(Duration::ZERO)).unwrap());
    }

    #[test]
    fn a_record_that_is_still_written_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, SAMPLE.lines().next().unwrap().to_owned() + "\n").unwrap();
        let writer = File::open(&path).unwrap();
        writer.lock().unwrap();
        let error = append_missing_end(&path, &[], &end(), Writer::Ending(Duration::from_millis(20))).unwrap_err();
        assert!(error.to_string().contains("still held"), "{error}");
        assert!(append_missing_end(&path, &[], &end(), Writer::Stopped).unwrap(), "a stopped writer is not waited for");
    }
}
