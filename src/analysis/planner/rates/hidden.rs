//! Slowdown of overlapped calls: beside computing as measured by replays, and beside calls of other axes as measured
//! by interference runs.
//!
//! A replay already includes the calls of the other axes, so the larger of the two slowdowns counts, not their
//! product. The slowdown of computing and of exposed calls was not measured and is not counted.

use crate::cost::{Coefficient, Fit};
use commgauge_base::collective::Collective;
use commgauge_model::layout::Axis;

/// The slowdowns of overlapped calls in a fit.
#[derive(Clone, Debug, Default)]
pub struct Hidden {
    beside_computing: Vec<(Axis, Coefficient)>,
    beside_calls: Vec<(Axis, Collective, Axis, Coefficient)>,
}

impl Hidden {
    /// The slowdowns in a fit.
    pub fn of(fit: &Fit) -> Hidden {
        let replayed = fit.overlap.iter().filter_map(|overlap| Some((overlap.axis, overlap.slowdown?)));
        // It is unknown which of several calls of the other axis runs at the same time, so the one that disturbs most
        // counts.
        let measured = fit.interference.iter().map(|pair| {
            let calls = pair.calls;
            (calls.axis, calls.collective, calls.beside_axis, pair.slowdown)
        });
        Hidden { beside_computing: replayed.collect(), beside_calls: measured.collect() }
    }

    /// The slowdown of one call beside the calls of an axis, for tests of prices.
    #[cfg(test)]
    pub(in crate::planner) fn beside(axis: Axis, collective: Collective, beside: Axis, slower: f64) -> Hidden {
        let slower = Coefficient { value: slower, low: None, high: None, measurements: 1 };
        Hidden { beside_computing: vec![(axis, slower)], beside_calls: vec![(axis, collective, beside, slower)] }
    }

    /// Time of an overlapped call relative to its time alone: at least 1, and 1 if unknown. `has_calls` returns
    /// whether an axis has calls at all.
    pub fn slower(&self, axis: Axis, collective: Collective, has_calls: &dyn Fn(Axis) -> bool) -> f64 {
        let computing = self.beside_computing.iter().filter(|(of, _)| *of == axis).map(|(_, slower)| slower.value);
        let calls = self.beside_calls.iter().filter_map(|(of, call, beside, slower)| {
            (*of == axis && *call == collective && has_calls(*beside)).then_some(slower.value)
        });
        computing.chain(calls).filter(|slower| slower.is_finite()).fold(1.0, f64::max)
    }

    /// The known slowdowns, in a sentence; none if there are none.
    pub fn describe(&self) -> Option<String> {
        let of = |slower: &Coefficient| match slower.low.zip(slower.high) {
            Some((low, high)) => format!("{:.2} times ({low:.2} to {high:.2})", slower.value),
            None => format!("{:.2} times", slower.value),
        };
        let computing = self.beside_computing.iter().map(|(axis, slower)| format!("{axis} {}", of(slower)));
        let calls = self
            .beside_calls
            .iter()
            .map(|(axis, collective, beside, slower)| format!("{collective} of {axis} beside {beside} {}", of(slower)));
        let all: Vec<String> = computing.chain(calls).collect();
        (!all.is_empty()).then(|| {
            format!(
                "Calls that computing or other calls hide take so much longer than alone, as the fit measured it, at least 1.00 \
                 times: {}; those of other axes as long as alone.",
                all.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coefficient(value: f64) -> Coefficient {
        Coefficient { value, low: None, high: None, measurements: 1 }
    }

    #[test]
    fn the_larger_known_slowdown_counts_and_none_is_below_one() {
        assert_eq!(Hidden::default().slower(Axis::Dp, Collective::AllReduce, &|_| true), 1.0);
        assert_eq!(Hidden::default().describe(), None);
        let hidden = Hidden {
            beside_computing: vec![(Axis::Dp, coefficient(1.2)), (Axis::Cp, coefficient(0.8))],
            beside_calls: vec![(Axis::Dp, Collective::AllReduce, Axis::Tp, coefficient(1.5))],
        };
        let slower = |axis, collective, tp: bool| hidden.slower(axis, collective, &|_| tp);
        assert_eq!(slower(Axis::Dp, Collective::AllReduce, true), 1.5);
        assert_eq!(slower(Axis::Dp, Collective::AllReduce, false), 1.2);
        assert_eq!(slower(Axis::Dp, Collective::AllGather, true), 1.2);
        assert_eq!(slower(Axis::Cp, Collective::SendRecv, true), 1.0);
        assert_eq!(slower(Axis::Tp, Collective::AllReduce, true), 1.0);
        let text = hidden.describe().unwrap();
        assert!(text.contains("dp 1.20 times, cp 0.80 times, all_reduce of dp beside tp 1.50 times"), "{text}");
    }
}
