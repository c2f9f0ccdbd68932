//! Why a step has no price.

use std::fmt;

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
