//! State of a process of this host according to the operating system, and killing it.

use super::super::asked_to_end::{signals, was_asked_to_end};
use super::super::marks::{COLLECTOR_VARIABLE, LAUNCH_MARK};
use commgauge_base::process_stat::ProcessStat;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt;

/// A process that has begun to end (`PF_EXITING` of the kernel, in field 9 of proc_pid_stat(5)).
const EXITING: u64 = 0x4;
/// SIGKILL in a mask of signals: bit 8 stands for signal 9.
const KILL: u64 = 1 << 8;

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Running,
    /// SIGTERM has reached it, and it goes on. No signal reaches one that is dying.
    Asked,
    /// SIGTERM had reached it before it was on its way out.
    AskedAndDying,
    /// It is on its way out, and nobody had asked it to end.
    Dying,
    Gone,
}

impl Fate {
    /// Whether nothing has ended it so far.
    pub(super) fn goes_on(self) -> bool {
        matches!(self, Fate::Running | Fate::Asked)
    }

    /// This fate of a process of which another source says that SIGTERM had reached it.
    pub(super) fn after_request(self) -> Fate {
        if self.goes_on() { Fate::Asked } else { Fate::AskedAndDying }
    }
}

/// Start time of a process, in clock ticks since boot: together with the pid it identifies a process uniquely.
pub fn process_start(pid: u32) -> Option<u64> {
    ProcessStat::of(pid).map(|stat| stat.start)
}

/// One process of this host, and no later one with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id; 0 of a process of another host.
    pub pid: u32,
    /// Its start time, as [`process_start`] has it.
    pub start: u64,
}

impl Process {
    /// Whether it is one of this host.
    pub(super) fn is_here(self) -> bool {
        self.pid != 0
    }

    /// Whether it is stopped, by a signal or a debugger. `None` if it is gone.
    pub(super) fn is_stopped(self) -> Option<bool> {
        Some(self.stat().filter(|stat| !stat.is_zombie())?.is_stopped())
    }

    /// Whether it is on its way out, and what it has is not yet given back.
    pub(super) fn is_dying(self) -> bool {
        self.is_stopped().is_some() && !self.fate().goes_on()
    }

    fn stat(self) -> Option<ProcessStat> {
        ProcessStat::of(self.pid).filter(|stat| stat.start == self.start)
    }

    /// What became of it. One on its way out has begun to exit, or SIGKILL is on its way to one of its threads; it may take long to
    /// be gone after that, since it needs a processor and gives its memory back first.
    pub(super) fn fate(self) -> Fate {
        let pid = self.pid;
        let Some(stat) = self.stat() else { return Fate::Gone };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_dying = stat.is_zombie() || stat.flags & EXITING != 0 || is_being_killed(pid);
        let fate = if is_dying { Fate::Dying } else { Fate::Running };
        if was_asked_to_end(&status) { fate.after_request() } else { fate }
    }

    /// Kills it.
    pub(super) fn kill(self) {
        if self.is_stopped().is_some()
            && let Some(pid) = Pid::from_raw(self.pid as i32)
        {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A signal that ends a process is pending on each of its threads until that thread has seen it.
fn is_being_killed(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    statuses.any(|status| signals(&status, "SigPnd:") & KILL != 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn process_of(child: &Child) -> Process {
        Process { pid: child.id(), start: process_start(child.id()).expect("it runs") }
    }

    #[test]
    fn stopped_running_and_ended_processes_are_distinguished() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("it starts");
        let process = process_of(&child);
        let later = Process { start: process.start + 1, ..process };
        assert_eq!(process.is_stopped(), Some(false));
        assert_eq!(later.is_stopped(), None, "another process of the same number");
        kill_process(Pid::from_child(&child), Signal::STOP).expect("ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while process.is_stopped() != Some(true) {
            assert!(std::time::Instant::now() < deadline, "it does not stop");
        }
        later.kill();
        assert_eq!(process.is_stopped(), Some(true), "not meant");
        process.kill();
        child.wait().expect("it ends");
        assert_eq!(process.is_stopped(), None);
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
    fn a_killed_process_is_dying_also_before_it_is_gone() {
        let mut children = [(); 3].map(|()| Command::new("sleep").arg("30").spawn().expect("it starts"));
        let processes: Vec<Process> = children.iter().map(process_of).collect();
        let is_dying = |process: Process| matches!(process.fate(), Fate::Dying | Fate::Gone);
        assert!(!processes.iter().any(|process| is_dying(*process)));
        // A stopped process that is killed needs a processor before it can end.
        kill_process(Pid::from_child(&children[0]), Signal::STOP).expect("ours");
        for child in &children[..2] {
            kill_process(Pid::from_child(child), Signal::KILL).expect("ours");
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // Between taking the signal and beginning to exit, a thread shows neither for an instant.
        while processes.iter().filter(|process| is_dying(**process)).count() < 2 {
            assert!(std::time::Instant::now() < deadline, "both were killed");
        }
        assert!(!is_dying(processes[2]));
        let later = Process { start: processes[2].start + 1, ..processes[2] };
        assert!(is_dying(later), "another process of the same number");
        children[2].kill().expect("ours");
        for child in &mut children {
            child.wait().expect("it ends");
        }
        assert!(processes.iter().all(|process| is_dying(*process)));
    }

    #[test]
    fn one_that_was_asked_to_end_before_it_was_killed_is_told_from_one_that_was_only_killed() {
        let mut children = [(); 2].map(|()| Command::new("sleep").arg("30").spawn().expect("it starts"));
        let processes = [0, 1].map(|at| process_of(&children[at]));
        let signal = |at: usize, signal| kill_process(Pid::from_child(&children[at]), signal).expect("ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // What is stopped handles nothing before it is killed, as what finds no processor. Of two signals that wait it would take
        // SIGTERM first.
        signal(0, Signal::STOP);
        while processes[0].is_stopped() != Some(true) {
            assert!(std::time::Instant::now() < deadline, "it stops");
        }
        signal(0, Signal::TERM);
        assert_eq!(processes[0].fate(), Fate::Asked, "while it lives");
        signal(0, Signal::KILL);
        // In the other order, as by a launcher that ends the rest.
        signal(1, Signal::KILL);
        signal(1, Signal::TERM);
        while !processes.iter().all(|process| ProcessStat::of(process.pid).is_some_and(ProcessStat::is_zombie)) {
            assert!(std::time::Instant::now() < deadline, "both were killed");
        }
        assert_eq!(processes.map(Process::fate), [Fate::AskedAndDying, Fate::Dying]);
        for child in &mut children {
            child.wait().expect("it ends");
        }
        assert_eq!(processes.map(Process::fate), [Fate::Gone, Fate::Gone]);
    }
}
