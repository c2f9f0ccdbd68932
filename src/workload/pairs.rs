//! All pairs of ranks: who meets whom in which round, and the cases of every round.
//!
//! What the rounds find out is put together in `report`.

use super::build::MOST_CASES;
use super::{Case, Op, Style, WorkPlan};
use crate::collective::{Collective, Placement};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::layout::{Axis, Groups};
use crate::sample::Cadence;
use crate::units::Bytes;

/// Cases of a round: latency, one way, both ways.
const CASES_OF_A_ROUND: usize = 3;
/// The largest message: MPI counts elements in 32 bits.
const LARGEST_MESSAGE: Bytes = Bytes(i32::MAX as u64);

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
        // Counted before anything is made: the number may be a slip.
        let count = u64::from(world_size.div_ceil(stride));
        if count < 2 {
            return Err(Error::usage(match stride {
                1 => format!("a pair needs two ranks; this launch has {world_size}"),
                stride => format!("--rank-stride {stride} leaves one of {world_size} ranks; a pair needs two"),
            }));
        }
        let meetings = if request.one_at_a_time { count * (count - 1) / 2 } else { count - 1 + count % 2 };
        let cases = meetings.saturating_mul(CASES_OF_A_ROUND as u64);
        if cases > MOST_CASES as u64 {
            let or = if request.one_at_a_time { ", or leave out --one-at-a-time" } else { "" };
            return Err(Error::usage(format!(
                "all pairs of {count} ranks make {cases} cases, more than {MOST_CASES}; take fewer ranks with --rank-stride{or}"
            )));
        }
        let ranks: Vec<u32> = (0..world_size).step_by(stride as usize).collect();
        let rounds = rounds(ranks.len());
        let named = |pair: &[usize; 2]| pair.iter().map(|index| ranks[*index]).collect::<Vec<u32>>();
        let mut plan = WorkPlan {
            groups: Vec::new(),
            cases: Vec::new(),
            steps: Vec::new(),
            products: Vec::new(),
            model: None,
            layout: None,
        };
        for (number, round) in rounds.iter().enumerate() {
            if request.one_at_a_time {
                for pair in round.iter().map(named) {
                    plan.add_round(request, format!("{}-{}", pair[0], pair[1]), vec![pair]);
                }
            } else {
                plan.add_round(request, format!("round-{number}"), round.iter().map(named).collect());
            }
        }
        Ok(plan)
    }

    fn add_round(&mut self, request: &PairsRequest, label: String, groups: Vec<Vec<u32>>) {
        self.groups.push(Groups { axis: Axis::Pair, groups });
        for (collective, bytes) in [
            (Collective::PingPong, request.latency_bytes),
            (Collective::PingPong, request.bandwidth_bytes),
            (Collective::Bidirectional, request.bandwidth_bytes),
        ] {
            self.cases.push(Case {
                op: Op::new(Style::Pairs, Axis::Pair, collective, ElementType::Uint8, bytes.0),
                groups: self.groups.len() - 1,
                groups_label: label.clone(),
                placement: Placement::OutOfPlace,
                cadence: Cadence::Streaming,
                uses: Vec::new(),
                solo_of: None,
            });
        }
    }
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

/// The rounds of a tournament of `players`: everybody meets everybody once, and nobody has two meetings in a round. An even
/// number takes one round less than players; with an odd one there are as many, and in each another one stands aside.
///
/// The circle method (E. Lucas, "Les jeux de demoiselles", Récréations mathématiques II, 1883): the last player stays, the others
/// move on by one place round a circle; those opposite each other meet.
pub fn rounds(players: usize) -> Vec<Vec<[usize; 2]>> {
    if players < 2 {
        return Vec::new();
    }
    // An odd number is completed by one who is not there; whoever meets him stands aside.
    let even = players + players % 2;
    let circle = even - 1;
    let meetings_of = |round: usize| {
        let opposite = (1..even / 2).map(move |step| [(round + step) % circle, (round + circle - step) % circle]);
        let mut meetings: Vec<[usize; 2]> = std::iter::once([round, circle])
            .chain(opposite)
            .map(|[a, b]| [a.min(b), a.max(b)])
            .filter(|[_, later]| *later < players)
            .collect();
        meetings.sort_unstable();
        meetings
    };
    (0..circle).map(meetings_of).collect()
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;
