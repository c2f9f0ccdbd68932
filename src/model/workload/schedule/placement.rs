//! The part of the model in each chunk of a rank, and the dependencies between events.

use super::event::{Event, Pass, PassDirection};
use super::event_lists::Schedule;
use super::kind::ScheduleKind;

impl Schedule {
    /// Which of the model's chunks, counted from the embedding, a rank's local chunk is.
    pub fn model_chunk_of(&self, rank: u32, chunk: u32) -> u32 {
        self.kind.model_chunk(self.stages, rank, chunk)
    }

    /// Chunks into which the whole model is divided.
    pub fn model_chunks(&self) -> u32 {
        self.stages * self.chunks_per_stage()
    }

    /// Chunks that together are one stage's share of the model: v, but 1 for dualpipe, whose chunks are two copies.
    pub fn chunks_per_stage(&self) -> u32 {
        self.chunks / self.kind.parameter_copies()
    }

    /// The chunks of a rank that a micro-batch passes: all, but only its direction's in dualpipe.
    pub fn passes_chunk(&self, micro_batch: u32, chunk: u32) -> bool {
        self.kind != ScheduleKind::DualPipe || (chunk == 1) == (micro_batch >= self.micro_batches / 2)
    }

    /// Rank and local chunk that wait for what this event makes; none at the ends of the model and after a weight
    /// gradient.
    pub(super) fn consumer_place(&self, rank: u32, event: &Event) -> Option<(u32, u32)> {
        match event.pass {
            Pass::WeightGradient => None,
            pass => self.neighbour(rank, event.chunk, pass.direction()),
        }
    }

    /// Source of an event's input: rank and local chunk of the stage before (forward) or after (backward).
    pub(super) fn producer_place(&self, rank: u32, event: &Event) -> Option<(u32, u32)> {
        match event.pass {
            Pass::WeightGradient => None,
            pass => self.neighbour(rank, event.chunk, pass.direction().opposite()),
        }
    }

    /// Rank and local chunk of the model's next chunk in a direction.
    fn neighbour(&self, rank: u32, chunk: u32, direction: PassDirection) -> Option<(u32, u32)> {
        let model_chunk = self.model_chunk_of(rank, chunk);
        let wanted = match direction {
            PassDirection::Forward => model_chunk + 1,
            PassDirection::Backward => model_chunk.checked_sub(1)?,
        };
        if wanted >= self.model_chunks() {
            return None;
        }
        Some(match self.kind {
            ScheduleKind::DualPipe if chunk == 1 => (self.stages - 1 - wanted, 1),
            kind if kind.is_v_shaped() && wanted >= self.stages => (2 * self.stages - 1 - wanted, 1),
            _ => (wanted % self.stages, wanted / self.stages),
        })
    }

    /// A number for each place (rank, chunk, micro-batch), below [`Schedule::slots`].
    pub(super) fn slot(&self, rank: u32, chunk: u32, micro_batch: u32) -> usize {
        (rank as usize * self.chunks as usize + chunk as usize) * self.micro_batches as usize + micro_batch as usize
    }

    /// Number of distinct values of [`Schedule::slot`].
    pub(super) fn slots(&self) -> usize {
        self.stages as usize * self.chunks as usize * self.micro_batches as usize
    }
}
