//! Calls under way, and messages between two ranks: for replaying a step, in which calls of many groups are active at once
//! (MPI-3.1 sections 3.7 and 5.12).

use super::counts::count;
use super::{Communicator, Datatype, check};
use commgauge_base::error::{Error, Result};
use mpi::ffi;
use std::ffi::c_int;

/// Tag of timed point-to-point messages, on communicators of their own.
pub(super) const TAG: c_int = 0;

/// A call under way: at most a sending and a receiving part.
#[derive(Debug)]
pub struct Request {
    pub(super) parts: [ffi::MPI_Request; 2],
}

impl Request {
    /// Nothing under way.
    pub fn none() -> Request {
        // SAFETY: reading a constant of the initialised library.
        Request { parts: [unsafe { ffi::RSMPI_REQUEST_NULL }; 2] }
    }

    /// Whether the call is done, and progress for all calls of the process (MPI-3.1 3.7.4).
    #[inline]
    pub fn test(&mut self) -> Result<bool> {
        let mut all_done = true;
        for part in &mut self.parts {
            let mut done: c_int = 0;
            // SAFETY: the handle is ours, null or of an active call; the status is not needed.
            check(unsafe { ffi::MPI_Test(part, &mut done, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Test")?;
            all_done &= done != 0;
        }
        Ok(all_done)
    }

    /// Waits until the call is complete; returns at once without an active call.
    #[inline]
    pub fn wait(&mut self) -> Result<()> {
        for part in &mut self.parts {
            // SAFETY: the handle is ours, null or of an active call; the status is not needed.
            check(unsafe { ffi::MPI_Wait(part, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Wait")?;
        }
        Ok(())
    }
}

/// A message to or from one rank, with everything but the address of its buffer.
#[derive(Debug)]
pub struct Message {
    count: c_int,
    datatype: ffi::MPI_Datatype,
    peer: c_int,
    tag: c_int,
    communicator: ffi::MPI_Comm,
}

impl Message {
    /// A message of this many elements to or from a rank of the communicator. Messages of one stream arrive in order.
    ///
    /// # Errors
    /// If a count exceeds the range of the C interface.
    pub fn new(
        elements: u64,
        datatype: Datatype,
        peer: u32,
        stream: u32,
        communicator: &Communicator,
    ) -> Result<Message> {
        let outside = || Error::usage(format!("stream {stream} between two stages is beyond what MPI can distinguish"));
        // 32767 is the smallest limit of tags that MPI allows (MPI-3.1 8.1.2); the shift of a ring has a reserved tag.
        let tag = Some(stream).filter(|stream| *stream < 32_767 - TAG as u32 - 1).ok_or_else(outside)? as c_int;
        Ok(Message {
            count: count(elements)?,
            datatype: datatype.raw(),
            peer: peer as c_int,
            tag: tag + TAG + 1,
            communicator: communicator.raw(),
        })
    }

    /// Elements that are handed to MPI.
    pub fn elements(&self) -> u64 {
        self.count as u64
    }

    /// Starts sending.
    ///
    /// # Safety
    /// As [`super::Prepared::start`]; other calls may read the buffer meanwhile.
    #[inline]
    pub unsafe fn start_sending(&self, buffer: *const u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Isend(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Isend")
    }

    /// Starts receiving.
    ///
    /// # Safety
    /// As [`super::Prepared::start`].
    #[inline]
    pub unsafe fn start_receiving(&self, buffer: *mut u8, request: &mut Request) -> Result<()> {
        let Message { count, datatype, peer, tag, communicator } = *self;
        // SAFETY: promised by the caller.
        let code =
            unsafe { ffi::MPI_Irecv(buffer.cast(), count, datatype, peer, tag, communicator, &mut request.parts[0]) };
        check(code, "MPI_Irecv")
    }
}
