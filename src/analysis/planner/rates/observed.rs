//! Times of calls as they were measured, each by itself: no curve. A call in larger groups than there were is carried over from the
//! halves of them that were measured on purpose ([`commgauge_model::workload::RankedCall::measured_as`]).

use super::{RatedCall, Rates};
use crate::cost::{Prediction, Status};
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{Interval, Span};
use commgauge_base::units::Seconds;
use commgauge_model::workload::size_on;

/// A call that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedCall {
    /// The call, with the placement of its groups and its cadence.
    pub call: RatedCall,
    /// Seconds of one call, with their 95 % interval.
    pub seconds: Span,
}

/// The calls of one record.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// In the order of the record.
    pub calls: Vec<ObservedCall>,
    /// Whether no real time passed.
    pub synthetic: bool,
}

impl Observed {
    /// The call itself: of several places the one on as many hosts, of both cadences streaming.
    fn itself(&self, call: &RatedCall) -> Option<Span> {
        let same = |seen: &&ObservedCall| {
            let other = &seen.call;
            let element = !call.collective.reduces() || other.element_type == call.element_type;
            let counts = (other.ranks, other.bytes_total) == (call.ranks, call.bytes_total);
            other.collective == call.collective && counts && element
        };
        let distance = |seen: &&ObservedCall| {
            let nodes = seen.call.locality.nodes_spanned.abs_diff(call.locality.nodes_spanned);
            (nodes, seen.call.cadence != Some(Cadence::Streaming), seen.call.locality != call.locality)
        };
        self.calls.iter().filter(same).min_by_key(distance).map(|seen| seen.seconds)
    }

    /// From a group of half the size or more: a message takes equally long; other calls are scaled by the steps of a
    /// ring, and if the levels of a tree give another result, the interval includes it (the two forms of
    /// [`crate::cost::transfer`]).
    fn carried(&self, call: &RatedCall) -> Option<Span> {
        let halves = (call.ranks.div_ceil(2).max(2)..call.ranks).rev();
        let on = |ranks: u32, of: u32| {
            let bytes_total = size_on(call.bytes_total, call.element_type, of, ranks);
            self.itself(&RatedCall { ranks, bytes_total, ..call.clone() })
        };
        let (n, mut halves) = (f64::from(call.ranks), halves);
        halves.find_map(|ranks| match call.collective {
            Collective::SendRecv | Collective::SendRecvChain => self.itself(&RatedCall { ranks, ..call.clone() }),
            Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
                let m = f64::from(ranks);
                let ring = on(ranks, call.ranks)?.times((n - 1.0) / (m - 1.0));
                let tree = on(ranks, ranks)?.times(n.ln() / m.ln());
                Some(Span { middle: ring.middle, interval: hull(ring, tree) })
            }
            _ => None,
        })
    }
}

/// The interval that covers both.
fn hull(a: Span, b: Span) -> Option<Interval> {
    let (a, b) = a.interval.zip(b.interval)?;
    Some(Interval { low: a.low.min(b.low), high: a.high.max(b.high) })
}

fn answer(seconds: Span, status: Status) -> Prediction {
    let end = |of: fn(&Interval) -> f64| seconds.interval.as_ref().map(|interval| Seconds(of(interval)));
    Prediction {
        seconds: Some(Seconds(seconds.middle)),
        low: end(|interval| interval.low),
        high: end(|interval| interval.high),
        status,
        reason: None,
        untrusted: false,
    }
}

impl Rates for Observed {
    fn price(&self, call: &RatedCall) -> Prediction {
        match (self.itself(call), self.carried(call)) {
            (Some(seconds), _) => answer(seconds, Status::Interpolated),
            (None, Some(seconds)) => answer(seconds, Status::Extrapolated),
            (None, None) => Prediction::refused(format!(
                "{} of {} in groups of {} ranks has no time",
                call.collective, call.bytes_total, call.ranks
            )),
        }
    }

    fn ground(&self, call: &RatedCall) -> String {
        let measured = if self.itself(call).is_some() { "measured" } else { "carried over from smaller groups" };
        format!("{} of {}, {measured}", call.collective, call.bytes_total)
    }

    fn calibrated(&self) -> bool {
        true
    }

    fn synthetic(&self) -> bool {
        self.synthetic
    }

    fn name(&self) -> String {
        "the measured calls".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::element::ElementType;
    use commgauge_base::units::Bytes;
    use commgauge_model::layout::Locality;

    fn call(collective: Collective, ranks: u32, bytes: u64) -> RatedCall {
        RatedCall {
            collective,
            element_type: ElementType::Float32,
            ranks,
            bytes_total: Bytes(bytes),
            locality: Locality { nodes_spanned: 1, ranks_per_node: ranks, stride: 1, concurrent_groups_per_node: 1 },
            cadence: Some(Cadence::Streaming),
        }
    }

    fn seen(collective: Collective, ranks: u32, bytes: u64, seconds: f64) -> ObservedCall {
        let interval = Some(Interval { low: seconds * 0.9, high: seconds * 1.1 });
        ObservedCall { call: call(collective, ranks, bytes), seconds: Span { middle: seconds, interval } }
    }

    #[test]
    fn a_call_that_was_measured_is_answered_by_its_own_time() {
        use Collective::AllReduce;
        let observed = Observed { calls: vec![seen(AllReduce, 2, 1000, 3.0)], synthetic: false };
        let found = observed.price(&call(AllReduce, 2, 1000));
        assert_eq!(
            (found.seconds, found.low, found.status),
            (Some(Seconds(3.0)), Some(Seconds(2.7)), Status::Interpolated)
        );
        for other in [call(AllReduce, 2, 1001), call(AllReduce, 8, 1000), call(Collective::Reduce, 2, 1000)] {
            let refused = observed.price(&other);
            assert!(refused.seconds.is_none() && refused.reason.unwrap().ends_with("has no time"), "{other:?}");
        }
    }

    #[test]
    fn twice_the_group_takes_the_steps_of_a_ring_and_at_most_the_levels_of_a_tree() {
        use Collective::{AllReduce, SendRecvChain};
        // A ring of 2 in which a step of 500 bytes takes 1 s and one of 1000 bytes 1.8 s; all_reduce has two steps.
        let calls = vec![seen(AllReduce, 2, 1000, 2.0), seen(AllReduce, 2, 2000, 3.6), seen(SendRecvChain, 2, 80, 5.0)];
        let observed = Observed { calls, synthetic: false };
        let found = observed.price(&call(AllReduce, 4, 2000));
        // Six steps of 500 bytes, or two levels of 3.6 s.
        assert_eq!((found.seconds, found.status), (Some(Seconds(6.0)), Status::Extrapolated));
        assert!(
            (found.low.unwrap().0 - 5.4).abs() < 1e-9 && (found.high.unwrap().0 - 7.2 * 1.1).abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(observed.price(&call(SendRecvChain, 4, 80)).seconds, Some(Seconds(5.0)), "a message is a message");
    }
}
