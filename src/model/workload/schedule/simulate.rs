//! When each event of a schedule starts and ends, given how long passes and messages take.
//!
//! Each rank runs its list in order. An event starts when its rank is free and its input has arrived; a message costs its
//! receiver time, not its sender, and messages do not disturb each other.

use super::event::{Event, Pass};
use super::event_lists::Schedule;
use commgauge_base::units::Seconds;

/// Durations of passes and messages: finite, 0 or more.
pub trait PassCosts {
    /// The seconds of one event on one rank, for its chunk and its micro-batch.
    fn pass(&self, schedule: &Schedule, rank: u32, event: &Event) -> Seconds;

    /// The seconds of a forward and a whole backward that a rank runs as one, F&B of arXiv 2412.19437: as long as one
    /// after the other unless overridden, as only their communication hides.
    fn overlapped(&self, schedule: &Schedule, rank: u32, forward: &Event, backward: &Event) -> Seconds {
        Seconds(self.pass(schedule, rank, forward).0 + self.pass(schedule, rank, backward).0)
    }

    /// The seconds from the end of an event to the arrival of what it sends to another rank.
    fn message(&self, schedule: &Schedule, from_rank: u32, to_rank: u32, event: &Event) -> Seconds;
}

/// The same costs on every rank, for one micro-batch through one whole stage. The costs of a chunk are its share of
/// them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageCosts {
    /// F.
    pub forward: Seconds,
    /// B of the zero-bubble papers.
    pub input_gradient: Seconds,
    /// W of the zero-bubble papers. The whole backward takes B + W.
    pub weight_gradient: Seconds,
    /// One message between two ranks; the same for a chunk as for a whole stage, as its bytes are the same.
    pub communication: Seconds,
}

impl StageCosts {
    /// F = B = W = 1 and messages that cost nothing: the setting in which the papers draw their schedules.
    pub const EQUAL: StageCosts = StageCosts {
        forward: Seconds(1.0),
        input_gradient: Seconds(1.0),
        weight_gradient: Seconds(1.0),
        communication: Seconds(0.0),
    };

    /// Refuses what is no length of time.
    pub(super) fn check(&self) -> Result<(), String> {
        let named = [
            ("forward", self.forward),
            ("input gradient", self.input_gradient),
            ("weight gradient", self.weight_gradient),
            ("communication", self.communication),
        ];
        match named.iter().find(|(_, seconds)| !(seconds.0.is_finite() && seconds.0 >= 0.0)) {
            Some((what, seconds)) => Err(format!("{what} takes {} s, must be 0 or more and finite", seconds.0)),
            None => Ok(()),
        }
    }
}

impl PassCosts for StageCosts {
    fn pass(&self, schedule: &Schedule, _rank: u32, event: &Event) -> Seconds {
        schedule.share(match event.pass {
            Pass::Forward => self.forward,
            Pass::Backward => Seconds(self.input_gradient.0 + self.weight_gradient.0),
            Pass::InputGradient => self.input_gradient,
            Pass::WeightGradient => self.weight_gradient,
        })
    }

    fn message(&self, _schedule: &Schedule, _from_rank: u32, _to_rank: u32, _event: &Event) -> Seconds {
        self.communication
    }
}

/// An event and when it ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedEvent {
    /// The event.
    pub event: Event,
    /// From the start of the step.
    pub start: Seconds,
    /// From the start of the step.
    pub finish: Seconds,
}

/// When everything ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// For each rank its events, in order.
    pub events: Vec<Vec<TimedEvent>>,
}

impl Timeline {
    /// From the first start to the last end over all ranks.
    pub fn makespan(&self) -> Seconds {
        Seconds(self.events.iter().filter_map(|rank| rank.last()).map(|last| last.finish.0).fold(0.0, f64::max))
    }

    /// The seconds in which a rank computes.
    pub fn busy(&self, rank: u32) -> Seconds {
        Seconds(self.of(rank).iter().map(|timed| timed.finish.0 - timed.start.0).sum())
    }

    /// From a rank's own first start to its own last end.
    pub fn span(&self, rank: u32) -> Seconds {
        match self.of(rank) {
            [] => Seconds(0.0),
            [first, .., last] => Seconds(last.finish.0 - first.start.0),
            [only] => Seconds(only.finish.0 - only.start.0),
        }
    }

    /// 1 - busy / makespan, mean over the ranks: the loss if all ranks start and end the step together.
    pub fn bubble_fraction(&self) -> f64 {
        let ranks = self.events.len();
        let busy: f64 = (0..ranks).map(|rank| self.busy(rank as u32).0).sum();
        fraction_lost(busy, self.makespan().0 * ranks as f64)
    }

    /// 1 - busy / span, on the rank with the longest span: the loss if each rank continues with the next step without
    /// waiting for the others. The zero-bubble papers print this one, as (cost - m(F + B + W)) / cost (arXiv
    /// 2401.10241 section 5.3).
    pub fn bubble_fraction_of_longest_span(&self) -> f64 {
        let longest =
            (0..self.events.len() as u32).max_by(|a, b| self.span(*a).0.total_cmp(&self.span(*b).0)).unwrap_or(0);
        fraction_lost(self.busy(longest).0, self.span(longest).0)
    }

    fn of(&self, rank: u32) -> &[TimedEvent] {
        self.events.get(rank as usize).map_or(&[], Vec::as_slice)
    }
}

fn fraction_lost(busy: f64, whole: f64) -> f64 {
    if whole > 0.0 { 1.0 - busy / whole } else { 0.0 }
}

/// Runs the schedule. Takes time proportional to the number of events.
///
/// The error names the first deadlocked rank; it cannot occur in a schedule of [`Schedule::new`].
pub fn simulate(schedule: &Schedule, costs: &impl PassCosts) -> Result<Timeline, String> {
    let ranks = schedule.stages;
    let mut state = State {
        forward_finish: vec![f64::NAN; schedule.slots()],
        backward_finish: vec![f64::NAN; schedule.slots()],
        timeline: (0..ranks).map(|rank| Vec::with_capacity(schedule.events(rank).len())).collect(),
    };
    let mut runnable: Vec<u32> = (0..ranks).rev().collect();
    while let Some(rank) = runnable.pop() {
        while let Some(done) = state.run_next(schedule, costs, rank) {
            // A rank that already runs on finds the input by itself; one that stopped is woken by it.
            for event in done {
                if let Some((to_rank, chunk)) = schedule.consumer_place(rank, event)
                    && to_rank != rank
                    && state
                        .next(schedule, to_rank)
                        .iter()
                        .any(|next| (next.micro_batch, next.chunk) == (event.micro_batch, chunk))
                {
                    runnable.push(to_rank);
                }
            }
        }
    }
    for rank in 0..ranks {
        let done = state.timeline[rank as usize].len();
        if let Some(event) = schedule.events(rank).get(done) {
            return Err(format!(
                "{} is stuck: rank {rank} waits for ever for the input of its event {done}, {:?} of micro-batch {} \
                 through chunk {}",
                schedule.kind, event.pass, event.micro_batch, event.chunk
            ));
        }
    }
    Ok(Timeline { events: state.timeline })
}

struct State {
    /// By slot; NaN until it has run.
    forward_finish: Vec<f64>,
    backward_finish: Vec<f64>,
    timeline: Vec<Vec<TimedEvent>>,
}

impl State {
    /// The next events of a rank: one, two if a forward and a backward overlap, none at the end.
    fn next<'a>(&self, schedule: &'a Schedule, rank: u32) -> &'a [Event] {
        let events = schedule.events(rank);
        let from = self.timeline[rank as usize].len();
        let count = if schedule.overlaps_next(rank, from) { 2 } else { 1 };
        &events[from..events.len().min(from + count)]
    }

    /// Runs what a rank runs next, or nothing where the rank is at its end or an input has not been made yet. Overlapping
    /// events wait for the inputs of both, and what they make leaves when both have ended.
    fn run_next<'a>(&mut self, schedule: &'a Schedule, costs: &impl PassCosts, rank: u32) -> Option<&'a [Event]> {
        let next = self.next(schedule, rank);
        let mut start = self.timeline[rank as usize].last().map_or(0.0, |last| last.finish.0);
        for event in next {
            start = start.max(self.arrival(schedule, costs, rank, event)?);
        }
        let (first, length) = match next {
            [] => return None,
            [only] => (only, costs.pass(schedule, rank, only).0),
            [forward, backward, ..] => (forward, costs.overlapped(schedule, rank, forward, backward).0),
        };
        let finish = start + length;
        // Drawn one after the other, the forward for as much of the whole as it can take.
        let border = if next.len() == 1 { finish } else { finish.min(start + costs.pass(schedule, rank, first).0) };
        for (event, (from, to)) in next.iter().zip([(start, border), (border, finish)]) {
            let timed = TimedEvent { event: *event, start: Seconds(from), finish: Seconds(to) };
            self.timeline[rank as usize].push(timed);
            let slot = schedule.slot(rank, event.chunk, event.micro_batch);
            match event.pass {
                Pass::Forward => self.forward_finish[slot] = finish,
                Pass::Backward | Pass::InputGradient => self.backward_finish[slot] = finish,
                Pass::WeightGradient => {}
            }
        }
        Some(next)
    }

    /// When all that the event needs is there, or none where something of it has not run yet.
    fn arrival(&self, schedule: &Schedule, costs: &impl PassCosts, rank: u32, event: &Event) -> Option<f64> {
        let known = |finish: f64| (!finish.is_nan()).then_some(finish);
        let own = schedule.slot(rank, event.chunk, event.micro_batch);
        let from_self = match event.pass {
            Pass::Forward => 0.0,
            Pass::Backward | Pass::InputGradient => known(self.forward_finish[own])?,
            Pass::WeightGradient => known(self.backward_finish[own])?,
        };
        let Some((from_rank, chunk)) = schedule.producer_place(rank, event) else { return Some(from_self) };
        let slot = schedule.slot(from_rank, chunk, event.micro_batch);
        let finish = if event.pass == Pass::Forward { self.forward_finish[slot] } else { self.backward_finish[slot] };
        let travel = if from_rank == rank { 0.0 } else { costs.message(schedule, from_rank, rank, event).0 };
        Some(from_self.max(known(finish)? + travel))
    }
}
