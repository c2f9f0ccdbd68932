//! Writes a record line by line, so that a crash loses at most the line being written.
//!
//! It does not interpret the lines; reading is in `reader` and `follower`.

use super::Line;
use super::file_place::{FilePlace, kept_names, place_of};
use super::line::End;
use super::lock::{READERS, lock};
use super::reader::CompleteLines;
use super::seal::Sealing;
use super::write_access::{WriteAccess, wait_for_the_end};
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder, sync_folder_of};
use commgauge_base::visible::ShownPath;
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
    access: WriteAccess,
    moved: Option<Moved>,
}

/// What somebody did to a record while it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its path until then.
    pub from: PathBuf,
    /// Its path from then on.
    pub to: PathBuf,
    /// Whether it was removed, so that `to` is a copy of what was written; else it was renamed.
    pub was_removed: bool,
}

impl Moved {
    /// What happened, in one sentence without full stop.
    pub fn sentence(&self) -> String {
        let (from, to) = (self.from.shown(), self.to.shown());
        match self.was_removed {
            true => format!("the record {from} was removed while it was written; all of it is in {to}"),
            false => format!("the record {from} was renamed while it was written; it goes on in {to}"),
        }
    }
}

impl Journal {
    /// Creates the file, which must not exist, and locks it. Creating it also checks, before anything is measured,
    /// that the path is writable.
    ///
    /// # Errors
    /// A usage error with the problem of the path, or an environment error where the disk failed.
    pub fn create(path: &Path) -> Result<Journal> {
        Journal::on_file(path, create_file(path)?)
    }

    /// Appends after the complete lines of a file that the caller has locked.
    ///
    /// # Errors
    /// Where the system has no more open files.
    pub(super) fn append_after(path: &Path, file: File, whole: CompleteLines) -> Result<Journal> {
        let mut journal = Journal::on_file(path, file)?;
        (journal.lines, journal.bytes) = (whole.chain.lines(), whole.bytes);
        journal.sealing = whole.chain.into_sealing();
        Ok(journal)
    }

    fn on_file(path: &Path, file: File) -> Result<Journal> {
        let access = WriteAccess::of(&file).map_err(|cause| Error::path("write the record", path, &cause))?;
        let mut journal = Journal::on(path, Box::new(file));
        journal.access = access;
        Ok(journal)
    }

    fn on(path: &Path, disk: Box<dyn Disk + Send>) -> Journal {
        let path = path.to_owned();
        let (sealing, synced_at) = (Sealing::default(), Instant::now());
        let (access, moved) = (WriteAccess::default(), None);
        Journal { path, disk, lines: 0, bytes: 0, torn: false, sealing, synced_at, dirty: false, access, moved }
    }

    /// Where the record is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines written so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The right to write, which another thread may give up for this process.
    pub fn access(&self) -> WriteAccess {
        self.access.clone()
    }

    /// What somebody did to the file, once after it was found.
    pub fn take_moved(&mut self) -> Option<Moved> {
        self.moved.take()
    }

    /// Appends one line with one write, and syncs to disk at most once a second. The line gets the digest of the
    /// record up to it. If the file was removed, the record goes on in a copy beside it. Does not return where another process
    /// has ended the record: then this one is being ended.
    ///
    /// # Errors
    /// Names the path and the lines that are safe. After a failed write the file is truncated to its last complete
    /// line, so that a later, shorter line (the end of the run) may still fit.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        self.access.clone().run(|locked| self.write_line(line, locked))
    }

    fn write_line(&mut self, line: &Line, locked: &mut Option<File>) -> Result<()> {
        if self.torn {
            return Err(self.failure("append to", "its last line is torn and could not be cut off"));
        }
        self.find_file(locked)?;
        let text = self.sealing.seal(&finite_json(line).map_err(|cause| self.failure("append to", cause))?);
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

    /// Follows a file that was renamed, and replaces one that was removed.
    fn find_file(&mut self, locked: &mut Option<File>) -> Result<()> {
        if self.disk.length().is_some_and(|bytes| bytes > self.bytes) {
            // This process was stopped meanwhile, and the record ended by another.
            wait_for_the_end();
        }
        let (to, was_removed) = match self.disk.place(&self.path) {
            FilePlace::There => return Ok(()),
            FilePlace::Renamed(to) => (to, false),
            FilePlace::Removed => (self.keep(locked)?, true),
        };
        let from = std::mem::replace(&mut self.path, to.clone());
        self.moved = Some(Moved { from, to, was_removed });
        Ok(())
    }

    /// Copies what was written of a removed file to a new one beside it.
    fn keep(&mut self, locked: &mut Option<File>) -> Result<PathBuf> {
        let text = self.disk.content(self.bytes).map_err(|cause| self.failure("keep", cause))?;
        // The folder may be gone as well; where it cannot be made again, creating the file says so.
        let _ = make_folder(folder_of(&self.path));
        let Some(path) = kept_names(&self.path).find(|path| !path.exists()) else {
            return Err(self.failure("keep", "every name for it is taken"));
        };
        let mut file = create_file(&path)?;
        Write::write_all(&mut file, &text).map_err(|cause| self.failure("keep", cause))?;
        *locked = file.try_clone().ok();
        self.disk = Box::new(file);
        self.dirty = true;
        Ok(path)
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
        Error::environment(format!("cannot {action} the record {}: {cause}; {kept}", self.path.shown()))
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
    /// Bytes of the file; none where that cannot be asked.
    fn length(&self) -> Option<u64>;
    fn place(&self, path: &Path) -> FilePlace;
    fn content(&self, bytes: u64) -> io::Result<Vec<u8>>;
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

    fn length(&self) -> Option<u64> {
        self.metadata().ok().map(|facts| facts.len())
    }

    fn place(&self, path: &Path) -> FilePlace {
        place_of(self, path)
    }

    fn content(&self, bytes: u64) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut text = vec![0; bytes as usize];
        self.read_exact_at(&mut text, 0)?;
        Ok(text)
    }
}

fn create_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .open(path)
        .map_err(|cause| explain_refusal(path, &cause))?;
    let unsafe_name = |cause| Error::path("create the record", path, &cause);
    if let Err(error) = lock(&file, path, READERS).and_then(|()| sync_folder_of(path).map_err(unsafe_name)) {
        // The file is ours and empty; the first error is the one to report.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

fn explain_refusal(path: &Path, cause: &io::Error) -> Error {
    let shown = path.shown();
    let parent = folder_of(path);
    let problem = if path.is_dir() {
        "it is a directory; name a file in it".to_owned()
    } else if path.is_symlink() && !path.exists() {
        "it is a symbolic link to nowhere; remove it or name another file".to_owned()
    } else if cause.kind() == ErrorKind::AlreadyExists {
        "it exists already and records are never overwritten; name another file".to_owned()
    } else if !parent.exists() {
        format!("the directory {} does not exist; create it or name another", parent.shown())
    } else if !parent.is_dir() {
        format!("{} is not a directory", parent.shown())
    } else if cause.kind() == ErrorKind::NotFound {
        format!("the directory {} takes no files", parent.shown())
    } else {
        return Error::path("create the record", path, cause);
    };
    Error::usage(format!("cannot create the record {shown}: {problem}"))
}

/// The line as JSON without its digest, refused where a number is not finite: it would become `null` and make the line unreadable.
pub(super) fn finite_json(line: &Line) -> serde_json::Result<Vec<u8>> {
    use serde::Serialize;
    let mut text = Vec::with_capacity(4096);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, FiniteOnly);
    match line {
        // An end line that was read has its old digest.
        Line::End(end) => Line::End(End { sha256: None, ..end.clone() }).serialize(&mut serializer)?,
        other => other.serialize(&mut serializer)?,
    }
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
#[path = "journal_tests.rs"]
mod tests;
