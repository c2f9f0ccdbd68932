//! A time budget for all cases together: first a short round over all of them, then rounds in which the time goes to
//! the widest intervals.
//!
//! Process 0 has the times, so it decides and broadcasts the decision; [`crate::measure::divide`] divides the time.

use super::SharedJournal;
use super::steps::{Place, Steps, Tally};
use super::timekeeping::Timekeeping;
use crate::backend::Backend;
use crate::config::RunSettings;
use crate::error::Result;
use crate::measure::{Seen, divide};
use crate::record::line::{CaseLine, Outcome, StopReason};
use crate::units::Seconds;
use std::time::Instant;

/// Share of the whole time for sampling in the short round, all cases together.
const SHARE_OF_THE_SHORT_ROUND: f64 = 0.25;
/// Share of the time that is reserved for the work after the last case.
const RESERVE: f64 = 0.02;
/// Times per round that the remaining time is divided again, to account for visits that were shorter or longer than
/// expected.
const DIVISIONS: usize = 256;
/// The half width that is assumed of a single sample, and the least that is assumed of fewer than an interval needs.
const WIDTH_OF_ONE: f64 = 0.5;
const LEAST_WIDTH_OF_FEW: f64 = 0.1;

impl Steps<'_> {
    /// Measures every case at least once, and those with the widest intervals again until the time is over.
    pub(super) fn measure_within(
        &self,
        within: Seconds,
        backend: &mut dyn Backend,
        time: &mut Timekeeping,
        (journal, tally): (&mut SharedJournal, &mut Tally),
    ) -> Result<()> {
        let settings = &self.request.settings;
        let mut division = Division::of(self, within);
        for round in 0..settings.replicates {
            let order = self.order(round);
            division.begin_round(round);
            let mut is_connected = false;
            for position in 0..order.len() {
                let Some(visit) = self.told(division.next(&order[position..]))? else { continue };
                if !is_connected {
                    self.connect(backend)?;
                    is_connected = true;
                    division.clock.start();
                }
                let place = Place { case: order[position], replicate: visit.replicate, position: position as u32 };
                let settings = RunSettings { case_budget: visit.budget, ..settings.clone() };
                let begun = Instant::now();
                let mut learn =
                    |line: &mut CaseLine, sampling| division.take(line, sampling, begun.elapsed().as_secs_f64());
                self.measure_one(backend, time, (place, &settings), &mut learn, (&mut *journal, &mut *tally))?;
                if tally.is_stopped() {
                    return Ok(());
                }
            }
            if is_connected {
                backend.disconnect()?;
            }
        }
        Ok(())
    }

    /// Broadcasts the decision of process 0.
    fn told(&self, mine: Option<Visit>) -> Result<Option<Visit>> {
        let mut told = mine.map_or([0; 3], |visit| [1, u64::from(visit.replicate), (visit.budget.0 * 1e9) as u64]);
        self.world.broadcast_u64(&mut told)?;
        let [visits, replicate, nanoseconds] = told;
        let budget = Seconds::from_nanoseconds(nanoseconds);
        Ok((visits == 1).then_some(Visit { replicate: replicate as u32, budget }))
    }
}

/// A further replicate of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Visit {
    replicate: u32,
    budget: Seconds,
}

/// Time spent and results so far. Process 0 only; the others have no data about the cases.
struct Division {
    within: f64,
    rounds: u32,
    round: u32,
    /// When the round should be over, on the clock below.
    round_ends: f64,
    requested: f64,
    longest: f64,
    clock: Clock,
    cases: Vec<Known>,
    budgets: Vec<Option<Seconds>>,
    /// Cases passed since the time was last divided.
    since: usize,
}

impl Division {
    fn of(steps: &Steps, within: Seconds) -> Division {
        let settings = &steps.request.settings;
        let count = steps.planned.len();
        let mut division = Division {
            within: within.0 * (1.0 - RESERVE),
            rounds: settings.replicates,
            round: 0,
            round_ends: 0.0,
            requested: settings.precision,
            longest: settings.case_budget.0,
            clock: Clock::default(),
            cases: vec![Known::default(); count],
            budgets: vec![None; count],
            since: 0,
        };
        // Cases measured by earlier launches count; the time they took besides sampling is not in the record.
        for line in steps.kept.lines_of(steps.first_case..steps.first_case + count) {
            let sampling = line.samples.slowest_nanoseconds.iter().map(|time| *time as f64 * 1e-9).sum();
            division.cases[line.case as usize - steps.first_case].take(&line, sampling, 0.0, settings.precision);
        }
        division
    }

    fn begin_round(&mut self, round: u32) {
        let spent = self.clock.spent();
        self.round = round;
        self.round_ends = spent + (self.within - spent) / f64::from(self.rounds - round);
        // Divided before the first visit.
        self.since = usize::MAX;
    }

    /// Decides whether the first of the remaining cases of the round is measured, and for how long.
    fn next(&mut self, rest: &[usize]) -> Option<Visit> {
        let case = *rest.first()?;
        let known = &self.cases[case];
        // The number of the round, but where an earlier launch went further.
        let replicate = known.next_replicate.max(self.round);
        let budget = if self.round == 0 {
            let share = self.within * SHARE_OF_THE_SHORT_ROUND / self.cases.len() as f64;
            // A case that an earlier launch has measured is not measured again in the short round.
            (known.next_replicate == 0).then_some(share)
        } else {
            if self.since >= rest.len().div_ceil(DIVISIONS) {
                self.divide(rest);
            }
            self.since += 1;
            self.budgets[case].map(|budget| budget.0)
        };
        budget.map(|budget| Visit { replicate, budget: Seconds(budget.min(self.longest)) })
    }

    fn divide(&mut self, rest: &[usize]) {
        let (cases, seen): (Vec<usize>, Vec<Seen>) =
            rest.iter().filter_map(|case| Some((*case, self.cases[*case].seen()?))).unzip();
        self.budgets.fill(None);
        let left = Seconds(self.round_ends - self.clock.spent());
        for (case, budget) in cases.into_iter().zip(divide(left, self.requested, &seen)) {
            self.budgets[case] = budget;
        }
        self.since = 0;
    }

    /// Updates the data from a line, and marks in the line which replicates it replaces.
    fn take(&mut self, line: &mut CaseLine, sampling: Seconds, visit_seconds: f64) {
        let visit_seconds = visit_seconds.max(sampling.0);
        self.clock.add(visit_seconds);
        // The line names the case by its index in the plan, of which these steps have all.
        let known = &mut self.cases[line.case as usize];
        line.replaces = known.replaced_by(line);
        known.take(line, sampling.0, visit_seconds - sampling.0, self.requested);
    }
}

/// The time that went by since the first case, real or simulated.
#[derive(Default)]
struct Clock {
    begun: Option<Instant>,
    /// The visits alone: a simulated second need not take a real one.
    visits: f64,
}

impl Clock {
    fn start(&mut self) {
        self.begun.get_or_insert_with(Instant::now);
    }

    fn add(&mut self, seconds: f64) {
        self.visits += seconds;
    }

    fn spent(&self) -> f64 {
        self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()).max(self.visits)
    }
}

/// Results of a case so far.
#[derive(Clone, Debug, Default)]
struct Known {
    next_replicate: u32,
    /// Replicates that are used.
    replicates: Vec<Counted>,
    sampling_seconds: f64,
    beside_seconds: f64,
    /// Set if further visits are pointless: the case was skipped, failed, or had wrong data.
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    replicate: u32,
    reached: bool,
    half_width: f64,
    samples: u32,
}

impl Known {
    fn take(&mut self, line: &CaseLine, sampling_seconds: f64, beside_seconds: f64, requested: f64) {
        self.next_replicate = self.next_replicate.max(line.replicate + 1);
        self.closed |= !matches!(line.outcome, Outcome::Measured { .. });
        self.replicates.retain(|counted| !line.replaces.contains(&counted.replicate));
        self.replicates.push(Counted {
            replicate: line.replicate,
            reached: matches!(line.stop, Some(StopReason::Precision | StopReason::MaximumSamples)),
            half_width: line.precision_reached.unwrap_or_else(|| width_of_few(line)).max(requested * f64::EPSILON),
            samples: samples_of(line),
        });
        (self.sampling_seconds, self.beside_seconds) = (sampling_seconds, beside_seconds);
    }

    /// Replicates that ran out of time before they were precise and that have fewer samples than the new one.
    fn replaced_by(&self, line: &CaseLine) -> Vec<u32> {
        // A replicate that was cut short by a signal does not count, and is measured again.
        let is_measured = matches!(line.outcome, Outcome::Measured { .. }) && !line.was_cut_short();
        let stands_in = |counted: &&Counted| is_measured && !counted.reached && counted.samples < samples_of(line);
        self.replicates.iter().filter(stands_in).map(|counted| counted.replicate).collect()
    }

    fn seen(&self) -> Option<Seen> {
        let latest = self.replicates.last().filter(|_| !self.closed)?;
        Some(Seen {
            reached: self.replicates.iter().all(|counted| counted.reached),
            half_width: self.replicates.iter().map(|counted| counted.half_width).fold(0.0, f64::max),
            samples: latest.samples,
            sampling_seconds: self.sampling_seconds,
            beside_seconds: self.beside_seconds,
        })
    }
}

fn samples_of(line: &CaseLine) -> u32 {
    line.samples.slowest_nanoseconds.len().saturating_sub(line.samples.doubtful.len()) as u32
}

/// Estimates the half width from fewer samples than an interval needs: half of their range.
fn width_of_few(line: &CaseLine) -> f64 {
    let times = &line.samples.slowest_nanoseconds;
    let (least, most) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
    if times.len() < 2 || least == 0 {
        return WIDTH_OF_ONE;
    }
    ((most - least) as f64 / (most + least) as f64).max(LEAST_WIDTH_OF_FEW)
}
