//! Messages that PyTorch hands over in one batch (`batch_isend_irecv`): the profiler has a host event of each, and one event for all of them
//! on the device, `nccl:coalesced`, by whose external id the end of the batch on the host is found (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp
//! endCoalescing).

use crate::trace::trace_file::{ComputingSpan, FileCall};
use commgauge_base::units::Seconds;
use std::collections::HashMap;

/// How the events of a batch are named.
pub(super) const BATCH: &str = "nccl:coalesced";

/// A place in the order of what a thread of the host did: the thread, and when.
type Moment = (u64, u64);

#[derive(Default)]
pub(super) struct BatchedMessages {
    /// Calls whose own kernel is not known yet, by index.
    messages: Vec<(Moment, usize)>,
    /// External ids of batches, by when they were handed over.
    ends: Vec<(Moment, u64)>,
    on_device: HashMap<u64, ComputingSpan>,
}

impl BatchedMessages {
    /// Takes note of a message that the host handed over.
    pub(super) fn take_message(&mut self, thread: u64, nanoseconds: u64, call: usize) {
        self.messages.push(((thread, nanoseconds), call));
    }

    /// Takes note of the end of a batch on the host.
    pub(super) fn take_end(&mut self, thread: u64, nanoseconds: u64, external_id: u64) {
        self.ends.push(((thread, nanoseconds), external_id));
    }

    /// Takes note of when the device carried a batch out.
    pub(super) fn take_span(&mut self, external_id: u64, span: ComputingSpan) {
        self.on_device.insert(external_id, span);
    }

    /// Gives messages without a kernel of their own the time of their batch: the next one that their thread handed over.
    pub(super) fn give_times(mut self, calls: &mut [FileCall]) {
        self.ends.sort_unstable();
        for ((thread, nanoseconds), at) in self.messages {
            let call = &mut calls[at];
            let next = self.ends.partition_point(|(moment, _)| *moment < (thread, nanoseconds));
            let end = self.ends.get(next).filter(|((of, _), _)| *of == thread);
            let (None, Some(span)) = (call.duration, end.and_then(|(_, id)| self.on_device.get(id))) else { continue };
            call.duration = Some(Seconds((span.end - span.start) as f64 * 1e-9));
            call.detail.begin_nanoseconds = Some(span.start);
        }
    }
}
