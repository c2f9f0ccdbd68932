//! The captured graphs of a call, and the copies of its buffers through which they can rotate.

use super::driver::CUstream;
use super::graph::Graph;
use crate::backend::mpi::Rotation;
use commgauge_base::error::{Error, Result};
use commgauge_base::variant::Variant;

/// Graphs contain the addresses of buffers, so rotating through many copies takes many graphs; this is the maximum.
const MOST_GRAPHS: u64 = 64;

/// Rotation through copies of the buffers that together exceed the cache, limited by the number of graphs of a case.
/// One copy serves all calls of a group.
pub(super) fn rotation(buffer_bytes: u64, cold_bytes: u64, variant: Variant) -> Rotation {
    let stride_bytes = Rotation::new(buffer_bytes, 0).stride_bytes;
    let copy_bytes = stride_bytes.saturating_mul(u64::from(variant.aggregate));
    let most_copies = variant.calls_in_a_graph().map_or(u64::MAX, |calls| MOST_GRAPHS * u64::from(calls));
    Rotation::new(copy_bytes, cold_bytes.min(copy_bytes.saturating_mul(most_copies)))
}

/// Rotation through as many copies as fit into so many bytes, as nccl-tests walks through the buffers of its largest size (`startColl` of
/// its `src/common.cu`), limited as above.
pub(super) fn rotation_within(buffer_bytes: u64, within_bytes: u64, variant: Variant) -> Rotation {
    let copy_bytes = Rotation::new(buffer_bytes, 0).stride_bytes.saturating_mul(u64::from(variant.aggregate));
    let most_copies = variant.calls_in_a_graph().map_or(u64::MAX, |calls| MOST_GRAPHS * u64::from(calls));
    Rotation::within(copy_bytes, within_bytes.min(copy_bytes.saturating_mul(most_copies)))
}

/// The captured graphs of a call.
pub(super) struct Graphs {
    /// Calls, or groups of them, in each.
    pub(super) calls: u32,
    /// Number of graphs needed to go through all copies of the buffers.
    pub(super) wanted: usize,
    /// The graphs of the timed loop, which go on from one another through the copies.
    pub(super) captured: Vec<Graph>,
    /// The copy of the first call in the first of them.
    pub(super) first_copy: u64,
    next: usize,
    /// The one with producers and comparisons.
    pub(super) checked: Option<Graph>,
}

impl Graphs {
    pub(super) fn of(calls: u32, copies: u64) -> Graphs {
        let wanted = copies.div_ceil(u64::from(calls)).clamp(1, MOST_GRAPHS) as usize;
        Graphs { calls, wanted, captured: Vec::with_capacity(wanted), first_copy: 0, next: 0, checked: None }
    }

    /// Begins again with the first graph, as all copies are filled anew.
    pub(super) fn restart(&mut self) {
        self.next = 0;
    }

    /// Calls after which the graphs repeat themselves.
    pub(super) fn period(&self) -> u64 {
        u64::from(self.calls) * self.captured.len() as u64
    }

    #[inline]
    pub(super) fn launch(&mut self, stream: CUstream) -> Result<()> {
        let Some(graph) = self.captured.get(self.next) else {
            return Err(Error::environment("a graph is launched before marks were reserved"));
        };
        self.next = if self.next + 1 == self.captured.len() { 0 } else { self.next + 1 };
        graph.launch(stream)
    }
}
