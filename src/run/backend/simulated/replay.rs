//! Replay of a whole step on virtual clocks: every rank runs its program as far as it can, and continues when the call that it waits for
//! completes.
//!
//! A collective begins with the last rank of its group, after the previous call on the same group, and ends for all
//! ranks together (a ring too, which is slightly late for its first ranks). A message begins when both its ends have
//! arrived. Calls of different axes do not slow each other down; the groups of one axis share the adapters, as in the
//! time model. Starting a call costs nothing. The end of a call depends on the arrival times of its ranks, not on the
//! order in which they are processed here.

use super::fleet::Fleet;
use super::fleet::Placed;
use super::noise::{Noise, Order, Work, nanoseconds};
use crate::backend::contract::{CallBytes, Counted, by_axis, crossing_bytes, ranks_with_spans};
use crate::backend::{AxisBytes, HiddenCall, Mismatch, RankTimes, ReplayBinding, Replayer, Span, SpanKind};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_cost::machine_time::{Hop, message_seconds};
use commgauge_model::layout::Axis;
use commgauge_model::workload::replay::{Action, Movement, ReplayPlan, ReplayProgram};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

/// The event is not complete yet.
const PENDING: u64 = u64::MAX;

/// The rank is in no group.
const NOWHERE: u32 = u32::MAX;

/// A bound step of all ranks.
pub(super) struct SimulatedReplayer<'b> {
    plan: &'b ReplayPlan,
    fleet: &'b Fleet,
    noise: &'b mut Noise,
    now: &'b Cell<u64>,
    /// When the last run began.
    begun: u64,
    axes: Vec<AxisPlaces>,
    /// By stage and op: nanoseconds in each group.
    durations: Vec<Vec<Vec<f64>>>,
    hidden: Hidden,
    /// By stage and op: for an all_to_all_v, the bytes that each rank of a group exchanges with others.
    crossing: Vec<Vec<Vec<u64>>>,
    /// Index in `axes` of the pipelines, where there are any.
    pipelines: Option<usize>,
    ranks: Vec<RankState>,
    times: Vec<RankTimes>,
    /// By rank and axis: collectives that were started.
    turns: Vec<u32>,
    runnable: Vec<u32>,
    messages: HashMap<Route, VecDeque<End>>,
}

/// The groups of one axis.
struct AxisPlaces {
    group_of_rank: Vec<u32>,
    /// Rank within its group.
    place_in_group: Vec<u32>,
    groups: Vec<GroupState>,
    /// Ranks on each node that use the network.
    active_ranks: Vec<u32>,
}

struct GroupState {
    members: Vec<u32>,
    /// Turn of the first of `open`.
    first_turn: u32,
    open: VecDeque<Gathering>,
    free_at: u64,
}

/// A collective at which not all ranks have arrived.
#[derive(Default)]
struct Gathering {
    latest: u64,
    arrived: Vec<(u32, u32)>,
}

/// The route of messages: from rank to rank, and which of those between the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    from: u32,
    to: u32,
    stream: u32,
}

/// One end of a message whose other end has not arrived.
struct End {
    rank: u32,
    slot: u32,
    at: u64,
    sends: bool,
}

struct RankState {
    next: usize,
    clock: u64,
    /// For each slot: when it started, and when it is done.
    slots: Vec<(u64, u64)>,
    waits_for: Option<u32>,
    /// By axis: the time up to which active time is counted.
    covered_until: [u64; Axis::ALL.len()],
    counted: Vec<Counted>,
    /// What the rank did, in times of the clock; `None` for a rank without a timeline.
    spans: Option<Vec<Span>>,
}

impl RankState {
    fn note(&mut self, kind: SpanKind, begin: u64, end: u64) {
        if let Some(spans) = self.spans.as_mut().filter(|_| end > begin) {
            spans.push(Span { kind, begin, end });
        }
    }
}

impl<'b> SimulatedReplayer<'b> {
    pub(super) fn new(
        binding: &ReplayBinding<'b>,
        fleet: &'b Fleet,
        connected: &HashMap<usize, Placed>,
        noise: &'b mut Noise,
        now: &'b Cell<u64>,
    ) -> Result<SimulatedReplayer<'b>> {
        let plan = binding.plan;
        let placed = |index: usize| {
            connected.get(&(binding.first_groups_number + index)).ok_or_else(|| {
                let axis = plan.groups[index].axis;
                Error::environment(format!("axis {axis} is not connected; no step can be replayed on it"))
            })
        };
        let mut axes = Vec::with_capacity(plan.groups.len());
        for (index, groups) in plan.groups.iter().enumerate() {
            axes.push(AxisPlaces::new(&groups.groups, placed(index)?, fleet));
        }
        let mut durations = Vec::with_capacity(plan.programs.len());
        for program in &plan.programs {
            let mut of_stage = Vec::new();
            for op in 0..program.as_ref().map_or(0, |program| program.ops.len()) {
                if let Some(program) = program {
                    of_stage.push(group_nanoseconds(program, op, placed(program.groups[op])?, fleet));
                }
            }
            durations.push(of_stage);
        }
        let with_spans = ranks_with_spans(plan);
        let mut ranks = Vec::with_capacity(plan.stage_of_rank.len());
        for rank in 0..plan.stage_of_rank.len() as u32 {
            let program = program(plan, rank)?;
            ranks.push(RankState {
                next: 0,
                clock: 0,
                slots: vec![(0, PENDING); program.slots.len()],
                waits_for: None,
                covered_until: [0; Axis::ALL.len()],
                counted: vec![Counted::default(); program.ops.len()],
                spans: with_spans.binary_search(&rank).is_ok().then(Vec::new),
            });
        }
        Ok(SimulatedReplayer {
            turns: vec![0; ranks.len() * axes.len()],
            times: vec![RankTimes::default(); ranks.len()],
            pipelines: plan.groups.iter().position(|groups| groups.axis == Axis::Pp),
            plan,
            fleet,
            noise,
            now,
            begun: 0,
            axes,
            hidden: Hidden::new(&plan.programs, &durations),
            durations,
            crossing: plan.programs.iter().map(|program| program.as_ref().map_or_else(Vec::new, crossing)).collect(),
            ranks,
            runnable: Vec::new(),
            messages: HashMap::new(),
        })
    }

    /// Runs a rank until it must wait.
    fn advance(&mut self, rank: u32) -> Result<()> {
        let program = program(self.plan, rank)?;
        while let Some(action) = program.actions.get(self.ranks[rank as usize].next) {
            match *action {
                Action::Compute { nanoseconds, .. } => {
                    let state = &mut self.ranks[rank as usize];
                    let begin = state.clock;
                    state.clock = begin.saturating_add(nanoseconds);
                    state.note(SpanKind::Computing, begin, state.clock);
                    self.times[rank as usize].computing_nanoseconds += nanoseconds;
                }
                Action::Start { slot } => self.start(program, rank, slot)?,
                Action::Wait { slot } => {
                    let state = &mut self.ranks[rank as usize];
                    let (started, end) = state.slots[slot as usize];
                    if end == PENDING {
                        state.waits_for = Some(slot);
                        return Ok(());
                    }
                    let axis = program.groups[program.slots[slot as usize].op as usize];
                    let times = &mut self.times[rank as usize].axes[axis];
                    times.waiting_nanoseconds += end.saturating_sub(state.clock);
                    // Calls end in the order of their starts, except messages, for which a little is lost here.
                    let (covered, clock) = (state.covered_until[axis], state.clock);
                    times.in_flight_nanoseconds += end.saturating_sub(started.max(covered));
                    state.note(SpanKind::Waiting { axis }, clock, end);
                    state.note(SpanKind::InFlight { axis }, started.max(covered), end);
                    state.covered_until[axis] = end.max(covered);
                    state.clock = clock.max(end);
                }
            }
            self.ranks[rank as usize].next += 1;
        }
        Ok(())
    }

    fn start(&mut self, program: &ReplayProgram, rank: u32, index: u32) -> Result<()> {
        let slot = program.slots[index as usize];
        let op = slot.op as usize;
        let state = &mut self.ranks[rank as usize];
        let clock = state.clock;
        state.slots[index as usize] = (clock, PENDING);
        if !matches!(slot.movement, Movement::Receive { .. }) {
            let places = &self.axes[program.groups[op]];
            let crossing = &self.crossing[program.stage as usize][op];
            let crossing = crossing.get(places.place_in_group[rank as usize] as usize).copied().unwrap_or(0);
            state.counted[op].add(CallBytes { payload: program.geometries[op].bytes_total.0, crossing });
        }
        match slot.movement {
            Movement::Together => self.join(program, rank, index),
            Movement::Send { to, stream } => {
                let to = self.peer(rank, program.groups[op], to)?;
                self.match_message(
                    Route { from: rank, to, stream },
                    End { rank, slot: index, at: clock, sends: true },
                    program,
                    op,
                )
            }
            Movement::Receive { from, stream } => {
                let from = self.peer(rank, program.groups[op], from)?;
                self.match_message(
                    Route { from, to: rank, stream },
                    End { rank, slot: index, at: clock, sends: false },
                    program,
                    op,
                )
            }
        }
    }

    /// The world rank of a member of a rank's group.
    fn peer(&self, rank: u32, axis: usize, rank_in_group: u32) -> Result<u32> {
        let places = &self.axes[axis];
        let group = places.groups.get(places.group_of_rank[rank as usize] as usize);
        let peer = group.and_then(|group| group.members.get(rank_in_group as usize)).copied();
        peer.ok_or_else(|| {
            let axis = self.plan.groups[axis].axis;
            Error::environment(format!("the group of rank {rank} on {axis} has no rank {rank_in_group}"))
        })
    }

    fn join(&mut self, program: &ReplayProgram, rank: u32, index: u32) -> Result<()> {
        let op = program.slots[index as usize].op as usize;
        let axis = program.groups[op];
        let turn = &mut self.turns[rank as usize * self.axes.len() + axis];
        let places = &mut self.axes[axis];
        let number = places.group_of_rank[rank as usize] as usize;
        let Some(group) = places.groups.get_mut(number) else {
            let axis = program.ops[op].axis;
            return Err(Error::environment(format!("rank {rank} is in no group of axis {axis}")));
        };
        let open = (*turn - group.first_turn) as usize;
        *turn += 1;
        while group.open.len() <= open {
            group.open.push_back(Gathering::default());
        }
        let collective = &mut group.open[open];
        collective.latest = collective.latest.max(self.ranks[rank as usize].clock);
        collective.arrived.push((rank, index));
        if collective.arrived.len() < group.members.len() {
            return Ok(());
        }
        // This is the last rank to arrive, so all ranks have completed the previous calls.
        let duration = self.durations[program.stage as usize][op][number];
        let begin = collective.latest.max(group.free_at);
        let end = later(begin, duration, self.noise.factor());
        group.free_at = end;
        self.hidden.add(program, op, number, end - begin);
        let arrived = std::mem::take(&mut collective.arrived);
        while group.open.front().is_some_and(|first| first.latest > 0 && first.arrived.is_empty()) {
            group.open.pop_front();
            group.first_turn += 1;
        }
        arrived.into_iter().for_each(|(rank, slot)| self.done(rank, slot, end));
        Ok(())
    }

    fn match_message(&mut self, route: Route, end: End, program: &ReplayProgram, op: usize) -> Result<()> {
        let queue = self.messages.entry(route).or_default();
        let Some(other) = queue.pop_front_if(|other| other.sends != end.sends) else {
            queue.push_back(end);
            return Ok(());
        };
        let bytes = program.geometries[op].bytes_total.0 as f64;
        let hop = self.hop(route.from, route.to);
        let at = later(other.at.max(end.at), nanoseconds(message_seconds(hop, bytes)), self.noise.factor());
        self.done(other.rank, other.slot, at);
        self.done(end.rank, end.slot, at);
        Ok(())
    }

    /// The path of a message; messages that leave or enter a node at the same time share its adapters.
    fn hop(&self, from: u32, to: u32) -> Hop {
        let active = |node: u32| self.pipelines.map_or(1, |axis| self.axes[axis].active_ranks[node as usize]).max(1);
        self.fleet.hop(from, to, active, active)
    }

    fn done(&mut self, rank: u32, slot: u32, end: u64) {
        let state = &mut self.ranks[rank as usize];
        state.slots[slot as usize].1 = end;
        if state.waits_for == Some(slot) {
            state.waits_for = None;
            self.runnable.push(rank);
        }
    }
}

impl AxisPlaces {
    fn new(groups: &[Vec<u32>], placed: &Placed, fleet: &Fleet) -> AxisPlaces {
        let mut group_of_rank = vec![NOWHERE; fleet.ranks as usize];
        let mut place_in_group = group_of_rank.clone();
        for (place, rank) in groups.iter().flat_map(|group| (0u32..).zip(group)) {
            place_in_group[*rank as usize] = place;
        }
        for (number, rank) in
            groups.iter().enumerate().flat_map(|(number, group)| group.iter().map(move |r| (number, r)))
        {
            group_of_rank[*rank as usize] = number as u32;
        }
        let mut active_ranks = vec![0; fleet.nodes() as usize];
        for (slots, (shape, _)) in placed.slots().zip(&placed.shapes) {
            if shape.nodes > 1 {
                placed.node_of_slot[slots].iter().for_each(|node| active_ranks[*node as usize] += 1);
            }
        }
        let state = |members: &Vec<u32>| GroupState {
            members: members.clone(),
            first_turn: 0,
            open: VecDeque::new(),
            free_at: 0,
        };
        AxisPlaces { group_of_rank, place_in_group, groups: groups.iter().map(state).collect(), active_ranks }
    }
}

/// The program of a rank; one process plays them all.
fn program(plan: &ReplayPlan, rank: u32) -> Result<&ReplayProgram> {
    let missing = || Error::environment(format!("the replay has no program for rank {rank}"));
    plan.program_of_rank(rank).ok_or_else(missing)
}

/// For each op of a stage the bytes that each rank of a group exchanges with others; empty except for all_to_all_v.
fn crossing(program: &ReplayProgram) -> Vec<Vec<u64>> {
    let of = |(op, geometry): (&commgauge_model::workload::Op, &commgauge_base::geometry::Geometry)| match op.collective
    {
        Collective::AllToAllV => (0..geometry.ranks()).map(|me| crossing_bytes(op, geometry, me)).collect(),
        _ => Vec::new(),
    };
    program.ops.iter().zip(&program.geometries).map(of).collect()
}

/// Nanoseconds of a collective in each group: for a ring or a chain, of its slowest message.
fn group_nanoseconds(program: &ReplayProgram, op: usize, placed: &Placed, fleet: &Fleet) -> Vec<f64> {
    let work = Work::new(program.ops[op].collective, &program.geometries[op], placed, fleet);
    if work.order == Order::Together {
        return work.nanoseconds;
    }
    let slowest = |slots: std::ops::Range<usize>| work.nanoseconds[slots].iter().copied().fold(1.0, f64::max);
    placed.slots().map(slowest).collect()
}

fn later(clock: u64, nanoseconds: f64, factor: f64) -> u64 {
    clock.saturating_add((nanoseconds * factor + 0.5) as u64).min(PENDING - 1)
}

impl Replayer for SimulatedReplayer<'_> {
    /// There is no data; only a `corrupt` fault is ever detected.
    fn check(&mut self) -> Result<Option<Mismatch>> {
        let noise = &mut *self.noise;
        Ok(super::call::corrupted(&self.fleet.corrupt, noise))
    }

    fn verifies(&self) -> bool {
        false
    }

    fn run(&mut self) -> Result<()> {
        // At least one nanosecond after time zero: a collective at 0 would look like one at which no rank arrived.
        let begin = self.now.get().max(1);
        self.begun = begin;
        self.times.fill(RankTimes::default());
        self.turns.fill(0);
        for group in self.axes.iter_mut().flat_map(|axis| &mut axis.groups) {
            group.open.clear();
            (group.first_turn, group.free_at) = (0, begin);
        }
        self.messages.clear();
        self.hidden.clear();
        for state in &mut self.ranks {
            (state.next, state.clock, state.waits_for) = (0, begin, None);
            state.counted.fill(Counted::default());
            state.covered_until.fill(0);
            state.spans.iter_mut().for_each(Vec::clear);
        }
        for late in &self.fleet.late {
            self.ranks[late.rank as usize].clock = begin.saturating_add(late.nanoseconds);
        }
        self.runnable.extend((0..self.ranks.len() as u32).rev());
        while let Some(rank) = self.runnable.pop() {
            self.advance(rank)?;
        }
        if let Some(rank) = self.ranks.iter().position(|state| state.waits_for.is_some()) {
            return Err(Error::environment(format!("rank {rank} of the simulated step blocks forever")));
        }
        for (state, times) in self.ranks.iter().zip(&mut self.times) {
            times.total_nanoseconds = state.clock - begin;
        }
        self.now.set(self.ranks.iter().map(|state| state.clock).max().unwrap_or(begin));
        Ok(())
    }

    fn times(&self) -> &[RankTimes] {
        &self.times
    }

    fn hidden_calls(&self, local_rank: usize) -> Vec<HiddenCall> {
        let group = |axis: usize| self.axes[axis].group_of_rank[local_rank];
        program(self.plan, local_rank as u32).map_or_else(|_| Vec::new(), |program| self.hidden.of_rank(program, group))
    }

    fn spans(&self, local_rank: usize) -> Vec<Span> {
        let since = |span: &Span| Span { begin: span.begin - self.begun, end: span.end - self.begun, ..*span };
        self.ranks[local_rank].spans.iter().flatten().map(since).collect()
    }

    fn moved(&self, local_rank: usize) -> Result<Vec<AxisBytes>> {
        by_axis(program(self.plan, local_rank as u32)?, &self.ranks[local_rank].counted)
    }
}

// The hidden collectives of a simulated step: as long as their groups took, without the time for which ranks wait for the last of them.

/// By stage and op: the calls of each group so far, if the op is hidden.
pub(super) struct Hidden(Vec<Vec<Vec<HiddenCall>>>);

impl Hidden {
    /// Empty. `groups` are by stage and op, as many as there are durations.
    pub fn new(programs: &[Option<ReplayProgram>], groups: &[Vec<Vec<f64>>]) -> Hidden {
        let of_stage = |(program, groups): (&Option<ReplayProgram>, &Vec<Vec<f64>>)| {
            let hidden = program.as_ref().map_or_else(Vec::new, ReplayProgram::hidden_collectives);
            let of_op = |(op, (is_hidden, groups)): (usize, (bool, &Vec<f64>))| match is_hidden {
                true => vec![HiddenCall { op, ..HiddenCall::default() }; groups.len()],
                false => Vec::new(),
            };
            hidden.into_iter().zip(groups).enumerate().map(of_op).collect()
        };
        Hidden(programs.iter().zip(groups).map(of_stage).collect())
    }

    /// Clears before a step.
    pub fn clear(&mut self) {
        for call in self.0.iter_mut().flatten().flatten() {
            (call.calls, call.nanoseconds) = (0, 0);
        }
    }

    /// Adds a call of a group.
    pub fn add(&mut self, program: &ReplayProgram, op: usize, group: usize, nanoseconds: u64) {
        if let Some(hidden) = self.0[program.stage as usize][op].get_mut(group) {
            hidden.calls += 1;
            hidden.nanoseconds += nanoseconds;
        }
    }

    /// The calls of a rank, one entry per op; `group` is the index of its group among the plan's groups.
    pub fn of_rank(&self, program: &ReplayProgram, group: impl Fn(usize) -> u32) -> Vec<HiddenCall> {
        let of_ops = self.0[program.stage as usize].iter().zip(&program.groups);
        let of_group = of_ops.filter_map(|(of_op, groups)| of_op.get(group(*groups) as usize).copied());
        of_group.filter(|hidden| hidden.calls > 0).collect()
    }
}
