//! Calls and actions of a rank, as recorded in a trace.

use crate::layout::{Groups, Membership};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::writing::ranges;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

/// The work of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedRank {
    pub calls: Vec<RecordedCall>,
    /// Its actions, in order. Each call is started once and waited for once.
    pub actions: Vec<RecordedAction>,
}

/// A call of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// Index of its groups in the plan; the rank is in one of them.
    pub groups: usize,
    /// The transfer.
    pub kind: RecordedKind,
    /// Type of the elements; any for a barrier.
    pub element: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// For an uneven all_to_all: elements to each rank of the group.
    pub elements_to_each: Option<Vec<u64>>,
    /// Its number on the group, if known; the same on all ranks.
    pub sequence: Option<u64>,
}

/// The transfer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedKind {
    /// All ranks of the group call it.
    Together(Collective),
    /// A message to this rank of the group.
    Send {
        /// Rank within the group.
        to: u32,
    },
    /// A message from this rank of the group.
    Receive {
        /// Rank within the group.
        from: u32,
    },
}

/// An action of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedAction {
    Compute {
        /// The duration.
        nanoseconds: u64,
    },
    /// It started a call.
    Start {
        /// Index of the call.
        call: usize,
    },
    /// It waited for a call.
    Wait {
        /// Index of the call.
        call: usize,
    },
}

impl RecordedKind {
    /// Whether a rank can complete it before the other ranks have entered.
    pub(super) fn may_end_alone(self) -> bool {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        match self {
            RecordedKind::Together(collective) => matches!(collective, Broadcast | Reduce | Gather | Scatter),
            RecordedKind::Send { .. } => true,
            RecordedKind::Receive { .. } => false,
        }
    }
}

impl fmt::Display for RecordedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordedKind::Together(collective) => f.write_str(collective.name()),
            RecordedKind::Send { .. } => f.write_str("send"),
            RecordedKind::Receive { .. } => f.write_str("receive"),
        }
    }
}

// Matches the calls of the ranks by executing the records under the strictest rules: a call is complete when all its ranks have started it.
// Calls of a group are matched in their order, messages by sender, receiver and order.
//
// The job completed, so its order waits for nothing that comes later, as long as no call ends before all ranks have begun it. Messages and
// calls with a root may end earlier: if all unfinished ranks wait for such calls, these waits move to the end.

/// The matched calls of all ranks.
#[derive(Debug)]
pub(super) struct Matched {
    /// The classes of calls, in order of first completion.
    pub classes: Vec<CallClass>,
    /// By rank and call: its class.
    pub class_of_call: Vec<Vec<usize>>,
    /// By rank: its actions, without deadlock.
    pub actions: Vec<Vec<RecordedAction>>,
}

/// Calls that differ only in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallClass {
    /// Index of the groups in the plan.
    pub groups: usize,
    /// Index of the group among them.
    pub group: usize,
    pub moves: Moves,
    pub element: ElementType,
    pub bytes_total: Bytes,
    /// For an uneven all_to_all: elements from each rank to each.
    pub rows: Option<Vec<Vec<u64>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Moves {
    Together(Collective),
    /// A message, by ranks within the group.
    Message {
        from: u32,
        to: u32,
    },
}

/// A call as seen by all its ranks.
struct Instance {
    /// The rank that came first.
    first: usize,
    call: RecordedCall,
    place: Membership,
    /// The ranks that came, with their calls.
    arrived: Vec<(usize, usize)>,
    needed: usize,
    waiting: Vec<usize>,
}

impl Instance {
    fn is_complete(&self) -> bool {
        self.arrived.len() == self.needed
    }
}

/// The route of messages: groups, group, and ranks within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    groups: usize,
    group: usize,
    from: u32,
    to: u32,
}

/// The messages of a route.
#[derive(Default)]
struct RouteState {
    instances: Vec<usize>,
    sent: usize,
    received: usize,
}

#[derive(Default)]
struct Walk<'a> {
    groups: &'a [Groups],
    ranks: &'a [RecordedRank],
    /// By groups and rank.
    places: Vec<Vec<Option<Membership>>>,
    next: Vec<usize>,
    /// By rank and call.
    instance_of: Vec<Vec<Option<usize>>>,
    instances: Vec<Instance>,
    /// By groups and group: the collectives, in order.
    collectives: HashMap<(usize, usize), Vec<usize>>,
    /// By groups and rank: number of started collectives.
    turns: HashMap<(usize, usize), usize>,
    routes: HashMap<Route, RouteState>,
    completed: Vec<usize>,
    /// By rank: indices of waits that move to the end.
    moved: Vec<BTreeSet<usize>>,
    runnable: VecDeque<usize>,
}

/// Matches the calls of all ranks.
pub(super) fn matched(groups: &[Groups], ranks: &[RecordedRank]) -> Result<Matched> {
    let mut walk = Walk::new(groups, ranks);
    walk.run()?;
    walk.finish()
}

impl<'a> Walk<'a> {
    fn new(groups: &'a [Groups], ranks: &'a [RecordedRank]) -> Walk<'a> {
        let places_in = |groups: &Groups| {
            let mut places = vec![None; ranks.len()];
            for (group, members) in groups.groups.iter().enumerate() {
                for (rank_in_group, rank) in (0u32..).zip(members) {
                    if let Some(place) = places.get_mut(*rank as usize) {
                        *place = Some(Membership { group, rank_in_group });
                    }
                }
            }
            places
        };
        Walk {
            groups,
            ranks,
            places: groups.iter().map(places_in).collect(),
            next: vec![0; ranks.len()],
            instance_of: ranks.iter().map(|rank| vec![None; rank.calls.len()]).collect(),
            moved: vec![BTreeSet::new(); ranks.len()],
            runnable: (0..ranks.len()).collect(),
            ..Walk::default()
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            while let Some(rank) = self.runnable.pop_front() {
                self.advance(rank)?;
            }
            let stuck: Vec<usize> =
                (0..self.ranks.len()).filter(|rank| self.next[*rank] < self.ranks[*rank].actions.len()).collect();
            if stuck.is_empty() {
                break;
            }
            let may_move: Vec<usize> = stuck.iter().copied().filter(|rank| self.may_move_wait(*rank)).collect();
            if may_move.is_empty() {
                return Err(self.stuck(stuck[0]));
            }
            for rank in may_move {
                self.moved[rank].insert(self.next[rank]);
                self.next[rank] += 1;
                self.runnable.push_back(rank);
            }
        }
        match self.instances.iter().find(|instance| !instance.is_complete()) {
            Some(instance) => Err(self.no_other_rank_came(instance)),
            None => Ok(()),
        }
    }

    /// Runs a rank's actions until it waits for others.
    fn advance(&mut self, rank: usize) -> Result<()> {
        while let Some(action) = self.ranks[rank].actions.get(self.next[rank]) {
            match *action {
                RecordedAction::Compute { .. } => {}
                RecordedAction::Start { call } => self.join(rank, call)?,
                RecordedAction::Wait { call } => {
                    let Some(index) = self.instance_of[rank][call] else {
                        return Err(Error::usage(format!(
                            "{} is waited for before it is started",
                            self.name(rank, call)
                        )));
                    };
                    if !self.instances[index].is_complete() {
                        self.instances[index].waiting.push(rank);
                        return Ok(());
                    }
                }
            }
            self.next[rank] += 1;
        }
        Ok(())
    }

    fn join(&mut self, rank: usize, call: usize) -> Result<()> {
        let this = &self.ranks[rank].calls[call];
        let Some(place) = self.places[this.groups][rank] else {
            return Err(Error::usage(format!("{} is on a group without that rank", self.name(rank, call))));
        };
        let ranks_of_group = self.groups[this.groups].groups[place.group].len();
        let route = |from, to| Route { groups: this.groups, group: place.group, from, to };
        let (instances, turn, needed) = match this.kind {
            RecordedKind::Together(_) => {
                let turn = self.turns.entry((this.groups, rank)).or_default();
                *turn += 1;
                (self.collectives.entry((this.groups, place.group)).or_default(), *turn, ranks_of_group)
            }
            RecordedKind::Send { to } => {
                let state = self.routes.entry(route(place.rank_in_group, to)).or_default();
                state.sent += 1;
                (&mut state.instances, state.sent, 2)
            }
            RecordedKind::Receive { from } => {
                let state = self.routes.entry(route(from, place.rank_in_group)).or_default();
                state.received += 1;
                (&mut state.instances, state.received, 2)
            }
        };
        let known = instances.get(turn - 1).copied();
        let index = known.unwrap_or(self.instances.len());
        match known {
            Some(_) => self.ensure_same(index, rank, call)?,
            None => {
                instances.push(index);
                let (call, arrived, waiting) = (this.clone(), Vec::new(), Vec::new());
                self.instances.push(Instance { first: rank, call, place, arrived, needed, waiting });
            }
        }
        self.instance_of[rank][call] = Some(index);
        let instance = &mut self.instances[index];
        instance.arrived.push((rank, call));
        if instance.is_complete() {
            self.completed.push(index);
            self.runnable.extend(std::mem::take(&mut instance.waiting));
        }
        Ok(())
    }

    /// Rejects a call that differs from the one that others of its group made at its place.
    fn ensure_same(&self, index: usize, rank: usize, call: usize) -> Result<()> {
        let (instance, this) = (&self.instances[index], &self.ranks[rank].calls[call]);
        let there = &instance.call;
        let same_kind = match (there.kind, this.kind) {
            (RecordedKind::Together(one), RecordedKind::Together(other)) => one == other,
            _ => true,
        };
        // The ranks of an uneven exchange differ in what they send.
        let is_exchange = this.kind == RecordedKind::Together(Collective::AllToAll);
        let is_uneven = there.elements_to_each.is_some() || this.elements_to_each.is_some();
        let same_size = there.bytes_total == this.bytes_total || (is_exchange && is_uneven);
        let is_barrier = this.kind == RecordedKind::Together(Collective::Barrier);
        let same_type = is_barrier || there.element == this.element;
        let same_number = there.sequence.zip(this.sequence).is_none_or(|(one, other)| one == other);
        if same_kind && same_size && same_type && same_number {
            return Ok(());
        }
        let numbers = match there.sequence.zip(this.sequence) {
            Some((one, other)) if one != other => format!(" (numbers {other} and {one} of the group)"),
            _ => String::new(),
        };
        let how =
            if is_exchange { "; for an uneven all_to_all the trace must have the counts for each rank" } else { "" };
        Err(Error::usage(format!(
            "{} does not fit {} of {} of {} on rank {}{numbers}{how}; accepted: traces of the same steps of all ranks",
            self.name(rank, call),
            there.kind,
            there.bytes_total,
            there.element,
            instance.first
        )))
    }

    /// Whether the rank waits for a call that the job completed before all ranks had entered.
    fn may_move_wait(&self, rank: usize) -> bool {
        match self.ranks[rank].actions.get(self.next[rank]) {
            Some(RecordedAction::Wait { call }) => self.ranks[rank].calls[*call].kind.may_end_alone(),
            _ => false,
        }
    }

    /// Why a rank would block forever.
    fn stuck(&self, rank: usize) -> Error {
        let waits_for = match self.ranks[rank].actions.get(self.next[rank]) {
            Some(RecordedAction::Wait { call }) => self.instance_of[rank][*call],
            _ => None,
        };
        match waits_for {
            Some(index) => self.no_other_rank_came(&self.instances[index]),
            None => Error::usage(format!("rank {rank} of the trace cannot continue")),
        }
    }

    fn no_other_rank_came(&self, instance: &Instance) -> Error {
        let (rank, call) = instance.arrived[0];
        let members = &self.groups[instance.call.groups].groups[instance.place.group];
        let missing: Vec<u32> = match instance.call.kind {
            RecordedKind::Together(_) => members
                .iter()
                .copied()
                .filter(|rank| instance.arrived.iter().all(|(came, _)| came != &(*rank as usize)))
                .collect(),
            RecordedKind::Send { to: peer } | RecordedKind::Receive { from: peer } => {
                members.get(peer as usize).copied().into_iter().collect()
            }
        };
        let others = ranges(&missing);
        Error::usage(format!(
            "{} waits for rank {others}, whose trace lacks it; accepted: traces of the same steps of all ranks, none of them truncated",
            self.name(rank, call)
        ))
    }

    /// A call in words.
    fn name(&self, rank: usize, call: usize) -> String {
        let this = &self.ranks[rank].calls[call];
        let axis = self.groups[this.groups].axis;
        format!(
            "call {} of rank {rank}, {} of {} of {} on {axis},",
            call + 1,
            this.kind,
            this.bytes_total,
            this.element
        )
    }

    fn finish(self) -> Result<Matched> {
        let mut classes: Vec<CallClass> = Vec::new();
        let mut known: HashMap<CallClass, usize> = HashMap::new();
        let mut class_of_call: Vec<Vec<usize>> = self.ranks.iter().map(|rank| vec![0; rank.calls.len()]).collect();
        for index in &self.completed {
            let instance = &self.instances[*index];
            let class = self.class_of(instance)?;
            let number = *known.entry(class.clone()).or_insert_with(|| {
                classes.push(class);
                classes.len() - 1
            });
            instance.arrived.iter().for_each(|(rank, call)| class_of_call[*rank][*call] = number);
        }
        let actions =
            self.ranks.iter().zip(&self.moved).map(|(rank, moved)| with_waits_at_the_end(rank, moved)).collect();
        Ok(Matched { classes, class_of_call, actions })
    }

    fn class_of(&self, instance: &Instance) -> Result<CallClass> {
        let RecordedCall { groups, element, bytes_total, .. } = instance.call;
        let moves = match instance.call.kind {
            RecordedKind::Together(collective) => Moves::Together(collective),
            RecordedKind::Send { to } => Moves::Message { from: instance.place.rank_in_group, to },
            RecordedKind::Receive { from } => Moves::Message { from, to: instance.place.rank_in_group },
        };
        let rows = self.rows(instance)?;
        // An uneven exchange has the name of the rank that sends most, whichever comes first.
        let most = rows.iter().flatten().map(|row| row.iter().sum::<u64>().saturating_mul(element.size())).max();
        let bytes_total = most.map_or(bytes_total, Bytes);
        Ok(CallClass { groups, group: instance.place.group, moves, element, bytes_total, rows })
    }

    /// The amount that each rank sends to each in an uneven exchange.
    fn rows(&self, instance: &Instance) -> Result<Option<Vec<Vec<u64>>>> {
        let call_of = |arrived: &(usize, usize)| &self.ranks[arrived.0].calls[arrived.1];
        if instance.arrived.iter().all(|arrived| call_of(arrived).elements_to_each.is_none()) {
            return Ok(None);
        }
        let ranks = instance.needed;
        let mut rows = vec![Vec::new(); ranks];
        for arrived in &instance.arrived {
            let call = call_of(arrived);
            let Some(place) = self.places[call.groups][arrived.0] else { continue };
            let even = || vec![call.bytes_total.0 / call.element.size() / ranks as u64; ranks];
            let row = call.elements_to_each.clone().unwrap_or_else(even);
            if row.len() != ranks {
                let name = self.name(arrived.0, arrived.1);
                return Err(Error::usage(format!("{name} has counts for {} ranks of a group of {ranks}", row.len())));
            }
            rows[place.rank_in_group as usize] = row;
        }
        Ok(Some(rows))
    }
}

fn with_waits_at_the_end(rank: &RecordedRank, moved: &BTreeSet<usize>) -> Vec<RecordedAction> {
    let stays = rank.actions.iter().enumerate().filter(|(index, _)| !moved.contains(index));
    stays.map(|(_, action)| *action).chain(moved.iter().map(|index| rank.actions[*index])).collect()
}
