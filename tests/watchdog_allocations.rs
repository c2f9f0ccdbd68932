//! A watched call allocates nothing in the timed loop. Alone in its program, because it counts every allocation of a thread.

#[path = "common/allocations.rs"]
mod allocations;

use allocations::ALLOCATIONS;
use commgauge::backend::{Call, Marks, Mismatch};
use commgauge::error::Result;
use commgauge::measure::stream;
use commgauge::progress::Progress;
use commgauge::watchdog::{CaseDeadlines, DeadlineFollows, WatchedCall};
use std::sync::Arc;
use std::time::Duration;

/// Does nothing, so that what is counted is the watch's.
struct Nothing;

impl Call for Nothing {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }
    fn enqueue(&mut self) -> Result<()> {
        Ok(())
    }
    fn reserve_marks(&mut self, _: usize) {}
    fn mark(&mut self) {}
    fn hold_until(&mut self, _: u64) -> bool {
        true
    }
    fn complete(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }
    fn read_marks(&self, _: &mut Marks) {}
    fn now_nanoseconds(&self) -> u64 {
        0
    }
    fn buffer_copies(&self) -> u32 {
        1
    }
    fn check(&mut self) -> Result<Option<Mismatch>> {
        Ok(None)
    }
    fn verifies(&self) -> bool {
        false
    }
    fn abort(&mut self) {}
}

#[test]
fn a_watched_call_allocates_nothing_in_the_timed_loop() {
    let progress = Arc::new(Progress::default());
    let second = Duration::from_secs(1);
    let deadlines = CaseDeadlines { call: second, preparation: second, follows: DeadlineFollows::MeasuredTimes };
    let mut call = WatchedCall::new(Box::new(Nothing), Arc::clone(&progress), deadlines);
    call.reserve_marks(101);
    let before = ALLOCATIONS.get();
    stream(&mut call, 100, 1_000, Duration::from_secs(1)).unwrap();
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(progress.shown().calls, 100_000);
    drop(Box::new(1));
    assert!(ALLOCATIONS.get() > before, "the count counts");
}
