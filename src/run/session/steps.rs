//! The replicates: fresh communicators, a new order of the cases, one line for each case.

use super::devices;
use super::preflight::{Planned, binding};
use super::resume::CompletedWork;
use super::{Request, SharedJournal, Signals};
use crate::backend::Backend;
use crate::measure::{CaseResult, DEFAULT_COMPLETION_DEADLINE, MeasureContext, RankTimes, measure_case};
use crate::session::signals::Work;
use crate::session::timekeeping::Timekeeping;
use crate::watchdog::{Activity, SETUP_DEADLINE, deadline_of_case};
use crate::world::{Located, World, agree};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::layout::{Axis, Groups};
use commgauge_model::record::line::{CaseLine, Line, Outcome, PairTimes};
use commgauge_model::workload::estimated_case_seconds;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Counts of the outcomes of all cases.
#[derive(Default)]
pub(super) struct Tally {
    /// Case lines with wrong data.
    pub corrupt: u64,
    /// Case lines that could not be run to their end.
    pub failed: u64,
    /// The signal that ended the run early, or 0.
    pub signal: i32,
    /// Whether the time limit ended it early.
    pub out_of_time: bool,
}

impl Tally {
    /// Counts of a resumed run at its start.
    pub(super) fn after(completed: &CompletedWork) -> Tally {
        Tally { corrupt: completed.corrupt, failed: completed.failed, ..Tally::default() }
    }

    /// Whether no further case may start.
    pub(super) fn is_stopped(&self) -> bool {
        self.signal != 0 || self.out_of_time
    }
}

/// State shared by the steps of a run.
pub(super) struct Steps<'a> {
    pub world: &'a dyn World,
    pub request: &'a Request,
    pub planned: &'a [Planned<'a>],
    /// Cases that earlier launches have completed.
    pub completed: &'a CompletedWork,
    /// Index in the plan of the first of these cases.
    pub first_case: usize,
    /// 0 for the plan of the suite, then the rounds in which a run adds cases.
    pub round: u32,
    pub signals: &'a Signals,
}

/// A case of a replicate, and its position.
#[derive(Clone, Copy)]
pub(super) struct CaseSlot {
    /// Index among the planned cases of these steps.
    pub case: usize,
    pub replicate: u32,
    pub position: u32,
}

impl Steps<'_> {
    /// Measures every case in every replicate. An error that is not shared is known to this process only: the caller
    /// must then abort the launch. Returns the lines if the run continues from them.
    pub(super) fn measure_all(
        &self,
        backend: &mut dyn Backend,
        time: &mut Timekeeping,
        (journal, tally): (&mut SharedJournal, &mut Tally),
    ) -> Result<Vec<CaseLine>> {
        let settings = &self.request.settings;
        if let Some(within) = settings.within {
            return self.measure_within(within, backend, time, (journal, tally)).map(|()| Vec::new());
        }
        let collects_lines = settings.calibrate.is_some() && self.world.process() == 0;
        let known = || self.completed.lines_of(self.first_case..self.first_case + self.planned.len());
        let mut lines = if collects_lines { known() } else { Vec::new() };
        let mut collector = |line: &mut CaseLine, _| lines.extend(collects_lines.then(|| line.clone()));
        for replicate in 0..settings.replicates {
            let missing = self.missing(replicate);
            let Some(first) = missing.first() else { continue };
            if self.begin(*first, settings)?.is_none() {
                tally.out_of_time = true;
                return Ok(lines);
            }
            self.connect(backend)?;
            for slot in missing {
                self.measure_one(backend, time, (slot, settings), &mut collector, (&mut *journal, &mut *tally))?;
                if tally.is_stopped() {
                    return Ok(lines);
                }
            }
            backend.disconnect()?;
        }
        Ok(lines)
    }

    /// Creates fresh communicators for all groups in use.
    pub(super) fn connect(&self, backend: &mut dyn Backend) -> Result<()> {
        let used: BTreeSet<usize> = self.planned.iter().map(|planned| planned.case.groups).collect();
        used.iter().try_for_each(|number| backend.connect(*number, &self.request.plan.groups[*number]))
    }

    /// Measures one case of one replicate, from the check of the time limit to its line in the record. Before the line
    /// is written, `observe` gets it together with the duration of sampling.
    pub(super) fn measure_one(
        &self,
        backend: &mut dyn Backend,
        time: &mut Timekeeping,
        (slot, settings): (CaseSlot, &RunSettings),
        observe: &mut dyn FnMut(&mut CaseLine, Seconds),
        (journal, tally): (&mut SharedJournal, &mut Tally),
    ) -> Result<()> {
        let world = self.world;
        let Some(work) = self.begin(slot, settings)? else {
            tally.out_of_time = true;
            return Ok(());
        };
        time.clock.resynchronise(world)?;
        let before = devices::before(backend);
        let (mut line, sampling) = self.case_line(backend, time, (slot, settings))?;
        tally.corrupt += u64::from(matches!(line.outcome, Outcome::Corrupt { .. }));
        tally.failed += u64::from(matches!(line.outcome, Outcome::Failed { .. }));
        observe(&mut line, sampling);
        journal.write(world, || Line::Case(Box::new(line)))?;
        self.signals.done(&work);
        let named = ((self.first_case + slot.case) as u32, slot.replicate);
        devices::record_changes(world, backend, before, named, journal)?;
        tally.signal = self.signals.agreed(world)?;
        Ok(())
    }

    /// The cases of a replicate that are still to be measured, in its order.
    fn missing(&self, replicate: u32) -> Vec<CaseSlot> {
        let order = self.order(replicate);
        let slots = (0u32..).zip(order).map(|(position, case)| CaseSlot { case, replicate, position });
        slots.filter(|slot| !self.completed.has_case(self.first_case + slot.case, replicate)).collect()
    }

    /// The order of the cases in a replicate.
    pub(super) fn order(&self, replicate: u32) -> Vec<usize> {
        let settings = &self.request.settings;
        if settings.rows_in_order && replicate + 1 == settings.replicates {
            return in_order_of_rows(self.planned);
        }
        let seed = settings.seed.wrapping_add(u64::from(self.round) << 32);
        order(self.planned.len(), seed, replicate)
    }

    /// Begins a case, if there is time for it.
    fn begin(&self, slot: CaseSlot, settings: &RunSettings) -> Result<Option<Work>> {
        let estimate = estimated_case_seconds(self.planned[slot.case].case, settings);
        self.signals.begin(self.world, estimate)
    }

    /// Computes the bound of a case, measures it and builds its line. A case that cannot run is skipped, one that does
    /// not fit into memory fails, both with the reason.
    fn case_line(
        &self,
        backend: &mut dyn Backend,
        time: &Timekeeping,
        (slot, settings): (CaseSlot, &RunSettings),
    ) -> Result<(CaseLine, Seconds)> {
        let request = self.request;
        let without_numbers = |outcome| Ok((self.line_without_numbers(slot, outcome), Seconds(0.0)));
        assert_ne!(request.injected_panic, Some(self.world.process()), "requested by --inject-panic");
        let planned = &self.planned[slot.case];
        let geometry = match &planned.geometry {
            Ok(geometry) => geometry,
            Err(reason) => return without_numbers(Outcome::Waived { reason: reason.clone() }),
        };
        let deadline = request.watch.timeout().unwrap_or_else(|| deadline_of_case(planned.case));
        let settings = settings.at(planned.case.op.bytes_total);
        let context = MeasureContext {
            world: self.world,
            local_ranks: backend.local_ranks(),
            world_size: request.world_size,
            clock: time.clock.model(),
            start: time.start,
            clock_resolution_nanoseconds: time.resolution,
            settings: &settings,
            interrupted: self.signals.raised(),
            injected_delay: request.injected_delay,
            completion_deadline: request.watch.timeout().map_or_else(
                || DEFAULT_COMPLETION_DEADLINE.max(deadline * 2),
                |timeout| request.watch.local_timeout(timeout),
            ),
        };
        request.watch.begin(|| self.activity(slot, deadline));
        let binding = binding(request, planned.case, geometry);
        if let Some(reason) = common_skip_reason(self.world, backend.skip_reason(&binding))? {
            return without_numbers(Outcome::Waived { reason });
        }
        // Nothing is enqueued before all ranks have their buffers: the others would wait for a rank that failed to
        // allocate.
        let bound = backend.bind(&binding);
        let mut call = match agree(self.world, bound) {
            Ok(call) => request.watch.call(call, deadline),
            Err(error) if error.is_shared() => {
                return without_numbers(Outcome::Failed { reason: error.to_string() });
            }
            Err(error) => return Err(error),
        };
        let result = measure_case(&context, call.as_mut(), planned.case)?;
        let sampling = result.sampling;
        Ok((self.line_of(result, slot), sampling))
    }

    fn activity(&self, slot: CaseSlot, deadline: Duration) -> Activity {
        let case = self.planned[slot.case].case;
        let (number, of) = (self.first_case + slot.case + 1, self.first_case + self.planned.len());
        let name = format!("case {number} of {of}, replicate {}", slot.replicate);
        // All ranks allocate and fill their buffers first.
        let deadline = deadline.max(SETUP_DEADLINE);
        Activity::case(name, case, self.request.plan.groups_of(case), self.world.process(), deadline)
    }

    fn line_without_numbers(&self, slot: CaseSlot, outcome: Outcome) -> CaseLine {
        self.line_of(CaseResult::without_numbers(outcome, 0), slot)
    }

    fn line_of(&self, result: CaseResult, slot: CaseSlot) -> CaseLine {
        let case = self.planned[slot.case].case;
        let pairs = (case.op.axis == Axis::Pair).then(|| pair_times(self.request.plan.groups_of(case), &result));
        let line = result.into_line((self.first_case + slot.case) as u32, case.name(), slot.replicate, slot.position);
        CaseLine { pairs: pairs.map(Box::new), ..line }
    }
}

/// If any rank has a reason to skip, all get the reason of the lowest such rank.
fn common_skip_reason(world: &dyn World, mine: Option<String>) -> Result<Option<String>> {
    let mut lowest = [Located { value: if mine.is_some() { 0.0 } else { 1.0 }, rank: world.process() as i32 }];
    world.all_min(&mut lowest)?;
    if lowest[0].value > 0.0 {
        return Ok(None);
    }
    let mut reason = mine.unwrap_or_default().into_bytes();
    reason = world.gather(&reason)?.into_iter().nth(lowest[0].rank as usize).unwrap_or_default();
    world.broadcast(&mut reason)?;
    Ok(Some(String::from_utf8_lossy(&reason).into_owned()))
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

/// The order of the cases in a replicate: shuffled, so that slow drift does not always affect the same cases.
fn order(cases: usize, seed: u64, replicate: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(replicate)));
    order.shuffle(&mut random);
    order
}

/// The order of the rows of a table: sorted by table, and within a table as in the plan.
fn in_order_of_rows(planned: &[Planned]) -> Vec<usize> {
    let part = |case: usize| {
        let case = planned[case].case;
        (case.groups, case.op.style, case.cadence)
    };
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for case in 0..planned.len() {
        match parts.iter_mut().find(|cases| part(cases[0]) == part(case)) {
            Some(cases) => cases.push(case),
            None => parts.push(vec![case]),
        }
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replicate_has_all_cases_in_an_order_of_its_own_that_the_seed_repeats() {
        let mut sorted = order(50, 7, 0);
        assert_ne!(sorted, order(50, 7, 1));
        assert_eq!(sorted, order(50, 7, 0));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
