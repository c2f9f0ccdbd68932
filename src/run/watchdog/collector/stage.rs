//! The stages of a collector, from the first suspicion to the end of a launch.

use super::table::Trigger;
use commgauge_model::record::hang_line::HangLine;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A rank without a heartbeat for this long counts as not answering.
pub(super) const NO_ANSWER_AFTER: Duration = Duration::from_millis(1_200);

/// After a death: time to distinguish it from the ranks that the launcher ends because of it.
pub(super) const DEATH_SETTLING_TIME: Duration = Duration::from_millis(100);

/// How long after the first death others are deaths of their own, where the launcher asks ranks before it kills them.
/// Open MPI 4 was seen to need 60 ms and more to end the others.
pub(super) const DEATH_WINDOW: Duration = Duration::from_millis(30);

/// Whether the launcher asks ranks to end before it kills them: Open MPI's does, a second before, and srun waits as told.
/// Hydra kills the others as soon as one has died.
pub(super) fn launcher_asks_first() -> bool {
    ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Interval of telling ranks and other hosts that this collector is at work.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A host or collector that was not heard of for this long cannot be reached.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_millis(2_500);

/// Stages of a collector.
pub(super) enum Stage {
    Watching,
    /// A rank has died; others may follow.
    Settling(Instant),
    Querying {
        since: Instant,
        trigger: Trigger,
        ras: Option<RasQuery>,
    },
    /// The reason is known and reported. The stacks of the ranks that hold the others up are looked at, before these are ended.
    Stacks {
        since: Instant,
        outcome: Outcome,
        wanted: Vec<u32>,
        /// What is in the file of the report so far.
        report: String,
    },
    /// Rank 0 is asked for the record, so that its end is written before any launcher notices that
    /// the run is over: some take this process along.
    TakingRecord {
        since: Instant,
        outcome: Outcome,
        is_given_up: bool,
    },
    Ending {
        since: Instant,
        outcome: Outcome,
    },
}

/// How a run is ended.
#[derive(Clone)]
pub(super) struct Outcome {
    /// The reason; on the collector that decides.
    pub(super) line: Option<Box<HangLine>>,
    /// The exit code of every rank.
    pub(super) code: i32,
}

/// A pending query to NCCL's service.
pub(super) struct RasQuery {
    pub(super) waiting: Receiver<String>,
    pub(super) answer: Option<String>,
}
