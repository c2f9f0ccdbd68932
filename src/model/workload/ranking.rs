//! A step whose parallelisms are ranked although the available ranks are too few for its layout: its calls as data,
//! and how each is measured separately in groups that fit the ranks.

use super::step::Step;
use super::when::{Moment, Overlap, When};
use super::{Family, Op, StepFacts, Style};
use crate::layout::{Axis, Groups, Layout};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum ratio between the group of a call and the smaller group in which it is measured.
const FARTHEST: u32 = 2;

/// A step and its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedStep {
    /// Model, layout, micro-batches and tokens.
    pub facts: StepFacts,
    /// The calls on every axis of a parallelism, each axis as the rank sees it that it loads most.
    pub calls: Vec<RankedCall>,
}

/// A call of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedCall {
    /// Who asks for it.
    pub style: Style,
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Distance between neighbouring ranks of a group in the layout; 1 where it is not constant.
    pub stride: u32,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// How elements are combined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_op: Option<ReduceOp>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// How the vector forms divide their elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<Splits>,
    /// Calls in a step, on the rank that the axis loads most.
    pub count_per_step: u64,
    /// Whether everybody waits for it.
    pub exposed: bool,
}

impl RankedStep {
    /// The calls of the wanted styles on axes of one parallelism; small calls of the whole model belong to no
    /// parallelism.
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

    /// The call as an op of a step. Its position in the step is no longer known, only its number.
    pub fn op(&self) -> Op {
        let overlap = if self.exposed { Overlap::Exposed } else { Overlap::Backward };
        Op {
            style: self.style,
            axis: self.axis,
            collective: self.collective,
            element: self.element_type,
            reduce_op: self.reduce_op,
            root: 0,
            bytes_total: self.bytes_total,
            splits: self.splits.clone().unwrap_or(Splits::Equal),
            when: When::Step { moment: Moment::Optimizer, calls: self.count_per_step },
            overlap,
            copies_per_call: 0,
            why: String::new(),
        }
    }

    /// The group sizes and bytes at which it is measured on this many ranks. Unchanged, if groups of its size divide
    /// the ranks; else in the largest groups that do, once with the chunks of a ring and once with the buffer
    /// unchanged; the true time is between the two ([`size_on`]). Empty if that is too far off.
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

/// The bytes with which a group of `on` ranks passes on chunks as large as one of `of` ranks does with `bytes`, in whole elements for
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use crate::workload::WorkPlan;
    use std::collections::HashSet;
    use std::path::Path;

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
            let ranked = plan.ranking.as_ref().expect("16 ranks are not there");
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
            ("[ranking]\ntp = 2\ndp = 2\n".to_owned(), "ranking: stands without a [model]"),
            (RANKING.replace("cp = 2", "cp = 3"), "no multiple of 2*cp = 6"),
        ] {
            let error = plan(&text, 2).expect_err(&text);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{error}");
        }
    }
}
