//! Holding a stream until an agreed moment, so that what is enqueued meanwhile starts then and its enqueueing is in no time.
//!
//! A kernel of one thread looks at a word that host and device share. The host enqueues everything behind it, waits until the moment
//! on its own clock, and writes the word: the stream goes on when the device has seen it, which is about a microsecond later on
//! every rank alike, and the mark behind the hold says when it was.

use super::driver::{self, CUdeviceptr, CUstream};
use super::kernels::Kernels;
use crate::error::Result;
use crate::host_clock;

/// A held kernel goes on by itself after this time: a host that dies must leave none behind.
const LONGEST_HOLD_NANOSECONDS: u64 = 30_000_000_000;

/// The last stretch before a start, in which the processor is not given away.
const SPUN_NANOSECONDS: u64 = 100_000;

/// The word, and what is held.
pub(super) struct Hold {
    word: *mut u32,
    word_on_device: CUdeviceptr,
    late_on_device: CUdeviceptr,
    ticket: u32,
    /// The moment at which the stream goes on, and when enqueueing behind the hold began.
    pending: Option<(u64, u64)>,
    /// What enqueueing behind a hold took lately, at most.
    enqueue_nanoseconds: u64,
    came_late: bool,
}

impl Hold {
    pub fn new() -> Result<Hold> {
        let (word, word_on_device) = driver::allocate_shared(4)?;
        let word: *mut u32 = word.cast();
        // SAFETY: four bytes of ours that no kernel looks at yet.
        unsafe { word.write_volatile(0) };
        let late_on_device = driver::allocate(4)?;
        Ok(Hold {
            word,
            word_on_device,
            late_on_device,
            ticket: 0,
            pending: None,
            enqueue_nanoseconds: 0,
            came_late: false,
        })
    }

    /// Holds the stream until a moment on the host's clock, or moves the moment of a hold that is there. False where that moment is so
    /// near that enqueueing would not be done by then.
    pub fn until(&mut self, start_nanoseconds: u64, kernels: &Kernels, stream: CUstream) -> Result<bool> {
        self.came_late = false;
        let now = host_clock::now_nanoseconds();
        if let Some((start, _)) = &mut self.pending {
            *start = start_nanoseconds;
            return Ok(now < start_nanoseconds);
        }
        if now + self.enqueue_nanoseconds >= start_nanoseconds {
            // Forgotten by and by: one slow moment must not make all later starts be missed.
            self.enqueue_nanoseconds -= self.enqueue_nanoseconds / 16;
            return Ok(false);
        }
        self.ticket = self.ticket.wrapping_add(1);
        let addresses = (self.word_on_device, self.late_on_device);
        // SAFETY: both words are this value's, which lives as long as the backend.
        unsafe { kernels.hold_for_flag(addresses, self.ticket, LONGEST_HOLD_NANOSECONDS, stream)? };
        self.pending = Some((start_nanoseconds, now));
        Ok(true)
    }

    /// Lets the stream go at its moment, if it is held.
    pub fn release(&mut self) {
        let Some((start, begun)) = self.pending.take() else { return };
        let now = host_clock::now_nanoseconds();
        self.enqueue_nanoseconds = (now - begun).max(self.enqueue_nanoseconds - self.enqueue_nanoseconds / 64);
        self.came_late = now > start;
        while let Some(left) = start.checked_sub(host_clock::now_nanoseconds()) {
            // Others may need the processor; the last stretch is kept for a start on time.
            if left > SPUN_NANOSECONDS { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.write();
    }

    /// Lets the stream go at once, where something went wrong.
    pub fn give_up(&mut self) {
        if self.pending.take().is_some() {
            self.write();
        }
    }

    fn write(&self) {
        // SAFETY: four bytes of ours that the device only reads.
        unsafe { self.word.write_volatile(self.ticket) };
    }

    /// Whether the last hold ended after its moment because enqueueing took longer.
    pub fn came_late(&self) -> bool {
        self.came_late
    }
}
