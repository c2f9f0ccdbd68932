//! Follows a record while a run writes it: every poll returns the lines that were completed since the last one.
//!
//! It goes with a record that is renamed, or removed and kept under another name. It does not check that the lines belong together; [`super::Record`] does.

use super::Line;
use super::file_place::{FilePlace, kept_names, place_of};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
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
    /// How many kept records there were beside it at first, which are those of other launches.
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
            if text.last() != Some(&b'\n') {
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

    /// Goes to the file in which a renamed or removed record goes on; the newest, if it was removed several times.
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
            if text.last() != Some(&b'\n') {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Journal;
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

    #[test]
    fn a_record_that_is_removed_or_renamed_is_followed_to_where_it_goes_on() {
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
        assert_eq!(follower.poll().unwrap().len(), 0, "it goes on at the next write");
        journal.write(&line).unwrap();
        assert_eq!((follower.poll().unwrap().len(), follower.path()), (1, journal.path()));
    }

    #[test]
    fn a_record_that_is_removed_before_it_is_seen_is_found_where_it_goes_on() {
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
}
