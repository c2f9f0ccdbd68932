//! At how many tokens of a replica the order of two parallelisms turns round.
//!
//! Calls that come in every micro-batch grow with the tokens T of a replica in a step, calls that come once in a step do not. With
//! a1, a0 what a parallelism spends on the one and on the other in the step that was measured, of T_d tokens, it spends
//! a0 + a1 T/T_d at T; two of them are equal at T* = T_d (b0 - a0)/(a1 - b1). Where only the one comes in every micro-batch and
//! only the other once, that is T_d b0/a1. Exact for as long as only the number of micro-batches changes. A crossing below one
//! micro-batch is none.

use super::family::Family;
use super::op::StepOp;
use super::span::Span;
use crate::workload::StepFacts;

/// Where two parallelisms are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The two.
    pub families: (Family, Family),
    /// By the bytes that a rank sends.
    pub wire: Crossing,
    /// By the time of all calls.
    pub time: Crossing,
}

/// Where two lines cross.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crossing {
    /// At so many tokens; above it the named one is the larger.
    At {
        /// Tokens of a replica in a step.
        tokens: Span,
        /// The larger above it.
        larger_above: Family,
    },
    /// Nowhere from one micro-batch on: the named one is the larger whatever the tokens.
    Never(Family),
    /// Both are equal, or nothing is known of one of them.
    Unknown,
}

impl Crossover {
    /// Every pair of parallelisms that cross somewhere, and the pairs of the rule in any case.
    pub(super) fn all_of(ops: &[StepOp], facts: &StepFacts) -> Vec<Crossover> {
        let tokens = [facts.tokens_per_replica, facts.tokens_per_replica / facts.micro_batches.max(1)];
        let there: Vec<Family> = Family::ALL
            .into_iter()
            .filter(|family| ops.iter().any(|op| Family::of(op.axis) == Some(*family)))
            .collect();
        let mut all = Vec::new();
        for (index, &a) in there.iter().enumerate() {
            for &b in &there[index + 1..] {
                let by = |amount: fn(&StepOp) -> Option<Span>| crossing(ops, (a, b), tokens, amount);
                let wire = by(|op| Some(Span::exact(op.wire_bytes_per_step.0 as f64)));
                let crossover = Crossover { families: (a, b), wire, time: by(StepOp::seconds_per_step) };
                let crosses = [&crossover.wire, &crossover.time].iter().any(|c| matches!(c, Crossing::At { .. }));
                if crosses || (Family::RULE.contains(&a) && Family::RULE.contains(&b)) {
                    all.push(crossover);
                }
            }
        }
        all
    }
}

fn crossing(
    ops: &[StepOp],
    (a, b): (Family, Family),
    [tokens, tokens_per_micro_batch]: [u64; 2],
    amount: fn(&StepOp) -> Option<Span>,
) -> Crossing {
    let sum = |family, every_micro_batch| {
        let chosen =
            ops.iter().filter(|op| Family::of(op.axis) == Some(family) && op.every_micro_batch == every_micro_batch);
        chosen.map(amount).try_fold(Span::exact(0.0), |sum, amount| Some(sum.plus(amount?)))
    };
    let lines = || Some((sum(a, true)?, sum(a, false)?, sum(b, true)?, sum(b, false)?));
    let Some((a1, a0, b1, b0)) = lines() else { return Crossing::Unknown };
    let (steeper, slope, head_start) =
        if a1.middle >= b1.middle { (a, a1.minus(b1), b0.minus(a0)) } else { (b, b1.minus(a1), a0.minus(b0)) };
    match head_start.over(slope) {
        Some(share) if share.middle * tokens as f64 >= tokens_per_micro_batch as f64 => {
            Crossing::At { tokens: share.times(tokens as f64), larger_above: steeper }
        }
        Some(_) => Crossing::Never(steeper),
        None if slope.middle > 0.0 => Crossing::Never(steeper),
        None if head_start.middle != 0.0 => Crossing::Never(if head_start.middle > 0.0 { b } else { a }),
        None => Crossing::Unknown,
    }
}
