//! Two concurrent calls, in every replicate: each alone, then each while the other is running.

use super::resume::CompletedWork;
use super::{Request, SharedJournal, Signals, replay};
use crate::backend::{Backend, ReplayBinding};
use crate::measure::{Repetitions, ReplayContext, TogetherTimes, measure_together};
use crate::session::steps::Tally;
use crate::world::{World, agree};
use commgauge_base::error::Result;
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::Seconds;
use commgauge_model::record::interference_line::{InterferenceLine, InterferingCall};
use commgauge_model::record::line::{Line, Outcome};
use commgauge_model::workload::Interference;

/// Default number of repetitions of each program.
const REPETITIONS: u32 = 50;

/// Times of a program, or the reason why there are none.
type Times = std::result::Result<TogetherTimes, Outcome>;

/// Inputs of measuring the programs.
pub(super) struct Pairs<'a> {
    pub world: &'a dyn World,
    pub request: &'a Request,
    pub pair: &'a Interference,
    pub completed: &'a CompletedWork,
    pub signals: &'a Signals,
}

impl Pairs<'_> {
    /// Writes two lines in every replicate, one with each of the two as the timed call.
    pub(super) fn measure_all(
        &self,
        backend: &mut dyn Backend,
        journal: &mut SharedJournal,
        tally: &mut Tally,
    ) -> Result<()> {
        for replicate in 0..self.request.settings.replicates {
            let missing: Vec<usize> =
                (0..2).filter(|timed| !self.completed.has_interference(replicate, *timed)).collect();
            if tally.is_stopped() || missing.is_empty() {
                continue;
            }
            // Each call alone, and each with the other one running concurrently.
            let budget = self.request.settings.case_budget.0 * (2 + missing.len()) as f64;
            let Some(work) = self.signals.begin(self.world, Seconds(budget))? else {
                tally.out_of_time = true;
                return Ok(());
            };
            for (number, groups) in self.pair.groups.iter().enumerate() {
                backend.connect(number, groups)?;
            }
            let alone = [self.times(backend, 0, 0)?, self.times(backend, 1, 0)?];
            let typical = [typical(&alone[0]), typical(&alone[1])];
            for timed in missing {
                let calls = self.pair.calls_beside(timed, typical);
                let together = self.times(backend, timed, calls)?;
                let line = self.line(replicate, timed, calls, (&alone, together));
                tally.signal = self.signals.agreed(self.world)?;
                if tally.signal != 0 {
                    // It was interrupted, and the record cannot express a partial result; a resumed run measures it
                    // again.
                    return Ok(());
                }
                tally.corrupt += u64::from(matches!(line.outcome, Outcome::Corrupt { .. }));
                tally.failed += u64::from(matches!(line.outcome, Outcome::Failed { .. }));
                journal.write(self.world, || Line::Interference(Box::new(line)))?;
            }
            backend.disconnect()?;
            self.signals.done(&work);
        }
        Ok(())
    }

    /// Times of one call with `beside` concurrent instances of the other.
    fn times(&self, backend: &mut dyn Backend, timed: usize, beside: u32) -> Result<Times> {
        let settings = &self.request.settings;
        let plan = self.pair.program(timed, beside);
        let context = ReplayContext {
            world: self.world,
            local_ranks: backend.local_ranks(),
            verify: settings.verify,
            interrupted: self.signals.raised(),
        };
        let binding = ReplayBinding { plan: &plan, first_groups_number: 0, seed: settings.seed };
        replay::begin(&self.request.watch, "two calls at once", &plan, self.world.process());
        // Nothing starts before all ranks have their buffers: the others would wait for a rank that failed to allocate.
        let mut replayer = match agree(self.world, backend.bind_replay(&binding)) {
            Ok(replayer) => replay::watched(&self.request.watch, replayer),
            Err(error) if error.is_shared() => return Ok(Err(Outcome::Failed { reason: error.to_string() })),
            Err(error) => return Err(error),
        };
        let most = settings.fixed_iterations.unwrap_or(REPETITIONS);
        let repetitions = Repetitions { most, budget: settings.case_budget };
        measure_together(&context, replayer.as_mut(), timed, repetitions)
    }

    fn line(
        &self,
        replicate: u32,
        timed: usize,
        calls_beside: u32,
        (alone, together): (&[Times; 2], Times),
    ) -> InterferenceLine {
        let bad = alone.iter().chain([&together]).find_map(|times| times.as_ref().err().cloned());
        let outcome = bad.unwrap_or(Outcome::Measured { verified: self.request.settings.verify });
        let measured = matches!(outcome, Outcome::Measured { .. });
        let numbers = |times: &Times| times.clone().ok().filter(|_| measured).unwrap_or_default();
        let together = numbers(&together);
        InterferenceLine {
            step: self.pair.step,
            replicate,
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
