//! The timeline of events, and how it maps to the host's clock.
//!
//! An event is recorded on an idle stream between two readings of the host's clock, so its time is between them. The
//! closest of several attempts anchors all later events, and anchors far apart show how much faster one clock runs
//! than the other.

use super::driver::{self, CUevent, CUstream};
use commgauge_base::error::Result;
use commgauge_base::host_clock;

/// Tries for an anchor, of which the closest counts.
const TRIES: usize = 6;
/// Documented resolution of `cuEventElapsedTime`.
pub(super) const EVENT_RESOLUTION_NANOSECONDS: u64 = 500;
/// Anchors closer together than this cannot determine the rate.
const SHORTEST_BASE_NANOSECONDS: f64 = 1e9;

/// One event whose time is known on both clocks.
#[derive(Clone, Copy)]
struct Anchor {
    event: CUevent,
    host_nanoseconds: u64,
    /// Half the time between the two readings: the maximum error of the event's time.
    error_nanoseconds: u64,
}

/// The device's clock as seen from the host.
pub(super) struct DeviceClock {
    events: [CUevent; TRIES + 2],
    first: Option<Anchor>,
    latest: Option<Anchor>,
    /// Host nanoseconds for each nanosecond of the device.
    rate: f64,
}

impl DeviceClock {
    pub fn new() -> Result<DeviceClock> {
        let mut events = [std::ptr::null_mut(); TRIES + 2];
        for event in &mut events {
            *event = driver::create_event()?;
        }
        Ok(DeviceClock { events, first: None, latest: None, rate: 1.0 })
    }

    /// Anchors the time line anew; the stream must be idle.
    pub fn anchor(&mut self, stream: CUstream) -> Result<()> {
        let mut best: Option<(usize, Anchor)> = None;
        // The slot of the very first anchor stays in use, and so does that of the closest anchor so far.
        let mut free: Vec<usize> = (usize::from(self.first.is_some())..self.events.len()).collect();
        for _ in 0..TRIES {
            let place = free.remove(0);
            let event = self.events[place];
            let before = host_clock::now_nanoseconds();
            driver::record(event, stream)?;
            while !driver::is_recorded(event)? {
                std::thread::yield_now();
            }
            let error_nanoseconds = (host_clock::now_nanoseconds() - before) / 2;
            let anchor = Anchor { event, host_nanoseconds: before + error_nanoseconds, error_nanoseconds };
            match best {
                Some((_, closest)) if closest.error_nanoseconds <= error_nanoseconds => free.push(place),
                Some((other, _)) => {
                    free.push(other);
                    best = Some((place, anchor));
                }
                None => best = Some((place, anchor)),
            }
        }
        let Some((place, anchor)) = best else { return Ok(()) };
        self.latest = Some(anchor);
        let Some(first) = self.first else {
            // The closest anchor keeps its event in the first slot, which no later attempt uses.
            self.events.swap(0, place);
            self.first = Some(anchor);
            return Ok(());
        };
        let on_device = driver::nanoseconds_between(first.event, anchor.event)?;
        if on_device >= SHORTEST_BASE_NANOSECONDS {
            self.rate = (anchor.host_nanoseconds - first.host_nanoseconds) as f64 / on_device;
        }
        Ok(())
    }

    /// The times of events in the order in which they were recorded, on the host's clock.
    ///
    /// Each time is computed from the previous event: the driver returns differences as 32-bit floats, which are too
    /// short for a whole batch.
    pub fn times(&self, events: &[CUevent], nanoseconds: &mut Vec<u64>) -> Result<()> {
        let Some(anchor) = self.latest else { return Ok(()) };
        let (mut before, mut since) = (anchor.event, 0.0);
        for event in events {
            since += driver::nanoseconds_between(before, *event)? * self.rate;
            before = *event;
            nanoseconds.push(anchor.host_nanoseconds.saturating_add_signed(since.round() as i64));
        }
        Ok(())
    }

    /// Maximum error of times since the latest anchor: its own, and the step in which events tell the time.
    pub fn error_nanoseconds(&self) -> u64 {
        self.latest.map_or(0, |anchor| anchor.error_nanoseconds + EVENT_RESOLUTION_NANOSECONDS)
    }
}
