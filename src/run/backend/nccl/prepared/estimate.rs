//! NCCL's own estimate of the time of a call, and for which calls it exists.

use super::Prepared;
use super::kinds::{Kind, Part};
use crate::backend::nccl::abi::SimulationInfo;
use commgauge_base::error::Result;
use std::ffi::c_int;

/// `ncclGroupSimulateEnd`.
type SimulateEnd = unsafe extern "C" fn(*mut SimulationInfo) -> c_int;

impl Prepared {
    /// Whether NCCL can estimate the call. Not messages: NCCL has no estimate of them, and whatever a simulated group
    /// leaves in the queues of its peers would be executed by the next group (`src/include/group.h`,
    /// `ncclGroupCommJoin`). Nor calls of one rank, which it executes at once (`src/enqueue.cc`, `taskAppend`).
    pub fn is_estimated(&self) -> bool {
        self.is_estimated
    }

    /// NCCL's estimate of the time of a group of calls, in microseconds; none of them is executed.
    pub fn simulated(&self, end: SimulateEnd, calls: impl FnOnce() -> Result<()>) -> Result<f32> {
        let library = self.library;
        // SAFETY: has no arguments, and is ended below.
        library.check(unsafe { (library.call.group_start)() }, "ncclGroupStart")?;
        let called = calls();
        let mut info = SimulationInfo::empty();
        // SAFETY: the group was started above, the structure is ours. Also after an error, or the group would stay open.
        let ended = library.check(unsafe { end(&mut info) }, "ncclGroupSimulateEnd");
        called.and(ended).map(|()| info.estimated_microseconds)
    }
}

impl Kind {
    /// Whether NCCL carries it without sends and receives, which all_to_all, gather and scatter are to it as well.
    pub(super) fn is_built_from_collectives(&self) -> bool {
        match self {
            Kind::AllReduce { .. }
            | Kind::AllGather { .. }
            | Kind::ReduceScatter { .. }
            | Kind::Broadcast { .. }
            | Kind::Reduce { .. } => true,
            Kind::Group(pieces) => pieces.iter().all(|piece| matches!(piece.what, Part::Reduce { .. })),
            Kind::AllToAll { .. } | Kind::Gather { .. } | Kind::Scatter { .. } | Kind::Turns(_) | Kind::Nothing => {
                false
            }
        }
    }
}
