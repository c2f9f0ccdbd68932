//! The start and end of each event of a schedule, given the durations of passes and messages.
//!
//! Each rank runs its list in order. An event starts when its rank is free and its input has arrived; a message costs time for its
//! receiver, not its sender, and messages do not disturb each other.

use super::kinds::{Event, Pass, Schedule, ScheduleKind};
use commgauge_base::units::Seconds;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Durations of passes and messages: finite, 0 or more.
pub trait PassCosts {
    /// The seconds of one event on one rank, for its chunk and its micro-batch.
    fn pass(&self, schedule: &Schedule, rank: u32, event: &Event) -> Seconds;

    /// The seconds of a forward and a whole backward that a rank runs as one, F&B of arXiv 2412.19437: the sum of both unless overridden,
    /// as only their communication is hidden.
    fn overlapped(&self, schedule: &Schedule, rank: u32, forward: &Event, backward: &Event) -> Seconds {
        Seconds(self.pass(schedule, rank, forward).0 + self.pass(schedule, rank, backward).0)
    }

    /// The seconds from the end of an event to the arrival of its message at another rank.
    fn message(&self, schedule: &Schedule, from_rank: u32, to_rank: u32, event: &Event) -> Seconds;
}

/// Equal costs on every rank, for one micro-batch through one whole stage. A chunk costs its share of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageCosts {
    pub forward: Seconds,
    /// B of the zero-bubble papers.
    pub input_gradient: Seconds,
    /// W of the zero-bubble papers. The whole backward takes B + W.
    pub weight_gradient: Seconds,
    /// One message between two ranks; the same for a chunk as for a whole stage, as the bytes are the same.
    pub communication: Seconds,
}

impl StageCosts {
    /// F = B = W = 1 and free messages: the setting of the drawings in the papers.
    pub const EQUAL: StageCosts = StageCosts {
        forward: Seconds(1.0),
        input_gradient: Seconds(1.0),
        weight_gradient: Seconds(1.0),
        communication: Seconds(0.0),
    };

    /// Rejects invalid durations.
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

/// An event and its times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedEvent {
    pub event: Event,
    /// From the start of the step.
    pub start: Seconds,
    /// From the start of the step.
    pub finish: Seconds,
}

/// The times of all events.
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

    /// From a rank's own first start to its own last end.
    pub fn span(&self, rank: u32) -> Seconds {
        match self.of(rank) {
            [] => Seconds(0.0),
            [first, .., last] => Seconds(last.finish.0 - first.start.0),
            [only] => Seconds(only.finish.0 - only.start.0),
        }
    }

    fn of(&self, rank: u32) -> &[TimedEvent] {
        self.events.get(rank as usize).map_or(&[], Vec::as_slice)
    }
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
            // A rank that still runs finds the input by itself; an idle one is woken by it.
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
                "{} is stuck: rank {rank} blocks forever on the input of its event {done}, {:?} of micro-batch {} \
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

    /// Runs the next events of a rank, or nothing if the rank is at its end or an input does not exist yet. Overlapping events wait for the
    /// inputs of both, and their results leave when both have ended.
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

    /// The time at which all inputs of the event have arrived, or `None` if one does not exist yet.
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

// Inserts weight gradients into a given order of forwards and input gradients, within a memory limit.
//
// The papers solve this by an integer program and heuristics; this is a heuristic: a simulation in which each rank decides, whenever it is
// free, from its arrived inputs. The same input gives the same order.

/// Costs and memory to which a searched order is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitting {
    /// Durations of passes and messages.
    pub costs: StageCosts,
    /// The part of a forward's activations that is stored between input gradient and weight gradient: M_W / M_B of
    /// arXiv 2401.10241 table 1, 32 / (34 + 5 a s / h) for a layer of GPT. 1 stores all, the conservative assumption.
    pub weight_gradient_activations: f64,
}

impl Fitting {
    /// Passes of equal length, free messages, all activations stored until the weight gradient.
    pub const EQUAL: Fitting = Fitting { costs: StageCosts::EQUAL, weight_gradient_activations: 1.0 };

    /// Rejects invalid durations and shares of the activations.
    pub(super) fn check(&self) -> Result<(), String> {
        self.costs.check()?;
        let part = self.weight_gradient_activations;
        if (0.0..=1.0).contains(&part) {
            return Ok(());
        }
        Err(format!("{part} of the activations are kept for the weight gradient, must be 0 to 1"))
    }
}

/// Constraints of the order.
pub(super) struct Search {
    /// For each rank its forwards and input gradients, in an order that cannot deadlock.
    pub skeleton: Vec<Vec<Event>>,
    /// Maximum of the stored activations of each rank, in forwards of a chunk.
    pub limits: Vec<u32>,
}

/// A rank's decisions while its next event has not arrived.
#[derive(Clone, Copy)]
struct Policy {
    /// Whether a later event that has arrived may run first, if the memory allows it.
    overtakes: bool,
    /// Minimum gap for a weight gradient, as a part of its length; longer gaps wait otherwise.
    least_gap: f64,
}

/// The order of the shortest step among all searches and policies: shortest by the longest span of a rank, as in the
/// zero-bubble paper (arXiv 2401.10241 equation 3), then by the makespan; the first among equals.
pub(super) fn best(schedule: &Schedule, fitting: &Fitting, searches: &[Search]) -> Result<Vec<Vec<Event>>, String> {
    let mut best: Option<Candidate> = None;
    for search in searches {
        for overtakes in [false, true] {
            for least_gap in [1.0, 0.5, 0.0] {
                let events = Ranks::new(schedule, fitting, search, Policy { overtakes, least_gap }).run();
                let candidate = Schedule { events, ..schedule.clone() };
                let timeline = simulate(&candidate, &fitting.costs)?;
                let longest = (0..schedule.stages).map(|rank| timeline.span(rank).0).fold(0.0, f64::max);
                let cost = (longest, timeline.makespan().0);
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, candidate.events));
                }
            }
        }
    }
    Ok(best.map(|(_, events)| events).unwrap_or_default())
}

/// The longest span and the makespan, and the lists that take them.
type Candidate = ((f64, f64), Vec<Vec<Event>>);

/// A time at which a rank may have work.
#[derive(PartialEq)]
struct Wake {
    time: f64,
    rank: u32,
}

impl Eq for Wake {}

impl Ord for Wake {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.time.total_cmp(&other.time).then(self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Wake {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Ranks<'a> {
    schedule: &'a Schedule,
    fitting: &'a Fitting,
    policy: Policy,
    /// How many events ahead a rank looks for one that has arrived.
    window: usize,
    ranks: Vec<Rank<'a>>,
    /// By slot: arrival time of the input from the stage before (or after); NaN until it is known.
    forward_arrival: Vec<f64>,
    backward_arrival: Vec<f64>,
    wakes: BinaryHeap<Reverse<Wake>>,
}

struct Rank<'a> {
    skeleton: &'a [Event],
    limit: u32,
    run: Vec<bool>,
    /// The first event of the skeleton that has not run.
    head: usize,
    free_at: f64,
    /// Forwards without their input gradient.
    in_flight: u32,
    deferred: VecDeque<Event>,
    order: Vec<Event>,
}

impl<'a> Ranks<'a> {
    fn new(schedule: &'a Schedule, fitting: &'a Fitting, search: &'a Search, policy: Policy) -> Ranks<'a> {
        let rank = |(skeleton, limit): (&'a Vec<Event>, &u32)| Rank {
            skeleton,
            limit: *limit,
            run: vec![false; skeleton.len()],
            head: 0,
            free_at: 0.0,
            in_flight: 0,
            deferred: VecDeque::new(),
            order: Vec::with_capacity(skeleton.len() / 2 * 3),
        };
        Ranks {
            schedule,
            fitting,
            policy,
            window: 2 * schedule.stages as usize * schedule.chunks as usize,
            ranks: search.skeleton.iter().zip(&search.limits).map(rank).collect(),
            forward_arrival: vec![f64::NAN; schedule.slots()],
            backward_arrival: vec![f64::NAN; schedule.slots()],
            wakes: (0..schedule.stages).map(|rank| Reverse(Wake { time: 0.0, rank })).collect(),
        }
    }

    fn run(mut self) -> Vec<Vec<Event>> {
        while let Some(Reverse(Wake { time, rank })) = self.wakes.pop() {
            if time < self.ranks[rank as usize].free_at {
                continue; // busy: it is woken when it is free
            }
            match self.decide(time, rank) {
                Decision::Run(index) => self.start(time, rank, index),
                Decision::WeightGradient => self.start_weight_gradient(time, rank),
                Decision::WaitUntil(arrival) => self.wakes.push(Reverse(Wake { time: arrival, rank })),
                Decision::WaitForEvent => {}
            }
        }
        self.ranks.into_iter().map(|rank| rank.order).collect()
    }

    fn decide(&self, now: f64, rank: u32) -> Decision {
        let own = &self.ranks[rank as usize];
        let weight_gradient =
            || if own.deferred.is_empty() { Decision::WaitForEvent } else { Decision::WeightGradient };
        let Some(head) = own.skeleton.get(own.head) else { return weight_gradient() };
        let stored = f64::from(own.in_flight) + self.fitting.weight_gradient_activations * own.deferred.len() as f64;
        // The sum of parts may be off by rounding.
        let full = stored + 1.0 > f64::from(own.limit) + 1e-9;
        if full && head.pass == Pass::Forward && !own.deferred.is_empty() {
            return Decision::WeightGradient;
        }
        let arrival = self.arrival(rank, head);
        if arrival.is_some_and(|arrival| arrival <= now) {
            return Decision::Run(own.head);
        }
        if self.policy.overtakes
            && let Some(index) = self.overtaking(now, rank, full)
        {
            return Decision::Run(index);
        }
        let needed = self.policy.least_gap * self.fitting.costs.pass(self.schedule, rank, &weight(head)).0;
        match arrival {
            Some(arrival) if own.deferred.is_empty() || arrival - now < needed => Decision::WaitUntil(arrival),
            _ => weight_gradient(),
        }
    }

    /// A later event of the rank that has arrived: a backward, or a forward for which there is memory until its turn.
    fn overtaking(&self, now: f64, rank: u32, full: bool) -> Option<usize> {
        let own = &self.ranks[rank as usize];
        let mut in_flight = own.in_flight;
        let mut most_in_flight = in_flight;
        for index in own.head..own.skeleton.len().min(own.head + self.window) {
            let event = &own.skeleton[index];
            if own.run[index] {
                continue;
            }
            let arrived = self.arrival(rank, event).is_some_and(|arrival| arrival <= now);
            let forward = event.pass == Pass::Forward;
            if arrived && (!forward || (!full && most_in_flight < own.limit)) {
                return Some(index);
            }
            in_flight = if forward { in_flight + 1 } else { in_flight.saturating_sub(1) };
            most_in_flight = most_in_flight.max(in_flight);
        }
        None
    }

    /// Arrival time of an event's input, if known.
    fn arrival(&self, rank: u32, event: &Event) -> Option<f64> {
        let slot = self.schedule.slot(rank, event.chunk, event.micro_batch);
        let arrivals = if event.pass == Pass::Forward { &self.forward_arrival } else { &self.backward_arrival };
        if event.pass == Pass::Forward && self.schedule.producer_place(rank, event).is_none() {
            return Some(0.0);
        }
        (!arrivals[slot].is_nan()).then(|| arrivals[slot])
    }

    fn start(&mut self, now: f64, rank: u32, index: usize) {
        let own = &mut self.ranks[rank as usize];
        let event = own.skeleton[index];
        own.run[index] = true;
        while own.run.get(own.head) == Some(&true) {
            own.head += 1;
        }
        if event.pass == Pass::Forward {
            own.in_flight += 1;
        } else {
            own.in_flight -= 1;
            own.deferred.push_back(weight(&event));
        }
        let finish = self.occupy(now, rank, event);
        self.announce(rank, &event, finish);
    }

    fn start_weight_gradient(&mut self, now: f64, rank: u32) {
        if let Some(event) = self.ranks[rank as usize].deferred.pop_front() {
            self.occupy(now, rank, event);
        }
    }

    fn occupy(&mut self, now: f64, rank: u32, event: Event) -> f64 {
        let finish = now + self.fitting.costs.pass(self.schedule, rank, &event).0;
        let own = &mut self.ranks[rank as usize];
        own.order.push(event);
        own.free_at = finish;
        self.wakes.push(Reverse(Wake { time: finish, rank }));
        finish
    }

    /// Sets the time at which the rank that waits for an event receives its input.
    fn announce(&mut self, rank: u32, event: &Event, finish: f64) {
        let forward = event.pass == Pass::Forward;
        let (to_rank, chunk, to_forward) = match self.schedule.consumer_place(rank, event) {
            Some((to_rank, chunk)) => (to_rank, chunk, forward),
            // The last chunk of the model turns its own forward into a backward.
            None if forward => (rank, event.chunk, false),
            None => return,
        };
        let travel =
            if to_rank == rank { 0.0 } else { self.fitting.costs.message(self.schedule, rank, to_rank, event).0 };
        let slot = self.schedule.slot(to_rank, chunk, event.micro_batch);
        let arrivals = if to_forward { &mut self.forward_arrival } else { &mut self.backward_arrival };
        arrivals[slot] = finish + travel;
        self.wakes.push(Reverse(Wake { time: finish + travel, rank: to_rank }));
    }
}

enum Decision {
    /// This event of the skeleton.
    Run(usize),
    WeightGradient,
    WaitUntil(f64),
    /// Until the next announcement.
    WaitForEvent,
}

fn weight(event: &Event) -> Event {
    Event { pass: Pass::WeightGradient, ..*event }
}

// The schedules of two chunks per rank in a V: ZB-V, V-Half and V-Min.

/// The best order found within the memory limit of the kind.
pub(super) fn events(schedule: &Schedule, fitting: &Fitting) -> Result<Vec<Vec<Event>>, String> {
    let stages = schedule.stages;
    let (skeleton, limit): (Vec<Vec<Event>>, u32) = match schedule.kind {
        ScheduleKind::VHalf => (blocks(schedule, half_block), 2 * ((stages + 2) / 2)),
        ScheduleKind::VMin => (blocks(schedule, third_block), 2 * ((stages + 4) / 3)),
        _ => ((0..stages).map(|rank| zero_bubble(schedule, rank)).collect(), 2 * stages),
    };
    best(schedule, fitting, &[Search { skeleton, limits: vec![limit; stages as usize] }])
}

/// The order of forwards and input gradients of ZB-V (arXiv 2401.10241 section 6 and figure 8): 2p - 1 forwards, then groups of a forward
/// and a backward of the second chunk, then groups of both chunks alternating.
fn zero_bubble(schedule: &Schedule, rank: u32) -> Vec<Event> {
    let (stages, micro_batches) = (schedule.stages, schedule.micro_batches);
    let mut list = Vec::with_capacity(4 * micro_batches as usize);
    let mut next = [[0u32; 2]; 2];
    // Passes beyond the last micro-batch are dropped; the remaining order stays possible.
    let mut push = |pass: Pass, chunk: u32| {
        let count = &mut next[usize::from(pass == Pass::InputGradient)][chunk as usize];
        if *count < micro_batches {
            list.push(Event { pass, micro_batch: *count, chunk });
            *count += 1;
        }
    };
    for _ in 0..2 * (stages - rank) - 1 {
        push(Pass::Forward, 0);
    }
    for _ in 0..rank {
        push(Pass::Forward, 1);
        push(Pass::Forward, 0);
    }
    for _ in 0..stages - rank - 1 {
        push(Pass::Forward, 1);
        push(Pass::InputGradient, 1);
    }
    for _ in 0..micro_batches {
        push(Pass::Forward, 1);
        push(Pass::InputGradient, 1);
        push(Pass::Forward, 0);
        push(Pass::InputGradient, 0);
    }
    list
}

/// Start times of one micro-batch on a rank, in passes: forward of chunk 0 and 1, input gradient of chunk 1 and 0.
type Block = [u32; 4];

/// A new micro-batch starts every six passes: F, B and W of two chunks.
const INTERVAL: u32 = 6;

/// V-Half: F of the first chunk runs at half speed, so that activations stored long in one chunk are stored shortly in
/// the other (arXiv 2405.15362 section 3 and appendix; the shift for even p separates the passes of a rank).
fn half_block(stages: u32, rank: u32) -> Block {
    let shift = if stages.is_multiple_of(2) { 3 } else { 0 };
    let (p, i) = (stages, rank);
    [2 * i, 3 * p - 2 - i, 3 * p + shift - 1 + 2 * i, 6 * p + shift - 2 - i]
}

/// V-Min: down, up, down and up again without a wait (arXiv 2405.15362 section 3 and appendix; the shift where 3
/// divides p separates the passes of a rank).
fn third_block(stages: u32, rank: u32) -> Block {
    let shift = if stages.is_multiple_of(3) { 2 } else { 0 };
    let (p, i) = (stages, rank);
    [i, 2 * p - 1 - i, 2 * p + shift + i, 4 * p + shift - 1 - i]
}

/// The building block of each rank, repeated for each micro-batch, in order of time.
fn blocks(schedule: &Schedule, block: fn(u32, u32) -> Block) -> Vec<Vec<Event>> {
    const ROLES: [(Pass, u32); 4] =
        [(Pass::Forward, 0), (Pass::Forward, 1), (Pass::InputGradient, 1), (Pass::InputGradient, 0)];
    (0..schedule.stages)
        .map(|rank| {
            let block = block(schedule.stages, rank);
            let mut timed: Vec<(u64, Event)> = (0..schedule.micro_batches)
                .flat_map(|micro_batch| {
                    ROLES.into_iter().zip(block).map(move |((pass, chunk), start)| {
                        let time = u64::from(start) + u64::from(INTERVAL) * u64::from(micro_batch);
                        (time, Event { pass, micro_batch, chunk })
                    })
                })
                .collect();
            timed.sort_by_key(|(time, _)| *time);
            timed.into_iter().map(|(_, event)| event).collect()
        })
        .collect()
}

#[cfg(test)]
impl Timeline {
    /// The seconds in which a rank computes.
    pub fn busy(&self, rank: u32) -> Seconds {
        Seconds(self.of(rank).iter().map(|timed| timed.finish.0 - timed.start.0).sum())
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
}

#[cfg(test)]
fn fraction_lost(busy: f64, whole: f64) -> f64 {
    if whole > 0.0 { 1.0 - busy / whole } else { 0.0 }
}

/// A timeline drawn as text, as the papers draw it: one line per rank, time to the right.
#[cfg(test)]
pub(super) mod drawn {
    use super::*;

    /// Wider drawings are useless, and very short events among long ones would need them.
    const MOST_COLUMNS: usize = 10_000;

    /// One line per rank. An event begins at its start in proportion to the whole and carries its letter and micro-batch:
    /// F forward, B backward (whole, or of the input where W follows), W weight gradient; lower case for a chunk other than
    /// 0. A label that does not fit is cut. Dots are idle time.
    pub fn timeline_text(timeline: &Timeline, columns: usize) -> String {
        let makespan = timeline.makespan().0;
        let width = timeline.events.len().saturating_sub(1).to_string().len();
        let mut text = String::new();
        for (rank, events) in timeline.events.iter().enumerate() {
            let mut cells = vec![b'.'; columns];
            for timed in events {
                draw(&mut cells, timed, makespan);
            }
            let cells: String = cells.into_iter().map(char::from).collect();
            text.push_str(&format!("rank {rank:>width$} |{cells}|\n"));
        }
        text
    }

    /// The number of columns in which the shortest event of a timeline has `columns_of_shortest`, so that all labels fit; at most 10,000.
    pub fn timeline_text_columns(timeline: &Timeline, columns_of_shortest: usize) -> usize {
        let shortest = timeline
            .events
            .iter()
            .flatten()
            .map(|timed| timed.finish.0 - timed.start.0)
            .filter(|length| *length > 0.0)
            .fold(f64::INFINITY, f64::min);
        // Infinite without events; the cast gives 0 columns then.
        (timeline.makespan().0 / shortest * columns_of_shortest as f64).round().min(MOST_COLUMNS as f64) as usize
    }

    fn draw(cells: &mut [u8], timed: &TimedEvent, makespan: f64) {
        let column = |time: f64| ((time / makespan * cells.len() as f64).round() as usize).min(cells.len());
        let (from, to) = (column(timed.start.0), column(timed.finish.0));
        let letter = match timed.event.pass {
            Pass::Forward => 'F',
            Pass::Backward | Pass::InputGradient => 'B',
            Pass::WeightGradient => 'W',
        };
        let letter = if timed.event.chunk == 0 { letter } else { letter.to_ascii_lowercase() };
        let label = format!("{letter}{}", timed.event.micro_batch);
        for (cell, character) in cells[from..to.max(from)].iter_mut().zip(label.bytes().chain(std::iter::repeat(b' ')))
        {
            *cell = character;
        }
    }
}
