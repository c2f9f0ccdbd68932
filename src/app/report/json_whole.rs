//! Replays and interference in the report's JSON document.

use super::interference::CallInterference;
use super::replay::replay_time;
use commgauge_base::units::Seconds;
use commgauge_model::record::interference_line::InterferingCall;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::replay_line::ReplayLine;
use schemars::JsonSchema;
use serde::Serialize;

/// A call beside another.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonDisturbed<'a> {
    timed: &'a InterferingCall,
    beside: &'a InterferingCall,
    calls_beside: u32,
    alone_seconds_median: Option<Seconds>,
    together_seconds_median: Option<Seconds>,
    factor_median: Option<f64>,
    factor_interval_low: Option<f64>,
    factor_interval_high: Option<f64>,
    replicates: u32,
    surely_beside_share: Option<f64>,
    trouble: Option<&'a Outcome>,
}

impl<'a> JsonDisturbed<'a> {
    /// The pair.
    pub(super) fn new(pair: &'a CallInterference) -> JsonDisturbed<'a> {
        JsonDisturbed {
            timed: &pair.timed,
            beside: &pair.beside,
            calls_beside: pair.calls_beside,
            alone_seconds_median: pair.alone,
            together_seconds_median: pair.together,
            factor_median: pair.factor,
            factor_interval_low: pair.interval.map(|interval| interval.low),
            factor_interval_high: pair.interval.map(|interval| interval.high),
            replicates: pair.replicates,
            surely_beside_share: pair.certain_overlap,
            trouble: pair.trouble.as_ref(),
        }
    }
}

/// A replay: as recorded, and what its repetitions come to.
#[derive(JsonSchema, Serialize)]
pub(super) struct JsonReplay<'a> {
    #[serde(flatten)]
    line: &'a ReplayLine,
    seconds_median: Option<Seconds>,
    seconds_interval_low: Option<Seconds>,
    seconds_interval_high: Option<Seconds>,
}

impl<'a> JsonReplay<'a> {
    /// The replay.
    pub(super) fn new(line: &'a ReplayLine) -> JsonReplay<'a> {
        let time = replay_time(line);
        let interval = time.and_then(|time| time.interval);
        JsonReplay {
            line,
            seconds_median: time.map(|time| time.median),
            seconds_interval_low: interval.map(|interval| interval.low),
            seconds_interval_high: interval.map(|interval| interval.high),
        }
    }
}
