//! Real launchers and small shell programs: the launchers accept our arguments, a dead rank is named, and nothing
//! outlives an interrupted launch. Needs Open MPI and MPICH; a missing launcher is reported and skipped.

use commgauge::launch::{
    Cause, Death, Ending, Flavor, GRACE, Launcher, LauncherContext, Request, Watch, build, deaths, find, probe,
    supervise,
};
use std::time::{Duration, Instant};

/// Collects lines, and interrupts once when `interrupt_at` lines were seen.
struct Follow {
    lines: Vec<String>,
    interrupt_at: Option<usize>,
}

impl Watch for Follow {
    fn tick(&mut self) {}
    fn output(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }
    fn signal(&mut self) -> Option<i32> {
        let due = self.interrupt_at.is_some_and(|lines| self.lines.len() >= lines);
        if due { self.interrupt_at.take().map(|_| 2) } else { None }
    }
}

fn launchers() -> Vec<Launcher> {
    let found = [Flavor::OpenMpi, Flavor::Mpich].map(|flavor| {
        let here = LauncherContext { in_slurm: false, flavor: Some(flavor) };
        find("auto", here, &probe).map_err(|error| eprintln!("skipped: {error}")).ok()
    });
    found.into_iter().flatten().collect()
}

fn launch(launcher: &Launcher, ranks: u32, script: &str, interrupt_at: Option<usize>) -> (Ending, Vec<String>) {
    let request = Request {
        ranks,
        cores: find::cores(),
        root: find::is_root(),
        program: "sh".into(),
        program_arguments: vec!["-c".into(), script.into()],
        ..Request::default()
    };
    let command = build(launcher, &request).expect("a command");
    let mut follow = Follow { lines: Vec::new(), interrupt_at };
    let mark = format!("launchers-{}-{}", std::process::id(), command.for_shell().len());
    let ending = supervise(&command, &mark, GRACE, &mut follow).expect("it starts");
    (ending, follow.lines)
}

const RANK: &str = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; ";

#[test]
fn fewer_and_more_ranks_than_cores_are_started() {
    for launcher in launchers() {
        for ranks in [1, find::cores(), 2 * find::cores() + 1] {
            // MPICH's launcher dies of SIGPIPE if its ranks have exited before it could close their input.
            let (ending, mut lines) = launch(&launcher, ranks, &format!("{RANK} echo rank $rank; sleep 1"), None);
            lines.sort();
            lines.dedup();
            assert_eq!((ending.code, lines.len()), (Some(0), ranks as usize), "{launcher:?} {ending:?}");
        }
    }
}

#[test]
fn a_killed_rank_is_named_and_the_others_end() {
    for launcher in launchers() {
        let script = format!("{RANK} echo pid $$; if [ $rank = 1 ]; then sleep 0.3; kill -9 $$; fi; exec sleep 600");
        let start = Instant::now();
        let (ending, lines) = launch(&launcher, 2, &script, None);
        assert!(start.elapsed() < Duration::from_secs(300), "{launcher:?} took {:?}", start.elapsed());
        assert_ne!(ending.code, Some(0));
        let pids: Vec<u32> = lines.iter().filter_map(|line| line.strip_prefix("pid ")?.parse().ok()).collect();
        let found: Vec<Death> = deaths(&ending.output);
        // MPICH names no rank, and may report that it ended the process of the rank itself.
        let named = found.iter().any(|death| {
            let known =
                death.rank == Some(1) || death.rank.is_none() && death.pid.is_some_and(|pid| pids.contains(&pid));
            death.cause == Cause::Signal(9) && known
        });
        assert!(named, "{launcher:?}: {found:?} in {}", ending.output);
    }
}

#[test]
fn an_interrupted_launch_leaves_nothing_running() {
    for launcher in launchers() {
        let script = "echo pid $$; trap '' INT TERM; i=0; while [ $i -lt 6000 ]; do sleep 0.1; i=$((i+1)); done";
        let start = Instant::now();
        let (ending, lines) = launch(&launcher, 2, script, Some(2));
        assert_eq!(ending.interrupted_by, Some(2));
        assert!(start.elapsed() < Duration::from_secs(300), "{launcher:?} took {:?}", start.elapsed());
        for pid in lines.iter().filter_map(|line| line.strip_prefix("pid ")) {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(state.is_empty() || state.contains(") Z "), "{launcher:?}: rank still runs: {state}");
        }
    }
}
