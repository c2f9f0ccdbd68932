//! The plan as a document: the query, the number of layouts, and the best of them with the parts of their step. The
//! published JSON Schema (`commgauge show schema plan`) is made from these types.

use super::memory::MemoryNeed;
use super::price::StepPrice;
use super::search::{Found, Planned, Priced, Question, WhatIf};
use super::step_error::SURE;
use commgauge_model::config::step::FrameworkChoices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `format`.
pub const FORMAT: &str = "commgauge-plan";

/// The version that this program writes.
pub const VERSION: u32 = 2;

/// A plan.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDocument {
    /// Always `commgauge-plan`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The model.
    pub model: String,
    pub gpus: u32,
    /// All compared numbers of GPUs, if several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus_compared: Vec<u32>,
    /// GPUs of a node.
    pub ranks_per_node: u32,
    /// Memory of one GPU.
    pub gpu_memory_bytes: u64,
    /// Samples of a step.
    pub global_batch: u64,
    /// Tokens of a sample.
    pub sequence: u64,
    /// The framework for which the best layout was planned, and its default choices; absent if none was named.
    pub framework: Option<FrameworkChoices>,
    /// Source of the times of calls.
    pub rates: String,
    /// Source of the times of computing.
    pub computing: String,
    /// What was not validated, as a sentence: published steps of such a GPU, precision and kind of layers; absent if validated.
    pub not_validated: Option<String>,
    /// True if every time of a call comes from measurements; false if some come from published rates.
    pub calibrated: bool,
    /// True if the measurements were synthetic: no real time passed, and nothing here describes a real machine.
    pub synthetic: bool,
    /// Legal layouts.
    pub considered: u64,
    /// Layouts that fit into memory, or are at its edge.
    pub feasible: u64,
    /// Those of them at the edge.
    pub at_the_edge: u64,
    /// Layouts priced individually; the others were shown to be no faster.
    pub priced: u64,
    /// Time of the search.
    pub elapsed_seconds: f64,
    /// Degrees that break a rule, by rule.
    pub illegal: Vec<Reason>,
    /// Layouts without a price, by reason.
    pub unpriced: Vec<Reason>,
    /// Confidence that the first layout is faster than the second.
    pub order: OrderOfBest,
    /// The best layouts, best first; the plainest of those that cannot be told apart comes first.
    pub layouts: Vec<PlannedLayout>,
    /// Those of them that divide the model otherwise than the first and may be faster, at most two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<Rival>,
    /// The command that measures what decides between the first and its rivals.
    pub measured_by: Option<String>,
    /// The choices of a machine that differs in one property, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIf>,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
}

/// A layout that may be faster than the first, and what decides between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rival {
    /// The layout in the syntax of `--only`.
    pub name: String,
    /// Its place in the list, of which the first is 1.
    pub place: u32,
    /// Share of draws in which the first is faster.
    pub probability_first_is_faster: f64,
    /// The parts of the step that differ most, the largest difference first.
    pub decided_by: Vec<PartDifference>,
}

/// Rivals that are named, at most.
const RIVALS: usize = 2;

/// Parts of a step that decide, at most, and the least share of the step by which they differ.
const DECIDING: usize = 2;
const LEAST_SHARE: f64 = 1e-4;

/// The rivals of the first of some layouts, given the draws in which the first is faster than each other.
fn rivals(layouts: &[PlannedLayout], probabilities: &[Option<f64>]) -> Vec<Rival> {
    let Some((first, others)) = layouts.split_first() else { return Vec::new() };
    let of = |((place, other), probability): ((u32, &PlannedLayout), &Option<f64>)| {
        let probability = (*probability)?;
        let mut decided_by = Comparison::new(first.clone(), other.clone(), None).parts;
        decided_by.retain(|part| part.difference_seconds().abs() > LEAST_SHARE * first.price.step_seconds);
        decided_by.truncate(DECIDING);
        let name = other.name.clone();
        (probability < SURE).then_some(Rival { name, place, probability_first_is_faster: probability, decided_by })
    };
    (2..).zip(others).zip(probabilities).filter_map(of).take(RIVALS).collect()
}

/// A reason with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    pub reason: String,
    pub count: u64,
}

/// Confidence in the order of the two best layouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderOfBest {
    /// The verdict.
    pub verdict: OrderVerdict,
    /// Share of draws in which the first is faster, given the errors of similar call predictions and of published steps; absent without a
    /// second layout.
    pub probability: Option<f64>,
    /// The share by which the second is slower.
    pub relative_difference: Option<f64>,
}

/// A verdict on an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderVerdict {
    /// The first is faster in at least 95 of 100 draws.
    Sure,
    /// It is not: choose either.
    Tie,
    /// There is no second layout.
    Alone,
}

/// A layout and its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedLayout {
    /// The layout in the syntax of `--only`.
    pub name: String,
    /// GPUs.
    pub gpus: u64,
    #[serde(flatten)]
    pub layout: Planned,
    /// Parts of its memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<PlannedMemory>,
    #[serde(flatten)]
    pub price: StepPrice,
    /// The largest part other than computing, in words.
    pub limited_by: String,
}

/// A part of the memory of the fullest GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMemory {
    /// Name of the part.
    pub part: String,
    /// Size of the part.
    pub bytes: u64,
    /// The formula, with the numbers.
    pub why: String,
}

/// The parts of a layout's memory; empty if it cannot be a step, which a planned layout can.
fn memory(question: &Question, layout: &Planned) -> Vec<PlannedMemory> {
    let parts = question.with_step(layout, |step| {
        let choices = question.compute.kernels;
        Ok(choices.explain(step, choices.most_loaded(step).0))
    });
    let planned = |part: super::memory::MemoryPart| PlannedMemory {
        part: part.name.to_owned(),
        bytes: part.bytes.0,
        why: part.why,
    };
    let mut parts: Vec<PlannedMemory> = parts.unwrap_or_default().into_iter().map(planned).collect();
    let MemoryNeed { low, middle, high } = layout.memory;
    let counted: u64 = parts.iter().map(|part| part.bytes).sum();
    parts.push(PlannedMemory {
        part: "overhead".to_owned(),
        bytes: middle.0.saturating_sub(counted),
        why: format!(
            "CUDA context, libraries, NCCL, allocator: {:.1} to {:.1} GB with the parts, after published runs",
            low.0 as f64 / 1e9,
            high.0 as f64 / 1e9
        ),
    });
    parts
}

impl PlannedLayout {
    pub fn of(priced: &Priced) -> PlannedLayout {
        let Priced { layout, price } = priced.clone();
        let largest = price.parts().into_iter().skip(1).max_by(|a, b| a.1.total_cmp(&b.1));
        let limited_by = match largest.filter(|(_, seconds)| *seconds > 0.0) {
            Some((name, seconds)) => format!("{name} ({:.1} % of the step)", 100.0 * seconds / price.step_seconds),
            None => "computing alone".to_owned(),
        };
        let gpus = layout.degrees.world();
        PlannedLayout { name: layout.name(), gpus, layout, memory: Vec::new(), price, limited_by }
    }
}

impl OrderOfBest {
    /// For the best layouts.
    pub fn of(best: &[Priced], probability: Option<f64>) -> OrderOfBest {
        let [first, second, ..] = best else {
            return OrderOfBest { verdict: OrderVerdict::Alone, probability: None, relative_difference: None };
        };
        let difference = second.price.step_seconds / first.price.step_seconds - 1.0;
        let verdict = match probability {
            Some(probability) if probability >= SURE && difference > 0.0 => OrderVerdict::Sure,
            _ => OrderVerdict::Tie,
        };
        OrderOfBest { verdict, probability, relative_difference: difference.is_finite().then_some(difference) }
    }
}

impl PlanDocument {
    /// For a question and its result.
    pub fn new(
        question: &Question,
        found: &Found,
        computing: String,
        elapsed_seconds: f64,
        probabilities: &[Option<f64>],
    ) -> PlanDocument {
        let reasons = |all: &[(String, u64)]| {
            all.iter().map(|(reason, count)| Reason { reason: reason.clone(), count: *count }).collect()
        };
        let illegal: Vec<(String, u64)> =
            found.illegal.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect();
        let best = found.best.first().and_then(|best| question.bases.stage(best.layout.zero_stage));
        let planned =
            |priced: &Priced| PlannedLayout { memory: memory(question, &priced.layout), ..PlannedLayout::of(priced) };
        let layouts: Vec<PlannedLayout> = found.best.iter().map(planned).collect();
        PlanDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            model: question.model.shown_name(),
            gpus: question.gpus,
            ranks_per_node: question.ranks_per_node,
            gpu_memory_bytes: question.gpu_memory.0,
            global_batch: question.global_batch,
            sequence: question.bases.first.sequence,
            framework: best.unwrap_or(&question.bases.first).framework_choices.clone(),
            rates: question.rates.name(),
            computing,
            not_validated: None,
            calibrated: question.rates.calibrated(),
            synthetic: question.rates.synthetic(),
            considered: found.considered,
            feasible: found.feasible,
            at_the_edge: found.at_the_edge,
            priced: found.priced,
            elapsed_seconds,
            illegal: reasons(&illegal),
            unpriced: reasons(&found.unpriced),
            order: OrderOfBest::of(&found.best, probabilities.first().copied().flatten()),
            rivals: rivals(&layouts, probabilities),
            measured_by: None,
            layouts,
            gpus_compared: Vec::new(),
            what_if: Vec::new(),
            notes: Vec::new(),
        }
    }
}

// Comparison of two layouts: which choices differ, and which part of the step takes longer because of them.

/// Two layouts, line by line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The first layout.
    pub first: PlannedLayout,
    /// The second.
    pub second: PlannedLayout,
    /// Choices that differ: name, value in the first, value in the second.
    pub choices: Vec<(String, String, String)>,
    /// The parts of the step, the largest difference first.
    pub parts: Vec<PartDifference>,
    /// Share of draws in which the first is faster.
    pub probability_first_is_faster: Option<f64>,
}

/// A part of the step in both layouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartDifference {
    /// The part.
    pub part: String,
    /// Seconds in the first layout.
    pub first_seconds: f64,
    /// Seconds in the second.
    pub second_seconds: f64,
}

impl PartDifference {
    /// The second less the first.
    pub fn difference_seconds(&self) -> f64 {
        self.second_seconds - self.first_seconds
    }
}

impl Comparison {
    /// For two layouts.
    pub fn new(first: PlannedLayout, second: PlannedLayout, probability: Option<f64>) -> Comparison {
        let mut parts: Vec<PartDifference> = first
            .price
            .parts()
            .into_iter()
            .zip(second.price.parts())
            .map(|((part, first_seconds), (_, second_seconds))| PartDifference { part, first_seconds, second_seconds })
            .filter(|part| part.first_seconds > 0.0 || part.second_seconds > 0.0)
            .collect();
        parts.sort_by(|a, b| b.difference_seconds().abs().total_cmp(&a.difference_seconds().abs()));
        let split = |layout: &PlannedLayout| -> Vec<(String, String)> {
            let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            layout.name.split(',').filter_map(pair).collect()
        };
        let choices = split(&first)
            .into_iter()
            .zip(split(&second))
            .filter(|((_, a), (_, b))| a != b)
            .map(|((name, a), (_, b))| (name, a, b))
            .collect();
        Comparison { first, second, choices, parts, probability_first_is_faster: probability }
    }
}
