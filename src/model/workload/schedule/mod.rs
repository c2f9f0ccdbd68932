//! Pipeline schedules as data: for each rank of a pp group the ordered list of passes that it runs in one step.
//!
//! Sends, peak activations and, through [`simulate`], the bubble are derived from the lists. Bytes of a message,
//! seconds of a pass and the traffic of the other axes are not known here.

mod dual_pipe;
mod interleaved;
mod kind;
mod list_scheduler;
mod placement;
mod simulate;
mod single_chunk;
mod text;
mod v_shape;
mod zero_bubble;

#[cfg(test)]
mod tests;

pub use kind::ScheduleKind;
pub use list_scheduler::Fitting;
pub use simulate::{PassCosts, StageCosts, TimedEvent, Timeline, simulate};
pub use text::{timeline_text, timeline_text_columns};

use commgauge_base::units::Seconds;

/// Kind of computing of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// F: the activations of a micro-batch through the layers of a chunk.
    Forward,
    /// The whole backward: the gradients of the input and of the weights as one pass.
    Backward,
    /// B of the zero-bubble papers: the gradient of the input alone, which the stage before waits for.
    InputGradient,
    /// W of the zero-bubble papers: the gradient of the weights alone, on which no other pass depends.
    WeightGradient,
}

impl Pass {
    /// Whether the activations of its forward are freed when it ends.
    fn frees_activations(self) -> bool {
        matches!(self, Pass::Backward | Pass::WeightGradient)
    }
}

/// One pass of one micro-batch through one of the rank's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// What is computed.
    pub pass: Pass,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// Index of the chunk among those of the rank, from 0; [`Schedule::model_chunk_of`] returns its layers.
    pub chunk: u32,
}

/// A point-to-point message between two ranks: the activations of a forward, or the gradients of a backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The rank at the other end.
    pub peer: u32,
    /// Whether it carries activations to the next chunk of the model; gradients to the chunk before otherwise.
    pub forward: bool,
    /// The micro-batch of its activations or gradients.
    pub micro_batch: u32,
    /// The chunk of the rank at this end whose event makes the message or waits for it.
    pub chunk: u32,
    /// The chunk of the rank at the other end.
    pub peer_chunk: u32,
    /// The place of that event in the list of this end: the message leaves after it, or must be there before it.
    pub event: usize,
}

/// The events of each rank of a pp group in one optimizer step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    kind: ScheduleKind,
    stages: u32,
    chunks: u32,
    micro_batches: u32,
    events: Vec<Vec<Event>>,
}

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
    fn mirrored(&self, rank: u32) -> u32 {
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
    fn share(&self, per_stage: Seconds) -> Seconds {
        Seconds(per_stage.0 / f64::from(self.chunks_per_stage()))
    }
}
