//! The sampling settings in the header of a record.

use commgauge_base::sample::{ClockMethod, Timing};
use commgauge_base::units::Seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How samples were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// Asked half width of the median's 95 % interval, relative to the median.
    pub precision: f64,
    /// Fewest samples of a case and replicate.
    pub minimum_samples: u32,
    /// Most samples of a case and replicate.
    pub maximum_samples: u32,
    /// Time budget of a case and replicate.
    pub case_budget_seconds: Seconds,
    /// Independent repetitions, each with fresh communicators.
    pub replicates: u32,
    /// One buffer for all iterations instead of a rotation that leaves the last-level cache.
    pub warm_buffers: bool,
    /// How the ranks were to start an isolated call together; absent where at an agreed time.
    #[serde(default, skip_serializing_if = "ClockMethod::is_synchronised")]
    pub start: ClockMethod,
    /// Between which readings streaming calls were timed; absent where between marks.
    #[serde(default, skip_serializing_if = "Timing::is_by_marks")]
    pub timing: Timing,
    /// Whether data was checked before and after timing.
    pub verify: bool,
    /// The time that all cases together were given (`--within`); `replicates` is then the number of rounds, and a case has at least
    /// one replicate. Absent where every case had a budget of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<Seconds>,
    /// The time was for repeating all cases with rolling checks and changing data (`--soak`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soak: bool,
    /// Timed calls of every case and replicate, where that number was given and the precision decided nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// The tool whose number of calls for each size was taken (`--like`), where `iterations` does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_like: Option<String>,
}

impl Settings {
    /// The settings that fixed the number of calls, if any.
    pub fn fixed_calls(&self) -> Option<String> {
        let given = self.iterations.map(|count| format!("{count} calls"));
        given.or_else(|| Some(format!("as many calls as {} makes", self.calls_like.as_ref()?)))
    }

    /// Minimum number of replicates of every case in a complete record.
    pub fn fewest_replicates(&self) -> u32 {
        if self.within_seconds.is_some() { 1 } else { self.replicates }
    }
}
