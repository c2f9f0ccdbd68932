//! Follows a record while a run writes it: every poll returns the lines that were completed since the last one.
//!
//! It does not check that the lines belong together; [`super::Record`] does.

use super::{Line, path_error};
use commgauge_base::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Follows a record that grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of the complete lines returned so far. A truncated line that was removed again never counts.
    position: u64,
    lines: u64,
}

impl Follower {
    /// Follows a file that may not exist yet.
    pub fn open(path: impl AsRef<Path>) -> Follower {
        Follower { path: path.as_ref().to_owned(), file: None, position: 0, lines: 0 }
    }

    /// Follows a file from the end of its complete lines.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn from_end(path: impl AsRef<Path>) -> Result<Follower> {
        let mut follower = Follower::open(path);
        let unreadable = |cause| path_error("read the record", &follower.path, &cause);
        let mut reader = BufReader::new(File::open(&follower.path).map_err(unreadable)?);
        let mut text = Vec::new();
        loop {
            text.clear();
            reader.read_until(b'\n', &mut text).map_err(unreadable)?;
            if text.last() != Some(&b'\n') {
                return Ok(follower);
            }
            follower.position += text.len() as u64;
            follower.lines += 1;
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
                Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                Err(cause) => return Err(path_error("read the record", &self.path, &cause)),
            }
        }
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        let unreadable = |cause| path_error("read the record", &self.path, &cause);
        file.seek(SeekFrom::Start(self.position)).map_err(unreadable)?;
        let mut reader = BufReader::new(file);
        let (mut lines, mut text) = (Vec::new(), Vec::new());
        loop {
            text.clear();
            reader.read_until(b'\n', &mut text).map_err(unreadable)?;
            if text.last() != Some(&b'\n') {
                return Ok(lines);
            }
            let line = serde_json::from_slice(&text).map_err(|cause| {
                Error::usage(format!(
                    "{}, line {}: not a line of a record: {cause}",
                    self.path.display(),
                    self.lines + 1
                ))
            })?;
            lines.push(line);
            self.position += text.len() as u64;
            self.lines += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
}
