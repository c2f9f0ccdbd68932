//! The number of tokens of a replica at which the order of two parallelisms changes.
//!
//! The time of calls in every micro-batch grows with the tokens T of a replica in a step, that of calls once per step
//! does not. If a parallelism spends a1 and a0 on them in a step of T_d tokens, it spends a0 + a1 T/T_d at T; two of
//! them are equal at T* = T_d (b0 - a0)/(a1 - b1). If one has only calls in every micro-batch and the other only calls
//! once per step, that is T_d b0/a1. Exact as long as only the number of micro-batches changes. A crossing below one
//! micro-batch is ignored.

use super::Family;
use commgauge_base::stats::Span;

/// Where two lines cross.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crossing {
    /// At this many tokens; above it the named one is the larger.
    At {
        /// Tokens of a replica in a step.
        tokens: Span,
        /// The larger above it.
        larger_above: Family,
    },
    /// Nowhere from one micro-batch on: the named one is the larger for any number of tokens.
    Never(Family),
    /// Both are equal, or one of them is unknown.
    Unknown,
}

/// Cost of a parallelism in a step, in bytes or seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spending {
    /// Which.
    pub family: Family,
    /// Time of calls in every micro-batch.
    pub every_micro_batch: Span,
    /// Time of calls once in a step, or a few times.
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

#[cfg(test)]
mod tests {
    use super::*;

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
