//! How long collectives take that something hides: each as long as on the rank of its group that came last.
//!
//! The other ranks started it earlier and saw it under way while they waited for that one, which says nothing of the call: a call of a few
//! bytes beside a pass of 20 ms would seem thousands of times slower than alone. No two clocks are compared.

use super::gathered::{decoded, encoded, median_of};
use crate::backend::{HiddenCall, Replayer};
use crate::world::World;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Groups;
use commgauge_model::record::replay_line::HiddenCalls;
use commgauge_model::workload::replay::ReplayPlan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// What distinguishes calls of a group.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kind {
    collective: Collective,
    element_type: ElementType,
    bytes_total: Bytes,
}

/// Calls of a kind, one of them or several.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Calls {
    kind: usize,
    calls: u64,
    nanoseconds: u64,
}

/// Index of the plan's groups, and which of those.
type Place = (usize, usize);

/// The hidden calls of a group in one repetition, in the order of their starts.
#[derive(Default, Serialize, Deserialize)]
struct OfGroup {
    kinds: Vec<Kind>,
    calls: Vec<Calls>,
}

/// Those of all groups, in all repetitions so far. Only process 0 has them.
pub(super) struct Hidden {
    /// By groups of the plan and rank: the rank's group.
    group_of_rank: Vec<Vec<usize>>,
    repeated: BTreeMap<Place, Vec<Repeated>>,
}

/// Calls of a kind in a group: their time in each repetition.
struct Repeated {
    kind: Kind,
    calls: u64,
    nanoseconds: Vec<u64>,
}

impl Hidden {
    /// None so far.
    pub fn new(plan: &ReplayPlan) -> Hidden {
        let of_ranks = |groups: &Groups| {
            let mut group_of_rank = vec![usize::MAX; plan.stage_of_rank.len()];
            for (group, ranks) in groups.groups.iter().enumerate() {
                ranks.iter().for_each(|rank| group_of_rank[*rank as usize] = group);
            }
            group_of_rank
        };
        Hidden { group_of_rank: plan.groups.iter().map(of_ranks).collect(), repeated: BTreeMap::new() }
    }

    /// Adds the last repetition. All processes call it.
    pub fn add(
        &mut self,
        world: &dyn World,
        local_ranks: Range<u32>,
        replayer: &dyn Replayer,
        plan: &ReplayPlan,
    ) -> Result<()> {
        let mut mine: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for (local, rank) in local_ranks.enumerate() {
            merge_shortest(&mut mine, self.of_rank(plan, &replayer.hidden_calls(local), rank));
        }
        let mut all: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for bytes in world.gather(&encoded(&mine.into_iter().collect::<Vec<_>>())?)? {
            merge_shortest(&mut all, decoded::<Vec<(Place, OfGroup)>>(&bytes)?);
        }
        all.iter().for_each(|(place, of_group)| self.add_group(*place, of_group));
        Ok(())
    }

    /// What a rank saw of the hidden calls of each of its groups.
    fn of_rank(&self, plan: &ReplayPlan, calls: &[HiddenCall], rank: u32) -> Vec<(Place, OfGroup)> {
        let Some(program) = plan.program_of_rank(rank) else { return Vec::new() };
        let mut found: BTreeMap<Place, OfGroup> = BTreeMap::new();
        for call in calls {
            let (op, groups) = (&program.ops[call.op], program.groups[call.op]);
            let kind = Kind { collective: op.collective, element_type: op.element, bytes_total: op.bytes_total };
            let of_group = found.entry((groups, self.group_of_rank[groups][rank as usize])).or_default();
            let kind = of_group.kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                of_group.kinds.push(kind);
                of_group.kinds.len() - 1
            });
            of_group.calls.push(Calls { kind, calls: call.calls, nanoseconds: call.nanoseconds });
        }
        found.into_iter().collect()
    }

    fn add_group(&mut self, place: Place, of_group: &OfGroup) {
        let known = self.repeated.entry(place).or_default();
        for (index, kind) in of_group.kinds.iter().enumerate() {
            let own = of_group.calls.iter().filter(|calls| calls.kind == index);
            let (calls, nanoseconds) = own.fold((0, 0), |(calls, sum), own| (calls + own.calls, sum + own.nanoseconds));
            match known.iter_mut().find(|known| known.kind == *kind) {
                Some(known) => known.nanoseconds.push(nanoseconds),
                None => known.push(Repeated { kind: *kind, calls, nanoseconds: vec![nanoseconds] }),
            }
        }
    }

    /// Those of the group of an axis that spent most on them.
    pub fn of_slowest(&self, groups: usize) -> Vec<HiddenCalls> {
        let of_group = |repeated: &Vec<Repeated>| -> Vec<HiddenCalls> {
            repeated
                .iter()
                .map(|Repeated { kind, calls, nanoseconds }| HiddenCalls {
                    collective: kind.collective,
                    element_type: kind.element_type,
                    bytes_total: kind.bytes_total,
                    calls: *calls,
                    nanoseconds_median: median_of(nanoseconds.iter().copied()),
                })
                .collect()
        };
        let total = |calls: &Vec<HiddenCalls>| calls.iter().map(|calls| calls.nanoseconds_median).sum::<u64>();
        let of_axis = self.repeated.range((groups, 0)..(groups + 1, 0)).map(|(_, repeated)| of_group(repeated));
        of_axis.max_by_key(total).unwrap_or_default()
    }
}

/// Each call of a group as short as on any of its ranks, which all have the same calls in the same order.
fn merge_shortest(all: &mut BTreeMap<Place, OfGroup>, more: Vec<(Place, OfGroup)>) {
    for (place, new) in more {
        match all.entry(place) {
            Entry::Occupied(mut known) => {
                for (known, new) in known.get_mut().calls.iter_mut().zip(&new.calls) {
                    known.nanoseconds = known.nanoseconds.min(new.nanoseconds);
                }
            }
            Entry::Vacant(free) => {
                free.insert(new);
            }
        }
    }
}
