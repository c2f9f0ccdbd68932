//! Rates of a machine that is faster or slower than the known one, to see what depends on it.

use super::{Hidden, RatedCall, Rates};
use crate::cost::{Coefficient, Prediction};
use commgauge_base::units::Seconds;
use commgauge_model::layout::Locality;

/// Known rates, times factors of the time.
pub struct Scaled<'a> {
    /// The known ones.
    pub rates: &'a dyn Rates,
    /// Factor of the time of calls within a node.
    pub within: f64,
    /// Factor of the time of calls between nodes.
    pub between: f64,
}

impl Rates for Scaled<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let factor = if call.locality.nodes_spanned > 1 { self.between } else { self.within };
        let times = |seconds: Option<Seconds>| seconds.map(|seconds| Seconds(factor * seconds.0));
        let known = self.rates.price(call);
        Prediction { seconds: times(known.seconds), low: times(known.low), high: times(known.high), ..known }
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
