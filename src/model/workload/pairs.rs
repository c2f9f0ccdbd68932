//! All pairs of ranks: the pairs of each round, and the cases of every round.
//!
//! `report` combines the results of the rounds.

use super::op::MOST_CASES;
use super::replay::{Action, Movement, ReplayPlan, ReplayProgram, Slot};
use super::step::Step;
use super::{Case, Op, Style, WorkPlan};
use crate::config::LARGEST_MESSAGE;
use crate::layout::{Axis, Groups};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Geometry;
use commgauge_base::random::split_mix;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use std::collections::{BTreeSet, HashMap};

/// Cases of a round: latency, one way, both ways.
const CASES_OF_A_ROUND: usize = 3;

/// More nodes than this are screened, unless a suite says otherwise.
pub(super) const MOST_NODES_OF_ALL_PAIRS: usize = 64;

/// Begins the label of a screening round: `screen-3`.
pub const SCREENING: &str = "screen-";

/// Seed of the partners in screening rounds: the same in every run, so that runs can be compared pair by pair.
const SCREENING_SEED: u64 = 0x70_61_69_72;

/// Measurements between all pairs of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsRequest {
    /// Message size of the latency, one way.
    pub latency_bytes: Bytes,
    /// Message size of the bandwidth.
    pub bandwidth_bytes: Bytes,
    /// Each pair alone, instead of all pairs of a round at once.
    pub one_at_a_time: bool,
    /// Only ranks whose number is a multiple of this.
    pub rank_stride: u32,
}

impl WorkPlan {
    /// All pairs of the ranks of a world, round by round.
    ///
    /// # Errors
    /// Usage errors that name the flag: fewer than two ranks, invalid message sizes, too many cases.
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
            let or = if request.one_at_a_time { ", or remove --one-at-a-time" } else { "" };
            return Err(Error::usage(format!(
                "all pairs of {players} ranks make {cases} cases, more than {MOST_CASES}; select fewer ranks with --rank-stride{or}"
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

/// Which pairs run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairsAtOnce {
    /// As many as have no player in common.
    WholeRound,
    One,
    /// As [`PairsAtOnce::WholeRound`], in a few rounds with random partners.
    Screened,
}

impl PairsAtOnce {
    /// Its name in suites and flags.
    pub(super) fn of(one_at_a_time: bool) -> PairsAtOnce {
        if one_at_a_time { PairsAtOnce::One } else { PairsAtOnce::WholeRound }
    }
}

/// Number of cases for all pairs of this many players.
pub(super) fn cases_of(players: usize, at_once: PairsAtOnce) -> u64 {
    let count = players as u64;
    let rounds = match at_once {
        PairsAtOnce::One => count * count.saturating_sub(1) / 2,
        PairsAtOnce::WholeRound => circle(players) as u64,
        PairsAtOnce::Screened => screening_rounds(players) as u64,
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
    let (rounds, label) = match at_once {
        PairsAtOnce::Screened => (screening(players.len()), SCREENING),
        PairsAtOnce::One | PairsAtOnce::WholeRound => (rounds(players.len()), "round-"),
    };
    for (number, round) in rounds.iter().enumerate() {
        match at_once {
            PairsAtOnce::One => {
                for pair in round {
                    let groups = pairs(pair);
                    let label = groups.first().map_or_else(String::new, |pair| format!("{}-{}", pair[0], pair[1]));
                    found.push((label, Groups { axis: Axis::Pair, groups }));
                }
            }
            PairsAtOnce::WholeRound | PairsAtOnce::Screened => {
                let groups = round.iter().flat_map(pairs).collect();
                found.push((format!("{label}{number}"), Groups { axis: Axis::Pair, groups }));
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
    (0..circle(players)).map(|number| round(players, number, |place| place)).collect()
}

/// Number of rounds in which every two players meet. An odd number is completed by a dummy player, whose partner is idle.
fn circle(players: usize) -> usize {
    if players < 2 { 0 } else { players - 1 + players % 2 }
}

/// The pairs of a round among the players at these places of the circle.
fn round(players: usize, number: usize, player_at: impl Fn(usize) -> usize) -> Vec<[usize; 2]> {
    let circle = circle(players);
    let opposite =
        (1..circle.div_ceil(2)).map(move |step| [(number + step) % circle, (number + circle - step) % circle]);
    let mut pairs: Vec<[usize; 2]> = std::iter::once([number, circle])
        .chain(opposite)
        .filter(|places| places.iter().all(|place| *place < players))
        .map(|places| places.map(&player_at))
        .map(|[a, b]| [a.min(b), a.max(b)])
        .collect();
    pairs.sort_unstable();
    pairs
}

/// Number of rounds that screen this many players. Each meets enough random partners that a slow one, which is slow with nearly all of
/// them, differs from a normal one that met a slow partner or two; and one more for each doubling of the players, among which chance would
/// otherwise find an outlier.
fn screening_rounds(players: usize) -> usize {
    let doublings = players.next_power_of_two().ilog2() as usize;
    (doublings + 5).min(circle(players))
}

/// Rounds with random partners: some rounds of a tournament, chosen at random, in which players have random places. No pair meets twice.
fn screening(players: usize) -> Vec<Vec<[usize; 2]>> {
    let shuffled = |seed: u64, count: usize| {
        let mut numbers: Vec<usize> = (0..count).collect();
        numbers.sort_by_key(|number| split_mix(seed, *number as u64));
        numbers
    };
    let (order, mut numbers) = (shuffled(SCREENING_SEED, players), shuffled(!SCREENING_SEED, circle(players)));
    numbers.truncate(screening_rounds(players));
    numbers.into_iter().map(|number| round(players, number, |place| order[place])).collect()
}

// One group alone compared with all groups at once: cases that show contention between the groups of an axis.

/// Label that distinguishes the groups of these cases from the whole axis.
const LABEL: &str = "solo";

impl WorkPlan {
    /// The same plan with one addition: for every axis with several groups, each of its cases once more on the first group alone, while the
    /// ranks of the others are idle.
    ///
    /// # Errors
    /// If no axis has several groups, or if there are too many cases.
    pub fn with_solo(mut self) -> Result<WorkPlan> {
        let all: Vec<usize> = (0..self.cases.len()).collect();
        let added = self.add_solo(&all);
        if self.cases.len() > MOST_CASES {
            return Err(Error::usage(format!("--solo brings the run above {MOST_CASES} cases; select fewer styles")));
        }
        if added == 0 {
            let layout = self.layout.as_deref().unwrap_or("this layout");
            return Err(Error::usage(format!(
                "--solo: in {layout} every axis has a single group, so there is nothing to compare; start more ranks, or divide \
                 them by a further axis"
            )));
        }
        Ok(self)
    }

    /// Adds some cases once more on the first group alone, if there are several groups. Returns the number added.
    pub(super) fn add_solo(&mut self, cases: &[usize]) -> usize {
        let used: BTreeSet<usize> = cases.iter().map(|index| self.cases[*index].groups).collect();
        let alone: HashMap<usize, usize> =
            used.into_iter().filter_map(|groups| Some((groups, self.add_solo_groups(groups)?))).collect();
        let before = self.cases.len();
        for &index in cases {
            let case = &self.cases[index];
            let Some(&groups) = alone.get(&case.groups) else { continue };
            let groups_label = match case.groups_label.as_str() {
                "" => LABEL.to_owned(),
                label => format!("{label}-{LABEL}"),
            };
            let solo = Case { groups, groups_label, uses: Vec::new(), solo_of: Some(index), ..case.clone() };
            self.cases.push(solo);
        }
        self.cases.len() - before
    }

    /// Adds the first of several groups as a separate entry.
    fn add_solo_groups(&mut self, index: usize) -> Option<usize> {
        let Groups { axis, groups } = &self.groups[index];
        let [first, _, ..] = groups.as_slice() else { return None };
        let alone = Groups { axis: *axis, groups: vec![first.clone()] };
        self.groups.push(alone);
        Some(self.groups.len() - 1)
    }
}

// Two concurrent calls of different axes: the largest of each, as tiny programs in which one is timed while the other is in flight. A
// backend executes them like a replay.

/// Maximum total memory of the calls concurrent with the timed one, in bytes of their size arguments.
const MOST_CONCURRENT_BYTES: u64 = 256 << 20;

/// Maximum number of calls concurrent with the timed one.
const MOST_CONCURRENT_CALLS: u32 = 64;

/// The calls of two axes that may disturb each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Interference {
    /// Index of the step among those of the plan.
    pub step: u32,
    /// The largest call of each axis.
    pub ops: [Op; 2],
    /// The groups of each axis.
    pub groups: [Groups; 2],
    geometries: [Geometry; 2],
}

impl Interference {
    /// The largest call of each of two axes of a step, by the bytes of one call.
    ///
    /// # Errors
    /// Usage errors if both axes are the same, if one has no call in the step, and if it leaves ranks without a group.
    pub fn of(step: &Step, step_index: u32, axes: [Axis; 2], wanted: impl Fn(Style) -> bool) -> Result<Interference> {
        let place = format!("--interfere {},{}", axes[0], axes[1]);
        if axes[0] == axes[1] {
            return Err(Error::usage(format!("{place}: both are the same axis; name two")));
        }
        let ops = step.ops(wanted)?.ops;
        let largest =
            |axis: Axis| largest_on(step, &ops, axis).map_err(|text| Error::usage(format!("{place}: {text}")));
        let ops = [largest(axes[0])?, largest(axes[1])?];
        let groups = axes.map(|axis| step.layout().groups(axis));
        let geometry = |index: usize| {
            let axis = axes[index];
            ops[index]
                .geometry(groups[index].group_size())
                .map_err(|reason| Error::usage(format!("{place}: {} on {axis}: {reason}", ops[index].collective)))
        };
        let geometries = [geometry(0)?, geometry(1)?];
        Ok(Interference { step: step_index, ops, groups, geometries })
    }

    /// Number of calls of the other axis that together take as long as one of `timed`; fewer if they would need too
    /// much memory.
    pub fn concurrent_calls(&self, timed: usize, alone_nanoseconds: [u64; 2]) -> u32 {
        let other = 1 - timed;
        let wanted = alone_nanoseconds[timed].div_ceil(alone_nanoseconds[other].max(1));
        let fit = MOST_CONCURRENT_BYTES / self.ops[other].bytes_total.0.max(1);
        wanted.min(fit).clamp(1, u64::from(MOST_CONCURRENT_CALLS)) as u32
    }

    /// The program of every rank: starts `concurrent` calls of the other op, then one of `timed`, which it waits for first.
    pub fn program(&self, timed: usize, concurrent: u32) -> ReplayPlan {
        let slot_of = |op: usize| Slot { op: op as u32, movement: Movement::Together };
        let mut slots = vec![slot_of(timed)];
        slots.extend((0..concurrent).map(|_| slot_of(1 - timed)));
        let start = |slot: u32| Action::Start { slot };
        let wait = |slot: u32| Action::Wait { slot };
        let others = || 1..=concurrent;
        let actions = others().map(start).chain([start(0), wait(0)]).chain(others().map(wait)).collect();
        let program = ReplayProgram {
            stage: 0,
            ops: self.ops.to_vec(),
            own_ops: 2,
            geometries: self.geometries.to_vec(),
            groups: vec![0, 1],
            slots,
            actions,
            at_once: Vec::new(),
            check_order: Vec::new(),
        };
        let ranks = self.groups[0].groups.iter().map(Vec::len).sum();
        ReplayPlan {
            schedule: "two calls at once".to_owned(),
            groups: self.groups.to_vec(),
            stage_of_rank: vec![0; ranks],
            programs: vec![Some(program.with_orders())],
            listed: vec![Vec::new()],
            job_nanoseconds: None,
        }
    }
}

fn largest_on(step: &Step, ops: &[Op], axis: Axis) -> std::result::Result<Op, String> {
    if axis == Axis::Embedding {
        return Err(
            "embedding contains only the ends of each pipeline; accepted: an axis whose groups contain every rank"
                .into(),
        );
    }
    let ranks = step.group_size(axis);
    let largest = ops.iter().filter(|op| op.axis == axis).max_by_key(|op| op.wire_bytes(ranks, 1));
    largest.cloned().ok_or_else(|| {
        let there: BTreeSet<&str> =
            ops.iter().map(|op| op.axis).filter(|axis| *axis != Axis::Embedding).map(Axis::name).collect();
        let there: Vec<&str> = there.into_iter().collect();
        let layout = step.layout().degrees.name();
        format!("{axis} has no call in this step ({layout}); accepted: two of {}", there.join(", "))
    })
}

#[cfg(test)]
mod solo_tests {

    use super::*;
    use crate::config::Suite;
    use std::collections::HashSet;
    use std::path::Path;

    fn plan(layout: &str, ranks: u32) -> WorkPlan {
        let text = format!(
            "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\n{layout}\n"
        );
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        WorkPlan::from_suite(&Suite::parse(&suites, &text).unwrap(), ranks).unwrap()
    }

    #[test]
    fn a_layout_of_single_groups_is_refused() {
        let error = plan("tp = 4", 4).with_solo().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("in tp 4 every axis has a single group"), "{error}");
    }

    #[test]
    fn every_case_of_several_groups_comes_once_more_on_the_first_alone() {
        let all = plan("tp = 2\npp = 2", 4);
        let several = all.cases.iter().filter(|case| all.groups_of(case).groups.len() > 1).count();
        assert!(several > 0);
        let with_solo = all.clone().with_solo().unwrap();
        assert_eq!(with_solo.cases.len(), all.cases.len() + several);
        assert_eq!(with_solo.cases[..all.cases.len()], all.cases, "existing cases stay");
        let names: HashSet<String> = with_solo.cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), with_solo.cases.len(), "names are unique");
        for solo in &with_solo.cases[all.cases.len()..] {
            let whole = &with_solo.cases[solo.solo_of.unwrap()];
            assert_eq!((&solo.op, solo.cadence, solo.placement), (&whole.op, whole.cadence, whole.placement));
            assert_eq!(with_solo.groups_of(solo).groups, with_solo.groups_of(whole).groups[..1]);
            assert!(solo.uses.is_empty(), "the step performs the call once, on all groups");
            assert!(solo.name().contains("/solo/"), "{}", solo.name());
        }
    }
}

#[cfg(test)]
mod interference_tests {

    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    fn of(axes: [Axis; 2]) -> Result<Interference> {
        let text = "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let suite = Suite::parse(&suites, text).unwrap();
        let step = Step::all_of(&suite.layouts[0], 4).unwrap().remove(0);
        Interference::of(&step, 0, axes, |_| true)
    }

    #[test]
    fn axes_that_cannot_overlap_are_refused() {
        for (axes, expected) in [
            ([Axis::Tp, Axis::Tp], "--interfere tp,tp: both are the same axis"),
            ([Axis::Tp, Axis::Pp], "--interfere tp,pp: pp has no call in this step (tp 2 x dp 2); accepted: two of dp"),
            ([Axis::Embedding, Axis::Tp], "embedding contains only the ends of each pipeline"),
        ] {
            let error = of(axes).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_timed_call_starts_last_and_is_waited_for_first() {
        let pair = of([Axis::Tp, Axis::Dp]).unwrap();
        let plan = pair.program(1, 2);
        let program = plan.program_of_rank(3).unwrap();
        let slots: Vec<u32> = program.slots.iter().map(|slot| slot.op).collect();
        assert_eq!(slots, [1, 0, 0]);
        let [start, wait] = [|slot| Action::Start { slot }, |slot| Action::Wait { slot }];
        assert_eq!(program.actions, [start(1), start(2), start(0), wait(0), wait(1), wait(2)]);
    }

    #[test]
    fn concurrent_calls_cover_the_timed_one_as_far_as_memory_goes() {
        let pair = of([Axis::Tp, Axis::Dp]).unwrap();
        let fit = (MOST_CONCURRENT_BYTES / pair.ops[1].bytes_total.0.max(1)).clamp(1, 64) as u32;
        assert_eq!(pair.concurrent_calls(0, [1000, 300]), 4.min(fit));
        assert_eq!(pair.concurrent_calls(1, [300, 1000]), 4);
        assert_eq!(
            pair.concurrent_calls(1, [0, 1_000_000]),
            MOST_CONCURRENT_CALLS.min((MOST_CONCURRENT_BYTES / pair.ops[0].bytes_total.0) as u32)
        );
        assert_eq!(pair.concurrent_calls(0, [10, 1000]), 1);
    }
}

#[cfg(test)]
mod tests {
    // Every pair once, no rank twice in a round, and the cases of the rounds.
    use super::*;
    use std::collections::HashSet;

    fn request() -> PairsRequest {
        PairsRequest { latency_bytes: Bytes(8), bandwidth_bytes: Bytes(4 << 20), one_at_a_time: false, rank_stride: 1 }
    }

    fn refusal(request: &PairsRequest, ranks: u32) -> String {
        let error = WorkPlan::of_pairs(request, ranks).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    }

    #[test]
    fn invalid_requests_are_refused_with_the_flag() {
        assert_eq!(refusal(&request(), 1), "a pair needs two ranks; this launch has 1");
        let wide = PairsRequest { rank_stride: 4, ..request() };
        assert_eq!(refusal(&wide, 4), "--rank-stride 4 leaves one of 4 ranks; a pair needs two");
        for (latency, bandwidth, expected) in [
            (0, 1024, "--latency-bytes: found 0 B; accepted: 1 B to 2147483647 B"),
            (8, 1 << 31, "--bandwidth-bytes: found 2 GiB"),
            (4096, 4096, "--latency-bytes 4096 is not below --bandwidth-bytes 4096"),
        ] {
            let odd = PairsRequest { latency_bytes: Bytes(latency), bandwidth_bytes: Bytes(bandwidth), ..request() };
            assert!(refusal(&odd, 4).starts_with(expected), "{}", refusal(&odd, 4));
        }
        let alone = PairsRequest { one_at_a_time: true, ..request() };
        assert!(refusal(&alone, 100).contains("14850 cases, more than 10000"), "{}", refusal(&alone, 100));
        assert!(refusal(&alone, 100).ends_with("or remove --one-at-a-time"));
        assert!(refusal(&request(), u32::MAX).contains("all pairs of 4294967295 ranks make 12884901885 cases"));
        assert!(refusal(&alone, u32::MAX).contains("more than 10000"));
    }

    #[test]
    fn every_pair_is_measured_once_and_no_rank_twice_in_a_round() {
        for players in 2..=65 {
            let rounds = rounds(players);
            assert_eq!(rounds.len(), if players % 2 == 0 { players - 1 } else { players }, "{players}");
            let mut met = HashSet::new();
            for round in &rounds {
                assert_eq!(round.len(), players / 2, "{players}: at most one is idle");
                let mut busy = HashSet::new();
                for pair in round {
                    assert!(pair[0] < pair[1] && pair[1] < players, "{pair:?}");
                    assert!(busy.insert(pair[0]) && busy.insert(pair[1]), "{players}: {pair:?} twice in a round");
                    assert!(met.insert(*pair), "{players}: {pair:?} meets twice");
                }
            }
            assert_eq!(met.len(), players * (players - 1) / 2);
        }
        assert!(rounds(0).is_empty() && rounds(1).is_empty());
    }

    #[test]
    fn screening_rounds_grow_with_the_logarithm_and_repeat_no_pair() {
        for (players, expected) in [(0, 0), (1, 0), (2, 1), (3, 3), (65, 12), (512, 14), (2047, 16), (2048, 16)] {
            let rounds = screening(players);
            assert_eq!(rounds.len(), expected, "{players} players");
            assert_eq!(cases_of(players, PairsAtOnce::Screened), 3 * expected as u64);
            let mut met = HashSet::new();
            for round in &rounds {
                assert_eq!(round.len(), players / 2, "{players}: at most one is idle");
                let mut busy = HashSet::new();
                assert!(round.iter().flatten().all(|player| *player < players && busy.insert(*player)), "{players}");
                assert!(round.iter().all(|pair| pair[0] < pair[1] && met.insert(*pair)), "{players}");
            }
            let mut partners = vec![0; players];
            met.iter().flatten().for_each(|player| partners[*player] += 1);
            assert!(partners.iter().all(|met| met + players % 2 >= expected), "{players}: {partners:?}");
            assert_eq!(rounds, screening(players), "the same in every run");
        }
    }

    #[test]
    fn a_round_has_three_cases_on_its_pairs() {
        let plan = WorkPlan::of_pairs(&request(), 4).unwrap();
        assert_eq!((plan.groups.len(), plan.cases.len()), (3, 9));
        let names: Vec<String> = plan.cases[3..6].iter().map(Case::name).collect();
        assert_eq!(
            names,
            [
                "pair/round-1/ping_pong/uint8/8/out-of-place/streaming",
                "pair/round-1/ping_pong/uint8/4194304/out-of-place/streaming",
                "pair/round-1/bidirectional/uint8/4194304/out-of-place/streaming",
            ]
        );
        assert_eq!(plan.groups[1].groups, [[0, 2], [1, 3]]);
    }

    #[test]
    fn pairs_one_at_a_time_are_all_pairs_by_their_names() {
        let alone = PairsRequest { one_at_a_time: true, rank_stride: 2, ..request() };
        let plan = WorkPlan::of_pairs(&alone, 8).unwrap();
        assert!(plan.groups.iter().all(|groups| groups.groups.len() == 1 && groups.group_size() == 2));
        let mut labels: Vec<&str> = plan.cases.iter().map(|case| case.groups_label.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels, ["0-2", "0-4", "0-6", "2-4", "2-6", "4-6"]);
    }
}
