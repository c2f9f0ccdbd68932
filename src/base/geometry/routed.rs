//! Token counts between ranks when a router chooses experts: the counts of dispatch and combine.
//!
//! Experts are distributed over the ranks in equal, contiguous parts, as in Megatron-LM. Every token is sent to as
//! many *different* experts as there are choices, one copy for each; a rank sends one copy for each choice even if
//! several of the chosen experts are on one rank. Sending a token once to a node and copying it there (DeepEP) is
//! another algorithm and not counted here, so limits on the nodes or groups of a token's experts do not change the
//! counts.

use super::exchange::{Blocks, Exchange, Matrix};
use super::random::RandomCounts;
use super::share::share_out;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most experts of a layer.
pub const MOST_EXPERTS: u64 = 1 << 16;
/// Most experts, and most ranks, if every sender has different counts.
const MOST_AT_RANDOM: u64 = 1 << 10;
/// A share of all choices that is 1, in whole numbers.
const WHOLE: f64 = (1u64 << 32) as f64;

/// The exchange of tokens among experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routed {
    /// Experts of the layer, divided among the ranks.
    pub experts: u64,
    /// Experts that each token goes to.
    pub experts_per_token: u64,
    /// Elements of one copy of a token: the hidden size, or 1 for probabilities. The size argument divided by it and by
    /// `experts_per_token` is the number of tokens of each rank.
    pub elements_per_token: u64,
    /// How tokens choose.
    pub routing: Routing,
    /// An expert takes at most this many times the mean number of copies from each rank, rounded up; further ones are dropped
    /// (arXiv 2101.03961 section 2.2; Megatron-LM core/transformer/moe/moe_utils.py `get_capacity`, which counts on each rank).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_factor: Option<f64>,
    /// Seed of random choices.
    pub seed: u64,
    /// The way back: every rank returns what it received (combine, and the backward pass of dispatch).
    pub back: bool,
}

/// How tokens choose experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Every expert the same.
    Uniform,
    /// The i-th expert in proportion to 1 / (i + 1)^exponent, as far as different experts for each token allow.
    Zipf(f64),
    /// The first expert gets this share of all choices, the others the rest.
    Hot(f64),
    /// Every token draws different experts at random; every rank has draws of its own.
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
    /// Copies by sender and receiver on a group of `ranks` ranks, where each has `tokens` tokens, or why there are none
    /// (a sentence without full stop).
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
                let by_expert = share_out(tokens * self.experts_per_token, &weights, tokens, &ties);
                Exchange::SameFromAll(Blocks::new(by_rank(by_expert)))
            }
            None => {
                let mut counts = RandomCounts::new(self.experts, self.experts_per_token, tokens);
                let rows: Vec<Vec<u64>> =
                    (0..ranks).map(|sender| by_rank(counts.of_sender(self.seed, sender, &ties))).collect();
                Exchange::Each(Matrix::of_rows(&rows))
            }
        };
        Ok(if self.back { there.transposed() } else { there })
    }

    /// The name within that of a case: everything that changes the counts.
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

    /// Most copies that an expert accepts from each rank: ceil(tokens K / experts x factor).
    pub fn capacity(&self, tokens: u64) -> Option<u64> {
        let copies = tokens.saturating_mul(self.experts_per_token) as f64;
        self.capacity_factor.map(|factor| (copies / self.experts as f64 * factor).ceil() as u64)
    }

    /// Whether these numbers make sense on a group of `ranks` ranks.
    ///
    /// # Errors
    /// What does not, and what would (a sentence without full stop).
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
            return Err(format!("{experts} experts do not come out even on {ranks} ranks; nearest that do: {nearest}"));
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
            Routing::Hot(_) if experts < 2 => Err("a hot expert needs others beside it; there is 1 expert".to_owned()),
            Routing::Hot(share) if share > 0.0 && share < 1.0 && share * experts_per_token as f64 <= 1.0 => Ok(()),
            Routing::Hot(share) => Err(format!(
                "found a hot expert with a share of {share}; each token goes to {experts_per_token} different experts, so \
                 accepted: above 0, up to 1/{experts_per_token} of all choices, below 1"
            )),
            Routing::Random if experts > MOST_AT_RANDOM || ranks > MOST_AT_RANDOM => Err(format!(
                "random routing of {experts} experts on {ranks} ranks; accepted: up to {MOST_AT_RANDOM} of both"
            )),
            Routing::Random => Ok(()),
        }
    }

    /// The experts' shares of all choices as whole numbers; `None` if they are drawn. Powers may differ in the last
    /// bit between machines; at this coarseness they do not.
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

/// The order in which equal experts take what is left over: one on each rank in turn, so that even shares are even on the ranks.
fn ties(ranks: usize, experts_on_rank: usize) -> Vec<usize> {
    (0..experts_on_rank).flat_map(|place| (0..ranks).map(move |rank| rank * experts_on_rank + place)).collect()
}

#[cfg(test)]
#[path = "routed_tests.rs"]
mod tests;
