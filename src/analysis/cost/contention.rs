//! Slowdown of a call with more concurrent groups on a node: exponents fitted to localities that differ only in the number of
//! groups, including a single group.
//!
//! The law is in [`super::sharing`]. Groups are counted per node, or, across nodes and where the number of adapters is given,
//! per adapter: as long as every group has its own adapter, more groups do not slow it down.

mod fitted;

use super::coefficient::Coefficient;
use super::errors::Errors;
use super::sharing::Sharing;
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
pub use fitted::contention;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factor beyond the measured group counts up to which a coefficient applies.
const MAX_EXTRAPOLATION: u32 = 2;

/// How the time of a call grows with the groups at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// The call; absent where it is of all calls that were measured with several numbers of groups, for those that were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Collective>,
    /// What was timed.
    pub cadence: Cadence,
    /// Of groups that span nodes, which share adapters; else of groups within a node.
    pub across_nodes: bool,
    /// Where groups are counted per adapter: the adapters of a node. Else they are counted per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters_per_node: Option<u32>,
    /// Exponent of the latency part: with x times as many groups it takes x^a times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_exponent: Option<Coefficient>,
    /// Exponent of the bandwidth part: 0 where groups do not share, 1 where they share all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_exponent: Option<Coefficient>,
    /// Fewest groups on a node that it was fitted to.
    pub groups_fewest: u32,
    /// Most groups.
    pub groups_most: u32,
    /// Curves behind it.
    pub curves: u64,
    /// How wrong a slow-down is that was predicted by it.
    pub errors: Errors,
    /// Of what those errors are.
    pub errors_from: ErrorsFrom,
}

/// What was predicted to tell the errors of a contention coefficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsFrom {
    /// Curves that were left out, one after the other.
    CurvesLeftOut,
    /// Numbers of groups that were left out, one after the other.
    GroupsLeftOut,
    /// The very times that it was fitted to, for want of others: too small.
    Residuals,
}

impl ErrorsFrom {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            ErrorsFrom::CurvesLeftOut => "curves left out",
            ErrorsFrom::GroupsLeftOut => "groups left out",
            ErrorsFrom::Residuals => "residuals",
        }
    }
}

/// Factor on the time of a call with another number of concurrent groups, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowdownFactor {
    /// The best guess.
    pub middle: f64,
    /// Lower end, by the intervals of the exponents and the errors of the coefficient.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Both numbers of groups are within the measured range.
    pub inside: bool,
}

impl Contention {
    /// From `measured` concurrent groups on a node to `groups`, for a call of whose time (at `measured`) bandwidth makes up
    /// `share`. `None` where that part was not measured, and more than twice outside the group counts that were.
    pub fn slower(&self, measured: u32, groups: u32, share: f64) -> Option<SlowdownFactor> {
        let least = self.groups_fewest.min(measured);
        let most = self.groups_most.max(measured);
        if measured == 0
            || groups == 0
            || groups > most.saturating_mul(MAX_EXTRAPOLATION)
            || groups.saturating_mul(MAX_EXTRAPOLATION) < least
        {
            return None;
        }
        let more = load(groups, self.counted_per()) / load(measured, self.counted_per());
        let with = |end: fn(&Coefficient) -> f64| {
            let sharing = Sharing {
                latency: self.latency_exponent.as_ref().map(end),
                bandwidth: self.bandwidth_exponent.as_ref().map(end),
            };
            sharing.slower(more, share)
        };
        let middle = with(|exponent| exponent.value)?;
        let ends = [
            with(|exponent| exponent.low.unwrap_or(exponent.value))?,
            with(|exponent| exponent.high.unwrap_or(exponent.value))?,
        ];
        // Without a change there is no error.
        let off = if more == 1.0 { 1.0 } else { 1.0 + self.errors.p95_or_maximum() };
        Some(SlowdownFactor {
            middle,
            low: ends[0].min(ends[1]) / off,
            high: ends[0].max(ends[1]) * off,
            inside: (self.groups_fewest..=self.groups_most).contains(&groups)
                && (self.groups_fewest..=self.groups_most).contains(&measured),
        })
    }

    fn counted_per(&self) -> u32 {
        self.adapters_per_node.filter(|_| self.across_nodes).unwrap_or(1)
    }
}

/// Groups that share one of so many adapters.
fn load(groups: u32, adapters: u32) -> f64 {
    (f64::from(groups) / f64::from(adapters.max(1))).max(1.0)
}

#[cfg(test)]
mod tests;
