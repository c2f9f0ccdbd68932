//! The replicates: each with fresh communicators and an order of its own, one line for each case.

use super::case::CaseWork;
use super::case_set::{CaseSet, CaseSlot};
use super::timekeeping::Timekeeping;
use super::work_loop::Run;
use crate::backend::Backend;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::config::RunSettings;
use commgauge_model::record::line::CaseLine;
use commgauge_model::workload::estimated_case;
use std::time::Instant;

/// From the seed of a round of a soak to that of the next.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Measures every case in every replicate. If the run adds cases that depend on them, returns the lines on process 0,
/// including those of earlier launches.
pub(super) fn measure_all(
    run: &mut Run,
    backend: &mut dyn Backend,
    time: &mut Timekeeping,
    cases: CaseSet,
) -> Result<Vec<CaseLine>> {
    let settings = &run.request.settings;
    let collects_lines = settings.calibrate.is_some() && run.world.process() == 0;
    let mut lines = if collects_lines { run.completed.lines_of(cases.indices()) } else { Vec::new() };
    let mut collect = |line: &mut CaseLine, _| lines.extend(collects_lines.then(|| line.clone()));
    for replicate in 0..settings.replicates {
        let mut missing = missing(run, cases, replicate);
        let estimates = missing.iter().map(|slot| estimated_case(cases.planned[slot.case].case, settings));
        let Some(shortest) = estimates.min_by(|a, b| a.seconds().0.total_cmp(&b.seconds().0)) else { continue };
        // Communicators of many ranks take a while, so they are made only if there is time for a case.
        if run.begin(shortest)?.is_none() {
            return Ok(lines);
        }
        cases.connect(run.request, backend)?;
        while !missing.is_empty() {
            let held_back = measure(run, backend, time, cases, &missing, &mut collect)?;
            // What was measured shows how long the others take; where nothing was, nothing will be.
            run.tally.out_of_time = held_back.len() == missing.len();
            if run.tally.is_stopped() {
                return Ok(lines);
            }
            missing = held_back;
        }
        backend.disconnect()?;
    }
    Ok(lines)
}

/// Measures cases of a replicate, and returns those for which the time limit leaves no time, as far as can be said now: shorter ones that
/// come later may have time, and show that a guess was far too long.
fn measure(
    run: &mut Run,
    backend: &mut dyn Backend,
    time: &mut Timekeeping,
    cases: CaseSet,
    slots: &[CaseSlot],
    observe: &mut dyn FnMut(&mut CaseLine, Seconds),
) -> Result<Vec<CaseSlot>> {
    let settings = &run.request.settings;
    let mut held_back = Vec::new();
    for slot in slots {
        CaseWork { cases, slot: *slot, settings, time, observe: &mut *observe }.measure(run, backend)?;
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

/// Measures all cases in rounds until a time is over or data were wrong, each round with data of its own.
pub(super) fn soak(
    run: &mut Run,
    backend: &mut dyn Backend,
    time: &mut Timekeeping,
    cases: CaseSet,
    allowed: Seconds,
) -> Result<()> {
    let settings = &run.request.settings;
    let in_all = u64::from(settings.replicates) * cases.planned.len() as u64;
    let mut left: u64 = (0..settings.replicates).map(|round| missing(run, cases, round).len() as u64).sum();
    // Earlier launches have had their share.
    let (begun, allowed) = (Instant::now(), allowed.0 * left as f64 / in_all.max(1) as f64);
    for round in 0..settings.replicates {
        let mut is_connected = false;
        for slot in missing(run, cases, round) {
            // What skipped cases leave over goes to the others.
            let mut visit = [((allowed - begun.elapsed().as_secs_f64()) / left as f64 * 1e9).max(0.0) as u64];
            run.world.broadcast_u64(&mut visit)?;
            if visit[0] == 0 {
                return if is_connected { backend.disconnect() } else { Ok(()) };
            }
            let seed = settings.seed.wrapping_add(u64::from(round).wrapping_mul(SEED_STEP));
            let settings = RunSettings { case_budget: Seconds::from_nanoseconds(visit[0]), seed, ..settings.clone() };
            if !is_connected {
                cases.connect(run.request, backend)?;
                is_connected = true;
            }
            CaseWork { cases, slot, settings: &settings, time, observe: &mut |_, _| () }.measure(run, backend)?;
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

/// The cases of a replicate that are still to be measured, in its order.
fn missing(run: &Run, cases: CaseSet, replicate: u32) -> Vec<CaseSlot> {
    let order = cases.order(&run.request.settings, replicate);
    let slots = (0u32..).zip(order).map(|(position, case)| CaseSlot { case, replicate, position });
    slots.filter(|slot| !run.completed.has_case(cases.index_in_plan(slot.case), replicate)).collect()
}
