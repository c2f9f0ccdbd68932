//! Ends processes that a launch may have left running on this host.
//!
//! Launchers put every rank into its own process group, so killing the launcher's group does not end its ranks. Ranks
//! inherit the launcher's environment, though, and are found by a marker variable in it, whatever their parent is by
//! then. Ranks on other hosts are left to the launcher.

use commgauge_base::shared_memory::Segments;
use commgauge_run::watchdog::COLLECTOR_VARIABLE;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::{Duration, Instant};

/// Name of the variable that marks the processes of a launch.
pub(super) const MARK: &str = commgauge_run::watchdog::LAUNCH_MARK;

/// Gives the marked processes `grace` to end by themselves, then kills the rest; returns how many were killed. Notes what shared memory
/// they have: ranks that were starting when their launcher ended may have made it since.
pub(super) fn end_leftovers(mark: &str, grace: Duration, segments: &mut Segments) -> usize {
    let grace_end = Instant::now() + grace;
    let deadline = grace_end + Duration::from_secs(2);
    let mut killed = 0;
    loop {
        let alive = marked(mark);
        if alive.is_empty() || Instant::now() > deadline {
            return killed;
        }
        alive.iter().for_each(|pid| segments.note(number(*pid)));
        if Instant::now() >= grace_end {
            killed = killed.max(alive.len());
            for pid in alive {
                // It may have ended already.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The shared memory of the marked processes.
pub(super) fn segments_of(mark: &str) -> Segments {
    let pids: Vec<u32> = marked(mark).into_iter().map(number).collect();
    Segments::of(&pids)
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Gives the watchdog of a launch, which outlives its ranks for a moment, time to record how they ended.
pub(super) fn wait_for_watchdog(mark: &str, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    let wanted = format!("{COLLECTOR_VARIABLE}={mark}");
    loop {
        let left = with_variable(&wanted);
        if left.is_empty() {
            return;
        }
        if Instant::now() > deadline {
            for pid in left {
                // It may have ended already.
                let _ = kill_process(pid, Signal::KILL);
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose environment has the marker. A zombie has no environment, so it does not count.
fn marked(mark: &str) -> Vec<Pid> {
    with_variable(&format!("{MARK}={mark}"))
}

fn with_variable(wanted: &str) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let found = environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
            if found && pid != std::process::id() as i32 { Pid::from_raw(pid) } else { None }
        })
        .collect()
}
