//! The host's monotonic clock, the only clock used for durations.

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Nanoseconds on this host's monotonic clock. All processes of one boot of one host read the same clock.
#[inline]
pub fn now_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Readings of the clock with room made beforehand, so that taking one is a call of the clock and a store.
#[derive(Clone, Debug, Default)]
pub struct Readings(Vec<u64>);

impl Readings {
    /// Reserves memory and drops the old readings.
    pub fn reserve(&mut self, readings: usize) {
        self.0.clear();
        self.0.reserve(readings);
    }

    /// Takes a reading.
    #[inline]
    pub fn take(&mut self) {
        self.0.push(now_nanoseconds());
    }

    /// Copies all readings, in nanoseconds.
    pub fn copy_to(&self, nanoseconds: &mut Vec<u64>) {
        nanoseconds.clone_from(&self.0);
    }
}

/// The clock's own statement of its resolution in nanoseconds.
pub fn stated_resolution_nanoseconds() -> u64 {
    let resolution = clock_getres(ClockId::Monotonic);
    resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64
}

/// The smallest step seen between consecutive readings that differ, which is what a timed loop can resolve.
pub fn seen_resolution_nanoseconds() -> u64 {
    let mut smallest = u64::MAX;
    for _ in 0..1000 {
        let first = now_nanoseconds();
        let mut second = now_nanoseconds();
        while second == first {
            second = now_nanoseconds();
        }
        smallest = smallest.min(second - first);
    }
    smallest.max(stated_resolution_nanoseconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_stored_in_order_and_dropped_by_the_next_reservation() {
        let (mut readings, mut seen) = (Readings::default(), Vec::new());
        for count in [3, 1] {
            readings.reserve(count);
            (0..count).for_each(|_| readings.take());
            readings.copy_to(&mut seen);
            assert_eq!(seen.len(), count);
            assert!(seen.is_sorted() && seen[0] > 0, "{seen:?}");
        }
    }

    #[test]
    fn the_clock_moves_forward_and_states_a_resolution() {
        let first = now_nanoseconds();
        assert!(now_nanoseconds() >= first);
        assert!(seen_resolution_nanoseconds() > 0);
    }
}
