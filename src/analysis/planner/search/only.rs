//! The parts of a layout that are given, each as the values that are accepted.

use commgauge_model::config::step::{Recompute, ScheduleKind};
use commgauge_model::layout::{Axis, Degrees};

/// The accepted values of each choice of a layout; none is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Tensor parallel.
    pub tp: Vec<u32>,
    /// Context parallel.
    pub cp: Vec<u32>,
    /// Expert parallel.
    pub ep: Vec<u32>,
    /// Tensor parallel within experts; where none is given, tp where experts are not divided by ep, and 1 otherwise.
    pub etp: Vec<u32>,
    /// Order of the passes; where none is given, 1F1B and interleaved.
    pub schedule: Vec<ScheduleKind>,
    /// Pipeline parallel.
    pub pp: Vec<u32>,
    /// Chunks on each rank.
    pub virtual_stages: Vec<u32>,
    /// Data parallel.
    pub dp: Vec<u32>,
    /// 0 to 3.
    pub zero_stage: Vec<u8>,
    /// Samples of a micro-batch.
    pub micro_batch: Vec<u64>,
    /// What is computed again.
    pub recompute: Vec<Recompute>,
    /// The axes, the fastest varying first.
    pub order: Vec<Vec<Axis>>,
}

/// Whether a choice is free, or among those accepted.
pub(super) fn accepts<T: PartialEq>(only: &[T], value: &T) -> bool {
    only.is_empty() || only.contains(value)
}

impl Only {
    /// Whether anything is given.
    pub fn is_anything(&self) -> bool {
        *self != Only::default()
    }

    /// Whether degrees are as given.
    pub(super) fn allows(&self, degrees: &Degrees) -> bool {
        accepts(&self.tp, &degrees.tp)
            && accepts(&self.cp, &degrees.cp)
            && accepts(&self.ep, &degrees.ep)
            && accepts(&self.etp, &degrees.etp)
            && accepts(&self.pp, &degrees.pp)
            && accepts(&self.dp, &degrees.dp)
    }

    /// Whether an order of the axes above degree 1 matches a given one; axes of degree 1 may be anywhere in that.
    pub(super) fn order_is(&self, order: &[Axis]) -> bool {
        let matches = |only: &Vec<Axis>| only.iter().filter(|axis| order.contains(axis)).eq(order.iter());
        self.order.is_empty() || self.order.iter().any(matches)
    }
}
