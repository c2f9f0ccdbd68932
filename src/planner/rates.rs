//! What a call takes, from whatever is known of the machine: a fit, a machine file, or a fit with a machine file for what it
//! does not hold.
//!
//! Every answer says on what ground it stands. What nobody measured and no file tells is refused.

mod both;
mod fitted;
mod hidden;
mod nearest;
mod observed;
mod published;
#[cfg(test)]
mod tests;

pub use both::Both;
pub use fitted::Fitted;
pub use hidden::Hidden;
pub use observed::{Observed, ObservedCall};
pub use published::Published;

use crate::collective::Collective;
use crate::cost::{Coefficient, Prediction};
use crate::element::ElementType;
use crate::geometry::Splits;
use crate::layout::Locality;
use crate::sample::Cadence;
use crate::units::Bytes;
use crate::workload::Op;

/// A call to be priced.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedCall {
    /// What is called.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Ranks of a group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// How the groups lie on the hosts, all at work at the same time.
    pub locality: Locality,
    /// What is timed; streaming where both are known and nothing is said.
    pub cadence: Option<Cadence>,
}

/// What a call takes.
pub trait Rates: Sync {
    /// Seconds of one call, or why there is no answer. Takes about a microsecond, and allocates only to say why not.
    fn price(&self, call: &RatedCall) -> Prediction;

    /// How many times as long a message between stages that lie so takes while another comes the opposite way; `None` where
    /// nobody measured it.
    fn both_ways(&self, _locality: &Locality) -> Option<Coefficient> {
        None
    }

    /// On what the answer to a call stands, in words: the curve it was read from and how it was carried over, or the links.
    fn ground(&self, call: &RatedCall) -> String;

    /// How much slower calls are while something hides them, where anything is known of that.
    fn hidden(&self) -> Option<&Hidden> {
        None
    }

    /// True where every answer comes from measurements; false where some come from published rates.
    fn calibrated(&self) -> bool;

    /// True where the measurements were synthetic, and with them everything that follows.
    fn synthetic(&self) -> bool;

    /// What is asked, for headings: a file or a machine.
    fn name(&self) -> String;
}

impl RatedCall {
    /// The call of an op in groups of `ranks` ranks that lie so.
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
