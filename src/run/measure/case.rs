//! Measures one case from the first fill to the last check, in named phases. Called by all processes in the same order.
//!
//! An error inside a collective cannot be recovered: it is returned, and the caller ends the launch.

use super::cadence::{Batch, Lead, isolated_batch};
use super::sampling::{GatheredTimes, OwnTimes, RankTimes, Reading, Sampled, sample_until_enough};
use super::stop::{choose_calls_per_sample, precision_reached, warm_up};
use super::{MeasureContext, streaming_batch};
use crate::backend::Call;
use crate::world::{Located, from_lowest};
use commgauge_base::collective::Placement;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Seconds;
use commgauge_base::variant::LibraryChoice;
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{CaseLine, Outcome, StopReason};
use commgauge_model::workload::Case;

/// Result of a case. The samples, histograms, reached precision and warnings of its line, and the rest are set on process 0 only; other
/// facts are the same everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// What the record gets; its place in the plan and in the run is the session's.
    pub line: CaseLine,
    /// Duration of sampling, including everything between the samples.
    pub sampling: Seconds,
    /// Statistics of every rank's own times, if the groups are pairs.
    pub rank_times: Vec<RankTimes>,
}

impl CaseResult {
    pub fn without_numbers(outcome: Outcome, buffer_copies: u32) -> Self {
        let line = CaseLine { buffer_copies, ..CaseLine::new(0, "", 0, outcome) };
        CaseResult { line, sampling: Seconds(0.0), rank_times: Vec::new() }
    }
}

/// Measures one bound case: check, warm up, choose calls per sample, sample until enough, check again.
pub fn measure_case(context: &MeasureContext, call: &mut dyn Call, case: &Case) -> Result<CaseResult> {
    let copies = call.buffer_copies();
    if let Some(corrupt) = fill_run_and_check(context, call, "before")? {
        return Ok(CaseResult::without_numbers(corrupt, copies));
    }

    let mut batch = Batch::default();
    let warm = warm_up(context, call, &mut batch)?;
    let length = match case.cadence {
        Cadence::Streaming => Some(choose_calls_per_sample(context, call, warm.call_nanoseconds, &mut batch)?),
        Cadence::Isolated => None,
    };
    let calls_per_sample = length.map_or(1, |length| length.calls);
    let sample_seconds = warm.call_nanoseconds.map(|call| call * 1e-9 * f64::from(calls_per_sample));
    // Per-pair costs are known only if each rank has its own statistics.
    let in_pairs = case.op.axis == Axis::Pair;
    let empty = if in_pairs { OwnTimes::apart } else { OwnTimes::new };
    let own_times = empty(context.local_ranks.clone(), context.world_size);
    let sampled =
        sample_until_enough(context, call, case.cadence, calls_per_sample, sample_seconds, own_times, &mut batch)?;

    // Before the last check, which would detect an estimate that modified data.
    let (library_estimate, library_choice) = library_facts(context, call)?;
    if let Some(corrupt) = check_after(context, call, case)? {
        return Ok(CaseResult::without_numbers(corrupt, copies));
    }
    let (own_times, rank_times) = match in_pairs {
        true => (GatheredTimes::default(), sampled.own_times.gather_middles(context.world)?),
        false => (sampled.own_times.gather(context.world)?, Vec::new()),
    };
    let mut warnings = sampled.warnings;
    if context.settings.iterations.is_some() {
        warnings.extend(length.and_then(|length| length.warning(&sampled.valid)));
    }
    if warm.still_falling {
        warnings.push(format!(
            "times were still falling after {} iterations of warm-up; the first samples may be too long",
            warm.iterations
        ));
    }
    let measured = CaseResult::without_numbers(Outcome::Measured { verified: verifies(context, call) }, copies);
    let line = CaseLine {
        warm_up_iterations: warm.iterations,
        calls_per_sample: calls_per_sample.saturating_mul(case.variant.calls_at_once()),
        stop: Some(sampled.stop),
        precision_reached: precision_reached(&sampled.valid),
        samples: sampled.columns,
        histograms: own_times.histograms,
        rank_medians: own_times.rank_medians,
        library_estimate_seconds: library_estimate,
        library_choice: library_choice.map(Box::new),
        warnings,
        ..measured.line
    };
    Ok(CaseResult { line, sampling: sampled.took, rank_times })
}

/// The library's data about the calls: the longest estimate of all ranks, and the choice reported by the first rank
/// that has one. The same on every process.
fn library_facts(context: &MeasureContext, call: &mut dyn Call) -> Result<(Option<Seconds>, Option<LibraryChoice>)> {
    let choice = from_lowest(context.world, call.library_choice()?)?;
    let estimate = call.library_estimate()?.map_or(0.0, |estimate| estimate.0);
    let mut most = [Located { value: estimate, rank: context.local_ranks.start as i32 }];
    context.world.all_max(&mut most)?;
    Ok(((most[0].value > 0.0).then(|| Seconds(most[0].value)), choice))
}

/// Whether repeated calls leave the same result as a single one.
pub(super) fn leaves_result(case: &Case) -> bool {
    case.placement == Placement::OutOfPlace || case.op.collective.repeatable_in_place()
}

/// Checks the buffers as the timed iterations left them, if a repeated call leaves the same result as a single one;
/// then once more with fresh poison, since the data may be from an earlier iteration than the last.
fn check_after(context: &MeasureContext, call: &mut dyn Call, case: &Case) -> Result<Option<Outcome>> {
    if !verifies(context, call) {
        return Ok(None);
    }
    if leaves_result(case)
        && let Some(corrupt) = check(context, call, "after")?
    {
        return Ok(Some(corrupt));
    }
    fill_run_and_check(context, call, "after")
}

// Checks the received data: an error found by any process is shared with all.

/// Fills the buffers, makes calls between the kernels that produce and compare their data where they run on a stream, and checks them if
/// there is data and verification is on.
pub(crate) fn fill_run_and_check(context: &MeasureContext, call: &mut dyn Call, when: &str) -> Result<Option<Outcome>> {
    call.fill()?;
    call.enqueue_checked()?;
    // Released together, so that a call that does not wait for its producer finds that of another rank still in progress.
    context.world.barrier()?;
    call.complete(context.completion_deadline)?;
    check(context, call, when)
}

/// Checks the results of the calls since the last fill. Every process gets the same result: that of the lowest rank with an error.
pub(crate) fn check(context: &MeasureContext, call: &mut dyn Call, when: &str) -> Result<Option<Outcome>> {
    if !verifies(context, call) {
        return Ok(None);
    }
    Ok(from_lowest(context.world, call.check()?)?.map(|wrong| wrong.outcome(when)))
}

/// Whether there is data and verification is on.
pub(crate) fn verifies(context: &MeasureContext, call: &dyn Call) -> bool {
    context.settings.verify && call.verifies()
}

// One case of one round of a soak: calls in short batches, with the results of every batch compared. Called by all processes in the same
// order.

/// Maximum samples per line: a soak has many lines.
const MOST_SAMPLES: f64 = 64.0;

/// Isolated calls per batch.
const ISOLATED_CALLS: u32 = 8;

/// Time of the calls between two checks.
const BATCH_NANOSECONDS: f64 = 10e6;

/// Repeats fill, checked calls, timed calls and comparison until the budget is spent or data are wrong.
pub fn soak_case(context: &MeasureContext, call: &mut dyn Call, case: &Case) -> Result<CaseResult> {
    let copies = call.buffer_copies();
    let in_pairs = case.op.axis == Axis::Pair;
    let mut sampled = Sampled::none(OwnTimes::apart(context.local_ranks.clone(), context.world_size));
    let (mut batch, mut lead) = (Batch::default(), Lead::default());
    // No more calls than there are copies, so that the result of each can still be compared.
    let most_calls = (copies / case.variant.calls_at_once().max(1)).max(1);
    let budget = context.settings.case_budget.0;
    let begun = Reading::now(call);
    let checks_after = leaves_result(case) && verifies(context, call);
    let (mut calls, mut batches) = (1, 0u64);
    let stop = loop {
        if let Some(corrupt) = fill_run_and_check(context, call, "before")? {
            return Ok(CaseResult::without_numbers(corrupt, copies));
        }
        match case.cadence {
            Cadence::Streaming => streaming_batch(context, call, 1, calls, &mut batch)?,
            Cadence::Isolated => isolated_batch(context, call, calls, &mut lead, &mut batch)?,
        }
        if checks_after && let Some(corrupt) = check(context, call, "after")? {
            return Ok(CaseResult::without_numbers(corrupt, copies));
        }
        let elapsed = begun.seconds_until(Reading::now(call));
        batches += 1;
        if batches == 1 {
            // The first is the warm-up. All processes have the same samples and the same number of calls.
            calls = calls_of_batch(case.cadence, &batch, most_calls);
        } else {
            let stored = sampled.columns.slowest_nanoseconds.len() + batch.samples.len();
            let due = (elapsed / budget).min(1.0) * MOST_SAMPLES;
            // Spread over the whole time; the own times of ranks are a histogram each.
            if stored as f64 <= due.max(batch.samples.len() as f64) || !context.decides() {
                sampled.store(context, case.cadence, &batch);
            }
        }
        if let Some(stop) = decide(context, batches > 1 && elapsed >= budget)? {
            sampled.took = Seconds(elapsed);
            break stop;
        }
    };
    let rank_times = if in_pairs { sampled.own_times.gather_middles(context.world)? } else { Vec::new() };
    let calls_per_sample = if case.cadence == Cadence::Streaming { calls } else { 1 };
    let measured = CaseResult::without_numbers(Outcome::Measured { verified: verifies(context, call) }, copies);
    let line = CaseLine {
        warm_up_iterations: 1,
        calls_per_sample: calls_per_sample.saturating_mul(case.variant.calls_at_once()),
        stop: Some(stop),
        precision_reached: precision_reached(&sampled.valid),
        samples: sampled.columns,
        ..measured.line
    };
    Ok(CaseResult { line, sampling: sampled.took, rank_times })
}

fn calls_of_batch(cadence: Cadence, batch: &Batch, most: u32) -> u32 {
    if cadence == Cadence::Isolated {
        return most.min(ISOLATED_CALLS);
    }
    let slowest = batch.samples.iter().map(|sample| sample.slowest_nanoseconds).max().unwrap_or(0);
    ((BATCH_NANOSECONDS / slowest.max(1) as f64) as u32).clamp(1, most)
}

/// Process 0 decides for all.
fn decide(context: &MeasureContext, is_over: bool) -> Result<Option<StopReason>> {
    let mine = match (context.is_interrupted(), is_over) {
        (true, _) => 2,
        (false, over) => u64::from(over),
    };
    let mut shared = [mine];
    context.world.broadcast_u64(&mut shared)?;
    Ok(match shared[0] {
        0 => None,
        1 => Some(StopReason::Budget),
        _ => Some(StopReason::Interrupted),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{FakeCall, on_threads, with_context, with_settings};
    use super::super::{DEFAULT_COMPLETION_DEADLINE, InjectedDelay};
    use super::*;
    use crate::world::{SoloWorld, World};
    use commgauge_base::collective::{Collective, Placement};
    use commgauge_base::element::ElementType;
    use commgauge_base::sample::ExclusionReason;
    use commgauge_base::stats::Histogram;
    use commgauge_model::config::RunSettings;
    use commgauge_model::record::line::Samples;
    use commgauge_model::workload::{Op, Style};
    use std::sync::atomic::Ordering;

    fn case(collective: Collective, placement: Placement, cadence: Cadence) -> Case {
        let op = Op::new(Style::Sweep, Axis::World, collective, ElementType::Float32, 64);
        Case {
            op,
            groups: 0,
            groups_label: String::new(),
            placement,
            cadence,
            variant: Default::default(),
            uses: Vec::new(),
            solo_of: None,
        }
    }

    fn usual(cadence: Cadence) -> Case {
        case(Collective::AllGather, Placement::OutOfPlace, cadence)
    }

    /// Measures with two ranks in one process; `prepare` scripts the call.
    fn measured(settings: RunSettings, case: &Case, prepare: impl FnOnce(&mut FakeCall)) -> CaseResult {
        let mut result = None;
        with_settings(&SoloWorld, 0..2, settings, |context| {
            assert_eq!(context.completion_deadline, DEFAULT_COMPLETION_DEADLINE);
            let mut call =
                FakeCall::alone(&SoloWorld, 0..2, |call, rank| 60_000 + u64::from(rank) * 1_000 + (call * 7919) % 13);
            prepare(&mut call);
            result = Some(measure_case(context, &mut call, case).unwrap());
        });
        result.unwrap()
    }

    #[test]
    fn wrong_data_withholds_the_numbers_and_names_the_first_mismatch() {
        for (corrupt_from, expected) in [(0, "before"), (1, "after"), (12, "after")] {
            let result = measured(RunSettings::default(), &usual(Cadence::Streaming), |call| {
                call.data.corrupt_from = Some(corrupt_from);
            });
            let Outcome::Corrupt { when, rank: 0, element: 17, .. } = &result.line.outcome else {
                panic!("{:?}", result.line.outcome)
            };
            assert_eq!(when, expected);
            assert_eq!((result.line.samples, result.line.histograms), (Samples::default(), vec![]));
            assert_eq!((result.line.stop, result.line.precision_reached), (None, None));
        }
    }

    #[test]
    fn buffers_are_checked_as_left_where_that_is_possible_and_refilled_always() {
        for (collective, placement, fills_and_checks) in [
            (Collective::AllGather, Placement::OutOfPlace, (2, 3)),
            (Collective::AllGather, Placement::InPlace, (2, 3)),
            (Collective::AllReduce, Placement::OutOfPlace, (2, 3)),
            (Collective::AllReduce, Placement::InPlace, (2, 2)),
        ] {
            with_settings(&SoloWorld, 0..2, RunSettings::default(), |context| {
                let mut call = FakeCall::alone(&SoloWorld, 0..2, |_, _| 60_000);
                let case = case(collective, placement, Cadence::Streaming);
                let result = measure_case(context, &mut call, &case).unwrap();
                assert_eq!((call.data.fills, call.data.checks), fills_and_checks, "{collective} {placement}");
                assert_eq!(result.line.outcome, Outcome::Measured { verified: true });
            });
        }
    }

    #[test]
    fn without_data_or_with_checking_off_nothing_is_called_verified() {
        let off = RunSettings { verify: false, ..RunSettings::default() };
        for (settings, has_data) in [(RunSettings::default(), false), (off, true)] {
            let result = measured(settings, &usual(Cadence::Streaming), |call| {
                call.data.exists = has_data;
                call.data.corrupt_from = Some(0);
            });
            assert_eq!(result.line.outcome, Outcome::Measured { verified: false });
        }
    }

    #[test]
    fn a_steady_case_stops_by_precision_with_all_that_a_line_holds() {
        let result = measured(RunSettings::default(), &usual(Cadence::Streaming), |_| {});
        assert_eq!(result.line.stop, Some(StopReason::Precision));
        assert!(result.line.precision_reached.unwrap() < 1e-3);
        assert_eq!((result.line.calls_per_sample, result.line.buffer_copies), (1, 3));
        assert_eq!(result.line.samples.slowest_nanoseconds.len(), 30);
        assert!(result.line.samples.slowest_rank.iter().all(|rank| *rank == 1));
        assert!(result.line.samples.last_rank.is_empty() && result.line.warnings.is_empty());
        let counts =
            result.line.histograms.iter().map(|h| Histogram::decode(&h.hdr_v2_deflate_base64).unwrap().count());
        assert_eq!(counts.collect::<Vec<_>>(), [30, 30]);
    }

    #[test]
    fn a_spent_budget_is_reported_with_the_precision_reached() {
        let mut result = None;
        with_settings(&SoloWorld, 0..1, RunSettings::default(), |context| {
            // 20 or 40 ms in irregular order: 2 % cannot be reached within a second.
            let erratic = |call: u64, _| 20_000_000 * (1 + (call * 7919 / 13) % 2) + call % 3;
            let mut call = FakeCall::alone(&SoloWorld, 0..1, erratic);
            result = Some(measure_case(context, &mut call, &usual(Cadence::Streaming)).unwrap());
        });
        let result = result.unwrap();
        assert_eq!(result.line.stop, Some(StopReason::Budget));
        assert!(result.line.precision_reached.unwrap() > 0.02, "{result:?}");
        let spent: u64 = result.line.samples.slowest_nanoseconds.iter().sum();
        assert!((1_000_000_000..1_200_000_000).contains(&spent), "{spent}");
    }

    #[test]
    fn a_fixed_number_of_calls_is_made_and_no_more() {
        for cadence in [Cadence::Streaming, Cadence::Isolated] {
            let settings = RunSettings { iterations: Some(20), warm_up_iterations: Some(5), ..RunSettings::default() };
            with_settings(&SoloWorld, 0..2, settings, |context| {
                let mut call = FakeCall::alone(&SoloWorld, 0..2, |_, _| 60_000);
                let result = measure_case(context, &mut call, &usual(cadence)).unwrap();
                assert_eq!(result.line.stop, Some(StopReason::FixedCount));
                assert_eq!((result.line.warm_up_iterations, result.line.samples.slowest_nanoseconds.len()), (5, 20));
                assert_eq!(call.calls, 1 + 5 + 20 + 1, "checked before, warmed up, timed, checked after");
            });
        }
    }

    #[test]
    fn a_signal_on_process_0_ends_sampling_and_the_samples_are_retained() {
        on_threads(3, |world| {
            let me = world.process();
            let endless = RunSettings { precision: 1e-9, case_budget: Seconds(1e6), ..RunSettings::default() };
            with_settings(world, me..me + 1, endless, |context| {
                let interrupted = context.interrupted;
                let mut call = FakeCall::together(world, me..me + 1, |call, _| 900_000 + (call * 7919) % 7_000);
                call.at_call = Some(Box::new(move |call| interrupted.store(me == 0 && call > 300, Ordering::Relaxed)));
                let result = measure_case(context, &mut call, &usual(Cadence::Streaming)).unwrap();
                assert_eq!(result.line.stop, Some(StopReason::Interrupted));
                let kept = result.line.samples.slowest_nanoseconds.len();
                assert!(if me == 0 { (200..600).contains(&kept) } else { kept == 0 }, "{kept}");
            });
        });
    }

    #[test]
    fn missed_starts_are_repeated_and_excluded() {
        on_threads(3, |world| {
            let me = world.process();
            let fixed = RunSettings { iterations: Some(40), ..RunSettings::default() };
            with_settings(world, me..me + 1, fixed, |context| {
                context.injected_delay = Some(InjectedDelay { rank: 1, delay: Seconds(2e-3) });
                let mut call = FakeCall::together(world, me..me + 1, |_, _| 30_000);
                call.wait_overhead = if me == 2 { 150_000 } else { 0 };
                let result = measure_case(context, &mut call, &usual(Cadence::Isolated)).unwrap();
                assert_eq!(result.line.stop, Some(StopReason::FixedCount));
                if me == 0 {
                    let excluded = result.line.samples.excluded.len();
                    assert!((2..20).contains(&excluded), "{excluded}");
                    assert!(
                        result
                            .line
                            .samples
                            .excluded
                            .iter()
                            .all(|(_, exclusion)| *exclusion == ExclusionReason::MissedStart)
                    );
                    assert_eq!(result.line.samples.slowest_nanoseconds.len(), 40 + excluded);
                    let on_time = result.line.samples.last_rank.iter().filter(|rank| **rank == 1).count();
                    assert_eq!(on_time, 40 + excluded, "the delayed rank is the last one");
                    for histogram in &result.line.histograms {
                        assert_eq!(Histogram::decode(&histogram.hdr_v2_deflate_base64).unwrap().count(), 40);
                    }
                }
            });
        });
    }

    #[test]
    fn starts_that_are_always_missed_end_with_a_warning_instead_of_never() {
        let fixed = RunSettings { iterations: Some(10), ..RunSettings::default() };
        let result = measured(fixed, &usual(Cadence::Isolated), |call| call.wait_overhead = 50_000_000);
        assert_eq!(result.line.samples.excluded.len(), 120);
        assert_eq!(result.line.warnings.len(), 2, "{:?}", result.line.warnings);
    }

    #[test]
    fn every_process_names_the_mismatch_of_the_lowest_rank() {
        on_threads(4, |world| {
            let me = world.process();
            with_context(world, me..me + 1, |context| {
                let mut call = FakeCall::alone(world, me..me + 1, |_, _| 10);
                call.data.corrupt_from = [None, None, Some(0), Some(0)][me as usize];
                let found = fill_run_and_check(context, &mut call, "before").unwrap();
                let expected = Outcome::Corrupt {
                    when: "before".into(),
                    rank: 2,
                    element: 17,
                    expected: "3".into(),
                    got: "nan".into(),
                    count: 2,
                    call: None,
                };
                assert_eq!(found, Some(expected));
                call.data.corrupt_from = None;
                assert_eq!(check(context, &mut call, "after").unwrap(), None);
            });
        });
    }

    /// The result on every process of a case whose data are wrong from a call on.
    fn soaked(cadence: Cadence, corrupt_from: Option<u64>, check: impl Fn(&dyn World, CaseResult) + Sync) {
        let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Float32, 64);
        let (groups_label, placement) = (String::new(), Placement::OutOfPlace);
        let (variant, uses) = (Default::default(), Vec::new());
        let case = Case { op, groups: 0, groups_label, placement, cadence, variant, uses, solo_of: None };
        let settings = RunSettings { case_budget: Seconds(0.2), soak: true, ..RunSettings::default() };
        on_threads(2, |world| {
            let me = world.process();
            with_settings(world, me..me + 1, settings.clone(), |context| {
                let mut call = FakeCall::together(world, me..me + 1, |_, _| 60_000);
                call.data.corrupt_from = corrupt_from.filter(|_| me == 1);
                check(world, soak_case(context, &mut call, &case).unwrap());
            });
        });
    }

    #[test]
    fn a_soak_ends_at_the_first_wrong_call_on_every_process() {
        for (cadence, from) in [(Cadence::Streaming, 0), (Cadence::Streaming, 57), (Cadence::Isolated, 31)] {
            soaked(cadence, Some(from), |_, result| {
                let Outcome::Corrupt { rank: 1, .. } = result.line.outcome else { panic!("{:?}", result.line.outcome) };
                assert!(result.line.samples.slowest_nanoseconds.is_empty());
            });
        }
    }

    #[test]
    fn a_soak_runs_for_its_time_with_few_samples() {
        for cadence in [Cadence::Streaming, Cadence::Isolated] {
            soaked(cadence, None, |world, result| {
                assert_eq!(result.line.outcome, Outcome::Measured { verified: true });
                assert_eq!(result.line.stop, Some(StopReason::Budget));
                let samples = result.line.samples.slowest_nanoseconds.len();
                assert!(if world.process() == 0 { (8..=64).contains(&samples) } else { samples == 0 }, "{samples}");
            });
        }
    }
}
