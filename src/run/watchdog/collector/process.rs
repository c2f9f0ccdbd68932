//! State of a process of this host according to the operating system, and killing it.

use rustix::process::{Pid, Signal, kill_process};

/// Start time of a process, in clock ticks since boot: together with the pid it identifies a process uniquely.
pub fn process_start(pid: u32) -> Option<u64> {
    read(pid).map(|stat| stat.1)
}

/// Whether exactly this process is stopped, by a signal or a debugger. `None` if it is gone.
pub(super) fn is_stopped(pid: u32, start: u64) -> Option<bool> {
    let (state, began) = read(pid)?;
    (began == start && !matches!(state, 'Z' | 'X')).then_some(matches!(state, 'T' | 't'))
}

/// Kills exactly this process, and not a later one with the same id.
pub(super) fn kill(pid: u32, start: u64) {
    if is_stopped(pid, start).is_some()
        && let Some(pid) = Pid::from_raw(pid as i32)
    {
        // It may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn read(pid: u32) -> Option<(char, u64)> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// State and start time: fields 3 and 22 (proc(5)), after the name in parentheses.
fn parse(text: &str) -> Option<(char, u64)> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn stopped_running_and_ended_processes_are_distinguished() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("it starts");
        let pid = child.id();
        let start = process_start(pid).expect("it runs");
        assert_eq!(is_stopped(pid, start), Some(false));
        assert_eq!(is_stopped(pid, start + 1), None, "another process of the same number");
        kill_process(Pid::from_child(&child), Signal::STOP).expect("ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while is_stopped(pid, start) != Some(true) {
            assert!(std::time::Instant::now() < deadline, "it does not stop");
        }
        kill(pid, start + 1);
        assert_eq!(is_stopped(pid, start), Some(true), "not meant");
        kill(pid, start);
        child.wait().expect("it ends");
        assert_eq!(is_stopped(pid, start), None);
    }

    #[test]
    fn fields_are_counted_behind_whatever_the_program_is_called() {
        let rest = "T 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        assert_eq!(parse(&format!("1 (a) b) {rest}")), Some(('T', 22)));
        assert_eq!(parse("1 (a) T 4"), None);
    }
}
