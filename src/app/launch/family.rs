//! What launchers print: their `--version`, by which they are told apart, and the deaths of ranks.

use commgauge_base::embedded::pairs;
use commgauge_base::writing;
use commgauge_run::launcher::Family;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGKILL, SIGSEGV, SIGTERM};

/// A launcher that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program to run: a name on the search path, or a path.
    ///
    /// A name is not made absolute, because Open MPI takes an absolute path as the order to change the search paths of
    /// the remote hosts (its `--prefix`).
    pub program: String,
    /// The flags it accepts.
    pub family: Family,
    /// Its version, as printed.
    pub version: String,
    /// Whether it can bind ranks to cores: Hydra that was built without a topology library ends where it is asked to.
    pub can_bind: bool,
}

/// The launcher `program`, from the output of its `--version`; none for an unknown one.
pub(super) fn parse_version(program: &str, text: &str) -> Option<Launcher> {
    let (family, version) = parse_family(text)?;
    let can_bind = family != Family::Mpich || has_topology_library(text);
    Some(Launcher { program: program.to_owned(), family, version, can_bind })
}

fn parse_family(text: &str) -> Option<(Family, String)> {
    let first = text.lines().find(|line| !line.trim().is_empty())?.trim();
    if let Some((_, version)) = first.split_once("(Open MPI)").or_else(|| first.split_once("(OpenRTE)")) {
        let version = version.trim().to_owned();
        let major: u32 = leading_number(&version)?;
        return Some((if major >= 5 { Family::OpenMpi5 } else { Family::OpenMpi4 }, version));
    }
    if first.starts_with("HYDRA build details") {
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some((Family::Mpich, version.trim().to_owned()));
    }
    if first.starts_with("Intel(R) MPI Library") {
        let version = first.split_once("Version ")?.1.split(' ').next()?;
        leading_number(version)?;
        return Some((Family::IntelMpi, version.to_owned()));
    }
    // Debian calls it slurm-wlm.
    let (name, version) = first.split_once(' ')?;
    (matches!(name, "slurm" | "slurm-wlm") && leading_number(version).is_some())
        .then(|| (Family::Slurm, version.trim().to_owned()))
}

/// Hydra lists the libraries that it was built with; Debian 11's lists none. A Hydra without that line is taken for able.
fn has_topology_library(text: &str) -> bool {
    let listed = text.lines().find_map(|line| line.trim().strip_prefix("Topology libraries available:"));
    listed.is_none_or(|libraries| !libraries.trim().is_empty())
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

// Parses a launcher's output for ranks that died.
//
// Launchers wrap their sentences at different places, so the text is read word by word.

/// No launch has more.
const MAX_RANKS: usize = 1 << 20;

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
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
    let (rank, pid) = (rank.parse().ok(), pid.parse().ok().filter(|pid| *pid != 0));
    let cause = Cause::Signal(signal.trim_end_matches('.').parse().ok()?);
    Some(Death { rank, pid, host: Some((*host).to_owned()), cause, reported: Reported::First })
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
    let ranks: Vec<u32> = writing::parse(text).take(MAX_RANKS).collect();
    (!ranks.is_empty()).then_some(ranks)
}

// Advice for launcher errors with a known fix.

/// Advice for the first known error in the launcher's output.
pub fn advice(output: &str) -> Option<&'static str> {
    let output = format!("{output}\n").replace('\n', "$\n");
    let fits = |signs: &str| signs.split(" & ").all(|sign| output.contains(sign));
    pairs(include_str!("advice.txt")).find(|(signs, _)| fits(signs)).map(|(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI_4: &str = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";

    const OPEN_MPI_5: &str = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n\n";

    const MPICH: &str = "HYDRA build details:\n    Version:                                 4.0.2\n    \
        Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n    CC:                  gcc\n";

    const INTEL: &str = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\n";

    #[test]
    fn the_family_is_read_from_the_version_text() {
        let known = |family, version: &str| Some((family, version.to_owned()));
        for (text, expected) in [
            ("", None),
            ("\n\n", None),
            ("mpirun: command not understood", None),
            (INTEL, known(Family::IntelMpi, "2021.11")),
            ("Intel(R) MPI Library for Linux* OS", None),
            ("mpirun (Open MPI) unknown", None),
            ("slurm", None),
            (OPEN_MPI_4, known(Family::OpenMpi4, "4.1.4")),
            (OPEN_MPI_5, known(Family::OpenMpi5, "5.0.11")),
            ("mpirun (Open MPI) 10.0.0rc1\n", known(Family::OpenMpi5, "10.0.0rc1")),
            ("mpiexec (OpenRTE) 4.0.3\n", known(Family::OpenMpi4, "4.0.3")),
            (MPICH, known(Family::Mpich, "4.0.2")),
            ("slurm 22.05.8\n", known(Family::Slurm, "22.05.8")),
            ("slurm-wlm 22.05.8\n", known(Family::Slurm, "22.05.8")),
        ] {
            assert_eq!(parse_family(text), expected, "{text}");
        }
    }

    #[test]
    fn hydra_without_a_topology_library_cannot_bind_ranks() {
        let hydra = |line: &str| format!("HYDRA build details:\n    Version:      3.4.1\n{line}");
        for (text, expected) in [
            (
                hydra("    Topology libraries available:            \n    Demux engines available:   poll select\n"),
                false,
            ),
            (hydra("    Topology libraries available:            hwloc\n"), true),
            (hydra(""), true),
            (OPEN_MPI_4.to_owned(), true),
        ] {
            assert_eq!(parse_version("mpiexec", &text).map(|launcher| launcher.can_bind), Some(expected), "{text}");
        }
    }

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

    #[test]
    fn known_errors_have_advice_and_others_have_none() {
        for (output, word) in [
            ("Read -1, expected 65536, errno = 1", Some("btl_vader_single_copy_mechanism")),
            ("There are not enough slots available in the system to satisfy the 8", Some("-n")),
            ("as it could not access\nor execute an executable:\n\nExecutable: ./nix", Some("all hosts share")),
            ("suite: error while loading shared libraries: libmpi.so.40: cannot open", Some("LD_LIBRARY_PATH")),
            ("Read -1, expected 65536, errno = 14", None),
            ("The application appears to have been direct launched using \"srun\",\nbut OMPI", Some("--mpi=pmix")),
            ("all is well", None),
        ] {
            match (advice(output), word) {
                (Some(sentence), Some(word)) => assert!(sentence.contains(word), "{sentence}"),
                (None, None) => {}
                (found, _) => panic!("{output}: {found:?}"),
            }
        }
    }
}
