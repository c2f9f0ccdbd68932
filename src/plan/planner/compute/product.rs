//! A matrix product as a rank computes it.

/// Matrix products of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    pub count: f64,
    /// Whether one operand is weights, whose gradient is a separate product.
    pub has_weights: bool,
    /// Whether it is recomputed under selective recomputation.
    pub in_attention: bool,
    /// Whether 8-bit training computes it in 8 bits: the linear layers of blocks.
    pub in_8_bits: bool,
}

impl Product {
    pub(super) fn linear(m: u64, n: u64, k: u64) -> Product {
        Product { m, n, k, count: 1.0, has_weights: true, in_attention: false, in_8_bits: false }
    }

    /// A linear layer of a block.
    pub(super) fn of_block(m: u64, n: u64, k: u64) -> Product {
        Product { in_8_bits: true, ..Product::linear(m, n, k) }
    }

    /// Floating-point operations of all of them.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.count
    }
}
