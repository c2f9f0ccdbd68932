//! Writes a record line by line, so that a crash loses at most the line being written.
//!
//! It does not interpret the lines; reading is in `reader` and `follower`.

use super::lock::{READERS, lock};
use super::seal::Sealing;
use super::{Line, path_error};
use commgauge_base::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum delay between a write and its sync to disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// A record that is being written. It has an exclusive advisory lock on the file until it is dropped, by which readers
/// distinguish a running run from one that was cut off.
pub struct Journal {
    path: PathBuf,
    disk: Box<dyn Disk + Send>,
    lines: u64,
    bytes: u64,
    torn: bool,
    sealing: Sealing,
    synced_at: Instant,
    dirty: bool,
}

impl Journal {
    /// Creates the file, which must not exist, and locks it. Creating it also checks, before anything is measured,
    /// that the path is writable.
    ///
    /// # Errors
    /// A usage error with the problem of the path, or an environment error where the disk failed.
    pub fn create(path: &Path) -> Result<Journal> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(|cause| explain_refusal(path, &cause))?;
        if let Err(error) = lock(&file, path, READERS) {
            // The file is ours and empty; the error to report is that of the lock.
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        Ok(Journal::on(path, Box::new(file)))
    }

    /// Appends after the complete lines of a file that the caller has locked.
    pub(super) fn append_after(path: &Path, file: File, (lines, bytes): (u64, u64), sealing: Sealing) -> Journal {
        let mut journal = Journal::on(path, Box::new(file));
        (journal.lines, journal.bytes, journal.sealing) = (lines, bytes, sealing);
        journal
    }

    fn on(path: &Path, disk: Box<dyn Disk + Send>) -> Journal {
        let path = path.to_owned();
        let (sealing, synced_at) = (Sealing::default(), Instant::now());
        Journal { path, disk, lines: 0, bytes: 0, torn: false, sealing, synced_at, dirty: false }
    }

    /// Where the record is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines written so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Appends one line with one write, and syncs to disk at most once a second. The end line gets the digest of the whole
    /// record.
    ///
    /// # Errors
    /// Names the path and the lines that are safe. After a failed write the file is truncated to its last complete
    /// line, so that a later, shorter line (the end of the run) may still fit.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        if self.torn {
            return Err(self.failure("append to", "its last line is torn and could not be cut off"));
        }
        let mut text = self.text_of(line).map_err(|cause| self.failure("append to", cause))?;
        text.push(b'\n');
        if let Err(cause) = self.disk.write_all(&text) {
            self.torn = self.disk.cut(self.bytes).is_err();
            return Err(self.failure("append to", cause));
        }
        self.sealing.add(&text);
        self.bytes += text.len() as u64;
        self.lines += 1;
        self.dirty = true;
        if self.synced_at.elapsed() >= SYNC_INTERVAL { self.sync() } else { Ok(()) }
    }

    fn text_of(&self, line: &Line) -> serde_json::Result<Vec<u8>> {
        match line {
            Line::End(end) => {
                let unsealed = Line::End(super::line::End { sha256: None, ..end.clone() });
                Ok(self.sealing.seal(&finite_json(&unsealed)?))
            }
            other => finite_json(other),
        }
    }

    /// Syncs every line to disk.
    pub fn sync(&mut self) -> Result<()> {
        if self.dirty {
            self.disk.sync().map_err(|cause| self.failure("bring to the disk", cause))?;
            self.dirty = false;
        }
        self.synced_at = Instant::now();
        Ok(())
    }

    /// Syncs every line to disk and closes the file; unlike a drop it reports errors.
    pub fn finish(mut self) -> Result<()> {
        self.sync()
    }

    fn failure(&self, action: &str, cause: impl std::fmt::Display) -> Error {
        let kept = match self.lines {
            0 => "nothing was written before it".to_owned(),
            1 => "the line before it is kept".to_owned(),
            lines => format!("the {lines} lines before it are kept"),
        };
        Error::environment(format!("cannot {action} the record {}: {cause}; {kept}", self.path.display()))
    }
}

impl Drop for Journal {
    /// Syncs to disk. A file without a line is removed, so that a run that failed before it began does not block a retry.
    fn drop(&mut self) {
        if self.lines == 0 && !self.torn {
            let _ = std::fs::remove_file(&self.path);
        } else {
            let _ = self.sync();
        }
    }
}

/// The file operations of a journal, as a trait so that a full disk can be simulated in tests.
trait Disk {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

impl Disk for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

fn explain_refusal(path: &Path, cause: &io::Error) -> Error {
    let shown = path.display();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let problem = if path.is_dir() {
        "it is a directory; name a file in it".to_owned()
    } else if path.is_symlink() && !path.exists() {
        "it is a symbolic link to nowhere; remove it or name another file".to_owned()
    } else if cause.kind() == ErrorKind::AlreadyExists {
        "it exists already and records are never overwritten; name another file".to_owned()
    } else if !parent.exists() {
        format!("the directory {} does not exist; create it or name another", parent.display())
    } else if !parent.is_dir() {
        format!("{} is not a directory", parent.display())
    } else if cause.kind() == ErrorKind::NotFound {
        format!("the directory {} takes no files", parent.display())
    } else {
        return path_error("create the record", path, cause);
    };
    Error::usage(format!("cannot create the record {shown}: {problem}"))
}

/// The line as JSON, refused where a number is not finite: it would become `null` and make the line unreadable.
pub(super) fn finite_json(line: &Line) -> serde_json::Result<Vec<u8>> {
    use serde::Serialize;
    let mut text = Vec::with_capacity(4096);
    line.serialize(&mut serde_json::Serializer::with_formatter(&mut text, FiniteOnly))?;
    Ok(text)
}

/// serde_json writes `null` in two cases only: an absent value, which the types of a record leave out instead, and
/// a number that is not finite.
struct FiniteOnly;

impl serde_json::ser::Formatter for FiniteOnly {
    fn write_null<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        Err(io::Error::other("a number in the line is not finite"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{End, EndStatus};
    use super::*;
    use commgauge_base::units::Seconds;
    use std::fs::TryLockError;
    use std::sync::{Arc, Mutex};

    fn end(seconds: f64) -> Line {
        let status = EndStatus::Complete;
        Line::End(End {
            status,
            exit_code: 0,
            error: None,
            elapsed_seconds: Seconds(seconds),
            lines_before: None,
            sha256: None,
        })
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
        for (path, reason) in [
            (folder.path().to_owned(), "is a directory"),
            (at("file"), "never overwritten"),
            (at("link"), "symbolic link to nowhere"),
            (at("missing/record.jsonl"), "does not exist; create it"),
            (at("file/record.jsonl"), "is not a directory"),
            (PathBuf::from("/sys/record.jsonl"), "/sys/record.jsonl"),
        ] {
            let error = Journal::create(&path).err().expect("refused");
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"x");
    }

    #[test]
    fn lines_are_in_the_file_as_soon_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        for lines in 1..=3 {
            journal.write(&end(1.0)).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), lines);
        }
        journal.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
    }

    #[test]
    fn the_file_is_locked_while_the_journal_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&end(1.0)).unwrap();
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
        drop(journal);
        assert!(other.try_lock_shared().is_ok());
    }

    #[test]
    fn an_empty_journal_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        drop(Journal::create(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&end(1.0)).unwrap();
        let error = journal.write(&end(f64::NAN)).unwrap_err();
        assert!(error.to_string().contains("not finite"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    /// A disk with room for `room` bytes, which writes what fits before it fails.
    #[derive(Clone)]
    struct SmallDisk {
        content: Arc<Mutex<Vec<u8>>>,
        room: usize,
        can_cut: bool,
    }

    impl Disk for SmallDisk {
        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
            let mut content = self.content.lock().unwrap();
            let fits = bytes.len().min(self.room - content.len());
            content.extend(&bytes[..fits]);
            if fits == bytes.len() { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
        }

        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(ErrorKind::InvalidInput.into());
            }
            self.content.lock().unwrap().truncate(bytes as usize);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_keeps_the_earlier_lines_whole_and_says_so() {
        let length = Sealing::default().seal(&finite_json(&end(1.0)).unwrap()).len() + 1;
        let disk = SmallDisk { content: Arc::default(), room: 2 * length + 9, can_cut: true };
        let mut journal = Journal::on(Path::new("/nowhere/record.jsonl"), Box::new(disk.clone()));
        journal.write(&end(1.0)).unwrap();
        journal.write(&end(2.0)).unwrap();
        let error = journal.write(&end(3.0)).unwrap_err();
        assert_eq!(error.exit_code(), 6);
        let text = error.to_string();
        assert!(text.contains("/nowhere/record.jsonl") && text.contains("the 2 lines before it are kept"), "{text}");
        assert_eq!(disk.content.lock().unwrap().len(), 2 * length);
    }

    #[test]
    fn after_a_torn_line_that_cannot_be_cut_off_nothing_is_appended() {
        let disk = SmallDisk { content: Arc::default(), room: 9, can_cut: false };
        let mut journal = Journal::on(Path::new("/nowhere/record.jsonl"), Box::new(disk.clone()));
        assert!(journal.write(&end(1.0)).is_err());
        assert!(journal.write(&end(1.0)).unwrap_err().to_string().contains("torn"));
        assert_eq!(disk.content.lock().unwrap().len(), 9);
    }
}
