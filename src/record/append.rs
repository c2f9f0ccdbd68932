//! The end of a record whose writer can no longer write it: stopped, dead, or held up for ever.

use super::journal::finite_json;
use super::line::End;
use super::lock::lock;
use super::reader::Whole;
use super::{Line, path_error};
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// Adds lines and an end line to a record that has none, once its writer has let go of it. A torn last line is cut off. True
/// where that was done; false where there is no record, or where it has its end line already.
///
/// # Errors
/// Where the writer does not let go in time, or the disk fails.
pub fn conclude_cut_off(path: &Path, lines: &[Line], end: &End, patience: Duration) -> Result<bool> {
    let failed = |cause| path_error("end the record", path, &cause);
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(failed(cause)),
    };
    lock(&file, path, patience)?;
    let Some(mut whole) = unended(&file).map_err(failed)? else { return Ok(false) };
    file.set_len(whole.bytes).map_err(failed)?;
    let unwritable = |cause| Error::environment(format!("cannot end the record {}: {cause}", path.display()));
    let mut added = Vec::new();
    for line in lines {
        let mut text = finite_json(line).map_err(unwritable)?;
        text.push(b'\n');
        whole.sealing.add(&text);
        added.extend(text);
    }
    let lines_before = Some(whole.lines + lines.len() as u64);
    let unsealed = Line::End(End { lines_before, sha256: None, ..end.clone() });
    added.extend(whole.sealing.seal(&finite_json(&unsealed).map_err(unwritable)?));
    added.push(b'\n');
    file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&added)).and_then(|()| file.sync_data()).map_err(failed)?;
    Ok(true)
}

/// The whole lines of a file. None where nothing may be added: there is no line yet, or the last one is an end line.
fn unended(file: &File) -> std::io::Result<Option<Whole>> {
    let mut whole = Whole::default();
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    let mut ended = false;
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text)? == 0 || text.last() != Some(&b'\n') {
            return Ok((whole.lines > 0 && !ended).then_some(whole));
        }
        ended = text.starts_with(b"{\"line\":\"end\",");
        whole.add(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::EndStatus;
    use super::super::{Record, Seal};
    use super::*;
    use crate::units::Seconds;

    const SAMPLE: &str = include_str!("../../tests/data/sample-record.jsonl");

    fn end() -> End {
        let error = Some("no progress".to_owned());
        let (status, elapsed_seconds) = (EndStatus::Failed, Seconds(1.0));
        End { status, exit_code: 5, error, elapsed_seconds, lines_before: None, sha256: None }
    }

    fn conclude(text: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, text).unwrap();
        let done = conclude_cut_off(&path, &[], &end(), Duration::ZERO).unwrap();
        (done, std::fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn a_record_that_was_cut_off_anywhere_gets_an_honest_sealed_end() {
        let lines: Vec<&str> = SAMPLE.lines().collect();
        for (kept, torn) in [(2, ""), (3, "{\"line\":\"cas"), (lines.len() - 1, "{")] {
            let (done, text) = conclude(&format!("{}\n{torn}", lines[..kept].join("\n")));
            assert!(done);
            let record = Record::parse(text.as_bytes(), "run.jsonl").unwrap();
            let end = record.end.expect("an end");
            assert_eq!((end.status, end.exit_code, end.lines_before), (EndStatus::Failed, 5, Some(kept as u64)));
            assert_eq!((record.seal, record.torn), (Seal::Whole, false));
        }
    }

    #[test]
    fn what_has_its_end_or_is_no_record_is_left_as_it_is() {
        for text in [SAMPLE, "", "{\"line\":\"hea"] {
            assert_eq!(conclude(text), (false, text.to_owned()));
        }
        let nowhere = Path::new("/nowhere/run.jsonl");
        assert!(!conclude_cut_off(nowhere, &[], &end(), Duration::ZERO).unwrap());
    }

    #[test]
    fn a_record_that_is_still_written_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, SAMPLE.lines().next().unwrap().to_owned() + "\n").unwrap();
        let writer = File::open(&path).unwrap();
        writer.lock().unwrap();
        let error = conclude_cut_off(&path, &[], &end(), Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("still held"), "{error}");
    }
}
