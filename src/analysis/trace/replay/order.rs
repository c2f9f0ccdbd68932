//! The calls of a rank in order, with the computing between and beside them.
//!
//! The order of all beginnings and ends stays that of the job: what came after the end of a call comes after it in the replay. A time in
//! which no call was under way is one of computing, whatever the rank did in it. Beside a call it is as much as the trace says that
//! the device computed meanwhile; the rest was waiting, which the replay finds by itself.

use crate::trace::trace_file::{ComputingSpan, TracedCall};
use commgauge_model::workload::replay::RecordedAction;

/// What a rank did.
pub(super) struct Ordered {
    pub actions: Vec<RecordedAction>,
    /// From its first call to the end of its last, where the trace says how long calls took.
    pub span_nanoseconds: Option<u64>,
}

/// A beginning or an end of a call.
#[derive(Clone, Copy)]
struct Moment {
    at: u64,
    call: usize,
    begins: bool,
}

/// Puts the calls of a rank into the order of their beginnings, and says what the rank did.
pub(super) fn of(calls: &mut [&TracedCall], computing: &[ComputingSpan]) -> Ordered {
    let is_timed = |call: &&TracedCall| call.detail.begin_nanoseconds.is_some();
    if calls.iter().all(is_timed) {
        calls.sort_by_key(|call| call.detail.begin_nanoseconds);
    }
    if calls.is_empty() || !calls.iter().all(is_timed) || calls.iter().all(|call| call.duration.is_none()) {
        let one_by_one = |call| [RecordedAction::Start { call }, RecordedAction::Wait { call }];
        return Ordered { actions: (0..calls.len()).flat_map(one_by_one).collect(), span_nanoseconds: None };
    }
    let moments = moments(calls);
    let mut actions = Vec::with_capacity(3 * calls.len());
    let (mut now, mut under_way) = (moments[0].at, 0u32);
    let mut spans = Spans { computing, next: 0 };
    for moment in &moments {
        let nanoseconds = if under_way == 0 { moment.at - now } else { spans.within(now..moment.at) };
        if nanoseconds > 0 {
            actions.push(RecordedAction::Compute { nanoseconds });
        }
        now = moment.at;
        match moment.begins {
            true => under_way += 1,
            false => under_way -= 1,
        }
        let call = moment.call;
        actions.push(if moment.begins { RecordedAction::Start { call } } else { RecordedAction::Wait { call } });
    }
    Ordered { actions, span_nanoseconds: Some(now - moments[0].at) }
}

/// The beginnings and ends in order. A call whose duration is not known ends where it begins.
fn moments(calls: &[&TracedCall]) -> Vec<Moment> {
    let mut moments = Vec::with_capacity(2 * calls.len());
    for (call, traced) in calls.iter().enumerate() {
        let begin = traced.detail.begin_nanoseconds.unwrap_or(0);
        let nanoseconds = nanoseconds(traced);
        moments.push(Moment { at: begin, call, begins: true });
        moments.push(Moment { at: begin.saturating_add(nanoseconds), call, begins: false });
    }
    // At one time calls end before others begin, but none before itself.
    moments.sort_by_key(|moment| {
        let of_no_time = nanoseconds(calls[moment.call]) == 0;
        (moment.at, moment.begins || of_no_time)
    });
    moments
}

/// The duration of a call, 0 where it is not known.
fn nanoseconds(call: &TracedCall) -> u64 {
    call.duration.map_or(0, |duration| (duration.0 * 1e9).round() as u64)
}

/// The spans of a rank, walked once.
struct Spans<'a> {
    computing: &'a [ComputingSpan],
    next: usize,
}

impl Spans<'_> {
    /// Nanoseconds of computing within a time; times come in order.
    fn within(&mut self, time: ComputingSpan) -> u64 {
        while self.computing.get(self.next).is_some_and(|span| span.end <= time.start) {
            self.next += 1;
        }
        let here = self.computing[self.next..].iter().take_while(|span| span.start < time.end);
        here.map(|span| span.end.min(time.end).saturating_sub(span.start.max(time.start))).sum()
    }
}
