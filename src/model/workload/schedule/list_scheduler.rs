//! Inserts weight gradients into a given order of forwards and input gradients, within a memory limit.
//!
//! The papers solve this by an integer program and heuristics; this is a heuristic: a simulation in which each rank
//! decides, whenever it is free, from what has arrived. The same input gives the same order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::event::{Event, Pass};
use super::event_lists::Schedule;
use super::simulate::{PassCosts, StageCosts, simulate};

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
    /// Passes of equal length, messages without cost, all activations stored until the weight gradient.
    pub const EQUAL: Fitting = Fitting { costs: StageCosts::EQUAL, weight_gradient_activations: 1.0 };

    /// Refuses what is no length of time and no part of the activations.
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

/// Decisions of a rank while its next event has not arrived.
#[derive(Clone, Copy)]
struct Policy {
    /// Whether a later event that has arrived may run first, if the memory allows it.
    overtakes: bool,
    /// A weight gradient is run where the gap is at least this part of it; longer gaps wait otherwise.
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

/// A moment at which a rank may have something to do.
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
        // The sum of parts may be off by a rounding.
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

    /// Arrival time of an event's input, or none if it is not known yet.
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
    /// Until something is announced.
    WaitForEvent,
}

fn weight(event: &Event) -> Event {
    Event { pass: Pass::WeightGradient, ..*event }
}
