//! Intermittent faults: the times of a call for each combination of active faults, computed once when the combination
//! first occurs.

use super::fleet::{Fleet, Recurrence};
use super::noise::Noise;
use super::placing::{LateSlot, Placed};
use super::work::Work;
use crate::backend::Binding;
use commgauge_base::collective::{Collective, Motion};
use commgauge_base::error::Result;
use commgauge_base::geometry::Geometry;
use commgauge_base::random::{split_mix, uniform};
use commgauge_model::layout::Groups;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The state of a call at each moment.
#[derive(Debug)]
pub(super) struct FaultStates<'b> {
    fleet: &'b Fleet,
    seed: u64,
    collective: Collective,
    geometry: Geometry,
    /// What the call takes of the time that its links allow.
    factor: f64,
    /// The groups on a fleet without these faults.
    placed: &'b Placed,
    /// The groups, where the paths of a whole group count; messages look up their own, which saves placing thousands of pairs again.
    groups: Option<Groups>,
    of: HashMap<u64, FaultState>,
}

/// The times of a call in one combination of faults.
#[derive(Debug)]
pub(super) struct FaultState {
    pub work: Work,
    pub late: Vec<LateSlot>,
}

impl<'b> FaultStates<'b> {
    /// None if there is no intermittent fault.
    pub(super) fn new(
        fleet: &'b Fleet,
        seed: u64,
        binding: &Binding,
        placed: &'b Placed,
        factor: f64,
    ) -> Option<FaultStates<'b>> {
        let any = !fleet.intermittent.is_empty();
        let collective = binding.op.collective;
        any.then(|| FaultStates {
            fleet,
            seed,
            collective,
            geometry: binding.geometry.clone(),
            factor,
            placed,
            groups: matches!(collective.motion(), Motion::Together(_)).then(|| binding.groups.clone()),
            of: HashMap::new(),
        })
    }

    /// The present state of the call.
    pub(super) fn at(&mut self, now: u64, noise: &mut Noise) -> Result<&FaultState> {
        let present = present(self.fleet, self.seed, now, noise);
        match self.of.entry(present) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let fleet = self.fleet.with_active(present);
                let slowed = self.groups.as_ref().map(|groups| Placed::new(groups, &fleet)).transpose()?;
                let placed = slowed.as_ref().unwrap_or(self.placed);
                let late = placed.late_slots(&fleet.late);
                let work = Work::new(self.collective, &self.geometry, placed, &fleet).times(self.factor);
                Ok(unknown.insert(FaultState { work, late }))
            }
        }
    }
}

/// The intermittent faults that are active, one bit for each. Faults with time windows are in the same state for all
/// calls within one window.
pub(super) fn present(fleet: &Fleet, seed: u64, now: u64, noise: &mut Noise) -> u64 {
    let there = fleet.intermittent.iter().enumerate().filter(|(bit, fault)| match fault.recurrence {
        Recurrence::ByCall(probability) => noise.happens(probability),
        Recurrence::ByWindow(probability, window) => {
            share_of(seed ^ ((*bit as u64 + 1) << 48), now / window) < probability
        }
        Recurrence::Once(from, until) => (from..until).contains(&now),
    });
    there.fold(0, |present, (bit, _)| present | 1 << bit)
}

/// A number from 0 to 1 that looks drawn but depends on what is given only.
fn share_of(seed: u64, window: u64) -> f64 {
    uniform(split_mix(seed, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_windows_have_the_requested_share_and_depend_on_the_seed() {
        let below = |seed: u64| (0..10_000).filter(|window| share_of(seed, *window) < 0.2).count();
        assert!((1900..2100).contains(&below(1)) && (1900..2100).contains(&below(2)), "{} {}", below(1), below(2));
        assert_ne!(
            (0..64).map(|w| share_of(1, w) < 0.5).collect::<Vec<_>>(),
            (0..64).map(|w| share_of(2, w) < 0.5).collect::<Vec<_>>()
        );
    }
}
