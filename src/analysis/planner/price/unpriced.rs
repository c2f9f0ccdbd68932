//! Why a step has no price.

use std::fmt;

/// How the reason begins where a curve is too far off.
pub const UNTRUSTED: &str = "not to be trusted, its held-out error is over 10 %";

/// Why a step has no price: the call without a predicted time, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpriced {
    /// The call, in words.
    pub call: String,
    /// Why there is no answer.
    pub reason: String,
}

impl fmt::Display for Unpriced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}
