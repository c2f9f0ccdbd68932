//! Converts between one process's clock and the common one. [`super::clock_exchange`] determines the model.

use crate::world::{Located, World};
use commgauge_base::error::Result;
use commgauge_model::record::line::{ClockLine, ClockMethod, ClockMoment};
use std::time::{Duration, Instant};

/// The common clock (that of process 0) as a linear function of this process's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockModel {
    /// A moment on this process's clock, in nanoseconds.
    pub local_anchor: u64,
    /// The same moment on the common clock.
    pub common_anchor: u64,
    /// Common nanoseconds gained per local nanosecond.
    pub drift: f64,
}

impl ClockModel {
    /// The model of process 0, or of a process that uses the common clock itself.
    pub fn identity() -> Self {
        ClockModel { local_anchor: 0, common_anchor: 0, drift: 0.0 }
    }

    /// The common time at a local time.
    pub fn to_common(&self, local_nanoseconds: u64) -> u64 {
        self.extend(local_nanoseconds, self.local_anchor, self.common_anchor, self.drift)
    }

    /// The local time at a common time.
    pub fn to_local(&self, common_nanoseconds: u64) -> u64 {
        // (1 + d) back is 1 - d / (1 + d).
        self.extend(common_nanoseconds, self.common_anchor, self.local_anchor, -self.drift / (1.0 + self.drift))
    }

    /// Whole nanoseconds are carried over as integers, and only the drift is a float: clock readings have more digits
    /// than a float can represent.
    fn extend(&self, at: u64, from: u64, to: u64, drift: f64) -> u64 {
        let since = i128::from(at) - i128::from(from);
        let gained = if drift == 0.0 { 0 } else { (since as f64 * drift).round() as i128 };
        (i128::from(to) + since + gained).clamp(0, i128::from(u64::MAX)) as u64
    }
}

// Determines every process's [`ClockModel`]: ping-pongs along a binomial tree, of which the one with the shortest
// round trip counts (the HCA family: Hunold and Carpen-Amarie, "Hierarchical Clock Synchronization in MPI", CLUSTER
// 2018).

/// Ping-pongs of a thorough comparison, at the start.
const EXCHANGES_FIRST: u32 = 100;

/// Ping-pongs of a later comparison.
const EXCHANGES_LATER: u32 = 30;

/// Two processes make no more than [`FEWEST_EXCHANGES`] after this time: where ranks take turns on their processors, a ping-pong takes as
/// long as all of them together, and the clocks cannot be compared to within [`COARSEST_COMPARISON_NANOSECONDS`] anyway.
const LONGEST_COMPARISON: Duration = Duration::from_millis(50);

/// Ping-pongs of a comparison that has run out of time.
const FEWEST_EXCHANGES: u32 = 5;

/// Message of a process to its parent for a reading of the common clock.
const ASK: u64 = 1;

/// Message after the last ping-pong.
const DONE: u64 = 0;

/// Time between the first and the second comparison; the drift is the change between them.
const FIRST_BASELINE: Duration = Duration::from_millis(50);

/// If comparisons are this uncertain, a common start is no better than the end of a barrier.
const COARSEST_COMPARISON_NANOSECONDS: f64 = 1e6;

/// One comparison with the common clock.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    local: u64,
    common: u64,
    /// Maximum error of `common`: half the round trip here and on every edge of the tree up to process 0.
    bound: u64,
}

/// Effect of a new comparison on the base of a clock's model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Replaced,
    /// Replaced, unless the new one is less precise and consistent with it.
    KeptIfBetter,
}

/// This process's model of the common clock, and its accuracy.
pub struct CommonClock<'a> {
    now: &'a dyn Fn() -> u64,
    /// Converts between this process's clock and the common one.
    pub model: ClockModel,
    first: Comparison,
    latest: Comparison,
    residual_nanoseconds: u64,
}

impl<'a> CommonClock<'a> {
    /// Compares all clocks with that of process 0. `now` reads this process's clock in nanoseconds. Called by all processes; takes some
    /// tens of milliseconds with more than one process.
    pub fn establish(world: &dyn World, now: &'a dyn Fn() -> u64) -> Result<Self> {
        let moment = now();
        let itself = Comparison { local: moment, common: moment, bound: 0 };
        let mut clock =
            CommonClock { now, model: ClockModel::identity(), first: itself, latest: itself, residual_nanoseconds: 0 };
        if world.processes() > 1 {
            clock.first = clock.compare_along_tree(world, EXCHANGES_FIRST, Anchor::Replaced)?;
            world.barrier()?;
            std::thread::sleep(FIRST_BASELINE);
            clock.compare_along_tree(world, EXCHANGES_FIRST, Anchor::Replaced)?;
            clock.resynchronise(world)?;
        }
        Ok(clock)
    }

    /// Compares the clocks again: the disagreement is the residual, and the drift is computed over the whole time since
    /// the start. Called by all processes, before a case and at the end; fast.
    pub fn resynchronise(&mut self, world: &dyn World) -> Result<()> {
        if world.processes() > 1 {
            self.compare_along_tree(world, EXCHANGES_LATER, Anchor::KeptIfBetter)?;
        }
        Ok(())
    }

    /// How isolated iterations are started together: at an agreed time, or, if the clocks cannot be compared well
    /// enough, after a barrier. The same everywhere. Collective.
    pub fn method(&self, world: &dyn World) -> Result<ClockMethod> {
        let mut worst = [Located { value: self.latest.bound as f64, rank: world.process() as i32 }];
        world.all_max(&mut worst)?;
        Ok(method_for(worst[0].value))
    }

    /// The accuracy at the last comparison, over all processes. Collective.
    pub fn line(
        &self,
        world: &dyn World,
        moment: ClockMoment,
        method: ClockMethod,
        resolution_nanoseconds: u64,
    ) -> Result<ClockLine> {
        let rank = world.process() as i32;
        let mut worst = [
            self.residual_nanoseconds as f64,
            self.latest.bound as f64,
            self.model.drift.abs(),
            resolution_nanoseconds as f64,
        ]
        .map(|value| Located { value, rank });
        world.all_max(&mut worst)?;
        Ok(ClockLine {
            moment,
            method,
            resolution_nanoseconds: worst[3].value as u64,
            residual_nanoseconds: worst[0].value as u64,
            worst_half_round_trip_nanoseconds: worst[1].value as u64,
            worst_drift_ppm: worst[2].value * 1e6,
        })
    }

    /// Round k connects processes 2^k .. 2^(k+1) to the lower ones, which already answer in common time.
    fn compare_along_tree(&mut self, world: &dyn World, exchanges: u32, anchor: Anchor) -> Result<Comparison> {
        let (process, processes) = (world.process(), world.processes());
        let mut found = self.latest;
        let mut ready = 1;
        while ready < processes {
            if process < ready {
                if let Some(child) = process.checked_add(ready).filter(|child| *child < processes) {
                    self.respond(world, child)?;
                }
            } else if process < ready.saturating_mul(2) {
                found = self.exchange(world, process - ready, exchanges)?;
                self.update_model(found, anchor);
            }
            ready = ready.saturating_mul(2);
        }
        Ok(found)
    }

    fn respond(&self, world: &dyn World, child: u32) -> Result<()> {
        while world.receive(child)? == ASK {
            world.send(child, self.model.to_common((self.now)()))?;
        }
        world.send(child, self.latest.bound)
    }

    fn exchange(&self, world: &dyn World, parent: u32, exchanges: u32) -> Result<Comparison> {
        let mut best = Comparison { local: 0, common: 0, bound: u64::MAX };
        let begun = Instant::now();
        for exchange in 0..exchanges {
            if exchange >= FEWEST_EXCHANGES && begun.elapsed() > LONGEST_COMPARISON {
                break;
            }
            let sent = (self.now)();
            world.send(parent, ASK)?;
            let common = world.receive(parent)?;
            let half_round_trip = ((self.now)() - sent).div_ceil(2);
            if half_round_trip < best.bound {
                best = Comparison { local: sent + half_round_trip, common, bound: half_round_trip };
            }
        }
        world.send(parent, DONE)?;
        best.bound = best.bound.saturating_add(world.receive(parent)?);
        Ok(best)
    }

    fn update_model(&mut self, new: Comparison, anchor: Anchor) {
        let is_first = self.latest.bound == 0;
        self.residual_nanoseconds = if is_first { 0 } else { self.model.to_common(new.local).abs_diff(new.common) };
        let contradicts = self.residual_nanoseconds > new.bound;
        if !(anchor == Anchor::Replaced || contradicts || new.bound <= self.latest.bound) {
            return;
        }
        self.latest = new;
        self.model = ClockModel {
            local_anchor: new.local,
            common_anchor: new.common,
            drift: if is_first { 0.0 } else { drift_between(self.first, new) },
        };
    }
}

/// The drift over a baseline, or 0 if the comparisons are too coarse to distinguish it from noise: a spurious drift
/// would make the clocks of one host diverge.
fn drift_between(first: Comparison, last: Comparison) -> f64 {
    let local = (i128::from(last.local) - i128::from(first.local)) as f64;
    let common = (i128::from(last.common) - i128::from(first.common)) as f64;
    let uncertain = (first.bound + last.bound) as f64;
    if local > 0.0 && (common - local).abs() > uncertain { (common - local) / local } else { 0.0 }
}

fn method_for(worst_bound_nanoseconds: f64) -> ClockMethod {
    let comparable = worst_bound_nanoseconds <= COARSEST_COMPARISON_NANOSECONDS;
    if comparable { ClockMethod::Synchronised } else { ClockMethod::Barrier }
}

#[cfg(test)]
mod tests {
    use super::super::fakes::{ThreadWorld, on_threads};
    use super::*;
    use crate::world::SoloWorld;
    use commgauge_base::host::now_nanoseconds;

    #[test]
    fn the_identity_changes_nothing() {
        for moment in [0, 1, 1 << 60, u64::MAX] {
            assert_eq!(ClockModel::identity().to_common(moment), moment);
            assert_eq!(ClockModel::identity().to_local(moment), moment);
        }
    }

    #[test]
    fn offset_and_drift_are_applied_and_taken_back() {
        let model = ClockModel { local_anchor: 9_000_000_000_000_000_001, common_anchor: 5_000, drift: 50e-6 };
        assert_eq!(model.to_common(9_000_000_000_000_000_001), 5_000);
        assert_eq!(model.to_common(9_000_000_000_000_000_001 + 1_000_000_000), 1_000_055_000);
        for later in [0, 1, 999, 1_000_000, 3_600_000_000_000u64] {
            let local = model.local_anchor + later;
            assert!(model.to_local(model.to_common(local)).abs_diff(local) <= 1, "{later}");
        }
    }

    #[test]
    fn a_moment_before_the_common_clock_began_is_its_beginning() {
        let model = ClockModel { local_anchor: 1000, common_anchor: 10, drift: 0.0 };
        assert_eq!(model.to_common(0), 0);
    }

    /// Offset in nanoseconds and drift of each process's clock against the host's. Only leaves of the tree drift: what a
    /// parent that drifts answers during the first comparison is wrong by its drift times the time that it was away.
    const CLOCKS: [(i64, f64); 4] = [(5_000_000, 0.0), (-3_000_000_000, 0.0), (77, 2e-3), (90_000_000_000, -1e-3)];

    fn skewed(clock: (i64, f64), origin: u64, host: u64) -> u64 {
        let since = host - origin;
        let start = 1_000_000_000_000 + clock.0;
        (start + since as i64 + (since as f64 * clock.1) as i64) as u64
    }

    #[test]
    fn clocks_that_cannot_be_compared_to_a_millisecond_are_replaced_by_a_barrier() {
        for (bound, method) in
            [(0.0, ClockMethod::Synchronised), (9e5, ClockMethod::Synchronised), (2e6, ClockMethod::Barrier)]
        {
            assert_eq!(method_for(bound), method, "{bound}");
        }
    }

    #[test]
    fn one_process_has_the_common_clock() {
        let now = || 12345;
        let mut clock = CommonClock::establish(&SoloWorld, &now).unwrap();
        clock.resynchronise(&SoloWorld).unwrap();
        assert_eq!(clock.model, ClockModel::identity());
        let line = clock.line(&SoloWorld, ClockMoment::Start, ClockMethod::Synchronised, 1).unwrap();
        assert_eq!((line.residual_nanoseconds, line.worst_half_round_trip_nanoseconds), (0, 0));
        assert_eq!(line.worst_drift_ppm, 0.0);
    }

    #[test]
    fn skewed_and_drifting_clocks_are_recovered_within_half_a_round_trip_and_the_drift_since() {
        for (processes, drift_ppm) in [(2, 0.0), (3, 2_000.0), (4, 2_000.0)] {
            let origin = now_nanoseconds();
            on_threads(processes, |world: &ThreadWorld| {
                let mine = CLOCKS[world.process() as usize];
                let now = || skewed(mine, origin, now_nanoseconds());
                let mut clock = CommonClock::establish(world, &now).unwrap();
                clock.resynchronise(world).unwrap();
                let host = now_nanoseconds();
                let local = skewed(mine, origin, host);
                let found = clock.model.to_common(local);
                let truth = skewed(CLOCKS[0], origin, host);
                let line = clock.line(world, ClockMoment::End, ClockMethod::Synchronised, 1).unwrap();
                // The drift is known to the bounds of both comparisons over the time between them, and counts for the time since, which is
                // long if a busy machine delays the process.
                let drift_error = uncertainty_of_drift(&clock);
                let since = local.saturating_sub(clock.latest.local) as f64;
                let mut worst = [drift_error, since * drift_error].map(|value| Located { value, rank: 0 });
                world.all_max(&mut worst).unwrap();
                let [drift_error, extrapolated] = worst.map(|worst| worst.value);
                let bound = line.worst_half_round_trip_nanoseconds + 2 * extrapolated as u64 + 100;
                assert!(found.abs_diff(truth) <= bound, "process {}: {found} {truth} {bound}", world.process());
                assert!(line.worst_half_round_trip_nanoseconds > 0);
                let drift_error_ppm = drift_error * 1e6 * 1.01 + 1.0;
                assert!((line.worst_drift_ppm - drift_ppm).abs() <= drift_error_ppm, "{}", line.worst_drift_ppm);
            });
        }
    }

    fn uncertainty_of_drift(clock: &CommonClock) -> f64 {
        let baseline = clock.latest.local.saturating_sub(clock.first.local);
        if baseline == 0 { 0.0 } else { (clock.first.bound + clock.latest.bound) as f64 / baseline as f64 }
    }

    #[test]
    fn noise_is_not_taken_for_drift() {
        let at = |local, common| Comparison { local, common, bound: 500 };
        assert_eq!(drift_between(at(0, 0), at(1_000_000, 1_000_900)), 0.0);
        assert_eq!(drift_between(at(0, 0), at(1_000_000, 1_010_000)), 0.01);
        assert_eq!(drift_between(at(5, 5), at(5, 5)), 0.0);
    }
}
