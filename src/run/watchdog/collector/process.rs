//! State of a process of this host according to the operating system, and killing it.

use super::super::marks::{COLLECTOR_VARIABLE, LAUNCH_MARK};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt;

/// Start time of a process, in clock ticks since boot: together with the pid it identifies a process uniquely.
pub fn process_start(pid: u32) -> Option<u64> {
    read(pid).map(|stat| stat.1)
}

/// Whether exactly this process is stopped, by a signal or a debugger. `None` if it is gone.
pub(super) fn is_stopped(pid: u32, start: u64) -> Option<bool> {
    let (state, began) = read(pid)?;
    (began == start && !matches!(state, 'Z' | 'X')).then_some(matches!(state, 'T' | 't'))
}

/// Whether a process is known to be none of this launch: it runs another program, or carries the mark of another launch. Such a
/// process is never killed. What the system does not tell speaks against nobody.
pub(super) fn is_of_another_launch(pid: u32) -> bool {
    let program = |pid: &str| std::fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let pid = pid.to_string();
    let is_other_program = program(&pid).zip(program("self")).is_some_and(|(theirs, ours)| theirs != ours);
    let mark = std::env::var_os(COLLECTOR_VARIABLE).filter(|mark| mark != "1");
    let theirs = std::fs::read(format!("/proc/{pid}/environ")).ok().and_then(|all| variable(&all, LAUNCH_MARK));
    is_other_program || mark.zip(theirs).is_some_and(|(ours, theirs)| ours.as_encoded_bytes() != theirs)
}

/// The value of a variable in an environment as the kernel shows it.
fn variable(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let of = |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.split(|byte| *byte == 0).find_map(of)
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
    fn a_process_of_another_program_is_none_of_this_launch() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("it starts");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // Between fork and exec it is still this program.
        while !is_of_another_launch(child.id()) {
            assert!(std::time::Instant::now() < deadline, "another program");
        }
        assert!(!is_of_another_launch(std::process::id()));
        assert!(!is_of_another_launch(0), "of a process that cannot be seen nothing is known");
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(variable(b"A=1\0COMMGAUGE_LAUNCH=x=y\0B=2\0", "COMMGAUGE_LAUNCH"), Some(b"x=y".to_vec()));
    }

    #[test]
    fn fields_are_counted_behind_whatever_the_program_is_called() {
        let rest = "T 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        assert_eq!(parse(&format!("1 (a) b) {rest}")), Some(('T', 22)));
        assert_eq!(parse("1 (a) T 4"), None);
    }
}
