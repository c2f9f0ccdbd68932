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
            // A power of two among zeros is where the two agree, for every n, but in eight bits, which NCCL alone reduces.
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

    /// The reduction, and the ranks of its group.
    pub(super) fn reduction(&self) -> (ReduceOp, u32) {
        (self.op, self.ranks)
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
            ReduceOp::Avg => encode::average(self.element, whole as f64, self.ranks),
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

    /// An average of floats as host memory has it: divided at the end.
    #[test]
    fn averages_of_floats_are_the_same_divided_at_the_end_and_multiplied_at_the_beginning() {
        for ranks in 1..=2048u32 {
            for number in [1.0, 2.0, 4.0, 8.0] {
                let divided = number / f64::from(ranks);
                let by_type = [
                    (ElementType::Float64, divided.to_bits()),
                    (ElementType::Float32, u64::from((divided as f32).to_bits())),
                    (ElementType::Bfloat16, u64::from(bf16::from_f32(number as f32 / ranks as f32).to_bits())),
                    (ElementType::Float16, u64::from(f16::from_f32(number as f32 / ranks as f32).to_bits())),
                ];
                for (element, expected) in by_type {
                    assert_eq!(encode::average(element, number, ranks), expected, "{number} / {ranks} as {element}");
                }
            }
        }
    }

    /// The distance between the 8-bit floats around a number, and the number in such steps; known from the format alone.
    fn rounded_to_eight_bits(number: f64, mantissa_bits: i32, smallest_exponent: i32) -> f64 {
        let exponent =
            if number == 0.0 { smallest_exponent } else { (number.log2().floor() as i32).max(smallest_exponent) };
        let step = 2f64.powi(exponent - mantissa_bits);
        (number / step).round_ties_even() * step
    }

    #[test]
    fn averages_of_eight_bit_floats_are_those_of_nccl_which_rounds_the_inverse_and_then_the_product() {
        let (mut otherwise, types) = (0, [(ElementType::Fp8E4m3, 3, -6), (ElementType::Fp8E5m2, 2, -14)]);
        for (element, mantissa_bits, smallest_exponent) in types {
            let rounded = |number| rounded_to_eight_bits(number, mantissa_bits, smallest_exponent);
            for ranks in 1..=2048u32 {
                for number in [1.0, 2.0, 4.0, 8.0] {
                    let expected = rounded(rounded(1.0 / f64::from(ranks)) * number);
                    let found = encode::value(element, encode::average(element, number, ranks));
                    assert_eq!(found, expected, "{number} / {ranks} as {element}");
                    otherwise += u32::from(expected != rounded(number / f64::from(ranks)));
                }
            }
        }
        assert!(otherwise > 100, "dividing at the end would give other bits in many cases, not in {otherwise}");
    }

    /// Numbers of ranks up to the most that are promised: all of the small ones, powers of two and their neighbours, and others between.
    fn numbers_of_ranks() -> impl Iterator<Item = u32> {
        (1..=130).chain((7..=11).flat_map(|power| [(1 << power) - 1, 1 << power])).chain((131..2048).step_by(127))
    }

    /// Reduces as NCCL may: in the element type, each step rounded, from the first rank to the last or the other way round.
    fn reduced_in_type(table: &Table, index: usize, from_last: bool) -> u64 {
        let Table { element, op, ranks, .. } = *table;
        let rounded = |number: f64| encode::value(element, encode::bits(element, number));
        let scaled = |rank: u32| {
            let number = encode::value(element, table.contributed(rank, index));
            match op {
                ReduceOp::Avg if !element.is_whole_number() => rounded(rounded(1.0 / f64::from(ranks)) * number),
                ReduceOp::PreMulSum => rounded(number * f64::from(multiplier(rank))),
                _ => number,
            }
        };
        let combine = |total: f64, next: f64| match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => rounded(total + next),
            ReduceOp::Prod => rounded(total * next),
            ReduceOp::Min => total.min(next),
            ReduceOp::Max => total.max(next),
        };
        let order = |rank: u32| if from_last { ranks - 1 - rank } else { rank };
        let total = (1..ranks).fold(scaled(order(0)), |total, rank| combine(total, scaled(order(rank))));
        let divides = op == ReduceOp::Avg && element.is_whole_number();
        encode::bits(element, if divides { (total / f64::from(ranks)).trunc() } else { total })
    }

    #[test]
    fn results_are_those_of_reducing_in_the_type_in_either_order_on_up_to_2048_ranks() {
        for element in ElementType::ALL {
            for op in ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum]) {
                for ranks in numbers_of_ranks() {
                    let table = Table::new(element, op, ranks);
                    for index in [0, table.len() / 2] {
                        let expected = table.reduced_to(index);
                        for from_last in [false, true] {
                            let found = reduced_in_type(&table, index, from_last);
                            assert_eq!(found, expected, "{op} of {element} on {ranks} ranks at {index}");
                        }
                    }
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
