//! Pipeline schedules as data: for each rank of a pp group the ordered list of passes that it runs in one step.
//!
//! Sends, peak activations and, through [`simulate`], the bubble are derived from the lists. Bytes of a message, seconds of a pass and the
//! traffic of the other axes are outside this module.

mod kinds;
mod simulate;

#[cfg(test)]
mod tests;

pub use kinds::{Event, Message, Pass, PassDirection, Schedule, ScheduleKind};
pub use simulate::{Fitting, PassCosts, StageCosts, TimedEvent, Timeline, simulate};

use kinds::in_turn;
use simulate::Search;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

impl Schedule {
    /// The schedule; searched orders assume passes of equal length and free messages, as drawn in the papers. `virtual_stages` 1 means "not
    /// set" for the kinds with two chunks in a V.
    ///
    /// The error names the violated rule and the nearest accepted values.
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
            ScheduleKind::Naive => kinds::naive(stages, micro_batches),
            ScheduleKind::GPipe => kinds::gpipe(stages, micro_batches),
            ScheduleKind::OneForwardOneBackward => kinds::one_forward_one_backward(stages, micro_batches),
            ScheduleKind::Interleaved => kinds::events(stages, chunks, micro_batches),
            ScheduleKind::InterleavedZb => kinds::zero_bubble(stages, chunks, micro_batches),
            ScheduleKind::ZbH1 => handcrafted(stages, micro_batches, 1),
            ScheduleKind::ZbH2 => handcrafted(stages, micro_batches, 2),
            ScheduleKind::Zb1p => searched(&schedule, fitting, 1)?,
            ScheduleKind::Zb2p => searched(&schedule, fitting, 2)?,
            ScheduleKind::ZbV | ScheduleKind::VHalf | ScheduleKind::VMin => simulate::events(&schedule, fitting)?,
            ScheduleKind::DualPipe => kinds::two_directions(stages, micro_batches),
            ScheduleKind::DualPipeV => kinds::v_shape(stages, micro_batches),
        };
        Ok(schedule)
    }
}

// The part of the model in each chunk of a rank, and the dependencies between events.

impl Schedule {
    /// The index of a rank's local chunk among the model's chunks, counted from the embedding.
    pub fn model_chunk_of(&self, rank: u32, chunk: u32) -> u32 {
        self.kind.model_chunk(self.stages, rank, chunk)
    }

    /// Chunks into which the whole model is divided.
    pub fn model_chunks(&self) -> u32 {
        self.stages * self.chunks_per_stage()
    }

    /// Chunks that together are one stage's share of the model: v, but 1 for dualpipe, whose chunks are two copies.
    #[inline]
    pub fn chunks_per_stage(&self) -> u32 {
        self.chunks / self.kind.parameter_copies()
    }

    /// Rank and local chunk that wait for the result of this event; none at the ends of the model and after a weight gradient.
    fn consumer_place(&self, rank: u32, event: &Event) -> Option<(u32, u32)> {
        match event.pass {
            Pass::WeightGradient => None,
            pass => self.neighbour(rank, event.chunk, pass.direction()),
        }
    }

    /// Source of an event's input: rank and local chunk of the previous (forward) or next (backward) stage.
    fn producer_place(&self, rank: u32, event: &Event) -> Option<(u32, u32)> {
        match event.pass {
            Pass::WeightGradient => None,
            pass => self.neighbour(rank, event.chunk, pass.direction().opposite()),
        }
    }

    /// Rank and local chunk of the model's next chunk in a direction.
    #[inline]
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
    fn slot(&self, rank: u32, chunk: u32, micro_batch: u32) -> usize {
        (rank as usize * self.chunks as usize + chunk as usize) * self.micro_batches as usize + micro_batch as usize
    }

    /// Number of distinct values of [`Schedule::slot`].
    fn slots(&self) -> usize {
        self.stages as usize * self.chunks as usize * self.micro_batches as usize
    }
}

// Schedules shared by many steps: a search over layouts requests few of them, thousands of times.

/// Maximum passes of all cached schedules together, 12 bytes each; beyond that the cache is cleared, and schedules are built again.
const MOST_PASSES: usize = 4_000_000;

/// Kind, stages, virtual stages and micro-batches: the inputs of a schedule.
type Key = (ScheduleKind, u32, u32, u32);

#[derive(Default)]
struct Built {
    schedules: HashMap<Key, Arc<Schedule>>,
    passes: usize,
}

static BUILT: LazyLock<Mutex<Built>> = LazyLock::new(Mutex::default);

impl Schedule {
    /// As [`Schedule::new`], built once in a process.
    ///
    /// # Errors
    /// If a rule is violated.
    pub fn shared(
        kind: ScheduleKind,
        stages: u32,
        virtual_stages: u32,
        micro_batches: u32,
    ) -> Result<Arc<Schedule>, String> {
        let key = (kind, stages, virtual_stages, micro_batches);
        let built = || BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = built().schedules.get(&key) {
            return Ok(Arc::clone(known));
        }
        let schedule = Arc::new(Schedule::new(kind, stages, virtual_stages, micro_batches)?);
        let passes: usize = (0..stages).map(|rank| schedule.events(rank).len()).sum();
        let mut built = built();
        if built.passes + passes > MOST_PASSES {
            *built = Built::default();
        }
        if built.schedules.insert(key, Arc::clone(&schedule)).is_none() {
            built.passes += passes;
        }
        Ok(schedule)
    }
}

// The zero-bubble schedules of one chunk per rank: ZB-H1 and ZB-H2 by hand, ZB-1p and ZB-2p searched.

/// 1F1B with more warm-up and late weight gradients (arXiv 2401.10241 figure 3): `memory` 1 is ZB-H1, 2 is ZB-H2.
///
/// Rank i starts with 1 + memory x (p - 1 - i) forwards before its first backward, and runs the weight gradient of
/// micro-batch k after the input gradient of micro-batch k + memory x i.
fn handcrafted(stages: u32, micro_batches: u32, memory: u32) -> Vec<Vec<Event>> {
    (0..stages)
        .map(|rank| {
            let skeleton = in_turn(memory * (stages - rank - 1), micro_batches, forward, input_gradient);
            let mut list = Vec::with_capacity(3 * micro_batches as usize);
            for event in skeleton {
                list.push(event);
                if event.pass == Pass::InputGradient
                    && let Some(late) = event.micro_batch.checked_sub(memory * rank)
                {
                    list.push(Event { pass: Pass::WeightGradient, micro_batch: late, ..event });
                }
            }
            let first_left = micro_batches.saturating_sub(memory * rank);
            list.extend((first_left..micro_batches).map(|k| Event { pass: Pass::WeightGradient, ..forward(k) }));
            list
        })
        .collect()
}

/// The best order found within `memory` times the activations of 1F1B (arXiv 2401.10241 section 3.1): as many forwards as fit before the
/// first backward arrives, then alternating one forward and one backward, weight gradients in the gaps and where the memory is full.
fn searched(schedule: &Schedule, fitting: &Fitting, memory: u32) -> Result<Vec<Vec<Event>>, String> {
    let limit = memory * schedule.stages;
    // One more forward may delay the first backward by less than one forward, or leave that much idle.
    let mut warm_ups: Vec<Vec<u32>> = [f64::floor, f64::ceil]
        .map(|round: fn(f64) -> f64| forwards_before_first_backward(schedule, &fitting.costs, limit, round))
        .into();
    warm_ups.dedup();
    let search = |warm_up: &Vec<u32>| Search {
        skeleton: warm_up
            .iter()
            .map(|forwards| in_turn(forwards - 1, schedule.micro_batches, forward, input_gradient))
            .collect(),
        limits: vec![limit; schedule.stages as usize],
    };
    simulate::best(schedule, fitting, &warm_ups.iter().map(search).collect::<Vec<_>>())
}

/// For each rank, the number of forwards that fit between its first and the arrival of its first backward. Each rank has at least one more
/// than the next, without which 1F1B would deadlock.
fn forwards_before_first_backward(
    schedule: &Schedule,
    costs: &StageCosts,
    limit: u32,
    round: fn(f64) -> f64,
) -> Vec<u32> {
    let StageCosts { forward, input_gradient, communication, .. } = *costs;
    let stages = schedule.stages;
    let mut forwards = vec![1; stages as usize];
    let start = |rank: u32| f64::from(rank) * (forward.0 + communication.0);
    let mut backward_finish = start(stages - 1) + forward.0 + input_gradient.0;
    for rank in (0..stages - 1).rev() {
        let arrival = backward_finish + communication.0;
        let fitting = round((arrival - start(rank)) / forward.0);
        // With forwards of zero length: as many as the memory allows. The cast saturates at the range of u32.
        let fitting = if fitting.is_nan() { limit } else { fitting as u32 };
        let fewest = forwards[rank as usize + 1] + 1;
        // Each earlier rank needs memory for one more.
        let most = limit.saturating_sub(rank).max(fewest);
        let count = fitting.clamp(fewest, most);
        forwards[rank as usize] = count;
        backward_finish = arrival.max(start(rank) + f64::from(count) * forward.0) + input_gradient.0;
    }
    forwards
}

fn forward(micro_batch: u32) -> Event {
    Event { pass: Pass::Forward, micro_batch, chunk: 0 }
}

fn input_gradient(micro_batch: u32) -> Event {
    Event { pass: Pass::InputGradient, micro_batch, chunk: 0 }
}

#[cfg(test)]
mod unit_tests {

    use super::*;

    #[test]
    fn a_schedule_is_built_once_and_a_broken_rule_is_named_each_time() {
        let ask = || Schedule::shared(ScheduleKind::ZbH1, 3, 1, 7).unwrap();
        assert!(Arc::ptr_eq(&ask(), &ask()));
        assert_eq!(*ask(), Schedule::new(ScheduleKind::ZbH1, 3, 1, 7).unwrap());
        for _ in 0..2 {
            assert!(Schedule::shared(ScheduleKind::Interleaved, 4, 2, 7).is_err());
        }
    }
}
