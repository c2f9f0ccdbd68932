//! The time between the end of MPI and the end of the process that a busy launcher needs.

use std::time::Duration;

/// For each rank on the host that shares a processor, so that its launcher comes to read what each of them says at its end.
const PER_SHARING_RANK: Duration = Duration::from_millis(10);
/// A watchdog waits longer than that for a rank that has left.
const LONGEST: Duration = Duration::from_secs(5);

/// Waits, asleep, until the launcher has probably read that this process, on a host of so many processors, has finalised MPI.
///
/// Open MPI's finalisation tells the launcher, and stops waiting for its answer after 2 s. If the launcher sees the end of the process
/// first, it says that it was "exiting improperly" and ends the launch with code 1, although all was in order
/// (github.com/open-mpi/ompi, issues 7833 and 12607). That happens where many ranks share a processor; elsewhere nothing is waited for.
pub fn pause_before_exit(processors: u32) {
    let ranks_here = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|count| count.parse().ok());
    std::thread::sleep(pause_of(ranks_here.unwrap_or(1), processors));
}

fn pause_of(ranks_here: u32, processors: u32) -> Duration {
    let sharing = if ranks_here > processors { ranks_here / processors } else { 0 };
    (PER_SHARING_RANK * sharing).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::pause_of;

    #[test]
    fn ranks_that_share_processors_leave_their_launcher_time_and_others_exit_at_once() {
        for (ranks_here, processors, milliseconds) in
            [(1, 2, 0), (2, 2, 0), (4, 2, 20), (512, 2, 2_560), (4_096, 1, 5_000), (u32::MAX, 1, 5_000)]
        {
            assert_eq!(pause_of(ranks_here, processors).as_millis(), milliseconds, "{ranks_here} on {processors}");
        }
    }
}
