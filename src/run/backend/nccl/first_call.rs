//! The first call of a kind on a communicator, made within a deadline. From NCCL 2.22 on ranks connect in it, on the calling thread, which
//! waits there for the others: a missing rank would block this thread forever, before any stream could be queried.

use super::abi::{RawCommunicator, RawStream, UNIQUE_ID_BYTES, read_id};
use super::communicator::{Channel, ChannelEnd, Communicator, Maker, Members, MembersKey, Route, root_of};
use super::driver::{self, Arena};
use super::library::CHANNELS_OF_A_PAIR;
use super::open::NcclBackend;
use super::prepared::Prepared;
use crate::backend::Binding;
use crate::world::share_all;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_model::layout::{Axis, Groups, Membership};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// A call with its buffers, on its way to the calling thread.
pub(super) struct FirstCall {
    prepared: Arc<Prepared>,
    send: u64,
    receive: u64,
    stream: RawStream,
}

/// A call and the communicator on which it is made.
struct Made(FirstCall, RawCommunicator);

// SAFETY: any thread may use handles of NCCL and the driver, one at a time: the other waits meanwhile, or the launch ends.
unsafe impl Send for Made {}

impl FirstCall {
    /// A call on buffers and a stream.
    ///
    /// # Safety
    /// As [`Prepared::issue`], also after a hang: buffers and stream are never freed.
    pub unsafe fn new(prepared: &Arc<Prepared>, send: u64, receive: u64, stream: RawStream) -> FirstCall {
        FirstCall { prepared: prepared.clone(), send, receive, stream }
    }

    /// Enqueues the call. `what` names it in errors.
    ///
    /// # Errors
    /// A hang after the deadline for communicators, and the error of the call; both with the place.
    pub fn make(self, maker: &Maker, communicator: &Communicator, what: &str) -> Result<()> {
        let made = Made(self, communicator.raw());
        let issued = maker.in_time(&format!("the first {what}"), maker.deadline, move || {
            let Made(call, raw) = { made };
            // SAFETY: promised by whoever made the call.
            unsafe { call.prepared.issue(call.send, call.receive, raw, call.stream) }
        })?;
        communicator.note_use();
        issued.map_err(|error| Error::from_exit_code(error.exit_code(), format!("{}: {what}: {error}", maker.place)))
    }
}

// One-way channels for the messages of a replay: a communicator of two ranks and a stream for each sender, receiver
// and message stream.
//
// On a single stream a send would block a later receive, and two ranks that both send first would deadlock. With
// separate channels, messages start when the program starts them, as they do over MPI.

impl NcclBackend {
    /// Opens the channels of all ranks that are not open yet. Called by all ranks, each with the routes on which it sends.
    pub(super) fn open_channels(&mut self, mut sends_on: Vec<Route>) -> Result<()> {
        sends_on.sort_unstable();
        sends_on.dedup();
        sends_on.retain(|route| !self.replays.channels.contains_key(route));
        let mine: Vec<(Route, Vec<u8>)> =
            sends_on.into_iter().map(|route| Ok((route, self.maker.unique_id()?.0.to_vec()))).collect::<Result<_>>()?;
        let mut all: Vec<(Route, Vec<u8>)> = share_all(&self.world, &mine)?.concat();
        all.sort_unstable();
        let me = self.world.rank();
        for (route, id) in in_rounds(all).into_iter().filter(|(route, _)| route.from == me || route.to == me) {
            self.open_channel(route, &id)?;
        }
        Ok(())
    }

    /// Opens a channel, and sends a byte: a library connects at the first message and waits for the other end meanwhile, which may wait for
    /// something else in the middle of a program.
    fn open_channel(&mut self, route: Route, id: &[u8]) -> Result<()> {
        let end = if route.from == self.world.rank() { ChannelEnd::Sender } else { ChannelEnd::Receiver };
        let communicator = self.maker.init(read_id(id)?, 2, end.rank())?;
        let channel = Channel { communicator: Rc::new(communicator), stream: driver::create_stream()? };
        let mut byte = Arena::default();
        byte.reserve(1)?;
        let message = Prepared::message(self.maker.library, ElementType::Uint8, 1, end);
        let (address, stream) = (byte.address(), channel.stream);
        // SAFETY: the byte is device memory that is freed only after the stream is idle.
        let first = unsafe { FirstCall::new(&Arc::new(message), address, address, stream.cast()) };
        let what = format!("message from rank {} to rank {}", route.from, route.to);
        first.make(&self.maker, &channel.communicator, &what)?;
        self.wait_for(&[stream], std::slice::from_ref(&channel.communicator), self.maker.deadline)?;
        byte.release()?;
        self.replays.channels.insert(route, channel);
        Ok(())
    }

    /// Ends all channels, in the same order on all ranks.
    pub(super) fn close_channels(&mut self) -> Result<()> {
        let mut routes: Vec<Route> = self.replays.channels.keys().copied().collect();
        routes.sort_unstable();
        for route in routes {
            if let Some(channel) = self.replays.channels.remove(&route) {
                self.maker.destroy(&channel.communicator)?;
                driver::destroy_stream(channel.stream);
            }
        }
        Ok(())
    }
}

/// The routes in an order in which no rank waits for a chain of others: in rounds, in each of which a rank has one route at most. In the order
/// of ranks the last stage of a pipeline would wait for all stages before it, within the deadline of its own communicator.
fn in_rounds<T>(routes: Vec<(Route, T)>) -> Vec<(Route, T)> {
    let mut busy: HashMap<u32, BTreeSet<usize>> = HashMap::new();
    let mut rounds: Vec<(usize, (Route, T))> = Vec::new();
    for (route, id) in routes {
        let is_busy = |rank: u32, round: &usize| busy.get(&rank).is_some_and(|rounds| rounds.contains(round));
        let round = (0..).find(|round| !is_busy(route.from, round) && !is_busy(route.to, round)).unwrap_or_default();
        busy.entry(route.from).or_default().insert(round);
        busy.entry(route.to).or_default().insert(round);
        rounds.push((round, (route, id)));
    }
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, route)| route).collect()
}

// The communicators of groups: one over all ranks per replicate, which carries the messages of pairs, and those split off from it for each
// set of groups.

impl NcclBackend {
    /// Creates the communicators of groups. Called by all ranks.
    pub(super) fn connect_groups(&mut self, number: usize, groups: &Groups) -> Result<()> {
        if groups.axis == Axis::Pair {
            return self.connect_world();
        }
        if self.maker.library.call.split.is_some() {
            self.connect_world()?;
        }
        let key = (Members::Groups(number), None);
        let fresh = self.create(key, groups)?;
        let before = self.connected.of_groups.borrow_mut().insert(key, fresh.map(Rc::new));
        match before.flatten() {
            Some(old) => self.maker.destroy(&old),
            None => Ok(()),
        }
    }

    /// Creates the communicators of pairs that a case needs and that do not exist. Called by all ranks.
    pub(super) fn connect_pairs(&self, binding: &Binding) -> Result<()> {
        if binding.groups.axis != Axis::Pair {
            return Ok(());
        }
        let all = self.members_on_any_rank(binding);
        if !Members::shared_by_pairs(binding) {
            all.iter().try_for_each(|members| self.make_room((*members, None)))?;
        }
        all.into_iter().try_for_each(|members| self.ensure((members, None), binding.groups))
    }

    /// The ranks of the communicator that carries the calls of a case on this rank.
    pub(super) fn members(&self, binding: &Binding) -> Members {
        let place = binding.groups.place_of(self.world.rank()).filter(|_| Members::shared_by_pairs(binding));
        let (hosts, version) = (&self.ranks.hosts, self.maker.library.version);
        let of_pair = |place: Membership| Members::of_pair(&binding.groups.groups[place.group], hosts, version);
        place.map_or(Members::Groups(binding.groups_number), of_pair)
    }

    /// The same for all ranks: a communicator is created by all of them, in one order.
    fn members_on_any_rank(&self, binding: &Binding) -> BTreeSet<Members> {
        if !Members::shared_by_pairs(binding) {
            return BTreeSet::from([Members::Groups(binding.groups_number)]);
        }
        let (hosts, version) = (&self.ranks.hosts, self.maker.library.version);
        binding.groups.groups.iter().map(|pair| Members::of_pair(pair, hosts, version)).collect()
    }

    /// Creates a communicator unless it exists. Called by all ranks.
    fn ensure(&self, key: MembersKey, groups: &Groups) -> Result<()> {
        if key != (Members::World, None) && !self.connected.of_groups.borrow().contains_key(&key) {
            let fresh = self.create(key, groups)?;
            self.connected.of_groups.borrow_mut().insert(key, fresh.map(Rc::new));
        }
        Ok(())
    }

    /// Ends the least recently used communicator of pairs if another one would exceed the limit. Called by all ranks.
    fn make_room(&self, key: MembersKey) -> Result<()> {
        let Some(oldest) = self.connected.recent_pairs.borrow_mut().use_one(key) else { return Ok(()) };
        self.buffers.windows.forget_one(oldest);
        let before = self.connected.of_groups.borrow_mut().remove(&oldest).flatten();
        before.map_or(Ok(()), |old| self.maker.destroy(&old))
    }

    /// Creates the communicator of all ranks, once in a replicate. Called by all ranks.
    fn connect_world(&mut self) -> Result<()> {
        if self.connected.base.is_some() {
            return Ok(());
        }
        let (ranks, me) = (self.world.ranks(), self.world.rank());
        let ids = match self.maker.library.call.init_rank_scalable {
            Some(_) if self.connected.ranks_per_id > 0 => ranks.div_ceil(self.connected.ranks_per_id),
            _ => 1,
        };
        let mine = (0..ids).any(|id| root_of(id, ids, ranks) == me);
        let mine = if mine { self.maker.unique_id()?.0.to_vec() } else { Vec::new() };
        // In rank order, which is the order of the ids.
        let mut all = self.world.gather(&mine)?.concat();
        self.world.broadcast(&mut all)?;
        let mut all = all.chunks(UNIQUE_ID_BYTES).map(read_id).collect::<Result<Vec<_>>>()?;
        let base = match (ids, all.pop()) {
            (1, Some(id)) => self.maker.init(id, ranks, me)?,
            (_, last) => self.maker.init_from_many(all.into_iter().chain(last).collect(), ranks, me)?,
        };
        self.connected.base = Some(Rc::new(base));
        Ok(())
    }

    /// Creates the communicators of these members, with their own limit on thread blocks, if any. Called by all ranks.
    fn create(&self, (members, max_ctas): MembersKey, groups: &Groups) -> Result<Option<Communicator>> {
        let mut maker = self.maker.clone();
        maker.ctas.most = max_ctas.or(maker.ctas.most);
        maker.channels = (members == Members::Network).then_some(CHANNELS_OF_A_PAIR);
        let groups = match members {
            Members::World | Members::Network => &Groups::world(self.world.ranks()),
            Members::Host => &self.ranks.by_host(),
            Members::Groups(_) => groups,
        };
        let place = groups.place_of(self.world.rank());
        match &self.connected.base {
            Some(base) if maker.library.call.split.is_some() => {
                let key = place.map_or(self.world.rank(), |place| place.rank_in_group);
                maker.split(base, place.map(|place| place.group as u32), key)
            }
            _ => self.init_groups(&maker, groups, place),
        }
    }

    /// Creates the communicator of a case that limits thread blocks, unless it exists. Called by all ranks.
    pub(super) fn limit(&mut self, binding: &Binding) -> Result<()> {
        let Some(blocks) = binding.variant.max_ctas.filter(|blocks| !self.maker.limits_to(*blocks)) else {
            return Ok(());
        };
        let all = self.members_on_any_rank(binding);
        if binding.groups.axis == Axis::Pair && !Members::shared_by_pairs(binding) {
            // The buffers of the case before, perhaps registered with the communicator that goes.
            self.end_registration()?;
            all.iter().try_for_each(|members| self.make_room((*members, Some(blocks))))?;
        }
        all.into_iter().try_for_each(|members| self.ensure((members, Some(blocks)), binding.groups))
    }

    /// Used without ncclCommSplit: the first rank of each group creates an id, and all ids are sent to all ranks.
    fn init_groups(&self, maker: &Maker, groups: &Groups, place: Option<Membership>) -> Result<Option<Communicator>> {
        let mine = match place {
            Some(Membership { rank_in_group: 0, .. }) => maker.unique_id()?.0.to_vec(),
            _ => Vec::new(),
        };
        let mut ids = self.world.gather(&mine)?.concat();
        self.world.broadcast(&mut ids)?;
        let Some(Membership { group, rank_in_group }) = place else { return Ok(None) };
        // The ids arrive in the order of the ranks that created them.
        let first = groups.groups[group].first();
        let before = groups.groups.iter().filter(|other| other.first() < first).count();
        let id = ids.chunks(128).nth(before).unwrap_or_default();
        maker.init(read_id(id)?, groups.groups[group].len() as u32, rank_in_group).map(Some)
    }

    /// Ends all communicators, in the same order on all ranks.
    pub(super) fn disconnect_all(&mut self) -> Result<()> {
        self.end_registration()?;
        self.buffers.windows.forget();
        self.close_channels()?;
        self.connected.recent_pairs.borrow_mut().clear();
        let mut connected: Vec<_> = self.connected.of_groups.take().into_iter().collect();
        connected.sort_unstable_by_key(|(key, _)| *key);
        for communicator in connected.into_iter().filter_map(|(_, communicator)| communicator) {
            self.maker.destroy(&communicator)?;
        }
        self.connected.base.take().map_or(Ok(()), |base| self.maker.destroy(&base))?;
        self.buffers.release_kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_a_pipeline_open_in_as_many_rounds_as_a_stage_has_channels() {
        let both = |from: u32| [(from, from + 1), (from + 1, from)];
        let mut chain: Vec<Route> = (0..15).flat_map(both).map(|(from, to)| Route { from, to, stream: 0 }).collect();
        chain.sort_unstable();
        // When the ends of a channel have both opened all that comes before it.
        let mut opened = [0; 16];
        for (route, ()) in in_rounds(chain.into_iter().map(|route| (route, ())).collect()) {
            let ends = [route.from, route.to].map(|rank| rank as usize);
            let time = ends.iter().map(|rank| opened[*rank]).max().unwrap_or(0) + 1;
            ends.into_iter().for_each(|rank| opened[rank] = time);
        }
        assert_eq!(opened.iter().max(), Some(&4), "{opened:?}");
    }
}
