//! How much slower a call is with more groups of its kind at once on a node: exponents fitted to places that differ in
//! nothing else, one group alone among them.
//!
//! The law is in [`super::sharing`]. Groups are counted per node, or, across nodes and where the number of adapters is given,
//! per adapter: as long as every group has an adapter of its own, more groups take nothing from it.

mod fitted;

use super::coefficient::Coefficient;
use super::errors::Errors;
use super::sharing::Sharing;
use crate::collective::Collective;
use crate::sample::Cadence;
pub use fitted::contention;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far beyond the group counts that were measured a coefficient still goes.
const FARTHEST: u32 = 2;

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

/// How many times as long a call takes in another company, between what and what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slower {
    /// The best guess.
    pub middle: f64,
    /// From here ...
    pub low: f64,
    /// ... to here, by the intervals of the exponents and the errors of the coefficient.
    pub high: f64,
    /// Both numbers of groups lie within those that were measured.
    pub inside: bool,
}

impl Contention {
    /// From `measured` concurrent groups on a node to `asked`, for a call of whose time (at `measured`) bandwidth makes up
    /// `share`. `None` where that part was not measured, and more than twice outside the group counts that were.
    pub fn slower(&self, measured: u32, asked: u32, share: f64) -> Option<Slower> {
        let least = self.groups_fewest.min(measured);
        let most = self.groups_most.max(measured);
        if measured == 0
            || asked == 0
            || asked > most.saturating_mul(FARTHEST)
            || asked.saturating_mul(FARTHEST) < least
        {
            return None;
        }
        let more = load(asked, self.counted_per()) / load(measured, self.counted_per());
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
        // Nothing changes, nothing is unsure.
        let off = if more == 1.0 { 1.0 } else { 1.0 + self.errors.p95_or_maximum() };
        Some(Slower {
            middle,
            low: ends[0].min(ends[1]) / off,
            high: ends[0].max(ends[1]) * off,
            inside: (self.groups_fewest..=self.groups_most).contains(&asked)
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
