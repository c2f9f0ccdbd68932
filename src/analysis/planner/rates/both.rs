//! A fit, and for the calls that it refuses the published rates of a machine file, marked as such.

use super::{Fitted, Hidden, Published, RatedCall, Rates};
use crate::cost::{Coefficient, Prediction, Status};
use commgauge_model::layout::Locality;

/// A fit first, then the links.
#[derive(Debug)]
pub struct Both<'a> {
    fitted: Fitted<'a>,
    published: Published<'a>,
}

impl<'a> Both<'a> {
    /// Rates of a fit and a machine file, if a user names both.
    pub fn new(fitted: Fitted<'a>, published: Published<'a>) -> Both<'a> {
        Both { fitted, published }
    }
}

impl Rates for Both<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let answer = self.fitted.price(call);
        if answer.status == Status::Refused { self.published.price(call) } else { answer }
    }

    fn both_ways(&self, locality: &Locality) -> Option<Coefficient> {
        self.fitted.both_ways(locality)
    }

    fn ground(&self, call: &RatedCall) -> String {
        match self.fitted.price(call).reason {
            Some(reason) => format!("{} (the fit: {reason})", self.published.ground(call)),
            None => self.fitted.ground(call),
        }
    }

    fn hidden(&self) -> Option<&Hidden> {
        self.fitted.hidden()
    }

    fn calibrated(&self) -> bool {
        false
    }

    fn synthetic(&self) -> bool {
        self.fitted.synthetic()
    }

    fn name(&self) -> String {
        format!("{}, and for what it does not hold {}", self.fitted.name(), self.published.name())
    }
}
