//! Shares in sentences.

use commgauge_base::units::three_digits;

/// A share in per cent, for sentences.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}
