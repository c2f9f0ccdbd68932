//! The small whole numbers that ranks contribute to a reduction, and what they reduce to.

use super::encode;
use crate::collective::ReduceOp;
use crate::element::ElementType;

/// A cyclic table of numbers; rank r of n uses it shifted by r, so every reduction sees n neighbouring entries.
#[derive(Clone, Debug)]
pub(super) struct Table {
    element: ElementType,
    op: ReduceOp,
    ranks: u32,
    entries: Vec<u64>,
}

/// Entries that are neither a power of two nor near one, so that patterns do not line up with block lengths.
const FEWEST_ENTRIES: u64 = 61;

/// A product of 2^6 is exact in every type that reduces (int8 ends at 127).
const MOST_TWOS_IN_A_PRODUCT: u64 = 6;

impl Table {
    pub(super) fn new(element: ElementType, op: ReduceOp, ranks: u32) -> Table {
        let n = u64::from(ranks);
        let limit = element.largest_exact_integer();
        let length = FEWEST_ENTRIES + 2 * n;
        let hashed = |index: u64| super::scramble(index + 1) >> 8;
        let sparse = |index: u64, per_window: u64| u64::from(index.is_multiple_of(n / per_window + 1));
        let entry = |index: u64| match op {
            // The sum of any n neighbours stays within the exact range; with more ranks than that range has numbers
            // only every so many ranks contribute a one (two fewer than would fit: the table is a ring).
            ReduceOp::Sum | ReduceOp::Avg if limit / n >= 1 => hashed(index) % (limit / n).min(100).saturating_add(1),
            ReduceOp::Sum | ReduceOp::Avg => sparse(index, limit / 2),
            ReduceOp::Prod if n <= MOST_TWOS_IN_A_PRODUCT => 1 + hashed(index) % 2,
            ReduceOp::Prod => 1 + sparse(index, MOST_TWOS_IN_A_PRODUCT / 2),
            ReduceOp::Min | ReduceOp::Max => hashed(index) % (limit.min(100) + 1),
        };
        Table { element, op, ranks, entries: (0..length).map(entry).collect() }
    }

    /// Bits that a group rank contributes, by table index.
    pub(super) fn contribution(&self, group_rank: u32) -> Vec<u64> {
        let length = self.entries.len();
        (0..length)
            .map(|i| encode::bits(self.element, self.entries[(i + group_rank as usize) % length] as f64))
            .collect()
    }

    /// Bits of the reduction over all ranks, by table index.
    pub(super) fn reduced(&self) -> Vec<u64> {
        let length = self.entries.len();
        let reduce = |index: usize| {
            let window = (0..self.ranks as usize).map(|rank| self.entries[(index + rank) % length]);
            match self.op {
                ReduceOp::Sum | ReduceOp::Avg => window.sum::<u64>(),
                ReduceOp::Prod => window.product(),
                ReduceOp::Min => window.min().unwrap_or(0),
                ReduceOp::Max => window.max().unwrap_or(0),
            }
        };
        let value = |index| match self.op {
            ReduceOp::Avg => encode::divide(self.element, reduce(index) as f64, self.ranks),
            _ => encode::bits(self.element, reduce(index) as f64),
        };
        (0..length).map(value).collect()
    }
}
