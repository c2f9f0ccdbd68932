//! Products of a user's numbers that fit 64 bits, or an error that names what is too large.
//!
//! What a step's checks already bound, such as activations at a layer's boundary, needs none of this.

use commgauge_base::error::{Error, Result};

/// The product of all factors; the error names `what` if it passes 64 bits.
pub(super) fn product(what: &str, factors: &[u64]) -> Result<u64> {
    factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor)).ok_or_else(|| {
        let factors: Vec<_> = factors.iter().map(u64::to_string).collect();
        Error::usage(format!("{what}: {} does not fit 64 bits; take a smaller batch or sequence", factors.join(" x ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_past_64_bits_is_refused_with_its_factors() {
        let message = product("logits", &[2, 1 << 32, 1 << 32]).unwrap_err().to_string();
        assert!(message.contains("logits: 2 x 4294967296 x 4294967296 does not fit 64 bits"), "{message}");
        assert_eq!(product("logits", &[2, 3, 5]).unwrap(), 30);
    }
}
