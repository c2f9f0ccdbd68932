//! The first call of a kind on a communicator, made within a deadline. From NCCL 2.22 on ranks connect in it, on the thread that calls,
//! which waits there for the others: one that never comes would hold this thread for ever, before any stream could be looked at.

use super::abi::{RawCommunicator, RawStream};
use super::communicator::{Communicator, Maker};
use super::prepared::Prepared;
use commgauge_base::error::{Error, Result};
use std::sync::Arc;

/// A call with its buffers, on its way to the thread that makes it.
pub(super) struct FirstCall {
    prepared: Arc<Prepared>,
    send: u64,
    receive: u64,
    stream: RawStream,
}

/// A call and the communicator on which it is made.
struct Made(FirstCall, RawCommunicator);
// SAFETY: NCCL and the driver take their handles from any thread, from one at a time: the other waits meanwhile, or the launch ends.
unsafe impl Send for Made {}

impl FirstCall {
    /// A call on buffers and a stream.
    ///
    /// # Safety
    /// As [`Prepared::issue`], also after a hang: buffers and stream are not freed while the process lives.
    pub unsafe fn new(prepared: &Arc<Prepared>, send: u64, receive: u64, stream: RawStream) -> FirstCall {
        FirstCall { prepared: prepared.clone(), send, receive, stream }
    }

    /// Enqueues the call. `what` names it in errors.
    ///
    /// # Errors
    /// A hang after the deadline for communicators, and what the call returns; both with the place.
    pub fn make(self, maker: &Maker, communicator: &Communicator, what: &str) -> Result<()> {
        let made = Made(self, communicator.raw());
        let issued = maker.in_time(&format!("the first {what}"), maker.deadline, move || {
            let Made(call, raw) = { made };
            // SAFETY: promised by whoever made the call.
            unsafe { call.prepared.issue(call.send, call.receive, raw, call.stream) }
        })?;
        communicator.note_use();
        issued.map_err(|error| Error::from_exit_code(error.exit_code(), format!("{}: {what}: {error}", maker.place)))
    }
}
