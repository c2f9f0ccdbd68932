//! Numbers to the bits of an element type and back, and arithmetic on buffers of any type.
//!
//! The arithmetic is used for operations that MPI lacks (16-bit floats, avg) and for the tests' own reductions.

/// Calls `$then` with the Rust type of an element type that supports arithmetic.
macro_rules! with_type {
    ($element:expr, $then:ident ( $($argument:expr),* )) => {
        match $element {
            ElementType::Int8 => $then::<i8, 1>($($argument),*),
            ElementType::Uint8 => $then::<u8, 1>($($argument),*),
            ElementType::Int32 => $then::<i32, 4>($($argument),*),
            ElementType::Uint32 => $then::<u32, 4>($($argument),*),
            ElementType::Int64 => $then::<i64, 8>($($argument),*),
            ElementType::Uint64 => $then::<u64, 8>($($argument),*),
            ElementType::Float16 => $then::<f16, 2>($($argument),*),
            ElementType::Bfloat16 => $then::<bf16, 2>($($argument),*),
            ElementType::Float32 => $then::<f32, 4>($($argument),*),
            ElementType::Float64 => $then::<f64, 8>($($argument),*),
            ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => {}
        }
    };
}

macro_rules! whole_number {
    ($($kind:ty, $bytes:literal);*) => { $(
        impl Number<$bytes> for $kind {
            fn read(bytes: [u8; $bytes]) -> Self { <$kind>::from_le_bytes(bytes) }
            fn write(self) -> [u8; $bytes] { self.to_le_bytes() }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn divide(self, ranks: u32) -> Self { (self as i128 / i128::from(ranks)) as $kind }
        }
    )* };
}

macro_rules! float {
    ($($kind:ty, $bytes:literal, $wide:ty, $widen:expr, $narrow:expr);*) => { $(
        impl Number<$bytes> for $kind {
            fn read(bytes: [u8; $bytes]) -> Self { <$kind>::from_le_bytes(bytes) }
            fn write(self) -> [u8; $bytes] { self.to_le_bytes() }
            fn add(self, other: Self) -> Self { $narrow($widen(self) + $widen(other)) }
            fn multiply(self, other: Self) -> Self { $narrow($widen(self) * $widen(other)) }
            fn divide(self, ranks: u32) -> Self { $narrow($widen(self) / ranks as $wide) }
        }
    )* };
}

use crate::collective::ReduceOp;
use crate::element::ElementType;
use half::{bf16, f16};

/// The bits of a number that the type represents exactly, or rounded to nearest; the low bits are used if the type is
/// narrower.
pub fn bits(element: ElementType, value: f64) -> u64 {
    match element {
        ElementType::Int8 => value as i8 as u8 as u64,
        ElementType::Uint8 => value as u8 as u64,
        ElementType::Int32 => value as i32 as u32 as u64,
        ElementType::Uint32 => value as u32 as u64,
        ElementType::Int64 => value as i64 as u64,
        ElementType::Uint64 => value as u64,
        ElementType::Float16 => u64::from(f16::from_f64(value).to_bits()),
        ElementType::Bfloat16 => u64::from(bf16::from_f64(value).to_bits()),
        ElementType::Float32 => u64::from((value as f32).to_bits()),
        ElementType::Float64 => value.to_bits(),
        ElementType::Fp8E4m3 => eight_bits(value, 4, 3),
        ElementType::Fp8E5m2 => eight_bits(value, 5, 2),
    }
}

/// The bits of an average to which one rank contributes `sum`, a small power of two, and the others zeros. Whole numbers are divided at the
/// end, truncated. Floats are multiplied by 1 / ranks, which is rounded to the type before: NCCL averages so (`ncclAvg` in its
/// `src/enqueue.cc`). In types of 16 bits and more, dividing at the end, as on host memory, gives the same bits up to 2,048 ranks; in eight
/// bits it differs from 67 ranks on, where 1 / ranks is below the smallest normal number.
pub fn average(element: ElementType, sum: f64, ranks: u32) -> u64 {
    if element.is_whole_number() {
        return bits(element, sum / f64::from(ranks));
    }
    let inverse = value(element, bits(element, 1.0 / f64::from(ranks)));
    bits(element, inverse * sum)
}

/// Text format of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// As a number, for data used in arithmetic.
    Number,
    /// For data that is only moved.
    Hexadecimal,
}

/// Bits as text.
pub fn show(element: ElementType, notation: Notation, bits: u64) -> String {
    if notation == Notation::Hexadecimal {
        return format!("0x{bits:0width$x}", width = 2 * element.size() as usize);
    }
    match element {
        ElementType::Int8 => (bits as i8).to_string(),
        ElementType::Uint8 => (bits as u8).to_string(),
        ElementType::Int32 => (bits as i32).to_string(),
        ElementType::Uint32 => (bits as u32).to_string(),
        ElementType::Int64 => (bits as i64).to_string(),
        ElementType::Uint64 => bits.to_string(),
        ElementType::Float16 => f16::from_bits(bits as u16).to_string(),
        ElementType::Bfloat16 => bf16::from_bits(bits as u16).to_string(),
        ElementType::Float32 => f32::from_bits(bits as u32).to_string(),
        ElementType::Float64 => f64::from_bits(bits).to_string(),
        ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => value(element, bits).to_string(),
    }
}

/// The number of some bits.
pub fn value(element: ElementType, bits: u64) -> f64 {
    match element {
        ElementType::Int8 => f64::from(bits as i8),
        ElementType::Uint8 => f64::from(bits as u8),
        ElementType::Int32 => f64::from(bits as i32),
        ElementType::Uint32 => f64::from(bits as u32),
        ElementType::Int64 => bits as i64 as f64,
        ElementType::Uint64 => bits as f64,
        ElementType::Float16 => f16::from_bits(bits as u16).to_f64(),
        ElementType::Bfloat16 => bf16::from_bits(bits as u16).to_f64(),
        ElementType::Float32 => f64::from(f32::from_bits(bits as u32)),
        ElementType::Float64 => f64::from_bits(bits),
        ElementType::Fp8E4m3 => eight_bit_value(bits, 4, 3),
        ElementType::Fp8E5m2 => eight_bit_value(bits, 5, 2),
    }
}

/// The distance from 1 to the next larger number: twice the largest relative rounding error. `None` for integers.
pub fn unit(element: ElementType) -> Option<f64> {
    let bits = match element {
        ElementType::Float16 => 10,
        ElementType::Bfloat16 => 7,
        ElementType::Float32 => 23,
        ElementType::Float64 => 52,
        ElementType::Fp8E4m3 => 3,
        ElementType::Fp8E5m2 => 2,
        _ => return None,
    };
    Some(2f64.powi(-bits))
}

/// A small 8-bit float of a number (Micikevicius and others, FP8 Formats for Deep Learning, 2022): to nearest, ties to even.
/// Neither infinities nor numbers near the largest (448 and 57344) are ever requested.
fn eight_bits(value: f64, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let sign = u64::from(value.is_sign_negative()) << 7;
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return sign;
    }
    // Below the smallest normal number the spacing is constant.
    let exponent = (magnitude.log2().floor() as i32).max(1 - bias);
    let steps = (magnitude / 2f64.powi(exponent - mantissa_bits as i32)).round_ties_even() as u64;
    // A mantissa that overflows carries into the exponent, as required.
    let below = ((exponent + bias - 1) as u64) << mantissa_bits;
    sign | (below + steps).min(0x7f)
}

fn eight_bit_value(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let mantissa = (bits & ((1 << mantissa_bits) - 1)) as f64;
    let exponent = ((bits >> mantissa_bits) & ((1 << exponent_bits) - 1)) as i32;
    let whole = if exponent > 0 { 2f64.powi(mantissa_bits as i32) } else { 0.0 };
    let magnitude = (whole + mantissa) * 2f64.powi(exponent.max(1) - bias - mantissa_bits as i32);
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// `inout = op(input, inout)`, element by element; `avg` adds. Types that are only moved are unchanged.
pub fn reduce_into(element: ElementType, op: ReduceOp, input: &[u8], inout: &mut [u8]) {
    with_type!(element, reduce_typed(op, input, inout));
}

/// Divides every element by the number of ranks: truncated for whole numbers, rounded to nearest for floats.
pub fn divide_all(element: ElementType, buffer: &mut [u8], ranks: u32) {
    with_type!(element, divide_typed(buffer, ranks));
}

/// An element type in Rust arithmetic.
trait Number<const N: usize>: Copy + PartialOrd {
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, ranks: u32) -> Self;
}

whole_number!(i8, 1; u8, 1; i32, 4; u32, 4; i64, 8; u64, 8);

float!(f16, 2, f32, f16::to_f32, f16::from_f32; bf16, 2, f32, bf16::to_f32, bf16::from_f32;
       f32, 4, f32, std::convert::identity, std::convert::identity; f64, 8, f64, std::convert::identity, std::convert::identity);

fn reduce_typed<T: Number<N>, const N: usize>(op: ReduceOp, input: &[u8], inout: &mut [u8]) {
    fn apply<T: Number<N>, const N: usize>(input: &[u8], inout: &mut [u8], combine: impl Fn(T, T) -> T) {
        for (a, b) in input.as_chunks::<N>().0.iter().zip(inout.as_chunks_mut::<N>().0) {
            *b = combine(T::read(*a), T::read(*b)).write();
        }
    }
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => apply::<T, N>(input, inout, T::add),
        ReduceOp::Prod => apply::<T, N>(input, inout, T::multiply),
        ReduceOp::Min => apply::<T, N>(input, inout, |a, b| if a < b { a } else { b }),
        ReduceOp::Max => apply::<T, N>(input, inout, |a, b| if a > b { a } else { b }),
    }
}

fn divide_typed<T: Number<N>, const N: usize>(buffer: &mut [u8], ranks: u32) {
    for element in buffer.as_chunks_mut::<N>().0 {
        *element = T::read(*element).divide(ranks).write();
    }
}

// The small integers that ranks contribute to a reduction, and their reductions.

/// A cyclic table of numbers; rank r of n uses it shifted by r, so every reduction sees n neighbouring entries.
#[derive(Clone, Debug)]
pub(super) struct Table {
    element: ElementType,
    op: ReduceOp,
    ranks: u32,
    entries: Vec<u64>,
}

/// Number of entries: neither a power of two nor near one, so that patterns do not line up with block lengths.
const FEWEST_ENTRIES: u64 = 61;

/// A product of 2^6 is exact in every type that reduces (int8 ends at 127).
const MOST_TWOS_IN_A_PRODUCT: u64 = 6;

impl Table {
    pub(super) fn new(element: ElementType, op: ReduceOp, ranks: u32) -> Table {
        let n = u64::from(ranks);
        // Premultiplied contributions are at most doubled.
        let limit = element.largest_exact_integer() / if op == ReduceOp::PreMulSum { 2 } else { 1 };
        let length = FEWEST_ENTRIES + 2 * n;
        let hashed = |index: u64| crate::random::scramble(index + 1) >> 8;
        let sparse = |index: u64, per_window: u64| u64::from(index.is_multiple_of(n / per_window + 1));
        // Of n neighbours in the ring at most one.
        let is_single = |index: u64| index.is_multiple_of(n) && index + n <= length;
        let entry = |index: u64| match op {
            // The sum of any n neighbours stays within the exact range; with more ranks than that range has numbers only one in a certain
            // number of ranks contributes a one (two fewer than would fit: the table is a ring). MPI's sum is divided by n at the end; NCCL
            // multiplies every contribution by 1 / n, rounded to the type, and adds. Both agree on a power of two among zeros for every n,
            // except in eight bits, which only NCCL reduces.
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

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bits contributed by a group rank, by table index.
    pub(super) fn contribution(&self, group_rank: u32) -> Vec<u64> {
        (0..self.len()).map(|index| self.contributed(group_rank, index)).collect()
    }

    /// Bits of the reduction over all ranks, by table index.
    pub(super) fn reduced(&self) -> Vec<u64> {
        (0..self.len()).map(|index| self.reduced_to(index)).collect()
    }

    /// Bits contributed by a group rank at the table index `index`.
    pub(super) fn contributed(&self, group_rank: u32, index: usize) -> u64 {
        bits(self.element, self.entries[(index + group_rank as usize) % self.len()] as f64)
    }

    /// Bits of the reduction over all ranks at the table index `index`.
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
            ReduceOp::Avg => average(self.element, whole as f64, self.ranks),
            _ => bits(self.element, whole as f64),
        }
    }
}

/// The number by which a group rank multiplies its contribution to [`ReduceOp::PreMulSum`]: neighbours have different ones, and the product
/// is exact in every type.
pub fn multiplier(group_rank: u32) -> u32 {
    2 - group_rank % 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn eight_bit_floats_have_the_bits_of_their_paper_and_round_to_the_even_one() {
        use ElementType::{Fp8E4m3, Fp8E5m2};
        for (element, number, expected) in [
            (Fp8E4m3, 1.0, 0x38),
            (Fp8E4m3, -1.0, 0xb8),
            (Fp8E4m3, 448.0, 0x7e),
            (Fp8E4m3, 2f64.powi(-9), 0x01),
            (Fp8E4m3, 17.0, 0x58),
            (Fp8E4m3, 19.0, 0x5a),
            (Fp8E5m2, 1.0, 0x3c),
            (Fp8E5m2, 57344.0, 0x7b),
            (Fp8E5m2, 2f64.powi(-16), 0x01),
            (Fp8E5m2, 9.0, 0x48),
        ] {
            assert_eq!(bits(element, number), expected, "{element} {number}");
        }
    }

    #[test]
    fn bits_read_back_as_the_number_they_were_made_of() {
        for element in ElementType::ALL {
            for number in [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 8.0] {
                let exact = element != ElementType::Fp8E5m2 || number != 7.5;
                assert!(!exact || value(element, bits(element, number)) == number, "{element} {number}");
            }
        }
    }

    /// An average of floats as on host memory: divided at the end.
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
                    assert_eq!(super::average(element, number, ranks), expected, "{number} / {ranks} as {element}");
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
                    let found = super::value(element, super::average(element, number, ranks));
                    assert_eq!(found, expected, "{number} / {ranks} as {element}");
                    otherwise += u32::from(expected != rounded(number / f64::from(ranks)));
                }
            }
        }
        assert!(otherwise > 100, "dividing at the end would give other bits in many cases, not in {otherwise}");
    }

    /// Numbers of ranks up to the promised maximum: all small ones, powers of two and their neighbours, and others between.
    fn numbers_of_ranks() -> impl Iterator<Item = u32> {
        (1..=130).chain((7..=11).flat_map(|power| [(1 << power) - 1, 1 << power])).chain((131..2048).step_by(127))
    }

    /// Reduces as NCCL may: in the element type, each step rounded, from the first rank to the last or the other way round.
    fn reduced_in_type(table: &Table, index: usize, from_last: bool) -> u64 {
        let Table { element, op, ranks, .. } = *table;
        let rounded = |number: f64| super::value(element, super::bits(element, number));
        let scaled = |rank: u32| {
            let number = super::value(element, table.contributed(rank, index));
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
        super::bits(element, if divides { (total / f64::from(ranks)).trunc() } else { total })
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
