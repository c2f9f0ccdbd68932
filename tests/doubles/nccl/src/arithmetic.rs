//! Reducing: from the first rank to the last, each step rounded to the element type.

use crate::element::Element;
use crate::fp8::{E4M3, E5M2};
use crate::operator::Operator;
use half::{bf16, f16};

/// `total = total op next`, element by element.
pub fn combine(element: Element, operator: Operator, total: &mut [u8], next: &[u8]) {
    with_type(element, Combine { operator, total, next });
}

/// The data of each rank before they are combined: multiplied, if the operator requires it.
pub fn prepare(element: Element, operator: Operator, ranks: u32, data: &mut [u8]) {
    match operator {
        Operator::PreMulSum(scalar) => with_type(element, Multiply { data, scalar }),
        // NCCL multiplies floats by 1 / ranks, rounded to their type; whole numbers are divided at the end.
        Operator::Avg if !element.is_whole_number() => {
            let mut scalar = [0; 8];
            with_type(element, Inverse { ranks, to: &mut scalar });
            with_type(element, Multiply { data, scalar });
        }
        _ => {}
    }
}

/// What the combined data become at the end.
pub fn finish(element: Element, operator: Operator, ranks: u32, data: &mut [u8]) {
    if operator == Operator::Avg && element.is_whole_number() {
        with_type(element, Divide { data, ranks });
    }
}

/// A number as its type computes.
trait Number: Copy + PartialOrd {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, ranks: u32) -> Self;
    fn inverse(ranks: u32) -> Self;
}

macro_rules! whole_numbers {
    ($($kind:ty),*) => { $(
        impl Number for $kind {
            const BYTES: usize = size_of::<$kind>();
            fn read(bytes: &[u8]) -> Self { <$kind>::from_le_bytes(bytes.try_into().expect("one element")) }
            fn write(self, bytes: &mut [u8]) { bytes.copy_from_slice(&self.to_le_bytes()) }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn divide(self, ranks: u32) -> Self { (self as i128 / i128::from(ranks)) as $kind }
            fn inverse(_: u32) -> Self { 0 }
        }
    )* };
}
whole_numbers!(i8, u8, i32, u32, i64, u64);

/// Floats compute in a wider type, or their own, and are rounded after each step.
macro_rules! floats {
    ($($kind:ty, $wide:ty, $read:expr, $write:expr, $widen:expr, $narrow:expr;)*) => { $(
        impl Number for $kind {
            const BYTES: usize = size_of::<$kind>();
            fn read(bytes: &[u8]) -> Self { $read(bytes.try_into().expect("one element")) }
            fn write(self, bytes: &mut [u8]) { bytes.copy_from_slice(&$write(self)) }
            fn add(self, other: Self) -> Self { $narrow($widen(self) + $widen(other)) }
            fn multiply(self, other: Self) -> Self { $narrow($widen(self) * $widen(other)) }
            fn divide(self, ranks: u32) -> Self { $narrow($widen(self) / ranks as $wide) }
            fn inverse(ranks: u32) -> Self { $narrow((1.0 / f64::from(ranks)) as $wide) }
        }
    )* };
}

/// An 8-bit float, ordered as its value.
#[derive(Clone, Copy)]
struct Fp8<const IS_E4M3: bool>(u8);

impl<const IS_E4M3: bool> Fp8<IS_E4M3> {
    fn wide(self) -> f32 {
        if IS_E4M3 { E4M3.decode(self.0) } else { E5M2.decode(self.0) }
    }

    fn of(value: f32) -> Self {
        Fp8(if IS_E4M3 { E4M3.encode(value) } else { E5M2.encode(value) })
    }
}

impl<const IS_E4M3: bool> PartialEq for Fp8<IS_E4M3> {
    fn eq(&self, other: &Self) -> bool {
        self.wide() == other.wide()
    }
}

impl<const IS_E4M3: bool> PartialOrd for Fp8<IS_E4M3> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.wide().partial_cmp(&other.wide())
    }
}

floats! {
    f32, f32, f32::from_le_bytes, f32::to_le_bytes, std::convert::identity, std::convert::identity;
    f64, f64, f64::from_le_bytes, f64::to_le_bytes, std::convert::identity, std::convert::identity;
    f16, f32, f16::from_le_bytes, f16::to_le_bytes, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::from_le_bytes, bf16::to_le_bytes, bf16::to_f32, bf16::from_f32;
    Fp8<true>, f32, |bytes: [u8; 1]| Fp8(bytes[0]), |one: Fp8<true>| [one.0], Fp8::<true>::wide, Fp8::<true>::of;
    Fp8<false>, f32, |bytes: [u8; 1]| Fp8(bytes[0]), |one: Fp8<false>| [one.0], Fp8::<false>::wide, Fp8::<false>::of;
}

/// Something done in the type of an element.
trait Task {
    fn run<T: Number>(self);
}

fn with_type(element: Element, task: impl Task) {
    match element {
        Element::Int8 => task.run::<i8>(),
        Element::Uint8 => task.run::<u8>(),
        Element::Int32 => task.run::<i32>(),
        Element::Uint32 => task.run::<u32>(),
        Element::Int64 => task.run::<i64>(),
        Element::Uint64 => task.run::<u64>(),
        Element::Float16 => task.run::<f16>(),
        Element::Bfloat16 => task.run::<bf16>(),
        Element::Float32 => task.run::<f32>(),
        Element::Float64 => task.run::<f64>(),
        Element::Fp8E4m3 => task.run::<Fp8<true>>(),
        Element::Fp8E5m2 => task.run::<Fp8<false>>(),
    }
}

struct Combine<'a> {
    operator: Operator,
    total: &'a mut [u8],
    next: &'a [u8],
}

impl Task for Combine<'_> {
    fn run<T: Number>(self) {
        let mut each = |combine: fn(T, T) -> T| {
            for (total, next) in self.total.chunks_exact_mut(T::BYTES).zip(self.next.chunks_exact(T::BYTES)) {
                combine(T::read(total), T::read(next)).write(total);
            }
        };
        match self.operator {
            Operator::Sum | Operator::Avg | Operator::PreMulSum(_) => each(T::add),
            Operator::Prod => each(T::multiply),
            Operator::Min => each(|a, b| if b < a { b } else { a }),
            Operator::Max => each(|a, b| if b > a { b } else { a }),
        }
    }
}

struct Multiply<'a> {
    data: &'a mut [u8],
    scalar: [u8; 8],
}

impl Task for Multiply<'_> {
    fn run<T: Number>(self) {
        let scalar = T::read(&self.scalar[..T::BYTES]);
        self.data.chunks_exact_mut(T::BYTES).for_each(|one| T::read(one).multiply(scalar).write(one));
    }
}

struct Divide<'a> {
    data: &'a mut [u8],
    ranks: u32,
}

impl Task for Divide<'_> {
    fn run<T: Number>(self) {
        self.data.chunks_exact_mut(T::BYTES).for_each(|one| T::read(one).divide(self.ranks).write(one));
    }
}

struct Inverse<'a> {
    ranks: u32,
    to: &'a mut [u8; 8],
}

impl Task for Inverse<'_> {
    fn run<T: Number>(self) {
        T::inverse(self.ranks).write(&mut self.to[..T::BYTES]);
    }
}
