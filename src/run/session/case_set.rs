//! Cases that are measured together, and their order in each replicate.

use super::preflight::Planned;
use super::request::Request;
use crate::backend::Backend;
use commgauge_base::error::Result;
use commgauge_model::config::{Rounds, RunSettings};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::ops::Range;

/// The cases of the plan, or those that a round adds to it.
#[derive(Clone, Copy)]
pub(super) struct CaseSet<'a> {
    pub planned: &'a [Planned<'a>],
    /// Index in the plan of the first of these cases.
    pub first_case: usize,
    /// 0 for the plan of the suite, then the rounds in which a run adds cases.
    pub round: u32,
}

/// A case of a replicate, and its position.
#[derive(Clone, Copy)]
pub(super) struct CaseSlot {
    /// Index in the set.
    pub case: usize,
    pub replicate: u32,
    pub position: u32,
}

impl CaseSet<'_> {
    /// Index in the plan.
    pub(super) fn index_in_plan(&self, case: usize) -> usize {
        self.first_case + case
    }

    /// Indices in the plan of all of them.
    pub(super) fn indices(&self) -> Range<usize> {
        self.first_case..self.first_case + self.planned.len()
    }

    /// Creates fresh communicators for all groups in use.
    pub(super) fn connect(&self, request: &Request, backend: &mut dyn Backend) -> Result<()> {
        let used: BTreeSet<usize> = self.planned.iter().map(|planned| planned.case.groups).collect();
        used.iter().try_for_each(|number| backend.connect(*number, &request.plan.groups[*number]))
    }

    /// The order of the cases in a replicate.
    pub(super) fn order(&self, settings: &RunSettings, replicate: u32) -> Vec<usize> {
        if settings.rounds == Rounds::LastInOrder && replicate + 1 == settings.replicates {
            return in_order_of_rows(self.planned);
        }
        let seed = settings.seed.wrapping_add(u64::from(self.round) << 32);
        shuffled(self.planned.len(), seed, replicate)
    }
}

/// Shuffled, so that slow drift does not always affect the same cases.
fn shuffled(cases: usize, seed: u64, replicate: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(replicate)));
    order.shuffle(&mut random);
    order
}

/// The order of the rows of a table: sorted by table, and within a table as in the plan.
fn in_order_of_rows(planned: &[Planned]) -> Vec<usize> {
    let part = |case: usize| {
        let case = planned[case].case;
        (case.groups, case.op.style, case.cadence)
    };
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for case in 0..planned.len() {
        match parts.iter_mut().find(|cases| part(cases[0]) == part(case)) {
            Some(cases) => cases.push(case),
            None => parts.push(vec![case]),
        }
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replicate_has_all_cases_in_an_order_of_its_own_that_the_seed_repeats() {
        let mut sorted = shuffled(50, 7, 0);
        assert_ne!(sorted, shuffled(50, 7, 1));
        assert_eq!(sorted, shuffled(50, 7, 0));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
