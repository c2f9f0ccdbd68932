//! How long `commgauge run` waits for its launch where no watchdog watches: for the ranks to come together, and for the
//! launcher to end.

use super::arguments::RunArguments;
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
/// As the watchdog has it for the end of MPI.
const SHORTEST_END: Duration = Duration::from_secs(10);
/// By then the watchdog has ended the ranks, and a launcher that is alive follows them.
const FAILED: Duration = Duration::from_secs(5);

impl Deadlines {
    /// The deadlines of a launch with these flags.
    pub(super) fn of(arguments: &RunArguments, command: &LaunchCommand, in_slurm: bool) -> Deadlines {
        let is_srun = Path::new(&command.program).file_name().is_some_and(|name| name == "srun");
        let launching = PER_RANK * arguments.ranks;
        let timeout = arguments.timeout;
        Deadlines {
            // Outside of an allocation srun waits until it gets one.
            start: (!is_srun || in_slurm)
                .then(|| launching + timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_START))),
            failed: FAILED,
            ended: timeout.map_or(DEFAULT, |timeout| timeout.max(SHORTEST_END)) + FAILED,
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
        for (line, launcher, in_slurm, start, ended) in [
            ("", "mpirun", false, Some(120), 125),
            ("--timeout 5", "mpirun", false, Some(30), 15),
            ("--timeout 300", "/opt/bin/mpirun", false, Some(300), 305),
            ("--timeout 5", "srun", true, Some(30), 15),
            ("--timeout 5", "/usr/bin/srun", false, None, 15),
        ] {
            let words = ["run", "suite.toml"].into_iter().chain(line.split_whitespace());
            let arguments = RunArguments { ranks: 50, ..Program::parse_from(words).run };
            let command = LaunchCommand {
                environment: Vec::new(),
                program: launcher.to_owned(),
                arguments: Vec::new(),
                stop_signal: None,
            };
            let found = Deadlines::of(&arguments, &command, in_slurm);
            assert_eq!(found.start, start.map(|seconds| Duration::from_secs(seconds + 1)), "{line} {launcher}");
            assert_eq!(found.ended, Duration::from_secs(ended), "{line}");
        }
    }
}
