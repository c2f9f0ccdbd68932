//! The common clock of a run's cases: established before the first case, and recorded then and after the last one.

use super::work_loop::Run;
use crate::backend::Backend;
use crate::measure::CommonClock;
use commgauge_base::error::Result;
use commgauge_model::record::line::{ClockMethod, ClockMoment, Line};

/// The clock for starting cases.
pub(super) struct Timekeeping<'a> {
    pub clock: CommonClock<'a>,
    /// How isolated iterations are started together.
    pub start: ClockMethod,
    /// Resolution of the backend's marks, in nanoseconds.
    pub resolution: u64,
}

/// This process's clock. A process that simulates all ranks uses the clock of its backend, which is compared with no
/// other.
pub(super) fn reading_of(backend: &dyn Backend) -> fn() -> u64 {
    if backend.facts().virtual_clock { || 0 } else { commgauge_base::host_clock::now_nanoseconds }
}

impl<'a> Timekeeping<'a> {
    /// Compares the clocks, and records their agreement.
    pub(super) fn begin(run: &mut Run, backend: &dyn Backend, now: &'a dyn Fn() -> u64) -> Result<Timekeeping<'a>> {
        let clock = CommonClock::establish(run.world, now)?;
        let start = method(run, &clock)?;
        let time = Timekeeping { clock, start, resolution: backend.clock_resolution_nanoseconds() };
        time.write(run, ClockMoment::Start)?;
        Ok(time)
    }

    /// Compares and records them again.
    pub(super) fn end(mut self, run: &mut Run) -> Result<()> {
        self.clock.resynchronise(run.world)?;
        self.write(run, ClockMoment::End)
    }

    fn write(&self, run: &mut Run, moment: ClockMoment) -> Result<()> {
        let method = method(run, &self.clock)?;
        let line = self.clock.line(run.world, moment, method, self.resolution)?;
        run.journal.write(|| Line::Clock(line))
    }
}

/// How isolated calls start: as requested, but after a barrier where the clocks allow no other start. Collective.
fn method(run: &Run, clock: &CommonClock) -> Result<ClockMethod> {
    match run.request.settings.start {
        ClockMethod::Synchronised => clock.method(run.world),
        ClockMethod::Barrier => Ok(ClockMethod::Barrier),
    }
}
