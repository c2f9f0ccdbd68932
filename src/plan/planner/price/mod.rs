//! The time of one optimizer step of a layout, and its parts: computing, waiting for communication axis by axis, the
//! bubble, the optimizer. The parts add up to the step.
//!
//! Passes are timed stage by stage (`passes`), run in the order of the pipeline's schedule, and seen from the stage with the most work.
//! `search` chooses the layout.

mod calls;
mod passes;

pub use calls::PreparedStep;
pub(super) use calls::{DataCallTimes, FirstStage, FirstStageTimes, LISTED_SAMPLES, LayerLoads, work_of_layers};
pub(super) use passes::{ChunkPasses, ChunkWork, Loads};
pub use passes::{Exposed, Unpriced};

use crate::planner::compute::Compute;
use crate::planner::rates::{RatedCall, Rates};
use crate::planner::step_error::deviation;
use calls::{Answer, Answers};
use commgauge_base::random::{normal, split_mix};
use commgauge_base::stats::Interval;
use commgauge_base::units::Seconds;
use commgauge_model::workload::schedule::{Event, Pass, PassCosts, Schedule, ScheduleKind, simulate};
use commgauge_model::workload::step::TrainingStep;
use passes::{Passes, StageWork};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The time of a step and its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPrice {
    /// The step: the sum of the following parts.
    pub step_seconds: f64,
    /// Computing of the busiest stage, including recomputation.
    pub compute_seconds: f64,
    /// Extra time of its passes because the host cannot start kernels faster.
    pub host_seconds: f64,
    /// Its wait for other stages, with free messages.
    pub bubble_seconds: f64,
    /// Its wait for communication, by axis.
    #[serde(rename = "exposed_communication_seconds")]
    pub exposed: Exposed,
    /// The update of the parameters.
    pub optimizer_seconds: f64,
    /// Lower end of the interval that contains 95 of 100 steps: errors of calls, of computing, and of unmodelled effects.
    pub step_seconds_low: f64,
    /// Upper end.
    pub step_seconds_high: f64,
    /// Calls from untrusted curves, without duplicates.
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

/// What prices steps: the speed of computing and of calls, on nodes of this many ranks each, neighbours in world rank.
#[derive(Clone, Copy)]
pub struct Pricing<'a> {
    pub compute: &'a Compute,
    pub rates: &'a dyn Rates,
    pub ranks_per_node: u32,
}

/// The price of a step.
///
/// # Errors
/// If the rates have no answer for a call.
pub fn price(step: &TrainingStep, on: Pricing) -> Result<StepPrice, Unpriced> {
    PreparedStep::new(step)?.price(step, on)
}

impl PreparedStep {
    fn inputs<'a>(&'a self, step: &'a TrainingStep<'a>, on: Pricing) -> Result<StepInputs<'a>, Unpriced> {
        let answers = self.query(step, on.rates, on.ranks_per_node)?;
        Ok(StepInputs { prepared: self, step, answers, work: Cow::Owned(self.work(step, on.compute)) })
    }

    /// Only the seconds of the step.
    ///
    /// # Errors
    /// As [`price`].
    pub fn step_seconds(&self, step: &TrainingStep, on: Pricing) -> Result<f64, Unpriced> {
        let inputs = self.inputs(step, on)?;
        Ok(parts(&inputs, &|answer| answer.seconds, MessageWaits::InBubble)?.step_seconds)
    }

    /// As [`price`].
    ///
    /// # Errors
    /// As [`price`].
    pub fn price(&self, step: &TrainingStep, on: Pricing) -> Result<StepPrice, Unpriced> {
        let inputs = self.inputs(step, on)?;
        let mut price = parts(&inputs, &|answer| answer.seconds, MessageWaits::Apart)?;
        price.untrusted = inputs.answers.untrusted(on.rates);
        // Calls without an interval count as exact: the errors of published runs include those of published rates.
        let calls = Interval {
            low: parts(&inputs, &|answer| answer.low, MessageWaits::InBubble)?.step_seconds,
            high: parts(&inputs, &|answer| answer.high, MessageWaits::InBubble)?.step_seconds,
        };
        let interval = on.compute.error.around(price.step_seconds, calls);
        (price.step_seconds_low, price.step_seconds_high) = (interval.low, interval.high);
        let host = self.host_share(step, on.compute, &inputs.work, price.compute_seconds);
        price.host_seconds = host;
        price.compute_seconds -= host;
        Ok(price)
    }
}

/// The inputs of a price, except the position of call times within their intervals.
struct StepInputs<'a> {
    prepared: &'a PreparedStep,
    step: &'a TrainingStep<'a>,
    answers: Answers,
    work: Cow<'a, [StageWork]>,
}

/// Where a price counts the wait of stages for messages.
#[derive(Clone, Copy)]
enum MessageWaits {
    /// As a separate part, for which the schedule is computed a second time.
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
    let kinds: Vec<Passes> = inputs.prepared.passes(step, &inputs.answers, &inputs.work, seconds);
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
    // If stages are stored twice each micro-batch passes one of them.
    let passes = step.micro_batches as f64 * if step.stages.mirrored { 0.5 } else { 1.0 };
    Ok(sum_up(&pipeline.stages, passes, &span, quiet))
}

/// The parts, seen from the stage with the most work. `quiet` is the span with free messages.
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

// Only the seconds of a step, in a fraction of the time of a whole price, for pricing thousands of orders of axes.
//
// The calls and the computing of a step do not depend on the order of its axes, and if all calls take equally long in
// two orders the steps do. So each is computed once.

/// A step in all orders of its axes.
#[derive(Clone, Debug)]
pub(super) struct PricedOnce {
    pub step: PreparedStep,
    work: Vec<StageWork>,
    /// The seconds of all calls, and of the step.
    known: Vec<(Vec<u64>, f64)>,
}

impl PricedOnce {
    /// A step in any order of its axes.
    ///
    /// # Errors
    /// If counts exceed 64 bits.
    pub fn new(step: &TrainingStep, compute: &Compute) -> Result<PricedOnce, Unpriced> {
        let prepared = PreparedStep::new(step)?;
        let work = prepared.work(step, compute);
        Ok(PricedOnce { step: prepared, work, known: Vec::new() })
    }

    /// The seconds of the step in its order of the axes.
    ///
    /// # Errors
    /// As [`price`].
    pub fn seconds(&mut self, step: &TrainingStep, rates: &dyn Rates, ranks_per_node: u32) -> Result<f64, Unpriced> {
        let answers = self.step.query(step, rates, ranks_per_node)?;
        let calls: Vec<u64> = answers.all().map(|answer| answer.seconds.to_bits()).collect();
        if let Some((_, seconds)) = self.known.iter().find(|(known, _)| *known == calls) {
            return Ok(*seconds);
        }
        let inputs = StepInputs { prepared: &self.step, step, answers, work: Cow::Borrowed(&self.work) };
        let seconds = parts(&inputs, &|answer| answer.seconds, MessageWaits::InBubble)?.step_seconds;
        self.known.push((calls, seconds));
        Ok(seconds)
    }
}

// Alternative times of a step, given the known errors of predictions of its calls: one time per draw.
//
// Calls read from the same curve have the same error factor, in all layouts, so that a draw of two layouts is a fair comparison. Factors
// are lognormal. A call without an interval is exact.

impl PreparedStep {
    /// The step's seconds in this many draws; `None` if a call has no prediction.
    pub fn draws(&self, step: &TrainingStep, on: Pricing, count: u32) -> Option<Vec<f64>> {
        let inputs = self.inputs(step, on).ok()?;
        let drawn = |draw: u32| {
            let price = parts(&inputs, &|answer| seconds(answer, draw), MessageWaits::InBubble);
            price.ok().map(|price| price.step_seconds)
        };
        (0..count).map(drawn).collect()
    }
}

/// The time of a call in a draw.
fn seconds(answer: &Answer, draw: u32) -> f64 {
    if answer.low <= 0.0 || answer.low >= answer.high {
        return answer.seconds;
    }
    let spread = deviation(Interval { low: answer.low, high: answer.high });
    answer.seconds * (spread * deviate(curve(&answer.call), draw)).exp()
}

/// A number for the curve of a call.
fn curve(call: &RatedCall) -> u64 {
    let place = &call.locality;
    let parts = [call.ranks, place.nodes_spanned, place.concurrent_groups_per_node, place.stride];
    parts.iter().fold(call.collective as u64, |sum, part| split_mix(sum ^ u64::from(*part), 0))
}

/// A standard normal number that only depends on both.
fn deviate(curve: u64, draw: u32) -> f64 {
    let first = split_mix(curve ^ (u64::from(draw) << 32), 0);
    normal([first, split_mix(first, 0)])
}

// Start and end of every stage, by the event schedule, for any number of micro-batches.
//
// The events are those of `workload::schedule`. Steps of very many micro-batches are not simulated to the end: once the pipeline is full
// every round of p micro-batches adds the same time, which is extrapolated.

/// Simulated rounds of p micro-batches, and the minimum number of micro-batches in them; every further round adds the mean increment of the
/// second half.
const ROUNDS: u64 = 4;

/// See [`ROUNDS`].
const FEWEST_MICRO_BATCHES: u64 = 64;

/// A pipeline with the times of its passes.
struct Pipeline<'a> {
    pub kind: ScheduleKind,
    pub virtual_stages: u32,
    pub micro_batches: u64,
    pub stages: Vec<&'a Passes>,
    /// A message of activations to the next stage, and of gradients to the one before.
    pub message_forward: f64,
    pub message_backward: f64,
}

/// Times of the stages.
#[derive(Clone, Debug, PartialEq)]
struct StageTimes {
    /// From the start to the last end.
    pub makespan: f64,
    /// When each stage begins its first pass.
    pub starts: Vec<f64>,
    /// When each stage ends its last pass.
    pub ends: Vec<f64>,
}

impl Pipeline<'_> {
    /// Runs the schedule.
    ///
    /// # Errors
    /// If a rule of the schedule is broken.
    pub fn span(&self) -> Result<StageTimes, String> {
        let p = self.stages.len() as u32;
        let m = self.micro_batches;
        if p == 1 {
            let each: f64 = self.stages.iter().map(|stage| stage.forward() + stage.backward()).sum();
            let end = m as f64 * each;
            return Ok(StageTimes { makespan: end, starts: vec![0.0], ends: vec![end] });
        }
        let round = u64::from(p);
        let rounds = ROUNDS.max(FEWEST_MICRO_BATCHES.div_ceil(round));
        if m < (rounds + 1) * round {
            return self.run(m as u32);
        }
        let more = rounds * round + m % round;
        let half = rounds / 2;
        let shorter = self.run((more - half * round) as u32)?;
        let mut span = self.run(more as u32)?;
        let further = ((m - more) / round) as f64 * (span.makespan - shorter.makespan) / half as f64;
        span.makespan += further;
        span.ends.iter_mut().for_each(|end| *end += further);
        Ok(span)
    }

    fn run(&self, micro_batches: u32) -> Result<StageTimes, String> {
        let schedule = Schedule::shared(self.kind, self.stages.len() as u32, self.virtual_stages, micro_batches)?;
        let timeline = simulate(&schedule, self)?;
        let ranks = timeline.events.iter();
        let starts = ranks.clone().map(|rank| rank.first().map_or(0.0, |event| event.start.0)).collect();
        let ends = ranks.map(|rank| rank.last().map_or(0.0, |event| event.finish.0)).collect();
        Ok(StageTimes { makespan: timeline.makespan().0, starts, ends })
    }
}

impl PassCosts for Pipeline<'_> {
    fn pass(&self, _schedule: &Schedule, rank: u32, event: &Event) -> Seconds {
        let chunk = self.stages.get(rank as usize).and_then(|stage| stage.chunks.get(event.chunk as usize));
        let Some(chunk) = chunk else { return Seconds(0.0) };
        Seconds(match event.pass {
            Pass::Forward => chunk.forward,
            Pass::Backward => chunk.backward,
            Pass::InputGradient => chunk.backward - chunk.weight_gradient,
            Pass::WeightGradient => chunk.weight_gradient,
        })
    }

    fn message(&self, _schedule: &Schedule, _from_rank: u32, _to_rank: u32, event: &Event) -> Seconds {
        Seconds(if event.pass == Pass::Forward { self.message_forward } else { self.message_backward })
    }
}

#[cfg(test)]
mod draws_tests {

    use super::*;

    #[test]
    fn draws_are_standard_normal_and_the_same_for_the_same_curve() {
        let all: Vec<f64> = (0..4000).map(|draw| deviate(7, draw)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.06, "{mean} {variance}");
        assert_eq!((deviate(7, 3), deviate(8, 3) == deviate(7, 3)), (all[3], false));
    }
}

#[cfg(test)]
mod tests {
    // Prices against hand-computed figures, and properties of any price.
    use super::passes::ChunkPasses;
    use super::*;
    use crate::planner::rates::{Published, RatedCall};
    use commgauge_model::config::{Machine, Suite};
    use commgauge_model::layout::Locality;
    use commgauge_model::workload::schedule::ScheduleKind;
    use commgauge_model::workload::step::Step;
    use std::path::Path;

    /// 1 us and `within` GB/s within a node of 4, 5 us and 4 adapters of `between` GB/s.
    fn machine(within: f64, between: f64) -> Machine {
        let text = format!(
            "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '{within}GB/s'\n\
         [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '{between}GB/s'\n"
        );
        Machine::parse(&text, Path::new("m.toml")).unwrap()
    }

    /// Prices a step on nodes of 4 ranks at 100 TFLOP/s.
    fn priced(model: &str, training: &str, layout: &str, ranks: u32, machine: &Machine) -> Result<StepPrice, Unpriced> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = format!("[model]\npreset = '{model}'\n[training]\n{training}\n[layout]\n{layout}\n");
        let suite = Suite::parse(&path, &text).unwrap();
        let steps = Step::all_of(&suite.layouts[0], ranks).unwrap();
        let Step::Training(step) = &steps[0] else { unreachable!() };
        let (compute, rates) = (Compute::constant(100e12, 1.0), Published::new(machine));
        price(step, Pricing { compute: &compute, rates: &rates, ranks_per_node: 4 })
    }

    /// Rates without answers.
    struct NoRates;

    impl Rates for NoRates {
        fn price(&self, _: &RatedCall) -> commgauge_cost::cost::Prediction {
            commgauge_cost::cost::Prediction {
                seconds: None,
                low: None,
                high: None,
                status: commgauge_cost::cost::Status::Refused,
                reason: Some("nothing was measured".to_owned()),
                untrusted: false,
            }
        }
        fn ground(&self, _: &RatedCall) -> String {
            String::new()
        }
        fn calibrated(&self) -> bool {
            true
        }
        fn synthetic(&self) -> bool {
            false
        }
        fn name(&self) -> String {
            "silent".to_owned()
        }
    }

    #[test]
    fn a_step_with_an_untimed_call_has_no_price() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 2048\nglobal_batch = 8\n[layout]\ntp = 2\n";
        let suite = Suite::parse(&path, text).unwrap();
        let steps = Step::all_of(&suite.layouts[0], 2).unwrap();
        let Step::Training(step) = &steps[0] else { unreachable!() };
        let compute = Compute::constant(1e14, 0.5);
        let on = Pricing { compute: &compute, rates: &NoRates, ranks_per_node: 8 };
        let unpriced = price(step, on).unwrap_err();
        assert!(unpriced.to_string().ends_with("on tp of 2 ranks: nothing was measured"), "{unpriced}");
    }

    #[test]
    fn one_rank_computes_without_waiting() {
        let price =
            priced("llama-3-8b", "sequence = 2048\nglobal_batch = 8", "tp = 1", 1, &machine(10.0, 1.0)).unwrap();
        assert_eq!((price.exposed.total(), price.bubble_seconds, price.optimizer_seconds), (0.0, 0.0, 0.0));
        // 6 operations per parameter and token, without the embedding (0.525e9), and 6 s h each layer for causal attention
        // (arXiv 2104.04473, appendix): 16384 tokens x (6 x 7.504e9 + 6 x 2048 x 4096 x 32) at 1e14.
        let expected = 16384.0 * (6.0 * 7.504e9 + 6.0 * 2048.0 * 4096.0 * 32.0) / 1e14;
        assert!((price.step_seconds / expected - 1.0).abs() < 0.01, "{} {expected}", price.step_seconds);
    }

    #[test]
    fn tensor_parallelism_waits_for_what_no_product_hides() {
        let text = "sequence = 2048\nglobal_batch = 1";
        let alone = priced("llama-3-8b", text, "tp = 1", 1, &machine(10.0, 1.0)).unwrap();
        let price = priced("llama-3-8b", text, "tp = 4", 4, &machine(10.0, 1.0)).unwrap();
        assert!((price.compute_seconds / (alone.compute_seconds / 4.0) - 1.0).abs() < 0.01);
        // One all_reduce of 2 x 2048 x 4096 B on 4 ranks: 6 us + 1.5 x 16.8 MB at 10 GB/s. Two forward in each of 32 layers, one for the
        // embedding, are exposed; two backward overlap with weight gradients of 2 x 2048 x 218e6 / 4 / 1e14 s.
        let call = 6e-6 + 1.5 * 16_777_216.0 / 10e9;
        let product = 2.0 * 2048.0 * 218_103_808.0 / 4.0 / 1e14;
        let expected = 65.0 * call + 32.0 * (2.0 * call - product);
        assert!((price.exposed.tp / expected - 1.0).abs() < 0.02, "{} {expected}", price.exposed.tp);
    }

    #[test]
    fn the_parts_add_up_and_faster_links_never_slow_a_step() {
        for (training, layout, ranks) in [
            ("sequence = 2048\nglobal_batch = 32\ndata_style = 'zero1'", "tp = 2\npp = 2", 8),
            ("sequence = 2048\nglobal_batch = 32\ndata_style = 'fsdp'\nsequence_parallel = true", "tp = 2", 8),
            ("sequence = 4096\nglobal_batch = 16\ndata_style = 'zero2'\nrecompute = 'full'", "cp = 2\npp = 2", 8),
            ("sequence = 2048\nglobal_batch = 32\nvirtual_stages = 4\ndata_style = 'ddp'", "pp = 4", 8),
            ("sequence = 2048\nglobal_batch = 64\nschedule = 'zb-h1'", "pp = 4", 8),
        ] {
            let mut before = f64::INFINITY;
            for (within, between) in [(1.0, 0.1), (10.0, 0.1), (10.0, 1.0), (100.0, 10.0)] {
                let price = priced("llama-3-8b", training, layout, ranks, &machine(within, between)).unwrap();
                let parts = [price.compute_seconds, price.host_seconds, price.bubble_seconds, price.optimizer_seconds];
                assert!(parts.iter().chain(&price.exposed.values()).all(|part| *part >= 0.0), "{price:?}");
                let sum: f64 = parts.iter().sum::<f64>() + price.exposed.total();
                assert!((sum / price.step_seconds - 1.0).abs() < 1e-9, "{training} {price:?}");
                assert!(price.step_seconds <= before * (1.0 + 1e-12), "{training}");
                before = price.step_seconds;
            }
        }
    }

    #[test]
    fn a_pipeline_of_equal_stages_has_the_bubble_of_the_paper() {
        let chunk = ChunkPasses { forward: 1.0, backward: 2.0, ..ChunkPasses::default() };
        let stage = Passes { chunks: vec![chunk], ..Passes::default() };
        for (p, m) in [(4usize, 8u64), (4, 1000), (8, 4), (2, 100_003)] {
            let pipeline = Pipeline {
                kind: ScheduleKind::OneForwardOneBackward,
                virtual_stages: 1,
                micro_batches: m,
                stages: vec![&stage; p],
                message_forward: 0.0,
                message_backward: 0.0,
            };
            let span = pipeline.span().unwrap();
            // arXiv 2104.04473 section 2.2.1: (m + p - 1)(F + B).
            let expected = 3.0 * (m as f64 + p as f64 - 1.0);
            assert!((span.makespan - expected).abs() < 1e-6, "{p} {m}: {}", span.makespan);
        }
    }

    /// Relative error of extrapolating from some rounds, against simulating them all.
    fn carrying_error(
        forwards: &[f64],
        backward: f64,
        message: f64,
        rounds: u64,
        rest: u64,
        virtual_stages: u32,
    ) -> f64 {
        let p = forwards.len() as u64;
        let m = rounds * p + if virtual_stages > 1 { 0 } else { rest % p };
        let passes = |forward: &f64| {
            let chunk = ChunkPasses { forward: *forward, backward: backward * forward, ..ChunkPasses::default() };
            Passes { chunks: vec![chunk; virtual_stages as usize], ..Passes::default() }
        };
        let stages: Vec<Passes> = forwards.iter().map(passes).collect();
        let kind = if virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        let pipeline = Pipeline {
            kind,
            virtual_stages,
            micro_batches: m,
            stages: stages.iter().collect(),
            message_forward: message,
            message_backward: message,
        };
        let carried = pipeline.span().unwrap().makespan;
        let whole = pipeline.run(m as u32).unwrap().makespan;
        (carried / whole - 1.0).abs()
    }

    proptest::proptest! {
        #[test]
        fn rounds_that_are_carried_on_come_to_what_running_them_all_does(
            forwards in proptest::collection::vec(1.0f64..1.5, 2..6), backward in 1.0f64..3.0, message in 0.0f64..0.5,
            rounds in 5u64..80, rest in 0u64..5, virtual_stages in 1u32..3,
        ) {
            let error = carrying_error(&forwards, backward, message, rounds, rest, virtual_stages);
            proptest::prop_assert!(error < 0.02, "{}", error);
        }

        /// Stages of which one takes four times as long as another, which no distribution of layers gives.
        #[test]
        fn very_uneven_stages_are_carried_on_nearly_as_well(
            forwards in proptest::collection::vec(0.5f64..2.0, 2..6), backward in 1.0f64..3.0, message in 0.0f64..1.0,
            rounds in 5u64..80, rest in 0u64..5, virtual_stages in 1u32..3,
        ) {
            let error = carrying_error(&forwards, backward, message, rounds, rest, virtual_stages);
            proptest::prop_assert!(error < 0.04, "{}", error);
        }
    }

    #[test]
    fn a_place_is_the_layouts_own() {
        let locality = Locality { nodes_spanned: 1, ranks_per_node: 2, stride: 1, concurrent_groups_per_node: 2 };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 2048\nglobal_batch = 8\n[layout]\ntp = 2\n";
        let suite = Suite::parse(&path, text).unwrap();
        let steps = Step::all_of(&suite.layouts[0], 8).unwrap();
        assert_eq!(steps[0].layout().locality(commgauge_model::layout::Axis::Tp, 4), locality);
    }
}
