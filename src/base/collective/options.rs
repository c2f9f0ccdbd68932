//! What of a collective can be chosen: how it reduces, and where its result goes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a reducing collective combines elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ReduceOp {
    #[default]
    Sum,
    Prod,
    Min,
    Max,
    /// The sum divided by the number of ranks; whole-number types truncate.
    Avg,
    /// The sum of what every rank multiplies by a number of its own first: NCCL's `ncclRedOpCreatePreMulSum`.
    #[serde(rename = "mulsum")]
    PreMulSum,
}

/// Whether the result replaces the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Placement {
    OutOfPlace,
    InPlace,
}

impl ReduceOp {
    /// Those supported by every backend, in the order in which they are listed to users.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// The name in files, flags and tables; the same as in nccl-tests.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::PreMulSum => "mulsum",
        }
    }
}

impl Placement {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Placement::OutOfPlace => "out-of-place",
            Placement::InPlace => "in-place",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ReduceOp::ALL
            .into_iter()
            .chain([ReduceOp::PreMulSum])
            .find(|op| op.name() == text)
            .ok_or_else(|| format!("found reduce operation `{text}`; accepted: sum, prod, min, max, avg, mulsum"))
    }
}
