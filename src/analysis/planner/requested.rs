//! The calls that a search for the best layout asks rates for, and so what a calibration has to measure.
//!
//! What a search asks for depends on the answers, as it prices only what can still be the best. So it is run on nominal machines whose
//! links differ by orders of magnitude, and again with each degree of each axis and each ZeRO stage required.

use super::rates::{RatedCall, Rates, stand_in};
use super::search::{Found, Only};
use crate::cost::{Prediction, Status};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Links of a nominal machine: any call takes the latency, and its size argument by the rate.
#[derive(Clone, Copy)]
struct Links {
    latency_seconds: f64,
    bytes_per_second: f64,
}

/// A machine that nobody has.
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

/// One kind of call and the sizes in which it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedCall {
    /// The call, even forms for those of uneven shares.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Smallest size argument.
    pub bytes_least: Bytes,
    /// Largest size argument.
    pub bytes_most: Bytes,
}

/// All calls with bytes that searches for the best layout of this many GPUs ask for, whatever the machine's rates; none if no layout
/// fits into memory. `search` is carried out with the rates and the restrictions that it is given.
pub fn requested_calls(gpus: u32, search: impl Fn(&dyn Rates, Only) -> Found) -> Vec<RequestedCall> {
    let unrestricted = NOMINAL.map(|machine| (machine, Only::default()));
    let restricted = each_part(gpus).into_iter().map(|only| (NOMINAL[0], only));
    let mut all = Asked::new();
    for (machine, only) in unrestricted.into_iter().chain(restricted) {
        let rates = Nominal { machine, asked: Mutex::default() };
        // A search that is restricted to what does not fit prices it all the same.
        if search(&rates, only).feasible > 0 {
            let asked = rates.asked.into_inner().unwrap_or_else(PoisonError::into_inner);
            asked.into_values().for_each(|call| remember(&mut all, call));
        }
    }
    all.into_values().filter(|call| call.collective != Collective::Barrier && call.bytes_most.0 > 0).collect()
}

fn remember(all: &mut Asked, call: RequestedCall) {
    // A call that only moves bytes takes as long in any type.
    let element = if call.collective.reduces() { call.element_type.name() } else { "" };
    let known = all.entry((call.collective.name(), element)).or_insert(call);
    known.bytes_least = known.bytes_least.min(call.bytes_least);
    known.bytes_most = known.bytes_most.max(call.bytes_most);
}

/// Every degree of every axis, and every ZeRO stage, each with all else free.
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

/// Rates of a nominal machine, which remember what they were asked for.
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
        Prediction {
            seconds: Some(Seconds(links.latency_seconds + bytes / links.bytes_per_second)),
            low: None,
            high: None,
            status: Status::Extrapolated,
            reason: None,
            untrusted: true,
        }
    }

    fn ground(&self, _call: &RatedCall) -> String {
        self.name()
    }

    fn calibrated(&self) -> bool {
        false
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
    use crate::planner::search::{Bases, Question, search};
    use commgauge_model::config::{Model, Table, Training};

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
                bases: Bases::of(&base),
                global_batch: 64,
                gpus,
                ranks_per_node: 8,
                gpu_memory: Bytes(80_000_000_000),
                compute: &compute,
                rates,
                only,
                wanted: 1,
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
    fn experts_ask_for_exchanges_and_each_type_of_a_sum_stands_alone() {
        let calls = calls("mixtral-8x7b", 16);
        assert!(calls.iter().any(|call| call.collective == Collective::AllToAll), "{calls:?}");
        let sums: Vec<ElementType> = calls
            .iter()
            .filter(|call| call.collective == Collective::AllReduce)
            .map(|call| call.element_type)
            .collect();
        assert!(sums.contains(&ElementType::Float32), "of gradients, or of norms: {sums:?}");
        assert!(calls.iter().all(|call| !call.collective.has_splits()), "even forms stand for uneven ones: {calls:?}");
    }
}
