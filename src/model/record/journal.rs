//! Writes a record line by line, so that a crash loses at most the line being written.
//!
//! It does not interpret the lines; reading is in `reader` and `follower`.

use super::Line;
use super::line::End;
use super::reader::{CompleteLines, FilePlace, kept_names, place_of};
use super::seal::Sealing;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, make_folder, sync_folder_of};
use commgauge_base::visible::ShownPath;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError as SyncTryLockError};
use std::time::{Duration, Instant};

/// Maximum delay between a write and its sync to disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Why a rank refuses a record that another run began.
pub const NEVER_OVERWRITTEN: &str = "it exists already and records are never overwritten";

/// A record that is being written. It has an exclusive advisory lock on the file until it is dropped, by which readers
/// distinguish a running run from one that was cut off.
pub struct Journal {
    path: PathBuf,
    file: File,
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
            false => format!("the record {from} was renamed while it was written; it continues in {to}"),
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
        let (path, sealing, synced_at, moved) = (path.to_owned(), Sealing::default(), Instant::now(), None);
        Ok(Journal { path, file, lines: 0, bytes: 0, torn: false, sealing, synced_at, dirty: false, access, moved })
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

    /// Appends one line with one write, and syncs to disk at most once a second. The line gets the digest of the record up to it. If the
    /// file was removed, the record continues in a copy next to it. Does not return if another process has ended the record: then this
    /// process is being ended.
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
        if let Err(cause) = self.file.write_all(&text) {
            self.torn = self.file.set_len(self.bytes).is_err();
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
        if self.file.metadata().is_ok_and(|facts| facts.len() > self.bytes) {
            let mut added = [0; LINE_BEGINS.len()];
            if self.file.read_exact_at(&mut added, self.bytes).is_ok() && added == *LINE_BEGINS {
                // This process was stopped meanwhile, and the record ended by another.
                wait_for_the_end();
            }
            let text =
                format!("{}: the record was changed while it was written: something was added", self.path.shown());
            return Err(Error::mismatch(text));
        }
        let (to, was_removed) = match place_of(&self.file, &self.path) {
            FilePlace::There => return Ok(()),
            FilePlace::Renamed(to) => (to, false),
            FilePlace::Removed => (self.keep(locked)?, true),
        };
        let from = std::mem::replace(&mut self.path, to.clone());
        self.moved = Some(Moved { from, to, was_removed });
        Ok(())
    }

    /// Copies the written part of a removed file to a new one next to it.
    fn keep(&mut self, locked: &mut Option<File>) -> Result<PathBuf> {
        let mut text = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut text, 0).map_err(|cause| self.failure("keep", cause))?;
        // The folder may be gone as well; where it cannot be made again, creating the file says so.
        let _ = make_folder(folder_of(&self.path));
        let Some(path) = kept_names(&self.path).find(|path| !path.exists()) else {
            return Err(self.failure("keep", "every name for it is taken"));
        };
        let mut file = create_file(&path)?;
        file.write_all(&text).map_err(|cause| self.failure("keep", cause))?;
        *locked = file.try_clone().ok();
        self.file = file;
        self.dirty = true;
        Ok(path)
    }

    /// Syncs every line to disk.
    pub fn sync(&mut self) -> Result<()> {
        if self.dirty {
            self.file.sync_data().map_err(|cause| self.failure("bring to the disk", cause))?;
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
        format!("{NEVER_OVERWRITTEN}; name another file")
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

// One writer of a record at a time: an advisory lock on its file.
//
// Some parallel file systems have no locks at all; there only the exclusive creation of the file separates two runs,
// and a running record looks like one that was cut off.

/// How long a writer waits for readers, which take the lock briefly to check whether a run is still writing.
pub(super) const READERS: Duration = Duration::from_millis(500);

const LOCK_BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Waits for the exclusive lock on the file, which lasts until the file is closed.
///
/// # Errors
/// Where another process still has the lock after `patience`, or the lock fails.
pub(super) fn lock(file: &File, path: &Path, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(cause)) if no_locks_here(&cause) => return Ok(()),
            Err(TryLockError::Error(cause)) => return Err(Error::file("lock the record", path, cause)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_BETWEEN_TRIES),
            Err(TryLockError::WouldBlock) => {
                let shown = path.shown();
                return Err(Error::environment(format!("the record {shown} is still held by another process")));
            }
        }
    }
}

fn no_locks_here(cause: &io::Error) -> bool {
    cause.kind() == ErrorKind::Unsupported || cause.raw_os_error() == Some(libc::ENOLCK)
}

// The right of a process to write its record. It gives the right up when another process ends the record for it: the
// watchdog, which writes how the run ended while the launcher still lets it.

const WRITE_ACCESS_BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// The right to write, shared by the thread that writes and the one that may give it up.
#[derive(Clone, Debug, Default)]
pub struct WriteAccess(Arc<Mutex<Access>>);

#[derive(Debug, Default)]
struct Access {
    is_given_up: bool,
    /// The locked file, where there is one.
    file: Option<File>,
}

impl WriteAccess {
    /// The right to write a locked file.
    pub(super) fn of(file: &File) -> std::io::Result<WriteAccess> {
        let file = Some(file.try_clone()?);
        Ok(WriteAccess(Arc::new(Mutex::new(Access { is_given_up: false, file }))))
    }

    /// Releases the record permanently and unlocks the file. False if a write in progress takes longer than `patience`.
    pub fn give_up(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let mut access = match self.0.try_lock() {
                Ok(access) => access,
                Err(SyncTryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(SyncTryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(WRITE_ACCESS_BETWEEN_TRIES);
                    continue;
                }
                Err(SyncTryLockError::WouldBlock) => return false,
            };
            access.is_given_up = true;
            // Without the lock nothing is lost but some patience of whoever writes next.
            drop(access.file.take().map(|file| file.unlock()));
            return true;
        }
    }

    /// Runs a write, which gets the locked file and may replace it. Does not return if the right was given up: the run is being ended.
    pub(super) fn run<T>(&self, write: impl FnOnce(&mut Option<File>) -> T) -> T {
        let mut access = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if access.is_given_up {
            drop(access);
            wait_for_the_end();
        }
        write(&mut access.file)
    }
}

/// How every line begins.
const LINE_BEGINS: &[u8; 8] = b"{\"line\":";

/// Waits until the process is ended.
pub(super) fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod write_access_tests {

    use super::super::Journal;
    use super::super::line::{End, EndStatus, Line};
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_gave_its_right_up_writes_no_more_and_another_process_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let end = Line::End(End::new(EndStatus::Failed, 5, None, Duration::from_secs(1)));
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&end).unwrap();
        let access = journal.access();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        assert!(access.give_up(Duration::ZERO));
        assert!(other.try_lock().is_ok(), "it is unlocked while the journal is open");
        let (sender, written) = channel();
        std::thread::spawn(move || {
            journal.write(&end).unwrap();
            sender.send(()).unwrap();
        });
        assert!(written.recv_timeout(Duration::from_millis(100)).is_err(), "it waits for its end");
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_write_that_takes_too_long_is_not_waited_for() {
        let access = WriteAccess::default();
        assert!(access.run(|_| !access.give_up(Duration::from_millis(5))));
        assert!(access.give_up(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    // Records on disks that are full or refuse, and what others do to their files.
    use super::super::line::{End, EndStatus};
    use super::*;
    use commgauge_base::units::Seconds;
    use std::fs::TryLockError;

    fn end(seconds: f64) -> Line {
        let end = End::new(EndStatus::Complete, 0, None, Duration::ZERO);
        Line::End(End { elapsed_seconds: Seconds(seconds), ..end })
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

    #[test]
    fn after_a_torn_line_that_cannot_be_cut_off_nothing_is_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        std::fs::write(&path, "").unwrap();
        // One that is open for reading takes neither a line nor another length.
        let mut journal = Journal::on_file(&path, File::open(&path).unwrap()).unwrap();
        for reason in ["Bad file descriptor", "torn and could not be cut off"] {
            let error = journal.write(&end(1.0)).unwrap_err();
            assert!(error.exit_code() == 6 && error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains("record.jsonl") && error.to_string().contains("nothing was written"));
        }
    }

    #[test]
    fn a_record_that_is_removed_or_renamed_continues_and_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner/run.jsonl");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let renamed = folder.path().join("renamed.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&end(1.0)).unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        journal.write(&end(2.0)).unwrap();
        let moved = journal.take_moved().unwrap();
        assert_eq!((&moved.to, moved.was_removed, journal.path()), (&renamed, false, renamed.as_path()));
        std::fs::remove_file(&renamed).unwrap();
        journal.write(&end(3.0)).unwrap();
        let moved = journal.take_moved().unwrap();
        let kept = folder.path().join("renamed.kept.jsonl");
        assert_eq!((&moved.to, moved.was_removed, journal.path()), (&kept, true, kept.as_path()));
        assert!(moved.sentence().contains("was removed while it was written; all of it is in"), "{}", moved.sentence());
        assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 3);
        assert!(matches!(File::open(&kept).unwrap().try_lock(), Err(TryLockError::WouldBlock)), "it is locked, too");
        // Together with its folder, and with what the first copy left.
        std::fs::remove_dir_all(folder.path()).unwrap();
        journal.write(&end(4.0)).unwrap();
        let kept = journal.take_moved().unwrap().to;
        assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 4);
        journal.write(&end(5.0)).unwrap();
        assert_eq!((journal.take_moved(), journal.lines()), (None, 5));
    }
}
