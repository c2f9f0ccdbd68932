//! CUDA graphs: work that a stream captured once, launched again and again.
//!
//! Captured thread-local, as nccl-tests and PyTorch do: NCCL connects ranks from its own threads, whose calls must not
//! invalidate the capture (CUDA driver API, 6.18, `cuThreadExchangeStreamCaptureMode`).

use super::driver::{CUstream, check};
use super::driver_calls as calls;
use commgauge_base::error::{Error, Result};
use cudarc::driver::sys;
use std::ptr::null_mut;

/// The first driver that instantiates graphs in the way that is used here (`cuGraphInstantiateWithFlags`).
pub(super) const FIRST_DRIVER: (i32, i32) = (11, 4);

/// A graph that can be launched; destroyed on drop. It must be dropped before the communicators whose calls it
/// contains.
pub(super) struct Graph {
    executable: sys::CUgraphExec,
}

impl Graph {
    /// Captures what is enqueued on a stream meanwhile; nothing of it is carried out.
    pub fn capture(stream: CUstream, enqueue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        check(unsafe { calls::cuStreamBeginCapture_v2(stream, mode) }, "cuStreamBeginCapture")?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        // SAFETY: the stream is capturing since the call above; the handle is a local variable. Needed after an error
        // too, or the stream would keep capturing.
        let ended = check(unsafe { calls::cuStreamEndCapture(stream, &mut graph) }, "cuStreamEndCapture");
        enqueued.and(ended)?;
        if graph.is_null() {
            return Err(Error::environment("cuStreamEndCapture gave no graph"));
        }
        let mut executable = null_mut();
        // SAFETY: the graph was just made, the handle is ours, no flags; the graph is not used afterwards, which the executable survives
        // (CUDA driver API, 6.20).
        let instantiated = unsafe {
            let code = calls::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            let _ = calls::cuGraphDestroy(graph);
            check(code, "cuGraphInstantiate")
        };
        instantiated.map(|()| Graph { executable })
    }

    /// Enqueues the whole graph on a stream.
    #[inline(always)]
    pub fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: the graph lives and so does the stream.
        check(unsafe { calls::cuGraphLaunch(self.executable, stream) }, "cuGraphLaunch")
    }

    /// Uploads it to the device, so that the first launch takes no longer than the others.
    pub fn upload(&self, stream: CUstream) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { calls::cuGraphUpload(self.executable, stream) }, "cuGraphUpload")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again; one that still runs is freed when it is done (CUDA driver API, 6.20).
        let _ = unsafe { calls::cuGraphExecDestroy(self.executable) };
    }
}
