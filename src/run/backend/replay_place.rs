//! One rank's part of a replay plan: its program, and its place in each of the groups.

use super::ReplayBinding;
use commgauge_base::error::{Error, Result};
use commgauge_model::workload::replay::ReplayProgram;

pub(super) fn program_of<'a>(binding: &ReplayBinding<'a>, rank: u32) -> Result<&'a ReplayProgram> {
    let missing = || Error::environment(format!("the replay has no program for rank {rank}"));
    binding.plan.program_of_rank(rank).ok_or_else(missing)
}

/// The group and place of this rank in the groups of a plan.
pub(super) fn place<'a>(binding: &ReplayBinding<'a>, rank: u32) -> impl Fn(usize) -> Option<(&'a [u32], u32)> {
    let places: Vec<Option<(&'a [u32], u32)>> = binding
        .plan
        .groups
        .iter()
        .map(|groups| groups.place_of(rank).map(|place| (groups.groups[place.group].as_slice(), place.rank_in_group)))
        .collect();
    move |groups| places.get(groups).copied().flatten()
}
