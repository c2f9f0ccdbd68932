//! The replicates: each with fresh communicators and an order of its own, one line for each case.

use super::case::CaseWork;
use super::case_set::{CaseSet, CaseSlot};
use super::timekeeping::Timekeeping;
use super::work_loop::Run;
use crate::backend::Backend;
use commgauge_base::error::Result;
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
        let missing = missing(run, cases, replicate);
        let Some(first) = missing.first() else { continue };
        // Communicators of many ranks take a while, so they are made only if there is time for a case.
        if run.begin(estimated_case(cases.planned[first.case].case, settings))?.is_none() {
            return Ok(lines);
        }
        cases.connect(run.request, backend)?;
        for slot in missing {
            CaseWork { cases, slot, settings, time, observe: &mut collect }.measure(run, backend)?;
            if run.tally.is_stopped() {
                return Ok(lines);
            }
        }
        backend.disconnect()?;
    }
    Ok(lines)
}

/// The cases of a replicate that are still to be measured, in its order.
fn missing(run: &Run, cases: CaseSet, replicate: u32) -> Vec<CaseSlot> {
    let order = cases.order(&run.request.settings, replicate);
    let slots = (0u32..).zip(order).map(|(position, case)| CaseSlot { case, replicate, position });
    slots.filter(|slot| !run.completed.has_case(cases.index_in_plan(slot.case), replicate)).collect()
}
