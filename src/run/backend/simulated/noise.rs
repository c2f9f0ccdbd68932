//! Seeded scatter of simulated times: a factor for each call of a group, a delay for each arrival.

use super::fleet::{Fleet, LateSlot, Placed, Recurrence};
use crate::backend::Binding;
use commgauge_base::collective::{Collective, Motion};
use commgauge_base::error::Result;
use commgauge_base::geometry::Geometry;
use commgauge_base::random::{normal, split_mix, uniform};
use commgauge_cost::machine_time::{Hop, Volume, collective_seconds, message_seconds};
use commgauge_model::config::machine;
use commgauge_model::layout::Groups;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// Factors are drawn from a table, since a call on thousands of groups needs thousands of them; a power of two.
const FACTORS: usize = 4096;

/// A source of noise. The same seed and the same order of queries give the same answers.
#[derive(Debug)]
pub(super) struct Noise {
    generator: Xoshiro256PlusPlus,
    /// Log-normal factors with a median of exactly 1; empty where times do not scatter.
    factors: Vec<f64>,
    outlier_below: u64,
    outlier_factor: f64,
    jitter_nanoseconds: u64,
}

impl Noise {
    pub(super) fn new(settings: &machine::Noise, seed: u64) -> Noise {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        let scatters = settings.relative_sigma > 0.0 || settings.outlier_probability > 0.0;
        let factors = if scatters { log_normal(settings.relative_sigma, &mut generator) } else { Vec::new() };
        Noise {
            generator,
            factors,
            outlier_below: threshold(settings.outlier_probability),
            outlier_factor: settings.outlier_factor,
            jitter_nanoseconds: settings.arrival_jitter.as_nanoseconds(),
        }
    }

    /// Factor on the time of the next call of a group.
    #[inline]
    pub(super) fn factor(&mut self) -> f64 {
        if self.factors.is_empty() {
            return 1.0;
        }
        let bits = self.generator.next_u64();
        let factor = self.factors[bits as usize % FACTORS];
        if bits >> 32 < self.outlier_below { factor * self.outlier_factor } else { factor }
    }

    /// True if arrival times vary.
    pub(super) fn jitters(&self) -> bool {
        self.jitter_nanoseconds > 0
    }

    /// Start delays of two ranks.
    #[inline]
    pub(super) fn two_delays_nanoseconds(&mut self) -> [u64; 2] {
        let bits = self.generator.next_u64();
        [bits >> 32, bits & 0xffff_ffff].map(|half| (half * self.jitter_nanoseconds) >> 32)
    }

    /// True with this probability.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.generator.next_u64() >> 32 < threshold(probability)
    }
}

/// Threshold for 32 random bits.
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(32)) as u64
}

/// Each deviate is followed by its negative, so that the median is 1 whatever was drawn.
fn log_normal(sigma: f64, generator: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let deviates = std::iter::repeat_with(|| normal([generator.next_u64(), generator.next_u64()]));
    deviates.take(FACTORS / 2).flat_map(|deviate| [(sigma * deviate).exp(), (-sigma * deviate).exp()]).collect()
}

// A bound case as times: nanoseconds without noise for each group, or each message.

/// Eleven days. Absurd sizes over absurd links end here instead of beyond the clock.
const LONGEST_NANOSECONDS: f64 = 1e15;

/// The fate of the message of a group's last rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastMessage {
    /// It goes to the first rank.
    Wraps,
    Absent,
}

/// How the ranks of a group wait for each other in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// All end together, a time after the last arrival.
    Together,
    /// Each sends a message to the next; the last one to the first, if it wraps.
    Neighbours(LastMessage),
    /// Each of the lower half exchanges all its messages with its partner in the upper half.
    Pairs,
}

/// The time of a call: for each group if its ranks end together, else for the messages of each slot.
#[derive(Debug)]
pub(super) struct Work {
    pub order: Order,
    pub nanoseconds: Vec<f64>,
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
                Work { order: Order::Together, nanoseconds: seconds.collect() }
            }
            motion @ (Motion::Ring | Motion::Chain) => {
                let last = if motion == Motion::Ring { LastMessage::Wraps } else { LastMessage::Absent };
                let next = |slots: &Range<usize>, slot: usize| match slot + 1 {
                    next if next < slots.end => Some(next),
                    _ => (last == LastMessage::Wraps).then_some(slots.start),
                };
                let messages = Messages::new(placed, fleet, next);
                let seconds = |message: Message| message_seconds(messages.forth(message), message_bytes);
                Work { order: Order::Neighbours(last), nanoseconds: messages.nanoseconds(seconds) }
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
                    // Alternating, as many in each direction.
                    if messages_in_turn > 1 {
                        (forth + back) * f64::from(messages_in_turn) / 2.0
                    } else {
                        forth.max(back)
                    }
                };
                Work { order: Order::Pairs, nanoseconds: messages.nanoseconds(seconds) }
            }
        }
    }

    /// With all times multiplied by a factor.
    pub(super) fn times(mut self, factor: f64) -> Work {
        self.nanoseconds.iter_mut().for_each(|time| *time = (*time * factor).clamp(1.0, LONGEST_NANOSECONDS));
        self
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
    /// Remaining share of the rate for groups of this many nodes.
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

    /// The hop of a message.
    fn forth(&self, message: Message) -> Hop {
        self.hop(message, &self.leaving, &self.entering)
    }

    /// The hop of its answer, while all others are answered too.
    fn back(&self, message: Message) -> Hop {
        let Message { sender, receiver, .. } = message;
        self.hop(Message { sender: receiver, receiver: sender, ..message }, &self.entering, &self.leaving)
    }

    fn hop(&self, message: Message, leaving: &[u32], entering: &[u32]) -> Hop {
        let [sender, receiver] = [message.sender, message.receiver].map(|slot| self.placed.rank_of_slot[slot]);
        let hop = self.fleet.hop(sender, receiver, |from| leaving[from as usize], |to| entering[to as usize]);
        match self.fleet.domain_of(sender) == self.fleet.domain_of(receiver) {
            true => hop,
            false => Hop { rate: hop.rate * message.scale_factor, ..hop },
        }
    }

    /// For each slot the nanoseconds of its message; 1 ns for slots that send none.
    fn nanoseconds(&self, seconds: impl Fn(Message) -> f64) -> Vec<f64> {
        self.of_slot.iter().map(|message| nanoseconds(message.map_or(0.0, &seconds))).collect()
    }
}

// Intermittent faults: the times of a call for each combination of active faults, computed when the combination first occurs.

/// The state of a call over time.
#[derive(Debug)]
pub(super) struct FaultStates<'b> {
    fleet: &'b Fleet,
    seed: u64,
    collective: Collective,
    geometry: Geometry,
    /// The call's time as a multiple of what its links allow.
    factor: f64,
    /// The groups on a fleet without these faults.
    placed: &'b Placed,
    /// The groups, where group-wide paths count; messages look up their own, which saves placing thousands of pairs again.
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

    /// The current state of the call.
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

/// A number from 0 to 1 that looks random but is a function of its inputs.
fn share_of(seed: u64, window: u64) -> f64 {
    uniform(split_mix(seed, window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::stats::{median, sorted};
    use commgauge_base::units::Seconds;

    fn settings() -> machine::Noise {
        machine::Noise {
            relative_sigma: 0.1,
            outlier_probability: 0.25,
            outlier_factor: 100.0,
            arrival_jitter: Seconds(1e-6),
        }
    }

    #[test]
    fn the_same_seed_scatters_the_same_way_and_another_seed_differently() {
        let draw = |seed| -> Vec<u64> {
            let mut noise = Noise::new(&settings(), seed);
            (0..100).map(|_| noise.factor().to_bits() ^ noise.two_delays_nanoseconds()[0]).collect()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn factors_have_the_requested_median_spread_and_outliers() {
        let mut noise = Noise::new(&settings(), 7);
        let drawn: Vec<f64> = (0..100_000).map(|_| noise.factor()).collect();
        let outliers = drawn.iter().filter(|factor| **factor > 10.0).count() as f64 / drawn.len() as f64;
        assert!((outliers - 0.25).abs() < 0.01, "{outliers}");
        let usual = sorted(drawn.into_iter().filter(|factor| *factor <= 10.0).map(f64::ln));
        let sigma = (usual.iter().map(|log| log * log).sum::<f64>() / usual.len() as f64).sqrt();
        assert!((sigma - 0.1).abs() < 0.004, "{sigma}");
        assert!(median(&usual).is_some_and(|middle| middle.abs() < 0.002), "{:?}", median(&usual));
    }

    #[test]
    fn delays_stay_below_the_jitter_and_probabilities_match() {
        let mut noise = Noise::new(&settings(), 7);
        let most = (0..10_000).flat_map(|_| noise.two_delays_nanoseconds()).max();
        assert!(most.is_some_and(|most| (990..1000).contains(&most)), "{most:?}");
        assert!((0..100).all(|_| noise.happens(1.0) && !noise.happens(0.0)));
    }

    #[test]
    fn without_noise_all_times_are_equal() {
        let mut noise = Noise::new(&machine::Noise::default(), 7);
        assert_eq!((noise.factor(), noise.jitters()), (1.0, false));
    }

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
