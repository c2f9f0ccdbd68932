//! Times from the published link rates of a machine file: latencies and rates, one algorithm for each call.
//!
//! Nothing of it was measured. It is what links allow, not what a library reaches, and every answer is marked so.

use super::{RatedCall, Rates};
use crate::cost::{Prediction, Status};
use crate::machine_time::seconds_without_noise;
use commgauge_base::units::Seconds;
use commgauge_model::config::Machine;

/// The links of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    machine: &'a Machine,
}

impl<'a> Published<'a> {
    /// Rates of a machine file.
    pub fn new(machine: &'a Machine) -> Published<'a> {
        Published { machine }
    }
}

impl Rates for Published<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        match seconds_without_noise(self.machine, call.collective, call.ranks, call.bytes_total, &call.locality) {
            Some(seconds) => Prediction {
                seconds: Some(Seconds(seconds)),
                low: None,
                high: None,
                status: Status::Extrapolated,
                reason: None,
                untrusted: true,
            },
            None => Prediction::refused(format!(
                "{} of {} ranks, whose placement on the nodes is not known",
                call.collective, call.ranks
            )),
        }
    }

    fn ground(&self, call: &RatedCall) -> String {
        let (within, between) = (&self.machine.within_node, &self.machine.between_nodes);
        let links = match call.locality.nodes_spanned {
            0 | 1 => format!("{} and {} within a node", within.rate, within.latency),
            _ => format!(
                "{} adapters of {} and {} between nodes",
                between.adapters_per_node, between.rate_per_adapter, between.latency
            ),
        };
        format!("published rates of {}: {links}; not calibrated", self.machine.name)
    }

    fn calibrated(&self) -> bool {
        false
    }

    fn synthetic(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        format!("published rates of {}, not calibrated", self.machine.name)
    }
}
