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
        // Pre-multiplied contributions are at most doubled.
        let limit = element.largest_exact_integer() / if op == ReduceOp::PreMulSum { 2 } else { 1 };
        let length = FEWEST_ENTRIES + 2 * n;
        let hashed = |index: u64| crate::random::scramble(index + 1) >> 8;
        let sparse = |index: u64, per_window: u64| u64::from(index.is_multiple_of(n / per_window + 1));
        // Of n neighbours in the ring at most one.
        let is_single = |index: u64| index.is_multiple_of(n) && index + n <= length;
        let entry = |index: u64| match op {
            // The sum of any n neighbours stays within the exact range; with more ranks than that range has numbers
            // only every so many ranks contribute a one (two fewer than would fit: the table is a ring).
            // MPI's sum is divided by n at the end; NCCL multiplies every contribution by 1 / n, rounded to the type, and adds.
            // A power of two among zeros is where the two agree, for every n.
            ReduceOp::Avg if !element.is_whole_number() => u64::from(is_single(index)) << (hashed(index) % 4),
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum if limit / n >= 1 => {
                hashed(index) % (limit / n).min(100).saturating_add(1)
            }
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => sparse(index, limit / 2),
            ReduceOp::Prod if n <= MOST_TWOS_IN_A_PRODUCT => 1 + hashed(index) % 2,
            ReduceOp::Prod => 1 + sparse(index, MOST_TWOS_IN_A_PRODUCT / 2),
            ReduceOp::Min | ReduceOp::Max => hashed(index) % (limit.min(100) + 1),
        };
        Table { element, op, ranks, entries: (0..length).map(entry).collect() }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bits that a group rank contributes, by table index.
    pub(super) fn contribution(&self, group_rank: u32) -> Vec<u64> {
        (0..self.len()).map(|index| self.contributed(group_rank, index)).collect()
    }

    /// Bits of the reduction over all ranks, by table index.
    pub(super) fn reduced(&self) -> Vec<u64> {
        (0..self.len()).map(|index| self.reduced_to(index)).collect()
    }

    /// Bits that a group rank contributes where the table index is `index`.
    pub(super) fn contributed(&self, group_rank: u32, index: usize) -> u64 {
        encode::bits(self.element, self.entries[(index + group_rank as usize) % self.len()] as f64)
    }

    /// Bits of the reduction over all ranks where the table index is `index`.
    pub(super) fn reduced_to(&self, index: usize) -> u64 {
        let length = self.len();
        let window = (0..self.ranks as usize).map(|rank| self.entries[(index + rank) % length]);
        let whole = match self.op {
            ReduceOp::Sum | ReduceOp::Avg => window.sum::<u64>(),
            ReduceOp::PreMulSum => (0u32..).zip(window).map(|(rank, entry)| u64::from(multiplier(rank)) * entry).sum(),
            ReduceOp::Prod => window.product(),
            ReduceOp::Min => window.min().unwrap_or(0),
            ReduceOp::Max => window.max().unwrap_or(0),
        };
        match self.op {
            ReduceOp::Avg => encode::divide(self.element, whole as f64, self.ranks),
            _ => encode::bits(self.element, whole as f64),
        }
    }
}

/// The number by which a group rank multiplies what it contributes to [`ReduceOp::PreMulSum`]: neighbours have different ones, and the
/// product is exact in every type.
pub fn multiplier(group_rank: u32) -> u32 {
    2 - group_rank % 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// An average as NCCL computes it: 1 / ranks, rounded to the type, times the contribution of the one rank that has
    /// any.
    #[test]
    fn averages_of_floats_are_the_same_divided_at_the_end_and_multiplied_at_the_beginning() {
        for ranks in 1..=2048u32 {
            let inverse = 1.0 / f64::from(ranks);
            for number in [1.0, 2.0, 4.0, 8.0] {
                let by_type = [
                    (ElementType::Float64, (inverse * number).to_bits()),
                    (ElementType::Float32, u64::from((inverse as f32 * number as f32).to_bits())),
                    (
                        ElementType::Bfloat16,
                        u64::from((bf16::from_f32(inverse as f32) * bf16::from_f64(number)).to_bits()),
                    ),
                    (
                        ElementType::Float16,
                        u64::from((f16::from_f32(inverse as f32) * f16::from_f64(number)).to_bits()),
                    ),
                ];
                for (element, expected) in by_type {
                    assert_eq!(encode::divide(element, number, ranks), expected, "{number} / {ranks} as {element}");
                }
            }
        }
    }

    #[test]
    fn at_most_one_rank_brings_something_to_an_average_of_floats_and_most_of_them_are_not_zero() {
        for ranks in [1, 2, 3, 4, 7, 61, 62, 100] {
            let table = Table::new(ElementType::Float32, ReduceOp::Avg, ranks);
            let length = table.entries.len();
            let brings = |index: usize| table.entries[index % length] > 0;
            let brought = |first: usize| (0..ranks as usize).filter(|rank| brings(first + rank)).count();
            let counts: Vec<_> = (0..length).map(brought).collect();
            assert!(counts.iter().all(|count| *count <= 1), "{ranks} ranks");
            assert!(2 * counts.iter().sum::<usize>() > length, "{ranks} ranks");
        }
    }
}
