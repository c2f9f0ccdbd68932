//! When every stage starts and ends, by the event schedule, for any number of micro-batches.
//!
//! The events are those of `workload::schedule`. Steps of very many micro-batches are not run to the end: once the pipeline is
//! full every round of p micro-batches adds the same, so what rounds add is carried on.

use super::passes::Passes;
use commgauge_base::units::Seconds;
use commgauge_model::workload::schedule::{Event, Pass, PassCosts, Schedule, ScheduleKind, simulate};

/// Rounds of p micro-batches that are simulated, and the fewest micro-batches in them; every further round adds the
/// mean increment of the second half.
const ROUNDS: u64 = 4;
/// See [`ROUNDS`].
const FEWEST_MICRO_BATCHES: u64 = 64;

/// A pipeline with the times of its passes.
pub(super) struct Pipeline<'a> {
    pub kind: ScheduleKind,
    pub virtual_stages: u32,
    pub micro_batches: u64,
    /// The passes of each stage.
    pub stages: Vec<&'a Passes>,
    /// A message of activations to the next stage, and of gradients to the one before.
    pub message_forward: f64,
    pub message_backward: f64,
}

/// When the stages run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StageTimes {
    /// From the start to the last end.
    pub makespan: f64,
    /// When each stage begins its first pass.
    pub starts: Vec<f64>,
    /// When each stage ends its last pass.
    pub ends: Vec<f64>,
}

impl Pipeline<'_> {
    /// Runs the schedule.
    ///
    /// # Errors
    /// The rule of the schedule that is broken.
    pub fn span(&self) -> Result<StageTimes, String> {
        let p = self.stages.len() as u32;
        let m = self.micro_batches;
        if p == 1 {
            let each: f64 = self.stages.iter().map(|stage| stage.forward() + stage.backward()).sum();
            let end = m as f64 * each;
            return Ok(StageTimes { makespan: end, starts: vec![0.0], ends: vec![end] });
        }
        let round = u64::from(p);
        let rounds = ROUNDS.max(FEWEST_MICRO_BATCHES.div_ceil(round));
        if m < (rounds + 1) * round {
            return self.run(m as u32);
        }
        let more = rounds * round + m % round;
        let half = rounds / 2;
        let shorter = self.run((more - half * round) as u32)?;
        let mut span = self.run(more as u32)?;
        let further = ((m - more) / round) as f64 * (span.makespan - shorter.makespan) / half as f64;
        span.makespan += further;
        span.ends.iter_mut().for_each(|end| *end += further);
        Ok(span)
    }

    pub(super) fn run(&self, micro_batches: u32) -> Result<StageTimes, String> {
        let schedule = Schedule::shared(self.kind, self.stages.len() as u32, self.virtual_stages, micro_batches)?;
        let timeline = simulate(&schedule, self)?;
        let first = |rank: &Vec<_>| {
            rank.first().map_or(0.0, |event: &commgauge_model::workload::schedule::TimedEvent| event.start.0)
        };
        let last = |rank: &Vec<_>| {
            rank.last().map_or(0.0, |event: &commgauge_model::workload::schedule::TimedEvent| event.finish.0)
        };
        Ok(StageTimes {
            makespan: timeline.makespan().0,
            starts: timeline.events.iter().map(first).collect(),
            ends: timeline.events.iter().map(last).collect(),
        })
    }
}

impl PassCosts for Pipeline<'_> {
    fn pass(&self, _schedule: &Schedule, rank: u32, event: &Event) -> Seconds {
        let chunk = self.stages.get(rank as usize).and_then(|stage| stage.chunks.get(event.chunk as usize));
        let Some(chunk) = chunk else { return Seconds(0.0) };
        Seconds(match event.pass {
            Pass::Forward => chunk.forward,
            Pass::Backward => chunk.backward,
            Pass::InputGradient => chunk.backward - chunk.weight_gradient,
            Pass::WeightGradient => chunk.weight_gradient,
        })
    }

    fn message(&self, _schedule: &Schedule, _from_rank: u32, _to_rank: u32, event: &Event) -> Seconds {
        Seconds(if event.pass == Pass::Forward { self.message_forward } else { self.message_backward })
    }
}
