//! The signals that ask a run to stop in order, with what was measured kept, and the note by which ranks learn which one it was:
//! launchers hand on a signal of their own instead.

use crate::output_file::write_own;
use rustix::process::Signal;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A signal to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal {
    /// Its number.
    pub number: i32,
    /// The number under which it is reported: schedulers and launchers send SIGUSR1 where they mean SIGTERM.
    pub counts_as: i32,
}

/// SIGINT, SIGTERM and SIGUSR1; SIGHUP and SIGQUIT as well, unless this process was started to ignore them, as by
/// `nohup`.
pub fn stop_signals() -> Vec<StopSignal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    stop_signals_of(&status)
}

/// `SIGTERM`; `signal 64` where a signal has no name.
pub fn signal_name(number: i32) -> String {
    signal_hook::low_level::signal_name(number).map_or_else(|| format!("signal {number}"), str::to_owned)
}

/// Notes beside the record by which signal its run is stopped. Whoever leaves a note removes it after the launch.
///
/// # Errors
/// If it cannot be written.
pub fn leave_note(record: &Path, number: i32) -> Result<()> {
    write_own(&note_path(record), number.to_string().as_bytes())
}

/// By which signal the run of a record is stopped, if a note says so. An old one was left by a launch that was killed.
pub fn noted(record: &Path) -> Option<i32> {
    let path = note_path(record);
    let age = std::fs::metadata(&path).and_then(|data| data.modified()).ok()?.elapsed();
    // Clocks of two hosts may differ, and then the note comes from the future.
    if age.is_ok_and(|age| age > NOTE_LIFETIME) {
        return None;
    }
    std::fs::read_to_string(path).ok()?.parse().ok()
}

/// Removes the note, if there is one.
pub fn remove_note(record: &Path) {
    let _ = std::fs::remove_file(note_path(record));
}

/// Ranks are killed some seconds after they were asked to stop.
const NOTE_LIFETIME: Duration = Duration::from_secs(60);

fn note_path(record: &Path) -> PathBuf {
    record.with_extension("stopped.txt")
}

fn stop_signals_of(status: &str) -> Vec<StopSignal> {
    let always = [(Signal::INT, Signal::INT), (Signal::TERM, Signal::TERM), (Signal::USR1, Signal::TERM)];
    let unless_ignored = [Signal::HUP, Signal::QUIT].into_iter().filter(|signal| !is_ignored(*signal, status));
    let all = always.into_iter().chain(unless_ignored.map(|signal| (signal, signal)));
    all.map(|(signal, as_which)| StopSignal { number: signal.as_raw(), counts_as: as_which.as_raw() }).collect()
}

/// From the mask of ignored signals in `/proc/PID/status`, where the lowest bit is signal 1 (proc(5)).
fn is_ignored(signal: Signal, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_up_stops_a_run_unless_it_was_started_to_ignore_hang_ups() {
        let numbers = |status: &str| stop_signals_of(status).iter().map(|signal| signal.number).collect::<Vec<_>>();
        for (status, expected) in [
            ("", vec![2, 15, 10, 1, 3]),
            ("Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", vec![2, 15, 10, 1, 3]),
            ("SigIgn:\t0000000000000001\n", vec![2, 15, 10, 3]),
            ("SigIgn:\t0000000000001005\n", vec![2, 15, 10]),
        ] {
            assert_eq!(numbers(status), expected, "{status}");
        }
    }

    #[test]
    fn a_note_says_which_signal_stops_a_run_until_it_is_removed_or_old() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = folder.path().join("run.jsonl");
        assert_eq!(noted(&record), None);
        leave_note(&record, 1).expect("written");
        assert_eq!(noted(&record), Some(1));
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::options()
            .write(true)
            .open(note_path(&record))
            .expect("it is there")
            .set_modified(hour_ago)
            .expect("set");
        assert_eq!(noted(&record), None);
        remove_note(&record);
        assert!(!note_path(&record).exists());
    }
}
