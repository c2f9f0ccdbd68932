//! NCCL's log of its choices: enabled before NCCL is loaded, which reads its settings once, and read after each case.
//!
//! NCCL reports its choice nowhere else. It writes a line for every call, on the first rank of a communicator, in the
//! timed loop too; a user who requests this is warned that times are longer.

use commgauge_base::error::{Error, Result};
use commgauge_base::variant::LibraryChoice;
use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The settings: only the subsystem of the choices, and a file for each process under a name that is the same text on
/// all ranks (NCCL replaces `%p` by the process id).
const SETTINGS: [(&str, &str); 2] = [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "TUNING")];
const FILE: &str = "NCCL_DEBUG_FILE";
const NAME: &str = "commgauge-nccl-%p.log";

/// The log of this process. Its file is removed on drop.
#[derive(Debug)]
pub struct Log {
    file: BufReader<File>,
    path: PathBuf,
}

impl Log {
    /// Creates the file, and passes the variables that must be in the environment to `set`.
    ///
    /// # Errors
    /// A usage error if the user has settings for NCCL's log; an error if the file cannot be created.
    pub(super) fn prepare(set: impl Fn(&str, &OsStr)) -> Result<Log> {
        let taken = SETTINGS.iter().map(|(name, _)| *name).chain([FILE]).find(|name| env::var_os(name).is_some());
        if let Some(name) = taken {
            return Err(Error::usage(format!(
                "--record-algorithm reads NCCL's log, and the environment has {name}, which is for the user to read; leave one out"
            )));
        }
        let folder = env::temp_dir();
        let path = folder.join(NAME.replace("%p", &std::process::id().to_string()));
        // A file left by a killed process with the same id.
        let _ = std::fs::remove_file(&path);
        // Never an existing file of another user, which NCCL would write to.
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(|cause| Error::file("make NCCL's log", &path, cause))?;
        SETTINGS.iter().for_each(|(name, value)| set(name, OsStr::new(value)));
        let folder = folder.to_string_lossy().replace('%', "%%");
        set(FILE, Path::new(&folder).join(NAME).as_os_str());
        Ok(Log { file: BufReader::new(file), path })
    }

    /// Passes over what was written up to now.
    pub(super) fn skip(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::End(0)).map(drop).map_err(unreadable)
    }

    /// The last choice that was written since, if any.
    pub(super) fn last_choice(&mut self) -> Result<Option<LibraryChoice>> {
        let (mut last, mut line) = (None, Vec::new());
        loop {
            line.clear();
            // A hundred times what NCCL writes.
            let read = self.file.by_ref().take(1 << 16).read_until(b'\n', &mut line).map_err(unreadable)?;
            if read == 0 {
                return Ok(last);
            }
            last = LibraryChoice::of_log_line(&String::from_utf8_lossy(&line)).or(last);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn unreadable(cause: std::io::Error) -> Error {
    Error::environment(format!("cannot read NCCL's log: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Write;

    #[test]
    fn only_lines_written_since_the_last_read_are_found() {
        let set: RefCell<Vec<(String, String)>> = RefCell::default();
        let mut log = Log::prepare(|name, value| {
            set.borrow_mut().push((name.to_owned(), value.to_string_lossy().into_owned()));
        })
        .unwrap();
        let set = set.into_inner();
        let names: Vec<&str> = set.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"]);
        // Opened like NCCL does.
        let mut written = File::create(set[2].1.replace("%p", &std::process::id().to_string())).unwrap();
        let mut write = |text: &str| written.write_all(text.as_bytes()).unwrap();
        assert_eq!(log.last_choice().unwrap(), None);
        write("NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n");
        log.skip().unwrap();
        assert_eq!(log.last_choice().unwrap(), None, "it is of an earlier case");
        write("NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n");
        write("NCCL INFO AllReduce: 9 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\nNCCL INFO other\n");
        assert_eq!(log.last_choice().unwrap().map(|choice| choice.to_string()).as_deref(), Some("ring ll x2"));
        assert_eq!(log.last_choice().unwrap(), None);
        let path = log.path.clone();
        assert!(path.exists());
        drop(log);
        assert!(!path.exists());
    }
}
