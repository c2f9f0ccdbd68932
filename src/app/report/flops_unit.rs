//! The unit in which rates of computing are shown.

use commgauge_base::units::three_digits;

/// A unit of floating-point operations per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlopsUnit {
    Giga,
    Tera,
}

impl FlopsUnit {
    /// The one that fits a rate, or the fastest of several.
    pub fn of(per_second: f64) -> FlopsUnit {
        if per_second < 1e12 { FlopsUnit::Giga } else { FlopsUnit::Tera }
    }

    pub fn name(self) -> &'static str {
        match self {
            FlopsUnit::Giga => "GFLOP/s",
            FlopsUnit::Tera => "TFLOP/s",
        }
    }

    /// A rate in it.
    pub fn number(self, per_second: f64) -> String {
        let scale = match self {
            FlopsUnit::Giga => 1e-9,
            FlopsUnit::Tera => 1e-12,
        };
        three_digits(per_second * scale)
    }
}
