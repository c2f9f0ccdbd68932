//! Token counts between ranks when a router chooses experts: the counts of dispatch and combine.
//!
//! Experts are distributed over the ranks in equal, contiguous parts, as in Megatron-LM. Every token is sent to as
//! many *different* experts as there are choices, one copy for each; a rank sends one copy for each choice even if
//! several of the chosen experts are on one rank. Sending a token once to a node and copying it there (DeepEP) is
//! another algorithm and not counted here, so limits on the nodes or groups of a token's experts do not change the
//! counts.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fmt;

/// Maximum number of experts in a layer.
pub const MOST_EXPERTS: u64 = 1 << 16;

/// Maximum number of experts and ranks if every sender has different counts.
const MOST_AT_RANDOM: u64 = 1 << 10;

/// The share of all choices that equals 1, in integers.
const WHOLE: f64 = (1u64 << 32) as f64;

/// The exchange of tokens among experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routed {
    /// Experts of the layer, divided among the ranks.
    pub experts: u64,
    pub experts_per_token: u64,
    /// Elements of one copy of a token: the hidden size, or 1 for probabilities. The size argument divided by it and by
    /// `experts_per_token` is the number of tokens of each rank.
    pub elements_per_token: u64,
    /// How tokens choose.
    pub routing: Routing,
    /// An expert accepts at most this many times the mean number of copies from each rank, rounded up; further ones are dropped (arXiv
    /// 2101.03961 section 2.2; Megatron-LM core/transformer/moe/moe_utils.py `get_capacity`, which counts on each rank).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_factor: Option<f64>,
    /// Seed of random choices.
    pub seed: u64,
    /// The return direction: every rank returns what it received (combine, and the backward pass of dispatch).
    pub back: bool,
}

/// How tokens choose experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Every expert equally.
    Uniform,
    /// The i-th expert in proportion to 1 / (i + 1)^exponent, as far as different experts for each token allow.
    Zipf(f64),
    /// The first expert gets this share of all choices, the others the rest.
    Hot(f64),
    /// Every token draws different experts at random; every rank draws independently.
    Random,
}

impl std::str::FromStr for Routing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "found routing `{text}`; accepted: uniform, random, zipf:EXPONENT (above 0, up to 8), hot:SHARE (above 0, below 1)"
            )
        };
        let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
        match text.split_once(':') {
            None if text == "uniform" => Ok(Routing::Uniform),
            None if text == "random" => Ok(Routing::Random),
            Some(("zipf", exponent)) => match number(exponent)? {
                exponent if exponent > 0.0 && exponent <= 8.0 => Ok(Routing::Zipf(exponent)),
                _ => Err(wrong()),
            },
            Some(("hot", share)) => match number(share)? {
                share if share > 0.0 && share < 1.0 => Ok(Routing::Hot(share)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl Routed {
    /// Copies by sender and receiver on a group of `ranks` ranks, where each has `tokens` tokens, or why they do not exist (a sentence
    /// without full stop).
    pub(super) fn copies(&self, tokens: u64, ranks: u32) -> Result<Exchange, String> {
        self.check(ranks)?;
        let experts_on_rank = (self.experts / u64::from(ranks)) as usize;
        let by_rank = |mut by_expert: Vec<u64>| -> Vec<u64> {
            if let Some(capacity) = self.capacity(tokens) {
                by_expert.iter_mut().for_each(|copies| *copies = capacity.min(*copies));
            }
            by_expert.chunks(experts_on_rank).map(|experts| experts.iter().sum()).collect()
        };
        let ties = ties(ranks as usize, experts_on_rank);
        let there = match self.weights() {
            Some(weights) => {
                let by_expert = apportion(tokens * self.experts_per_token, &weights, tokens, &ties);
                Exchange::same_from_all(by_rank(by_expert))
            }
            None => {
                let mut counts = RandomCounts::new(self.experts, self.experts_per_token, tokens);
                let rows: Vec<Vec<u64>> =
                    (0..ranks).map(|sender| by_rank(counts.of_sender(self.seed, sender, &ties))).collect();
                Exchange::of_rows(&rows)
            }
        };
        Ok(if self.back { there.transposed() } else { there })
    }

    /// Its part of a case name: everything that changes the counts.
    pub fn name(&self) -> String {
        let mut parts = vec![format!("routed-{}", self.routing.to_string().replace(':', "-"))];
        parts.push(format!("experts{}-k{}", self.experts, self.experts_per_token));
        if self.elements_per_token != 1 {
            parts.push(format!("hidden{}", self.elements_per_token));
        }
        parts.extend(self.capacity_factor.map(|factor| format!("capacity{factor}")));
        if self.routing == Routing::Random {
            parts.push(format!("seed{}", self.seed));
        }
        if self.back {
            parts.push("back".to_owned());
        }
        parts.join("-")
    }

    /// Maximum copies that an expert accepts from each rank: ceil(tokens K / experts x factor).
    pub fn capacity(&self, tokens: u64) -> Option<u64> {
        let copies = tokens.saturating_mul(self.experts_per_token) as f64;
        self.capacity_factor.map(|factor| (copies / self.experts as f64 * factor).ceil() as u64)
    }

    /// Whether these numbers are valid on a group of `ranks` ranks.
    ///
    /// # Errors
    /// The invalid number, with valid ones (a sentence without full stop).
    pub fn check(&self, ranks: u32) -> Result<(), String> {
        let Routed { experts, experts_per_token, .. } = *self;
        let n = u64::from(ranks);
        if !(1..=MOST_EXPERTS).contains(&experts) {
            return Err(format!("found {experts} experts; accepted: 1 to {MOST_EXPERTS}"));
        }
        if !(1..=experts).contains(&experts_per_token) {
            return Err(format!(
                "found {experts_per_token} experts for each token; accepted: 1 to {experts}, all of them"
            ));
        }
        if self.elements_per_token == 0 {
            return Err("found tokens of 0 elements; accepted: 1 and more".to_owned());
        }
        if !experts.is_multiple_of(n) {
            let below = experts / n * n;
            let nearest = if below == 0 { n.to_string() } else { format!("{below} or {}", below + n) };
            return Err(format!(
                "{experts} experts do not divide evenly over {ranks} ranks; nearest that do: {nearest}"
            ));
        }
        if let Some(factor) = self.capacity_factor.filter(|factor| !(*factor > 0.0 && *factor <= 1e6)) {
            return Err(format!("found a capacity factor of {factor}; accepted: above 0, up to 1000000"));
        }
        self.check_routing(n)
    }

    fn check_routing(&self, ranks: u64) -> Result<(), String> {
        let Routed { experts, experts_per_token, .. } = *self;
        match self.routing {
            Routing::Uniform => Ok(()),
            Routing::Zipf(exponent) if exponent > 0.0 && exponent <= 8.0 => Ok(()),
            Routing::Zipf(exponent) => Err(format!("found a Zipf exponent of {exponent}; accepted: above 0, up to 8")),
            Routing::Hot(_) if experts < 2 => Err("a hot expert needs other experts; there is 1 expert".to_owned()),
            Routing::Hot(share) if share > 0.0 && share < 1.0 && share * experts_per_token as f64 <= 1.0 => Ok(()),
            Routing::Hot(share) => Err(format!(
                "found a hot expert with a share of {share}; each token goes to {experts_per_token} different experts; accepted: above 0, up to 1/{experts_per_token} of all choices, below 1"
            )),
            Routing::Random if experts > MOST_AT_RANDOM || ranks > MOST_AT_RANDOM => Err(format!(
                "random routing of {experts} experts on {ranks} ranks; accepted: up to {MOST_AT_RANDOM} of both"
            )),
            Routing::Random => Ok(()),
        }
    }

    /// The experts' shares of all choices as integers; `None` if they are drawn. Powers may differ in the last bit between machines, but
    /// not at this resolution.
    fn weights(&self) -> Option<Vec<u64>> {
        let experts = self.experts;
        match self.routing {
            Routing::Uniform => Some(vec![1; experts as usize]),
            Routing::Zipf(exponent) => {
                Some((1..=experts).map(|i| ((i as f64).powf(-exponent) * WHOLE).round().max(1.0) as u64).collect())
            }
            Routing::Hot(share) => {
                let hot = (share * WHOLE).round() as u64;
                let mut weights = vec![WHOLE as u64 - hot; experts as usize];
                weights[0] = hot * (experts - 1);
                Some(weights)
            }
            Routing::Random => None,
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routing::Uniform => f.pad("uniform"),
            Routing::Random => f.pad("random"),
            Routing::Zipf(exponent) => f.pad(&format!("zipf:{exponent}")),
            Routing::Hot(share) => f.pad(&format!("hot:{share}")),
        }
    }
}

/// The order in which equal experts receive the remainder: one on each rank in turn, so that equal shares are equal on the ranks.
fn ties(ranks: usize, experts_on_rank: usize) -> Vec<usize> {
    (0..experts_on_rank).flat_map(|place| (0..ranks).map(move |rank| rank * experts_on_rank + place)).collect()
}

// How often each expert is chosen when tokens draw their experts at random.

/// Up to this many choices of a rank, or this many per expert, are drawn one by one.
const DRAWN_CHOICES: u64 = 1 << 13;

const DRAWN_CHOICES_PER_EXPERT: u64 = 32;

/// Counts of choices by expert, sender by sender.
///
/// Few choices are drawn one by one. Many are drawn as their sums: each count is Gaussian with mean N K / E and variance N (K/E) (1 - K/E),
/// the counts add up to N K and have equal covariances, as for tokens that draw K of E experts; by the central limit theorem nothing else
/// remains of the single draws.
pub(super) struct RandomCounts {
    experts: u64,
    experts_per_token: u64,
    tokens: u64,
    /// The last token that chose each expert, counted from 1.
    last_token: Vec<u64>,
}

impl RandomCounts {
    pub(super) fn new(experts: u64, experts_per_token: u64, tokens: u64) -> RandomCounts {
        RandomCounts { experts, experts_per_token, tokens, last_token: Vec::new() }
    }

    /// The counts of one sender, a function of the seed.
    pub(super) fn of_sender(&mut self, seed: u64, sender: u32, ties: &[usize]) -> Vec<u64> {
        // Mixed once, so that neighbouring seeds do not give neighbouring senders' streams.
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
        let sender = u64::from(sender).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mixed ^ sender);
        if self.tokens * self.experts_per_token <= DRAWN_CHOICES.max(DRAWN_CHOICES_PER_EXPERT * self.experts) {
            return self.drawn(&mut random);
        }
        let weights = self.gaussian(&mut random);
        apportion(self.tokens * self.experts_per_token, &weights, self.tokens, ties)
    }

    /// R. W. Floyd's sampling without replacement (Communications of the ACM 30(9), 1987), token by token.
    fn drawn(&mut self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let mut counts = vec![0; self.experts as usize];
        self.last_token = vec![0; self.experts as usize];
        for token in 1..=self.tokens {
            for last in self.experts - self.experts_per_token..self.experts {
                let drawn = below(random, last + 1) as usize;
                let chosen = if self.last_token[drawn] == token { last as usize } else { drawn };
                self.last_token[chosen] = token;
                counts[chosen] += 1;
            }
        }
        counts
    }

    /// Counts in 1/1024, before they are adjusted to their sum.
    fn gaussian(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let (n, e) = (self.tokens as f64, self.experts as f64);
        let chance = self.experts_per_token as f64 / e;
        let normals: Vec<f64> = (0..self.experts).map(|_| normal(random)).collect();
        let mean_normal = normals.iter().sum::<f64>() / e;
        // Subtracting the mean leaves 1 - 1/E of the variance.
        let deviation = (n * chance * (1.0 - chance) * e / (e - 1.0).max(1.0)).sqrt();
        let count = |normal: &f64| (n * chance + deviation * (normal - mean_normal)).max(0.0);
        normals.iter().map(|normal| (count(normal) * 1024.0).round() as u64).collect()
    }
}

/// A number below `end`, by the upper half of a product (D. Lemire, 2019); `end` is so small that the bias is negligible.
fn below(random: &mut Xoshiro256PlusPlus, end: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(end)) >> 64) as u64
}

/// Approximately normal: twelve uniform numbers minus their mean. Sums only, so that every machine gets the same bits.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform = |_| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..12).map(uniform).sum::<f64>() - 6.0
}

// Divides an integer in proportion to weights, exactly and identically on every machine.

/// Shares of `total` in proportion to `weights`, rounded by largest remainder, none above `most_each`; the excess is distributed among the
/// others in proportion. Equal remainders are served in the order of `ties`, which names every index once. Integer arithmetic only: ranks
/// that compute this independently must not differ by one.
///
/// The shares add up to `total`, or to less if too few weights are above 0.
pub(super) fn apportion(total: u64, weights: &[u64], most_each: u64, ties: &[usize]) -> Vec<u64> {
    let mut shares = vec![0; weights.len()];
    let mut is_full = vec![false; weights.len()];
    let mut left = u128::from(total);
    let mut weight_left: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut heaviest_first: Vec<usize> = ties.to_vec();
    heaviest_first.sort_by_key(|index| Reverse(weights[*index]));
    for index in heaviest_first {
        let weight = u128::from(weights[index]);
        if left * weight <= u128::from(most_each) * weight_left {
            break; // and so are all lighter ones
        }
        (shares[index], is_full[index]) = (most_each, true);
        left -= u128::from(most_each);
        weight_left -= weight;
    }
    if weight_left == 0 {
        return shares;
    }
    let shared = left;
    let mut remainders = Vec::with_capacity(weights.len());
    for index in ties.iter().copied().filter(|index| !is_full[*index]) {
        let product = shared * u128::from(weights[index]);
        shares[index] = (product / weight_left) as u64;
        left -= u128::from(shares[index]);
        remainders.push((product % weight_left, index));
    }
    // A stable sort: among equals the order of `ties` stays.
    remainders.sort_by_key(|(remainder, _)| Reverse(*remainder));
    for (_, index) in remainders.into_iter().take(left as usize) {
        shares[index] += 1;
    }
    shares
}

// The number of elements that each rank of a group sends to each other in an all_to_all_v.

/// A matrix of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    there: Counts,
    /// The return direction: a rank sends what it receives in `there`.
    back: bool,
}

/// The counts of one direction, stored as small as possible: most are the same for every sender.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counts {
    /// Every rank sends block j to rank j: the dispatch of uniform routing.
    SameFromAll { each: Vec<u64>, sum: u64 },
    /// Rank i sends `counts[i * n + j]` to rank j; with the sums of each.
    Each { counts: Vec<u64>, sent: Vec<u64>, received: Vec<u64> },
}

/// What one rank receives from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub elements: u64,
    /// Index of the first of them in the sender's buffer.
    pub first_at_sender: u64,
}

impl Counts {
    /// What a rank sends and what it receives, itself included.
    fn sums(&self, rank: usize) -> [u64; 2] {
        match self {
            Counts::SameFromAll { each, sum } => [*sum, each[rank] * each.len() as u64],
            Counts::Each { sent, received, .. } => [sent[rank], received[rank]],
        }
    }
}

impl Exchange {
    /// Every rank sends a block of this many elements to each rank.
    pub(super) fn same_from_all(each: Vec<u64>) -> Exchange {
        Exchange { there: Counts::SameFromAll { sum: each.iter().sum(), each }, back: false }
    }

    /// From the rows of all senders, each as long as the number of senders.
    pub(super) fn of_rows(rows: &[Vec<u64>]) -> Exchange {
        let sent = rows.iter().map(|row| row.iter().sum()).collect();
        let received = (0..rows.len()).map(|j| rows.iter().map(|row| row[j]).sum()).collect();
        Exchange { there: Counts::Each { counts: rows.concat(), sent, received }, back: false }
    }

    /// Every count multiplied by a factor: copies of tokens become elements.
    pub(super) fn times(self, factor: u64) -> Exchange {
        let all = |counts: Vec<u64>| counts.into_iter().map(|count| count * factor).collect();
        let there = match self.there {
            Counts::SameFromAll { each, sum } => Counts::SameFromAll { each: all(each), sum: sum * factor },
            Counts::Each { counts, sent, received } => {
                Counts::Each { counts: all(counts), sent: all(sent), received: all(received) }
            }
        };
        Exchange { there, ..self }
    }

    /// The maximum that any rank sends to each rank.
    pub(super) fn most_to_each(&self) -> Vec<u64> {
        let n = self.ranks();
        match &self.there {
            Counts::SameFromAll { each, .. } if !self.back => each.clone(),
            Counts::SameFromAll { .. } => vec![self.largest_between(); n],
            Counts::Each { .. } => {
                (0..n).map(|to| (0..n).map(|from| self.between(from, to)).max().unwrap_or(0)).collect()
            }
        }
    }

    /// The return direction: receives become sends.
    pub(super) fn transposed(self) -> Exchange {
        Exchange { back: !self.back, ..self }
    }

    pub(super) fn ranks(&self) -> usize {
        match &self.there {
            Counts::SameFromAll { each, .. } => each.len(),
            Counts::Each { sent, .. } => sent.len(),
        }
    }

    /// Elements from one rank to another.
    pub(super) fn between(&self, sender: usize, receiver: usize) -> u64 {
        let (from, to) = if self.back { (receiver, sender) } else { (sender, receiver) };
        match &self.there {
            Counts::SameFromAll { each, .. } => each[to],
            Counts::Each { counts, .. } => counts[from * self.ranks() + to],
        }
    }

    /// Elements that a rank sends, itself included.
    pub(super) fn sent_by(&self, rank: usize) -> u64 {
        let [sent, received] = self.there.sums(rank);
        if self.back { received } else { sent }
    }

    /// Elements that a rank receives, itself included.
    pub(super) fn received_by(&self, rank: usize) -> u64 {
        let [sent, received] = self.there.sums(rank);
        if self.back { sent } else { received }
    }

    /// The receives of a rank from each, in sender order.
    pub(super) fn arrivals_at(&self, rank: usize) -> Vec<Arrival> {
        let first_at = |sender: usize| (0..rank).map(|before| self.between(sender, before)).sum();
        let is_same = matches!(self.there, Counts::SameFromAll { .. });
        // Independent of the sender, so that a large group needs no quadratic memory.
        let shared: Option<u64> = (is_same && !self.back).then(|| first_at(0));
        let arrival = |sender: usize| Arrival {
            elements: self.between(sender, rank),
            first_at_sender: match is_same && self.back {
                true => self.between(sender, rank) * rank as u64,
                false => shared.unwrap_or_else(|| first_at(sender)),
            },
        };
        (0..self.ranks()).map(arrival).collect()
    }

    /// The maximum that any rank sends to one rank, including itself.
    pub(super) fn largest_between(&self) -> u64 {
        let (Counts::SameFromAll { each: counts, .. } | Counts::Each { counts, .. }) = &self.there;
        counts.iter().copied().max().unwrap_or(0)
    }

    /// The maximum that any rank sends or receives, including itself.
    pub(super) fn busiest(&self) -> u64 {
        (0..self.ranks()).map(|rank| self.sent_by(rank).max(self.received_by(rank))).max().unwrap_or(0)
    }

    /// The maximum that any rank sends to others or receives from others.
    pub(super) fn busiest_with_others(&self) -> u64 {
        let with_others = |rank| self.sent_by(rank).max(self.received_by(rank)) - self.between(rank, rank);
        (0..self.ranks()).map(with_others).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod share_tests {

    use super::*;

    #[test]
    fn shares_are_those_worked_out_by_hand() {
        for (total, weights, most, expected) in [
            (10, vec![1, 1, 1], u64::MAX, vec![4, 3, 3]),
            (7, vec![4, 2, 1], u64::MAX, vec![4, 2, 1]),
            // 3.33, 1.67: the larger remainder gets the last one.
            (5, vec![2, 1], u64::MAX, vec![3, 2]),
            // 8 of 10 would be the share of the first; it gets 5, and the others share 5 evenly.
            (10, vec![8, 1, 1], 5, vec![5, 3, 2]),
            (10, vec![100, 9, 1], 4, vec![4, 4, 2]),
            (10, vec![1, 0], 4, vec![4, 0]),
            (0, vec![1, 2], 4, vec![0, 0]),
            (3, vec![0, 0], 4, vec![0, 0]),
        ] {
            let ties: Vec<usize> = (0..weights.len()).collect();
            assert_eq!(apportion(total, &weights, most, &ties), expected, "{total} by {weights:?}, at most {most}");
        }
    }

    proptest::proptest! {
        #[test]
        fn shares_add_up_and_respect_the_maximum(
            total in 0u64..1 << 46,
            weights in proptest::collection::vec(1u64..1 << 50, 1..40),
            tight in 1u64..20,
        ) {
            let count = weights.len() as u64;
            let most = (total / count + 1).saturating_mul(tight);
            let ties: Vec<usize> = (0..weights.len()).rev().collect();
            let shares = apportion(total, &weights, most, &ties);
            proptest::prop_assert_eq!(shares.iter().sum::<u64>(), total);
            proptest::prop_assert!(shares.iter().all(|share| *share <= most));
        }
    }
}

#[cfg(test)]
mod exchange_tests {

    use super::*;

    fn each() -> Exchange {
        Exchange::of_rows(&[vec![1, 2, 3], vec![4, 0, 6], vec![7, 8, 9]])
    }

    #[test]
    fn a_rank_finds_its_part_in_the_buffer_of_every_sender() {
        let same = || Exchange::same_from_all(vec![5, 1, 2]);
        for (exchange, expected) in [
            (each(), [(3, 3), (6, 4), (9, 15)]),
            (same(), [(2, 6), (2, 6), (2, 6)]),
            (same().transposed(), [(5, 10), (1, 2), (2, 4)]),
        ] {
            let arrivals =
                exchange.arrivals_at(2).into_iter().map(|arrival| (arrival.elements, arrival.first_at_sender));
            assert_eq!(arrivals.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_way_back_is_the_transpose_in_every_form() {
        let same = || Exchange::same_from_all(vec![5, 1, 2]);
        for there in [each(), same(), same().transposed()] {
            let back = there.clone().transposed();
            for i in 0..3 {
                assert_eq!((back.sent_by(i), back.received_by(i)), (there.received_by(i), there.sent_by(i)));
                assert!((0..3).all(|j| back.between(i, j) == there.between(j, i)));
            }
            assert_eq!(back.busiest_with_others(), there.busiest_with_others());
            assert_eq!(back.transposed(), there);
        }
    }

    #[test]
    fn the_part_of_the_busiest_rank_for_itself_is_not_sent() {
        // Rank 2 sends 7 + 8 to others and 9 to itself; it receives 3 + 6 from others.
        let each = each();
        assert_eq!((each.busiest(), each.busiest_with_others(), each.largest_between()), (24, 15, 9));
    }
}

#[cfg(test)]
mod tests {
    // Properties of routed exchanges: all copies arrive, none exceeds the capacity, and shares are as requested.
    use super::*;
    use proptest::prelude::*;

    fn routed(routing: Routing, experts: u64, experts_per_token: u64) -> Routed {
        Routed {
            experts,
            experts_per_token,
            elements_per_token: 1,
            routing,
            capacity_factor: None,
            seed: 1,
            back: false,
        }
    }

    fn rows(routed: &Routed, tokens: u64, ranks: u32) -> Vec<Vec<u64>> {
        let exchange = routed.copies(tokens, ranks).unwrap();
        let n = ranks as usize;
        (0..n).map(|i| (0..n).map(|j| exchange.between(i, j)).collect()).collect()
    }

    #[test]
    fn counts_are_those_worked_out_by_hand() {
        use Routing::*;
        for (routing, experts, k, tokens, ranks, expected) in [
            (Uniform, 8, 2, 6, 4, vec![3, 3, 3, 3]),
            // 12 copies over 8 experts: one each, and the remaining four one on each rank in turn.
            (Uniform, 8, 2, 6, 2, vec![6, 6]),
            (Uniform, 4, 1, 5, 2, vec![3, 2]),
            // A quarter of 80 copies, and 60 over seven experts: 8 each, and the remaining four one on each rank in turn.
            (Hot(0.25), 8, 2, 40, 4, vec![20 + 9, 17, 17, 17]),
            // 1, 1/2, 1/3, 1/4 of 25/12: 48, 24, 16, 12 of 100.
            (Zipf(1.0), 4, 1, 100, 4, vec![48, 24, 16, 12]),
            (Zipf(1.0), 4, 2, 52, 4, vec![50, 25, 17, 12]),
            // A token is sent to an expert once: of 104 the first receives 52, the others 52 by 1/16 : 1/81 : 1/256, or
            // 41.3, 8.2, 2.6.
            (Zipf(4.0), 4, 2, 52, 4, vec![52, 41, 8, 3]),
        ] {
            let rows = rows(&routed(routing, experts, k), tokens, ranks);
            assert!(rows.iter().all(|row| *row == expected), "{routing} {rows:?}, expected {expected:?}");
        }
    }

    #[test]
    fn a_hot_expert_gets_the_requested_share() {
        for (share, k, tokens) in [(0.125, 8, 4096), (0.5, 1, 1_000_003), (0.03, 8, 77), (0.999, 1, 1000)] {
            let row = rows(&routed(Routing::Hot(share), 64, k), tokens, 64).remove(0);
            let expected_count = share * (tokens * k) as f64;
            assert!((row[0] as f64 - expected_count).abs() <= 1.0, "{share} of {}: {}", tokens * k, row[0]);
            let others = &row[1..];
            assert!(others.iter().max().unwrap() - others.iter().min().unwrap() <= 1, "{others:?}");
        }
    }

    #[test]
    fn capacity_is_that_of_megatron_lm() {
        // ceil(4096 x 8 / 256 x 1.25) = 160.
        let mut hot = routed(Routing::Hot(0.1), 256, 8);
        hot.capacity_factor = Some(1.25);
        assert_eq!(hot.capacity(4096), Some(160));
        let row = rows(&hot, 4096, 256).remove(0);
        // The hot expert would get 3277; the others 29491 / 255 = 115 or 116.
        assert_eq!((row[0], row[1], row.iter().sum::<u64>()), (160, 116, 160 + 32768 - 3277));
    }

    #[test]
    fn draws_are_repeated_by_their_seed_and_differ_between_senders() {
        for tokens in [100, 100_000] {
            let random = routed(Routing::Random, 16, 2);
            let (first, again) = (rows(&random, tokens, 4), rows(&random, tokens, 4));
            assert_eq!(first, again);
            assert_ne!(first[0], first[1], "{tokens}");
            assert_ne!(first, rows(&Routed { seed: 2, ..random }, tokens, 4), "{tokens}");
        }
    }

    #[test]
    fn random_counts_spread_as_those_of_independent_tokens() {
        // The variance of a count is N (K/E) (1 - K/E), whether drawn one by one (2048) or as sums (100,000).
        for tokens in [2048u64, 100_000] {
            let rows = rows(&routed(Routing::Random, 64, 4), tokens, 64);
            let chance = 4.0 / 64.0;
            let mean = tokens as f64 * chance;
            let squares: f64 = rows.iter().flatten().map(|count| (*count as f64 - mean).powi(2)).sum();
            let variance = squares / (64.0 * 64.0);
            let expected = mean * (1.0 - chance);
            assert!((variance / expected - 1.0).abs() < 0.1, "{tokens}: {variance}, expected {expected}");
        }
    }

    #[test]
    fn impossible_routings_are_refused() {
        for (routed, ranks, expected) in [
            (routed(Routing::Uniform, 8, 2), 3, "8 experts do not divide evenly over 3 ranks; nearest that do: 6 or 9"),
            (routed(Routing::Uniform, 4, 2), 8, "4 experts do not divide evenly over 8 ranks; nearest that do: 8"),
            (routed(Routing::Uniform, 8, 9), 4, "found 9 experts for each token; accepted: 1 to 8"),
            (routed(Routing::Zipf(f64::NAN), 8, 2), 4, "found a Zipf exponent of NaN"),
            (routed(Routing::Hot(0.6), 8, 2), 4, "found a hot expert with a share of 0.6"),
            (
                routed(Routing::Random, 2048, 2),
                2048,
                "random routing of 2048 experts on 2048 ranks; accepted: up to 1024",
            ),
        ] {
            let problem = routed.copies(10, ranks).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    fn any_routing() -> impl Strategy<Value = Routing> {
        prop_oneof![
            Just(Routing::Uniform),
            Just(Routing::Random),
            (0.01f64..8.0).prop_map(Routing::Zipf),
            (0.01f64..0.99).prop_map(Routing::Hot),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_is_lost_and_the_way_back_is_the_transpose(
            routing in any_routing(),
            ranks in 1u32..9,
            experts_on_rank in 1u64..9,
            k in 1u64..9,
            tokens in 0u64..20_000,
            seed in 0u64..1000,
        ) {
            let there = Routed { seed, ..routed(routing, experts_on_rank * u64::from(ranks), k) };
            prop_assume!(there.check(ranks).is_ok());
            let sent = there.copies(tokens, ranks).unwrap();
            let received = Routed { back: true, ..there.clone() }.copies(tokens, ranks).unwrap();
            let n = ranks as usize;
            for i in 0..n {
                prop_assert_eq!(sent.sent_by(i), tokens * k);
                prop_assert_eq!(sent.sent_by(i), (0..n).map(|j| sent.between(i, j)).sum::<u64>());
                prop_assert_eq!(sent.received_by(i), (0..n).map(|j| sent.between(j, i)).sum::<u64>());
                for j in 0..n {
                    // No token is sent to an expert twice.
                    prop_assert!(sent.between(i, j) <= tokens * experts_on_rank);
                    prop_assert_eq!(sent.between(i, j), received.between(j, i));
                }
            }
        }

        #[test]
        fn no_expert_takes_more_than_its_capacity(
            routing in any_routing(),
            ranks in 1u32..9,
            k in 1u64..9,
            tokens in 1u64..20_000,
            factor in 0.1f64..4.0,
        ) {
            // One expert on each rank, so that counts are those of experts.
            let free = routed(routing, u64::from(ranks), k);
            prop_assume!(free.check(ranks).is_ok());
            let limited = Routed { capacity_factor: Some(factor), ..free.clone() };
            let capacity = limited.capacity(tokens).unwrap();
            prop_assert!(capacity as f64 >= (tokens * k) as f64 / f64::from(ranks) * factor);
            for (limited, free) in rows(&limited, tokens, ranks).concat().iter().zip(rows(&free, tokens, ranks).concat()) {
                prop_assert_eq!(*limited, free.min(capacity));
            }
        }
    }
}
