//! Where the order of two parallelisms of a measured step flips: every pair that crosses somewhere, and those of the rule.

use super::op::StepOp;
use commgauge_base::stats::Span;
use commgauge_model::workload::{Crossing, Family, Spending, StepFacts, crossing};

/// Where two parallelisms are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The two.
    pub families: [Family; 2],
    /// By the bytes that a rank sends.
    pub wire: Crossing,
    /// By the time of all calls.
    pub time: Crossing,
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
                let by = |amount: fn(&StepOp) -> Option<Span>| between(ops, [a, b], tokens, amount);
                let wire = by(|op| Some(Span::exact(op.wire_bytes_per_step.0 as f64)));
                let crossover = Crossover { families: [a, b], wire, time: by(StepOp::seconds_per_step) };
                let crosses = [&crossover.wire, &crossover.time].iter().any(|c| matches!(c, Crossing::At { .. }));
                if crosses || (Family::RULE.contains(&a) && Family::RULE.contains(&b)) {
                    all.push(crossover);
                }
            }
        }
        all
    }
}

fn between(
    ops: &[StepOp],
    [a, b]: [Family; 2],
    [tokens, tokens_per_micro_batch]: [u64; 2],
    amount: fn(&StepOp) -> Option<Span>,
) -> Crossing {
    let sum = |family, every_micro_batch| {
        let chosen =
            ops.iter().filter(|op| Family::of(op.axis) == Some(family) && op.every_micro_batch == every_micro_batch);
        chosen.map(amount).try_fold(Span::exact(0.0), |sum, amount| Some(sum.plus(amount?)))
    };
    let spending = |family| Some(Spending { family, every_micro_batch: sum(family, true)?, once: sum(family, false)? });
    match spending(a).zip(spending(b)) {
        Some((a, b)) => crossing(&a, &b, tokens, tokens_per_micro_batch),
        None => Crossing::Unknown,
    }
}
