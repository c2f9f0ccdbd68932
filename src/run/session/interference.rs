//! Two concurrent calls, in every replicate: each alone, then each while the other is running.

use super::completed::CompletedWork;
use super::replay;
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, ReplayBinding};
use crate::measure::{TogetherTimes, measure_together};
use commgauge_base::error::Result;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::record::interference_line::{InterferenceLine, InterferingCall};
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::workload::{Estimate, Interference};

/// Times of a program, or the reason why there are none.
type Times = std::result::Result<TogetherTimes, Outcome>;

/// Writes two lines in every replicate, one with each of the two as the timed call.
pub(super) fn measure_all(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let Some(pair) = &run.request.after_plan.interference else { return Ok(()) };
    let replicates = 0..run.request.settings.replicates;
    run.carry_out_all(backend, replicates.map(|replicate| PairWork { pair, replicate }))
}

/// Both calls of a replicate, each as the timed one, since they share the times of each call alone.
struct PairWork<'a> {
    pair: &'a Interference,
    replicate: u32,
}

impl WorkItem for PairWork<'_> {
    fn is_completed(&self, completed: &CompletedWork) -> bool {
        self.missing(completed).is_empty()
    }

    /// Each call alone, and each with the other one running concurrently.
    fn estimate(&self, run: &Run) -> Estimate {
        let measurements = 2 + self.missing(&run.completed).len();
        Estimate::Budget(Seconds(run.request.settings.case_budget.0 * measurements as f64))
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        for (number, groups) in self.pair.groups.iter().enumerate() {
            backend.connect(number, groups)?;
        }
        let alone = [self.times(run, backend, 0, 0)?, self.times(run, backend, 1, 0)?];
        let typical = [typical(&alone[0]), typical(&alone[1])];
        for timed in self.missing(&run.completed) {
            let calls = self.pair.calls_beside(timed, typical);
            let measured = Measured { alone: &alone, together: self.times(run, backend, timed, calls)? };
            run.record_if_whole(Line::Interference(Box::new(self.line(run, timed, calls, measured))))?;
            if run.tally.is_stopped() {
                return Ok(());
            }
        }
        backend.disconnect()
    }
}

/// Times of both calls alone, and of the timed one beside the other.
struct Measured<'a> {
    alone: &'a [Times; 2],
    together: Times,
}

impl PairWork<'_> {
    /// The calls that earlier launches have not timed.
    fn missing(&self, completed: &CompletedWork) -> Vec<usize> {
        (0..2).filter(|timed| !completed.has_interference(self.replicate, *timed)).collect()
    }

    /// Times of one call with `beside` concurrent instances of the other.
    fn times(&self, run: &Run, backend: &mut dyn Backend, timed: usize, beside: u32) -> Result<Times> {
        let plan = self.pair.program(timed, beside);
        let context = run.replay_context(backend);
        let binding = ReplayBinding { plan: &plan, first_groups_number: 0, seed: run.request.settings.seed };
        let watch = &run.request.watch;
        replay::begin(watch, "two calls at once", &plan, run.world.process());
        let mut replayer = match run.bound(backend.bind_replay(&binding))? {
            Ok(replayer) => replay::watched(watch, replayer),
            Err(failed) => return Ok(Err(failed)),
        };
        measure_together(&context, replayer.as_mut(), timed, run.repetitions())
    }

    fn line(&self, run: &Run, timed: usize, calls_beside: u32, measured: Measured) -> InterferenceLine {
        let Measured { alone, together } = measured;
        let bad = alone.iter().chain([&together]).find_map(|times| times.as_ref().err().cloned());
        let outcome = bad.unwrap_or(Outcome::Measured { verified: run.request.settings.verify });
        let is_measured = matches!(outcome, Outcome::Measured { .. });
        let numbers = |times: &Times| times.clone().ok().filter(|_| is_measured).unwrap_or_default();
        let together = numbers(&together);
        InterferenceLine {
            step: self.pair.step,
            replicate: self.replicate,
            timed: InterferingCall::of(&self.pair.ops[timed]),
            beside: InterferingCall::of(&self.pair.ops[1 - timed]),
            outcome,
            calls_beside,
            alone_nanoseconds: numbers(&alone[timed]).timed_nanoseconds,
            together_nanoseconds: together.timed_nanoseconds,
            still_waited_nanoseconds: together.still_waited_nanoseconds,
            beside_alone_nanoseconds: numbers(&alone[1 - timed]).timed_nanoseconds,
        }
    }
}

/// Median time in nanoseconds, the same on every process.
fn typical(times: &Times) -> u64 {
    let nanoseconds = times.iter().flat_map(|times| &times.timed_nanoseconds).map(|time| *time as f64);
    median(&sorted(nanoseconds)).map_or(0, |middle| middle as u64)
}
