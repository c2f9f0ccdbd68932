//! NCCL's log of this process: what it carries data over and, on request, what it chooses for every call.
//!
//! NCCL reads the settings of its log once, so they are set before it is loaded. It logs when communicators open and when channels connect,
//! which is before anything is timed. Its choices are lines of the calls themselves, on the first rank of a communicator, also in the timed
//! loop; the report warns that times are longer.

use commgauge_base::error::{Error, Result};
use commgauge_base::nccl_conf::OWN_LOG;
use commgauge_base::variant::LibraryChoice;
use commgauge_model::record::library_use::LibraryUse;
use rustix::fs::FileType;
use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LEVEL: (&str, &str) = ("NCCL_DEBUG", "INFO");

const PARTS: (&str, &str) = ("NCCL_DEBUG_SUBSYS", OWN_LOG);

const FILE: &str = "NCCL_DEBUG_FILE";

/// The same text on all ranks: NCCL replaces `%p` by the process id.
const NAME: &str = "commgauge-nccl-%p.log";

/// What NCCL logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    /// How communicators open and channels connect.
    SetUp,
    /// That, and the choice for every call.
    SetUpAndChoices,
}

/// The log of this process. Its file loses its name when it was understood, so that a killed run leaves none; one in which nothing known was
/// is kept for its reader.
#[derive(Debug)]
pub struct Log {
    /// Or why it is missing.
    file: std::result::Result<LogFile, String>,
    logged: Logged,
    used: LibraryUse,
}

#[derive(Debug)]
struct LogFile {
    lines: BufReader<File>,
    path: PathBuf,
}

impl Log {
    /// Creates the file, and passes the variables that must be in the environment to `set`. A log that the user asked for is left alone.
    ///
    /// # Errors
    /// Where choices are wanted, a usage error if the user has settings for NCCL's log, and an error if the file cannot be created.
    pub(super) fn prepare(logged: Logged, set: impl Fn(&str, &OsStr)) -> Result<Log> {
        let taken = [LEVEL.0, PARTS.0, FILE].into_iter().find(|name| env::var_os(name).is_some());
        let file = match taken {
            Some(name) if logged == Logged::SetUpAndChoices => {
                return Err(Error::usage(format!(
                    "--record-algorithm needs NCCL's log for itself, but the environment has {name}; remove one"
                )));
            }
            Some(name) => {
                keep_from_standard_output(&set);
                Err(format!("the environment has {name}, so NCCL's log is not read"))
            }
            None => match LogFile::create(logged, set) {
                Err(error) if logged == Logged::SetUpAndChoices => return Err(error),
                created => created.map_err(|error| error.to_string()),
            },
        };
        Ok(Log { file, logged, used: LibraryUse::default() })
    }

    /// Whether NCCL logs its choices, during timed calls too.
    pub(super) fn has_choices(&self) -> bool {
        self.logged == Logged::SetUpAndChoices
    }

    /// What the process uses, by all that was logged up to now, or why that is not known.
    pub(super) fn used(&mut self) -> std::result::Result<LibraryUse, String> {
        self.read().map_err(|error| error.to_string())?;
        let file = self.file.as_ref().map_err(|why| why.clone())?;
        let is_kept = file.has_lines() && !self.used.names_a_network();
        let not_understood = is_kept.then(|| file.path.display().to_string());
        Ok(LibraryUse { not_understood, ..self.used.clone() })
    }

    /// Reads up to now; choices of earlier calls are forgotten.
    pub(super) fn skip(&mut self) -> Result<()> {
        self.read().map(drop)
    }

    /// The last choice that was logged since the last reading, if any.
    pub(super) fn last_choice(&mut self) -> Result<Option<LibraryChoice>> {
        if self.has_choices() { self.read() } else { Ok(None) }
    }

    /// Takes all lines since the last reading; returns the last choice among them.
    fn read(&mut self) -> Result<Option<LibraryChoice>> {
        let (mut last, mut line) = (None, Vec::new());
        let Ok(file) = &mut self.file else { return Ok(None) };
        loop {
            line.clear();
            // A hundred times what NCCL writes.
            let read = file.lines.by_ref().take(1 << 16).read_until(b'\n', &mut line);
            let read = read.map_err(|cause| Error::environment(format!("cannot read NCCL's log: {cause}")))?;
            if read == 0 {
                return Ok(last);
            }
            let text = String::from_utf8_lossy(&line);
            let was_open = !self.used.names_a_network();
            self.used.observe(&text);
            if was_open && self.used.names_a_network() {
                file.remove();
            }
            last = LibraryChoice::of_log_line(&text).or(last);
        }
    }
}

impl LogFile {
    fn create(logged: Logged, set: impl Fn(&str, &OsStr)) -> Result<LogFile> {
        let folder = env::temp_dir();
        let path = folder.join(NAME.replace("%p", &std::process::id().to_string()));
        // A file left by a killed process with the same id.
        let _ = std::fs::remove_file(&path);
        // Never an existing file of another user, which NCCL would write to.
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(|cause| Error::file("make NCCL's log", &path, cause))?;
        let parts = match logged {
            Logged::SetUp => PARTS.1.to_owned(),
            Logged::SetUpAndChoices => format!("{},TUNING", PARTS.1),
        };
        set(LEVEL.0, OsStr::new(LEVEL.1));
        set(PARTS.0, OsStr::new(&parts));
        let folder = folder.to_string_lossy().replace('%', "%%");
        set(FILE, Path::new(&folder).join(NAME).as_os_str());
        Ok(LogFile { lines: BufReader::new(file), path })
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn has_lines(&self) -> bool {
        self.lines.get_ref().metadata().is_ok_and(|facts| facts.len() > 0)
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if !self.has_lines() {
            self.remove();
        }
    }
}

/// NCCL writes a log that the user asked for to standard output unless a file is set. Standard output is for data, so the log goes to
/// standard error, unless that is a file, which NCCL would truncate (`src/debug.cc`).
fn keep_from_standard_output(set: &impl Fn(&str, &OsStr)) {
    let has_log = env::var_os(LEVEL.0).is_some() && env::var_os(FILE).is_none();
    let kind = rustix::fs::fstat(std::io::stderr()).map(|facts| FileType::from_raw_mode(facts.st_mode));
    if has_log && matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice)) {
        set(FILE, OsStr::new("/dev/stderr"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Write;

    // One test: both would have a log of this process.
    #[test]
    fn choices_are_those_since_the_last_reading_and_only_a_log_that_is_not_understood_is_kept() {
        let set: RefCell<Vec<(String, String)>> = RefCell::default();
        let prepare = |logged| {
            let note = |name: &str, value: &OsStr| {
                set.borrow_mut().push((name.to_owned(), value.to_string_lossy().into_owned()))
            };
            Log::prepare(logged, note).unwrap()
        };
        let mut log = prepare(Logged::SetUpAndChoices);
        let names: Vec<String> = set.borrow().iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"]);
        let path = PathBuf::from(set.borrow()[2].1.replace("%p", &std::process::id().to_string()));
        // Opened as NCCL does.
        let mut written = File::create(&path).unwrap();
        let mut write = |text: &str| written.write_all(text.as_bytes()).unwrap();
        assert_eq!(log.last_choice().unwrap(), None);
        write("NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n");
        log.skip().unwrap();
        assert_eq!(log.last_choice().unwrap(), None, "it belongs to an earlier case");
        write("NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n");
        write("NCCL INFO AllReduce: 9 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\nNCCL INFO other\n");
        assert_eq!(log.last_choice().unwrap().map(|choice| choice.to_string()).as_deref(), Some("ring ll x2"));
        assert_eq!(log.last_choice().unwrap(), None);
        assert_eq!(log.used().unwrap().not_understood, Some(path.display().to_string()));
        write("NCCL INFO Using network IB\n");
        assert!(path.exists());
        let used = log.used().unwrap();
        assert_eq!((used.networks_used().into_iter().collect::<Vec<_>>(), &used.not_understood), (vec!["IB"], &None));
        assert!(!path.exists(), "understood, so no killed run leaves it");
        drop(log);

        for (said, is_kept) in [("", false), ("NCCL INFO of another kind\n", true)] {
            let mut log = prepare(Logged::SetUp);
            std::fs::write(&path, said).unwrap();
            assert_eq!(log.used().unwrap().not_understood.is_some(), is_kept, "{said}");
            drop(log);
            assert_eq!(path.exists(), is_kept, "{said}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
