//! All pairs of ranks: the pairs of each round, and the cases of every round.
//!
//! `report` combines the results of the rounds.

use super::case::MOST_CASES;
use super::{Case, Op, Style, WorkPlan};
use crate::config::LARGEST_MESSAGE;
use crate::layout::{Axis, Groups};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;

/// Cases of a round: latency, one way, both ways.
const CASES_OF_A_ROUND: usize = 3;

/// What to measure between every two ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsRequest {
    /// Message whose one-way time is the latency.
    pub latency_bytes: Bytes,
    /// Message whose rate is the bandwidth.
    pub bandwidth_bytes: Bytes,
    /// Each pair alone, instead of all pairs of a round at once.
    pub one_at_a_time: bool,
    /// Only every rank whose number is a multiple of this.
    pub rank_stride: u32,
}

impl WorkPlan {
    /// All pairs of the ranks of a world, round by round.
    ///
    /// # Errors
    /// Usage errors that name the flag: fewer than two ranks, messages that make no sense, too many cases.
    pub fn of_pairs(request: &PairsRequest, world_size: u32) -> Result<WorkPlan> {
        check_messages(request)?;
        let stride = request.rank_stride.max(1);
        let players = world_size.div_ceil(stride) as usize;
        if players < 2 {
            return Err(Error::usage(match stride {
                1 => format!("a pair needs two ranks; this launch has {world_size}"),
                stride => format!("--rank-stride {stride} leaves one of {world_size} ranks; a pair needs two"),
            }));
        }
        let at_once = PairsAtOnce::of(request.one_at_a_time);
        let cases = cases_of(players, at_once);
        if cases > MOST_CASES as u64 {
            let or = if request.one_at_a_time { ", or leave out --one-at-a-time" } else { "" };
            return Err(Error::usage(format!(
                "all pairs of {players} ranks make {cases} cases, more than {MOST_CASES}; take fewer ranks with --rank-stride{or}"
            )));
        }
        let mut plan = WorkPlan::default();
        let alone: Vec<Vec<u32>> = (0..world_size).step_by(stride as usize).map(|rank| vec![rank]).collect();
        for (label, groups) in pair_rounds(&alone, at_once) {
            plan.groups.push(groups);
            let (latency, bandwidth) = (request.latency_bytes, request.bandwidth_bytes);
            plan.cases.extend(cases_of_a_round(plan.groups.len() - 1, &label, latency, bandwidth));
        }
        Ok(plan)
    }
}

/// Which pairs are measured at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairsAtOnce {
    /// As many as have no player in common.
    WholeRound,
    One,
}

impl PairsAtOnce {
    /// As a suite or a flag says it.
    pub(super) fn of(one_at_a_time: bool) -> PairsAtOnce {
        if one_at_a_time { PairsAtOnce::One } else { PairsAtOnce::WholeRound }
    }
}

/// Number of cases for all pairs of this many players.
pub(super) fn cases_of(players: usize, at_once: PairsAtOnce) -> u64 {
    let count = players as u64;
    let rounds = match at_once {
        PairsAtOnce::One => count * count.saturating_sub(1) / 2,
        PairsAtOnce::WholeRound => count.saturating_sub(1) + count % 2,
    };
    rounds.saturating_mul(CASES_OF_A_ROUND as u64)
}

/// The rounds that cover every pair of `players`, each with its label. In a pair the first rank of one player is
/// paired with the first of the other, the second with the second, and so on as far as both have ranks.
pub(super) fn pair_rounds(players: &[Vec<u32>], at_once: PairsAtOnce) -> Vec<(String, Groups)> {
    let pairs = |[one, other]: &[usize; 2]| -> Vec<Vec<u32>> {
        players[*one].iter().zip(&players[*other]).map(|(a, b)| vec![*a, *b]).collect()
    };
    let mut found = Vec::new();
    for (number, round) in rounds(players.len()).iter().enumerate() {
        match at_once {
            PairsAtOnce::One => {
                for pair in round {
                    let groups = pairs(pair);
                    let label = groups.first().map_or_else(String::new, |pair| format!("{}-{}", pair[0], pair[1]));
                    found.push((label, Groups { axis: Axis::Pair, groups }));
                }
            }
            PairsAtOnce::WholeRound => {
                let groups = round.iter().flat_map(pairs).collect();
                found.push((format!("round-{number}"), Groups { axis: Axis::Pair, groups }));
            }
        }
    }
    found
}

/// The rounds that cover every pair of ranks inside every node, each with its label; all nodes at once.
pub(super) fn inside_rounds(nodes: &[Vec<u32>]) -> Vec<(String, Groups)> {
    let rounds_of_node: Vec<Vec<Vec<[usize; 2]>>> = nodes.iter().map(|ranks| rounds(ranks.len())).collect();
    let most = rounds_of_node.iter().map(Vec::len).max().unwrap_or(0);
    let round = |number: usize| {
        let of_node = nodes.iter().zip(&rounds_of_node).flat_map(|(ranks, rounds)| {
            let pairs = rounds.get(number).into_iter().flatten();
            pairs.map(|[one, other]| vec![ranks[*one], ranks[*other]])
        });
        (format!("inside-{number}"), Groups { axis: Axis::Pair, groups: of_node.collect() })
    };
    (0..most).map(round).collect()
}

/// The cases of a round whose groups have this number in the plan: latency, one way, both ways.
pub(super) fn cases_of_a_round(
    groups: usize,
    label: &str,
    latency: Bytes,
    bandwidth: Bytes,
) -> [Case; CASES_OF_A_ROUND] {
    let calls =
        [(Collective::PingPong, latency), (Collective::PingPong, bandwidth), (Collective::Bidirectional, bandwidth)];
    calls.map(|(collective, bytes)| Case {
        op: Op::new(Style::Pairs, Axis::Pair, collective, ElementType::Uint8, bytes.0),
        groups,
        groups_label: label.to_owned(),
        placement: Placement::OutOfPlace,
        cadence: Cadence::Streaming,
        variant: Default::default(),
        uses: Vec::new(),
        solo_of: None,
    })
}

fn check_messages(request: &PairsRequest) -> Result<()> {
    for (flag, bytes) in [("--latency-bytes", request.latency_bytes), ("--bandwidth-bytes", request.bandwidth_bytes)] {
        if bytes.0 == 0 || bytes > LARGEST_MESSAGE {
            return Err(Error::usage(format!("{flag}: found {bytes}; accepted: 1 B to {} B", LARGEST_MESSAGE.0)));
        }
    }
    if request.latency_bytes >= request.bandwidth_bytes {
        return Err(Error::usage(format!(
            "--latency-bytes {} is not below --bandwidth-bytes {}: a small message shows the latency, a large one the bandwidth",
            request.latency_bytes.0, request.bandwidth_bytes.0
        )));
    }
    Ok(())
}

/// The rounds of a round-robin tournament of `players`: every pair occurs once, and no player twice in a round. An
/// even number needs one round less than players; with an odd number there are as many rounds, and one player is idle
/// in each.
///
/// The circle method (E. Lucas, "Les jeux de demoiselles", Récréations mathématiques II, 1883): the last player stays
/// in place, the others move by one place round a circle; opposite players form a pair.
pub fn rounds(players: usize) -> Vec<Vec<[usize; 2]>> {
    if players < 2 {
        return Vec::new();
    }
    // An odd number is completed by a dummy player; its partner is idle.
    let even = players + players % 2;
    let circle = even - 1;
    let pairs_of = |round: usize| {
        let opposite = (1..even / 2).map(move |step| [(round + step) % circle, (round + circle - step) % circle]);
        let mut pairs: Vec<[usize; 2]> = std::iter::once([round, circle])
            .chain(opposite)
            .map(|[a, b]| [a.min(b), a.max(b)])
            .filter(|[_, later]| *later < players)
            .collect();
        pairs.sort_unstable();
        pairs
    };
    (0..circle).map(pairs_of).collect()
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;
