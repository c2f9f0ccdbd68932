//! The time of a call, from a fit, a machine file, or a fit completed by a machine file.
//!
//! Every answer states its basis. Calls that are neither measured nor in a file are refused.

mod fitted;

pub use fitted::{Both, Fitted};

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{Interval, Span};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_cost::cost::{Coefficient, Fit, Prediction, Status};
use commgauge_cost::machine_time::seconds_without_noise;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::MeasuredCall;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::workload::{Op, size_on};

/// A call to price.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedCall {
    pub collective: Collective,
    pub element_type: ElementType,
    /// Ranks of a group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Placement of the groups on the hosts, all active at the same time.
    pub locality: Locality,
    /// Cadence of the measurement; streaming if both are known and none is requested.
    pub cadence: Option<Cadence>,
}

/// Predicted times of calls.
pub trait Rates: Sync {
    /// Seconds of one call, or why there is no answer. Takes about a microsecond, and allocates only for the reason.
    fn price(&self, call: &RatedCall) -> Prediction;

    /// Slowdown of a message between stages with this locality while another is sent in the opposite direction; `None`
    /// if it was not measured.
    fn both_ways(&self, _locality: &Locality) -> Option<Coefficient> {
        None
    }

    /// The basis of the answer to a call, in words: the curve and how it was extrapolated, or the links.
    fn ground(&self, call: &RatedCall) -> String;

    /// Slowdowns of overlapped calls, if known.
    fn hidden(&self) -> Option<&Hidden> {
        None
    }

    /// True if every answer comes from measurements; false if some come from published rates.
    fn calibrated(&self) -> bool {
        false
    }

    /// True if the measurements were synthetic, and with them everything derived from them.
    fn synthetic(&self) -> bool {
        false
    }

    /// The source of the rates, for headings: a file or a machine.
    fn name(&self) -> String;
}

impl RatedCall {
    /// The call of an op in groups of `ranks` ranks with this locality.
    ///
    /// An uneven exchange is priced by its busiest rank: like an even one in which every rank moves as much.
    pub fn of(op: &Op, ranks: u32, locality: &Locality) -> RatedCall {
        RatedCall {
            collective: op.collective,
            element_type: op.element,
            ranks,
            bytes_total: busiest(op, ranks).unwrap_or(op.bytes_total),
            locality: locality.clone(),
            cadence: None,
        }
    }
}

/// Calls of equal cost that replace one without a measurement: the even forms for the vector forms, a ring for a
/// chain.
pub(in crate::planner) fn stand_in(collective: Collective) -> Option<Collective> {
    use Collective::*;
    match collective {
        AllGatherV => Some(AllGather),
        ReduceScatterV => Some(ReduceScatter),
        AllToAllV => Some(AllToAll),
        SendRecvChain => Some(SendRecv),
        SendRecv => Some(SendRecvChain),
        _ => None,
    }
}

/// The bytes of the even exchange that loads every rank like the busiest rank of this one: w n/(n-1) for w bytes with others.
fn busiest(op: &Op, ranks: u32) -> Option<Bytes> {
    if op.collective != Collective::AllToAllV || op.splits == Splits::Equal || ranks < 2 {
        return None;
    }
    let with_others = op.geometry(ranks).ok()?.busiest_bytes_with_others()?;
    let whole = u128::from(with_others) * u128::from(ranks) / u128::from(ranks - 1);
    u64::try_from(whole).ok().map(Bytes)
}

// Times of calls as measured, without a curve. A call in groups larger than the launch is derived from groups of half their size, which are
// measured for this purpose ([`commgauge_model::workload::RankedCall::measured_as`]).

/// A measured call.
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
    pub calls: Vec<ObservedCall>,
    /// Whether no real time passed.
    pub synthetic: bool,
}

impl Observed {
    /// The call itself: of several places one on the same number of hosts, of both cadences streaming.
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

    /// From a group of at least half the size: a message takes equally long; other calls are scaled by the steps of a ring, and the
    /// interval includes the result by the levels of a tree (the two forms of [`commgauge_cost::cost::sharing`]).
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

impl Rates for Observed {
    fn price(&self, call: &RatedCall) -> Prediction {
        match (self.itself(call), self.carried(call)) {
            (Some(seconds), _) => Prediction::of(seconds, Status::Interpolated),
            (None, Some(seconds)) => Prediction::of(seconds, Status::Extrapolated),
            (None, None) => Prediction::refused(format!(
                "{} of {} in groups of {} ranks has no time",
                call.collective, call.bytes_total, call.ranks
            )),
        }
    }

    fn ground(&self, call: &RatedCall) -> String {
        let measured = if self.itself(call).is_some() { "measured" } else { "derived from smaller groups" };
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

// Slowdown of overlapped calls: by computing as measured by replays, and by calls of other axes as measured by interference runs.
//
// A replay already includes the calls of the other axes, so the larger of the two slowdowns counts, not their
// product. The slowdown of computing and of exposed calls was not measured and is not counted.

/// The slowdowns of overlapped calls in a fit.
#[derive(Clone, Debug, Default)]
pub struct Hidden {
    during_computing: Vec<(Axis, Coefficient)>,
    during_calls: Vec<(Axis, Collective, Axis, Coefficient)>,
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
        Hidden { during_computing: replayed.collect(), during_calls: measured.collect() }
    }

    /// The slowdown of one call concurrent with the calls of an axis, for tests of prices.
    #[cfg(test)]
    pub(super) fn while_calling(axis: Axis, collective: Collective, other: Axis, slower: f64) -> Hidden {
        let slower = Coefficient { value: slower, low: None, high: None, measurements: 1 };
        Hidden { during_computing: vec![(axis, slower)], during_calls: vec![(axis, collective, other, slower)] }
    }

    /// Time of an overlapped call relative to its time alone: at least 1, and 1 if unknown. `has_calls` returns
    /// whether an axis has calls at all.
    pub fn slower(&self, axis: Axis, collective: Collective, has_calls: &dyn Fn(Axis) -> bool) -> f64 {
        let computing = self.during_computing.iter().filter(|(of, _)| *of == axis).map(|(_, slower)| slower.value);
        let calls = self.during_calls.iter().filter_map(|(of, call, other, slower)| {
            (*of == axis && *call == collective && has_calls(*other)).then_some(slower.value)
        });
        computing.chain(calls).filter(|slower| slower.is_finite()).fold(1.0, f64::max)
    }

    /// The known slowdowns, in a sentence; `None` if there are none.
    pub fn describe(&self) -> Option<String> {
        let of = |slower: &Coefficient| match slower.low.zip(slower.high) {
            Some((low, high)) => format!("{:.2} times ({low:.2} to {high:.2})", slower.value),
            None => format!("{:.2} times", slower.value),
        };
        let computing = self.during_computing.iter().map(|(axis, slower)| format!("{axis} {}", of(slower)));
        let calls = self
            .during_calls
            .iter()
            .map(|(axis, collective, other, slower)| format!("{collective} on {axis} with {other} {}", of(slower)));
        let all: Vec<String> = computing.chain(calls).collect();
        (!all.is_empty()).then(|| {
            format!(
                "Calls hidden by computing or other calls are slower than alone, by the measured factors, at least 1.00: {}; calls of other axes take as long as alone.",
                all.join(", ")
            )
        })
    }
}

// Times from the published link rates of a machine file: latencies and rates, one algorithm for each call.
//
// Nothing was measured. It is what links allow, not what a library reaches, and every answer says so.

/// The links of a machine, and what libraries reach on them where its file names measured calls.
#[derive(Clone, Debug)]
pub struct Published<'a> {
    machine: &'a Machine,
    calls: Vec<&'static MeasuredCall>,
}

impl<'a> Published<'a> {
    /// Rates of a machine file.
    pub fn new(machine: &'a Machine) -> Published<'a> {
        Published::of(machine, None)
    }

    /// With the calls that a serving framework carries out by itself.
    pub fn of(machine: &'a Machine, framework: Option<&str>) -> Published<'a> {
        let links = machine.within_node.measured_calls.as_deref();
        Published { machine, calls: links.map_or_else(Vec::new, |links| MeasuredCall::on(links, framework)) }
    }

    /// The measured call within a node whose number of ranks is nearest.
    fn measured(&self, call: &RatedCall) -> Option<&'static MeasuredCall> {
        if call.locality.nodes_spanned != 1 {
            return None;
        }
        let alike = [Some(call.collective), stand_in(call.collective)];
        let known = self.calls.iter().filter(|measured| alike.contains(&Some(measured.collective)));
        known.min_by_key(|measured| measured.ranks.abs_diff(call.ranks)).copied()
    }

    /// Seconds by the formula of its algorithm, times what the nearest number of ranks was measured to differ from it.
    fn seconds(&self, call: &RatedCall) -> Option<f64> {
        let by_formula = |ranks: u32| {
            let locality = Locality { ranks_per_node: call.locality.ranks_per_node.min(ranks), ..call.locality };
            seconds_without_noise(self.machine, call.collective, ranks, call.bytes_total, &locality)
        };
        match self.measured(call) {
            None => by_formula(call.ranks),
            Some(measured) if measured.ranks == call.ranks => Some(measured.seconds(call.bytes_total).0),
            Some(measured) => {
                Some(measured.seconds(call.bytes_total).0 * by_formula(call.ranks)? / by_formula(measured.ranks)?)
            }
        }
    }
}

impl Rates for Published<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        match self.seconds(call) {
            Some(seconds) => Prediction::untrusted(Seconds(seconds)),
            None => Prediction::refused(format!(
                "{} of {} ranks, with unknown placement on the nodes",
                call.collective, call.ranks
            )),
        }
    }

    fn ground(&self, call: &RatedCall) -> String {
        let (within, between) = (&self.machine.within_node, &self.machine.between_nodes);
        let links = match (call.locality.nodes_spanned, self.measured(call)) {
            (0 | 1, Some(measured)) => {
                format!("{} as measured on {} ranks of {}", measured.library, measured.ranks, measured.links)
            }
            (0 | 1, None) => format!("{} and {} within a node", within.rate, within.latency),
            _ => format!(
                "{} adapters of {} and {} between nodes",
                between.adapters_per_node, between.rate_per_adapter, between.latency
            ),
        };
        format!("published rates of {}: {links}; not calibrated", self.machine.name)
    }

    fn name(&self) -> String {
        format!("published rates of {}, not calibrated", self.machine.name)
    }
}

// Rates of a machine that is faster or slower than the known one, to find what depends on it.

/// Known rates, with factors on the times.
pub struct Scaled<'a> {
    /// The known rates.
    pub rates: &'a dyn Rates,
    /// Factor of the time of calls within a node.
    pub within: f64,
    /// Factor of the time of calls between nodes.
    pub between: f64,
}

impl Rates for Scaled<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let factor = if call.locality.nodes_spanned > 1 { self.between } else { self.within };
        self.rates.price(call).times([factor; 3])
    }

    fn both_ways(&self, locality: &Locality) -> Option<Coefficient> {
        self.rates.both_ways(locality)
    }

    fn ground(&self, call: &RatedCall) -> String {
        self.rates.ground(call)
    }

    fn hidden(&self) -> Option<&Hidden> {
        self.rates.hidden()
    }

    fn calibrated(&self) -> bool {
        self.rates.calibrated()
    }

    fn synthetic(&self) -> bool {
        self.rates.synthetic()
    }

    fn name(&self) -> String {
        self.rates.name()
    }
}

#[cfg(test)]
mod observed_tests {

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

#[cfg(test)]
mod hidden_tests {

    use super::*;

    fn coefficient(value: f64) -> Coefficient {
        Coefficient { value, low: None, high: None, measurements: 1 }
    }

    #[test]
    fn the_larger_known_slowdown_counts_and_none_is_below_one() {
        assert_eq!(Hidden::default().slower(Axis::Dp, Collective::AllReduce, &|_| true), 1.0);
        assert_eq!(Hidden::default().describe(), None);
        let hidden = Hidden {
            during_computing: vec![(Axis::Dp, coefficient(1.2)), (Axis::Cp, coefficient(0.8))],
            during_calls: vec![(Axis::Dp, Collective::AllReduce, Axis::Tp, coefficient(1.5))],
        };
        let slower = |axis, collective, tp: bool| hidden.slower(axis, collective, &|_| tp);
        assert_eq!(slower(Axis::Dp, Collective::AllReduce, true), 1.5);
        assert_eq!(slower(Axis::Dp, Collective::AllReduce, false), 1.2);
        assert_eq!(slower(Axis::Dp, Collective::AllGather, true), 1.2);
        assert_eq!(slower(Axis::Cp, Collective::SendRecv, true), 1.0);
        assert_eq!(slower(Axis::Tp, Collective::AllReduce, true), 1.0);
        let text = hidden.describe().unwrap();
        assert!(text.contains("dp 1.20 times, cp 0.80 times, all_reduce on dp with tp 1.50 times"), "{text}");
    }
}

#[cfg(test)]
mod tests {
    // Properties of rates: measured places are answered unchanged, others are extrapolated and marked, the rest is
    // refused.
    use super::*;
    use commgauge_cost::cost::{
        CurveKey, FamilyKey, Fit, FitOptions, Measurements, Place, Predictor, Query, Status, fit,
    };
    use commgauge_model::config::Machine;
    use std::path::Path;

    /// Seconds of a ring over `ranks` ranks: 2 us and 100 GB/s for each step.
    fn ring(ranks: u32, bytes: f64) -> f64 {
        let n = f64::from(ranks);
        (n - 1.0) * (2e-6 + bytes / n / 100e9)
    }

    fn place(nodes_spanned: u32, concurrent_groups_per_node: u32, stride: u32) -> Place {
        Place { nodes_spanned, concurrent_groups_per_node, stride }
    }

    /// A fit of calls measured at 1 KiB, 4 KiB ... 64 MiB on these group sizes in these places.
    fn fitted(measured: &[(Collective, Option<ElementType>, Place, u32)]) -> Fit {
        let mut all = Measurements::default();
        for (collective, element_type, place, ranks) in measured {
            let cadence = Cadence::Streaming;
            let family = FamilyKey {
                collective: *collective,
                element_type: *element_type,
                cadence,
                place: *place,
                labels: Default::default(),
            };
            let sizes = (0..9).map(|step| 1024u64 << (2 * step));
            let times = sizes.map(|bytes| (bytes, vec![ring(*ranks, bytes as f64)])).collect();
            all.curves.insert(CurveKey { family, ranks: *ranks }, times);
        }
        fit(&all, FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit")
    }

    fn call(collective: Collective, ranks: u32, place: Place) -> RatedCall {
        let ranks_per_node = ranks.div_ceil(place.nodes_spanned.max(1));
        RatedCall {
            collective,
            element_type: ElementType::Bfloat16,
            ranks,
            bytes_total: Bytes(3_000_000),
            locality: Locality {
                nodes_spanned: place.nodes_spanned,
                ranks_per_node,
                stride: place.stride,
                concurrent_groups_per_node: place.concurrent_groups_per_node,
            },
            cadence: None,
        }
    }

    use Collective::{AllGather, AllReduce, AllToAll, AllToAllV, SendRecv, SendRecvChain};

    #[test]
    fn unmeasured_calls_are_refused_with_a_list_of_what_was_measured() {
        let fit = fitted(&[(AllGather, None, place(1, 1, 1), 8), (AllGather, None, place(0, 0, 0), 4)]);
        let rates = Fitted::new(&fit, "fit.json", None);
        for (call, expected) in [
            (call(AllReduce, 8, place(1, 1, 1)), "all_reduce was not measured"),
            (call(AllGather, 8, place(2, 1, 1)), "8 ranks at 2n/1g/s1 was not measured, nor near enough; measured:"),
            (call(AllGather, 4, place(1, 1, 1)), "give their place with --unknown-locality"),
            (RatedCall { cadence: Some(Cadence::Isolated), ..call(AllGather, 8, place(1, 1, 1)) }, "was not measured"),
            (RatedCall { bytes_total: Bytes(1 << 50), ..call(AllGather, 8, place(1, 1, 1)) }, "more than 64 times"),
        ] {
            let answer = rates.price(&call);
            assert_eq!((answer.status, answer.seconds), (Status::Refused, None), "{call:?}");
            let reason = answer.reason.unwrap();
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn what_was_measured_is_named_once() {
        let one = place(1, 1, 1);
        let mut fit = fitted(&[(AllReduce, None, one, 2)]);
        let mut other = fit.families[0].clone();
        other.key.element_type = Some(ElementType::Float32);
        fit.families.push(other);
        let reason = Fitted::new(&fit, "fit.json", None).price(&call(AllReduce, 4, one)).reason.unwrap();
        assert_eq!(reason.matches("all_reduce of 2 ranks").count(), 1, "{reason}");
    }

    #[test]
    fn a_measured_place_is_answered_as_the_fit_answers() {
        let one = place(1, 1, 1);
        let fit = fitted(&[(AllGather, None, one, 8), (AllGather, None, place(2, 8, 8), 2)]);
        let rates = Fitted::new(&fit, "fit.json", None);
        let query = Query {
            collective: AllGather,
            ranks: 8,
            bytes_total: Bytes(3_000_000),
            element_type: None,
            locality: Some("1n".parse().unwrap()),
            cadence: None,
        };
        assert_eq!(rates.price(&call(AllGather, 8, one)), Predictor::new(&fit).predict(&query));
        assert!(rates.calibrated() && !rates.synthetic());
        assert_eq!(rates.ground(&call(AllGather, 8, one)), "all_gather on 8 ranks at 1n/1g/s1");
    }

    #[test]
    fn more_groups_than_were_measured_widen_the_interval_by_what_sharing_can_cost() {
        let fit = fitted(&[(AllGather, None, place(2, 2, 8), 2)]);
        let rates = Fitted::new(&fit, "fit.json", None);
        let as_measured = rates.price(&call(AllGather, 2, place(2, 2, 8)));
        let crowded = rates.price(&call(AllGather, 2, place(2, 8, 8)));
        assert_eq!((as_measured.status, crowded.status), (Status::Interpolated, Status::Extrapolated));
        let times = |a: Option<commgauge_base::units::Seconds>, b: Option<commgauge_base::units::Seconds>| {
            a.unwrap().0 / b.unwrap().0
        };
        // Four times as many: at best as before, at worst four times as long.
        for (found, expected) in [
            (times(crowded.low, as_measured.low), 1.0),
            (times(crowded.seconds, as_measured.seconds), 2.0),
            (times(crowded.high, as_measured.high), 4.0),
        ] {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        let ground = rates.ground(&call(AllGather, 2, place(2, 8, 8)));
        assert!(ground.ends_with("8 instead of 2 concurrent groups on a host: 1.00 to 4.00 times as long"), "{ground}");
    }

    #[test]
    fn other_numbers_of_hosts_follow_the_steps_of_the_ring() {
        let fit = fitted(&[(AllGather, None, place(2, 8, 8), 2), (AllGather, None, place(8, 8, 8), 8)]);
        let rates = Fitted::new(&fit, "fit.json", None);
        for (nodes, ranks, expected) in
            [(4, 4, Some(ring(4, 3e6))), (16, 16, Some(ring(16, 3e6))), (32, 32, None), (4, 8, None)]
        {
            let answer = rates.price(&call(AllGather, ranks, place(nodes, 8, 8)));
            match expected {
                None => assert_eq!(answer.status, Status::Refused, "{nodes} {ranks}"),
                Some(expected) => {
                    let found = answer.seconds.unwrap().0;
                    // The curves are interpolated between sizes, so not exact to the last digit.
                    assert!((found / expected - 1.0).abs() < 0.03, "{nodes}: {found}, {expected}");
                    assert_eq!(answer.status, Status::Extrapolated);
                    assert!(answer.low.unwrap().0 <= expected && expected <= answer.high.unwrap().0);
                }
            }
        }
    }

    #[test]
    fn calls_of_equal_cost_are_used_as_substitutes_and_marked() {
        let one = place(1, 1, 1);
        let half = Some(ElementType::Float16);
        let fit = fitted(&[
            (AllToAll, None, one, 8),
            (SendRecv, None, place(2, 8, 8), 2),
            (AllReduce, half, one, 8),
            (AllReduce, Some(ElementType::Float32), one, 8),
        ]);
        let rates = Fitted::new(&fit, "fit.json", None);
        for (call, ground) in [
            (call(AllToAllV, 8, one), "all_to_all on 8 ranks at 1n/1g/s1"),
            // However long the pipeline is, its messages are between neighbours.
            (call(SendRecvChain, 16, place(16, 8, 8)), "send_recv on 2 ranks at 2n/8g/s8"),
            (call(AllReduce, 8, one), "all_reduce of float16 on 8 ranks at 1n/1g/s1"),
        ] {
            assert_eq!(rates.price(&call).status, Status::Extrapolated, "{call:?}");
            assert_eq!(rates.ground(&call), ground);
        }
        assert_eq!(
            rates.price(&call(SendRecvChain, 4, one)).status,
            Status::Refused,
            "a message inside was not measured"
        );
    }

    #[test]
    fn the_user_may_state_where_unknown_groups_were_placed() {
        let fit = fitted(&[(AllGather, None, place(0, 0, 0), 8)]);
        let with_unknown = |text: &str| Fitted::new(&fit, "fit.json", Some(text.parse().unwrap()));
        assert_eq!(with_unknown("1n").price(&call(AllGather, 8, place(1, 1, 1))).status, Status::Interpolated);
        assert_eq!(with_unknown("1n/1g").price(&call(AllGather, 8, place(1, 2, 1))).status, Status::Refused);
        assert_eq!(with_unknown("1n").price(&call(AllGather, 8, place(2, 8, 8))).status, Status::Refused);
    }

    #[test]
    fn published_rates_are_never_calibrated_and_fill_what_a_fit_lacks_only_where_both_are_named() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/h100-nvswitch-ndr.toml");
        let mut machine = Machine::load(&path).unwrap();
        machine.within_node.measured_calls = None;
        let published = Published::new(&machine);
        let inside = call(AllGather, 8, place(1, 1, 1));
        let answer = published.price(&inside);
        // 7 steps of 3.4 us, 7/8 of 3 MB at 450 GB/s.
        assert!((answer.seconds.unwrap().0 - (7.0 * 3.4e-6 + 0.875 * 3e6 / 450e9)).abs() < 1e-12);
        assert!(answer.untrusted && answer.low.is_none() && answer.status == Status::Extrapolated);
        assert!(!published.calibrated() && published.ground(&inside).ends_with("not calibrated"));
        let fit = fitted(&[(AllGather, None, place(1, 1, 1), 8)]);
        let both = Both::new(Fitted::new(&fit, "fit.json", None), published.clone());
        assert_eq!(both.price(&inside).status, Status::Interpolated);
        let outside = call(AllGather, 2, place(2, 8, 8));
        assert_eq!(both.price(&outside), published.price(&outside));
        assert!(
            both.ground(&outside)
                .contains("not calibrated (the fit: all_gather of 2 ranks at 2n/8g/s8 was not measured")
        );
        assert!(!both.calibrated());
    }

    #[test]
    fn calls_within_a_node_take_what_was_measured_and_other_numbers_of_ranks_as_much_more_than_their_formula() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/h100-nvswitch-ndr.toml");
        let machine = Machine::load(&path).unwrap();
        let mut plain = machine.clone();
        plain.within_node.measured_calls = None;
        let (formula, published) = (Published::new(&plain), Published::new(&machine));
        let serving = Published::of(&machine, Some("sglang"));
        let sized =
            |collective, ranks, place, bytes| RatedCall { bytes_total: Bytes(bytes), ..call(collective, ranks, place) };
        let within = |collective, ranks, bytes| sized(collective, ranks, place(1, 1, 1), bytes);
        let us = |rates: &Published, call: &RatedCall| rates.price(call).seconds.unwrap().0 * 1e6;
        for (rates, call, expected) in [
            (&published, within(AllReduce, 8, 8192), 15.96),
            (&serving, within(AllReduce, 8, 1024), 3.4),
            (&published, within(AllToAllV, 4, 1 << 20), 15.56),
            // Six ranks: between four and eight, nearer to the first of both.
            (
                &published,
                within(AllGather, 6, 1 << 20),
                13.58 * us(&formula, &within(AllGather, 6, 1 << 20)) / us(&formula, &within(AllGather, 4, 1 << 20)),
            ),
        ] {
            let found = us(rates, &call);
            assert!((found / expected - 1.0).abs() < 0.05, "{call:?}: {found} us instead of {expected}");
        }
        // What was not measured: messages, and calls between nodes.
        for call in [within(SendRecv, 2, 1 << 20), sized(AllReduce, 16, place(2, 1, 1), 1 << 20)] {
            assert_eq!(published.price(&call), formula.price(&call));
        }
        let ground = published.ground(&within(AllReduce, 8, 8192));
        assert!(ground.contains("NCCL 2.29.2 as measured on 8 ranks of h100-nvswitch"), "{ground}");
    }

    #[test]
    fn an_uneven_exchange_is_priced_by_its_busiest_rank() {
        let op = Op {
            splits: Splits::Given(vec![7, 1, 1, 1]),
            ..Op::new(
                commgauge_model::workload::Style::Expert,
                commgauge_model::layout::Axis::Ep,
                AllToAllV,
                ElementType::Int8,
                1000,
            )
        };
        // Rank 0 receives 700 from each of three others; so does every rank of an even exchange of 2800.
        assert_eq!(RatedCall::of(&op, 4, &Locality::UNKNOWN).bytes_total, Bytes(2800));
        assert_eq!(RatedCall::of(&Op { splits: Splits::Equal, ..op }, 4, &Locality::UNKNOWN).bytes_total, Bytes(1000));
    }
}
