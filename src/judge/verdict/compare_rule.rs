//! The rule of a comparison.

use super::comparability::Allowed;

/// Thresholds of a comparison.
#[derive(Clone, Debug)]
pub struct CompareRule {
    pub false_alarm_level: f64,
    /// The smallest relevant slowdown, as a share.
    pub relevant_slowdown: f64,
    /// Differences between the runs that are accepted.
    pub allowed: Vec<Allowed>,
}
