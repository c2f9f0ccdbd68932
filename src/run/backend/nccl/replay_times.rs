//! Times of computing, waiting and active calls from the events of a replay.

use super::driver::{self, CUevent};
use crate::backend::{HiddenCall, RankTimes};
use commgauge_base::error::Result;
use commgauge_model::layout::Axis;

/// The interval between two events, and its kind.
#[derive(Clone, Copy)]
pub(super) struct EventSpan {
    kind: SpanKind,
    begin: CUevent,
    end: CUevent,
}

#[derive(Clone, Copy)]
enum SpanKind {
    Computing,
    Waiting {
        axis: usize,
    },
    UnderWay {
        axis: usize,
    },
    /// The same of a call of an op that something hides.
    Hidden {
        axis: usize,
        op: usize,
    },
}

impl EventSpan {
    pub fn computing(begin: CUevent, end: CUevent) -> EventSpan {
        EventSpan { kind: SpanKind::Computing, begin, end }
    }

    pub fn waiting(axis: usize, begin: CUevent, end: CUevent) -> EventSpan {
        EventSpan { kind: SpanKind::Waiting { axis }, begin, end }
    }

    pub fn under_way(axis: usize, begin: CUevent, end: CUevent) -> EventSpan {
        EventSpan { kind: SpanKind::UnderWay { axis }, begin, end }
    }

    pub fn hidden(axis: usize, op: usize, begin: CUevent, end: CUevent) -> EventSpan {
        EventSpan { kind: SpanKind::Hidden { axis, op }, begin, end }
    }
}

/// Room for the times of calls under way, by axis, and for those of hidden calls.
pub(super) struct Intervals {
    under_way: Vec<Interval>,
    pub hidden: Vec<HiddenCall>,
}

/// A time in which a call of an axis was under way, in nanoseconds since the replay began. Ordered by axis, then by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    axis: usize,
    begin: u64,
    end: u64,
}

impl Intervals {
    pub fn with_room(spans: usize) -> Intervals {
        Intervals { under_way: Vec::with_capacity(spans), hidden: Vec::with_capacity(spans) }
    }

    /// Adds all spans up; those of one axis that overlap count once. `first` is the event with which the replay began.
    pub fn sum_up(&mut self, first: CUevent, spans: &[EventSpan], times: &mut RankTimes) -> Result<()> {
        self.under_way.clear();
        self.hidden.clear();
        for span in spans {
            let took = || driver::nanoseconds_between(span.begin, span.end).map(|took| took as u64);
            match span.kind {
                SpanKind::Computing => times.computing_nanoseconds += took()?,
                SpanKind::Waiting { axis } => times.axes[axis].waiting_nanoseconds += took()?,
                SpanKind::UnderWay { axis } | SpanKind::Hidden { axis, .. } => {
                    let begin = driver::nanoseconds_between(first, span.begin)? as u64;
                    let nanoseconds = took()?;
                    self.under_way.push(Interval { axis, begin, end: begin + nanoseconds });
                    if let SpanKind::Hidden { op, .. } = span.kind {
                        self.hidden.push(HiddenCall { op, calls: 1, nanoseconds });
                    }
                }
            }
        }
        self.under_way.sort_unstable();
        let unions = unions(&self.under_way);
        for (axis, nanoseconds) in unions.into_iter().enumerate() {
            times.axes[axis].under_way_nanoseconds = nanoseconds;
        }
        Ok(())
    }
}

/// By axis, the total length of the union of the sorted intervals.
fn unions(sorted: &[Interval]) -> [u64; Axis::ALL.len()] {
    let mut lengths = [0; Axis::ALL.len()];
    let mut until = (usize::MAX, 0);
    for Interval { axis, begin, end } in sorted {
        let covered = if until.0 == *axis { until.1 } else { 0 };
        lengths[*axis] += end.saturating_sub(covered.max(*begin));
        until = (*axis, covered.max(*end));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_axis_that_overlap_count_once_and_those_of_others_apart() {
        let sorted = [(0, 10, 20), (0, 15, 18), (0, 19, 30), (0, 50, 60), (2, 0, 5), (2, 12, 13)]
            .map(|(axis, begin, end)| Interval { axis, begin, end });
        let lengths = unions(&sorted);
        assert_eq!((lengths[0], lengths[1], lengths[2]), (30, 0, 6));
    }
}
