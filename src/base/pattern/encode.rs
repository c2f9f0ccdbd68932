//! Numbers to the bits of an element type and back, and arithmetic on buffers of any type.
//!
//! The arithmetic is used for operations that MPI lacks (16-bit floats, avg) and for the tests' own reductions.

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

/// The bits of an average to which one rank contributes `sum`, a small power of two, and the others zeros. Whole numbers are
/// divided at the end, truncated. Floats are multiplied by 1 / ranks, which is rounded to the type before: NCCL averages so
/// (`ncclAvg` in its `src/enqueue.cc`). In types of 16 bits and more dividing at the end, as on host memory, gives the same
/// bits up to 2,048 ranks; in eight bits it does not from 67 ranks on, where 1 / ranks is below the smallest normal number.
pub fn average(element: ElementType, sum: f64, ranks: u32) -> u64 {
    if element.is_whole_number() {
        return bits(element, sum / f64::from(ranks));
    }
    let inverse = value(element, bits(element, 1.0 / f64::from(ranks)));
    bits(element, inverse * sum)
}

/// How bits are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// As the number that they are, of data that is computed with.
    Number,
    /// Of data that is only moved.
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
    // Below the smallest normal number the spacing stays the same.
    let exponent = (magnitude.log2().floor() as i32).max(1 - bias);
    let steps = (magnitude / 2f64.powi(exponent - mantissa_bits as i32)).round_ties_even() as u64;
    // A mantissa that overflows carries into the exponent, as it must.
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

/// `inout = op(input, inout)`, element by element; `avg` adds. Types that are only moved are left alone.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
