//! A bound case as times: nanoseconds without noise for each group, or each message.

use super::fleet::Fleet;
use super::placing::Placed;
use commgauge_analysis::machine_time::{Hop, Motion, Volume, collective_seconds, message_seconds};
use commgauge_base::collective::Collective;
use commgauge_base::geometry::Geometry;
use std::ops::Range;

/// Eleven days. Absurd sizes over absurd links end here instead of beyond the clock.
const LONGEST_NANOSECONDS: f64 = 1e15;

/// Effect of an enqueued call on the clocks.
#[derive(Debug)]
pub(super) enum Work {
    /// For each group: from the last arrival to the common end.
    Together { nanoseconds_of_group: Vec<f64> },
    /// For each slot: its message to the next slot of the group (of the last slot: to the first, if it wraps).
    Neighbours { nanoseconds_of_slot: Vec<f64>, wraps: bool },
    /// For each slot in the lower half of its group: all its messages with its partner in the upper half.
    Pairs { nanoseconds_of_slot: Vec<f64> },
}

impl Work {
    pub(super) fn new(collective: Collective, geometry: &Geometry, placed: &Placed, fleet: &Fleet) -> Work {
        let message_bytes = geometry.bytes_total.0 as f64;
        match Motion::of(collective) {
            Motion::Together(algorithm) => {
                let seconds = placed.slots().zip(&placed.shapes).map(|(slots, (shape, paths))| {
                    let volume = volume(collective, geometry, &placed.node_of_slot[slots], shape.ranks_per_node_least);
                    nanoseconds(collective_seconds(algorithm, shape, paths, &volume))
                });
                Work::Together { nanoseconds_of_group: seconds.collect() }
            }
            motion @ (Motion::Ring | Motion::Chain) => {
                let wraps = motion == Motion::Ring;
                let next = |slots: &Range<usize>, slot: usize| match slot + 1 {
                    next if next < slots.end => Some(next),
                    _ => wraps.then_some(slots.start),
                };
                Work::Neighbours { nanoseconds_of_slot: messages(placed, fleet, message_bytes, 1, next), wraps }
            }
            Motion::Pairs { messages_in_turn } => {
                let partner = |slots: &Range<usize>, slot: usize| {
                    let half = slots.len() / 2;
                    (slot - slots.start < half).then_some(slot + half)
                };
                Work::Pairs { nanoseconds_of_slot: messages(placed, fleet, message_bytes, messages_in_turn, partner) }
            }
        }
    }
}

/// Seconds as nanoseconds, at least one and not beyond the clock.
pub(super) fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).clamp(1.0, LONGEST_NANOSECONDS)
}

fn volume(collective: Collective, geometry: &Geometry, node_of_member: &[u32], ranks_per_node_least: u32) -> Volume {
    let element_bytes = geometry.element_bytes as f64;
    let all_bytes = geometry.bytes_total.0 as f64;
    if !collective.has_splits() {
        let block = all_bytes / f64::from(geometry.ranks());
        let least_node_bytes = block * f64::from(ranks_per_node_least);
        return Volume { all_bytes, least_block_bytes: block, largest_block_bytes: block, least_node_bytes };
    }
    let blocks = || geometry.blocks.iter().copied();
    let mut placed: Vec<(u32, u64)> = node_of_member.iter().copied().zip(blocks()).collect();
    placed.sort_unstable();
    let on_nodes = placed.chunk_by(|a, b| a.0 == b.0).map(|run| run.iter().map(|(_, block)| block).sum::<u64>());
    Volume {
        all_bytes,
        least_block_bytes: blocks().min().unwrap_or(0) as f64 * element_bytes,
        // The steps of all_to_all_v follow each other, each as long as its longest message.
        largest_block_bytes: geometry.largest_count() as f64 * element_bytes,
        least_node_bytes: on_nodes.min().unwrap_or(0) as f64 * element_bytes,
    }
}

/// Times of the messages that slots send to the slots that `receiver` names. Those that leave a node at the same time share
/// its adapters, and so do those that enter it.
fn messages(
    placed: &Placed,
    fleet: &Fleet,
    bytes: f64,
    in_turn: u32,
    receiver: impl Fn(&Range<usize>, usize) -> Option<usize>,
) -> Vec<f64> {
    let node = &placed.node_of_slot;
    let pairs = || {
        let of_group = |slots: Range<usize>| slots.clone().map(move |slot| (slots.clone(), slot));
        placed.slots().flat_map(of_group).map(|(slots, slot)| (slot, receiver(&slots, slot)))
    };
    let mut leaving = vec![0; fleet.nodes() as usize];
    let mut entering = leaving.clone();
    for (slot, receiver) in pairs() {
        if let Some(receiver) = receiver.filter(|receiver| node[*receiver] != node[slot]) {
            leaving[node[slot] as usize] += 1;
            entering[node[receiver] as usize] += 1;
        }
    }
    let hop = |sender: usize, receiver: usize, together: f64| {
        let (from, to) = (node[sender], node[receiver]);
        if from == to {
            return fleet.within(from);
        }
        let factor = |slot: usize| fleet.adapter_factor(placed.rank_of_slot[slot]);
        let out = fleet.adapter_share(from, leaving[from as usize]) * factor(sender);
        let into = fleet.adapter_share(to, entering[to as usize]) * factor(receiver);
        Hop {
            latency_seconds: fleet.machine.between_nodes.latency.0,
            rate: out.min(into) * fleet.link_factor(&[from.min(to), from.max(to)]) * together,
        }
    };
    let spans = placed.slots().zip(&placed.shapes);
    let together = spans.flat_map(|(slots, (shape, _))| slots.map(|_| fleet.scale_factor(shape.nodes)));
    let seconds = |slot: usize, receiver: Option<usize>, together: f64| match receiver {
        Some(receiver) => f64::from(in_turn) * message_seconds(hop(slot, receiver, together), bytes),
        None => 0.0,
    };
    pairs().zip(together).map(|((slot, receiver), together)| nanoseconds(seconds(slot, receiver, together))).collect()
}
