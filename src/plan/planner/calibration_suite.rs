//! The calls that a calibration measures: every kind of call that a plan asks for, with its sizes.
//!
//! The suite that measures them is written by the command.

use super::rates::{RatedCall, Rates, stand_in};
use super::search::{Found, Only};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_cost::cost::{MAX_EXTRAPOLATION, Prediction};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Sizes of each curve that are measured first; the run adds sizes between them.
const FIRST_SIZES: u32 = 4;

/// Minimum factor between the smallest and the largest size: a smaller range is not a curve.
const LEAST_SPAN: u64 = 64;

/// Largest measured size argument, unless larger calls need a larger one.
const LARGEST: Bytes = Bytes(64 << 20);

// The calls whose rates a search for the best layout requests, which a calibration must measure.
//
// The requests of a search depend on the answers, as it prices only layouts that can still be the best. So it runs on nominal machines
// whose links differ by orders of magnitude, and again with each degree of each axis and each ZeRO stage required.

/// Links of a nominal machine: a call takes the latency plus its size argument over the rate.
#[derive(Clone, Copy)]
struct Links {
    latency_seconds: f64,
    bytes_per_second: f64,
}

/// A nominal machine.
#[derive(Clone, Copy)]
struct Machine {
    within: Links,
    between: Links,
}

const fn links(latency_seconds: f64, bytes_per_second: f64) -> Links {
    Links { latency_seconds, bytes_per_second }
}

/// Fast links; a slow network; slow links.
const NOMINAL: [Machine; 3] = [
    Machine { within: links(10e-6, 300e9), between: links(20e-6, 50e9) },
    Machine { within: links(10e-6, 300e9), between: links(50e-6, 1e9) },
    Machine { within: links(100e-6, 1e9), between: links(100e-6, 1e9) },
];

/// One kind of call and its requested sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedCall {
    /// The call; the even form for calls with uneven blocks.
    pub collective: Collective,
    pub element_type: ElementType,
    /// Smallest size argument.
    pub bytes_least: Bytes,
    /// Largest size argument.
    pub bytes_most: Bytes,
}

impl RequestedCall {
    /// The sizes that are measured first, powers of two at even logarithmic distances, from the smallest to the largest requested size, or up
    /// to the largest that the user sets.
    pub fn first_sizes(&self, largest: Option<Bytes>) -> Vec<u64> {
        let element = self.element_type.size();
        let enough = if largest.is_some() { 0 } else { self.bytes_most.0.div_ceil(MAX_EXTRAPOLATION as u64) };
        let largest = largest.unwrap_or(LARGEST).0;
        let most = self.bytes_most.0.min(largest).max(enough).max(element).next_power_of_two();
        let least =
            self.bytes_least.0.max(element).next_power_of_two().min(most / LEAST_SPAN).max(element.next_power_of_two());
        let most = most.max(least * LEAST_SPAN);
        let octaves = (most / least).ilog2();
        let size = |index: u32| least << (octaves * index / (FIRST_SIZES - 1));
        (0..FIRST_SIZES).map(size).collect()
    }
}

/// All calls with bytes that searches for the best layout on this many GPUs request, whatever the machine's rates; none if no layout fits
/// into memory. `search` runs with the given rates and restrictions.
pub fn requested_calls(gpus: u32, search: impl Fn(&dyn Rates, Only) -> Found) -> Vec<RequestedCall> {
    let unrestricted = NOMINAL.map(|machine| (machine, Only::default()));
    let restricted = each_part(gpus).into_iter().map(|only| (NOMINAL[0], only));
    let mut all = Asked::new();
    for (machine, only) in unrestricted.into_iter().chain(restricted) {
        let rates = Nominal { machine, asked: Mutex::default() };
        // A search restricted to layouts that do not fit still prices them.
        if search(&rates, only).feasible > 0 {
            let asked = rates.asked.into_inner().unwrap_or_else(PoisonError::into_inner);
            asked.into_values().for_each(|call| remember(&mut all, call));
        }
    }
    all.into_values().filter(|call| call.collective != Collective::Barrier && call.bytes_most.0 > 0).collect()
}

fn remember(all: &mut Asked, call: RequestedCall) {
    // A call that only moves bytes takes equally long in any type.
    let element = if call.collective.reduces() { call.element_type.name() } else { "" };
    let known = all.entry((call.collective.name(), element)).or_insert(call);
    known.bytes_least = known.bytes_least.min(call.bytes_least);
    known.bytes_most = known.bytes_most.max(call.bytes_most);
}

/// Every degree of every axis, and every ZeRO stage, each with everything else free.
fn each_part(gpus: u32) -> Vec<Only> {
    let degrees = (2..=gpus).filter(|degree| gpus.is_multiple_of(*degree));
    let of_degree = |degree: u32| {
        [
            Only { tp: vec![degree], ..Only::default() },
            Only { cp: vec![degree], ..Only::default() },
            Only { ep: vec![degree], ..Only::default() },
            Only { pp: vec![degree], ..Only::default() },
            Only { dp: vec![degree], ..Only::default() },
        ]
    };
    let stages = (0..4).map(|stage| Only { zero_stage: vec![stage], ..Only::default() });
    degrees.flat_map(of_degree).chain(stages).collect()
}

type Asked = BTreeMap<(&'static str, &'static str), RequestedCall>;

/// Rates of a nominal machine that record their requests.
struct Nominal {
    machine: Machine,
    asked: Mutex<Asked>,
}

impl Nominal {
    fn remember(&self, call: &RatedCall) {
        let collective = match call.collective {
            Collective::SendRecvChain => Collective::SendRecv,
            other => stand_in(other).filter(|_| other.has_splits()).unwrap_or(other),
        };
        let bytes = call.bytes_total;
        let call = RequestedCall { collective, element_type: call.element_type, bytes_least: bytes, bytes_most: bytes };
        remember(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner), call);
    }
}

impl Rates for Nominal {
    fn price(&self, call: &RatedCall) -> Prediction {
        self.remember(call);
        let Machine { within, between } = self.machine;
        let links = if call.locality.nodes_spanned > 1 { between } else { within };
        let bytes = call.bytes_total.0 as f64;
        Prediction::untrusted(Seconds(links.latency_seconds + bytes / links.bytes_per_second))
    }

    fn ground(&self, _call: &RatedCall) -> String {
        self.name()
    }

    fn synthetic(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "a nominal machine".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::compute::Compute;
    use crate::planner::search::{Bases, Question, Results, search};
    use commgauge_base::collective::Collective;
    use commgauge_model::config::{Model, Table, Training};

    fn call(collective: Collective, element_type: ElementType, bytes_least: u64, bytes_most: u64) -> RequestedCall {
        RequestedCall { collective, element_type, bytes_least: Bytes(bytes_least), bytes_most: Bytes(bytes_most) }
    }

    #[test]
    fn sizes_span_what_is_asked_for_up_to_the_largest_that_is_measured() {
        for (least, most, expected) in [
            (1024, 1 << 25, vec![1 << 10, 1 << 15, 1 << 20, 1 << 25]),
            (4, 4, vec![4, 16, 64, 256]),
            (1 << 30, 1 << 32, vec![1 << 20, 1 << 22, 1 << 24, 1 << 26]),
            // A 64th of the requested size.
            (1 << 30, 1 << 34, vec![1 << 22, 1 << 24, 1 << 26, 1 << 28]),
        ] {
            let call = call(Collective::AllReduce, ElementType::Float32, least, most);
            assert_eq!(call.first_sizes(None), expected, "{least} to {most}");
        }
    }

    fn calls(model: &str, gpus: u32) -> Vec<RequestedCall> {
        let model = Model::load(model).unwrap();
        let flags = vec![
            ("--sequence", "sequence", "2048".to_owned()),
            ("--global-batch", "global_batch", "64".to_owned()),
            ("--training", "sequence_parallel", "true".to_owned()),
        ];
        let compute = Compute::constant(400e12, 1.0);
        let base = Training::read(Table::of_flags(flags)).unwrap();
        requested_calls(gpus, |rates, only| {
            search(&Question {
                model: &model,
                bases: Bases::of(&model, &base).unwrap(),
                global_batch: 64,
                gpus,
                ranks_per_node: 8,
                gpu_memory: Bytes(80_000_000_000),
                compute: &compute,
                rates,
                only,
                wanted: 1,
                results: Results::Layouts,
            })
        })
    }

    #[test]
    fn a_dense_model_asks_for_sums_shares_and_messages_in_the_sizes_of_its_layers() {
        let calls = calls("llama-3-8b", 16);
        for collective in
            [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::SendRecv]
        {
            let of_it: Vec<&RequestedCall> = calls.iter().filter(|call| call.collective == collective).collect();
            assert!(!of_it.is_empty(), "{collective} in {calls:?}");
            assert!(
                of_it.iter().all(|call| call.bytes_least <= call.bytes_most && call.bytes_least.0 > 0),
                "{of_it:?}"
            );
        }
        // The activations of one sample of 2,048 tokens of width 4,096 in bfloat16.
        let gathered = calls.iter().find(|call| call.collective == Collective::AllGather).unwrap();
        assert!(gathered.bytes_most.0 >= 2048 * 4096 * 2, "{gathered:?}");
        assert!(calls.iter().all(|call| call.collective != Collective::AllToAll), "no experts, no exchange: {calls:?}");
    }

    #[test]
    fn experts_ask_for_exchanges_and_each_type_of_a_sum_is_separate() {
        let calls = calls("mixtral-8x7b", 16);
        assert!(calls.iter().any(|call| call.collective == Collective::AllToAll), "{calls:?}");
        let sums: Vec<ElementType> = calls
            .iter()
            .filter(|call| call.collective == Collective::AllReduce)
            .map(|call| call.element_type)
            .collect();
        assert!(sums.contains(&ElementType::Float32), "of gradients, or of norms: {sums:?}");
        assert!(calls.iter().all(|call| !call.collective.has_splits()), "even forms represent uneven ones: {calls:?}");
    }
}
