//! The communicators of groups: one over all ranks in every replicate, from which those of each set of groups are split off, and which
//! carries the messages of pairs itself.

use super::communicator::{Communicator, root_of};
use super::members::{Key, Members};
use super::state::NcclBackend;
use super::unique_id::{UNIQUE_ID_BYTES, read_id};
use crate::backend::Binding;
use commgauge_base::error::Result;
use commgauge_model::layout::{Axis, Groups, Membership};
use std::rc::Rc;

impl NcclBackend {
    /// Creates the communicators of groups. Called by all ranks.
    pub(super) fn connect_groups(&mut self, number: usize, groups: &Groups) -> Result<()> {
        if groups.axis == Axis::Pair {
            return self.connect_world();
        }
        if self.maker.library.call.split.is_some() {
            self.connect_world()?;
        }
        let fresh = self.create(groups)?;
        let key = (Members::Groups(number), None);
        let before = self.connected.of_groups.borrow_mut().insert(key, fresh.map(Rc::new));
        match before.flatten() {
            Some(old) => self.maker.destroy(&old),
            None => Ok(()),
        }
    }

    /// Creates the communicators of pairs if the calls of a binding need them and they are not there. Called by all ranks.
    pub(super) fn connect_pairs(&self, binding: &Binding) -> Result<()> {
        let Members::Groups(number) = Members::of_calls(binding) else { return Ok(()) };
        if binding.groups.axis != Axis::Pair {
            return Ok(());
        }
        let key = (Members::Groups(number), None);
        self.make_room(key)?;
        if !self.connected.of_groups.borrow().contains_key(&key) {
            let fresh = self.create(binding.groups)?;
            self.connected.of_groups.borrow_mut().insert(key, fresh.map(Rc::new));
        }
        Ok(())
    }

    /// Ends the communicator of pairs that was used longest ago, if one of a key would be one too many. Called by all ranks.
    fn make_room(&self, key: Key) -> Result<()> {
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
        // In the order of the ranks, which is that of the ids.
        let mut all = self.world.gather_bytes(&mine)?.concat();
        self.world.broadcast_bytes(&mut all)?;
        let mut all = all.chunks(UNIQUE_ID_BYTES).map(read_id).collect::<Result<Vec<_>>>()?;
        let base = match (ids, all.pop()) {
            (1, Some(id)) => self.maker.init(id, ranks, me)?,
            (_, last) => self.maker.init_from_many(all.into_iter().chain(last).collect(), ranks, me)?,
        };
        self.connected.base = Some(Rc::new(base));
        Ok(())
    }

    /// Creates the communicators of groups with the present limit to thread blocks.
    fn create(&self, groups: &Groups) -> Result<Option<Communicator>> {
        let place = groups.place_of(self.world.rank());
        match &self.connected.base {
            Some(base) if self.maker.library.call.split.is_some() => self.split_off(base, place),
            _ => self.init_groups(groups, place),
        }
    }

    /// Creates the communicator of a case that limits thread blocks, unless it is there. Called by all ranks.
    pub(super) fn limit(&mut self, binding: &Binding) -> Result<()> {
        let Some(blocks) = binding.variant.max_ctas else { return Ok(()) };
        let members = Members::of_calls(binding);
        let key = (members, Some(blocks));
        if self.maker.limits_to(blocks) {
            return Ok(());
        }
        if binding.groups.axis == Axis::Pair && members != Members::World {
            // Of the case before, perhaps on the communicator that goes.
            self.end_registration()?;
            self.make_room(key)?;
        }
        if self.connected.of_groups.borrow().contains_key(&key) {
            return Ok(());
        }
        let usual = self.maker.ctas.most.replace(blocks);
        let made = match members {
            Members::World => self.create(&Groups::world(self.world.ranks())),
            Members::Groups(_) => self.create(binding.groups),
        };
        self.maker.ctas.most = usual;
        self.connected.of_groups.borrow_mut().insert(key, made?.map(Rc::new));
        Ok(())
    }

    fn split_off(&self, base: &Communicator, place: Option<Membership>) -> Result<Option<Communicator>> {
        let key = place.map_or(self.world.rank(), |place| place.rank_in_group);
        self.maker.split(base, place.map(|place| place.group as u32), key)
    }

    /// Used without ncclCommSplit: the first rank of each group creates an id, and all ids are sent to all ranks.
    fn init_groups(&self, groups: &Groups, place: Option<Membership>) -> Result<Option<Communicator>> {
        let mine = match place {
            Some(Membership { rank_in_group: 0, .. }) => self.maker.unique_id()?.0.to_vec(),
            _ => Vec::new(),
        };
        let mut ids = self.world.gather_bytes(&mine)?.concat();
        self.world.broadcast_bytes(&mut ids)?;
        let Some(Membership { group, rank_in_group }) = place else { return Ok(None) };
        // The ids arrive in the order of the ranks that created them.
        let first = groups.groups[group].first();
        let before = groups.groups.iter().filter(|other| other.first() < first).count();
        let id = ids.chunks(128).nth(before).unwrap_or_default();
        self.maker.init(read_id(id)?, groups.groups[group].len() as u32, rank_in_group).map(Some)
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
