//! Numbers to the bits of an element type and back, and arithmetic on buffers of any type.
//!
//! The arithmetic serves operations that MPI lacks (16-bit floats, avg) and the tests' own reductions.

use crate::collective::ReduceOp;
use crate::element::ElementType;
use half::{bf16, f16};

/// The bits of a number that the type holds exactly, or rounded to nearest; the low bits are used where the type is narrower.
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
        ElementType::Fp8E4m3 => fp8_bits(value, 3, 7, 448.0),
        ElementType::Fp8E5m2 => fp8_bits(value, 2, 15, 57344.0),
    }
}

/// An 8-bit float of so many mantissa bits and this exponent bias, to nearest even; beyond `largest` it stays there (the
/// formats of Micikevicius et al. 2022, FP8 Formats for Deep Learning, table 1). Devices reduce them; hosts do not.
fn fp8_bits(value: f64, mantissa_bits: i32, bias: i32, largest: f64) -> u64 {
    let magnitude = value.abs().min(largest);
    let sign = u64::from(value.is_sign_negative()) << 7;
    if magnitude == 0.0 {
        return sign;
    }
    let lowest = 1 - bias;
    let exponent = (magnitude.log2().floor() as i32).max(lowest);
    let steps = (magnitude / f64::from(exponent - mantissa_bits).exp2()).round_ties_even() as u64;
    // Normal numbers have one step more than their mantissa says, which is just what the exponent field needs.
    sign | ((((exponent - lowest) as u64) << mantissa_bits) + steps)
}

/// The bits of `sum / ranks`: truncated for whole numbers, rounded to nearest for floats.
pub fn divide(element: ElementType, sum: f64, ranks: u32) -> u64 {
    bits(element, sum / f64::from(ranks))
}

/// Bits as text: a number where the data are numbers, hexadecimal where they are only moved.
pub fn show(element: ElementType, is_number: bool, bits: u64) -> String {
    if !is_number {
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
        ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => format!("0x{bits:02x}"),
    }
}

/// Calls `$then` with the Rust type of an element type that can be computed with.
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

/// `inout = op(input, inout)`, element by element; `avg` adds. 8-bit floats, which hosts only move, are left alone.
pub fn reduce_into(element: ElementType, op: ReduceOp, input: &[u8], inout: &mut [u8]) {
    with_type!(element, reduce_typed(op, input, inout));
}

/// Divides every element by the number of ranks: truncated for whole numbers, rounded to nearest for floats.
pub fn divide_all(element: ElementType, buffer: &mut [u8], ranks: u32) {
    with_type!(element, divide_typed(buffer, ranks));
}

/// An element type as Rust computes with it.
trait Number<const N: usize>: Copy + PartialOrd {
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, ranks: u32) -> Self;
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
whole_number!(i8, 1; u8, 1; i32, 4; u32, 4; i64, 8; u64, 8);

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
float!(f16, 2, f32, f16::to_f32, f16::from_f32; bf16, 2, f32, bf16::to_f32, bf16::from_f32;
       f32, 4, f32, std::convert::identity, std::convert::identity; f64, 8, f64, std::convert::identity, std::convert::identity);

fn reduce_typed<T: Number<N>, const N: usize>(op: ReduceOp, input: &[u8], inout: &mut [u8]) {
    fn apply<T: Number<N>, const N: usize>(input: &[u8], inout: &mut [u8], combine: impl Fn(T, T) -> T) {
        for (a, b) in input.as_chunks::<N>().0.iter().zip(inout.as_chunks_mut::<N>().0) {
            *b = combine(T::read(*a), T::read(*b)).write();
        }
    }
    match op {
        ReduceOp::Sum | ReduceOp::Avg => apply::<T, N>(input, inout, T::add),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_the_bits_of_the_published_8_bit_formats() {
        // By hand from the table of the formats: sign, exponent, mantissa.
        for (value, e4m3, e5m2) in [
            (0.0, 0x00, 0x00),
            (1.0, 0b0_0111_000, 0b0_01111_00),
            (2.0, 0b0_1000_000, 0b0_10000_00),
            (3.0, 0b0_1000_100, 0b0_10000_10),
            (-6.0, 0b1_1001_100, 0b1_10001_10),
            (448.0, 0b0_1111_110, 0b0_10111_11),
            (1e9, 0b0_1111_110, 0b0_11110_11),
            (1.0 / 64.0, 0b0_0001_000, 0b0_01001_00),
            (1.0 / 512.0, 0b0_0000_001, 0b0_00110_00),
            // A third lies between two numbers of each format.
            (1.0 / 3.0, 0b0_0101_011, 0b0_01101_01),
        ] {
            assert_eq!(bits(ElementType::Fp8E4m3, value), e4m3, "{value} as e4m3");
            assert_eq!(bits(ElementType::Fp8E5m2, value), e5m2, "{value} as e5m2");
        }
    }
}
