//! One writer of a record at a time: an advisory lock on its file.
//!
//! Some parallel file systems have no locks at all; there only the exclusive creation of the file separates two runs,
//! and a running record looks like one that was cut off.

use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer waits for readers, which take the lock briefly to check whether a run is still writing.
pub(super) const READERS: Duration = Duration::from_millis(500);
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

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
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(BETWEEN_TRIES),
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
