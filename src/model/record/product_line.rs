//! The line of a matrix product that all ranks computed at the same time, each its own, in one replicate.

use super::outcome::Outcome;
use crate::workload::ProductShape;
use commgauge_base::element::ElementType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A matrix product of m x k by k x n, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProductLine {
    /// The product.
    pub product: ProductFacts,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// What computed it, and its version.
    pub library: String,
    /// Ranks of a host that computed at the same time; the most of any host.
    pub ranks_per_host: u32,
    /// Threads of each rank.
    pub threads_per_rank: u32,
    /// What came of it. `verified` means that the result was compared with sums of its own.
    pub outcome: Outcome,
    /// Products run before timing and not kept.
    pub warm_up_products: u32,
    /// Of each product, the slowest rank's time.
    pub slowest_nanoseconds: Vec<u64>,
    /// World rank of the slowest.
    pub slowest_rank: Vec<u32>,
}

/// What is multiplied, and where a model does so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ProductFacts {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Linear layers that compute it, such as `llama-3-8b qkv, tp 2, micro-batch 1`.
    pub uses: Vec<String>,
}

impl ProductFacts {
    /// The record form of a product of the plan.
    pub fn of(shape: &ProductShape) -> ProductFacts {
        let ProductShape { m, n, k, element, uses } = shape;
        ProductFacts { m: *m, n: *n, k: *k, element_type: *element, uses: uses.clone() }
    }

    /// Its name among the rows of a verdict, such as `product/bfloat16/8192x4096x1024`: m, n and k.
    pub fn name(&self) -> String {
        format!("product/{}/{}x{}x{}", self.element_type, self.m, self.n, self.k)
    }

    /// Floating-point operations: a multiplication and an addition for each term of each sum.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }
}
