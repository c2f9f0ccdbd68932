//! One case of one replicate: its bound, its measurement, and its line of the record.

use super::case_set::{CaseSet, CaseSlot};
use super::completed::CompletedWork;
use super::devices;
use super::preflight::binding;
use super::timekeeping::Timekeeping;
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, Binding, DeviceState};
use crate::measure::{CaseResult, DEFAULT_COMPLETION_DEADLINE, MeasureContext, RankTimes, measure_case, soak_case};
use crate::watchdog::Activity;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::layout::{Axis, Groups};
use commgauge_model::record::line::{CaseLine, Line, Outcome, PairTimes};
use commgauge_model::workload::{Case, Estimate, estimated_case};
use std::collections::HashMap;
use std::time::Duration;

/// A case of a replicate as a piece of work.
pub(super) struct CaseWork<'a, 'clock> {
    pub cases: CaseSet<'a>,
    pub slot: CaseSlot,
    /// How its samples are taken.
    pub settings: &'a RunSettings,
    pub time: &'a mut Timekeeping<'clock>,
    /// Gets the line, and how long sampling took, before the line is recorded.
    pub observe: &'a mut dyn FnMut(&mut CaseLine, Seconds),
}

impl CaseWork<'_, '_> {
    /// Measures and records the case, then how its devices changed, if the time limit allows it.
    pub(super) fn measure(self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let (case, replicate) = (self.index_in_plan() as u32, self.slot.replicate);
        let mut item = Item { work: self, device_before: None };
        if !run.carry_out(backend, &mut item)? {
            return Ok(());
        }
        devices::record_changes(run, backend, item.device_before, case, replicate)?;
        run.ask_for_signal()
    }

    fn case(&self) -> &Case {
        self.cases.planned[self.slot.case].case
    }

    fn index_in_plan(&self) -> usize {
        self.cases.index_in_plan(self.slot.case)
    }

    /// The line, and how long sampling took. A case that cannot run is skipped, one that does not fit into memory
    /// fails, both with the reason.
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
        if let Some(reason) = run.common_skip_reason(backend.skip_reason(&binding))? {
            return without_numbers(Outcome::Skipped { reason });
        }
        let mut call = match run.bound(backend.bind(&binding))? {
            Ok(call) => request.watch.call(call, deadlines),
            Err(failed) => return without_numbers(failed),
        };
        let measure = if settings.is_soak() { soak_case } else { measure_case };
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
        let line = result.into_line(self.index_in_plan() as u32, case.name(), slot.replicate, slot.position);
        CaseLine { pairs: pairs.map(Box::new), ..line }
    }
}

/// The case in the work loop.
struct Item<'a, 'clock> {
    work: CaseWork<'a, 'clock>,
    device_before: Option<DeviceState>,
}

impl WorkItem for Item<'_, '_> {
    fn is_completed(&self, completed: &CompletedWork) -> bool {
        completed.has_case(self.work.index_in_plan(), self.work.slot.replicate)
    }

    fn estimate(&self, _: &Run) -> Estimate {
        estimated_case(self.work.case(), self.work.settings)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        self.work.time.clock.resynchronise(run.world)?;
        self.device_before = devices::before(backend);
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
