//! Slowdown of a call while calls of another axis are in flight, from calls that were measured alone and together.

use super::coefficient::Coefficient;
use commgauge_base::collective::Collective;
use commgauge_base::stats::{median, sorted};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::interference_line::InterferenceLine;
use commgauge_model::record::line::Outcome;
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

/// Ratio of the times together and alone, one per replicate.
pub(super) type Ratios = BTreeMap<AtOnce, Vec<f64>>;

/// Adds the ratios of a record.
pub(super) fn add(ratios: &mut Ratios, record: &Record) {
    let corrupt: Vec<&InterferenceLine> = record.interference.iter().filter(|line| line.outcome.is_wrong()).collect();
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

/// The coefficients with their intervals.
pub(super) fn interference(ratios: &Ratios, resamples: u32) -> Vec<Interference> {
    let one = |(calls, ratios): (&AtOnce, &Vec<f64>)| {
        Some(Interference { calls: *calls, slowdown: Coefficient::median_of(ratios, resamples, SEED)? })
    };
    ratios.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Bytes;
    use commgauge_model::record::Line;
    use commgauge_model::record::interference_line::InterferingCall;
    use commgauge_model::workload::Style;

    /// One replicate in which a call of tp takes `slower` times as long next to dp.
    fn line(replicate: u32, slower: f64, outcome: Outcome) -> InterferenceLine {
        let call = |axis| InterferingCall {
            axis,
            style: Style::Sweep,
            collective: Collective::AllReduce,
            element_type: ElementType::Bfloat16,
            bytes_total: Bytes(1 << 22),
        };
        InterferenceLine {
            step: 0,
            replicate,
            timed: call(Axis::Tp),
            beside: call(Axis::Dp),
            outcome,
            calls_beside: 4,
            alone_nanoseconds: vec![1000, 1010, 9000],
            together_nanoseconds: [1000.0, 1010.0, 9000.0].map(|time| (time * slower) as u64).to_vec(),
            still_waited_nanoseconds: vec![100_000; 3],
            beside_alone_nanoseconds: vec![500; 3],
        }
    }

    fn of(interference: Vec<InterferenceLine>) -> Vec<Interference> {
        let lines = include_str!("../../../tests/data/sample-record.jsonl").lines();
        let lines: Vec<Line> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let record = Record { interference, ..Record::from_lines(lines).unwrap() };
        let mut ratios = Ratios::new();
        add(&mut ratios, &record);
        super::interference(&ratios, 200)
    }

    const GOOD: Outcome = Outcome::Measured { verified: true };

    #[test]
    fn missing_pairs_and_wrong_data_give_no_coefficient() {
        assert!(of(Vec::new()).is_empty());
        let wrong = Outcome::Corrupt {
            when: "before".to_owned(),
            rank: 0,
            element: 0,
            expected: "1".to_owned(),
            got: "2".to_owned(),
            count: 1,
            call: None,
        };
        assert!(of(vec![line(0, 2.0, GOOD), line(1, 2.0, wrong)]).is_empty());
        assert!(of(vec![line(0, 2.0, Outcome::Failed { reason: "no".to_owned() })]).is_empty());
    }

    #[test]
    fn the_slow_down_is_the_median_over_replicates_with_an_interval() {
        let slower = [1.5, 1.6, 1.55, 1.45, 1.7, 8.0];
        let found = of(slower.iter().zip(0..).map(|(slower, replicate)| line(replicate, *slower, GOOD)).collect());
        let [pair] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((pair.calls.axis, pair.calls.beside_axis), (Axis::Tp, Axis::Dp));
        assert!((pair.slowdown.value - 1.575).abs() < 0.01, "{pair:?}");
        assert!(pair.slowdown.low.unwrap() >= 1.45 && pair.slowdown.high.unwrap() < 8.0, "{pair:?}");
        assert!(of(vec![line(0, 2.0, GOOD)])[0].slowdown.low.is_none(), "one replicate has no interval");
    }
}
