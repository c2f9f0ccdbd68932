//! The right of a process to write its record. It gives the right up when another process ends the record for it: the
//! watchdog, which writes how the run ended while the launcher still lets it.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const BETWEEN_TRIES: Duration = Duration::from_millis(2);

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

    /// Gives the right up for ever and unlocks the file. False if a write that is under way takes longer than
    /// `patience`.
    pub fn give_up(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let mut access = match self.0.try_lock() {
                Ok(access) => access,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(BETWEEN_TRIES);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return false,
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

/// Waits until the process is ended.
pub(super) fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Journal;
    use super::super::line::{End, EndStatus, Line};
    use super::*;
    use commgauge_base::units::Seconds;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_gave_its_right_up_writes_no_more_and_another_process_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let end = Line::End(End {
            status: EndStatus::Failed,
            exit_code: 5,
            error: None,
            elapsed_seconds: Seconds(1.0),
            lines_before: None,
            sha256: None,
        });
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
