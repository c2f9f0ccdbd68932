//! Pipeline schedules as data: for each rank of a pp group the ordered list of passes that it runs in one step.
//!
//! Sends, peak activations and, through [`simulate`], the bubble are derived from the lists. Bytes of a message,
//! seconds of a pass and the traffic of the other axes are not known here.

mod dual_pipe;
mod event;
mod event_lists;
mod interleaved;
mod kind;
mod list_scheduler;
mod placement;
mod shared;
mod simulate;
mod single_chunk;
mod text;
mod v_shape;
mod zero_bubble;

#[cfg(test)]
mod tests;

pub use event::{Event, Message, Pass, PassDirection};
pub use event_lists::Schedule;
pub use kind::ScheduleKind;
pub use list_scheduler::Fitting;
pub use simulate::{PassCosts, StageCosts, TimedEvent, Timeline, simulate};
pub use text::{timeline_text, timeline_text_columns};

impl Schedule {
    /// The schedule, its order searched for passes of equal length and messages that cost nothing, as the papers draw
    /// it. `virtual_stages` 1 means "not set" for the kinds with two chunks in a V.
    ///
    /// The error names the rule that is broken and the nearest accepted values.
    pub fn new(kind: ScheduleKind, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<Schedule, String> {
        Schedule::fitted(kind, stages, virtual_stages, micro_batches, &Fitting::EQUAL)
    }

    /// As [`Schedule::new`], but the kinds whose order is searched (zb-1p, zb-2p, zb-v, v-half, v-min) are fitted to
    /// these costs and this memory. The order of the other kinds does not depend on them.
    pub fn fitted(
        kind: ScheduleKind,
        stages: u32,
        virtual_stages: u32,
        micro_batches: u32,
        fitting: &Fitting,
    ) -> Result<Schedule, String> {
        let chunks = kind.check(stages, virtual_stages, micro_batches)?;
        fitting.check()?;
        let mut schedule = Schedule { kind, stages, chunks, micro_batches, events: Vec::new() };
        schedule.events = match kind {
            ScheduleKind::Naive => single_chunk::naive(stages, micro_batches),
            ScheduleKind::GPipe => single_chunk::gpipe(stages, micro_batches),
            ScheduleKind::OneForwardOneBackward => single_chunk::one_forward_one_backward(stages, micro_batches),
            ScheduleKind::Interleaved => interleaved::events(stages, chunks, micro_batches),
            ScheduleKind::InterleavedZb => interleaved::zero_bubble(stages, chunks, micro_batches),
            ScheduleKind::ZbH1 => zero_bubble::handcrafted(stages, micro_batches, 1),
            ScheduleKind::ZbH2 => zero_bubble::handcrafted(stages, micro_batches, 2),
            ScheduleKind::Zb1p => zero_bubble::searched(&schedule, fitting, 1)?,
            ScheduleKind::Zb2p => zero_bubble::searched(&schedule, fitting, 2)?,
            ScheduleKind::ZbV | ScheduleKind::VHalf | ScheduleKind::VMin => v_shape::events(&schedule, fitting)?,
            ScheduleKind::DualPipe => dual_pipe::two_directions(stages, micro_batches),
            ScheduleKind::DualPipeV => dual_pipe::v_shape(stages, micro_batches),
        };
        Ok(schedule)
    }
}
