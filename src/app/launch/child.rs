//! Starts a launch command, forwards its output, and ensures that no process is left running.
//!
//! The purpose of the launch and its progress reports are up to the caller's [`Watch`].

use super::command::LaunchCommand;
use commgauge_base::error::{Error, Result};
use commgauge_base::host::{self, ProcessStat, Segments};
use commgauge_run::watchdog::COLLECTOR_VARIABLE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit, kill_process, kill_process_group, pidfd_open};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// How long a launch may take to stop before it is terminated.
pub const GRACE: Duration = Duration::from_secs(5);

/// How long a terminated launch may take to end before it is killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(3);

/// Polling interval of the watcher, and the longest delay of a signal.
const TICK: Duration = Duration::from_millis(50);

/// Open files without which a launcher does not start: with fewer Open MPI 4.1 waits for two ranks without end.
const FEWEST_OPEN_FILES: u64 = 40;

/// Bytes at the end of the output that are retained to diagnose a failed launch.
const RETAINED_OUTPUT_BYTES: usize = 64 * 1024;

/// Observer of a launch.
pub trait Watch {
    /// Called every few milliseconds, and once more after the end.
    fn tick(&mut self);
    /// A line that the launcher or a rank printed.
    fn output(&mut self, line: &str);
    /// A signal to forward, if one arrived since the last call.
    fn signal(&mut self) -> Option<i32>;
    /// Why the launch should be over by now, if so; it is then terminated. A sentence without full stop.
    fn overdue(&mut self) -> Option<String> {
        None
    }
}

/// How a launch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The launcher's exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended the launcher.
    pub signal: Option<i32>,
    /// The first signal that was forwarded.
    pub interrupted_by: Option<i32>,
    /// Why the launcher was terminated, where it should have ended by itself.
    pub overdue: Option<String>,
    /// The end of the output of launcher and ranks.
    pub output: String,
    /// Processes that outlived the launcher and had to be killed.
    pub leftovers_killed: usize,
    /// Shared memory that the processes had when they were made to end: ranks that still start have said nothing of theirs.
    pub segments: Segments,
}

/// Runs the command to its end. `mark` is an environment value unique to this launch; `grace` is [`GRACE`] except in
/// tests.
///
/// The launcher gets its own process group, so that a Ctrl-C at the terminal reaches it once, through us.
pub fn supervise(command: &LaunchCommand, mark: &str, grace: Duration, watch: &mut dyn Watch) -> Result<Ending> {
    let begun = SystemTime::now();
    if let Some(files) = getrlimit(Resource::Nofile).current.filter(|files| *files < FEWEST_OPEN_FILES) {
        return Err(Error::environment(format!(
            "cannot start {}: {files} open files are allowed and at least {FEWEST_OPEN_FILES} needed; raise `ulimit -n`",
            command.program
        )));
    }
    let mut child = command
        .command()
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|cause| Error::environment(format!("cannot start {}: {cause}", command.program)))?;
    let lines = read_lines(&mut child);
    let mut ending = Ending::default();
    let status = wait(&mut child, &lines, command.stop_signal, mark, grace, &mut ending, watch);
    // Kill what is left in every case, also after a failed wait.
    kill_group(&child, Signal::KILL);
    ending.leftovers_killed = end_leftovers(mark, Duration::from_secs(1), &mut ending.segments);
    wait_for_watchdog(mark, GRACE);
    ending.segments.remove_left();
    host::remove_left_by(child.id());
    host::remove_descriptions_since(begun);
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
        forward(&line, &mut ending, watch);
    }
    watch.tick();
    let status = status?;
    ending.code = status.code();
    ending.signal = status.signal();
    Ok(ending)
}

fn wait(
    child: &mut Child,
    lines: &Receiver<String>,
    stop_signal: Option<i32>,
    mark: &str,
    grace: Duration,
    ending: &mut Ending,
    watch: &mut dyn Watch,
) -> Result<ExitStatus> {
    let mut pressure = Pressure::None;
    loop {
        let next = Instant::now() + TICK;
        loop {
            match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => forward(&line, ending, watch),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    break;
                }
            }
            if Instant::now() >= next {
                break;
            }
        }
        watch.tick();
        if let Some(number) = watch.signal() {
            if ending.interrupted_by.is_some() {
                kill_group(child, Signal::KILL);
            } else {
                ending.segments = segments_of(mark);
                ending.interrupted_by = Some(number);
                kill_group(child, forwarded(number, stop_signal));
                pressure = pressure.max(Pressure::Asked(Instant::now() + grace));
            }
        } else if pressure == Pressure::None
            && let Some(why) = watch.overdue()
        {
            ending.overdue = Some(why);
            ending.segments = segments_of(mark);
            pressure = Pressure::Asked(Instant::now());
        }
        pressure = pressure.advance(child);
        let status =
            child.try_wait().map_err(|cause| Error::environment(format!("cannot wait for the launcher: {cause}")));
        if let Some(status) = status? {
            return Ok(status);
        }
    }
}

/// How a launch that is to end is made to, and until when that may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    None,
    /// It was asked to stop in order.
    Asked(Instant),
    /// It was terminated, by which a launcher ends its ranks on all hosts.
    Terminated(Instant),
}

impl Pressure {
    fn advance(self, child: &Child) -> Pressure {
        let now = Instant::now();
        match self {
            Pressure::Asked(until) if now >= until => {
                kill_group(child, Signal::TERM);
                // It would not notice. mpirun forwards the signal, so that it is sent in need only.
                if ProcessStat::of(child.id()).is_some_and(ProcessStat::is_stopped) {
                    kill_group(child, Signal::CONT);
                }
                Pressure::Terminated(now + TERMINATION_GRACE)
            }
            Pressure::Terminated(until) if now >= until => {
                kill_group(child, Signal::KILL);
                self
            }
            _ => self,
        }
    }
}

fn forwarded(number: i32, instead: Option<i32>) -> Signal {
    if let Some(signal) = instead.and_then(Signal::from_named_raw) {
        return signal;
    }
    if number == Signal::TERM.as_raw() { Signal::TERM } else { Signal::INT }
}

fn kill_group(child: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // The group may have ended already.
        let _ = kill_process_group(group, signal);
    }
}

fn forward(line: &str, ending: &mut Ending, watch: &mut dyn Watch) {
    watch.output(line);
    ending.output.push_str(line);
    ending.output.push('\n');
    if ending.output.len() > 2 * RETAINED_OUTPUT_BYTES {
        let mut from = ending.output.len() - RETAINED_OUTPUT_BYTES;
        while !ending.output.is_char_boundary(from) {
            from += 1;
        }
        ending.output.drain(..from);
    }
}

/// Both streams of the child, line by line, through a bounded channel, so that too much output blocks the child instead
/// of filling memory.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = sync_channel(256);
    child.stdout.take().into_iter().for_each(|stream| read_into(stream, sender.clone()));
    child.stderr.take().into_iter().for_each(|stream| read_into(stream, sender.clone()));
    receiver
}

fn read_into(stream: impl Read + Send + 'static, sender: SyncSender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            // A line without end is cut, so that it cannot fill the memory.
            let mut rest = reader.by_ref().take(RETAINED_OUTPUT_BYTES as u64);
            let Ok(1..) = rest.read_until(b'\n', &mut line) else { return };
            // The launcher of Open MPI 5 ends some of its messages with a zero.
            let had_zeros = line.contains(&0);
            line.retain(|byte| *byte != 0);
            if had_zeros && line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
        }
    });
}

// Reports which of several processes of this host exits first.
//
// MPICH kills the other ranks when one dies and then names any of them, so the order is taken from the operating
// system instead.

/// Sends the first of the processes to exit; several, if they had all exited by the time they were polled.
///
/// Nothing is sent if one of them is not on this host, or if the system cannot watch processes (before Linux 5.3).
pub fn first_exit(pids: Vec<u32>) -> Receiver<Vec<u32>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let open = |pid: &u32| -> Option<OwnedFd> { pidfd_open(Pid::from_raw(*pid as i32)?, PidfdFlags::empty()).ok() };
        let Some(watched) = pids.iter().map(open).collect::<Option<Vec<OwnedFd>>>() else { return };
        let mut fds: Vec<PollFd<'_>> = watched.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // The only possible error is an interruption by a signal; the wait then continues.
        while !fds.is_empty() && poll(&mut fds, None).is_err() {}
        let exited = fds.iter().zip(&pids).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, pid)| *pid).collect();
        // The receiver may be gone.
        let _ = sender.send(exited);
    });
    receiver
}

// Ends processes that a launch may have left running on this host.
//
// Launchers put every rank into its own process group, so killing the launcher's group does not end its ranks. Ranks
// inherit the launcher's environment, though, and are found by a marker variable in it, whatever their parent is by
// then. Ranks on other hosts are left to the launcher.

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
            kill_all(&alive);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill_all(pids: &[Pid]) {
    // They may have ended already.
    pids.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
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
        let (left, is_late) = (with_variable(&wanted), Instant::now() > deadline);
        if is_late {
            kill_all(&left);
        }
        if left.is_empty() || is_late {
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

#[cfg(test)]
mod first_exit_tests {

    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn only_the_first_process_to_exit_is_reported() {
        let mut children = ["5", "0.2", "5"].map(|time| Command::new("sleep").arg(time).spawn().expect("it starts"));
        let exited = first_exit(children.iter().map(std::process::Child::id).collect());
        let first = exited.recv_timeout(Duration::from_secs(4)).expect("one ends");
        assert_eq!(first, [children[1].id()]);
        for child in &mut children {
            // The one in the middle has ended already.
            let _ = child.kill();
            child.wait().expect("it is ours");
        }
    }

    #[test]
    fn a_process_that_is_not_here_ends_the_watch_without_an_answer() {
        let exited = first_exit(vec![std::process::id(), 0]);
        assert!(exited.recv_timeout(Duration::from_secs(4)).is_err());
    }
}

#[cfg(test)]
mod tests {
    // Launches of small shell programs: their output, their exit status, and that no process outlives them.
    use super::*;
    use commgauge_model::record::header::Variable;
    use rustix::process::test_kill_process;

    /// Delivers each signal of a list this many ticks after the first line: a program that has printed a line has set its
    /// traps, however busy the machine is.
    struct Script {
        signals: Vec<(u32, i32)>,
        ticks: u32,
        lines: Vec<String>,
        /// Ticks after the first line from which the launch is overdue.
        overdue_after: Option<u32>,
    }

    impl Watch for Script {
        fn tick(&mut self) {
            self.ticks += u32::from(!self.lines.is_empty());
        }
        fn output(&mut self, line: &str) {
            self.lines.push(line.to_owned());
        }
        fn overdue(&mut self) -> Option<String> {
            self.overdue_after.is_some_and(|ticks| self.ticks >= ticks).then(|| "it is late".to_owned())
        }
        fn signal(&mut self) -> Option<i32> {
            let due = self.signals.iter().position(|(tick, _)| *tick <= self.ticks)?;
            Some(self.signals.remove(due).1)
        }
    }

    /// Long enough for a program to handle its signal on a busy machine.
    const LONG_GRACE: Duration = Duration::from_secs(3);

    fn run(script: &str, mark: &str, signals: &[(u32, i32)]) -> (Ending, Vec<String>, Duration) {
        watched(script, mark, Script { signals: signals.to_vec(), ticks: 0, lines: Vec::new(), overdue_after: None })
    }

    fn watched(script: &str, mark: &str, mut watch: Script) -> (Ending, Vec<String>, Duration) {
        let command = LaunchCommand {
            environment: vec![Variable::new("GREETING", "hello")],
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            stop_signal: None,
        };
        let start = Instant::now();
        let mark = format!("{mark}-{}", std::process::id());
        let ending = supervise(&command, &mark, LONG_GRACE, &mut watch).expect("it starts");
        (ending, watch.lines, start.elapsed())
    }

    fn assert_gone(pid: &str) {
        let pid = Pid::from_raw(pid.parse().expect("a process id")).expect("not 0");
        // Its parent may not have reaped it yet, so a zombie counts as ended.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
        assert!(zombie || test_kill_process(pid).is_err(), "{pid} still runs: {state}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let command = LaunchCommand {
            environment: vec![],
            program: "/nowhere/mpirun".into(),
            arguments: vec![],
            stop_signal: None,
        };
        let mut watch = Script { signals: vec![], ticks: 0, lines: vec![], overdue_after: None };
        let error = supervise(&command, "none", GRACE, &mut watch).expect_err("not there");
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().contains("/nowhere/mpirun"));
    }

    #[test]
    fn output_status_and_environment_come_through() {
        let (ending, mut lines, _) = run("echo $GREETING; echo problem >&2; exit 7", "through", &[]);
        lines.sort();
        assert_eq!(lines, ["hello", "problem"]);
        assert_eq!((ending.code, ending.signal, ending.interrupted_by), (Some(7), None, None));
        assert!(ending.output.contains("problem\n"));
    }

    #[test]
    fn an_interrupted_launch_may_handle_the_signal() {
        // Not SIGINT: a shell started with SIGINT ignored, as scripts start background processes, cannot trap it.
        let (ending, lines, _) =
            run("trap 'echo told; exit 1' TERM; echo ready; while :; do sleep 0.05; done", "own-way", &[(6, 15)]);
        // The shell may also report that its sleep was terminated.
        assert!(lines.iter().any(|line| line == "told"), "{lines:?}");
        assert_eq!((ending.code, ending.interrupted_by), (Some(1), Some(15)));
    }

    #[test]
    fn a_launch_that_ignores_the_signal_is_killed_after_the_grace() {
        let (ending, _, elapsed) = run("trap '' INT TERM; echo ready; while :; do sleep 0.05; done", "deaf", &[(4, 2)]);
        assert_eq!((ending.signal, ending.interrupted_by), (Some(9), Some(2)));
        assert!(elapsed > LONG_GRACE && elapsed < 3 * LONG_GRACE, "{elapsed:?}");
    }

    #[test]
    fn an_overdue_launch_is_terminated_even_when_stopped_and_killed_if_it_continues() {
        for (script, code, signal) in [
            ("trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done", Some(3), None),
            ("trap 'exit 3' TERM; echo ready; kill -STOP $$; sleep 60", Some(3), None),
            ("trap '' TERM; echo ready; while :; do sleep 0.05; done", None, Some(9)),
        ] {
            let watch = Script { signals: Vec::new(), ticks: 0, lines: Vec::new(), overdue_after: Some(4) };
            let (ending, _, _) = watched(script, "overdue", watch);
            assert_eq!((ending.code, ending.signal), (code, signal), "{script}");
            assert_eq!((ending.overdue.as_deref(), ending.interrupted_by), (Some("it is late"), None));
        }
    }

    #[test]
    fn a_second_signal_kills_at_once() {
        let (ending, _, elapsed) =
            run("trap '' TERM INT; echo ready; while :; do sleep 0.05; done", "twice", &[(4, 15), (6, 2)]);
        assert_eq!((ending.signal, ending.interrupted_by), (Some(9), Some(15)));
        assert!(elapsed < LONG_GRACE, "{elapsed:?}");
    }

    #[test]
    fn a_rank_that_left_the_launchers_group_does_not_outlive_it() {
        let (ending, lines, elapsed) = run("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3", "orphan", &[]);
        assert_eq!((ending.code, ending.leftovers_killed), (Some(0), 1));
        assert_gone(&lines[0]);
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    }

    #[test]
    fn a_flood_of_output_keeps_only_its_end() {
        let (ending, lines, _) =
            run("i=0; while [ $i -lt 20000 ]; do echo 0123456789abcdef; i=$((i+1)); done; echo last", "flood", &[]);
        assert_eq!(lines.len(), 20_001);
        assert!(ending.output.len() <= 2 * RETAINED_OUTPUT_BYTES && ending.output.ends_with("last\n"));
    }

    #[test]
    fn shared_memory_of_ranks_that_are_ended_while_they_start_is_removed() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let library =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libgcc_s"));
        let segment = format!("/dev/shm/mpich_commgauge_start_{}", std::process::id());
        // A library that a process loads is mapped, as the segments of MPI are.
        let Some(Ok(_)) = library.map(|library| std::fs::copy(library, &segment)) else { return };
        let script = format!("LD_PRELOAD={segment} exec sh -c 'grep -c {segment} /proc/$$/maps; sleep 60; :'");
        let (ending, lines, _) = run(&script, "starts", &[(1, 15)]);
        assert_eq!(ending.interrupted_by, Some(15));
        let is_mapped = lines.first().is_some_and(|line| line != "0");
        let is_left = std::path::Path::new(&segment).exists();
        let _ = std::fs::remove_file(&segment);
        // Where the folder carries nothing out, nothing was mapped.
        assert!(!is_mapped || !is_left, "{lines:?}");
    }
}
