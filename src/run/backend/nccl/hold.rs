//! Blocking a stream until an agreed time, so that everything enqueued meanwhile starts then and the time to enqueue
//! it is not measured.
//!
//! A kernel of one thread polls a word that host and device share. The host enqueues everything behind it, waits for
//! the agreed time on its own clock, and writes the word. The stream continues when the device has seen the write,
//! about a microsecond later on every rank, and the mark behind the hold kernel records when that was.

use super::driver::{self, CUdeviceptr, CUstream};
use super::kernels::Kernels;
use commgauge_base::error::Result;
use commgauge_base::host_clock;

/// The kernel ends by itself after this time, so that a host that dies leaves none behind.
const LONGEST_HOLD_NANOSECONDS: u64 = 30_000_000_000;

/// The last stretch before a start, in which the processor is not given away.
const SPUN_NANOSECONDS: u64 = 100_000;

/// The shared word, and the state of the blocked stream.
pub(super) struct Hold {
    word: *mut u32,
    word_on_device: CUdeviceptr,
    /// Written by a kernel that gave up before it was released.
    late: *mut u32,
    late_on_device: CUdeviceptr,
    ticket: u32,
    /// The time at which the stream shall continue, and when enqueueing behind the hold began.
    pending: Option<(u64, u64)>,
    /// Recent maximum of the time to enqueue behind a hold.
    enqueue_nanoseconds: u64,
    started_late: bool,
}

impl Hold {
    pub fn new() -> Result<Hold> {
        let ((word, word_on_device), (late, late_on_device)) = (shared_word()?, shared_word()?);
        Ok(Hold {
            word,
            word_on_device,
            late,
            late_on_device,
            ticket: 0,
            pending: None,
            enqueue_nanoseconds: 0,
            started_late: false,
        })
    }

    /// Blocks the stream until a time on the host's clock, or moves the time of a pending hold. False if that time is
    /// too near for enqueueing to finish before it.
    pub fn until(&mut self, start_nanoseconds: u64, kernels: &Kernels, stream: CUstream) -> Result<bool> {
        self.started_late = false;
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
        self.block(kernels, stream)?;
        self.pending = Some((start_nanoseconds, now));
        Ok(true)
    }

    /// Blocks the stream until [`Hold::release_now`].
    pub fn until_released(&mut self, kernels: &Kernels, stream: CUstream) -> Result<()> {
        let now = host_clock::now_nanoseconds();
        self.block(kernels, stream)?;
        self.pending = Some((now, now));
        Ok(())
    }

    fn block(&mut self, kernels: &Kernels, stream: CUstream) -> Result<()> {
        self.ticket = self.ticket.wrapping_add(1);
        // SAFETY: four bytes of ours; the kernel that wrote them last is done, as one hold is waited for before the next.
        unsafe { self.late.write_volatile(0) };
        let (word, late) = (self.word_on_device, self.late_on_device);
        // SAFETY: both words are this value's, which lives as long as the backend.
        unsafe { kernels.hold_for_flag(word, late, self.ticket, LONGEST_HOLD_NANOSECONDS, stream) }
    }

    /// Releases the stream at the agreed time, if it is blocked.
    pub fn release(&mut self) {
        let Some((start, begun)) = self.pending.take() else { return };
        let now = host_clock::now_nanoseconds();
        self.enqueue_nanoseconds = (now - begun).max(self.enqueue_nanoseconds - self.enqueue_nanoseconds / 64);
        self.started_late = now > start;
        while let Some(left) = start.checked_sub(host_clock::now_nanoseconds()) {
            // Other processes may need the processor; the last stretch is spent spinning, for a start on time.
            if left > SPUN_NANOSECONDS { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.write();
    }

    /// Releases the stream at once, if it is blocked.
    pub fn release_now(&mut self) {
        if self.pending.take().is_some() {
            self.write();
        }
    }

    fn write(&self) {
        // SAFETY: four bytes of ours that the device only reads.
        unsafe { self.word.write_volatile(self.ticket) };
    }

    /// Whether the last hold ended after its time because enqueueing took longer, or before it because its kernel gave up: while the host
    /// was stopped, or waited itself for something behind the kernel. Asked when the stream is done.
    pub fn started_late(&self) -> bool {
        self.started_late || self.gave_up()
    }

    /// Whether the kernel of the last hold gave up. Asked when the stream is done.
    pub fn gave_up(&self) -> bool {
        // SAFETY: four bytes of ours; the kernel that writes them is done.
        unsafe { self.late.read_volatile() != 0 }
    }
}

/// A word that host and device share, 0 at first.
fn shared_word() -> Result<(*mut u32, CUdeviceptr)> {
    let (word, on_device) = driver::allocate_shared(4)?;
    let word: *mut u32 = word.cast();
    // SAFETY: four bytes of ours that no kernel looks at yet.
    unsafe { word.write_volatile(0) };
    Ok((word, on_device))
}
