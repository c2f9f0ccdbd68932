//! The work of a run: the groups of every axis in use, the cases on them, and the steps of the cases.

use super::op::{Moment, Overlap, When};
use super::replay::ReplayProgram;
use super::step::Step;
use super::{Case, Family, Op, ProductShape, Style};
use crate::config::{CopyKind, CopyParts, CopyTable, HostMemory, Machine, Mover, OtherEnd, RunSettings};
use crate::layout::{Axis, Degrees, Groups, Layout, Nodes};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;
use commgauge_base::stats::Span;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};

/// The cases of a run and the groups that execute them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkPlan {
    /// The groups that cases use.
    pub groups: Vec<Groups>,
    /// Every case, in display order. Names are unique.
    pub cases: Vec<Case>,
    /// The steps that use the cases.
    pub steps: Vec<StepFacts>,
    /// The step whose parallelisms are ranked, if there are too few ranks for its layout.
    pub ranking: Option<RankedStep>,
    /// Matrix products that every rank computes separately.
    pub products: Vec<ProductShape>,
    /// Copies that every rank makes with its own GPU.
    pub copies: Vec<CopyShape>,
    /// Names of the models that determine op sizes.
    pub model: Option<String>,
    /// The layouts as written, such as `tp 2 x dp 2`.
    pub layout: Option<String>,
    /// Who creates the communicators of the groups.
    pub communicators: Communicators,
}

impl WorkPlan {
    /// The groups that execute a case.
    pub fn groups_of(&self, case: &Case) -> &Groups {
        &self.groups[case.groups]
    }
}

// Estimated run time of a plan, reported before it runs.

/// Time of a case in each replicate apart from sampling: buffers, checks, warm-up, agreement.
const SECONDS_BESIDES_SAMPLING: f64 = 0.05;

/// Time per byte to fill, compare and lock the buffers of a copy: on a host with an H200 suites/copies.toml took 14.5 s instead of the 5.4
/// s of its budgets.
const SECONDS_PER_COPIED_BYTE: f64 = 1.5e-9;

/// Bytes of a read of a latency.
const LATENCY_BYTES: Bytes = Bytes(8);

/// Other GPUs of a host, as most hosts have them at most.
const MOST_PEERS: f64 = 7.0;

/// Cautious figures of host memory, for runs whose number of iterations is fixed.
const CAUTIOUS_BYTES_PER_SECOND: f64 = 0.5e9;

const CAUTIOUS_LATENCY_SECONDS: f64 = 50e-6;

/// How long a piece of work is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// Its budget, after which it ends by itself.
    Budget(Seconds),
    /// An estimate for a fixed number of calls, from cautious figures of host memory: far too long on GPUs, too short over a slow network.
    Guess(Seconds),
}

impl Estimate {
    /// The time, whatever its basis.
    pub fn seconds(self) -> Seconds {
        match self {
            Estimate::Budget(seconds) | Estimate::Guess(seconds) => seconds,
        }
    }
}

impl WorkPlan {
    /// The largest size argument of any case.
    pub fn largest_bytes(&self) -> Bytes {
        self.cases.iter().map(|case| case.op.bytes_total).max().unwrap_or_default()
    }

    /// Estimated upper bound of the run time. With the stop rule every case, product and copy uses its whole budget; with a fixed number of
    /// iterations it is an estimate from cautious figures of host memory; a budget for all cases is used completely.
    pub fn estimated_seconds(&self, settings: &RunSettings) -> Seconds {
        let cases = settings.within.unwrap_or_else(|| self.estimated_seconds_of(&self.cases, settings));
        let products = self.products.len() as f64 * (settings.case_budget.0 + SECONDS_BESIDES_SAMPLING);
        let copies: f64 = self.copies.iter().map(|shape| estimated_copy(shape, settings).seconds().0).sum();
        Seconds(cases.0 + (products + copies) * f64::from(settings.replicates))
    }

    /// For some cases, which need not be in the plan, with the communicators of their groups.
    pub fn estimated_seconds_of(&self, cases: &[Case], settings: &RunSettings) -> Seconds {
        let replicate: f64 = cases.iter().map(|case| estimated_case(case, settings).seconds().0).sum();
        let used: BTreeSet<usize> = cases.iter().map(|case| case.groups).collect();
        let connected: f64 = used.into_iter().map(|number| self.communicators.seconds_of(&self.groups[number]).0).sum();
        Seconds((replicate + connected) * f64::from(settings.replicates))
    }
}

/// Who creates the communicators of groups, in every replicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Communicators {
    /// A part of one that exists, with connections in milliseconds.
    #[default]
    Mpi,
    Nccl,
}

/// A communicator of NCCL and the first connections of its ranks: finding the topology of a node takes 1.1 s alone (NVIDIA/nccl#2094), ...
const NCCL_SECONDS: f64 = 1.0;

/// ... and more ranks take longer to gather; an estimate.
const NCCL_SECONDS_PER_RANK: f64 = 1e-4;

/// First connections of a round of pairs, which share a communicator; an estimate.
const NCCL_SECONDS_OF_PAIRS: f64 = 0.1;

impl Communicators {
    /// Those of the library that the machine file judges.
    pub fn of_machine(machine: &Machine) -> Communicators {
        let is_nccl = machine.judged_runs.as_ref().is_some_and(|runs| runs.backend == "nccl");
        if is_nccl { Communicators::Nccl } else { Communicators::Mpi }
    }

    /// Time until the ranks of some groups are connected, all groups at once.
    pub fn seconds_of(self, groups: &Groups) -> Seconds {
        Seconds(match self {
            Communicators::Mpi => 0.0,
            Communicators::Nccl if groups.axis == Axis::Pair => NCCL_SECONDS_OF_PAIRS,
            Communicators::Nccl => NCCL_SECONDS + NCCL_SECONDS_PER_RANK * f64::from(groups.group_size()),
        })
    }
}

/// Estimated upper bound of the time of a case in one replicate.
pub fn estimated_case(case: &Case, settings: &RunSettings) -> Estimate {
    let with_rest = |sampling: f64| Seconds(sampling + SECONDS_BESIDES_SAMPLING);
    match settings.at(case.op.bytes_total).iterations {
        Some(iterations) => {
            let calls = f64::from(iterations) * f64::from(case.variant.calls_at_once());
            Estimate::Guess(with_rest(calls * cautious_seconds(&case.op)))
        }
        None => Estimate::Budget(with_rest(settings.case_budget.0)),
    }
}

/// Estimated time of a copy in one replicate.
pub fn estimated_copy(shape: &CopyShape, settings: &RunSettings) -> Estimate {
    let CopyParts { other_end, directions, .. } = shape.kind.parts();
    let ends = if other_end == OtherEnd::AllPeers { MOST_PEERS } else { 1.0 };
    let prepared = ends * directions.len() as f64 * shape.bytes.0 as f64 * SECONDS_PER_COPIED_BYTE;
    Estimate::Budget(Seconds(settings.case_budget.0 + SECONDS_BESIDES_SAMPLING + prepared))
}

/// Estimated upper bound of the time of a rank for repeated replays of a program: its computing plus every call alone.
pub fn estimated_replay_seconds(program: &ReplayProgram, repetitions: u32) -> Seconds {
    let starts = program.starts_per_op();
    let calls: f64 = program.ops.iter().zip(starts).map(|(op, starts)| starts as f64 * cautious_seconds(op)).sum();
    let once = program.compute_nanoseconds() as f64 * 1e-9 + calls;
    Seconds(once * f64::from(repetitions) + SECONDS_BESIDES_SAMPLING)
}

fn cautious_seconds(op: &Op) -> f64 {
    CAUTIOUS_LATENCY_SECONDS + op.bytes_total.0 as f64 / CAUTIOUS_BYTES_PER_SECOND
}

// The copies of a suite's `[[copy]]` tables on the hosts of a launch.

/// A copy that every rank makes, each with its own GPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CopyFacts")]
pub struct CopyShape {
    pub kind: CopyKind,
    /// Memory at the host end, if any.
    pub host_memory: Option<HostMemory>,
    /// Distance of the other rank in the rank order of its host, if any, wrapping around.
    pub peer_distance: Option<u32>,
    /// Bytes in each direction.
    pub bytes: Bytes,
    /// Whether one rank of each host copies at a time.
    pub alone: bool,
}

impl CopyShape {
    /// Its name among the rows of a verdict, such as `copy/host-to-device/pinned/268435456/alone`.
    pub fn row_name(&self) -> String {
        let parts = self.ends("").into_iter().chain([self.bytes.0.to_string(), self.each().to_owned()]);
        format!("copy/{}/{}", self.kind.name(), parts.collect::<Vec<_>>().join("/"))
    }

    /// In words, such as `host-to-device of 256 MiB, pinned, alone`.
    pub fn name(&self) -> String {
        let parts = [self.ends("peer "), vec![self.each().to_owned()]].concat();
        format!("{} of {}, {}", self.kind.name(), self.bytes, parts.join(", "))
    }

    /// Memory of the host and distance of the peer, where there are any, the latter after a word.
    pub fn ends(&self, word: &str) -> Vec<String> {
        let memory = self.host_memory.map(|memory| memory.name().to_owned());
        memory.into_iter().chain(self.peer_distance.map(|distance| format!("{word}+{distance}"))).collect()
    }

    /// Whether ranks copy one after the other.
    pub fn each(&self) -> &'static str {
        if self.alone { "alone" } else { "together" }
    }

    /// The test case of nvbandwidth that measures the same, if there is one.
    pub fn nvbandwidth_name(&self) -> Option<&'static str> {
        let wanted = format!("{} {}", self.kind.name(), self.each());
        let is_its = self.host_memory.is_none_or(|memory| memory == HostMemory::Pinned);
        pairs(include_str!("nvbandwidth.txt")).find(|(copy, _)| is_its && *copy == wanted).map(|(_, name)| name)
    }
}

/// The copies of all tables, each once: with peers at every distance within a host of the launch; without peers on hosts of one rank.
pub(super) fn of(tables: &[CopyTable], nodes: &Nodes) -> Vec<CopyShape> {
    let most = nodes.ranks_of.iter().map(Vec::len).max().unwrap_or(1) as u32;
    let (mut shapes, mut listed) = (Vec::new(), HashSet::new());
    for table in tables {
        for kind in &table.kinds {
            for (host_memory, peer_distance) in ends(table, *kind, most) {
                let bytes = if kind.is_latency() { &[LATENCY_BYTES] } else { table.bytes.as_slice() };
                let sizes = bytes.iter().flat_map(|bytes| table.alone.iter().map(move |alone| (*bytes, *alone)));
                let fresh =
                    sizes.map(|(bytes, alone)| CopyShape { kind: *kind, host_memory, peer_distance, bytes, alone });
                shapes.extend(fresh.filter(|shape| listed.insert(*shape)));
            }
        }
    }
    shapes
}

/// Memory of the host, and distance to the peer.
fn ends(table: &CopyTable, kind: CopyKind, most_ranks: u32) -> Vec<(Option<HostMemory>, Option<u32>)> {
    let CopyParts { other_end, directions, mover } = kind.parts();
    let is_pinned_only = directions.len() > 1 || mover != Mover::Engine;
    let memory = table.host_memory.iter().filter(|memory| memory.is_pinned() || !is_pinned_only);
    match other_end {
        OtherEnd::Host => memory.map(|memory| (Some(*memory), None)).collect(),
        OtherEnd::Peer => (1..most_ranks).map(|distance| (None, Some(distance))).collect(),
        OtherEnd::AllPeers if most_ranks == 1 => Vec::new(),
        OtherEnd::AllPeers | OtherEnd::Own => vec![(None, None)],
    }
}

// A step whose parallelisms are ranked although there are too few ranks for its layout: its calls as data, and how each is measured
// separately in groups that fit the ranks.

/// Maximum ratio between the group of a call and the smaller group in which it is measured.
const FARTHEST: u32 = 2;

/// A step and its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedStep {
    /// Model, layout, micro-batches and tokens.
    pub facts: StepFacts,
    /// The calls on every axis of a parallelism, each axis as seen by its busiest rank.
    pub calls: Vec<RankedCall>,
}

/// A call of a step as the ranking of calls identifies it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedCall {
    /// The origin.
    pub style: Style,
    /// The axis whose groups execute it.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Distance between neighbouring ranks of a group in the layout; 1 if not constant.
    pub stride: u32,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// How elements are combined.
    pub reduce_op: Option<ReduceOp>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// How the vector forms divide their elements.
    pub splits: Option<Splits>,
    /// Calls per step on the busiest rank of the axis.
    pub count_per_step: u64,
    /// Whether all ranks wait for it.
    pub exposed: bool,
}

impl RankedStep {
    /// The calls of the selected styles on axes of one parallelism; small calls of the whole model belong to no parallelism.
    ///
    /// # Errors
    /// As [`Step::ops`].
    pub fn of(step: &Step, wanted: impl Fn(Style) -> bool) -> Result<RankedStep> {
        let ops = step.ops(wanted)?.ops;
        let of_a_family = ops.iter().filter(|op| Family::of(op.axis).is_some());
        Ok(RankedStep { facts: StepFacts::of(step), calls: of_a_family.map(|op| RankedCall::of(op, step)).collect() })
    }
}

impl RankedCall {
    fn of(op: &Op, step: &Step) -> RankedCall {
        RankedCall {
            style: op.style,
            axis: op.axis,
            group_size: step.group_size(op.axis),
            stride: stride(step.layout(), op.axis),
            collective: op.collective,
            element_type: op.element,
            reduce_op: op.reduce_op,
            bytes_total: op.bytes_total,
            splits: (op.splits != Splits::Equal).then(|| op.splits.clone()),
            // The totals of the step were checked, so this fits.
            count_per_step: op.when.count_per_step(step.micro_batches()).unwrap_or(0),
            exposed: op.overlap.is_exposed(),
        }
    }

    /// The call as an op of a step. Its position in the step is unknown, only its number.
    pub fn op(&self) -> Op {
        Op {
            reduce_op: self.reduce_op,
            splits: self.splits.clone().unwrap_or(Splits::Equal),
            when: When::Step { moment: Moment::Optimizer, calls: self.count_per_step },
            overlap: if self.exposed { Overlap::Exposed } else { Overlap::Backward },
            ..Op::new(self.style, self.axis, self.collective, self.element_type, self.bytes_total.0)
        }
    }

    /// The group sizes and bytes at which it is measured on this many ranks. Unchanged, if groups of its size divide the ranks; else in the
    /// largest groups that do, once with the chunks of a ring and once with the buffer unchanged; the true time is between the two
    /// ([`size_on`]). Empty if the sizes differ too much.
    pub fn measured_as(&self, ranks: u32) -> Vec<(u32, Bytes)> {
        if ranks.is_multiple_of(self.group_size) {
            return vec![(self.group_size, self.bytes_total)];
        }
        let smaller = (2..self.group_size).rev().find(|size| ranks.is_multiple_of(*size));
        let Some(size) = smaller.filter(|size| size.saturating_mul(FARTHEST) >= self.group_size) else {
            return Vec::new();
        };
        match self.collective {
            Collective::SendRecv | Collective::SendRecvChain => vec![(size, self.bytes_total)],
            Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
                let chunks = size_on(self.bytes_total, self.element_type, self.group_size, size);
                vec![(size, chunks), (size, size_on(self.bytes_total, self.element_type, size, size))]
            }
            _ => Vec::new(),
        }
    }

    /// Groups of this many ranks that divide all ranks, with neighbours as far apart as in the layout, or as far as
    /// the ranks allow.
    pub fn groups(&self, group_size: u32, ranks: u32) -> Groups {
        let size = group_size.max(1);
        let fits = |stride: &u32| ranks.is_multiple_of(size * stride);
        let stride = (1..=self.stride.min(ranks / size).max(1)).rev().find(fits).unwrap_or(1);
        let firsts = (0..ranks / (size * stride)).flat_map(|block| (0..stride).map(move |r| block * size * stride + r));
        let groups = firsts.map(|first| (0..size).map(|member| first + member * stride).collect()).collect();
        Groups { axis: self.axis, groups }
    }
}

/// The bytes with which a group of `on` ranks passes chunks as large as a group of `of` ranks does with `bytes`, in whole elements for
/// every rank.
pub fn size_on(bytes: Bytes, element: ElementType, of: u32, on: u32) -> Bytes {
    let share = element.size() * u64::from(on);
    let chunks = u128::from(bytes.0) * u128::from(on) / u128::from(of.max(1));
    Bytes((u64::try_from(chunks).unwrap_or(u64::MAX) / share).max(1) * share)
}

fn stride(layout: &Layout, axis: Axis) -> u32 {
    let groups = layout.groups(axis).groups;
    let mut gaps = groups.iter().flat_map(|group| group.array_windows().map(|[a, b]| b.saturating_sub(*a)));
    let first = gaps.next().unwrap_or(1).max(1);
    if gaps.all(|gap| gap == first) { first } else { 1 }
}

// The number of tokens of a replica at which the order of two parallelisms changes.
//
// The time of calls in every micro-batch grows with the tokens T of a replica in a step, that of calls once per step
// does not. If a parallelism spends a1 and a0 on them in a step of T_d tokens, it spends a0 + a1 T/T_d at T; two of
// them are equal at T* = T_d (b0 - a0)/(a1 - b1). If one has only calls in every micro-batch and the other only calls
// once per step, that is T_d b0/a1. Exact as long as only the number of micro-batches changes. A crossing below one
// micro-batch is ignored.

/// The crossing of two lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crossing {
    /// At this many tokens; above it the named parallelism is larger.
    At {
        /// Tokens of a replica in a step.
        tokens: Span,
        larger_above: Family,
    },
    /// Nowhere from one micro-batch on: the named parallelism is larger for any number of tokens.
    Never(Family),
    /// Both are equal, or one of them is unknown.
    Unknown,
}

/// Cost of a parallelism in a step, in bytes or seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spending {
    pub family: Family,
    /// Time of calls in every micro-batch.
    pub every_micro_batch: Span,
    /// Time of calls once per step, or a few times.
    pub once: Span,
}

/// The crossing of two parallelisms, from a step of this many tokens.
pub fn crossing(a: &Spending, b: &Spending, tokens: u64, tokens_per_micro_batch: u64) -> Crossing {
    let (a1, b1) = (a.every_micro_batch, b.every_micro_batch);
    let (steeper, slope, head_start) = match a1.middle >= b1.middle {
        true => (a.family, a1.minus(b1), b.once.minus(a.once)),
        false => (b.family, b1.minus(a1), a.once.minus(b.once)),
    };
    match head_start.over(slope) {
        Some(share) if share.middle * tokens as f64 >= tokens_per_micro_batch as f64 => {
            Crossing::At { tokens: share.times(tokens as f64), larger_above: steeper }
        }
        Some(_) => Crossing::Never(steeper),
        None if slope.middle > 0.0 => Crossing::Never(steeper),
        None if head_start.middle > 0.0 => Crossing::Never(if steeper == a.family { b.family } else { a.family }),
        None if head_start.middle < 0.0 => Crossing::Never(steeper),
        None => Crossing::Unknown,
    }
}

// A step in figures, for the record.

/// A step of some cases, as far as readers of the record need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepFacts {
    /// The model.
    pub model: String,
    /// The degrees above 1, such as `tp 2 x dp 2`.
    pub layout: String,
    /// `training`, `prefill` or `decode`.
    pub phase: String,
    /// The degrees.
    pub degrees: Degrees,
    /// Micro-batches of one replica in a step.
    pub micro_batches: u64,
    /// Tokens of one replica in a step.
    pub tokens_per_replica: u64,
}

impl StepFacts {
    pub fn of(step: &Step) -> StepFacts {
        let degrees = step.layout().degrees;
        StepFacts {
            model: step.model().shown_name(),
            layout: degrees.name(),
            phase: step.phase_name().to_owned(),
            degrees,
            micro_batches: step.micro_batches(),
            tokens_per_replica: step.tokens_per_replica(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use crate::workload::WorkPlan;
    use std::collections::HashSet;
    use std::path::Path;

    #[test]
    fn the_estimate_is_the_budget_of_every_case_and_replicate_or_follows_the_fixed_count() {
        let text = "[[sweep]]\ncollectives = 'all_gather'\nbytes = [1000000, 2000000]\nplacements = 'in-place'\ncadences = 'isolated'\n";
        let suite = Suite::parse(Path::new("test.toml"), text).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        assert_eq!(plan.largest_bytes(), Bytes(2_000_000));
        let mut settings = RunSettings { case_budget: Seconds(0.2), replicates: 3, ..RunSettings::default() };
        assert!((plan.estimated_seconds(&settings).0 - 3.0 * 2.0 * 0.25).abs() < 1e-9);
        settings.iterations = Some(100);
        let calls = 100.0 * (2.0 * 50e-6 + 3e6 / 0.5e9);
        assert!((plan.estimated_seconds(&settings).0 - 3.0 * (calls + 2.0 * 0.05)).abs() < 1e-9);
    }

    #[test]
    fn copies_take_the_longer_to_prepare_the_larger_they_are() {
        let suite = Suite::parse(Path::new("copies.toml"), include_str!("../../../suites/copies.toml")).unwrap();
        let plan = WorkPlan::from_suite(&suite, 1).unwrap();
        let seconds = plan.estimated_seconds(&suite.settings).0;
        assert!((12.0..20.0).contains(&seconds), "{seconds} s; 14.5 s were measured on one GPU");
    }

    fn table(kinds: &[CopyKind]) -> CopyTable {
        CopyTable {
            kinds: kinds.to_vec(),
            host_memory: vec![HostMemory::Pinned, HostMemory::Pageable],
            bytes: vec![Bytes(1 << 20)],
            alone: vec![true],
        }
    }

    fn names(kinds: &[CopyKind], nodes: &Nodes) -> Vec<String> {
        of(&[table(kinds), table(kinds)], nodes).iter().map(CopyShape::name).collect()
    }

    #[test]
    fn peers_are_met_at_every_distance_and_each_copy_is_there_once() {
        let two_hosts = Nodes::of_hosts(&["a", "a", "a", "b"]);
        let expected = ["to-peer of 1 MiB, peer +1, alone", "to-peer of 1 MiB, peer +2, alone"];
        assert_eq!(names(&[CopyKind::ToPeer], &two_hosts), expected);
        assert_eq!(names(&[CopyKind::PeerBothWays], &Nodes::of_hosts(&["a", "b"])), [] as [String; 0]);
    }

    #[test]
    fn every_name_of_nvbandwidth_belongs_to_one_copy_and_pageable_memory_has_none() {
        let two = Nodes::of_hosts(&["a", "a"]);
        let tables = [CopyTable { alone: vec![true, false], ..table(&CopyKind::ALL) }];
        let of_copies = of(&tables, &two);
        let named = || of_copies.iter().filter_map(CopyShape::nvbandwidth_name);
        let listed = || pairs(include_str!("nvbandwidth.txt")).map(|(_, names)| names);
        assert_eq!(named().collect::<HashSet<_>>(), listed().collect::<HashSet<_>>());
        assert_eq!((named().count(), listed().count()), (31, 31));
        let each = || listed().flat_map(|names| names.split(", "));
        assert_eq!((each().count(), each().collect::<HashSet<_>>().len()), (35, 35), "all that need one host");
    }

    #[test]
    fn latencies_have_a_size_of_their_own_and_one_rank_has_no_peers() {
        let two = Nodes::of_hosts(&["a", "a"]);
        assert_eq!(names(&[CopyKind::PeerLatencySm], &two), ["peer-latency-sm of 8 B, peer +1, alone"]);
        assert_eq!(names(&[CopyKind::HostLatencySm], &two), ["host-latency-sm of 8 B, pinned, alone"]);
        assert_eq!(names(&[CopyKind::AllPeersToOne], &two), ["all-peers-to-one of 1 MiB, alone"]);
        assert_eq!(names(&[CopyKind::AllPeersToOne], &Nodes::single(1)), [] as [String; 0]);
    }

    #[test]
    fn of_pageable_memory_both_ways_at_once_are_left_out() {
        let one = Nodes::single(1);
        let expected = ["host-to-device of 1 MiB, pinned, alone", "host-to-device of 1 MiB, pageable, alone"];
        assert_eq!(names(&[CopyKind::HostToDevice], &one), expected);
        assert_eq!(names(&[CopyKind::HostBothWays], &one), ["host-both-ways of 1 MiB, pinned, alone"]);
        let far = CopyTable {
            host_memory: vec![HostMemory::PinnedFar, HostMemory::PageableFar],
            ..table(&[CopyKind::HostBothWaysSm, CopyKind::WithinDevice])
        };
        let expected = ["host-both-ways-sm of 1 MiB, pinned_far, alone", "within-device of 1 MiB, alone"];
        assert_eq!(of(&[far], &one).iter().map(CopyShape::name).collect::<Vec<_>>(), expected);
        assert_eq!(names(&[CopyKind::WithinDevice], &one), ["within-device of 1 MiB, alone"]);
    }

    const RANKING: &str = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 1024\nmicro_batches = 4\n\
                           bucket_parameters = 1_000_000\n[ranking]\ntp = 2\ncp = 2\ndp = 2\npp = 2\n";

    fn plan(text: &str, ranks: u32) -> Result<WorkPlan> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        WorkPlan::from_suite(&Suite::parse(&path, text)?, ranks)
    }

    fn call(collective: Collective, group_size: u32, stride: u32) -> RankedCall {
        RankedCall {
            style: Style::Data,
            axis: Axis::DpCp,
            group_size,
            stride,
            collective,
            element_type: ElementType::Float32,
            reduce_op: None,
            bytes_total: Bytes(4000),
            splits: None,
            count_per_step: 3,
            exposed: true,
        }
    }

    #[test]
    fn a_call_is_measured_itself_or_in_half_its_group_or_not_at_all() {
        use Collective::{AllReduce, AllToAllV, SendRecvChain};
        for (collective, group_size, ranks, expected) in [
            (AllReduce, 4, 8, &[(4, 4000)][..]),
            // A ring of 4 passes on chunks of 1000 bytes, as one of 2 does with 2000.
            (AllReduce, 4, 2, &[(2, 2000), (2, 4000)]),
            (AllReduce, 4, 6, &[(3, 3000), (3, 3996)]),
            (SendRecvChain, 4, 2, &[(2, 4000)]),
            (AllReduce, 8, 2, &[]),
            (AllReduce, 4, 1, &[]),
            (AllToAllV, 4, 2, &[]),
        ] {
            let found = call(collective, group_size, 1).measured_as(ranks);
            let expected: Vec<(u32, Bytes)> = expected.iter().map(|(ranks, bytes)| (*ranks, Bytes(*bytes))).collect();
            assert_eq!(found, expected, "{collective} of {group_size} on {ranks}");
        }
    }

    #[test]
    fn groups_lie_as_far_apart_as_in_the_layout_or_as_the_ranks_allow() {
        for (group_size, stride, ranks, expected) in [
            (2, 1, 4, vec![vec![0, 1], vec![2, 3]]),
            (2, 8, 4, vec![vec![0, 2], vec![1, 3]]),
            (2, 8, 6, vec![vec![0, 3], vec![1, 4], vec![2, 5]]),
            (2, 8, 2, vec![vec![0, 1]]),
            (4, 2, 4, vec![vec![0, 1, 2, 3]]),
        ] {
            let groups = call(Collective::AllReduce, group_size, stride).groups(group_size, ranks);
            assert_eq!(groups.groups, expected, "{group_size} {stride} {ranks}");
        }
    }

    #[test]
    fn every_axis_of_the_layout_is_measured_on_ranks_that_do_not_hold_it() {
        for ranks in [2, 4, 8] {
            let plan = plan(RANKING, ranks).unwrap();
            let ranked = plan.ranking.as_ref().expect("fewer than 16 ranks");
            assert_eq!(ranked.facts.degrees.world(), 16);
            for call in &ranked.calls {
                for (group_size, bytes) in call.measured_as(ranks) {
                    let same = |case: &&crate::workload::Case| {
                        let op = &case.op;
                        (op.axis, op.collective, op.bytes_total) == (call.axis, call.collective, bytes)
                            && plan.groups_of(case).group_size() == group_size
                    };
                    assert!(plan.cases.iter().any(|case| same(&case)), "{ranks}: {call:?}");
                }
                assert!(!call.measured_as(ranks).is_empty(), "{ranks}: {call:?}");
            }
            let families: HashSet<&str> =
                ranked.calls.iter().filter_map(|call| Family::of(call.axis)).map(Family::name).collect();
            assert_eq!(families, HashSet::from(["TP", "CP", "DP", "PP"]));
        }
    }

    #[test]
    fn ranks_that_hold_the_layout_measure_its_step_as_it_is() {
        for (ranks, replicas) in [(16, 2), (32, 4)] {
            let plan = plan(RANKING, ranks).unwrap();
            assert!(plan.ranking.is_none());
            assert_eq!((plan.steps.len(), plan.steps[0].degrees.dp), (1, replicas));
        }
    }

    #[test]
    fn a_ranking_that_says_too_little_is_refused() {
        for (text, expected) in [
            (RANKING.replace("dp = 2\n", ""), "ranking: `dp` is missing"),
            ("[ranking]\ntp = 2\ndp = 2\n".to_owned(), "ranking: needs a [model]"),
            (RANKING.replace("cp = 2", "cp = 3"), "not a multiple of 2*cp = 6"),
        ] {
            let error = plan(&text, 2).expect_err(&text);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{error}");
        }
    }

    fn spending(family: Family, every_micro_batch: f64, once: f64) -> Spending {
        Spending { family, every_micro_batch: Span::exact(every_micro_batch), once: Span::exact(once) }
    }

    #[test]
    fn lines_cross_where_computed_by_hand() {
        let tensor = |slope| spending(Family::Tensor, slope, 0.0);
        let data = |once| spending(Family::Data, 0.0, once);
        let at = |tokens, larger_above| Crossing::At { tokens: Span::exact(tokens), larger_above };
        for (a, b, expected) in [
            // 1000 tokens cost 10; 40 are spent at 4000 tokens.
            (tensor(10.0), data(40.0), at(4000.0, Family::Tensor)),
            (data(40.0), tensor(10.0), at(4000.0, Family::Tensor)),
            // At 50 tokens, which is less than one micro-batch of 100.
            (tensor(10.0), data(0.5), Crossing::Never(Family::Tensor)),
            (tensor(0.0), data(1.0), Crossing::Never(Family::Data)),
            (data(1.0), tensor(0.0), Crossing::Never(Family::Data)),
            (tensor(0.0), data(0.0), Crossing::Unknown),
        ] {
            assert_eq!(crossing(&a, &b, 1000, 100), expected, "{a:?} {b:?}");
        }
    }
}
