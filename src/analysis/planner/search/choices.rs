//! What divides a step beside its degrees.

use commgauge_model::config::step::{Recompute, ScheduleKind};

/// Division of a step, apart from the degrees. The key of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choices {
    pub zero_stage: u8,
    pub schedule: ScheduleKind,
    pub virtual_stages: u32,
    pub micro_batch: u64,
    pub recompute: Recompute,
    pub sequence_parallel: bool,
}

/// Into how many parts the layers are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PipelineCut {
    pub pp: u32,
    pub schedule: ScheduleKind,
    /// Chunks on each rank.
    pub virtual_stages: u32,
}
