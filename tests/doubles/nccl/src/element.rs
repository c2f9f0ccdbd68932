//! NCCL's data types by number.

use crate::result::{Answer, INVALID_ARGUMENT, failure};
use std::ffi::c_int;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Int8,
    Uint8,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float16,
    Float32,
    Float64,
    Bfloat16,
    Fp8E4m3,
    Fp8E5m2,
}

use Element::*;

const ALL: [Element; 12] =
    [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Fp8E4m3, Fp8E5m2];

impl Element {
    pub fn of(number: c_int) -> Answer<Element> {
        // 8-bit floats came with 2.24.
        let known = if cfg!(since_2_24) { 12 } else { 10 };
        let found = usize::try_from(number).ok().filter(|number| *number < known).map(|number| ALL[number]);
        found.map_or_else(|| failure(INVALID_ARGUMENT, format!("data type {number} is not known")), Ok)
    }

    pub fn bytes(self) -> usize {
        match self {
            Int8 | Uint8 | Fp8E4m3 | Fp8E5m2 => 1,
            Float16 | Bfloat16 => 2,
            Int32 | Uint32 | Float32 => 4,
            Int64 | Uint64 | Float64 => 8,
        }
    }

    pub fn is_whole_number(self) -> bool {
        matches!(self, Int8 | Uint8 | Int32 | Uint32 | Int64 | Uint64)
    }
}
