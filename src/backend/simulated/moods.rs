//! Faults that come and go: what a call takes at each moment, worked out once for every combination of them that turns up.

use super::fleet::{Comes, Fleet};
use super::noise::Noise;
use super::placing::Placed;
use super::work::Work;
use crate::collective::Collective;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::Groups;
use crate::random::{split_mix, uniform};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What a call is like at each moment.
#[derive(Debug)]
pub(super) struct Moods<'b> {
    fleet: &'b Fleet,
    seed: u64,
    collective: Collective,
    geometry: Geometry,
    groups: Groups,
    of: HashMap<u64, Mood>,
}

/// What a call is like at one moment.
#[derive(Debug)]
pub(super) struct Mood {
    pub work: Work,
    /// Slots that come late, with nanoseconds.
    pub delays: Vec<(usize, u64)>,
}

impl<'b> Moods<'b> {
    /// None where no fault comes and goes.
    pub(super) fn new(
        fleet: &'b Fleet,
        seed: u64,
        collective: Collective,
        geometry: &Geometry,
        groups: &Groups,
    ) -> Option<Moods<'b>> {
        let (geometry, groups) = (geometry.clone(), groups.clone());
        let any = !fleet.intermittent.is_empty();
        any.then(|| Moods { fleet, seed, collective, geometry, groups, of: HashMap::new() })
    }

    /// What the call is like now.
    pub(super) fn at(&mut self, now: u64, noise: &mut Noise) -> Result<&Mood> {
        let present = present(self.fleet, self.seed, now, noise);
        match self.of.entry(present) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let fleet = self.fleet.at_a_moment(present);
                let placed = Placed::new(&self.groups, &fleet)?;
                let delays = placed.slots_of_delays(&fleet.delays);
                let work = Work::new(self.collective, &self.geometry, &placed, &fleet);
                Ok(unknown.insert(Mood { work, delays }))
            }
        }
    }
}

/// Which of the faults that come and go are there, one bit for each. Those with windows are the same for all who ask within
/// one, whatever they ask about.
pub(super) fn present(fleet: &Fleet, seed: u64, now: u64, noise: &mut Noise) -> u64 {
    let there = fleet.intermittent.iter().enumerate().filter(|(bit, fault)| match fault.comes {
        Comes::ByCall(probability) => noise.happens(probability),
        Comes::ByWindow(probability, window) => share_of(seed ^ ((*bit as u64 + 1) << 48), now / window) < probability,
        Comes::Once(from, until) => (from..until).contains(&now),
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
    fn windows_have_the_share_that_was_asked_for_and_depend_on_the_seed() {
        let below = |seed: u64| (0..10_000).filter(|window| share_of(seed, *window) < 0.2).count();
        assert!((1900..2100).contains(&below(1)) && (1900..2100).contains(&below(2)), "{} {}", below(1), below(2));
        assert_ne!(
            (0..64).map(|w| share_of(1, w) < 0.5).collect::<Vec<_>>(),
            (0..64).map(|w| share_of(2, w) < 0.5).collect::<Vec<_>>()
        );
    }
}
