//! The captured graphs of a call, and the copies of its buffers through which they can rotate.

use super::driver::{self, CUstream, check};
use crate::backend::mpi::Rotation;
use commgauge_base::error::{Error, Result};
use commgauge_base::variant::Variant;
use cudarc::driver::sys;
use std::ptr::null_mut;

/// Maximum number of graphs: they contain the addresses of buffers, so rotating through many copies takes many.
const MOST_GRAPHS: u64 = 64;

/// Rotation through copies of the buffers that together exceed the cache, limited by the number of graphs of a case.
/// One copy serves all calls of a group.
pub(super) fn rotation(buffer_bytes: u64, cold_bytes: u64, variant: Variant) -> Rotation {
    let stride_bytes = Rotation::new(buffer_bytes, 0).stride_bytes;
    let copy_bytes = stride_bytes.saturating_mul(u64::from(variant.aggregate));
    let most_copies = variant.calls_in_a_graph().map_or(u64::MAX, |calls| MOST_GRAPHS * u64::from(calls));
    Rotation::new(copy_bytes, cold_bytes.min(copy_bytes.saturating_mul(most_copies)))
}

/// Rotation through as many copies as fit into this many bytes, as nccl-tests walks through the buffers of its largest size (`startColl` of
/// its `src/common.cu`), limited as above.
pub(super) fn rotation_within(buffer_bytes: u64, within_bytes: u64, variant: Variant) -> Rotation {
    let copy_bytes = Rotation::new(buffer_bytes, 0).stride_bytes.saturating_mul(u64::from(variant.aggregate));
    let most_copies = variant.calls_in_a_graph().map_or(u64::MAX, |calls| MOST_GRAPHS * u64::from(calls));
    Rotation::within(copy_bytes, within_bytes.min(copy_bytes.saturating_mul(most_copies)))
}

/// The captured graphs of a call.
pub(super) struct Graphs {
    /// Calls, or groups of calls, per graph.
    pub(super) calls: u32,
    /// Number of graphs needed to go through all copies of the buffers.
    pub(super) wanted: usize,
    /// The graphs of the timed loop; each continues the rotation of the one before.
    pub(super) captured: Vec<Graph>,
    /// The copy of the first call of the first graph.
    pub(super) first_copy: u64,
    next: usize,
    /// The graph with producers and comparisons.
    pub(super) checked: Option<Graph>,
}

impl Graphs {
    pub(super) fn of(calls: u32, copies: u64) -> Graphs {
        let wanted = copies.div_ceil(u64::from(calls)).clamp(1, MOST_GRAPHS) as usize;
        Graphs { calls, wanted, captured: Vec::with_capacity(wanted), first_copy: 0, next: 0, checked: None }
    }

    /// Restarts with the first graph, as all copies are filled again.
    pub(super) fn restart(&mut self) {
        self.next = 0;
    }

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

// CUDA graphs: work that a stream captured once, launched again and again.
//
// Captured thread-local, as nccl-tests and PyTorch do: NCCL connects ranks from its own threads, whose calls must not
// invalidate the capture (CUDA driver API, 6.18, `cuThreadExchangeStreamCaptureMode`).

/// The first driver with `cuGraphInstantiateWithFlags`, which is used here.
pub(super) const FIRST_DRIVER: (i32, i32) = (11, 4);

/// A graph that can be launched; destroyed on drop. It must be dropped before the communicators whose calls it
/// contains.
pub(super) struct Graph {
    executable: sys::CUgraphExec,
}

impl Graph {
    /// Captures what is enqueued on a stream meanwhile, without executing it.
    pub fn capture(stream: CUstream, enqueue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        check(unsafe { driver::cuStreamBeginCapture_v2(stream, mode) }, "cuStreamBeginCapture")?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        // SAFETY: the stream is capturing since the call above; the handle is a local variable. Needed after an error
        // too, or the stream would keep capturing.
        let ended = check(unsafe { driver::cuStreamEndCapture(stream, &mut graph) }, "cuStreamEndCapture");
        enqueued.and(ended)?;
        if graph.is_null() {
            return Err(Error::environment("cuStreamEndCapture gave no graph"));
        }
        let mut executable = null_mut();
        // SAFETY: the graph was just made, the handle is ours, no flags; the graph is not used afterwards, which the executable graph does
        // not need (CUDA driver API, 6.20).
        let instantiated = unsafe {
            let code = driver::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            let _ = driver::cuGraphDestroy(graph);
            check(code, "cuGraphInstantiate")
        };
        instantiated.map(|()| Graph { executable })
    }

    /// Enqueues the whole graph on a stream.
    #[inline(always)]
    pub fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: the graph lives and so does the stream.
        check(unsafe { driver::cuGraphLaunch(self.executable, stream) }, "cuGraphLaunch")
    }

    /// Uploads it to the device, so that the first launch takes no longer than the others.
    pub fn upload(&self, stream: CUstream) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { driver::cuGraphUpload(self.executable, stream) }, "cuGraphUpload")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again; a running graph is freed when it completes (CUDA driver API, 6.20).
        let _ = unsafe { driver::cuGraphExecDestroy(self.executable) };
    }
}
