//! The time of one optimizer step of a layout, and its parts: computing, waiting for communication axis by axis, the
//! bubble, the optimizer. The parts add up to the step.
//!
//! Passes are timed stage by stage (`passes`), run in the order of the pipeline's schedule (`timeline`), and seen from
//! the stage with most work. `search` chooses the layout.

mod calls;
mod draws;
mod exposed;
mod layers;
mod once;
mod passes;
#[cfg(test)]
mod tests;
mod timeline;
mod unpriced;
mod work;

pub use calls::PreparedStep;
pub(in crate::planner) use calls::{DataCallTimes, FirstStage, FirstStageTimes};
pub use exposed::Exposed;
pub(in crate::planner) use layers::{LISTED_SAMPLES, LayerLoads, work_of_layers};
pub(in crate::planner) use once::PricedOnce;
pub(in crate::planner) use passes::{ChunkPasses, Loads};
pub use unpriced::Unpriced;
pub(in crate::planner) use work::ChunkWork;
use work::StageWork;

use crate::planner::compute::Compute;
use crate::planner::rates::Rates;
use calls::Answers;
use commgauge_base::stats::Interval;
use commgauge_model::workload::step::TrainingStep;
use passes::Passes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timeline::{Pipeline, StageTimes};

/// What a step takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPrice {
    /// The step: the sum of all that follows.
    pub step_seconds: f64,
    /// What the busiest stage computes, recomputation included.
    pub compute_seconds: f64,
    /// What its passes take longer because the host cannot start kernels faster.
    pub host_seconds: f64,
    /// What it waits for other stages, with messages that cost nothing.
    pub bubble_seconds: f64,
    /// What it waits for communication.
    pub exposed: Exposed,
    /// The update of the parameters.
    pub optimizer_seconds: f64,
    /// Lower end of the interval that holds 95 of 100 steps: the errors of calls, of computing, and of what is not modelled.
    pub step_seconds_low: f64,
    /// Upper end.
    pub step_seconds_high: f64,
    /// Calls from curves that are not to be trusted, each once.
    pub untrusted: Vec<String>,
}

impl StepPrice {
    /// Every part of the step with its name, computing first.
    pub fn parts(&self) -> Vec<(String, f64)> {
        let mut parts = vec![("compute".to_owned(), self.compute_seconds), ("bubble".to_owned(), self.bubble_seconds)];
        let names = Exposed::NAMES.iter().map(|name| format!("{name} exposed"));
        parts.extend(names.zip(self.exposed.values()));
        parts.extend([("optimizer".to_owned(), self.optimizer_seconds), ("host".to_owned(), self.host_seconds)]);
        parts
    }
}

/// The price of a step on nodes of this many ranks each, neighbours in world rank.
///
/// # Errors
/// The first call for which the rates have no answer.
pub fn price(
    step: &TrainingStep,
    compute: &Compute,
    rates: &dyn Rates,
    ranks_per_node: u32,
) -> Result<StepPrice, Unpriced> {
    PreparedStep::new(step)?.price(step, compute, rates, ranks_per_node)
}

impl PreparedStep {
    /// The seconds of the step alone.
    ///
    /// # Errors
    /// As [`price`].
    pub fn step_seconds(
        &self,
        step: &TrainingStep,
        compute: &Compute,
        rates: &dyn Rates,
        ranks_per_node: u32,
    ) -> Result<f64, Unpriced> {
        let answers = self.query(step, rates, ranks_per_node)?;
        let work = self.work(step, compute);
        let inputs = StepInputs { prepared: self, step, answers: &answers, work: &work };
        Ok(parts(&inputs, &|answer| answer.seconds, MessageWaits::InBubble)?.step_seconds)
    }

    /// The price of the step; see [`price`].
    ///
    /// # Errors
    /// As there.
    pub fn price(
        &self,
        step: &TrainingStep,
        compute: &Compute,
        rates: &dyn Rates,
        ranks_per_node: u32,
    ) -> Result<StepPrice, Unpriced> {
        let answers = self.query(step, rates, ranks_per_node)?;
        let work = self.work(step, compute);
        let inputs = StepInputs { prepared: self, step, answers: &answers, work: &work };
        let mut price = parts(&inputs, &|answer| answer.seconds, MessageWaits::Apart)?;
        price.untrusted = answers.untrusted(rates);
        // Calls without an interval count as exact: the errors of published runs hold those of published rates.
        let calls = Interval {
            low: parts(&inputs, &|answer| answer.low, MessageWaits::InBubble)?.step_seconds,
            high: parts(&inputs, &|answer| answer.high, MessageWaits::InBubble)?.step_seconds,
        };
        let interval = compute.error.around(price.step_seconds, calls);
        (price.step_seconds_low, price.step_seconds_high) = (interval.low, interval.high);
        let host = self.host_share(step, compute, &work, price.compute_seconds);
        price.host_seconds = host;
        price.compute_seconds -= host;
        Ok(price)
    }
}

/// The inputs of a price, apart from where in their intervals the times of calls are.
struct StepInputs<'a> {
    prepared: &'a PreparedStep,
    step: &'a TrainingStep<'a>,
    answers: &'a Answers,
    work: &'a [StageWork],
}

/// Where a price has the time for which stages wait for messages.
#[derive(Clone, Copy)]
enum MessageWaits {
    /// In a part of its own, for which the schedule is computed a second time.
    Apart,
    InBubble,
}

/// The price if every call takes the time that `seconds` computes from its answer.
fn parts(
    inputs: &StepInputs,
    seconds: &dyn Fn(&calls::Answer) -> f64,
    waits: MessageWaits,
) -> Result<StepPrice, Unpriced> {
    let step = inputs.step;
    let kinds: Vec<Passes> = inputs.prepared.passes(step, inputs.answers, inputs.work, seconds);
    let stages: Vec<&Passes> = inputs.prepared.kind_of_stage.iter().filter_map(|kind| kinds.get(*kind)).collect();
    let [message_forward, message_backward] = inputs.answers.messages(seconds);
    let mut pipeline = Pipeline {
        kind: step.training.pipeline.schedule,
        virtual_stages: step.training.pipeline.virtual_stages,
        micro_batches: step.micro_batches,
        stages,
        message_forward,
        message_backward,
    };
    let wrong = |reason: String| Unpriced { call: "the pipeline's schedule".to_owned(), reason };
    let span = pipeline.span().map_err(wrong)?;
    let makespan = span.makespan;
    let has_messages = message_forward + message_backward > 0.0 && pipeline.stages.len() > 1;
    let quiet = match waits {
        MessageWaits::Apart if has_messages => {
            (pipeline.message_forward, pipeline.message_backward) = (0.0, 0.0);
            pipeline.span().map_err(wrong)?.makespan
        }
        MessageWaits::Apart | MessageWaits::InBubble => makespan,
    };
    // Of stages that are stored twice each micro-batch passes one.
    let passes = step.micro_batches as f64 * if step.stages.mirrored() { 0.5 } else { 1.0 };
    Ok(sum_up(&pipeline.stages, passes, &span, quiet))
}

/// The parts, seen from the stage that works most. `quiet` is the span where messages cost nothing.
fn sum_up(stages: &[&Passes], micro_batches: f64, span: &StageTimes, quiet: f64) -> StepPrice {
    let busy = |stage: &Passes| stage.forward() + stage.backward();
    let Some(busiest) = stages.iter().copied().max_by(|a, b| busy(a).total_cmp(&busy(b))) else {
        return StepPrice::default();
    };
    let compute: f64 = busiest.chunks.iter().map(|chunk| chunk.compute.forward.0 + chunk.compute.backward().0).sum();
    let waits = busiest
        .chunks
        .iter()
        .fold(Exposed::default(), |sum, chunk| sum.plus(chunk.exposed_forward).plus(chunk.exposed_backward));
    let mut exposed = waits.times(micro_batches);
    let compute_seconds = micro_batches * compute;
    let bubble_seconds = (quiet - compute_seconds - exposed.total()).max(0.0);
    exposed.pp += (span.makespan - quiet).max(0.0);
    exposed = exposed.plus(before(stages, span)).plus(after(stages, span)).plus(last(stages));
    let optimizer_seconds = stages.iter().map(|stage| stage.optimizer).fold(0.0, f64::max);
    StepPrice {
        step_seconds: compute_seconds + bubble_seconds + exposed.total() + optimizer_seconds,
        compute_seconds,
        bubble_seconds,
        exposed,
        optimizer_seconds,
        ..StepPrice::default()
    }
}

/// Time before the first forward pass, of the stage that is delayed most by it: a stage that starts later has slack.
fn before(stages: &[&Passes], span: &StageTimes) -> Exposed {
    let waits = stages.iter().zip(&span.starts).map(|(stage, start)| beyond(stage.before, *start));
    waits.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
}

/// Time after the last backward pass, of the stage that finishes it last: a stage that ends early has slack.
fn after(stages: &[&Passes], span: &StageTimes) -> Exposed {
    let waits = stages.iter().zip(&span.ends).map(|(stage, end)| beyond(stage.after, span.makespan - end));
    waits.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
}

/// Time for which all stages wait together: each axis at its slowest.
fn last(stages: &[&Passes]) -> Exposed {
    stages.iter().fold(Exposed::default(), |slowest, stage| slowest.larger(stage.last))
}

/// The rest of a wait of which `free` seconds are hidden, divided in the same proportions.
fn beyond(waits: Exposed, free: f64) -> Exposed {
    let total = waits.total();
    if total <= free || total <= 0.0 { Exposed::default() } else { waits.times((total - free.max(0.0)) / total) }
}
