//! Converts between one process's clock and the common one. [`super::clock_exchange`] determines the model.

/// The common clock (that of process 0) as a linear function of this process's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockModel {
    /// A moment on this process's clock, in nanoseconds.
    pub local_anchor: u64,
    /// The same moment on the common clock.
    pub common_anchor: u64,
    /// Common nanoseconds gained per local nanosecond.
    pub drift: f64,
}

impl ClockModel {
    /// The model of process 0, or of a process that uses the common clock itself.
    pub fn identity() -> Self {
        ClockModel { local_anchor: 0, common_anchor: 0, drift: 0.0 }
    }

    /// The common time at a local time.
    pub fn to_common(&self, local_nanoseconds: u64) -> u64 {
        self.extend(local_nanoseconds, self.local_anchor, self.common_anchor, self.drift)
    }

    /// The local time at a common time.
    pub fn to_local(&self, common_nanoseconds: u64) -> u64 {
        // (1 + d) back is 1 - d / (1 + d).
        self.extend(common_nanoseconds, self.common_anchor, self.local_anchor, -self.drift / (1.0 + self.drift))
    }

    /// Whole nanoseconds are carried over as integers, and only the drift is a float: clock readings have more digits
    /// than a float can represent.
    fn extend(&self, at: u64, from: u64, to: u64, drift: f64) -> u64 {
        let since = i128::from(at) - i128::from(from);
        let gained = if drift == 0.0 { 0 } else { (since as f64 * drift).round() as i128 };
        (i128::from(to) + since + gained).clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_changes_nothing() {
        for moment in [0, 1, 1 << 60, u64::MAX] {
            assert_eq!(ClockModel::identity().to_common(moment), moment);
            assert_eq!(ClockModel::identity().to_local(moment), moment);
        }
    }

    #[test]
    fn offset_and_drift_are_applied_and_taken_back() {
        let model = ClockModel { local_anchor: 9_000_000_000_000_000_001, common_anchor: 5_000, drift: 50e-6 };
        assert_eq!(model.to_common(9_000_000_000_000_000_001), 5_000);
        assert_eq!(model.to_common(9_000_000_000_000_000_001 + 1_000_000_000), 1_000_055_000);
        for later in [0, 1, 999, 1_000_000, 3_600_000_000_000u64] {
            let local = model.local_anchor + later;
            assert!(model.to_local(model.to_common(local)).abs_diff(local) <= 1, "{later}");
        }
    }

    #[test]
    fn a_moment_before_the_common_clock_began_is_its_beginning() {
        let model = ClockModel { local_anchor: 1000, common_anchor: 10, drift: 0.0 };
        assert_eq!(model.to_common(0), 0);
    }
}
