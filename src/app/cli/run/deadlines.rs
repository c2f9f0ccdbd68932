//! How long `commgauge run` waits for its launch where no watchdog watches: for the ranks to come together, and for the
//! launcher to end.

use super::arguments::RunArguments;
use super::commands::cores;
use crate::launch::LaunchCommand;
use std::path::Path;
use std::time::Duration;

/// Deadlines of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// From the start of the launcher to the first line of the record; none where the launcher may wait in a queue.
    pub start: Option<Duration>,
    /// From the end of a run that failed to that of its launcher.
    pub failed: Duration,
    /// The same for a run that ended in order: its ranks still finalise MPI, which the watchdog watches.
    pub ended: Duration,
}

/// To start ranks takes that long on a busy machine, and on many hosts longer.
const SHORTEST_START: Duration = Duration::from_secs(30);
const DEFAULT: Duration = Duration::from_secs(120);
const PER_RANK: Duration = Duration::from_millis(20);
/// Ranks that wait for the others poll in turns with those that still start, so that each that shares a processor starts that much later
/// for every other one on it. Open MPI 4 needs a third of it.
const PER_SHARING_RANK: Duration = Duration::from_millis(5);
/// As the watchdog has it for the end of MPI.
const SHORTEST_END: Duration = Duration::from_secs(10);
/// By then the watchdog has ended the ranks, and a launcher that is alive follows them. With the report before it, and the time that a
/// launcher has between being terminated and killed, all is over within 10 s of a deadline.
const FAILED: Duration = Duration::from_secs(4);
/// For a launcher to end after the last rank has.
const AFTER_FINALIZE: Duration = Duration::from_secs(5);

impl Deadlines {
    /// The deadlines of a launch with these flags.
    pub(super) fn of(arguments: &RunArguments, command: &LaunchCommand, in_slurm: bool) -> Deadlines {
        Deadlines::on_cores(arguments, command, in_slurm, cores(in_slurm))
    }

    fn on_cores(arguments: &RunArguments, command: &LaunchCommand, in_slurm: bool, cores: u32) -> Deadlines {
        let is_srun = Path::new(&command.program).file_name().is_some_and(|name| name == "srun");
        let sharing = (arguments.ranks / cores.max(1)).saturating_sub(1);
        let launching = PER_RANK * arguments.ranks + PER_SHARING_RANK * sharing * arguments.ranks;
        let timeout = arguments.timeout;
        Deadlines {
            // Outside of an allocation srun waits until it gets one.
            start: (!is_srun || in_slurm)
                .then(|| launching + timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_START))),
            failed: FAILED,
            ended: timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_END)) + AFTER_FINALIZE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn the_timeout_covers_start_and_end_and_is_never_too_short_for_them() {
        for (line, launcher, in_slurm, ranks, start, ended) in [
            ("", "mpirun", false, 50, Some(121), 125),
            ("--timeout 5", "mpirun", false, 50, Some(31), 15),
            ("--timeout 300", "/opt/bin/mpirun", false, 50, Some(301), 305),
            ("--timeout 5", "srun", true, 50, Some(31), 15),
            ("--timeout 5", "/usr/bin/srun", false, 50, None, 15),
            ("--timeout 5", "mpirun", false, 99, Some(31), 15),
            ("--timeout 5", "mpirun", false, 100, Some(32), 15),
            ("--timeout 5", "mpirun", false, 500, Some(62), 15),
            ("", "mpirun", false, 3_200, Some(1_192), 125),
        ] {
            let words = ["run", "suite.toml"].into_iter().chain(line.split_whitespace());
            let arguments = RunArguments { ranks, ..Program::parse_from(words).run };
            let command = LaunchCommand {
                environment: Vec::new(),
                program: launcher.to_owned(),
                arguments: Vec::new(),
                stop_signal: None,
            };
            let found = Deadlines::on_cores(&arguments, &command, in_slurm, 50);
            assert_eq!(found.start.map(|start| start.as_secs()), start, "{line} {launcher} {ranks}");
            assert_eq!(found.ended, Duration::from_secs(ended), "{line}");
        }
    }
}
