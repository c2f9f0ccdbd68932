//! The communicators of groups: one over all ranks in every replicate, from which those of each set of groups are split off.

use super::communicator::Communicator;
use super::state::NcclBackend;
use super::unique_id::read_id;
use crate::backend::Binding;
use commgauge_base::error::{Error, Result};
use commgauge_model::layout::Groups;
use std::rc::Rc;

impl NcclBackend {
    /// Creates the communicators of groups. Called by all ranks.
    pub(super) fn connect_groups(&mut self, number: usize, groups: &Groups) -> Result<()> {
        let place = groups.place_of(self.world.rank());
        let fresh = if self.maker.library.call.split.is_some() {
            self.split_off(place)?
        } else {
            self.init_groups(groups, place)?
        };
        match self.communicators.insert(number, fresh.map(Rc::new)).flatten() {
            Some(old) => self.maker.destroy(&old),
            None => Ok(()),
        }
    }

    /// Creates the communicator of a case that limits thread blocks, once in a replicate. Called by all ranks.
    pub(super) fn limit(&mut self, binding: &Binding) -> Result<()> {
        let Some(blocks) = binding.variant.max_ctas else { return Ok(()) };
        let key = (binding.groups_number, blocks);
        if self.maker.limits_to(blocks) || self.limited.contains_key(&key) {
            return Ok(());
        }
        let usual = self.maker.ctas.most.replace(blocks);
        let place = binding.groups.place_of(self.world.rank());
        let made = if self.maker.library.call.split.is_some() {
            self.split_off(place)
        } else {
            self.init_groups(binding.groups, place)
        };
        self.maker.ctas.most = usual;
        self.limited.insert(key, made?.map(Rc::new));
        Ok(())
    }

    fn split_off(&mut self, place: Option<(usize, u32)>) -> Result<Option<Communicator>> {
        if self.base.is_none() {
            let mine = if self.world.rank() == 0 { self.maker.unique_id()?.0.to_vec() } else { Vec::new() };
            let mut id = mine;
            self.world.broadcast_bytes(&mut id)?;
            self.base = Some(self.maker.init(read_id(&id)?, self.world.ranks(), self.world.rank())?);
        }
        let base = self.base.as_ref().ok_or_else(|| Error::environment("no communicator of all ranks"))?;
        self.maker.split(base, place.map(|(group, _)| group as u32), place.map_or(self.world.rank(), |(_, me)| me))
    }

    /// Used without ncclCommSplit: the first rank of each group creates an id, and all ids are sent to all ranks.
    fn init_groups(&mut self, groups: &Groups, place: Option<(usize, u32)>) -> Result<Option<Communicator>> {
        let mine = match place {
            Some((_, 0)) => self.maker.unique_id()?.0.to_vec(),
            _ => Vec::new(),
        };
        let mut ids = self.world.gather_bytes(&mine)?.concat();
        self.world.broadcast_bytes(&mut ids)?;
        let Some((group, me)) = place else { return Ok(None) };
        // The ids arrive in the order of the ranks that created them.
        let first = groups.groups[group].first();
        let before = groups.groups.iter().filter(|other| other.first() < first).count();
        let id = ids.chunks(128).nth(before).unwrap_or_default();
        self.maker.init(read_id(id)?, groups.groups[group].len() as u32, me).map(Some)
    }

    /// Ends all communicators, in the same order on all ranks.
    pub(super) fn disconnect_all(&mut self) -> Result<()> {
        self.end_registration()?;
        self.windows.forget();
        self.close_channels()?;
        let mut numbers: Vec<usize> = self.communicators.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(communicator) = self.communicators.remove(&number).flatten() {
                self.maker.destroy(&communicator)?;
            }
        }
        let mut limited: Vec<(usize, u32)> = self.limited.keys().copied().collect();
        limited.sort_unstable();
        for key in limited {
            if let Some(communicator) = self.limited.remove(&key).flatten() {
                self.maker.destroy(&communicator)?;
            }
        }
        self.base.take().map_or(Ok(()), |base| self.maker.destroy(&base))
    }
}
