//! The timed loop in named phases. Start reading at [`measure_case`]; values common to all cases are in
//! [`MeasureContext`].
//!
//! This module is independent of the library that carries out the calls, and prints nothing.

mod batch;
mod calls_per_sample;
mod case;
mod clock;
mod clock_exchange;
mod data_check;
mod division;
mod gathered;
mod hidden_calls;
mod interference;
mod isolated;
mod local;
mod own_times;
mod replay;
mod sampling;
mod soak;
mod stop;
mod streaming;
mod warm_up;

#[cfg(test)]
mod fakes;

pub use batch::Batch;
pub use calls_per_sample::choose_calls_per_sample;
pub use case::{CaseResult, measure_case};
pub use clock::ClockModel;
pub use clock_exchange::CommonClock;
pub use division::{CaseState, divide, divide_rest};
pub use interference::{Repetitions, TogetherTimes, measure_together};
pub use isolated::{Lead, isolated_batch};
pub use local::{LocalTimes, Turns, WARM_UP_RUNS, measure_local};
pub use own_times::RankTimes;
pub use replay::{ReplayContext, line_without_numbers as replay_line_without_numbers, measure_replay};
pub use soak::soak_case;
pub use stop::{Decision, Progress, StopRule, precision_reached};
pub use streaming::{enqueue_stream, stream, streaming_batch};

use crate::world::World;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::record::line::ClockMethod;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default time that enqueued work may take before it counts as hung.
pub const DEFAULT_COMPLETION_DEADLINE: Duration = Duration::from_secs(60);

/// A delay before the call of one rank in every isolated iteration, to verify that the late rank is detected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InjectedDelay {
    /// World rank.
    pub rank: u32,
    /// Injected delay.
    pub delay: Seconds,
}

/// Context shared by all cases of a run.
pub struct MeasureContext<'a> {
    /// The processes.
    pub world: &'a dyn World,
    /// World ranks of this process.
    pub local_ranks: Range<u32>,
    /// Number of ranks.
    pub world_size: u32,
    /// Converts between this process's clock and the common one.
    pub clock: ClockModel,
    /// How isolated iterations are started together.
    pub start: ClockMethod,
    /// Clock resolution: the smallest difference between marks.
    pub clock_resolution_nanoseconds: u64,
    /// How samples are taken.
    pub settings: &'a RunSettings,
    /// Set by a signal; only process 0 reads it and broadcasts it.
    pub interrupted: &'a AtomicBool,
    /// Injected delay, a test option.
    pub injected_delay: Option<InjectedDelay>,
    /// How long enqueued work may take.
    pub completion_deadline: Duration,
}

impl MeasureContext<'_> {
    /// Whether this process decides for all.
    pub(crate) fn decides(&self) -> bool {
        self.world.process() == 0
    }

    /// Whether a signal was received. Read on process 0 only, which includes it in its broadcasts.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
