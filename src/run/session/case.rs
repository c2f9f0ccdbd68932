//! One case of one replicate: its bound, its measurement, and its line of the record.

use super::facts::{CaseSet, CaseSlot, binding};
use super::journal::WorkKey;
use super::work_loop::{self, Run, Timekeeping, WorkItem};
use crate::backend::{Backend, Binding, DeviceState};
use crate::measure::{
    CaseResult, CaseState, DEFAULT_COMPLETION_DEADLINE, MeasureContext, RankTimes, divide, divide_rest, measure_case,
    soak_case,
};
use crate::watchdog::Activity;
use crate::world::{decided, from_first, from_lowest};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::layout::{Axis, Groups};
use commgauge_model::record::line::{CaseLine, Line, Outcome, PairTimes, StopReason};
use commgauge_model::workload::{Case, Estimate, estimated_case};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A run and what its cases are measured with.
pub(super) struct CaseLoop<'a, 'run, 'clock> {
    pub run: &'a mut Run<'run>,
    pub backend: &'a mut dyn Backend,
    pub time: &'a mut Timekeeping<'clock>,
}

pub(super) struct CaseWork<'a, 'clock> {
    pub cases: CaseSet<'a>,
    pub slot: CaseSlot,
    pub settings: &'a RunSettings,
    pub time: &'a mut Timekeeping<'clock>,
    /// Receives the line, and how long sampling took, before the line is recorded.
    pub observe: &'a mut dyn FnMut(&mut CaseLine, Seconds),
}

impl CaseWork<'_, '_> {
    /// Measures and records the case, then the changes of its devices, if the time limit allows it.
    pub(super) fn measure(self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let (case, replicate) = (self.index_in_plan() as u32, self.slot.replicate);
        let mut item = Item { work: self, device_before: None };
        if !run.carry_out(backend, &mut item)? {
            return Ok(());
        }
        work_loop::record_changes(run, backend, item.device_before, case, replicate)?;
        run.ask_for_signal()
    }

    fn case(&self) -> &Case {
        self.cases.planned[self.slot.case].case
    }

    fn index_in_plan(&self) -> usize {
        self.cases.index_in_plan(self.slot.case)
    }

    /// The line, and how long sampling took. A case that cannot run is skipped, and a case that does not fit into memory fails, both with
    /// the reason.
    fn line(&self, run: &Run, backend: &mut dyn Backend) -> Result<(CaseLine, Seconds)> {
        let (request, world) = (run.request, run.world);
        let without_numbers = |outcome| Ok((self.line_of(run, CaseResult::without_numbers(outcome, 0)), Seconds(0.0)));
        assert_ne!(request.injected.panicking_rank, Some(world.process()), "requested by --inject-panic");
        let geometry = match &self.cases.planned[self.slot.case].geometry {
            Ok(geometry) => geometry,
            Err(reason) => return without_numbers(Outcome::Skipped { reason: reason.clone() }),
        };
        let deadlines = request.watch.deadlines_of(self.case());
        let settings = self.settings.at(self.case().op.bytes_total);
        let context = self.context(run, backend, &settings, deadlines.call);
        request.watch.begin(|| self.activity(run, deadlines.preparation));
        let binding = Binding { seed: settings.seed, ..binding(request, self.case(), geometry) };
        if let Some(reason) = from_lowest(run.world, backend.skip_reason(&binding))? {
            return without_numbers(Outcome::Skipped { reason });
        }
        let mut call = match run.bound(backend.bind(&binding))? {
            Ok(call) => request.watch.call(call, deadlines),
            Err(failed) => return without_numbers(failed),
        };
        let measure = if settings.soak { soak_case } else { measure_case };
        let result = measure(&context, call.as_mut(), self.case())?;
        let sampling = result.sampling;
        Ok((self.line_of(run, result), sampling))
    }

    fn context<'c>(
        &self,
        run: &'c Run,
        backend: &dyn Backend,
        settings: &'c RunSettings,
        deadline: Duration,
    ) -> MeasureContext<'c> {
        let request = run.request;
        MeasureContext {
            world: run.world,
            local_ranks: backend.local_ranks(),
            world_size: request.world_size,
            clock: self.time.clock.model(),
            start: self.time.start,
            clock_resolution_nanoseconds: self.time.resolution,
            settings,
            interrupted: run.signals.raised(),
            injected_delay: request.injected.delay,
            completion_deadline: request.watch.timeout().map_or_else(
                || DEFAULT_COMPLETION_DEADLINE.max(deadline * 2),
                |timeout| request.watch.local_timeout(timeout),
            ),
        }
    }

    fn activity(&self, run: &Run, deadline: Duration) -> Activity {
        let (number, of) = (self.index_in_plan() + 1, self.cases.indices().end);
        let name = format!("case {number} of {of}, replicate {}", self.slot.replicate);
        let case = self.case();
        Activity::case(name, case, run.request.plan.groups_of(case), run.world.process(), deadline)
    }

    fn line_of(&self, run: &Run, result: CaseResult) -> CaseLine {
        let (case, slot) = (self.case(), self.slot);
        let pairs = (case.op.axis == Axis::Pair).then(|| pair_times(run.request.plan.groups_of(case), &result));
        CaseLine {
            case: self.index_in_plan() as u32,
            name: case.name().into(),
            replicate: slot.replicate,
            position: slot.position,
            pairs: pairs.map(Box::new),
            ..result.line
        }
    }
}

struct Item<'a, 'clock> {
    work: CaseWork<'a, 'clock>,
    device_before: Option<DeviceState>,
}

impl WorkItem for Item<'_, '_> {
    fn keys(&self) -> Vec<WorkKey> {
        vec![WorkKey::Case { index: self.work.index_in_plan() as u32, replicate: self.work.slot.replicate }]
    }

    fn estimate(&self, _: &Run) -> Estimate {
        estimated_case(self.work.case(), self.work.settings)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        self.work.time.clock.resynchronise(run.world)?;
        self.device_before = backend.device_reader().and_then(|reader| reader.read());
        let (mut line, sampling) = self.work.line(run, backend)?;
        (self.work.observe)(&mut line, sampling);
        run.record(Line::Case(Box::new(line)))
    }
}

/// The pairs of a round with the times of the slower rank of each; without numbers if the result has none.
fn pair_times(groups: &Groups, result: &CaseResult) -> PairTimes {
    let mut columns = PairTimes::default();
    let by_rank: HashMap<u32, &RankTimes> = result.rank_times.iter().map(|times| (times.rank, times)).collect();
    for pair in &groups.groups {
        let &[a, b] = pair.as_slice() else { continue };
        let slower = by_rank.get(&a).zip(by_rank.get(&b)).map(|(a, b)| if a.median >= b.median { *a } else { *b });
        columns.rank_a.push(a);
        columns.rank_b.push(b);
        columns.samples.push(slower.map_or(0, |times| times.samples));
        columns.p10_nanoseconds.push(slower.and_then(|times| times.p10).unwrap_or(0));
        columns.median_nanoseconds.push(slower.and_then(|times| times.median).unwrap_or(0));
        columns.p90_nanoseconds.push(slower.and_then(|times| times.p90).unwrap_or(0));
    }
    columns
}

// A time budget for all cases together: first a short round over all of them, then rounds in which the time goes to
// the widest intervals.
//
// Process 0 has the times, so it decides and broadcasts the decision; [`crate::measure::divide`] divides the time.

/// Share of the whole time for sampling in the short round, all cases together.
const SHORT_ROUND_SHARE: f64 = 0.25;

/// Share of the time that is reserved for the work after the last case.
const RESERVE: f64 = 0.02;

/// Times per round that the remaining time is divided again, to account for visits that were shorter or longer than
/// expected.
const DIVISIONS: usize = 256;

/// The assumed half width of a single sample, and the minimum for fewer samples than an interval needs.
const SINGLE_SAMPLE_WIDTH: f64 = 0.5;

const MIN_FEW_SAMPLES_WIDTH: f64 = 0.1;

/// Maximum number of rounds after the planned ones, each of which at least doubles the samples of the cases it measures.
const MAX_FURTHER_ROUNDS: u32 = 16;

/// Measures every case at least once, and those with the widest intervals again until all are precise or the time is over.
pub(super) fn measure_all(running: &mut CaseLoop, cases: CaseSet, within: Seconds) -> Result<()> {
    let CaseLoop { run, backend, time } = running;
    let settings = &run.request.settings;
    let mut division = Division::of(run, cases, within);
    for round in 0..settings.replicates + MAX_FURTHER_ROUNDS {
        if !decided(run.world, division.begin_round(round))? {
            break;
        }
        let order = cases.order(settings, round);
        let mut is_connected = false;
        for position in 0..order.len() {
            let visit: Option<Visit> = from_first(run.world, &division.next(&order[position..]))?;
            let Some(visit) = visit else { continue };
            if !is_connected {
                cases.connect(run.request, *backend)?;
                is_connected = true;
                division.clock.begun.get_or_insert_with(Instant::now);
            }
            let slot = CaseSlot { case: order[position], replicate: visit.replicate, position: position as u32 };
            let minimum_samples = settings.minimum_samples.max(visit.minimum_samples);
            let settings = RunSettings { case_budget: visit.budget, minimum_samples, ..settings.clone() };
            let begun = Instant::now();
            let mut observe =
                |line: &mut CaseLine, sampling| division.record(line, sampling, begun.elapsed().as_secs_f64());
            CaseWork { cases, slot, settings: &settings, time, observe: &mut observe }.measure(run, *backend)?;
            if run.tally.is_stopped() {
                return Ok(());
            }
        }
        if is_connected {
            backend.disconnect()?;
        }
    }
    Ok(())
}

/// A further replicate of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Visit {
    replicate: u32,
    budget: Seconds,
    /// Samples before the first precision check: more than in the replicate that it replaces.
    minimum_samples: u32,
}

/// Time spent and results so far. Process 0 only; the others have no data about the cases.
struct Division {
    within: f64,
    rounds: u32,
    round: u32,
    /// Planned end of the round on `clock`.
    round_ends: f64,
    requested: f64,
    longest: f64,
    clock: Clock,
    cases: Vec<CaseHistory>,
    budgets: Vec<Option<Seconds>>,
    /// Visits since the time was last divided.
    visits_since_division: usize,
}

impl Division {
    fn of(run: &Run, cases: CaseSet, within: Seconds) -> Division {
        let settings = &run.request.settings;
        let count = cases.planned.len();
        let mut division = Division {
            within: within.0 * (1.0 - RESERVE),
            rounds: settings.replicates,
            round: 0,
            round_ends: 0.0,
            requested: settings.precision,
            longest: settings.case_budget.0,
            clock: Clock::default(),
            cases: vec![CaseHistory::default(); count],
            budgets: vec![None; count],
            visits_since_division: 0,
        };
        // Cases measured by earlier launches count; the time they took besides sampling is not in the record.
        for line in run.completed.lines_of(cases.indices()) {
            let sampling = line.samples.slowest_nanoseconds.iter().map(|time| *time as f64 * 1e-9).sum();
            division.cases[line.case as usize - cases.first_case].record(&line, sampling, 0.0, settings.precision);
        }
        division
    }

    /// Begins a round, and returns whether it takes place: after the planned rounds only if a case is not precise and a visit of it fits
    /// into the time.
    fn begin_round(&mut self, round: u32) -> bool {
        let spent = self.clock.spent();
        self.round = round;
        self.round_ends = spent + (self.within - spent) / f64::from(self.rounds.saturating_sub(round).max(1));
        if round >= self.rounds {
            self.divide(&Vec::from_iter(0..self.cases.len()));
        }
        // Forces a division before the first visit.
        self.visits_since_division = usize::MAX;
        round < self.rounds || self.budgets.iter().any(Option::is_some)
    }

    /// Decides whether the first of the remaining cases of the round is measured, and for how long.
    fn next(&mut self, rest: &[usize]) -> Option<Visit> {
        let case = *rest.first()?;
        let history = &self.cases[case];
        // The number of the round, or higher if an earlier launch went further.
        let replicate = history.next_replicate.max(self.round);
        let minimum_samples = history.widest().map_or(0, |widest| widest.samples.saturating_add(1));
        let budget = if self.round == 0 {
            let share = self.within * SHORT_ROUND_SHARE / self.cases.len() as f64;
            // A case that an earlier launch has measured is not measured again in the short round.
            (history.next_replicate == 0).then_some(share)
        } else {
            if self.visits_since_division >= rest.len().div_ceil(DIVISIONS) {
                self.divide(rest);
            }
            self.visits_since_division += 1;
            self.budgets[case].map(|budget| budget.0)
        };
        budget.map(|budget| Visit { replicate, budget: Seconds(budget.min(self.longest)), minimum_samples })
    }

    fn divide(&mut self, rest: &[usize]) {
        let (cases, state): (Vec<usize>, Vec<CaseState>) =
            rest.iter().filter_map(|case| Some((*case, self.cases[*case].state()?))).unzip();
        self.budgets.fill(None);
        let left = Seconds(self.round_ends - self.clock.spent());
        let divide = if self.round < self.rounds { divide } else { divide_rest };
        for (case, budget) in cases.into_iter().zip(divide(left, self.requested, &state)) {
            self.budgets[case] = budget;
        }
        self.visits_since_division = 0;
    }

    /// Updates the data from a line, and marks in the line which replicates it replaces.
    fn record(&mut self, line: &mut CaseLine, sampling: Seconds, visit_seconds: f64) {
        let visit_seconds = visit_seconds.max(sampling.0);
        self.clock.visits += visit_seconds;
        // The set contains all cases of the plan.
        let history = &mut self.cases[line.case as usize];
        line.replaces = history.replaced_by(line);
        history.record(line, sampling.0, visit_seconds - sampling.0, self.requested);
    }
}

/// The time since the first case, real or simulated.
#[derive(Default)]
struct Clock {
    begun: Option<Instant>,
    /// The sum of the visits: a simulated second may take less than a real one.
    visits: f64,
}

impl Clock {
    fn spent(&self) -> f64 {
        self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()).max(self.visits)
    }
}

/// Results of a case so far.
#[derive(Clone, Debug, Default)]
struct CaseHistory {
    next_replicate: u32,
    /// Replicates that are used.
    replicates: Vec<CountedReplicate>,
    overhead_seconds: f64,
    /// Set if further visits are pointless: the case was skipped, failed, or had wrong data.
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct CountedReplicate {
    replicate: u32,
    reached: bool,
    half_width: f64,
    samples: u32,
    sampling_seconds: f64,
}

impl CaseHistory {
    fn record(&mut self, line: &CaseLine, sampling_seconds: f64, overhead_seconds: f64, requested: f64) {
        self.next_replicate = self.next_replicate.max(line.replicate + 1);
        self.closed |= !matches!(line.outcome, Outcome::Measured { .. });
        self.replicates.retain(|counted| !line.replaces.contains(&counted.replicate));
        self.replicates.push(CountedReplicate {
            replicate: line.replicate,
            reached: matches!(line.stop, Some(StopReason::Precision | StopReason::MaximumSamples)),
            half_width: line
                .precision_reached
                .unwrap_or_else(|| width_of_few_samples(line))
                .max(requested * f64::EPSILON),
            samples: samples_of(line),
            sampling_seconds,
        });
        self.overhead_seconds = overhead_seconds;
    }

    /// Replicates that ran out of time before they were precise and that have fewer samples than the new one.
    fn replaced_by(&self, line: &CaseLine) -> Vec<u32> {
        // A replicate that a signal cut short does not count, and is measured again.
        let is_measured = matches!(line.outcome, Outcome::Measured { .. }) && !line.was_cut_short();
        let is_replaced =
            |counted: &&CountedReplicate| is_measured && !counted.reached && counted.samples < samples_of(line);
        self.replicates.iter().filter(is_replaced).map(|counted| counted.replicate).collect()
    }

    fn state(&self) -> Option<CaseState> {
        let latest = self.replicates.last().filter(|_| !self.closed)?;
        let CountedReplicate { half_width, samples, sampling_seconds, .. } = *self.widest().unwrap_or(latest);
        let reached = self.widest().is_none();
        Some(CaseState { reached, half_width, samples, sampling_seconds, overhead_seconds: self.overhead_seconds })
    }

    /// The widest replicate that ran out of time; a longer one should replace it.
    fn widest(&self) -> Option<&CountedReplicate> {
        let wide = self.replicates.iter().filter(|counted| !counted.reached);
        wide.max_by(|a, b| a.half_width.total_cmp(&b.half_width))
    }
}

fn samples_of(line: &CaseLine) -> u32 {
    line.samples.slowest_nanoseconds.len().saturating_sub(line.samples.excluded.len()) as u32
}

/// Estimates the half width from fewer samples than an interval needs: half of their range.
fn width_of_few_samples(line: &CaseLine) -> f64 {
    let times = &line.samples.slowest_nanoseconds;
    let (least, most) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
    if times.len() < 2 || least == 0 {
        return SINGLE_SAMPLE_WIDTH;
    }
    ((most - least) as f64 / (most + least) as f64).max(MIN_FEW_SAMPLES_WIDTH)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn rows_that_are_not_precise_get_the_time_that_is_left_and_precise_ones_none_of_it() {
        let state = |half_width: f64| CaseHistory {
            next_replicate: 2,
            replicates: vec![CountedReplicate {
                replicate: 1,
                reached: half_width <= 0.02,
                half_width,
                samples: 30,
                sampling_seconds: 0.1,
            }],
            ..CaseHistory::default()
        };
        let division = |widths: &[f64], spent: f64| {
            let cases: Vec<CaseHistory> = widths.iter().map(|width| state(*width)).collect();
            Division {
                within: 8.0,
                rounds: 2,
                round: 1,
                round_ends: 8.0,
                requested: 0.02,
                longest: 8.0,
                clock: Clock { begun: None, visits: spent },
                budgets: vec![None; cases.len()],
                cases,
                visits_since_division: 0,
            }
        };
        for (widths, spent, expected) in [
            (&[0.01, 0.04][..], 2.1, vec![None, Some(0.4)]),
            (&[0.01, 0.04], 7.9, vec![None, None]),
            (&[0.01, 0.02], 2.1, vec![None, None]),
        ] {
            let mut division = division(widths, spent);
            assert_eq!(division.begin_round(2), expected.iter().any(Option::is_some), "{widths:?} after {spent} s");
            let visits: Vec<Option<Visit>> = (0..widths.len()).map(|case| division.next(&[case])).collect();
            let budgets: Vec<Option<f64>> =
                visits.iter().map(|visit| visit.map(|visit| (visit.budget.0 * 1e6).round() / 1e6)).collect();
            assert_eq!(budgets, expected, "{widths:?} after {spent} s");
            // It replaces the imprecise one, whichever stops it.
            assert!(visits.iter().flatten().all(|visit| visit.minimum_samples == 31 && visit.replicate == 2));
        }
    }
}
