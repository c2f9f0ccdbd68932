//! Launches of small shell programs: their output, their exit status, and that no process outlives them.

use super::*;
use commgauge_model::record::provenance::Variable;
use rustix::process::test_kill_process;

/// Delivers each signal of a list so many ticks after the first line: a program that has printed a line has set its
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
    let command =
        LaunchCommand { environment: vec![], program: "/nowhere/mpirun".into(), arguments: vec![], stop_signal: None };
    let mut watch = Script { signals: vec![], ticks: 0, lines: vec![], overdue_after: None };
    let error = supervise(&command, "none", GRACE, &mut watch).expect_err("not there");
    assert_eq!(error.exit_code(), 6);
    assert!(error.to_string().contains("/nowhere/mpirun"));
}

#[test]
fn output_status_and_environment_come_through() {
    let (ending, mut lines, _) = run("echo $GREETING; echo trouble >&2; exit 7", "through", &[]);
    lines.sort();
    assert_eq!(lines, ["hello", "trouble"]);
    assert_eq!((ending.code, ending.signal, ending.interrupted_by), (Some(7), None, None));
    assert!(ending.output.contains("trouble\n"));
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
fn an_overdue_launch_is_terminated_also_when_it_is_stopped_and_killed_if_it_goes_on() {
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
    let library = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libgcc_s"));
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
