//! The cases of a run between two comparisons of the clocks: those of the plan, and those that the run adds.

use super::case_set::CaseSet;
use super::preflight::Planned;
use super::timekeeping::{self, Timekeeping};
use super::work_loop::Run;
use super::{calibrate, replicates, within};
use crate::backend::Backend;
use commgauge_base::error::Result;

/// Measures all cases of the plan in every replicate or in the time for all of them, then the sizes that the run
/// chooses.
pub(super) fn measure_all(run: &mut Run, backend: &mut dyn Backend, planned: &[Planned]) -> Result<()> {
    let settings = &run.request.settings;
    let now = timekeeping::reading_of(backend);
    let mut time = Timekeeping::begin(run, backend, &now)?;
    let cases = CaseSet { planned, first_case: 0, round: 0 };
    let lines = match settings.within {
        Some(soak) if settings.is_soak() => {
            replicates::soak(run, backend, &mut time, cases, soak).map(|()| Vec::new())?
        }
        Some(within) => within::measure_all(run, backend, &mut time, cases, within).map(|()| Vec::new())?,
        None => replicates::measure_all(run, backend, &mut time, cases)?,
    };
    if let Some(calibrate) = settings.calibrate.as_ref().filter(|_| !run.completed.calibrated) {
        calibrate::measure_all(run, backend, &mut time, calibrate, &lines)?;
    }
    if run.tally.is_stopped() { Ok(()) } else { time.end(run) }
}
