//! Parses a launcher's output for ranks that died.
//!
//! Launchers wrap their sentences at different places, so the text is read word by word.

use commgauge_base::rank_list;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGKILL, SIGSEGV, SIGTERM};

/// No launch has more.
const MAX_RANKS: usize = 1 << 20;

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// By a signal.
    Signal(i32),
    /// By itself, with an exit code.
    Exit(i32),
}

/// A rank that ended abnormally, as reported by the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// World rank; MPICH does not report it.
    pub rank: Option<u32>,
    /// Process id; Slurm does not report it, Open MPI 4 prints 0 if it is unknown, and MPICH may report, with signal 9,
    /// a rank that it killed itself after another one had died.
    pub pid: Option<u32>,
    /// Host.
    pub host: Option<String>,
    /// How it ended.
    pub cause: Cause,
    /// Which ranks the launcher reports.
    pub reported: Reported,
}

/// Which ranks a launcher reports when several end abnormally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The first, because of which it ended the others.
    First,
    /// All, also those that were ended because of another.
    All,
}

/// Every death that the launcher's output reports, in its order.
pub fn deaths(output: &str) -> Vec<Death> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let by_words = (0..words.len()).filter_map(|at| {
        let rest = &words[at..];
        open_mpi_signal(rest).or_else(|| open_mpi_exit(rest)).or_else(|| mpich(rest))
    });
    let by_slurm = output.lines().flat_map(slurm).collect();
    by_words.chain(without_cancelled(output, by_slurm)).collect()
}

/// Slurm kills the other ranks of a step that it cancels as one has crashed, and reports them all.
fn without_cancelled(output: &str, mut deaths: Vec<Death>) -> Vec<Death> {
    let crashed = |death: &Death| matches!(death.cause, Cause::Signal(SIGSEGV | SIGBUS | SIGABRT));
    if output.contains(" CANCELLED AT ") && deaths.iter().any(crashed) {
        deaths.retain(|death| death.cause != Cause::Signal(SIGKILL));
    }
    deaths
}

/// `process rank 1 with PID 10720 on node vm exited on signal 9 (Killed).`
fn open_mpi_signal(words: &[&str]) -> Option<Death> {
    let ["process", "rank", rank, "with", "PID", pid, "on", "node", host, "exited", "on", "signal", signal, ..] = words
    else {
        return None;
    };
    Some(Death {
        rank: rank.parse().ok(),
        pid: pid.parse().ok().filter(|pid| *pid != 0),
        host: Some((*host).to_owned()),
        cause: Cause::Signal(signal.trim_end_matches('.').parse().ok()?),
        reported: Reported::First,
    })
}

/// `Process name: [[17870,1],1] Exit code: 3`, in version 5 `[prterun-vm-10777@1,0]`: the rank follows the last comma.
fn open_mpi_exit(words: &[&str]) -> Option<Death> {
    let ["Process", "name:", name, "Exit", "code:", code, ..] = words else { return None };
    let rank = name.strip_suffix(']')?.rsplit(',').next()?.parse().ok()?;
    let cause = Cause::Exit(code.parse().ok()?);
    Some(Death { rank: Some(rank), pid: None, host: None, cause, reported: Reported::First })
}

/// `= PID 10542 RUNNING AT vm = EXIT CODE: 9`, where the code is a signal if `(signal 9)` follows.
fn mpich(words: &[&str]) -> Option<Death> {
    let ["PID", pid, "RUNNING", "AT", host, "=", "EXIT", "CODE:", code, rest @ ..] = words else { return None };
    let code = code.parse().ok()?;
    let end = rest.iter().position(|word| *word == "PID").unwrap_or(rest.len());
    let named = rest[..end].windows(2).find(|pair| pair[0] == "(signal");
    let named: Option<i32> = named.and_then(|pair| pair[1].trim_end_matches(')').parse().ok());
    // If a code of 9 comes with another signal, process and code belong to a rank that the launcher killed afterwards,
    // and the signal to the first.
    let (pid, cause) = match named {
        Some(signal) if signal == code => (pid.parse().ok(), Cause::Signal(signal)),
        Some(signal) if code == 9 => (None, Cause::Signal(signal)),
        _ => (pid.parse().ok(), Cause::Exit(code)),
    };
    Some(Death { rank: None, pid, host: Some((*host).to_owned()), cause, reported: Reported::First })
}

/// `srun: error: node1: task 1: Killed`, `srun: error: node1: tasks 0,2-3: Exited with exit code 3`.
fn slurm(line: &str) -> Vec<Death> {
    let parse = || {
        let (host, rest) = line.trim().strip_prefix("srun: error: ")?.split_once(": task")?;
        let (tasks, cause) = rest.trim_start_matches('s').trim_start().split_once(": ")?;
        let cause = match cause.trim_end_matches(" (core dumped)").trim() {
            "Killed" | "Out Of Memory" => Cause::Signal(SIGKILL),
            "Segmentation fault" => Cause::Signal(SIGSEGV),
            "Aborted" => Cause::Signal(SIGABRT),
            "Bus error" => Cause::Signal(SIGBUS),
            "Terminated" => Cause::Signal(SIGTERM),
            other => Cause::Exit(other.strip_prefix("Exited with exit code ")?.parse().ok()?),
        };
        let host = Some(host.to_owned());
        let death = |rank| Death { rank: Some(rank), pid: None, host: host.clone(), cause, reported: Reported::All };
        Some(ranks(tasks)?.into_iter().map(death).collect())
    };
    parse().unwrap_or_default()
}

/// The ranks of a list such as `0,2-3`; none where it is something else.
fn ranks(text: &str) -> Option<Vec<u32>> {
    let ranks: Vec<u32> = rank_list::parse(text).take(MAX_RANKS).collect();
    (!ranks.is_empty()).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI_4_KILLED: &str = "\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
--------------------------------------------------------------------------
";
    const OPEN_MPI_4_EXIT: &str = "\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[17870,1],1]
  Exit code:    3
";
    const OPEN_MPI_5_KILLED: &str = "\
--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 10720 on node vm exited on
signal 9 (Killed).
--------------------------------------------------------------------------
";
    const OPEN_MPI_5_EXIT: &str = "\
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-10777@1,0]
   Exit code:    3
";
    const MPICH_KILLED: &str = "
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 10542 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
";

    fn death(rank: Option<u32>, pid: Option<u32>, host: Option<&str>, cause: Cause) -> Death {
        Death { rank, pid, host: host.map(str::to_owned), cause, reported: Reported::First }
    }

    #[test]
    fn the_dead_rank_is_read_from_what_each_launcher_prints() {
        use Cause::{Exit, Signal};
        for (text, expected) in [
            ("", vec![]),
            ("process rank x", vec![]),
            ("process rank 1 with PID 7 on node vm exited on signal", vec![]),
            ("Process name: ] Exit code: 3", vec![]),
            ("srun: error: a: task x: Killed", vec![]),
            ("srun: error: a: task 1: something new", vec![]),
            (OPEN_MPI_4_KILLED, vec![death(Some(1), None, Some("vm"), Signal(9))]),
            (OPEN_MPI_4_EXIT, vec![death(Some(1), None, None, Exit(3))]),
            (OPEN_MPI_5_KILLED, vec![death(Some(1), Some(10720), Some("vm"), Signal(9))]),
            (OPEN_MPI_5_EXIT, vec![death(Some(0), None, None, Exit(3))]),
            (MPICH_KILLED, vec![death(None, Some(10542), Some("vm"), Signal(9))]),
            (
                "=   PID 7 RUNNING AT vm\n=   EXIT CODE: 9\nEXIT STRING: Segmentation fault (signal 11)\n",
                vec![death(None, None, Some("vm"), Signal(11))],
            ),
            (
                "=   PID 7 RUNNING AT vm\n=   EXIT CODE: 3\nEXIT STRING: Killed (signal 9)\n",
                vec![death(None, Some(7), Some("vm"), Exit(3))],
            ),
            ("=   PID 7 RUNNING AT vm\n=   EXIT CODE: 9\n", vec![death(None, Some(7), Some("vm"), Exit(9))]),
            ("srun: error: n1: task 1: Killed", vec![death(Some(1), None, Some("n1"), Signal(9))]),
            (
                "srun: error: n1: tasks 0,2-3: Exited with exit code 3",
                [0, 2, 3].map(|rank| death(Some(rank), None, Some("n1"), Exit(3))).into(),
            ),
        ] {
            let reported = if text.starts_with("srun") { Reported::All } else { Reported::First };
            let expected: Vec<Death> = expected.into_iter().map(|death| Death { reported, ..death }).collect();
            assert_eq!(deaths(text), expected, "{text}");
        }
    }

    #[test]
    fn of_a_step_that_slurm_cancels_only_the_ranks_that_crashed_are_named() {
        let killed = "srun: error: host0: task 1: Killed\nsrun: error: host1: tasks 2-3: Killed\n";
        let cancelled = "slurmstepd-host0: error: *** STEP 1.172 ON host0 CANCELLED AT 2026-11-24T19:22:03 ***\n";
        let crashed = "srun: error: host0: task 0: Segmentation fault (core dumped)\n";
        for (output, ranks) in [
            (format!("{crashed}{cancelled}{killed}"), vec![0]),
            (format!("{crashed}{killed}"), vec![0, 1, 2, 3]),
            (format!("{cancelled}{killed}"), vec![1, 2, 3]),
        ] {
            let found: Vec<u32> = deaths(&output).iter().filter_map(|death| death.rank).collect();
            assert_eq!(found, ranks, "{output}");
        }
    }
}
