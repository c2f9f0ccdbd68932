//! The one writer of whole files: of outputs named by users, and of the program's own files next to them.
//!
//! A file is written under another name in its folder, synced and renamed, and its folder is synced. Readers see the old file or the new
//! one, even after a power failure. The next writer of a file removes the leftovers of a killed one.

use crate::digest::sha256;
use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum concurrent writers of one file.
const MAX_WRITERS: u32 = 16;
/// Age at which a temporary file counts as left by a killed writer, if the file system has no locks.
const LEFT_AFTER: Duration = Duration::from_secs(3600);
/// Links that Linux follows in one path.
const MAX_LINKS: u32 = 40;
/// Bytes of a file name that its temporary name repeats; Linux allows 255 in all.
const MAX_REPEATED_BYTES: usize = 200;
/// How long to wait for a reader of a pipe.
const PIPE_PATIENCE: Duration = Duration::from_secs(10);

/// Writes the output that a user named. A regular file is replaced once the new one is complete; links are followed; a character device, a
/// pipe and an open stream such as `/dev/stdout` receive the content.
///
/// # Errors
/// Errors of the system; and `InvalidInput` if the path is a disk or a socket. The old file is then unchanged.
pub fn write_output(path: &Path, content: &[u8]) -> Result<()> {
    write_output_within(path, content, PIPE_PATIENCE)
}

/// Writes a file whose name this program chose. Anything with its name is replaced, including a link, which is never followed: in a folder
/// that others can write to, it may point anywhere.
///
/// # Errors
/// Errors of the system. The old file is then unchanged.
pub fn write_own(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content, None)
}

/// Writes a file whose name this program chose, unless the name is taken; returns whether it was free. Of several writers at the same
/// time exactly one finds it free.
///
/// # Errors
/// Errors of the system, also of a file system that has neither hard links nor `RENAME_NOREPLACE`.
pub fn write_new(path: &Path, content: &[u8]) -> Result<bool> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(false);
    }
    let (temporary, mut file) = temporary_file(path)?;
    let named = file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| name_once(&temporary, path));
    // Gone where it was renamed.
    let _ = fs::remove_file(&temporary);
    match named {
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(false),
        named => named.and_then(|()| sync_folder_of(path)).map(|()| true),
    }
}

fn name_once(temporary: &Path, path: &Path) -> Result<()> {
    match fs::hard_link(temporary, path) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
            rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)
                .map_err(|renamed| if renamed == Errno::EXIST { renamed.into() } else { cause })
        }
        linked => linked,
    }
}

/// Creates a folder and its missing parents, so that they survive a power failure.
///
/// # Errors
/// Errors of the system.
pub fn make_folder(path: &Path) -> Result<()> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(path)?;
    missing.into_iter().try_for_each(sync_folder_of)
}

/// Syncs the folder of a file; otherwise a new name may be lost after a power failure.
///
/// # Errors
/// Errors of the system, unless a folder cannot be synced at all.
pub fn sync_folder_of(path: &Path) -> Result<()> {
    match File::open(folder_of(path)).and_then(|folder| folder.sync_all()) {
        Err(cause) if !cannot_be_synced(&cause) => Err(cause),
        _ => Ok(()),
    }
}

/// The folder of a path; `.` for a bare file name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_output_within(path: &Path, content: &[u8], pipe_patience: Duration) -> Result<()> {
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        // Also a link to a missing file.
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            let Destination::File(target) = destination(path)? else { return Err(cause) };
            return replace(&target, content, None);
        }
        Err(cause) => return Err(cause),
    };
    let kind = facts.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // Opening a stream again would start at its first byte.
    if is_same(&facts, &std::io::stdout())? {
        return until_reader_closes(std::io::stdout().lock(), content);
    }
    if is_same(&facts, &std::io::stderr())? {
        return until_reader_closes(std::io::stderr().lock(), content);
    }
    if kind.is_file() {
        return match destination(path)? {
            // The process that opened it continues to write to it.
            Destination::Descriptor => OpenOptions::new().append(true).open(path)?.write_all(content),
            Destination::File(target) => {
                // A file without write permission is not replaced either.
                OpenOptions::new().write(true).open(&target)?;
                replace(&target, content, Some(&facts))
            }
        };
    }
    if kind.is_fifo() {
        return until_reader_closes(open_pipe(path, pipe_patience)?, content);
    }
    if kind.is_char_device() {
        return OpenOptions::new().write(true).custom_flags(bits(OFlags::NOCTTY)).open(path)?.write_all(content);
    }
    let found = if kind.is_socket() { "a socket" } else { "a disk" };
    Err(Error::new(ErrorKind::InvalidInput, format!("it is {found}; accepted: a file, a pipe or a character device")))
}

/// The destination of a path's links.
enum Destination {
    /// This name, whether a file exists or not.
    File(PathBuf),
    /// An open file of a process, such as `/dev/fd/3`.
    Descriptor,
}

fn destination(path: &Path) -> Result<Destination> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&at) else { return Ok(Destination::File(at)) };
        let folder = folder_of(&at);
        if folder.canonicalize()?.starts_with("/proc") {
            return Ok(Destination::Descriptor);
        }
        at = folder.join(target);
    }
    Err(Errno::LOOP.into())
}

fn is_same(facts: &Metadata, stream: &impl AsFd) -> Result<bool> {
    // A stream may be closed.
    let Ok(descriptor) = stream.as_fd().try_clone_to_owned() else { return Ok(false) };
    let of_stream = File::from(descriptor).metadata()?;
    Ok((of_stream.dev(), of_stream.ino()) == (facts.dev(), facts.ino()))
}

/// Writes to a stream; if its reader closes it early (`| head`), writing stops without an error.
fn until_reader_closes(mut stream: impl Write, content: &[u8]) -> Result<()> {
    match stream.write_all(content).and_then(|()| stream.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Opens a pipe as soon as it has a reader.
fn open_pipe(path: &Path, patience: Duration) -> Result<File> {
    let deadline = Instant::now() + patience;
    loop {
        match OpenOptions::new().write(true).custom_flags(bits(OFlags::NONBLOCK)).open(path) {
            Ok(pipe) => {
                rustix::fs::fcntl_setfl(&pipe, rustix::fs::fcntl_getfl(&pipe)? - OFlags::NONBLOCK)?;
                return Ok(pipe);
            }
            Err(cause) if !is(&cause, Errno::NXIO) => return Err(cause),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => {
                let seconds = patience.as_secs_f64();
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("it is a pipe that nothing reads for {seconds} s"),
                ));
            }
        }
    }
}

/// Replaces a file and keeps the attributes of the old one, if any.
fn replace(target: &Path, content: &[u8], old: Option<&Metadata>) -> Result<()> {
    let (temporary, mut file) = temporary_file(target)?;
    let written = keep_access(&file, old)
        .and_then(|()| file.write_all(content))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, target))
        .and_then(|()| sync_folder_of(target));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Gives a new file the owner and permissions of the old one, so that it is not accessible to more people.
fn keep_access(file: &File, old: Option<&Metadata>) -> Result<()> {
    let Some(old) = old else { return Ok(()) };
    // Only root may change ownership.
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    if file.metadata()?.mode() == old.mode() { Ok(()) } else { file.set_permissions(old.permissions()) }
}

/// A new file next to the target, locked while it is written.
fn temporary_file(target: &Path) -> Result<(PathBuf, File)> {
    for writer in 0..MAX_WRITERS {
        let path = temporary_name(target, writer)?;
        remove_left(&path);
        match OpenOptions::new().write(true).create_new(true).custom_flags(bits(OFlags::NOFOLLOW)).open(&path) {
            // Another writer may have removed it as a leftover before it was locked.
            Ok(file) if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && file.metadata()?.nlink() > 0 => {
                return Ok((path, file));
            }
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => return Err(cause),
            _ => {}
        }
    }
    Err(Error::new(ErrorKind::ResourceBusy, format!("{MAX_WRITERS} others are writing it")))
}

fn temporary_name(target: &Path, writer: u32) -> Result<PathBuf> {
    let name = target.file_name().ok_or(ErrorKind::IsADirectory)?;
    let mut hidden = std::ffi::OsString::from(".");
    match name.len() > MAX_REPEATED_BYTES {
        true => hidden.push(sha256(name.as_bytes())),
        false => hidden.push(name),
    }
    hidden.push(if writer == 0 { ".tmp".to_owned() } else { format!(".{writer}.tmp") });
    Ok(target.with_file_name(hidden))
}

/// Removes a temporary file without a writer. If it cannot be removed, the next name is tried.
fn remove_left(path: &Path) {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match OpenOptions::new().write(true).custom_flags(bits(flags)).open(path) {
        Ok(file) => file,
        // A link, which writers never create.
        Err(cause) if is(&cause, Errno::LOOP) => return drop(fs::remove_file(path)),
        Err(_) => return,
    };
    let Ok(facts) = file.metadata() else { return };
    let is_left = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let age = facts.modified().ok().and_then(|written| written.elapsed().ok());
            age.is_some_and(|age| age > LEFT_AFTER)
        }
    };
    // Its writer may have renamed it meanwhile, and another one may use the name.
    let has_name = |found: Metadata| (found.dev(), found.ino()) == (facts.dev(), facts.ino());
    if is_left && fs::symlink_metadata(path).is_ok_and(has_name) {
        // Before the file's lock is released.
        let _ = fs::remove_file(path);
    }
}

/// Some file systems cannot sync folders; and a folder may accept files without being readable.
fn cannot_be_synced(cause: &Error) -> bool {
    matches!(cause.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied)
        || is(cause, Errno::BADF)
}

fn is(cause: &Error, error: Errno) -> bool {
    cause.raw_os_error() == Some(error.raw_os_error())
}

fn bits(flags: OFlags) -> i32 {
    flags.bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_open_to_no_more_people_than_before() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["v.json".to_owned(), "n".repeat(255)] {
            let path = folder.path().join(&name);
            for text in ["a long first text", "short"] {
                write_output(&path, text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            write_output(&path, b"third").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            fs::remove_file(&path).unwrap();
        }
        assert!(names(folder.path()).is_empty(), "no temporary file stays");
    }

    #[test]
    fn an_output_follows_links_and_a_file_of_ours_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("there"), "old").unwrap();
        for (link, target) in [("one", "there"), ("two", "one"), ("dangling", "new")] {
            symlink(target, at(link)).unwrap();
        }
        for (link, target) in [("two", "there"), ("dangling", "new")] {
            write_output(&at(link), link.as_bytes()).unwrap();
            assert!(at(link).is_symlink());
            assert_eq!(fs::read_to_string(at(target)).unwrap(), link);
            write_own(&at(link), b"own").unwrap();
            assert!(!at(link).is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(target)).unwrap(), link, "nothing was written over the link");
        }
        symlink("circle", at("circle")).unwrap();
        assert!(write_output(&at("circle"), b"x").is_err());
        assert_eq!(names(folder.path()), ["circle", "dangling", "new", "one", "there", "two"]);
    }

    #[test]
    fn a_pipe_gets_the_content_and_one_without_a_reader_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
            .unwrap();
        let error = write_output_within(&path, b"x", Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("nothing reads"), "{error}");
        // More than a pipe holds.
        let content = vec![b'x'; 1 << 20];
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut read = Vec::new();
                File::open(path).unwrap().read_to_end(&mut read).unwrap();
                read.len()
            }
        });
        write_output(&path, &content).unwrap();
        assert_eq!(reader.join().unwrap(), content.len());
        assert_eq!(names(folder.path()), ["pipe"]);
    }

    #[test]
    fn an_open_file_of_a_process_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut open = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        open.write_all(b"before ").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
        write_output(Path::new(&format!("/proc/self/fd/{descriptor}")), b"output ").unwrap();
        open.write_all(b"after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before output after");
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_what_is_being_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("other"), "kept").unwrap();
        fs::write(at(".v.json.tmp"), "half").unwrap();
        symlink("other", at(".v.json.1.tmp")).unwrap();
        write_output(&at("v.json"), b"whole").unwrap();
        assert_eq!(names(folder.path()), [".v.json.1.tmp", "other", "v.json"]);
        let (busy, _file) = temporary_file(&at("v.json")).unwrap();
        write_output(&at("v.json"), b"second").unwrap();
        assert_eq!(
            names(folder.path()),
            [".v.json.tmp", "other", "v.json"],
            "the link is no writer, {}",
            busy.display()
        );
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "kept");
        let all: Vec<_> = (1..MAX_WRITERS).map(|_| temporary_file(&at("v.json")).unwrap()).collect();
        assert_eq!(write_output(&at("v.json"), b"x").unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(all);
        write_output(&at("v.json"), b"third").unwrap();
    }

    #[test]
    fn writers_at_once_leave_one_whole_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.json");
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| write_own(path, &[b'a' + writer; 5000]).unwrap()));
            }
        });
        let content = fs::read(&path).unwrap();
        assert!(content.len() == 5000 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(names(folder.path()), ["v.json"]);
    }

    #[test]
    fn folders_are_made_and_what_is_no_place_for_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        make_folder(&folder.path().join("a/b")).unwrap();
        write_output(&folder.path().join("a/b/v"), b"x").unwrap();
        for (place, kind) in
            [("a", ErrorKind::IsADirectory), ("missing/v", ErrorKind::NotFound), ("a/b/v/w", ErrorKind::NotADirectory)]
        {
            let error = write_output(&folder.path().join(place), b"x").unwrap_err();
            assert_eq!(error.kind(), kind, "{place}: {error}");
        }
        assert!(make_folder(&folder.path().join("a/b/v/w")).is_err());
        let socket = folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(write_output(&socket, b"x").unwrap_err().to_string().contains("is a socket"));
    }
}
