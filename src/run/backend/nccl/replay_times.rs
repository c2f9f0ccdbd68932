//! Times of computing, waiting and active calls from the events of a replay.

use super::driver::{self, CUevent};
use crate::backend::RankTimes;
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
    Waiting { axis: usize },
    UnderWay { axis: usize },
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
}

/// Room for the times of calls under way, by axis.
pub(super) struct Intervals(Vec<Interval>);

/// A time in which a call of an axis was under way, in nanoseconds since the replay began. Ordered by axis, then by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    axis: usize,
    begin: u64,
    end: u64,
}

impl Intervals {
    pub fn with_room(spans: usize) -> Intervals {
        Intervals(Vec::with_capacity(spans))
    }

    /// Adds all spans up; those of one axis that overlap count once. `first` is the event with which the replay began.
    pub fn sum_up(&mut self, first: CUevent, spans: &[EventSpan], times: &mut RankTimes) -> Result<()> {
        self.0.clear();
        for span in spans {
            let took = || driver::nanoseconds_between(span.begin, span.end).map(|took| took as u64);
            match span.kind {
                SpanKind::Computing => times.computing_nanoseconds += took()?,
                SpanKind::Waiting { axis } => times.axes[axis].waiting_nanoseconds += took()?,
                SpanKind::UnderWay { axis } => {
                    let begin = driver::nanoseconds_between(first, span.begin)? as u64;
                    self.0.push(Interval { axis, begin, end: begin + took()? });
                }
            }
        }
        self.0.sort_unstable();
        let unions = unions(&self.0);
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
