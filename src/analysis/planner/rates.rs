//! The time of a call, from a fit, a machine file, or a fit with a machine file for what it lacks.
//!
//! Every answer states its basis. Calls that were not measured and are in no file are refused.

mod both;
mod fitted;
mod hidden;
mod nearest;
mod observed;
mod published;
mod scaled;
#[cfg(test)]
mod tests;

pub use both::Both;
pub use fitted::Fitted;
pub use hidden::Hidden;
pub(super) use nearest::stand_in;
pub use observed::{Observed, ObservedCall};
pub use published::Published;
pub use scaled::Scaled;

use crate::cost::{Coefficient, Prediction};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Locality;
use commgauge_model::workload::Op;

/// A call to be priced.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedCall {
    /// The collective.
    pub collective: Collective,
    /// Type of the elements.
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

    /// Slowdowns of overlapped calls, if any are known.
    fn hidden(&self) -> Option<&Hidden> {
        None
    }

    /// True if every answer comes from measurements; false if some come from published rates.
    fn calibrated(&self) -> bool;

    /// True if the measurements were synthetic, and with them everything derived from them.
    fn synthetic(&self) -> bool;

    /// The source of the rates, for headings: a file or a machine.
    fn name(&self) -> String;
}

impl RatedCall {
    /// The call of an op in groups of `ranks` ranks with this locality.
    ///
    /// An uneven exchange is priced by its busiest rank: as the even one in which every rank moves as much.
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

/// The bytes of the even exchange that loads every rank as this one loads its busiest: w n/(n-1) for w bytes with others.
fn busiest(op: &Op, ranks: u32) -> Option<Bytes> {
    if op.collective != Collective::AllToAllV || op.splits == Splits::Equal || ranks < 2 {
        return None;
    }
    let with_others = op.geometry(ranks).ok()?.busiest_bytes_with_others()?;
    let whole = u128::from(with_others) * u128::from(ranks) / u128::from(ranks - 1);
    u64::try_from(whole).ok().map(Bytes)
}
