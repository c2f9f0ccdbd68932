//! What a validation comes to, as a document. The published JSON Schema (`commgauge schema validation`) is made from these types.

use super::memory::MemoryResult;
use super::pricing::Replay;
use super::score::{ErrorSummary, kendall_tau, top_1_regret_percent};
use crate::cost::PredictionPair;
use crate::planner::compute::Constants;
use crate::planner::price::StepPrice;
use crate::planner::step_error::StepError;
use commgauge_model::config::machine::Level;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the JSON document.
pub const FORMAT: &str = "commgauge-validation";
/// Version of the JSON document.
pub const VERSION: u32 = 4;

/// What came of all sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validation {
    /// `commgauge-validation`.
    pub format: String,
    /// Version of this document.
    pub version: u32,
    /// What plans are made with, by kind of GPU, precision and layers, with the errors of sources that were left out.
    pub levels: Vec<LevelResult>,
    /// The constants of every plan; the share of the peak is fitted anew for each set.
    pub constants: Constants,
    /// The sets of runs.
    pub sets: Vec<SetResult>,
    /// How often a run lay within the interval that the errors of other sources give; absent with a single source.
    pub coverage: Option<Coverage>,
    /// Memory of the first stage, where it was published.
    pub memory: Vec<MemoryResult>,
}

/// A level, and how runs come out by other sources than their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelResult {
    /// The level, fitted on all runs.
    #[serde(flatten)]
    pub level: Level,
    /// Errors of its runs, each predicted by the runs of other sources and releases; absent with a single one.
    pub left_out: Option<ErrorSummary>,
    /// Whether other sources or releases have runs of the same level for each of its runs; else the level came from another precision or
    /// from other GPUs.
    pub by_own_level: bool,
    /// Share of its runs within the interval that other sources and releases gave them; absent where they gave none.
    pub within: Option<f64>,
}

/// How far intervals and orders held: every run judged by the errors of other sources than its own, every pair by those of other models.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Runs that have an interval.
    pub runs: usize,
    /// Share of them that lay within it.
    pub within: f64,
    /// Pairs of runs of one question, of which one was predicted to be faster in at least 95 of 100 draws.
    pub sure_pairs: usize,
    /// Share of them in which it was.
    pub sure_right: f64,
    /// The errors of all runs where another of the same model, batch and GPUs sets the level; absent with too few of those.
    pub anchored: Option<StepError>,
}

/// The name of a user's own runs.
pub const OWN_RUNS: &str = "runs";

/// Where a set of runs comes from.
pub struct SetOrigin<'a> {
    /// What it is called; [`OWN_RUNS`] are a user's own.
    pub name: &'a str,
    /// Where the runs were published, or the user's file.
    pub source: &'a str,
    /// What to do where nobody says it.
    pub assumption: Option<&'a str>,
}

/// What came of one set of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetResult {
    /// Its name, as `--set` takes it; `runs` for a user's own.
    pub name: String,
    /// The kind of GPU, the precision and the kind of layers: a set with several is several here.
    pub level: String,
    /// Where the runs were published, or the user's file.
    pub source: String,
    /// Where the times of calls come from.
    pub machine: String,
    /// What a GPU reaches at most in products and in its memory, and who says so.
    pub gpu: String,
    /// What to do where nobody says which GPU it is.
    pub assumption: Option<String>,
    /// Share of the peak, fitted on all runs of the set.
    pub share_of_peak: f64,
    /// Errors with that.
    pub fitted: ErrorSummary,
    /// Errors where the share was fitted without the model of each run; with a single model, where it is the level of plans.
    pub left_out: ErrorSummary,
    /// Errors of the simplest rival, model left out: products at one share of the peak, and nothing else. Absent with a single model, of
    /// which nothing can be left out.
    pub constant_share: Option<ErrorSummary>,
    /// Kendall's tau-b of all runs, left-out predictions against measurements.
    pub kendall_tau: Option<f64>,
    /// The runs, in the order in which they were published.
    pub runs: Vec<RunResult>,
    /// Runs of one model, which are the choices that somebody had.
    pub choices: Vec<ChoiceResult>,
}

/// One run, predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Who published it; empty for a user's own.
    pub source: String,
    /// In which of their publications; empty where there is one.
    pub release: String,
    /// The model.
    pub model: String,
    /// What tells the run from others of its model beside the layout; empty where nothing does.
    pub variant: String,
    /// GPUs.
    pub gpus: u64,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Pipeline parallel.
    pub pp: u32,
    /// Data parallel.
    pub dp: u32,
    /// Model chunks on each rank.
    pub virtual_stages: u32,
    /// Samples of a micro-batch.
    pub micro_batch: u64,
    /// Samples of a step.
    pub global_batch: u64,
    /// Tokens of a sample.
    pub sequence: u64,
    /// Seconds of a step, as measured.
    pub measured_seconds: f64,
    /// Seconds with the share fitted on the whole set.
    pub predicted_seconds: f64,
    /// Percent by which that is too long.
    pub error_percent: f64,
    /// Seconds with the share fitted without this model.
    pub left_out_seconds: f64,
    /// Percent by which that is too long.
    pub left_out_error_percent: f64,
    /// That share.
    pub left_out_share_of_peak: f64,
    /// Seconds with the share that the runs of other sources and releases give; absent with a single one.
    pub source_left_out_seconds: Option<f64>,
    /// Lower end of the interval around those, by the errors of other sources and releases.
    pub low_seconds: Option<f64>,
    /// Upper end.
    pub high_seconds: Option<f64>,
    /// What the predicted seconds are made of.
    pub parts: StepPrice,
}

/// All runs of one model and one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChoiceResult {
    /// The model.
    pub model: String,
    /// GPUs.
    pub gpus: u64,
    /// Its runs.
    pub runs: usize,
    /// Kendall's tau-b of left-out predictions and measurements.
    pub kendall_tau: Option<f64>,
    /// Percent by which the run predicted to be the fastest takes longer than the one that was.
    pub top_1_regret_percent: f64,
}

impl SetResult {
    pub(super) fn of(
        origin: &SetOrigin,
        first: &Replay,
        share: f64,
        runs: Vec<RunResult>,
        constant_share: Option<ErrorSummary>,
    ) -> SetResult {
        let fitted: Vec<PredictionPair> = runs.iter().map(RunResult::fitted).collect();
        let left_out: Vec<PredictionPair> = runs.iter().map(RunResult::left_out).collect();
        SetResult {
            name: origin.name.to_owned(),
            source: origin.source.to_owned(),
            level: first.key.to_string(),
            machine: first.rates().name(),
            gpu: first.gpu.clone(),
            assumption: origin.assumption.map(str::to_owned),
            share_of_peak: share,
            fitted: ErrorSummary::of(&fitted),
            left_out: ErrorSummary::of(&left_out),
            constant_share,
            kendall_tau: kendall_tau(&left_out),
            choices: choices(&runs),
            runs,
        }
    }
}

impl RunResult {
    fn fitted(&self) -> PredictionPair {
        PredictionPair { predicted: self.predicted_seconds, measured: self.measured_seconds }
    }

    pub(super) fn left_out(&self) -> PredictionPair {
        PredictionPair { predicted: self.left_out_seconds, measured: self.measured_seconds }
    }

    /// With the level of other sources.
    pub(super) fn source_left_out(&self) -> Option<PredictionPair> {
        let measured = self.measured_seconds;
        self.source_left_out_seconds.map(|predicted| PredictionPair { predicted, measured })
    }

    /// Whether it is within its interval.
    pub(super) fn is_within(&self) -> Option<bool> {
        Some((self.low_seconds?..=self.high_seconds?).contains(&self.measured_seconds))
    }

    /// What somebody could choose between: one model, one batch, the same GPUs and software.
    pub(super) fn question(&self) -> Question<'_> {
        (&self.model, self.gpus, self.global_batch, self.sequence, &self.release)
    }
}

/// Model, GPUs, samples, tokens of each, and release.
pub(super) type Question<'a> = (&'a str, u64, u64, u64, &'a str);

/// Questions with several runs, in order of appearance.
fn choices(runs: &[RunResult]) -> Vec<ChoiceResult> {
    let mut questions: Vec<Question> = Vec::new();
    for run in runs {
        if !questions.contains(&run.question()) {
            questions.push(run.question());
        }
    }
    let answer = |question: Question| {
        let pairs: Vec<PredictionPair> =
            runs.iter().filter(|run| run.question() == question).map(RunResult::left_out).collect();
        (pairs.len() > 1).then(|| ChoiceResult {
            model: question.0.to_owned(),
            gpus: question.1,
            runs: pairs.len(),
            kendall_tau: kendall_tau(&pairs),
            top_1_regret_percent: top_1_regret_percent(&pairs).unwrap_or(0.0),
        })
    };
    questions.into_iter().filter_map(answer).collect()
}
