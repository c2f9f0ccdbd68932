//! The events of each rank of a pp group in order, and what follows from them: messages and peak activations.

use super::dual_pipe;
use super::event::{Event, Message, Pass};
use super::kind::ScheduleKind;
use commgauge_base::units::Seconds;

/// The events of each rank of a pp group in one optimizer step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub(super) kind: ScheduleKind,
    pub(super) stages: u32,
    pub(super) chunks: u32,
    pub(super) micro_batches: u32,
    pub(super) events: Vec<Vec<Event>>,
}

impl Schedule {
    /// Which schedule it is.
    pub fn kind(&self) -> ScheduleKind {
        self.kind
    }

    /// Ranks of the pp group.
    pub fn stages(&self) -> u32 {
        self.stages
    }

    /// Chunks of each rank: v; for dualpipe 2, one copy of a stage for each direction.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Micro-batches of the step, over both directions of dualpipe.
    pub fn micro_batches(&self) -> u32 {
        self.micro_batches
    }

    /// The events of a rank, in the order in which it runs them. A rank outside the group has none.
    pub fn events(&self, rank: u32) -> &[Event] {
        self.events.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a rank runs this event and the next of its list as one, as DualPipe does with a forward and a whole
    /// backward of the other direction.
    pub fn overlaps_next(&self, rank: u32, event: usize) -> bool {
        match self.kind {
            ScheduleKind::DualPipe => {
                dual_pipe::overlaps_next(self.stages / 2, self.mirrored(rank), self.events(rank), event)
            }
            ScheduleKind::DualPipeV => dual_pipe::overlaps_next(self.stages, rank, self.events(rank), event),
            _ => false,
        }
    }

    /// Distance of a rank from the nearer end of the group.
    pub(super) fn mirrored(&self, rank: u32) -> u32 {
        rank.min((self.stages - 1).saturating_sub(rank))
    }

    /// The messages that a rank sends, in the order of the events that make them. Neighbouring chunks of one rank, as at
    /// the turning point of a V, exchange none.
    pub fn sends(&self, rank: u32) -> impl Iterator<Item = Message> + '_ {
        self.messages(rank, Schedule::consumer_place)
    }

    /// The messages that a rank receives, in the order of the events that wait for them.
    pub fn receives(&self, rank: u32) -> impl Iterator<Item = Message> + '_ {
        self.messages(rank, Schedule::producer_place)
    }

    fn messages(
        &self,
        rank: u32,
        other_end: fn(&Schedule, u32, &Event) -> Option<(u32, u32)>,
    ) -> impl Iterator<Item = Message> + '_ {
        self.events(rank).iter().enumerate().filter_map(move |(place, event)| {
            let (peer, peer_chunk) = other_end(self, rank, event)?;
            let (forward, micro_batch, chunk) = (event.pass == Pass::Forward, event.micro_batch, event.chunk);
            (peer != rank).then_some(Message { peer, forward, micro_batch, chunk, peer_chunk, event: place })
        })
    }

    /// How many activations a rank sends in one step.
    pub fn forward_sends(&self, rank: u32) -> u64 {
        self.sends(rank).filter(|message| message.forward).count() as u64
    }

    /// How many gradients of activations a rank sends in one step.
    pub fn backward_sends(&self, rank: u32) -> u64 {
        self.sends(rank).filter(|message| !message.forward).count() as u64
    }

    /// The largest [`Schedule::forward_sends`] of a rank.
    pub fn forward_sends_per_rank_max(&self) -> u64 {
        (0..self.stages).map(|rank| self.forward_sends(rank)).max().unwrap_or(0)
    }

    /// The largest [`Schedule::backward_sends`] of a rank.
    pub fn backward_sends_per_rank_max(&self) -> u64 {
        (0..self.stages).map(|rank| self.backward_sends(rank)).max().unwrap_or(0)
    }

    /// The most forwards of a chunk whose activations a rank stores at once. They count until the whole backward or
    /// the weight gradient has ended; [`Schedule::peak_activations_with`] considers that the weight gradient needs
    /// fewer of them.
    pub fn peak_activation_chunks(&self, rank: u32) -> u32 {
        let mut stored = 0u32;
        let mut peak = 0;
        for event in self.events(rank) {
            if event.pass == Pass::Forward {
                stored += 1;
                peak = peak.max(stored);
            } else if event.pass.frees_activations() {
                stored = stored.saturating_sub(1);
            }
        }
        peak
    }

    /// [`Schedule::peak_activation_chunks`] in micro-batches of one whole stage: a chunk counts for its share of it.
    pub fn peak_activations(&self, rank: u32) -> f64 {
        f64::from(self.peak_activation_chunks(rank)) / f64::from(self.chunks_per_stage())
    }

    /// As [`Schedule::peak_activations`], if after the input gradient only `weight_gradient_activations` of a
    /// forward's activations are stored for the weight gradient (arXiv 2401.10241 table 1: M_W / M_B).
    pub fn peak_activations_with(&self, rank: u32, weight_gradient_activations: f64) -> f64 {
        let (mut in_flight, mut deferred) = (0i64, 0i64);
        let mut peak = 0.0;
        for event in self.events(rank) {
            match event.pass {
                Pass::Forward => in_flight += 1,
                Pass::Backward => in_flight -= 1,
                Pass::InputGradient => (in_flight, deferred) = (in_flight - 1, deferred + 1),
                Pass::WeightGradient => deferred -= 1,
            }
            peak = f64::max(peak, in_flight as f64 + weight_gradient_activations * deferred as f64);
        }
        peak / f64::from(self.chunks_per_stage())
    }

    /// The largest [`Schedule::peak_activations`] of a rank.
    pub fn peak_activations_max(&self) -> f64 {
        (0..self.stages).map(|rank| self.peak_activations(rank)).fold(0.0, f64::max)
    }

    /// The share of a chunk in a time of `per_stage` for a whole stage.
    pub(super) fn share(&self, per_stage: Seconds) -> Seconds {
        Seconds(per_stage.0 / f64::from(self.chunks_per_stage()))
    }
}
