//! Samples in batches until process 0 decides to stop, and stores the samples.

use super::batch::Batch;
use super::isolated::{Lead, isolated_batch};
use super::own_times::OwnTimes;
use super::stop::{Decision, Progress, StopRule};
use super::{MeasureContext, streaming_batch};
use crate::backend::Call;
use commgauge_base::error::Result;
use commgauge_base::host_clock;
use commgauge_base::sample::{Cadence, ExclusionReason};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{ClockErrors, Samples, StopReason};

/// Maximum number of marks of a batch, all local ranks together: 8 MiB.
const MAX_MARKS: usize = 1 << 20;

/// The samples of a case so far.
pub(crate) struct Sampled {
    pub(crate) columns: Samples,
    pub(crate) valid: Vec<f64>,
    taken: u32,
    pub(crate) own_times: OwnTimes,
    pub(crate) stop: StopReason,
    /// Time from the first batch to the end of the last, on the clock of the budgets.
    pub(crate) took: Seconds,
    pub(crate) warnings: Vec<String>,
}

/// Takes samples until the stop rule ends it. `sample_seconds` is the expected time of a sample, if known; `own_times`
/// must be empty and are filled.
pub(crate) fn sample_until_enough(
    context: &MeasureContext,
    call: &mut dyn Call,
    cadence: Cadence,
    calls_per_sample: u32,
    sample_seconds: Option<f64>,
    own_times: OwnTimes,
    batch: &mut Batch,
) -> Result<Sampled> {
    let mut sampled = Sampled::none(own_times);
    let fixed = context.settings.fixed_iterations.map(|calls| calls / calls_per_sample);
    let mut rule = StopRule::new(context.settings, fixed, cadence);
    let mut lead = Lead::default();
    let mut elapsed_seconds = 0.0;
    // If the time of a sample is unknown, the first batch is one sample.
    let mut seconds_per_sample = sample_seconds.unwrap_or(f64::MAX);
    loop {
        let decision = decide_for_all(context, &mut rule, &sampled, elapsed_seconds, seconds_per_sample)?;
        let samples = match decision {
            Decision::Continue(samples) => samples,
            Decision::Stop(reason) => {
                sampled.stop = reason;
                break;
            }
        };
        let begin = Reading::now(call);
        match cadence {
            Cadence::Streaming => streaming_batch(context, call, samples, calls_per_sample, batch)?,
            Cadence::Isolated => isolated_batch(context, call, samples, &mut lead, batch)?,
        }
        let batch_seconds = begin.seconds_until(Reading::now(call));
        elapsed_seconds += batch_seconds;
        seconds_per_sample = batch_seconds / f64::from(samples);
        sampled.store(context, cadence, batch);
    }
    sampled.took = Seconds(elapsed_seconds);
    sampled.warn_of_invalid_samples(fixed);
    Ok(sampled)
}

/// Process 0 decides by its own numbers and broadcasts the decision.
fn decide_for_all(
    context: &MeasureContext,
    rule: &mut StopRule,
    sampled: &Sampled,
    elapsed_seconds: f64,
    seconds_per_sample: f64,
) -> Result<Decision> {
    const REASONS: [StopReason; 5] = [
        StopReason::Precision,
        StopReason::Budget,
        StopReason::MaximumSamples,
        StopReason::FixedCount,
        StopReason::Interrupted,
    ];
    let mut decision = [0, 0];
    if context.decides() {
        let (valid, taken) = (&sampled.valid, sampled.taken);
        let interrupted = context.is_interrupted();
        decision = match rule.decide(&Progress { valid, taken, elapsed_seconds, seconds_per_sample, interrupted }) {
            Decision::Continue(samples) => {
                // At most two marks per sample, plus one.
                let fitting = (MAX_MARKS / context.local_ranks.len().max(1) / 2).saturating_sub(1).max(1);
                [REASONS.len() as u64, u64::from(samples).min(fitting as u64)]
            }
            Decision::Stop(reason) => [REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u64, 0],
        };
    }
    context.world.broadcast_u64(&mut decision)?;
    Ok(match REASONS.get(decision[0] as usize) {
        Some(reason) => Decision::Stop(*reason),
        None => Decision::Continue(decision[1] as u32),
    })
}

impl Sampled {
    pub(super) fn none(own_times: OwnTimes) -> Sampled {
        Sampled {
            columns: Samples::default(),
            valid: Vec::new(),
            taken: 0,
            own_times,
            stop: StopReason::FixedCount,
            took: Seconds(0.0),
            warnings: Vec::new(),
        }
    }

    /// Every process stores its ranks' own times; the samples, which are the same everywhere, are stored on process 0.
    pub(super) fn store(&mut self, context: &MeasureContext, cadence: Cadence, batch: &Batch) {
        self.own_times.record(batch);
        if !context.decides() {
            return;
        }
        self.valid.extend(batch.valid_times());
        if cadence == Cadence::Isolated {
            let (samples, errors) = (batch.samples.len() as u32, &batch.clock_errors_nanoseconds);
            let batches = &mut self.columns.clock_errors;
            if batches.is_empty() && !errors.is_empty() && self.taken > 0 {
                batches.push(ClockErrors::of_batch(self.taken, &[]));
            }
            if !batches.is_empty() || !errors.is_empty() {
                batches.push(ClockErrors::of_batch(samples, errors));
            }
        }
        for sample in &batch.samples {
            if let Some(exclusion) = sample.exclusion {
                self.columns.excluded.push((self.taken, exclusion));
            }
            self.columns.slowest_nanoseconds.push(sample.slowest_nanoseconds);
            self.columns.slowest_rank.push(sample.slowest_rank);
            if cadence == Cadence::Isolated {
                self.columns.arrival_spread_nanoseconds.push(sample.arrival_spread_nanoseconds);
                self.columns.transfer_nanoseconds.push(sample.transfer_nanoseconds);
                self.columns.last_rank.push(sample.last_rank);
            }
            self.taken += 1;
        }
    }

    fn warn_of_invalid_samples(&mut self, fixed: Option<u32>) {
        let count = |exclusion| self.columns.excluded.iter().filter(|(_, found)| *found == exclusion).count();
        let (missed, unmeasurable) =
            (count(ExclusionReason::MissedStart), count(ExclusionReason::BelowClockResolution));
        let taken = self.taken;
        if 2 * missed > taken as usize {
            self.warnings.push(format!(
                "{missed} of {taken} iterations began late on some rank and do not count; the ranks may share cores"
            ));
        }
        if unmeasurable > 0 {
            self.warnings.push(format!(
                "{unmeasurable} of {taken} samples took no measurable time on some rank and do not count"
            ));
        }
        if let Some(fixed) = fixed.filter(|fixed| self.valid.len() < *fixed as usize && taken >= *fixed) {
            self.warnings.push(format!("{} samples count of the {fixed} that were requested", self.valid.len()));
        }
    }
}

/// A reading of two clocks: that of the marks, on which budgets are defined, and the host's, since simulating a second
/// may take longer than one.
pub(super) struct Reading {
    marks: u64,
    host: u64,
}

impl Reading {
    pub(super) fn now(call: &dyn Call) -> Self {
        Reading { marks: call.now_nanoseconds(), host: host_clock::now_nanoseconds() }
    }

    pub(super) fn seconds_until(&self, end: Reading) -> f64 {
        end.marks.saturating_sub(self.marks).max(end.host.saturating_sub(self.host)) as f64 * 1e-9
    }
}
