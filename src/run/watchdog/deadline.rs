//! Default deadlines for how long a rank may stay in one operation. Pure functions.
//!
//! A deadline is for detecting hangs, not slowness: a rank that is ten times slower than the others must not trigger
//! it. So it is many times the expected time, and never short.

use crate::backend::{Call, Marks, Mismatch, SETUP_OF_EACH_RANK};
use crate::world::{Located, World};
use commgauge_base::error::Result;
use commgauge_base::progress::{Doing, Progress};
use commgauge_base::units::Seconds;
use commgauge_base::variant::LibraryChoice;
use commgauge_model::workload::{Case, ProductShape};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Deadline before and after the cases of few ranks, which many exceed.
const SETUP: Duration = Duration::from_secs(120);

/// Deadline before and after the cases, and of the first call of a case.
pub(super) fn setup_deadline(ranks: u32) -> Duration {
    SETUP + SETUP_OF_EACH_RANK * ranks
}

/// Minimum deadline of MPI finalisation, also if the user set a shorter one for everything.
const SHORTEST_END: Duration = Duration::from_secs(10);

/// Minimum time of silence of another host: longer than its ranks need to notice, and to agree, that only its collector is silent.
const SHORTEST_OF_HOST: Duration = Duration::from_secs(8);

/// Preparation time of a case regardless of its size: as many buffers as fill the caches, connections, code on a device.
const PREPARATION: Duration = Duration::from_secs(5);

/// Minimum deadline of a call or a wait.
const SHORTEST: Duration = Duration::from_secs(30);

/// Multiple of the expected or measured time of a call.
const FACTOR: f64 = 20.0;

/// Pessimistic speed of a host, used before anything is measured.
const CAUTIOUS_BYTES_PER_SECOND: f64 = 0.5e9;

const CAUTIOUS_OPERATIONS_PER_SECOND: f64 = 1e9;

/// Deadline of a call of a case before its time is known.
pub fn deadline_of_case(case: &Case) -> Duration {
    of_seconds(seconds_to_move(case))
}

/// Deadline of allocating, filling and checking the buffers of a case and of its first call, for which ranks wait for each other. A user's
/// deadline for everything is extended by the time for the bytes.
pub fn deadline_of_preparation(case: &Case, ranks: u32, timeout: Option<Duration>) -> Duration {
    match timeout {
        None => deadline_of_case(case).max(setup_deadline(ranks)),
        Some(timeout) => timeout + PREPARATION + at_most(FACTOR * seconds_to_move(case)),
    }
}

fn seconds_to_move(case: &Case) -> f64 {
    case.op.bytes_total.0 as f64 * f64::from(case.variant.calls_at_once()) / CAUTIOUS_BYTES_PER_SECOND
}

pub fn deadline_of_product(shape: &ProductShape) -> Duration {
    let operations = 2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64;
    SHORTEST + Duration::from_secs_f64((operations / CAUTIOUS_OPERATIONS_PER_SECOND).min(1e6))
}

/// Deadline of a copy of this many bytes, made several times back to back by one rank of each host after the other.
pub fn deadline_of_copy(bytes: u64, copies: u32) -> Duration {
    of_seconds(bytes as f64 * f64::from(copies) / CAUTIOUS_BYTES_PER_SECOND)
}

/// Deadline of a replay with this much computation per rank: other ranks may wait for all of it.
pub fn deadline_of_replay(computing: Seconds) -> Duration {
    of_seconds(computing.0)
}

/// How long another host may stay silent, whatever its ranks do: its collector only reports.
pub(super) fn deadline_of_host(timeout: Option<Duration>) -> Duration {
    timeout.map_or(SHORTEST, |timeout| timeout.max(SHORTEST_OF_HOST))
}

/// Deadline of MPI finalisation, given the user's deadline for everything.
pub(super) fn deadline_of_end(ranks: u32, timeout: Option<Duration>) -> Duration {
    timeout.map_or(setup_deadline(ranks), |timeout| timeout.max(SHORTEST_END))
}

/// Deadline once the time of a call is known.
pub(super) fn deadline_as_measured(call: Duration) -> Duration {
    of_seconds(call.as_secs_f64())
}

fn of_seconds(expected: f64) -> Duration {
    SHORTEST.max(at_most(FACTOR * expected))
}

/// This many seconds, capped at what a duration can hold.
fn at_most(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e6))
}

// Wrappers of calls and of the control plane that store their progress in a cell. The wrapped implementations are
// unchanged.

/// How long the ranks may stay in one step of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseDeadlines {
    /// In a call, until its time is known.
    pub call: Duration,
    /// In allocating, filling and checking buffers, and in the first call.
    pub preparation: Duration,
    /// Origin of a call's deadline once calls were timed.
    pub follows: DeadlineFollows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineFollows {
    Request,
    MeasuredTimes,
}

pub struct WatchedCall<'b> {
    call: Box<dyn Call + 'b>,
    progress: Arc<Progress>,
    blocks: bool,
    follows: DeadlineFollows,
    deadline: Duration,
    /// Deadline of filling and checking whole buffers.
    preparation: Duration,
    /// Set if the next call has to restore its deadline.
    relaxed: bool,
    begun: Instant,
    calls: u32,
}

impl<'b> WatchedCall<'b> {
    pub fn new(call: Box<dyn Call + 'b>, progress: Arc<Progress>, deadlines: CaseDeadlines) -> Self {
        let CaseDeadlines { call: deadline, preparation, follows } = deadlines;
        let (blocks, begun) = (call.blocks(), Instant::now());
        WatchedCall { call, progress, blocks, follows, deadline, preparation, relaxed: true, begun, calls: 0 }
    }

    /// Ranks may compute for different times, and the others wait for them.
    fn relax(&mut self) {
        self.progress.set_deadline(self.deadline.max(self.preparation));
        self.relaxed = true;
    }
}

impl Call for WatchedCall<'_> {
    fn fill(&mut self) -> Result<()> {
        self.relax();
        self.call.fill()
    }

    #[inline]
    fn enqueue(&mut self) -> Result<()> {
        if self.relaxed {
            self.relaxed = false;
            self.progress.set_deadline(self.deadline);
        }
        self.progress.enter_call();
        self.calls += 1;
        let done = self.call.enqueue();
        if self.blocks {
            self.progress.finish();
        }
        done
    }

    fn enqueue_checked(&mut self) -> Result<()> {
        self.relax();
        self.progress.enter_call();
        self.calls += 1;
        let done = self.call.enqueue_checked();
        if self.blocks {
            self.progress.finish();
        }
        done
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.call.reserve_marks(marks);
        (self.begun, self.calls) = (Instant::now(), 0);
    }

    #[inline]
    fn mark(&mut self) {
        self.call.mark();
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        self.call.hold_until(start_nanoseconds)
    }

    fn started_late(&self) -> bool {
        self.call.started_late()
    }

    fn clock_error_nanoseconds(&self) -> u64 {
        self.call.clock_error_nanoseconds()
    }

    fn complete(&mut self, deadline: Duration) -> Result<()> {
        self.call.complete(deadline)?;
        self.progress.finish();
        if self.follows == DeadlineFollows::MeasuredTimes && self.calls > 0 {
            let elapsed = self.begun.elapsed();
            // On a stream, only the completion of all work is visible.
            let unit = if self.blocks { elapsed / self.calls } else { elapsed };
            self.deadline = deadline_as_measured(unit);
            self.progress.set_deadline(self.deadline);
        }
        Ok(())
    }

    fn read_marks(&self, marks: &mut Marks) {
        self.call.read_marks(marks);
    }

    fn now_nanoseconds(&self) -> u64 {
        self.call.now_nanoseconds()
    }

    fn buffer_copies(&self) -> u32 {
        self.call.buffer_copies()
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        self.relax();
        self.call.check()
    }

    fn verifies(&self) -> bool {
        self.call.verifies()
    }

    fn is_idle_rank(&self, local_rank: usize) -> bool {
        self.call.is_idle_rank(local_rank)
    }

    fn library_estimate(&mut self) -> Result<Option<Seconds>> {
        self.relax();
        self.call.library_estimate()
    }

    fn library_choice(&mut self) -> Result<Option<LibraryChoice>> {
        self.call.library_choice()
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn abort(&mut self) {
        self.call.abort();
    }
}

/// The control plane, with progress reports if there is a cell.
pub struct WatchedWorld<'a> {
    world: &'a dyn World,
    progress: Option<Arc<Progress>>,
}

impl<'a> WatchedWorld<'a> {
    pub(super) fn new(world: &'a dyn World, progress: Option<Arc<Progress>>) -> Self {
        WatchedWorld { world, progress }
    }

    #[inline]
    fn inside<T>(&self, doing: Doing, operation: impl FnOnce() -> T) -> T {
        let Some(progress) = &self.progress else { return operation() };
        progress.enter(doing);
        let done = operation();
        progress.finish();
        done
    }

    /// Messages between two ranks do not count as steps, because their number differs between ranks.
    fn with_peer<T>(&self, peer: u32, operation: impl FnOnce() -> T) -> T {
        let Some(progress) = &self.progress else { return operation() };
        progress.wait_for(Some(peer));
        let done = operation();
        progress.wait_for(None);
        done
    }
}

impl World for WatchedWorld<'_> {
    fn process(&self) -> u32 {
        self.world.process()
    }
    fn processes(&self) -> u32 {
        self.world.processes()
    }
    fn barrier(&self) -> Result<()> {
        self.inside(Doing::BARRIER, || self.world.barrier())
    }
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
        self.inside(Doing::BROADCAST, || self.world.broadcast(bytes))
    }
    fn broadcast_u64(&self, values: &mut [u64]) -> Result<()> {
        self.inside(Doing::BROADCAST, || self.world.broadcast_u64(values))
    }
    fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.inside(Doing::GATHER, || self.world.gather(bytes))
    }
    fn all_max(&self, values: &mut [Located]) -> Result<()> {
        self.inside(Doing::AGREEMENT, || self.world.all_max(values))
    }
    fn all_min(&self, values: &mut [Located]) -> Result<()> {
        self.inside(Doing::AGREEMENT, || self.world.all_min(values))
    }
    fn send(&self, process: u32, value: u64) -> Result<()> {
        self.with_peer(process, || self.world.send(process, value))
    }
    fn receive(&self, process: u32) -> Result<u64> {
        self.with_peer(process, || self.world.receive(process))
    }
    fn abort(&self, exit_code: i32) -> ! {
        self.world.abort(exit_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::SoloWorld;

    #[test]
    fn deadlines_are_many_times_what_is_expected_and_never_short() {
        for (milliseconds, seconds) in [(0, 30), (1, 30), (1_500, 30), (10_000, 200)] {
            let deadline = deadline_as_measured(Duration::from_millis(milliseconds));
            assert_eq!(deadline, Duration::from_secs(seconds));
        }
        assert_eq!(deadline_of_replay(Seconds(f64::INFINITY)), Duration::from_secs(1_000_000));
        assert_eq!(deadline_of_replay(Seconds(-1.0)), SHORTEST);
    }

    /// A call that reads the cell while it runs.
    struct ProbingCall {
        progress: Arc<Progress>,
        blocks: bool,
        seen: Vec<(u64, u64)>,
    }

    impl Call for ProbingCall {
        fn fill(&mut self) -> Result<()> {
            Ok(())
        }
        fn enqueue(&mut self) -> Result<()> {
            let shown = self.progress.shown();
            self.seen.push((shown.step, shown.calls));
            Ok(())
        }
        fn reserve_marks(&mut self, _: usize) {}
        fn mark(&mut self) {}
        fn hold_until(&mut self, _: u64) -> bool {
            true
        }
        fn started_late(&self) -> bool {
            true
        }
        fn clock_error_nanoseconds(&self) -> u64 {
            700
        }
        fn complete(&mut self, _: Duration) -> Result<()> {
            assert_eq!(self.progress.shown().step % 2, u64::from(!self.blocks), "a stream is inside until it is done");
            Ok(())
        }
        fn read_marks(&self, marks: &mut Marks) {
            marks.nanoseconds = self.seen.iter().map(|seen| seen.1).collect();
        }
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
        fn blocks(&self) -> bool {
            self.blocks
        }
        fn abort(&mut self) {}
    }

    #[test]
    fn a_call_is_entered_before_and_finished_after_and_a_stream_when_it_is_complete() {
        for (blocks, last_step) in [(true, 6), (false, 2)] {
            let progress = Arc::new(Progress::default());
            progress.begin(0, Duration::from_secs(99));
            let looking = ProbingCall { progress: Arc::clone(&progress), blocks, seen: Vec::new() };
            let deadlines = CaseDeadlines {
                call: Duration::from_secs(99),
                preparation: Duration::from_secs(120),
                follows: DeadlineFollows::MeasuredTimes,
            };
            let mut call = WatchedCall::new(Box::new(looking), Arc::clone(&progress), deadlines);
            call.reserve_marks(2);
            (0..3).for_each(|_| call.enqueue().unwrap());
            call.complete(Duration::ZERO).unwrap();
            let mut marks = Marks::default();
            call.read_marks(&mut marks);
            assert_eq!(marks.nanoseconds, [1, 2, 3]);
            assert!(call.started_late() && call.clock_error_nanoseconds() == 700, "the start of the call is passed on");
            assert_eq!((progress.shown().step, progress.shown().calls), (last_step, 3));
            assert_eq!(progress.deadline(), Duration::from_secs(30), "as measured, and never short");
        }
    }

    #[test]
    fn the_control_plane_counts_what_all_do_and_not_messages() {
        let progress = Arc::new(Progress::default());
        let world = WatchedWorld::new(&SoloWorld, Some(Arc::clone(&progress)));
        world.barrier().unwrap();
        world.broadcast_u64(&mut [1]).unwrap();
        world.all_max(&mut []).unwrap();
        assert_eq!(progress.shown().step, 6);
    }
}
