//! The timed loop in named phases. Start reading at [`measure_case`]; values common to all cases are in
//! [`MeasureContext`].
//!
//! This module is independent of the library that executes the calls, and prints nothing.

mod cadence;
mod case;
mod clock;
mod division;
mod local;
mod replay;
mod sampling;
mod stop;
mod timeline;

pub use cadence::{Batch, Lead, enqueue_stream, isolated_batch, stream, streaming_batch};
pub use case::{CaseResult, measure_case, soak_case};
pub use clock::{ClockModel, CommonClock};
pub use division::{CaseState, divide, divide_rest};
pub use local::{LocalTimes, Repetitions, TogetherTimes, Turns, WARM_UP_RUNS, measure_local, measure_together};
pub use replay::{ReplayContext, line_without_numbers as replay_line_without_numbers, measure_replay};
pub(crate) use sampling::MAX_HISTOGRAMS;
pub use sampling::RankTimes;
pub use stop::{Decision, Progress, StopRule, choose_calls_per_sample, precision_reached};

use crate::world::World;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::record::line::ClockMethod;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default time that enqueued work may take before it counts as hung.
pub const DEFAULT_COMPLETION_DEADLINE: Duration = Duration::from_secs(60);

/// A delay before the call of one rank in every isolated iteration, to verify that the late rank is detected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InjectedDelay {
    pub rank: u32,
    pub delay: Seconds,
}

/// Context shared by all cases of a run.
pub struct MeasureContext<'a> {
    pub world: &'a dyn World,
    pub local_ranks: Range<u32>,
    pub world_size: u32,
    /// Converts between this process's clock and the common one.
    pub clock: ClockModel,
    /// How isolated iterations are started together.
    pub start: ClockMethod,
    /// Clock resolution: the smallest difference between marks.
    pub clock_resolution_nanoseconds: u64,
    /// How samples are taken.
    pub settings: &'a RunSettings,
    /// Set by a signal; only process 0 reads it and broadcasts it.
    pub interrupted: &'a AtomicBool,
    /// Injected delay, a test option.
    pub injected_delay: Option<InjectedDelay>,
    /// How long enqueued work may take.
    pub completion_deadline: Duration,
}

impl MeasureContext<'_> {
    /// Whether this process decides for all.
    pub(crate) fn decides(&self) -> bool {
        self.world.process() == 0
    }

    /// Whether a signal was received. Read on process 0 only, which includes it in its broadcasts.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod fakes {
    // Test doubles: a world of threads, and a call with a virtual clock and scripted times.
    use super::{ClockModel, DEFAULT_COMPLETION_DEADLINE, MeasureContext};
    use crate::backend::{Call, Marks, Mismatch};
    use crate::world::{Located, World};
    use commgauge_base::error::{Error, Result};
    use commgauge_model::config::RunSettings;
    use std::ops::Range;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Barrier, Mutex};
    use std::time::Duration;

    /// One process of a world of threads.
    pub(crate) struct ThreadWorld<'a> {
        process: u32,
        shared: &'a Shared,
        to: Vec<Sender<u64>>,
        from: Vec<Receiver<u64>>,
    }

    struct Shared {
        barrier: Barrier,
        slots: Mutex<Vec<Vec<u8>>>,
        located: Mutex<Vec<Vec<Located>>>,
    }

    /// Runs `process` on that many threads, each with its own world. A failing thread fails the test.
    pub(crate) fn on_threads(processes: u32, process: impl Fn(&ThreadWorld) + Sync) {
        let count = processes as usize;
        let shared = Shared {
            barrier: Barrier::new(count),
            slots: Mutex::new(vec![Vec::new(); count]),
            located: Mutex::new(vec![Vec::new(); count]),
        };
        let mut to: Vec<Vec<Sender<u64>>> = (0..count).map(|_| Vec::new()).collect();
        let mut from: Vec<Vec<Receiver<u64>>> = (0..count).map(|_| Vec::new()).collect();
        for sender in &mut to {
            for receiver in &mut from {
                let (send, receive) = channel();
                sender.push(send);
                receiver.push(receive);
            }
        }
        std::thread::scope(|scope| {
            for (index, (to, from)) in to.into_iter().zip(from).enumerate() {
                let world = ThreadWorld { process: index as u32, shared: &shared, to, from };
                let process = &process;
                scope.spawn(move || process(&world));
            }
        });
    }

    impl ThreadWorld<'_> {
        fn best(&self, values: &mut [Located], better: impl Fn(f64, f64) -> bool) {
            self.shared.located.lock().unwrap()[self.process as usize] = values.to_vec();
            self.shared.barrier.wait();
            let all = self.shared.located.lock().unwrap().clone();
            self.shared.barrier.wait();
            for (index, value) in values.iter_mut().enumerate() {
                *value = all
                    .iter()
                    .map(|one| one[index])
                    .reduce(|a, b| if better(b.value, a.value) { b } else { a })
                    .unwrap();
            }
        }

        fn exchange(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
            self.shared.slots.lock().unwrap()[self.process as usize] = bytes.to_vec();
            self.shared.barrier.wait();
            let all = self.shared.slots.lock().unwrap().clone();
            self.shared.barrier.wait();
            all
        }
    }

    impl World for ThreadWorld<'_> {
        fn process(&self) -> u32 {
            self.process
        }
        fn processes(&self) -> u32 {
            self.to.len() as u32
        }
        fn barrier(&self) -> Result<()> {
            self.shared.barrier.wait();
            Ok(())
        }
        fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()> {
            *bytes = self.exchange(bytes).swap_remove(0);
            Ok(())
        }
        fn broadcast_u64(&self, values: &mut [u64]) -> Result<()> {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            for (value, chunk) in values.iter_mut().zip(self.exchange(&bytes)[0].chunks(8)) {
                *value = u64::from_ne_bytes(chunk.try_into().unwrap());
            }
            Ok(())
        }
        fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
            let all = self.exchange(bytes);
            Ok(if self.process == 0 { all } else { Vec::new() })
        }
        fn all_max(&self, values: &mut [Located]) -> Result<()> {
            self.best(values, |new, old| new > old);
            Ok(())
        }
        fn all_min(&self, values: &mut [Located]) -> Result<()> {
            self.best(values, |new, old| new < old);
            Ok(())
        }
        fn send(&self, process: u32, value: u64) -> Result<()> {
            self.to[process as usize].send(value).map_err(|gone| Error::environment(gone.to_string()))
        }
        fn receive(&self, process: u32) -> Result<u64> {
            self.from[process as usize].recv().map_err(|gone| Error::environment(gone.to_string()))
        }
        fn abort(&self, exit_code: i32) -> ! {
            panic!("aborted with {exit_code}")
        }
    }

    /// A call on a virtual clock. `duration` gives the time of the n-th call on a rank.
    pub(crate) struct FakeCall<'a> {
        world: &'a dyn World,
        local_ranks: Range<u32>,
        clocks: Vec<u64>,
        clock_offset: u64,
        duration: Box<dyn Fn(u64, u32) -> u64 + 'a>,
        together: bool,
        marks: Vec<u64>,
        pub(crate) calls: u64,
        /// Cost of reading the clock, in nanoseconds.
        pub(crate) mark_cost: u64,
        /// Time that the host waits at the end apart from the calls.
        pub(crate) completion_cost: u64,
        /// Whether calls return when they are complete.
        pub(crate) blocks: bool,
        /// Error of the clock of its marks.
        pub(crate) clock_error: u64,
        /// Delay in nanoseconds before this process starts waiting.
        pub(crate) wait_overhead: u64,
        pub(crate) data: FakeData,
        /// Idle ranks.
        pub(crate) idle: Vec<u32>,
        pub(crate) at_call: Option<Box<dyn Fn(u64) + 'a>>,
    }

    pub(crate) struct FakeData {
        /// Whether there is data.
        pub(crate) exists: bool,
        /// It is wrong from this call on.
        pub(crate) corrupt_from: Option<u64>,
        pub(crate) fills: u32,
        pub(crate) checks: u32,
    }

    impl<'a> FakeCall<'a> {
        /// Ranks that do not wait for each other.
        pub(crate) fn alone(
            world: &'a dyn World,
            local_ranks: Range<u32>,
            duration: impl Fn(u64, u32) -> u64 + 'a,
        ) -> Self {
            FakeCall {
                world,
                clocks: vec![1_000_000; local_ranks.len()],
                local_ranks,
                clock_offset: 0,
                duration: Box::new(duration),
                together: false,
                marks: Vec::new(),
                calls: 0,
                mark_cost: 0,
                completion_cost: 0,
                blocks: true,
                clock_error: 0,
                wait_overhead: 0,
                data: FakeData { exists: true, corrupt_from: None, fills: 0, checks: 0 },
                idle: Vec::new(),
                at_call: None,
            }
        }

        /// A barrier: no rank leaves before the last one has arrived.
        pub(crate) fn together(
            world: &'a dyn World,
            local_ranks: Range<u32>,
            duration: impl Fn(u64, u32) -> u64 + 'a,
        ) -> Self {
            FakeCall { together: true, ..FakeCall::alone(world, local_ranks, duration) }
        }

        /// Sets this process's clock ahead and returns the matching model.
        pub(crate) fn shift_clock(&mut self, model: &mut ClockModel, ahead: u64) {
            self.clocks.iter_mut().for_each(|clock| *clock += ahead);
            self.clock_offset = ahead;
            *model = ClockModel { local_anchor: ahead, common_anchor: 0, drift: 0.0 };
        }
    }

    impl Call for FakeCall<'_> {
        fn fill(&mut self) -> Result<()> {
            self.data.fills += 1;
            Ok(())
        }
        fn enqueue(&mut self) -> Result<()> {
            if self.together {
                let arrival = self.clocks.iter().max().unwrap() - self.clock_offset;
                let mut last = [Located { value: arrival as f64, rank: 0 }];
                self.world.all_max(&mut last)?;
                let last = last[0].value as u64 + self.clock_offset;
                self.clocks.iter_mut().for_each(|clock| *clock = last);
            }
            for (rank, clock) in self.local_ranks.clone().zip(&mut self.clocks) {
                *clock += (self.duration)(self.calls, rank);
            }
            if let Some(at_call) = &self.at_call {
                at_call(self.calls);
            }
            self.calls += 1;
            Ok(())
        }
        fn reserve_marks(&mut self, marks: usize) {
            self.marks.clear();
            self.marks.reserve(marks * self.clocks.len());
        }
        fn clock_error_nanoseconds(&self) -> u64 {
            self.clock_error
        }

        fn mark(&mut self) {
            self.marks.extend_from_slice(&self.clocks);
            self.clocks.iter_mut().for_each(|clock| *clock += self.mark_cost);
        }
        fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
            let mut in_time = true;
            for clock in &mut self.clocks {
                *clock += self.wait_overhead;
                in_time &= *clock <= start_nanoseconds;
                *clock = (*clock).max(start_nanoseconds);
            }
            in_time
        }
        fn complete(&mut self, _: Duration) -> Result<()> {
            self.clocks.iter_mut().for_each(|clock| *clock += self.completion_cost);
            Ok(())
        }
        fn blocks(&self) -> bool {
            self.blocks
        }
        fn read_marks(&self, marks: &mut Marks) {
            marks.local_ranks = self.clocks.len();
            marks.nanoseconds.clone_from(&self.marks);
        }
        fn now_nanoseconds(&self) -> u64 {
            self.clocks.iter().copied().max().unwrap()
        }
        fn buffer_copies(&self) -> u32 {
            3
        }
        fn check(&mut self) -> Result<Option<Mismatch>> {
            self.data.checks += 1;
            let wrong = self.data.corrupt_from.is_some_and(|from| self.calls > from);
            let rank = self.local_ranks.start;
            Ok(wrong.then(|| Mismatch {
                rank,
                element: 17,
                expected: "3".into(),
                got: "nan".into(),
                count: 2,
                call: None,
            }))
        }
        fn verifies(&self) -> bool {
            self.data.exists
        }
        fn is_idle_rank(&self, local_rank: usize) -> bool {
            self.idle.contains(&(self.local_ranks.start + local_rank as u32))
        }
        fn abort(&mut self) {}
    }

    /// Runs `test` with a context whose settings it may change.
    pub(crate) fn with_context(world: &dyn World, local_ranks: Range<u32>, test: impl FnOnce(&mut MeasureContext)) {
        with_settings(world, local_ranks, RunSettings::default(), test);
    }

    pub(crate) fn with_settings(
        world: &dyn World,
        local_ranks: Range<u32>,
        settings: RunSettings,
        test: impl FnOnce(&mut MeasureContext),
    ) {
        let interrupted = AtomicBool::new(false);
        test(&mut MeasureContext {
            world,
            world_size: world.processes().max(local_ranks.len() as u32),
            local_ranks,
            clock: ClockModel::identity(),
            start: commgauge_model::record::line::ClockMethod::Synchronised,
            clock_resolution_nanoseconds: 1,
            settings: &settings,
            interrupted: &interrupted,
            injected_delay: None,
            completion_deadline: DEFAULT_COMPLETION_DEADLINE,
        });
    }
}
