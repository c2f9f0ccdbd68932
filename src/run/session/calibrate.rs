//! A run that chooses its own sizes: after the sizes of the suite, rounds that add one size to every curve that is not
//! precise enough, at the point of largest expected error.
//!
//! Only process 0 has the times, so it decides and broadcasts the choice; every process then measures the same cases.

use super::case::{CaseLoop, CaseWork};
use super::facts::{CaseSet, CaseSlot, Planned, case_facts};
use super::journal::WorkKey;
use super::request::Request;
use super::work_loop::{EvidenceMoment, Run, Timekeeping};
use super::{case, facts, work_loop};
use crate::backend::Backend;
use crate::world::{agree, from_first};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_cost::cost::curve::{Point, combined};
use commgauge_cost::cost::measured::{Gap, gaps, interpolated, next_point};
use commgauge_cost::cost::seconds_of_call;
use commgauge_model::config::{Calibrate, RunSettings};
use commgauge_model::record::line::{CaseFacts, CaseLine, Line};
use commgauge_model::record::work_lines::{CalibratedCurve, CalibrationEnd, CalibrationLine, ChosenSize, PlanGrowth};
use commgauge_model::workload::{Case, MOST_CASES, Op, WorkPlan, estimated_case};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Adds rounds until every curve is precise enough or may not grow further. `measured` are the lines of the cases of
/// the plan; on process 0 only.
fn measure_all(running: &mut CaseLoop, calibrate: &Calibrate, measured: &[CaseLine]) -> Result<()> {
    let (request, host_of_rank, begun) = (running.run.request, &running.run.ranks.host_of_rank, Instant::now());
    let mut curves = Curves::of(&request.plan, host_of_rank, request);
    curves.add_lines(measured);
    let mut cases_so_far = request.plan.cases.len();
    let mut round = 0;
    let spent_before = running.run.completed.sampling_seconds_from(cases_so_far);
    let is_spent = || begun.elapsed().as_secs_f64() + spent_before > calibrate.budget.0;
    while !running.run.tally.is_stopped() {
        let run = &mut *running.run;
        let recorded_growth = run.completed.growth(round + 1);
        let before = recorded_growth.map_or_else(|| Ok(Vec::new()), |growth| curves.chosen_before(growth));
        let mut chosen = agree(run.world, before)?;
        let is_recorded = recorded_growth.is_some();
        if !is_recorded && run.world.process() == 0 && !is_spent() {
            chosen = curves.next(calibrate, MOST_CASES.saturating_sub(cases_so_far));
        }
        let mine: Vec<_> = chosen.iter().map(|next| (curves.curves[next.curve].template, next.bytes)).collect();
        let choices: Vec<(usize, u64)> = from_first(run.world, &mine)?;
        if choices.is_empty() {
            break;
        }
        round += 1;
        let with_bytes = |(like, bytes): &(usize, u64)| request.plan.cases[*like].with_bytes(Bytes(*bytes));
        let cases: Vec<Case> = choices.iter().map(with_bytes).collect();
        let planned: Vec<Planned> = cases.iter().map(|case| facts::planned(request, case, host_of_rank)).collect();
        run.journal.write_all(|| {
            let growth = PlanGrowth {
                round,
                cases: planned.iter().map(|planned| facts::case_facts(request, planned)).collect(),
                case_lines: planned.len() as u64 * u64::from(request.settings.replicates),
                estimated_seconds: request.plan.estimated_seconds_of(&cases, &request.settings),
                chosen: chosen.iter().map(|next| next.why.clone()).collect(),
            };
            // A growth that an earlier launch recorded is already in the record.
            (!is_recorded).then(|| Line::PlanGrowth(Box::new(growth))).into_iter().collect()
        })?;
        let cases = CaseSet { planned: &planned, first_case: cases_so_far, round };
        let measured = measure_all_replicates(running, cases)?;
        curves.add(&chosen, cases_so_far as u32, &measured);
        cases_so_far += planned.len();
    }
    let stopped = match () {
        () if running.run.tally.is_stopped() => CalibrationEnd::Interrupted,
        () if cases_so_far >= MOST_CASES && !is_spent() => CalibrationEnd::MostCases,
        () => CalibrationEnd::Budget,
    };
    running.run.journal.write(|| Line::Calibration(curves.line(calibrate, round, stopped)))
}

struct Curves {
    curves: Vec<CurveState>,
}

/// A curve that grows.
struct CurveState {
    /// Index in the plan of one of its cases, and its facts; the other cases differ in size only.
    template: usize,
    facts: CaseFacts,
    /// The case with this index.
    case: Case,
    /// Bytes of every case of the curve, by index in the plan, rounded so that they divide among the ranks.
    bytes_of_case: BTreeMap<u32, u64>,
    /// Seconds of a call in each replicate, by bytes.
    seconds: BTreeMap<u64, Vec<f64>>,
    /// Sizes that were tried, with or without success; none is tried twice.
    tried: BTreeSet<u64>,
    /// Errors of the predictions of added sizes, in the order in which they were added.
    errors: Vec<f64>,
}

/// The next size of a curve.
struct NextSize {
    curve: usize,
    pub bytes: u64,
    pub why: ChosenSize,
}

impl Curves {
    /// The curves of a plan, without times.
    fn of(plan: &WorkPlan, host_of_rank: &[u32], request: &Request) -> Curves {
        let growing = |indices: &Vec<usize>| {
            let of_case =
                |index: usize| case_facts(request, &facts::planned(request, &plan.cases[index], host_of_rank));
            let bytes_of_case: BTreeMap<u32, u64> =
                indices.iter().map(|index| (*index as u32, of_case(*index).bytes_total.0)).collect();
            CurveState {
                template: indices[0],
                facts: of_case(indices[0]),
                case: plan.cases[indices[0]].clone(),
                tried: indices.iter().map(|index| plan.cases[*index].op.bytes_total.0).collect(),
                bytes_of_case,
                seconds: BTreeMap::new(),
                errors: Vec::new(),
            }
        };
        Curves { curves: plan.curves().iter().map(growing).collect() }
    }

    /// Adds the times of cases that belong to a curve.
    fn add_lines(&mut self, lines: &[CaseLine]) {
        for line in lines {
            for curve in &mut self.curves {
                if let Some(bytes) = curve.bytes_of_case.get(&line.case)
                    && let Some(seconds) = seconds_of_call(&curve.facts, line)
                {
                    curve.seconds.entry(*bytes).or_default().push(seconds);
                }
            }
        }
    }

    /// Adds the times of the chosen sizes, the first of which has the given index in the plan.
    fn add(&mut self, chosen: &[NextSize], first_case: u32, lines: &[CaseLine]) {
        for (case, next) in (first_case..).zip(chosen) {
            self.curves[next.curve].bytes_of_case.insert(case, next.bytes);
        }
        self.add_lines(lines);
        for next in chosen {
            let curve = &mut self.curves[next.curve];
            // A size that could not be measured does not affect the curve.
            if let Some(seconds) = curve.seconds.get(&next.bytes).and_then(|replicates| combined(replicates)) {
                curve.errors.push((next.why.predicted_seconds.0 / seconds - 1.0).abs());
            }
        }
    }

    /// One size for each curve that is not precise enough, at most `most`, starting with the least precise curve.
    fn next(&mut self, calibrate: &Calibrate, most: usize) -> Vec<NextSize> {
        let mut chosen: Vec<NextSize> =
            (self.curves.iter().enumerate()).filter_map(|(index, curve)| curve.next(index, calibrate)).collect();
        chosen.sort_by(|a, b| b.why.expected_error.total_cmp(&a.why.expected_error));
        chosen.truncate(most);
        for next in &chosen {
            self.curves[next.curve].tried.insert(next.bytes);
        }
        chosen
    }

    /// The sizes of a round that an earlier launch chose and recorded.
    fn chosen_before(&mut self, growth: &PlanGrowth) -> Result<Vec<NextSize>> {
        let one = |(facts, why): (&CaseFacts, &ChosenSize)| {
            let bytes = facts.bytes_total.0;
            // Apart from the size and derived values, the new case equals the others of its curve.
            let same = |curve: &CurveState| curve.named(bytes) == facts.name;
            let Some(curve) = self.curves.iter().position(same) else {
                let name = &facts.name;
                let text =
                    format!("round {} of the record adds {name}, which belongs to no curve of this plan", growth.round);
                return Err(Error::mismatch(text));
            };
            Ok(NextSize { curve, bytes, why: why.clone() })
        };
        let chosen: Vec<NextSize> = growth.cases.iter().zip(&growth.chosen).map(one).collect::<Result<_>>()?;
        for next in &chosen {
            self.curves[next.curve].tried.insert(next.bytes);
        }
        Ok(chosen)
    }

    fn line(&self, calibrate: &Calibrate, rounds: u32, stopped: CalibrationEnd) -> CalibrationLine {
        let curves = self.curves.iter().map(|curve| curve.summary(calibrate, stopped)).collect();
        CalibrationLine { until_error: calibrate.until_error, rounds, curves }
    }
}

impl CurveState {
    /// Name of the case of this size.
    fn named(&self, bytes: u64) -> String {
        self.case.with_bytes(Bytes(bytes)).name()
    }

    fn points(&self) -> Vec<Point> {
        let point = |(bytes, replicates): (&u64, &Vec<f64>)| Some(Point::new(*bytes as f64, combined(replicates)?));
        self.seconds.iter().filter_map(point).collect()
    }

    /// Expected error of the curve at its least precise size.
    fn expected_error(&self) -> Option<f64> {
        gaps(&self.points()).iter().map(|gap| gap.expected_error).reduce(f64::max)
    }

    fn next(&self, curve: usize, calibrate: &Calibrate) -> Option<NextSize> {
        if self.seconds.len() >= calibrate.most_sizes as usize {
            return None;
        }
        let points = self.points();
        let last_error = self.errors.last().copied();
        let (gap, bytes) = next_point(&points, last_error, calibrate.until_error, |gap| self.split(gap))?;
        Some(NextSize {
            curve,
            bytes,
            why: ChosenSize {
                above: Bytes(gap.low),
                below: Bytes(gap.high),
                expected_error: gap.expected_error,
                predicted_seconds: Seconds(interpolated(&points, bytes as f64)?),
            },
        })
    }

    /// A size between two measured ones that was not tried yet.
    fn split(&self, gap: &Gap) -> Option<u64> {
        let bytes = gap.middle().and_then(|bytes| self.divisible(bytes))?;
        let is_new = bytes > gap.low && bytes < gap.high && !self.tried.contains(&bytes);
        is_new.then_some(bytes)
    }

    /// The largest valid size of the call up to this one, so that the planned size equals the requested one.
    fn divisible(&self, bytes: u64) -> Option<u64> {
        let op = Op { bytes_total: Bytes(bytes), ..self.case.op.clone() };
        op.geometry(self.facts.group_size).ok().map(|geometry| geometry.bytes_total.0)
    }

    /// `stopped` is why a run that would add further sizes does not.
    fn summary(&self, calibrate: &Calibrate, stopped: CalibrationEnd) -> CalibratedCurve {
        let (points, expected_error) = (self.points(), self.expected_error());
        let last_error = self.errors.last().copied();
        let within = |error: Option<f64>| error.is_some_and(|error| error <= calibrate.until_error);
        let may_grow = self.seconds.len() < calibrate.most_sizes as usize;
        let outcome = match () {
            () if points.len() < 2 => CalibrationEnd::NotMeasured,
            () if within(expected_error) && within(last_error) => CalibrationEnd::Sure,
            () if !may_grow => CalibrationEnd::MostSizes,
            () if self.next(0, calibrate).is_none() => CalibrationEnd::NoSizeBetween,
            () => stopped,
        };
        CalibratedCurve {
            case: self.template as u32,
            sizes: self.seconds.len() as u32,
            expected_error,
            last_error,
            largest_error: self.errors.iter().copied().reduce(f64::max),
            outcome,
        }
    }
}

// The cases of a run between two comparisons of the clocks: those of the plan, and those added by the run.

/// Measures all cases of the plan in every replicate or in the time for all of them, then the sizes that the run
/// chooses.
pub(super) fn measure_all_cases(run: &mut Run, backend: &mut dyn Backend, planned: &[Planned]) -> Result<()> {
    let settings = &run.request.settings;
    let now = work_loop::reading_of(backend);
    let mut time = Timekeeping::begin(run, backend, &now)?;
    let cases = CaseSet { planned, first_case: 0, round: 0 };
    let mut running = CaseLoop { run, backend, time: &mut time };
    let lines = match settings.within {
        Some(soak) if settings.soak => self::soak(&mut running, cases, soak).map(|()| Vec::new())?,
        Some(within) => case::measure_all(&mut running, cases, within).map(|()| Vec::new())?,
        None => measure_all_replicates(&mut running, cases)?,
    };
    if let Some(calibrate) = settings.calibrate.as_ref().filter(|_| !running.run.completed.calibrated) {
        measure_all(&mut running, calibrate, &lines)?;
    }
    if run.tally.is_stopped() { Ok(()) } else { time.end(run) }
}

// The replicates: each with new communicators and its own order, one line per case.

/// Step of the seed from one round of a soak to the next.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Measures every case in every replicate. If the run adds cases that depend on them, returns the lines on process 0,
/// including those of earlier launches.
fn measure_all_replicates(running: &mut CaseLoop, cases: CaseSet) -> Result<Vec<CaseLine>> {
    let run = &*running.run;
    let settings = &run.request.settings;
    let collects_lines = settings.calibrate.is_some() && run.world.process() == 0;
    let mut lines = if collects_lines { run.completed.lines_of(cases.indices()) } else { Vec::new() };
    let mut collect = |line: &mut CaseLine, _| lines.extend(collects_lines.then(|| line.clone()));
    for replicate in 0..settings.replicates {
        let mut missing = missing(running.run, cases, replicate);
        let estimates = missing.iter().map(|slot| estimated_case(cases.planned[slot.case].case, settings));
        let Some(shortest) = estimates.min_by(|a, b| a.seconds().0.total_cmp(&b.seconds().0)) else { continue };
        // Communicators of many ranks take a while, so they are created only if there is time for a case.
        if running.run.begin(shortest)?.is_none() {
            return Ok(lines);
        }
        cases.connect(running.run.request, running.backend)?;
        while !missing.is_empty() {
            let held_back = measure(running, cases, &missing, &mut collect)?;
            // Measured cases show how long the others take; without any there will be none.
            running.run.tally.out_of_time = held_back.len() == missing.len();
            if running.run.tally.is_stopped() {
                return Ok(lines);
            }
            missing = held_back;
        }
        running.backend.disconnect()?;
        work_loop::record_evidence(running.run, running.backend, EvidenceMoment::AfterReplicate)?;
    }
    Ok(lines)
}

/// Measures cases of a replicate, and returns those for which the time limit leaves no time, as far as known now: shorter cases that come
/// later may have time, and show that an estimate was far too long.
fn measure(
    running: &mut CaseLoop,
    cases: CaseSet,
    slots: &[CaseSlot],
    observe: &mut dyn FnMut(&mut CaseLine, Seconds),
) -> Result<Vec<CaseSlot>> {
    let CaseLoop { run, backend, time } = running;
    let settings = &run.request.settings;
    let mut held_back = Vec::new();
    for slot in slots {
        CaseWork { cases, slot: *slot, settings, time, observe: &mut *observe }.measure(run, *backend)?;
        if run.tally.signal != 0 {
            break;
        }
        if run.tally.out_of_time {
            held_back.push(*slot);
            run.tally.out_of_time = false;
        }
    }
    Ok(held_back)
}

/// Measures all cases in rounds until a time is over or data is wrong, each round with different data.
fn soak(running: &mut CaseLoop, cases: CaseSet, allowed: Seconds) -> Result<()> {
    let CaseLoop { run, backend, time } = running;
    let settings = &run.request.settings;
    let in_all = u64::from(settings.replicates) * cases.planned.len() as u64;
    let mut left: u64 = (0..settings.replicates).map(|round| missing(run, cases, round).len() as u64).sum();
    // Earlier launches have used their share.
    let (begun, allowed) = (Instant::now(), allowed.0 * left as f64 / in_all.max(1) as f64);
    for round in 0..settings.replicates {
        let mut is_connected = false;
        for slot in missing(run, cases, round) {
            // Skipped cases leave their time to the others.
            let mut visit = [((allowed - begun.elapsed().as_secs_f64()) / left as f64 * 1e9).max(0.0) as u64];
            run.world.broadcast_u64(&mut visit)?;
            if visit[0] == 0 {
                return if is_connected { backend.disconnect() } else { Ok(()) };
            }
            let seed = settings.seed.wrapping_add(u64::from(round).wrapping_mul(SEED_STEP));
            let settings = RunSettings { case_budget: Seconds::from_nanoseconds(visit[0]), seed, ..settings.clone() };
            if !is_connected {
                cases.connect(run.request, *backend)?;
                is_connected = true;
            }
            CaseWork { cases, slot, settings: &settings, time, observe: &mut |_, _| () }.measure(run, *backend)?;
            left -= 1;
            if run.tally.is_stopped() || run.tally.corrupt > 0 {
                return Ok(());
            }
        }
        if is_connected {
            backend.disconnect()?;
        }
    }
    Ok(())
}

/// The remaining cases of the replicate, in its order.
fn missing(run: &Run, cases: CaseSet, replicate: u32) -> Vec<CaseSlot> {
    let order = cases.order(&run.request.settings, replicate);
    let slots = (0u32..).zip(order).map(|(position, case)| CaseSlot { case, replicate, position });
    let key = |slot: &CaseSlot| WorkKey::Case { index: cases.index_in_plan(slot.case) as u32, replicate };
    slots.filter(|slot| !run.completed.has(key(slot))).collect()
}
