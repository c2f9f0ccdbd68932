//! One case of one round of a soak: calls in short batches, with the results of every batch compared. Called by all processes in the same
//! order.

use super::batch::Batch;
use super::case::{CaseResult, leaves_result};
use super::data_check::{Moment, check, fill_run_and_check, verifies};
use super::isolated::{Lead, isolated_batch};
use super::own_times::OwnTimes;
use super::sampling::{Reading, Sampled};
use super::stop::precision_reached;
use super::{MeasureContext, streaming_batch};
use crate::backend::Call;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Axis;
use commgauge_model::record::line::{Outcome, StopReason};
use commgauge_model::workload::Case;

/// Most samples of a line: a soak has many lines.
const MOST_SAMPLES: f64 = 64.0;
/// Isolated calls of a batch.
const ISOLATED_CALLS: u32 = 8;
/// Time of the calls between two checks.
const BATCH_NANOSECONDS: f64 = 10e6;

/// Repeats fill, checked calls, timed calls and comparison until the budget is spent or data are wrong.
pub fn soak_case(context: &MeasureContext, call: &mut dyn Call, case: &Case) -> Result<CaseResult> {
    let copies = call.buffer_copies();
    let in_pairs = case.op.axis == Axis::Pair;
    let mut sampled = Sampled::none(OwnTimes::apart(context.local_ranks.clone(), context.world_size));
    let (mut batch, mut lead) = (Batch::default(), Lead::default());
    // No more calls than there are copies, so that the result of each is still there to be compared.
    let most_calls = (copies / case.variant.calls_at_once().max(1)).max(1);
    let budget = context.settings.case_budget.0;
    let begun = Reading::now(call);
    let checks_after = leaves_result(case) && verifies(context, call);
    let (mut calls, mut batches) = (1, 0u64);
    let stop = loop {
        if let Some(corrupt) = fill_run_and_check(context, call, Moment::Before)? {
            return Ok(CaseResult::without_numbers(corrupt, copies));
        }
        match case.cadence {
            Cadence::Streaming => streaming_batch(context, call, 1, calls, &mut batch)?,
            Cadence::Isolated => isolated_batch(context, call, calls, &mut lead, &mut batch)?,
        }
        if checks_after && let Some(corrupt) = check(context, call, Moment::After)? {
            return Ok(CaseResult::without_numbers(corrupt, copies));
        }
        let elapsed = begun.seconds_until(Reading::now(call));
        batches += 1;
        if batches == 1 {
            // The first is the warm-up. Its samples are the same on all processes, and so is the number of calls.
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
    Ok(CaseResult {
        warm_up_iterations: 1,
        calls_per_sample: calls_per_sample.saturating_mul(case.variant.calls_at_once()),
        stop: Some(stop),
        precision_reached: precision_reached(&sampled.valid),
        samples: sampled.columns,
        sampling: sampled.took,
        rank_times,
        ..CaseResult::without_numbers(Outcome::Measured { verified: verifies(context, call) }, copies)
    })
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
    use super::super::fakes::{FakeCall, on_threads, with_settings};
    use super::*;
    use crate::world::World;
    use commgauge_base::collective::{Collective, Placement};
    use commgauge_base::element::ElementType;
    use commgauge_model::config::{Rounds, RunSettings};
    use commgauge_model::workload::{Op, Style};

    /// The result on every process of a case whose data are wrong from a call on.
    fn soaked(cadence: Cadence, corrupt_from: Option<u64>, check: impl Fn(&dyn World, CaseResult) + Sync) {
        let op = Op::new(Style::Sweep, Axis::World, Collective::AllReduce, ElementType::Float32, 64);
        let (groups_label, placement) = (String::new(), Placement::OutOfPlace);
        let (variant, uses) = (Default::default(), Vec::new());
        let case = Case { op, groups: 0, groups_label, placement, cadence, variant, uses, solo_of: None };
        let settings = RunSettings { case_budget: Seconds(0.2), rounds: Rounds::Soak, ..RunSettings::default() };
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
                let Outcome::Corrupt { rank: 1, .. } = result.outcome else { panic!("{:?}", result.outcome) };
                assert!(result.samples.slowest_nanoseconds.is_empty());
            });
        }
    }

    #[test]
    fn a_soak_goes_on_for_its_time_with_few_samples() {
        for cadence in [Cadence::Streaming, Cadence::Isolated] {
            soaked(cadence, None, |world, result| {
                assert_eq!(result.outcome, Outcome::Measured { verified: true });
                assert_eq!(result.stop, Some(StopReason::Budget));
                let samples = result.samples.slowest_nanoseconds.len();
                assert!(if world.process() == 0 { (8..=64).contains(&samples) } else { samples == 0 }, "{samples}");
            });
        }
    }
}
