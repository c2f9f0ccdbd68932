//! The replicates: each with fresh communicators and an order of its own, one line for each case.

use super::case::CaseWork;
use super::case_set::{CaseSet, CaseSlot};
use super::timekeeping::Timekeeping;
use super::work_loop::Run;
use crate::backend::Backend;
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_model::record::line::CaseLine;
use commgauge_model::workload::estimated_case;

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

/// The cases of a replicate that are still to be measured, in its order.
fn missing(run: &Run, cases: CaseSet, replicate: u32) -> Vec<CaseSlot> {
    let order = cases.order(&run.request.settings, replicate);
    let slots = (0u32..).zip(order).map(|(position, case)| CaseSlot { case, replicate, position });
    slots.filter(|slot| !run.completed.has_case(cases.index_in_plan(slot.case), replicate)).collect()
}
