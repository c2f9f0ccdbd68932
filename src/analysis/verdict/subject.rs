//! What a row is of: a call of all groups of an axis, or what each rank does by itself.

use super::document::Metric;
use super::row_subject::{RowCall, RowSubject};
use commgauge_model::record::copy_line::CopyFacts;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::record::product_line::ProductFacts;
use std::borrow::Cow;

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject<'a> {
    /// A planned call.
    Call(&'a CaseFacts),
    /// A copy between a host and its GPUs, or between GPUs.
    Copy(&'a CopyFacts),
    /// A matrix product.
    Product(&'a ProductFacts),
}

impl<'a> Subject<'a> {
    /// The call, where it is one.
    pub(super) fn call(self) -> Option<&'a CaseFacts> {
        match self {
            Subject::Call(facts) => Some(facts),
            Subject::Copy(_) | Subject::Product(_) => None,
        }
    }

    /// The name of the row.
    pub fn name(self) -> Cow<'a, str> {
        match self {
            Subject::Call(facts) => Cow::Borrowed(&facts.name),
            Subject::Copy(copy) => Cow::Owned(copy.name()),
            Subject::Product(product) => Cow::Owned(product.name()),
        }
    }

    /// What its rate is called, and what is moved or computed by which it counts; nothing where no byte counts, as in a barrier.
    pub(super) fn rate(self) -> Option<RateOf> {
        let (metric, amount) = match self {
            Subject::Call(facts) => {
                let factor = facts.bus_factor.filter(|factor| *factor > 0.0)?;
                (Metric::BusBandwidthBytesPerSecond, facts.bytes_accounted.0 as f64 * factor)
            }
            Subject::Copy(copy) => (Metric::CopyBytesPerSecond, copy.bytes.0 as f64),
            Subject::Product(product) => (Metric::FlopsPerSecond, product.flops()),
        };
        (amount > 0.0).then_some(RateOf { metric, amount })
    }

    /// The same for a document.
    pub fn of_row(self) -> RowSubject {
        match self {
            Subject::Call(facts) => RowSubject::Call(Box::new(RowCall {
                axis: facts.axis,
                group_size: facts.group_size,
                groups: facts.groups,
                locality: facts.locality.clone(),
                collective: facts.collective,
                element_type: facts.element_type,
                bytes_total: facts.bytes_total,
                placement: facts.placement,
                cadence: facts.cadence,
            })),
            Subject::Copy(copy) => RowSubject::Copy { copy: *copy },
            Subject::Product(product) => RowSubject::Product { product: product.clone() },
        }
    }
}

/// How a time becomes a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateOf {
    pub metric: Metric,
    /// Bytes or operations, over which the time is taken.
    pub amount: f64,
}
