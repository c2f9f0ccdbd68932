//! Adds the end of a record whose writer can no longer write it, because it was stopped, died, or hangs.

use super::Line;
use super::journal::finite_json;
use super::line::End;
use super::lock::lock;
use super::reader::CompleteLines;
use super::seal::END;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

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
        if reader.read_until(b'\n', &mut text)? == 0 || text.last() != Some(&b'\n') {
            return Ok((whole.chain.lines() > 0 && !ended).then_some(whole));
        }
        ended = text.starts_with(END);
        whole.add(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::EndStatus;
    use super::super::seal::sealed;
    use super::super::{Record, Seal};
    use super::*;
    use commgauge_base::units::Seconds;

    const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

    fn end() -> End {
        let error = Some("no progress".to_owned());
        let (status, elapsed_seconds) = (EndStatus::Failed, Seconds(1.0));
        End { status, exit_code: 5, error, elapsed_seconds, lines_before: None, sha256: None }
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
