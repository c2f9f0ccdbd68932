//! A bound case as times: nanoseconds without noise for each group, or each message.

use super::fleet::Fleet;
use super::placing::Placed;
use commgauge_analysis::machine_time::{Hop, Volume, collective_seconds, message_seconds};
use commgauge_base::collective::{Collective, Motion};
use commgauge_base::geometry::Geometry;
use commgauge_model::config::machine::Direction;
use std::ops::Range;

/// Eleven days. Absurd sizes over absurd links end here instead of beyond the clock.
const LONGEST_NANOSECONDS: f64 = 1e15;

/// What becomes of the message of a group's last rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastMessage {
    /// It goes to the first rank.
    Wraps,
    /// There is none.
    Absent,
}

/// Effect of an enqueued call on the clocks.
#[derive(Debug)]
pub(super) enum Work {
    /// For each group: from the last arrival to the common end.
    Together { nanoseconds_of_group: Vec<f64> },
    /// For each slot: its message to the next slot of the group (of the last slot: to the first, if it wraps).
    Neighbours { nanoseconds_of_slot: Vec<f64>, last: LastMessage },
    /// For each slot in the lower half of its group: all its messages with its partner in the upper half.
    Pairs { nanoseconds_of_slot: Vec<f64> },
}

impl Work {
    pub(super) fn new(collective: Collective, geometry: &Geometry, placed: &Placed, fleet: &Fleet) -> Work {
        let message_bytes = geometry.bytes_total.0 as f64;
        match collective.motion() {
            Motion::Together(algorithm) => {
                let seconds = placed.slots().zip(&placed.shapes).map(|(slots, (shape, paths))| {
                    let volume =
                        volume(collective, geometry, &placed.domain_of_slot[slots], shape.ranks_per_node_least);
                    nanoseconds(collective_seconds(algorithm, shape, paths, &volume))
                });
                Work::Together { nanoseconds_of_group: seconds.collect() }
            }
            motion @ (Motion::Ring | Motion::Chain) => {
                let last = if motion == Motion::Ring { LastMessage::Wraps } else { LastMessage::Absent };
                let next = |slots: &Range<usize>, slot: usize| match slot + 1 {
                    next if next < slots.end => Some(next),
                    _ => (last == LastMessage::Wraps).then_some(slots.start),
                };
                let messages = Messages::new(placed, fleet, next);
                let seconds = |message: Message| message_seconds(messages.forth(message), message_bytes);
                Work::Neighbours { nanoseconds_of_slot: messages.nanoseconds(seconds), last }
            }
            Motion::Pairs { messages_in_turn } => {
                let partner = |slots: &Range<usize>, slot: usize| {
                    let half = slots.len() / 2;
                    (slot - slots.start < half).then_some(slot + half)
                };
                let messages = Messages::new(placed, fleet, partner);
                let seconds = |message: Message| {
                    let forth = message_seconds(messages.forth(message), message_bytes);
                    let back = message_seconds(messages.back(message), message_bytes);
                    // In turn, as many go forth as back.
                    if messages_in_turn > 1 {
                        (forth + back) * f64::from(messages_in_turn) / 2.0
                    } else {
                        forth.max(back)
                    }
                };
                Work::Pairs { nanoseconds_of_slot: messages.nanoseconds(seconds) }
            }
        }
    }
}

impl Work {
    /// The same with all times by a factor.
    pub(super) fn times(self, factor: f64) -> Work {
        let times =
            |all: Vec<f64>| all.into_iter().map(|time| (time * factor).clamp(1.0, LONGEST_NANOSECONDS)).collect();
        match self {
            Work::Together { nanoseconds_of_group } => {
                Work::Together { nanoseconds_of_group: times(nanoseconds_of_group) }
            }
            Work::Neighbours { nanoseconds_of_slot, last } => {
                Work::Neighbours { nanoseconds_of_slot: times(nanoseconds_of_slot), last }
            }
            Work::Pairs { nanoseconds_of_slot } => Work::Pairs { nanoseconds_of_slot: times(nanoseconds_of_slot) },
        }
    }
}

/// Seconds as nanoseconds, at least one and not beyond the clock.
pub(super) fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).clamp(1.0, LONGEST_NANOSECONDS)
}

fn volume(collective: Collective, geometry: &Geometry, domain_of_member: &[u32], ranks_per_node_least: u32) -> Volume {
    let element_bytes = geometry.element_bytes as f64;
    let all_bytes = geometry.bytes_total.0 as f64;
    if !collective.has_splits() {
        let block = all_bytes / f64::from(geometry.ranks());
        let least_node_bytes = block * f64::from(ranks_per_node_least);
        return Volume { all_bytes, least_block_bytes: block, largest_block_bytes: block, least_node_bytes };
    }
    let blocks = || geometry.blocks.iter().copied();
    let mut placed: Vec<(u32, u64)> = domain_of_member.iter().copied().zip(blocks()).collect();
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

/// The messages that slots send to others at the same time: those that leave a node share its adapters, and so do those that
/// enter it.
struct Messages<'a> {
    placed: &'a Placed,
    fleet: &'a Fleet,
    /// The message of each slot, if it sends one.
    of_slot: Vec<Option<Message>>,
    /// For each node, the messages that leave it, and those that enter it.
    leaving: Vec<u32>,
    entering: Vec<u32>,
}

/// A message between slots.
#[derive(Clone, Copy)]
struct Message {
    sender: usize,
    receiver: usize,
    /// Share of the rate that is left to groups of so many nodes.
    scale_factor: f64,
}

impl<'a> Messages<'a> {
    fn new(
        placed: &'a Placed,
        fleet: &'a Fleet,
        receiver: impl Fn(&Range<usize>, usize) -> Option<usize>,
    ) -> Messages<'a> {
        let (node, domain) = (&placed.node_of_slot, &placed.domain_of_slot);
        let mut leaving = vec![0; fleet.nodes() as usize];
        let mut entering = leaving.clone();
        let mut of_slot = Vec::with_capacity(node.len());
        for (slots, (shape, _)) in placed.slots().zip(&placed.shapes) {
            let scale_factor = fleet.scale_factor(shape.nodes);
            for sender in slots.clone() {
                let message = receiver(&slots, sender).map(|receiver| Message { sender, receiver, scale_factor });
                of_slot.push(message);
                if let Some(Message { receiver, .. }) = message.filter(|sent| domain[sent.receiver] != domain[sender]) {
                    leaving[node[sender] as usize] += 1;
                    entering[node[receiver] as usize] += 1;
                }
            }
        }
        Messages { placed, fleet, of_slot, leaving, entering }
    }

    /// The way of a message.
    fn forth(&self, message: Message) -> Hop {
        self.hop(message, &self.leaving, &self.entering)
    }

    /// The way of its answer, while all others are answered too.
    fn back(&self, message: Message) -> Hop {
        let Message { sender, receiver, .. } = message;
        self.hop(Message { sender: receiver, receiver: sender, ..message }, &self.entering, &self.leaving)
    }

    fn hop(&self, message: Message, leaving: &[u32], entering: &[u32]) -> Hop {
        let (fleet, slots) = (self.fleet, [message.sender, message.receiver]);
        let [sender, receiver] = slots.map(|slot| self.placed.rank_of_slot[slot]);
        let [from, to] = slots.map(|slot| self.placed.node_of_slot[slot]);
        if fleet.domain_of(sender) == fleet.domain_of(receiver) {
            return fleet.within(sender, receiver);
        }
        let out = fleet.adapter_share(from, leaving[from as usize]) * fleet.adapter_factor(sender, Direction::Send);
        let into = fleet.adapter_share(to, entering[to as usize]) * fleet.adapter_factor(receiver, Direction::Receive);
        Hop {
            latency_seconds: fleet.machine.between_nodes.latency.0,
            rate: out.min(into) * fleet.link_factor(&[from.min(to), from.max(to)]) * message.scale_factor,
        }
    }

    /// For each slot the nanoseconds of its message; of slots that send none a moment.
    fn nanoseconds(&self, seconds: impl Fn(Message) -> f64) -> Vec<f64> {
        self.of_slot.iter().map(|message| nanoseconds(message.map_or(0.0, &seconds))).collect()
    }
}
