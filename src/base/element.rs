//! The element types that collectives carry, and the range of integers that each represents exactly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The type of one element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum ElementType {
    Int8,
    Uint8,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float16,
    Bfloat16,
    Float32,
    Float64,
    /// 8-bit float, 4 exponent and 3 mantissa bits; moved, never reduced, on host memory.
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
    /// 8-bit float, 5 exponent and 2 mantissa bits; moved, never reduced, on host memory.
    #[serde(rename = "fp8_e5m2")]
    Fp8E5m2,
}

use ElementType::*;

impl ElementType {
    /// Every type, in display order.
    pub const ALL: [ElementType; 12] = *<ElementType as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The name that nccl-tests prints and accepts.
    pub fn nccl_tests_name(self) -> &'static str {
        match self {
            Float16 => "half",
            Float32 => "float",
            Float64 => "double",
            Fp8E4m3 => "f8e4m3",
            Fp8E5m2 => "f8e5m2",
            other => other.name(),
        }
    }

    pub fn size(self) -> u64 {
        match self {
            Int8 | Uint8 | Fp8E4m3 | Fp8E5m2 => 1,
            Float16 | Bfloat16 => 2,
            Int32 | Uint32 | Float32 => 4,
            Int64 | Uint64 | Float64 => 8,
        }
    }

    /// The largest N such that every whole number from 0 to N is exact in this type (2^(mantissa bits + 1) for
    /// floats; capped at 2^31 - 1, more than any check needs).
    pub fn largest_exact_integer(self) -> u64 {
        match self {
            Int8 => 127,
            Uint8 => 255,
            Float16 => 1 << 11,
            Bfloat16 => 1 << 8,
            Float32 => 1 << 24,
            Int32 | Uint32 | Int64 | Uint64 | Float64 => i32::MAX as u64,
            Fp8E4m3 => 1 << 4,
            Fp8E5m2 => 1 << 3,
        }
    }

    /// True for integers, false for floats.
    pub fn is_whole_number(self) -> bool {
        matches!(self, Int8 | Uint8 | Int32 | Uint32 | Int64 | Uint64)
    }

    /// True if a collective can only move this type, not reduce it.
    pub fn moves_only(self) -> bool {
        matches!(self, Fp8E4m3 | Fp8E5m2)
    }
}

impl FromStr for ElementType {
    type Err = String;

    /// Accepts commgauge's and nccl-tests' names and the short forms bf16, fp16, fp32, fp64.
    fn from_str(text: &str) -> Result<Self, String> {
        let short = match text {
            "bf16" => Some(Bfloat16),
            "fp16" | "f16" => Some(Float16),
            "fp32" | "f32" => Some(Float32),
            "fp64" | "f64" => Some(Float64),
            _ => None,
        };
        short
            .or_else(|| ElementType::ALL.into_iter().find(|e| e.name() == text || e.nccl_tests_name() == text))
            .ok_or_else(|| {
                let names: Vec<_> = ElementType::ALL.iter().map(|e| e.name()).collect();
                format!("found element type `{text}`; accepted: {}", names.join(", "))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_type() {
        for element in ElementType::ALL {
            assert_eq!(element.name().parse(), Ok(element));
            assert_eq!(element.nccl_tests_name().parse(), Ok(element));
        }
        assert!("float33".parse::<ElementType>().unwrap_err().contains("bfloat16"));
    }
}
