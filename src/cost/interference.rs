//! How much slower a call is while calls of another axis are under way, from calls that were measured both ways.

use super::coefficient::Coefficient;
use crate::collective::Collective;
use crate::layout::Axis;
use crate::record::Record;
use crate::record::interference_line::InterferenceLine;
use crate::record::line::Outcome;
use crate::stats::{median, sorted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SEED: u64 = 0x1472_f312;

/// Two calls at once. Ordered, so that a list of them has one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct AtOnce {
    /// Axis of the call that is timed.
    pub axis: Axis,
    /// That call.
    pub collective: Collective,
    /// Axis of the calls that are under way meanwhile.
    pub beside_axis: Axis,
    /// Those calls.
    pub beside_collective: Collective,
}

/// A call beside another, over all sizes and replicates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interference {
    /// Which calls.
    #[serde(flatten)]
    pub calls: AtOnce,
    /// Time together over time alone. Where the others were not under way all the time this says less than the whole.
    pub slowdown: Coefficient,
}

/// Together over alone, one of each replicate.
pub(super) type Ratios = BTreeMap<AtOnce, Vec<f64>>;

/// Adds those of a record.
pub(super) fn add(ratios: &mut Ratios, record: &Record) {
    let corrupt: Vec<&InterferenceLine> =
        record.interference.iter().filter(|line| matches!(line.outcome, Outcome::Corrupt { .. })).collect();
    let is_wrong = |line: &InterferenceLine| {
        corrupt.iter().any(|wrong| (wrong.step, &wrong.timed, &wrong.beside) == (line.step, &line.timed, &line.beside))
    };
    for line in record.interference.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. })) {
        let middle = |times: &[u64]| median(&sorted(times.iter().map(|time| *time as f64))).filter(|time| *time > 0.0);
        let both = middle(&line.alone_nanoseconds).zip(middle(&line.together_nanoseconds));
        let Some((alone, together)) = both.filter(|_| !is_wrong(line)) else { continue };
        let calls = AtOnce {
            axis: line.timed.axis,
            collective: line.timed.collective,
            beside_axis: line.beside.axis,
            beside_collective: line.beside.collective,
        };
        ratios.entry(calls).or_default().push(together / alone);
    }
}

/// The coefficients.
pub(super) fn interference(ratios: &Ratios, resamples: u32) -> Vec<Interference> {
    let one = |(calls, ratios): (&AtOnce, &Vec<f64>)| {
        Some(Interference { calls: *calls, slowdown: Coefficient::median_of(ratios, resamples, SEED)? })
    };
    ratios.iter().filter_map(one).collect()
}
