//! The timed loop in named phases. Start reading at [`measure_case`]; what is common to all cases is in [`MeasureContext`].
//!
//! Nothing here knows which library carries the calls, and nothing here prints.

mod batch;
mod calls_per_sample;
mod case;
mod clock;
mod clock_exchange;
mod data_check;
mod division;
mod interference;
mod isolated;
mod own_times;
mod product;
mod replay;
mod sampling;
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
pub use division::{Seen, divide};
pub use interference::{Repetitions, TogetherTimes, measure_together};
pub use isolated::{Lead, isolated_batch};
pub use own_times::RankTimes;
pub use product::{ProductTimes, WARM_UP_PRODUCTS, measure_product};
pub use replay::{ReplayContext, line_without_numbers as replay_line_without_numbers, measure_replay};
pub use stop::{Decision, Progress, StopRule, precision_reached};
pub use streaming::{enqueue_stream, stream, streaming_batch};

use crate::config::RunSettings;
use crate::record::line::ClockMethod;
use crate::units::Seconds;
use crate::world::World;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long enqueued work may take before it counts as hung, unless asked otherwise.
pub const DEFAULT_COMPLETION_DEADLINE: Duration = Duration::from_secs(60);

/// A delay put before the call of one rank in every isolated iteration, to see that the late rank is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InjectedDelay {
    /// World rank.
    pub rank: u32,
    /// How late it is made to arrive.
    pub delay: Seconds,
}

/// What every case of a run shares.
pub struct MeasureContext<'a> {
    /// The processes.
    pub world: &'a dyn World,
    /// World ranks that this process plays.
    pub local_ranks: Range<u32>,
    /// Ranks of the world.
    pub world_size: u32,
    /// From this process's clock to the common one and back.
    pub clock: ClockModel,
    /// How isolated iterations are started together.
    pub start: ClockMethod,
    /// The smallest difference that marks can tell.
    pub clock_resolution_nanoseconds: u64,
    /// How samples are taken.
    pub settings: &'a RunSettings,
    /// Set by a signal; only process 0 looks at it and tells the others.
    pub interrupted: &'a AtomicBool,
    /// A test option.
    pub injected_delay: Option<InjectedDelay>,
    /// How long enqueued work may take.
    pub completion_deadline: Duration,
}

impl MeasureContext<'_> {
    /// Whether this process decides for all.
    pub(crate) fn decides(&self) -> bool {
        self.world.process() == 0
    }

    /// Whether a signal came. Asked of process 0 only, whose answer travels with what it tells the others.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
