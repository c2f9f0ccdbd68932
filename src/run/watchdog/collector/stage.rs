//! The stages of a collector, from the first suspicion to the end of a launch.

use super::table::Trigger;
use commgauge_model::record::hang_line::HangLine;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A rank without a heartbeat for this long counts as not answering.
pub(super) const NO_ANSWER_AFTER: Duration = Duration::from_millis(1_200);

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
    Ending {
        since: Instant,
        line: Option<Box<HangLine>>,
        code: i32,
    },
}

/// A pending query to NCCL's service.
pub(super) struct RasQuery {
    pub(super) waiting: Receiver<String>,
    pub(super) answer: Option<String>,
}
