//! Buffer regions of each call of a program: calls that can be active together never share a region that is written
//! to.

use super::{Action, Movement, ReplayProgram};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::segments::View;
use std::collections::HashMap;

/// Buffers begin at multiples of a page, so that none shares a cache line with its neighbour.
const GRAIN_BYTES: u64 = 4096;

/// A stretch of the memory of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Offset in bytes.
    pub offset: u64,
    /// Length; 0 if the call has no such buffer.
    pub bytes: u64,
}

/// The buffers of every slot of a program, as one rank has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Read by the call; shared by all calls of the same length, as reads do not conflict.
    pub send: Vec<Region>,
    /// Written by the call.
    pub receive: Vec<Region>,
    /// Length of the memory that is read.
    pub send_bytes: u64,
    /// Length of the memory that is written.
    pub receive_bytes: u64,
}

/// Placement of a collective in a replay: in place if that exists, as in training.
pub fn placement_of(collective: Collective) -> Placement {
    match collective.placements() {
        offered if offered.contains(&Placement::InPlace) => Placement::InPlace,
        _ => Placement::OutOfPlace,
    }
}

impl Regions {
    /// The regions of a program; `place` returns the group and the rank within it for an index of groups.
    ///
    /// # Errors
    /// If the rank is in no group of an op of its stage.
    pub fn of<'a>(program: &ReplayProgram, place: impl Fn(usize) -> Option<(&'a [u32], u32)>) -> Result<Regions> {
        Regions::placed(program, place, placement_of)
    }

    /// As [`Regions::of`], for backends that place collectives differently.
    ///
    /// # Errors
    /// As there.
    pub fn placed<'a>(
        program: &ReplayProgram,
        place: impl Fn(usize) -> Option<(&'a [u32], u32)>,
        placement: fn(Collective) -> Placement,
    ) -> Result<Regions> {
        let mut regions = Regions::default();
        let lengths: Vec<Lengths> =
            (0..program.slots.len()).map(|slot| lengths(program, slot, &place, placement)).collect::<Result<_>>()?;
        let mut shared: HashMap<u64, u64> = HashMap::new();
        for Lengths { send, .. } in &lengths {
            let next = &mut regions.send_bytes;
            let offset = *shared.entry(*send).or_insert_with(|| advance(next, *send));
            regions.send.push(Region { offset, bytes: *send });
        }
        let shares = shares(program, &lengths);
        let mut offsets: HashMap<(u64, usize), u64> = HashMap::new();
        for (Lengths { receive, .. }, share) in lengths.iter().zip(shares) {
            let next = &mut regions.receive_bytes;
            let offset = *offsets.entry((*receive, share)).or_insert_with(|| advance(next, *receive));
            regions.receive.push(Region { offset, bytes: *receive });
        }
        Ok(regions)
    }
}

fn advance(next: &mut u64, bytes: u64) -> u64 {
    let offset = *next;
    *next = next.saturating_add(bytes.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(u64::MAX));
    offset
}

/// Bytes that a slot reads and writes.
#[derive(Clone, Copy)]
struct Lengths {
    send: u64,
    receive: u64,
}

fn lengths<'a>(
    program: &ReplayProgram,
    slot: usize,
    place: &impl Fn(usize) -> Option<(&'a [u32], u32)>,
    placement: fn(Collective) -> Placement,
) -> Result<Lengths> {
    let slot = &program.slots[slot];
    let op = program.op_of(slot);
    let geometry = &program.geometries[slot.op as usize];
    match slot.movement {
        Movement::Send { .. } => Ok(Lengths { send: geometry.bytes_total.0, receive: 0 }),
        Movement::Receive { .. } => Ok(Lengths { send: 0, receive: geometry.bytes_total.0 }),
        Movement::Together => {
            let (group, me) = place(program.groups[slot.op as usize]).ok_or_else(|| {
                Error::usage(format!("a rank of stage {} is in no group of {}", program.stage, op.axis))
            })?;
            let placement = placement(op.collective);
            let view = View { collective: op.collective, placement, geometry, group, me, root: op.root };
            let (send, receive) = view.buffer_elements();
            Ok(Lengths { send: send * geometry.element_bytes, receive: receive * geometry.element_bytes })
        }
    }
}

/// For each slot the number of its buffer among those of the same length: the lowest that no concurrently active slot
/// has. A slot uses its buffer for the whole program.
fn shares(program: &ReplayProgram, lengths: &[Lengths]) -> Vec<usize> {
    let slots = program.slots.len();
    let mut beside: Vec<Vec<u32>> = vec![Vec::new(); slots];
    let mut under_way: Vec<u32> = Vec::new();
    for action in &program.actions {
        match action {
            Action::Start { slot } => {
                if lengths[*slot as usize].receive == 0 {
                    continue;
                }
                for other in &under_way {
                    if lengths[*other as usize].receive == lengths[*slot as usize].receive {
                        insert(&mut beside[*slot as usize], *other);
                        insert(&mut beside[*other as usize], *slot);
                    }
                }
                under_way.push(*slot);
            }
            Action::Wait { slot } => under_way.retain(|other| other != slot),
            Action::Compute { .. } => {}
        }
    }
    let mut shares = vec![usize::MAX; slots];
    for slot in 0..slots {
        let mut in_use: Vec<usize> = beside[slot].iter().map(|other| shares[*other as usize]).collect();
        in_use.sort_unstable();
        in_use.dedup();
        shares[slot] =
            in_use.iter().enumerate().find(|(place, share)| place != *share).map_or(in_use.len(), |gap| gap.0);
    }
    shares
}

fn insert(sorted: &mut Vec<u32>, slot: u32) {
    if let Err(place) = sorted.binary_search(&slot) {
        sorted.insert(place, slot);
    }
}
